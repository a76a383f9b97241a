/**
 * Bodies that no job could have and the API takes, or may take: they go upstream as they came, as ever, but not around the gate
 * of the model that they name.
 */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { KEYS, MARK, MODEL, start } from "./harness.mjs";
import { statuses } from "./official-sdk.mjs";

const bodies = (marker) => {
  const messages = `"messages":[{"role":"user","content":"${MARK} [[${marker}]]"}]`;
  return {
    "a whole number with a point": `{"model":"${MODEL}","max_tokens":500.0,${messages}}`,
    "a name that is there twice": `{"model":"${MODEL}","max_tokens":1,"max_tokens":50,${messages}}`,
    "half a character": `{"model":"${MODEL}","max_tokens":50,"system":"${MARK} \\ud83c","stream":true,${messages}}`,
    "a model that is there twice": `{"model":"claude-none-1","model":"${MODEL}","max_tokens":50,${messages}}`,
  };
};

describe("a body that no job could have", { concurrency: true }, async () => {
  const spillway = await start({
    calls: true,
    script: { rules: [{ when: { marker: "[[overloaded]]" }, then: { status: 529 } }] },
  });
  after(() => spillway.stop());
  const ask = async (body, headers = {}) => {
    const own = { "content-type": "application/json", "x-api-key": KEYS.app };
    const url = `${spillway.url}/v1/messages`;
    const response = await fetch(url, { method: "POST", headers: { ...own, ...headers }, body });
    return { status: response.status, headers: response.headers, text: await response.text() };
  };
  const told = (headers) =>
    ["spillway-handoff", "spillway-model-used", "spillway-attempts", "spillway-job"].map((name) => headers.get(name));

  test("is answered, and says that it could not have been handed over", async () => {
    for (const [what, body] of Object.entries(bodies("healthy"))) {
      const { status, headers, text } = await ask(body);
      assert.equal(status, 200, `${what}: ${text}`);
      assert.deepEqual(told(headers), ["never", MODEL, "1", null], what);
    }
    assert.equal(spillway.calls({ marker: "healthy" }).length, 4);
  });

  test("is tried once more, its overload passed on, and no job made", async () => {
    const body = bodies("overloaded")["a whole number with a point"];
    const { status, headers, text } = await ask(body, { "spillway-handoff": "wait" });
    assert.deepEqual([status, JSON.parse(text).error.type], [529, "overloaded_error"]);
    assert.equal(headers.get("spillway-job"), null);
    assert.deepEqual(statuses(spillway, "overloaded"), [529, 529]);
  });

  test("and no model is the upstream's to refuse", async () => {
    const { status, text } = await ask(`{"max_tokens":50.0,"model":7}`);
    assert.deepEqual([status, JSON.parse(text).error.type], [400, "invalid_request_error"]);
  });
});

test("a body that no job could have is not called for while its model's gate is forced open", async () => {
  const spillway = await start({ calls: true });
  try {
    const until = new Date(Date.now() + 600_000).toISOString();
    const order = { state: "open", until, note: "a test" };
    const forced = await spillway.request(`/v1/gates/${MODEL}/override`, {
      method: "PUT",
      as: "operator",
      body: order,
    });
    assert.equal(forced.status, 200, forced.text);
    for (const [what, body] of Object.entries(bodies("shut"))) {
      const headers = { "content-type": "application/json", "x-api-key": KEYS.app };
      const response = await fetch(`${spillway.url}/v1/messages`, { method: "POST", headers, body });
      assert.equal(response.status, 529, what);
      assert.equal((await response.json()).error.type, "overloaded_error", what);
    }
    assert.deepEqual(spillway.calls(), []);
  } finally {
    await spillway.stop();
  }
});
