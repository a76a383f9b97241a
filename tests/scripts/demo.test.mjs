/** The demo: what it shows and says, and that it follows jobs as an app would. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createServer } from "node:http";
import { test } from "node:test";
import { promisify } from "node:util";
import { parseScript } from "../../fake-claude/script.mjs";
import { problemWith } from "../../fake-claude/validate.mjs";
import { Board, PHASES, waitedMs } from "../../scripts/lib/demo/board.mjs";
import { Client } from "../../scripts/lib/demo/client.mjs";
import { curlLines, farewell } from "../../scripts/lib/demo/farewell.mjs";
import { JOBS } from "../../scripts/lib/demo/jobs.mjs";
import { readOptions } from "../../scripts/lib/demo/options.mjs";
import { canRedraw, changeLine, tableLines, wantsColour, wantsUnicode } from "../../scripts/lib/demo/render.mjs";
import { runJobs } from "../../scripts/lib/demo/run.mjs";
import { SPELL } from "../../scripts/lib/demo/spell.mjs";
import { answerLines, exitCode, summaryLine, upstreamLine } from "../../scripts/lib/demo/summary.mjs";
import { Screen } from "../../scripts/lib/demo/terminal.mjs";

const ESCAPES = /\x1b\[[0-9;?]*[a-zA-Z]/g;

const job = (name, more = {}) => ({ name, kind: "short_summary", priority: "medium", request: {}, ...more });

const held = (reason, seconds, more = {}) => ({
  status: "held",
  waiting: { reason, next_check_seconds: seconds },
  attempts: 0,
  calls: 1,
  ...more,
});

/** A board after some statuses: [ms, index, status]. */
function boardAfter(jobs, changes) {
  const board = new Board(jobs, 0);
  for (const [now, index, status] of changes) board.apply(index, status, now);
  return board;
}

const DONE = { status: "done", text: "An answer.", attempts: 1, calls: 2 };
const FAILED = {
  status: "failed",
  reason: "invalid_request",
  error: { message: "temperature: range: 0..1" },
  calls: 1,
};

test("the demo has a dozen jobs of every kind and priority, one of which must fail", () => {
  assert.ok(JOBS.length >= 12 && JOBS.length <= 14);
  const all = (field) => new Set(JOBS.map((one) => one[field]));
  for (const kind of "short_summary tagging classification structured_extract long_form_writing code_generation".split(
    " ",
  )) {
    assert.ok(all("kind").has(kind), kind);
  }
  assert.deepEqual([...all("priority")].sort(), ["high", "low", "medium"]);
  assert.equal(all("name").size, JOBS.length);
  assert.equal(JOBS.filter(({ expectFailure }) => expectFailure).length, 1);
});

test("the API takes every request of the demo but the one that must fail", () => {
  for (const { name, request, expectFailure } of JOBS) {
    const problem = problemWith({ model: "claude-sonnet-5-5", ...request });
    assert.equal(problem !== null, expectFailure !== undefined, `${name}: ${problem?.message}`);
  }
});

test("the spell is a valid script, and each of its markers is in exactly one prompt", () => {
  parseScript(SPELL);
  for (const marker of SPELL.rules.flatMap(({ when }) => when.marker ?? [])) {
    const having = JOBS.filter(({ request }) => JSON.stringify(request).includes(marker));
    assert.equal(having.length, 1, marker);
  }
});

test("options are few, and a wrong one is answered with a sentence", () => {
  assert.deepEqual(readOptions(["--once"], {}), { once: true, plain: false, help: false, port: 8787 });
  assert.equal(readOptions([], { PORT: "0" }).port, 0);
  assert.throws(() => readOptions(["--onse"], {}), /Unknown option '--onse'.*npm start -- --help/);
  assert.throws(() => readOptions([], { PORT: "http" }), /PORT is http: it has to be a number/);
});

test("a status is news when state, reason or calls are, not when a wait is a second shorter", () => {
  const board = new Board([job("a")], 0);
  for (const [status, news] of [
    [{ status: "received", attempts: 0, calls: 0 }, true],
    [{ status: "generating", attempts: 0, calls: 1 }, true],
    [held("breaker_open", 5), true],
    [held("breaker_open", 4), false],
    [held("probe_in_flight", 4), true],
    [held("probe_in_flight", 4, { calls: 2 }), true],
    [DONE, true],
  ]) {
    assert.equal(board.apply(0, status, 100), news, JSON.stringify(status));
  }
  assert.ok(board.finished);
});

test("a job that waits keeps the phase that it has reached", () => {
  const board = boardAfter(
    [job("a")],
    [
      [0, 0, { status: "refining" }],
      [1, 0, held("overloaded", 3)],
    ],
  );
  assert.equal(PHASES[board.rows[0].phase], "refining");
});

test("waits add up, the one that lasts included, and end with the job", () => {
  const board = boardAfter(
    [job("a")],
    [
      [1000, 0, held("retry_after", 3)],
      [3000, 0, { status: "generating" }],
      [4000, 0, held("overloaded", 3)],
    ],
  );
  assert.equal(waitedMs(board.rows[0], 4500), 2500);
  board.apply(0, DONE, 6000);
  assert.equal(waitedMs(board.rows[0], 99_000), 4000);
});

test("the table fits every terminal, with its most needed columns", () => {
  const board = boardAfter(
    [job("digest"), job("photo-tags-of-a-long-name"), job("bad", { expectFailure: "invalid_request" })],
    [
      [0, 0, { status: "generating", calls: 12 }],
      [0, 1, held("breaker_open", 4)],
      [0, 2, FAILED],
    ],
  );
  for (let columns = 50; columns <= 160; columns++) {
    for (const unicode of [true, false]) {
      const lines = tableLines(board, { now: 1500, columns, colour: true, unicode }).map((line) =>
        line.replace(ESCAPES, ""),
      );
      assert.equal(lines.length, 4);
      for (const line of lines) assert.ok(line.length < columns, `${columns}: ${line.length}`);
      assert.match(lines[1], /^digest .*generating/);
      assert.match(lines[2], /^photo-tags-(…|~) .*held 3 s: break/);
      if (!unicode) assert.match(lines.join(""), /^[\x20-\x7e]*$/);
    }
  }
  const [head, digest, photo, bad] = tableLines(board, { now: 1500, columns: 120, colour: false, unicode: true });
  assert.deepEqual(
    [head, digest, photo, bad],
    [
      "job           kind                priority        state                             calls     time",
      "digest        short_summary       medium    ━━╌╌  generating                           12    1.5 s",
      "photo-tags-…  short_summary       medium    ━╌╌╌  held 3 s: breaker open                1    1.5 s",
      "bad           short_summary       medium    ━╌╌╌  failed: invalid request               1    0.0 s",
    ],
  );
});

test("time left counts down between statuses and never reaches zero", () => {
  const board = boardAfter([job("a")], [[0, 0, held("overloaded", 3)]]);
  const left = (now) => /held (\d+) s:/.exec(changeLine(board, 0, { now, colour: false }))[1];
  assert.deepEqual([0, 500, 1100, 2100, 2999, 9000].map(left), ["3", "3", "2", "1", "1", "1"]);
});

test("a change is one plain line, without escapes unless there are colours", () => {
  const board = boardAfter([job("digest")], [[2000, 0, held("overloaded", 4)]]);
  const line = changeLine(board, 0, { now: 2100, colour: false });
  assert.equal(line, "  2.1 s  digest       held 4 s: overloaded (1 call)");
  assert.match(changeLine(board, 0, { now: 2100, colour: true }), /\x1b\[33mheld 4 s/);
});

test("NO_COLOR, dumb, small and missing terminals are respected", () => {
  assert.equal(wantsColour({}, true), true);
  assert.equal(wantsColour({ NO_COLOR: "1" }, true), false);
  assert.equal(wantsColour({ TERM: "dumb" }, true), false);
  assert.equal(wantsColour({}, false), false);
  assert.equal(wantsUnicode({ LANG: "C" }), false);
  assert.equal(wantsUnicode({ LANG: "C", LC_ALL: "en_US.UTF-8" }), true);
  const terminal = { isTTY: true, columns: 80, rows: 24 };
  for (const [changes, env, expected] of [
    [{}, {}, true],
    [{ isTTY: false }, {}, false],
    [{ columns: 49 }, {}, false],
    [{ rows: 14 }, {}, false],
    [{}, { TERM: "dumb" }, false],
  ]) {
    assert.equal(canRedraw({ ...terminal, ...changes }, env, 14), expected, JSON.stringify([changes, env]));
  }
});

function fakeTerminal(more = {}) {
  const written = [];
  return { isTTY: true, columns: 80, rows: 40, write: (text) => written.push(text), written, ...more };
}

test("the live table is redrawn in place and gives the cursor back", () => {
  const board = new Board([job("a"), job("b")], 0);
  const out = fakeTerminal();
  const screen = new Screen({ board, out, env: { LANG: "C.UTF-8" }, now: () => 0 });
  screen.start();
  screen.changed(0);
  screen.stop();
  screen.stop();
  const [hide, first, second, third, show] = out.written;
  assert.deepEqual([hide, show, out.written.length], ["\x1b[?25l", "\x1b[?25h", 5]);
  assert.doesNotMatch(first, /\x1b\[\d+A/);
  for (const frame of [second, third]) {
    assert.ok(frame.startsWith("\x1b[3A\r"));
    assert.equal(frame.split("\n").length, 4);
  }
});

test("without a terminal there is one line per change and no escape at all", () => {
  for (const [out, env, plain] of [
    [fakeTerminal({ isTTY: false, columns: undefined }), {}, false],
    [fakeTerminal(), { NO_COLOR: "1" }, true],
    [fakeTerminal({ rows: 4 }), { NO_COLOR: "1" }, false],
    [fakeTerminal(), { NO_COLOR: "1", CI: "1" }, false],
  ]) {
    const board = boardAfter([job("a"), job("b")], [[0, 1, DONE]]);
    const screen = new Screen({ board, out, env, plain, now: () => 0 });
    screen.start();
    screen.changed(1);
    screen.stop();
    assert.deepEqual(out.written, ["  0.0 s  b            done (2 calls)\n"]);
  }
});

test("the summary counts jobs, calls, attempts and the longest wait, and says why a job failed", () => {
  const board = boardAfter(
    [job("a"), job("b"), job("c", { expectFailure: "invalid_request" })],
    [
      [1000, 0, held("breaker_open", 3)],
      [5200, 0, DONE],
      [5300, 1, DONE],
      [900, 2, FAILED],
    ],
  );
  assert.equal(
    summaryLine(board, 9000),
    "3 jobs · 2 done · 1 failed (c: invalid request, as expected) · 5 calls · 2 attempts · longest wait 4.2 s (a)",
  );
});

test("jobs that failed for the same reason are summed up together", () => {
  const failed = { status: "failed", reason: "authentication_failed" };
  const names = ["a", "b", "c", "d"];
  const board = (count) =>
    boardAfter(
      names.slice(0, count).map((name) => job(name)),
      names.slice(0, count).map((_, index) => [0, index, failed]),
    );
  assert.match(summaryLine(board(3), 0), /3 failed \(a, b, c: authentication failed\)/);
  assert.match(summaryLine(board(4), 0), /4 failed \(a, b and 2 more: authentication failed\)/);
});

test("the exit code is 0 only if every job ended as it should", () => {
  const jobs = [job("good"), job("bad", { expectFailure: "invalid_request" })];
  for (const [good, bad, expected] of [
    [DONE, FAILED, 0],
    [FAILED, FAILED, 1],
    [DONE, DONE, 1],
    [DONE, { status: "failed", reason: "attempts_exhausted" }, 1],
    [{ status: "cancelled" }, FAILED, 1],
    [{ status: "generating" }, FAILED, 1],
  ]) {
    const board = boardAfter(jobs, [
      [0, 0, good],
      [0, 1, bad],
    ]);
    assert.equal(exitCode(board), expected, JSON.stringify([good, bad]));
  }
});

test("answers are one line each: text, a tool's input, or why there is none", () => {
  const tool = { type: "tool_use", name: "record", input: { a: 1 } };
  const board = boardAfter(
    [job("text"), job("tool"), job("bad", { expectFailure: "invalid_request" })],
    [
      [0, 0, { ...DONE, text: `First line\nand ${"more ".repeat(40)}` }],
      [0, 1, { ...DONE, text: "", result: { content: [tool] } }],
      [0, 2, FAILED],
    ],
  );
  const [text, used, bad] = answerLines(board, { columns: 60, colour: false });
  assert.match(text, /^ {2}text {9}done {3}First line and more .*…$/);
  assert.ok(text.length <= 60);
  assert.match(used, /record\(\{"a":1\}\)$/);
  assert.match(bad, /failed temperature: range: 0\.\.1$/);
});

test("what the upstream saw is counted from the fake's log", () => {
  const call = (outcome) => ({
    outcome: outcome && { completed: false, client_closed: false, fault: null, ...outcome },
  });
  const line = upstreamLine([
    call({ status: 200, completed: true }),
    call({ status: 200, completed: true }),
    call({ status: 529 }),
    call({ status: 200, fault: "error" }),
    call(null),
  ]);
  assert.equal(
    line,
    "The fake Claude's own log: 5 calls (2 × answered, 1 × 529, 1 × overload inside a 200, 1 × still going on)",
  );
});

/**
 * A Worker as far as an app sees it: each job goes through a list of statuses, one further at each poll that could see
 * it. `faults` are answers to give to the first polls instead.
 */
async function standInWorker(t, statuses, { faults = [], submitFaults = [] } = {}) {
  const seen = [];
  const jobs = new Map();
  const server = createServer((request, response) => {
    const answer = (status, body, headers = {}) => {
      response.writeHead(status, { "content-type": "application/json", ...headers });
      response.end(body === null ? undefined : JSON.stringify(body));
    };
    let body = "";
    request.on("data", (part) => (body += part));
    request.on("end", () => {
      seen.push({ method: request.method, url: request.url, headers: request.headers, body });
      if (request.headers.authorization !== "Bearer k") return answer(401, { error: { message: "no" } });
      if (request.method === "POST") {
        if (submitFaults.length) return answer(submitFaults.shift(), { error: { message: "kind: is required" } });
        const id = `job_${jobs.size + 1}`;
        jobs.set(id, 0);
        return answer(202, { id, status: "received", attempts: 0, calls: 0 });
      }
      const fault = faults.shift();
      if (fault === "reset") return request.socket.destroy();
      if (fault === 304) return answer(304, null);
      if (fault) return answer(fault, { error: { message: "later" } });
      const { pathname, searchParams } = new URL(request.url, "http://x");
      const id = pathname.split("/").at(-1);
      if (!jobs.has(id)) return answer(404, { error: { message: "no such job" } });
      const waits = searchParams.has("wait");
      // Held without an ETag to differ from, the answer is the last one.
      const at = waits && !request.headers["if-none-match"] ? statuses.length - 1 : jobs.get(id);
      jobs.set(id, Math.min(at + 1, statuses.length - 1));
      answer(200, { id, ...statuses[at] }, { etag: `W/"${at}"` });
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => (server.closeAllConnections(), server.close()));
  return { url: `http://127.0.0.1:${server.address().port}`, seen };
}

const WAY = [{ status: "generating" }, held("overloaded", 1), { status: "refining" }, DONE];

test("a job is followed through every status, with the last ETag and a held request", async (t) => {
  const worker = await standInWorker(t, WAY);
  const client = new Client(worker.url, "k");
  const { id } = await client.submit(job("a"), "key-1");
  const statuses = [];
  for await (const { status } of client.follow(id, new AbortController().signal)) statuses.push(status);
  assert.deepEqual(statuses, ["generating", "held", "refining", "done"]);
  const [submit, ...polls] = worker.seen;
  assert.equal(submit.headers["idempotency-key"], "key-1");
  assert.deepEqual(
    polls.map(({ url, headers }) => [url.includes("wait="), headers["if-none-match"]]),
    [
      [false, undefined],
      [true, 'W/"0"'],
      [true, 'W/"1"'],
      [true, 'W/"2"'],
    ],
  );
});

test("a poll that fails or has no news is asked again; a submission that is refused says why", async (t) => {
  const polls = await standInWorker(t, [DONE], { faults: [503, "reset", 304], submitFaults: [503] });
  const client = new Client(polls.url, "k");
  const { id } = await client.submit(job("a"), "key-1");
  const statuses = [];
  for await (const { status } of client.follow(id, new AbortController().signal)) statuses.push(status);
  assert.deepEqual(statuses, ["done"]);
  const refusing = await standInWorker(t, [DONE], { submitFaults: [400] });
  await assert.rejects(
    new Client(refusing.url, "k").submit({}, "key-1"),
    /did not take the job \(400\): kind: is required/,
  );
});

/** A signal that is given after so many ms. */
function after(ms) {
  const controller = new AbortController();
  setTimeout(() => controller.abort(), ms);
  return controller.signal;
}

test("a run ends with every job's end, with the patience, or when somebody leaves", async (t) => {
  const run = async (statuses, { patienceMs = 5000, signal = new AbortController().signal } = {}) => {
    const worker = await standInWorker(t, statuses);
    const jobs = [job("a"), job("b")];
    const board = new Board(jobs, Date.now());
    const changed = [];
    const screen = { now: Date.now, changed: (index) => changed.push(board.rows[index].status) };
    await runJobs({ url: worker.url, key: "k", run: "r", jobs, board, screen, signal, patienceMs });
    return { board, changed };
  };
  const whole = await run(WAY);
  assert.equal(exitCode(whole.board), 0);
  assert.equal(whole.changed.filter((status) => status === "held").length, 2);

  const late = await run([{ status: "generating" }], { patienceMs: 100 });
  assert.deepEqual(
    late.board.rows.map(({ status, reason }) => [status, reason]),
    Array(2).fill(["failed", "not finished after 0 s"]),
  );
  const left = await run([{ status: "generating" }], { signal: after(50) });
  assert.equal(left.board.rows[0].status, "generating");
  assert.equal(exitCode(left.board), 1);
});

test("the commands to paste submit a job and read its answer", async (t) => {
  const worker = await standInWorker(t, [DONE]);
  const text = farewell({ url: worker.url, clientKey: "k", adminKey: "adm", fakeUrl: null });
  const commands = curlLines(worker.url, "k");
  assert.ok(text.endsWith(commands));
  const { stdout } = await promisify(execFile)("sh", ["-c", commands]);
  assert.equal(JSON.parse(stdout).text, "An answer.");
  assert.equal(JSON.parse(worker.seen[0].body).kind, "short_summary");
});
