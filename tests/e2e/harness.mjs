/**
 * What the end-to-end tests share: the built Worker on workerd and a fake Claude behind it, both on loopback.
 *
 *     const spillway = await start({ policy: { max_attempts: 2 }, script: { rules: […] } });
 *     after(() => spillway.stop());
 *     const { body } = await spillway.submit(submission("hello"));
 *     const { status } = await spillway.untilDone(body.id);
 *
 * - `start` runs the Worker in this process; `deliver` hands a batch straight to its queue handler, past the broker.
 * - `startProcess` runs it in a process that can be killed (`kill`) and started again on the same state and port
 *   (`restart`), while the fake goes on.
 * - `fault([…])` puts faults between the Worker and its bindings until the next call of it, and `setClock` its clock ahead:
 *   see faults.mjs.
 *
 * What was called is told by the fake's log (`calls`), never by the Worker's own counters. Waiting is done by `?wait=`,
 * by the fake's log (`untilCalls`) or by the Worker's (`untilLog`).
 *
 * `stop` fails, and so the test, if the Worker logged anything that is not one JSON object a line, or that contains a
 * key, a prompt or an answer (every prompt of `submission` bears MARK, and so does the fake's answer to it), or that does
 * not name the job it is about.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { startFakeClaude } from "../../fake-claude/server.mjs";
import { spawnWorker } from "../../scripts/lib/worker-process.mjs";
import { startWorker } from "../../scripts/lib/worker.mjs";

/** In every prompt, and so in every answer; never in a log. */
export const MARK = "zq-confidential";

/** The keys of the clients; "app" has two, as in a rotation. */
export const KEYS = { app: "key-of-app", "app's next": "next-key-of-app", web: "key-of-web", operator: "key-of-admin" };

export const MODEL = "claude-sonnet-5-5";

/** What webhooks are signed with. */
export const WEBHOOK_SECRET = "whsec_c2VjcmV0LW9mLXdlYmhvb2tzLWluLXRlc3Rz";

const SECRETS = {
  ANTHROPIC_API_KEY: "key-of-anthropic",
  CLIENT_KEYS: `app:${KEYS.app}, web:${KEYS.web}, app:${KEYS["app's next"]}`,
  ADMIN_KEY: KEYS.operator,
  SIGNING_SECRET: "secret-of-signing",
  WEBHOOK_SECRET,
};

/**
 * Waits as short as a queue can do them: the second that every wait has at least. And no hour is unlike another: in a peak
 * hour one overload is enough to leave the primary, and before an off-peak one a low job waits for it.
 */
const POLICY = {
  hours: { peak_utc: "", off_peak_utc: "0-24" },
  backoff: {
    rate_limited: { base_ms: 100, cap_ms: 1000 },
    overloaded: { base_ms: 100, cap_ms: 1000 },
    transient: { base_ms: 100, cap_ms: 1000 },
  },
};

/**
 * The body of a submission; `[[name]]` in the text is what the fake's rules and log call a marker. High, because that
 * queue does not wait a second for its batch to fill. A job whose call hangs is better submitted as low: Miniflare's
 * broker delivers one batch at a time per queue, so that all others of its queue would hang with it. Of a kind that never
 * goes to another model, whatever its priority: what a fallback changes is said in ladder.test.mjs.
 */
export function submission(text = "Hello", { request, ...fields } = {}) {
  return {
    kind: "default",
    priority: "high",
    request: { max_tokens: 200, messages: [{ role: "user", content: `${MARK} ${text}` }], ...request },
    ...fields,
  };
}

/** The message for one turn of a job, as it travels through a queue. */
export const envelope = (job, turn = 1) => JSON.stringify({ v: 1, job, turn });

/**
 * How long anything is waited for, ms. It is no claim about the product: a test that waits in vain has failed, and says so later on a
 * fast machine than it could; on a slow one with three tests at once it is not the machine that is tested.
 */
export const PATIENCE = 120_000;

/** Resolves with what `look` answers as soon as that is true; for what nothing tells of. */
export async function eventually(look, { timeout = PATIENCE, what = look } = {}) {
  const until = Date.now() + timeout;
  for (;;) {
    const seen = await look();
    if (seen) return seen;
    if (Date.now() > until) throw new Error(`not within ${timeout} ms: ${what}`);
    await sleep(25);
  }
}

/**
 * @typedef {object} Options
 * @property {object} [policy] POLICY, over that of the tests; `null` for none at all.
 * @property {Record<string, string | undefined>} [vars] Vars and secrets, over those of the tests.
 * @property {object} [script] The fake's, see fake-claude/README.md.
 * @property {string} [stateDir] Without it nothing survives (`startProcess`: a directory for this test).
 * @property {number} [port]
 * @property {string} [wrapEntry] Another module than faults.mjs.
 * @property {boolean} [calls] Whether there are calls that are waited for: lines about them name no job.
 */

/** @param {Options} [options] */
export const start = (options) => Spillway.start(startWorker, options);

/** @param {Options} [options] */
export async function startProcess({ stateDir, ...options } = {}) {
  const ownDir = stateDir ? undefined : mkdtempSync(join(tmpdir(), "spillway-e2e-"));
  const spillway = await Spillway.start(spawnWorker, { ...options, stateDir: stateDir ?? ownDir });
  if (ownDir) spillway.onStop = () => rmSync(ownDir, { recursive: true, force: true });
  return spillway;
}

/** A deployment. */
class Spillway {
  #run;
  #options;
  #hasCalls;
  #lines = [];
  #watchers = new Set();
  onStop = () => {};

  static async start(run, { policy = {}, vars = {}, script = {}, stateDir, port, wrapEntry, calls = false } = {}) {
    const spillway = new Spillway();
    spillway.fake = await startFakeClaude({ script });
    spillway.secrets = [...Object.values(KEYS), SECRETS.ANTHROPIC_API_KEY, SECRETS.SIGNING_SECRET, WEBHOOK_SECRET];
    spillway.#run = run;
    spillway.#hasCalls = calls;
    spillway.#options = {
      stateDir,
      port,
      wrapEntry: wrapEntry ?? fileURLToPath(new URL("./faults.mjs", import.meta.url)),
      vars: {
        ANTHROPIC_BASE_URL: spillway.fake.url,
        ...SECRETS,
        ...(policy && { POLICY: JSON.stringify({ ...POLICY, ...policy }) }),
        ...vars,
      },
      log: (line) => {
        spillway.#lines.push(line);
        for (const look of spillway.#watchers) look();
      },
    };
    try {
      await spillway.#begin();
    } catch (error) {
      await spillway.fake.stop();
      throw error;
    }
    return spillway;
  }

  async #begin() {
    this.worker = await this.#run(this.#options);
    this.url = this.worker.url;
    this.#options.port = Number(new URL(this.url).port);
  }

  /** SIGKILL for the Worker, workerd and all; only with `startProcess`. */
  async kill() {
    await this.worker.kill();
  }

  /** The Worker again, killed or not, on the same state and port, with other vars if there are any. */
  async restart(vars = {}) {
    await this.worker.stop();
    Object.assign(this.#options.vars, vars);
    await this.#begin();
  }

  /**
   * A request to the Worker, and its answer, read. `body` is sent as JSON unless it is text, bytes or a stream.
   *
   * @param {string} path
   * @param {{ method?: string, as?: keyof KEYS | null, headers?: Record<string, string>, body?: unknown }} [options]
   */
  async request(path, { method = "GET", as = "app", headers = {}, body, signal } = {}) {
    const raw = typeof body === "string" || body instanceof Uint8Array || body instanceof ReadableStream;
    const response = await fetch(this.url + path, {
      method,
      headers: {
        ...(as && { authorization: `Bearer ${KEYS[as]}` }),
        ...(body !== undefined && { "content-type": "application/json" }),
        ...headers,
      },
      body: raw || body === undefined ? body : JSON.stringify(body),
      duplex: "half",
      signal,
    });
    const text = await response.text();
    return { status: response.status, headers: response.headers, text, body: parsed(text) };
  }

  /** POST /v1/jobs. `key` is an idempotency key. */
  submit(body = submission(), { client = "app", key, headers } = {}) {
    const own = key === undefined ? {} : { "idempotency-key": key };
    return this.request("/v1/jobs", { method: "POST", as: client, headers: { ...own, ...headers }, body });
  }

  /** Submits what has to be accepted, and answers the job's id. */
  async accepted(body, options) {
    const { status, body: receipt, text } = await this.submit(body, options);
    assert.equal(status, 202, text);
    return receipt.id;
  }

  /** GET /v1/jobs/{id}. */
  job(id, { wait, etag, client = "app" } = {}) {
    const headers = etag === undefined ? {} : { "if-none-match": etag };
    return this.request(`/v1/jobs/${id}${wait === undefined ? "" : `?wait=${wait}`}`, { as: client, headers });
  }

  /** GET /v1/jobs; `query` without the question mark. */
  list(query = "", { client = "app" } = {}) {
    return this.request(`/v1/jobs${query && `?${query}`}`, { as: client });
  }

  /** DELETE /v1/jobs/{id}. */
  cancel(id, { client = "app" } = {}) {
    return this.request(`/v1/jobs/${id}`, { method: "DELETE", as: client });
  }

  /** The job's status as soon as it is one of `statuses`; fails once it can no longer become so. */
  async untilStatus(id, statuses, { client } = {}) {
    const wanted = [statuses].flat();
    const until = Date.now() + PATIENCE;
    let etag = '"0"';
    for (;;) {
      const left = Math.max(0, until - Date.now());
      const answer = await this.job(id, { wait: Math.min(60, Math.ceil(left / 1000)), etag, client });
      if (answer.status === 304 && left > 0) continue;
      if (answer.status === 304) assert.fail(`job ${id} changed no more, and is not ${wanted.join(" or ")}`);
      assert.equal(answer.status, 200, answer.text);
      if (wanted.includes(answer.body.status)) return answer.body;
      const over = ["done", "failed", "cancelled"].includes(answer.body.status) || left === 0;
      if (over) assert.fail(`job ${id} is not ${wanted.join(" or ")}: ${answer.text}`);
      etag = answer.headers.get("etag");
    }
  }

  untilDone(id, options) {
    return this.untilStatus(id, "done", options);
  }

  /** The fake's log; see `calls` in fake-claude/README.md for the filter. */
  calls(filter) {
    return this.fake.calls(filter);
  }

  /** Resolves with the fake's log as soon as `condition` holds for it. */
  untilCalls(condition) {
    return this.fake.until(condition, PATIENCE);
  }

  /** Hands a batch to the queue handler, past the broker: see `queue` in scripts/lib/worker.mjs. */
  deliver(queue, messages) {
    return this.worker.queue(`spillway-${queue}`, [messages].flat());
  }

  /** From now on these faults, and no others. */
  async fault(faults = []) {
    const { status, text } = await this.request("/__test/faults", { method: "PUT", body: [faults].flat() });
    assert.equal(status, 200, text);
  }

  /** Puts the Worker's clock ahead of the real one: see faults.mjs. Another start of the Worker puts it back. */
  async setClock(aheadMs) {
    const { status, text } = await this.request("/__test/clock", { method: "PUT", body: { ahead_ms: aheadMs } });
    assert.equal(status, 200, text);
  }

  /** What the Worker has written to Analytics Engine. */
  async points() {
    return (await this.request("/__test/points")).body;
  }

  /** The delays, in seconds, with which the message of a job's turn was given to its queue, in order. */
  async delays(job, turn) {
    const { body } = await this.request("/__test/sent");
    return body.filter(({ body }) => body === envelope(job, turn)).map(({ delay_seconds }) => delay_seconds);
  }

  /** The Worker's gates, by model, as its operator sees them. */
  async gates() {
    const { status, body, text } = await this.request("/v1/gates", { as: "operator" });
    assert.equal(status, 200, text);
    return body.gates;
  }

  /** How often each of the present faults has struck. */
  async struck() {
    return (await this.request("/__test/faults")).body.map(({ struck }) => struck);
  }

  /** What KV holds under `key`, parsed, or null. */
  async stored(key) {
    const results = await this.worker.mf.getKVNamespace("RESULTS");
    return results.get(key, "json");
  }

  /** The log lines that are JSON objects, in order; those of one event if it is named. */
  logs(event) {
    return this.#lines.map(parsed).filter((line) => line && (event === undefined || line.event === event));
  }

  /** Resolves with the first logged line that fulfils `condition`. */
  untilLog(condition) {
    return new Promise((resolve, reject) => {
      const look = () => {
        const line = this.logs().find(condition);
        if (line) end(resolve, line);
      };
      const failed = () => end(reject, new Error(`not logged within ${PATIENCE} ms: ${condition}`));
      const timer = setTimeout(failed, PATIENCE);
      const end = (settle, value) => {
        clearTimeout(timer);
        this.#watchers.delete(look);
        settle(value);
      };
      this.#watchers.add(look);
      look();
    });
  }

  /** Fails if something was logged that must not be. */
  checkLogs() {
    const exceptions = [...ABOUT_NO_JOB, ...(this.#hasCalls ? ABOUT_A_CALL : [])];
    for (const line of this.#lines) {
      // What workerd says about itself.
      if (line.startsWith("NOSENTRY ")) continue;
      assert.ok(isObject(parsed(line)) && !line.includes("\n"), `logged what is no JSON object: ${line}`);
      assert.ok(namesItsJob(parsed(line), exceptions), `logged without its job: ${line}`);
      assert.ok(!line.includes(MARK), `logged a prompt or an answer: ${line}`);
      for (const secret of this.secrets) assert.ok(!line.includes(secret), `logged a key: ${line}`);
    }
  }

  async stop() {
    await this.worker.stop();
    await this.fake.stop();
    this.onStop();
    this.checkLogs();
  }
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * What is about no job: a message that may be none of ours, the settings, what the operator does with gates and queues, and
 * lists of jobs.
 */
const ABOUT_NO_JOB = [
  ({ event }) => ["message_discarded", "message_retried", "gate_overridden", "override_ended"].includes(event),
  ({ event }) => ["queue_paused", "queue_resumed", "drain_started", "drain_ended"].includes(event),
  ({ event, why }) => event === "gate_transition" && why.startsWith("override_"),
  ({ event, part }) =>
    event === "trouble" && ["alerts", "configuration", "gate", "index", "kv", "meter"].includes(part),
];

/** The same of calls that are waited for: most of them never become a job, and what they find out moves gates. */
const ABOUT_A_CALL = [
  ({ event }) =>
    ["sync_call", "call_succeeded", "call_failed", "call_abandoned", "gate_transition", "account_refused"].includes(
      event,
    ),
];

const namesItsJob = (line, exceptions) =>
  /^job_[0-9a-f]{32}$/.test(line.job) || (!line.job && exceptions.some((is) => is(line)));

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
