/** The control routes, the log, and the fake as a program. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { fakeFor, MODEL, post, postJson, request } from "./support.mjs";

const MAIN = fileURLToPath(new URL("../../fake-claude/main.mjs", import.meta.url));

async function control(fake, method, path, body) {
  const response = await fetch(`${fake.url}/_fake${path}`, { method, body: body && JSON.stringify(body) });
  return { status: response.status, headers: response.headers, body: await response.json() };
}

test("the script is read and replaced over HTTP", async (t) => {
  const fake = await fakeFor(t);
  const script = { name: "bad day", rules: [{ then: { status: 529 } }] };
  assert.deepEqual((await control(fake, "PUT", "/script", script)).body, { ok: true, rules: 1 });
  assert.deepEqual((await control(fake, "GET", "/script")).body, script);
  assert.equal((await postJson(fake, request())).status, 529);
});

test("a script with problems is refused whole, and the old one stays", async (t) => {
  const fake = await fakeFor(t, { rules: [{ then: { status: 529 } }] });
  const refused = await control(fake, "PUT", "/script", { rules: [{ then: { status: 1 } }, { then: { tokens: -1 } }] });
  assert.equal(refused.status, 400);
  assert.deepEqual(
    refused.body.problems.map((problem) => problem.split(":")[0]),
    ["rules[0].then.status", "rules[1].then.tokens"],
  );
  assert.equal((await postJson(fake, request())).status, 529);
  assert.equal((await fetch(`${fake.url}/_fake/script`, { method: "PUT", body: "{" })).status, 400);
});

test("a new script starts its clock and counters anew, unless they are kept", async (t) => {
  const fake = await fakeFor(t);
  const script = { rules: [{ when: { call: 2 }, then: { status: 529 } }] };
  const second = async (query) => {
    await fake.setScript(script);
    await postJson(fake, request());
    assert.equal((await control(fake, "PUT", `/script${query}`, script)).status, 200);
    return (await postJson(fake, request())).status;
  };
  assert.equal(await second(""), 200);
  assert.equal(await second("?keep=counters"), 529);
  assert.equal(await second("?keep=clock,counters"), 529);
  assert.equal((await control(fake, "PUT", "/script?keep=hours", script)).status, 400);
});

test("the log has every call in order, with what was sent and what came of it", async (t) => {
  const fake = await fakeFor(t, { rules: [{ name: "second", when: { call: 2 }, then: { status: 529 } }] });
  const body = JSON.stringify(request("Name it [[one]]"));
  const headers = { "x-api-key": "sk-whole-key", "anthropic-beta": "a,b" };
  await (await post(fake, body, { headers })).text();
  await postJson(fake, request("And [[two]]", { stream: true }));
  await postJson(fake, "{");
  const calls = (await control(fake, "GET", "/calls")).body;
  assert.deepEqual(calls, fake.calls());
  assert.deepEqual(
    calls.map(({ n, model, marker, rule, stream, outcome }) => [n, model, marker, rule, stream, outcome.status]),
    [
      [1, MODEL, "one", null, false, 200],
      [2, MODEL, "two", "second", true, 529],
      [3, null, null, null, false, 400],
    ],
  );
  const [first] = calls;
  assert.equal(first.key, "sk-whole-key");
  assert.equal(first.headers["anthropic-beta"], "a,b");
  assert.equal(first.body, body);
  assert.equal(first.body_sha256, createHash("sha256").update(body).digest("hex"));
  assert.equal(first.prompt, "Name it [[one]]");
  assert.ok(first.started_at <= first.ended_at && first.since_script_ms >= 0);
  assert.deepEqual([first.outcome.completed, first.outcome.stop_reason], [true, "end_turn"]);

  const seen = async (query) => (await control(fake, "GET", `/calls${query}`)).body.map(({ n }) => n);
  assert.deepEqual(await seen("?since=1"), [2, 3]);
  assert.deepEqual(await seen("?marker=one"), [1]);
  assert.deepEqual(await seen(`?model=${MODEL}`), [1, 2]);
  assert.deepEqual(await seen("?open=1"), []);
  assert.equal((await control(fake, "GET", "/calls?bodies=0")).body[0].body, undefined);
  assert.equal((await control(fake, "GET", "/calls?since=x")).status, 400);
  assert.equal((await control(fake, "DELETE", "/calls")).body.deleted, 3);
  assert.deepEqual(fake.calls(), []);
});

test("reset empties the log and plays the same script from its beginning", async (t) => {
  const fake = await fakeFor(t, { rules: [{ when: { call: 1 }, then: { status: 529 } }] });
  for (const expected of [529, 200]) assert.equal((await postJson(fake, request())).status, expected);
  assert.equal((await control(fake, "POST", "/reset")).status, 200);
  assert.equal((await postJson(fake, request())).status, 529);
  assert.equal(fake.calls()[0].n, 1);
});

test("health tells what is going on; other control routes and methods are 404 and 405", async (t) => {
  const fake = await fakeFor(t, { name: "calm" });
  await postJson(fake, request());
  const { body } = await control(fake, "GET", "/health");
  assert.deepEqual([body.ok, body.calls, body.in_flight, body.script, body.listening], [true, 1, 0, "calm", true]);
  assert.equal((await control(fake, "GET", "/nothing")).status, 404);
  const wrong = await control(fake, "POST", "/calls");
  assert.deepEqual([wrong.status, wrong.headers.get("allow")], [405, "GET, DELETE"]);
});

test("a body over 64 KB is hashed and not kept; one over 32 MB is a 413 that is not JSON", async (t) => {
  const fake = await fakeFor(t, { check_context: false });
  const large = Buffer.from(JSON.stringify(request("y".repeat(80_000))));
  await (await post(fake, large)).text();
  const [{ body, body_bytes: bytes, body_sha256: hash }] = fake.calls();
  assert.deepEqual([body, bytes], [undefined, large.length]);
  assert.equal(hash, createHash("sha256").update(large).digest("hex"));

  const fits = Buffer.from(JSON.stringify(request("z".repeat(31 * 1024 * 1024))));
  assert.equal((await post(fake, fits)).status, 200);
  const response = await post(fake, Buffer.alloc(40 * 1024 * 1024, "x"));
  assert.equal(response.status, 413);
  assert.match(await response.text(), /<h1>413/);
  assert.equal(fake.calls().at(-1).body_bytes, 40 * 1024 * 1024);
});

test("2,000 calls, 250 at a time and some of them leaving, are all answered and logged", async (t) => {
  const fake = await fakeFor(t, { seed: 3, rules: [{ when: { probability: 0.3 }, then: { status: 529 } }] });
  const statuses = new Map();
  let next = 0;
  const client = async () => {
    while (next < 2000) {
      const n = next++;
      const leaving = n % 50 === 0 ? AbortSignal.timeout(1) : undefined;
      try {
        const response = await post(fake, request(`Call [[${n}]]`, { stream: n % 2 === 0 }), { signal: leaving });
        await response.text();
        statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1);
      } catch (error) {
        assert.equal(error.name, "TimeoutError");
      }
    }
  };
  await Promise.all(Array.from({ length: 250 }, client));
  const calls = await fake.until((all) => all.every(({ outcome }) => outcome !== null));
  assert.ok(calls.length >= 1960 && calls.length <= 2000);
  assert.deepEqual(
    calls.map(({ n }) => n),
    calls.map((_, index) => index + 1),
  );
  const logged = (status) => calls.filter(({ outcome }) => outcome.status === status && !outcome.client_closed).length;
  assert.ok(logged(200) >= statuses.get(200) && logged(529) >= statuses.get(529));
  assert.ok(statuses.get(529) > 450 && statuses.get(529) < 750, String(statuses.get(529)));
});

async function program(t, args) {
  const child = spawn(process.execPath, [MAIN, ...args], { stdio: ["ignore", "pipe", "pipe"] });
  t.after(() => child.kill("SIGKILL"));
  const run = { child, out: "", err: "" };
  child.stdout.on("data", (data) => (run.out += data));
  child.stderr.on("data", (data) => (run.err += data));
  run.ended = once(child, "close").then(([code]) => code);
  return run;
}

test("the program prints one line with its URL when it is ready, and stops cleanly", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "fake-claude-"));
  t.after(() => rm(folder, { recursive: true }));
  const file = join(folder, "script.json");
  await writeFile(file, JSON.stringify({ rules: [{ then: { status: 529 } }] }));
  for (const signal of ["SIGINT", "SIGTERM"]) {
    const run = await program(t, ["--port", "0", "--script", file]);
    await once(run.child.stdout, "data");
    const [, url] = /^fake Claude on (http:\S+) \(.*script\.json: 1 rule\)\n$/.exec(run.out);
    assert.equal((await post({ url }, request())).status, 529);
    run.child.kill(signal);
    assert.equal(await run.ended, 0);
    assert.equal(run.err, "");
  }
});

test("the program says what is wrong with its arguments and its script", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "fake-claude-"));
  t.after(() => rm(folder, { recursive: true }));
  const file = join(folder, "script.json");
  await writeFile(file, JSON.stringify({ rules: [{ then: { status: 1 } }] }));
  for (const [args, code, out, err] of [
    [["--help"], 0, /--script FILE/, /^$/],
    [["--port", "many"], 1, /^$/, /--port must be a number/],
    [["--colour"], 1, /^$/, /Unknown option '--colour'.*--help/],
    [["--script", join(folder, "none.json")], 1, /^$/, /cannot read .*none\.json/],
    [["--script", file], 1, /^$/, /script\.json: rules\[0\]\.then\.status: must be a whole number/],
  ]) {
    const run = await program(t, args);
    assert.equal(await run.ended, code, args.join(" "));
    assert.match(run.out, out);
    assert.match(run.err, err);
  }
});
