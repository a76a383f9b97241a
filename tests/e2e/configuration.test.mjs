/** A setting that is wrong is named on every route until it is mended, and what is in the queues stays there. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { envelope, MODEL, start, submission } from "./harness.mjs";

const ROUTES = [
  ["POST", "/v1/jobs", submission()],
  ["GET", `/v1/jobs/job_${"0".repeat(32)}`],
  ["DELETE", `/v1/jobs/job_${"0".repeat(32)}`],
  ["GET", "/v1/gates"],
];

async function withWorker(options, check) {
  const spillway = await start(options);
  try {
    await check(spillway);
  } finally {
    await spillway.stop();
  }
}

test("a POLICY with an unknown key is 503 on every route, naming the key; nothing in the queues is lost by it", async () => {
  const stateDir = mkdtempSync(join(tmpdir(), "spillway-configuration-"));
  try {
    await withWorker({ stateDir }, async (spillway) => {
      await spillway.fault({ binding: "queue", how: "lose" });
      const id = await spillway.accepted(submission("[[kept]]"));
      const POLICY = JSON.stringify({ max_atempts: 3, breaker: { opne_seconds: 5, open_seconds: "long" } });
      await spillway.restart({ POLICY });
      const keys = ["POLICY.max_atempts", "POLICY.breaker.opne_seconds", "POLICY.breaker.open_seconds"];

      for (const [method, path, body] of ROUTES) {
        for (const as of ["app", "operator", null]) {
          const answer = await spillway.request(path, { method, as, body });
          assert.equal(answer.status, 503, `${method} ${path}: ${answer.text}`);
          assert.equal(answer.body.type, "error");
          assert.ok(Number(answer.headers.get("retry-after")) >= 1);
          for (const key of keys) assert.ok(answer.body.error.message.includes(key), answer.text);
        }
      }
      const health = await spillway.request("/healthz", { as: null });
      assert.equal(health.status, 503);
      assert.equal(health.body.status, "misconfigured");
      assert.deepEqual(health.body.problems.map(({ key }) => key).sort(), keys.sort());

      for (const queue of ["high", "medium", "low", "dead"]) {
        const { outcome, explicitAcks, retryMessages } = await spillway.deliver(queue, [
          { id: "a", body: envelope(id) },
          { id: "b", body: "rubbish" },
        ]);
        assert.equal(outcome, "ok");
        assert.deepEqual(explicitAcks, []);
        assert.deepEqual(retryMessages.map(({ msgId }) => msgId).sort(), ["a", "b"]);
        // At one delivery a minute, a hundred of them are time enough to mend it.
        for (const { delaySeconds } of retryMessages) assert.ok(delaySeconds >= 30, `${delaySeconds}`);
      }
      assert.deepEqual(spillway.calls(), []);

      await spillway.restart({ POLICY: "{}" });
      assert.equal((await spillway.job(id)).body.status, "received");
      await spillway.deliver("high", envelope(id));
      assert.equal((await spillway.job(id)).body.status, "done");
      assert.equal(spillway.calls({ marker: "kept" }).length, 1);
    });
  } finally {
    rmSync(stateDir, { recursive: true, force: true });
  }
});

test("a POLICY that is no JSON, and a broken key list, are named without repeating a key", async () => {
  await withWorker({ vars: { POLICY: "{", CLIENT_KEYS: "app:key-of-app,key-of-web" } }, async (spillway) => {
    const { status, body, text } = await spillway.request("/healthz", { as: null });
    assert.equal(status, 503);
    assert.deepEqual(body.problems.map(({ key }) => key).sort(), ["CLIENT_KEYS", "POLICY"]);
    assert.ok(!text.includes("key-of-"), text);
  });
});

test("POLICY may be an object instead of a text, and is read as strictly", async () => {
  await withWorker(
    { policy: null, vars: { POLICY: { max_attempts: 1, call: { idle_seconds: 0 } } } },
    async (spillway) => {
      const { body } = await spillway.request("/healthz", { as: null });
      assert.deepEqual(
        body.problems.map(({ key }) => key),
        ["POLICY.call.idle_seconds"],
      );
    },
  );
  const script = { rules: [{ then: { status: 500 } }] };
  await withWorker({ policy: null, vars: { POLICY: { max_attempts: 1 } }, script }, async (spillway) => {
    const id = await spillway.accepted(submission("[[once]]", { when_exhausted: "fail" }));
    const failed = await spillway.untilStatus(id, "failed");
    assert.equal(failed.reason, "attempts_exhausted");
    assert.equal(spillway.calls().length, 1);
  });
});

test("without POLICY the defaults hold, and PRIMARY_MODEL is what a request without a model gets", async () => {
  const vars = { PRIMARY_MODEL: "claude-opus-5-5", ANTHROPIC_API_KEY: undefined };
  await withWorker({ policy: null, vars }, async (spillway) => {
    const { body } = await spillway.request("/healthz", { as: null });
    assert.deepEqual(
      body.warnings.map(({ key }) => key),
      ["ANTHROPIC_API_KEY"],
    );
    const id = await spillway.accepted(submission("[[keyless]]"));
    await spillway.untilCalls(([call]) => call?.outcome);
    const [call] = spillway.calls();
    assert.equal(call.model, "claude-opus-5-5");
    assert.equal(call.key, null);
    const failed = await spillway.untilStatus(id, "failed");
    assert.equal(failed.model_requested, "claude-opus-5-5");
    assert.notEqual(failed.model_requested, MODEL);
  });
});
