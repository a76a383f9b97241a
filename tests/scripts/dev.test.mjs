/** `npm run dev` as other programs use it: one line when it is ready, a clean end, nothing left behind. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { root } from "../../scripts/lib/paths.mjs";

/** @param {import("node:test").TestContext} t */
function stateDirectory(t) {
  const directory = mkdtempSync(join(tmpdir(), "spillway-dev-"));
  t.after(() => rmSync(directory, { recursive: true, force: true, maxRetries: 3 }));
  return directory;
}

/** @param {Record<string, string>} env */
function dev(env) {
  const child = spawn(process.execPath, [join(root, "scripts/dev.mjs")], {
    env: { ...process.env, CLIENT_KEYS: "app:k1", ADMIN_KEY: "k2", HOST: "", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const said = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"]) child[name].setEncoding("utf8").on("data", (text) => (said[name] += text));
  const ended = new Promise((resolve) => child.on("close", (code, signal) => resolve({ code, signal })));
  const ready = async () => {
    for (let i = 0; i < 600 && child.exitCode === null && !said.stdout.includes("\n"); i++) await sleep(50);
    const url = said.stdout.match(/^Spillway is ready on (http:\S+)\n$/)?.[1];
    assert.ok(url, JSON.stringify(said));
    return url;
  };
  return { child, said, ended, ready };
}

/** Whether nothing answers there any more; given a moment, because a killed process needs one. */
async function silent(url) {
  for (let i = 0; i < 100; i++) {
    try {
      await (await fetch(url, { signal: AbortSignal.timeout(1000) })).arrayBuffer();
    } catch {
      return true;
    }
    await sleep(50);
  }
  return false;
}

for (const signal of ["SIGTERM", "SIGINT"]) {
  test(`it prints one line when it is ready, and ${signal} ends it with exit code 0 and without a trace`, async (t) => {
    const { child, said, ended, ready } = dev({ PORT: "0", STATE_DIR: stateDirectory(t) });
    const url = await ready();
    assert.match(url, /^http:\/\/127\.0\.0\.1:\d+$/);
    const response = await fetch(`${url}/healthz`);
    await response.arrayBuffer();
    const start = Date.now();
    child.kill(signal);
    assert.deepEqual(await ended, { code: 0, signal: null });
    assert.ok(Date.now() - start < 5000);
    assert.equal(said.stdout, `Spillway is ready on ${url}\n`);
    assert.ok(await silent(url));
  });
}

test("even when it is killed no workerd is left, and the same state can be used at once", async (t) => {
  const directory = stateDirectory(t);
  const first = dev({ PORT: "0", STATE_DIR: directory });
  const url = await first.ready();
  first.child.kill("SIGKILL");
  await first.ended;
  assert.ok(await silent(url));
  const second = dev({ PORT: new URL(url).port, STATE_DIR: directory });
  assert.equal(await second.ready(), url);
  second.child.kill("SIGTERM");
  assert.equal((await second.ended).code, 0);
});

test("a signing secret is made once, kept with the state, and readable by its owner alone", async (t) => {
  const directory = stateDirectory(t);
  const secrets = [];
  for (let i = 0; i < 2; i++) {
    const { child, ended, ready, said } = dev({ PORT: "0", STATE_DIR: directory, SIGNING_SECRET: "" });
    await ready();
    child.kill("SIGTERM");
    await ended;
    const file = join(directory, "signing-secret");
    assert.equal(statSync(file).mode & 0o777, 0o600);
    secrets.push(readFileSync(file, "utf8"));
    assert.ok(!`${said.stdout}${said.stderr}`.includes(secrets[0]));
  }
  assert.match(secrets[0], /^[0-9a-f]{64}$/);
  assert.equal(secrets[0], secrets[1]);
});

test("a port in use is one sentence", async (t) => {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const { port } = server.address();
  const { ended, said } = dev({ PORT: String(port), STATE_DIR: stateDirectory(t) });
  assert.equal((await ended).code, 1);
  assert.equal(said.stdout, "");
  assert.match(said.stderr, new RegExp(`^Port ${port} of 127\\.0\\.0\\.1 is in use: .*\\n$`, "m"));
  assert.ok(!/^\s+at /m.test(said.stderr), said.stderr);
});

test("missing keys are hinted at, and a PORT that is none is one sentence", async (t) => {
  const without = dev({ PORT: "0", STATE_DIR: stateDirectory(t), CLIENT_KEYS: "", ADMIN_KEY: "" });
  await without.ready();
  assert.match(without.said.stderr, /^Hint: CLIENT_KEYS and ADMIN_KEY not set/m);
  without.child.kill("SIGTERM");
  await without.ended;
  const wrong = dev({ PORT: "87x7", STATE_DIR: stateDirectory(t) });
  assert.equal((await wrong.ended).code, 1);
  assert.match(wrong.said.stderr, /^PORT is 87x7: it has to be a number from 0 to 65535\.$/m);
});

test("a configuration that every route would answer with 503 is told at the start", async (t) => {
  const broken = dev({ PORT: "0", STATE_DIR: stateDirectory(t), POLICY: '{"max_attempts":0}' });
  await broken.ready();
  assert.match(broken.said.stderr, /^The configuration is broken.*\n  POLICY\.max_attempts: must be from 1 to 100$/m);
  broken.child.kill("SIGTERM");
  await broken.ended;
});
