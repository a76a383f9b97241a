/**
 * What a job uses of Cloudflare's platform: `npm run bench:usage`. docs/free-plan.md has its figures.
 *
 * The built Worker on workerd with a fake Claude behind it. Between the Worker and its bindings stands usage-counter.mjs, so
 * these are counts and no estimates: the same on every machine, and on Cloudflare, where a message may also come twice.
 * Each scenario is run several times, one job at a time, after some that are not counted: a model's first job and a
 * client's first write one KV entry more each.
 *
 * CPU time is that of the whole workerd process, without the counter: all invocations of a job, and the stand-ins for KV,
 * queues and storage besides, which on Cloudflare are elsewhere. It is more than the limit for one invocation is about.
 *
 * It prints figures and asserts nothing.
 */
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { fileURLToPath } from "node:url";
import { startFakeClaude } from "../fake-claude/server.mjs";
import { Spillway } from "../client/index.js";
import { setUp } from "../scripts/lib/setup.mjs";
import { startWorker } from "../scripts/lib/worker.mjs";

const { values } = parseArgs({ options: { jobs: { type: "string", default: "10" } } });
const JOBS = Number(values.jobs);
const COUNTER = fileURLToPath(new URL("./usage-counter.mjs", import.meta.url));
const KEY = "key";

const job = (text, fields = {}) => ({
  kind: "default",
  priority: "high",
  request: { max_tokens: 8000, messages: [{ role: "user", content: text }] },
  ...fields,
});

async function post(url, path, body) {
  const headers = {
    authorization: `Bearer ${KEY}`,
    "content-type": "application/json",
    "anthropic-version": "2023-06-01",
  };
  const response = await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return response.json();
}

/** A status, read once; `wait` holds it open until the job is over. */
async function read(url, id, wait = 0) {
  const response = await fetch(`${url}/v1/jobs/${id}?wait=${wait}`, { headers: { authorization: `Bearer ${KEY}` } });
  return response.json();
}

/** Until a job has been delivered and its consumer has ended, without asking the Worker anything. */
async function untilConsumed(worker, batches = 1) {
  const until = Date.now() + 30_000;
  while (((await usage(worker))["queue.batches_ended"] ?? 0) < batches) {
    if (Date.now() > until) throw new Error("no consumer has come to an end within 30 s");
    await sleep(50);
  }
}

const usage = async ({ url }, method = "GET") => (await fetch(`${url}/__test/usage`, { method })).json();

/** What is done for each job; its text names the rule of the fake. */
const SCENARIOS = {
  "a job, submitted and not read": async (worker, text) => {
    await post(worker.url, "/v1/jobs", job(text));
    await untilConsumed(worker);
  },
  "… one read of its status, when it is over": async (worker, text) => {
    const { id } = await post(worker.url, "/v1/jobs", job(text));
    await untilConsumed(worker);
    await sleep(200);
    await usage(worker, "DELETE");
    await read(worker.url, id);
  },
  "a job that is waited for with ?wait=60 (answer of 4 s)": async (worker, text) => {
    const { id } = await post(worker.url, "/v1/jobs", job(`${text} ~four~`));
    await read(worker.url, id, 60);
  },
  "a job that is watched by events (answer of 4 s)": async (worker, text) => {
    const spillway = new Spillway({ baseUrl: worker.url, key: KEY });
    await spillway.wait(await spillway.submit(job(`${text} ~four~`)), { onProgress() {} });
  },
  "a job whose first call is overloaded": async (worker, text) => {
    await post(worker.url, "/v1/jobs", job(`${text} ~overloaded~`));
    await untilConsumed(worker);
  },
  "a job that waits once in the queue (429, 1 s)": async (worker, text) => {
    await post(worker.url, "/v1/jobs", job(`${text} ~limited~`));
    await untilConsumed(worker, 2);
  },
  "a call that is waited for (POST /v1/messages)": async (worker, text) => {
    await post(worker.url, "/v1/messages", { model: "claude-sonnet-5-5", ...job(text).request });
  },
};

/**
 * With a lease of 6 s instead of 120, which is renewed every 2 s instead of 40: 9 s of it are 180 s of the other. What ends
 * comes first, before there are others to end in the meantime.
 */
const IN_A_HURRY = {
  "a job's end, when its retention is over": async (worker, text) => {
    await post(worker.url, "/v1/jobs", job(text));
    await untilConsumed(worker);
    await sleep(1000);
    await usage(worker, "DELETE");
    await sleep(65_000);
  },
  "a job whose call takes 3 minutes": async (worker, text) => {
    await post(worker.url, "/v1/jobs", job(`${text} ~nine~`));
    await untilConsumed(worker);
  },
};

/** Few of those that take long, and one of the one that takes a minute. */
const timesFor = (name) => (name.includes("end,") ? 1 : /4 s|minutes/.test(name) ? Math.min(3, JOBS) : JOBS);

const SCRIPT = {
  rules: [
    { when: { marker: "~overloaded~", prompt_call: 1 }, then: { status: 529 } },
    { when: { marker: "~limited~", prompt_call: 1 }, then: { status: 429, headers: { "retry-after": "1" } } },
    { when: { marker: "~four~" }, then: { tokens: 80, chunk_delay_ms: 200 } },
    { when: { marker: "~nine~" }, then: { tokens: 40, chunk_delay_ms: 900 } },
    { when: { marker: "~long~" }, then: { tokens: 4000 } },
  ],
};

/** No hour is unlike another. */
const POLICY = { hours: { peak_utc: "", off_peak_utc: "0-24" } };

const COLUMNS = [
  ["requests", (n) => n("worker.fetch")],
  ["object req.", (n) => n("object.requests")],
  ["rows written", (n) => n("rows.written")],
  ["rows read", (n) => n("rows.read")],
  ["KV writes", (n) => n("kv.put")],
  ["KV reads", (n) => n("kv.get")],
  ["queue op.", (n) => n("queue.write") + 2 * n("queue.read")],
  ["calls in consumer", (n) => n("consumer.calls")],
  ["objects waiting, s", (n) => n("object.open_ms") / 1000],
];

const shown = (n) => (Number.isInteger(n) ? String(n) : n.toFixed(2));

function head() {
  process.stdout.write(`| for each | ${COLUMNS.map(([name]) => name).join(" | ")} |\n`);
  process.stdout.write(`| --- |${" ---: |".repeat(COLUMNS.length)}\n`);
}

async function counted(worker, scenarios) {
  for (const [name, run] of Object.entries(scenarios)) {
    const times = timesFor(name);
    const sum = {};
    for (let i = times === 1 ? 0 : -1; i < times; i++) {
      await usage(worker, "DELETE");
      await run(worker, `[[${name} ${i}]]`);
      // What comes after the answer: the finished job into KV, its row into the index, the gate's news.
      await sleep(700);
      if (i < 0) continue;
      for (const [key, n] of Object.entries(await usage(worker))) sum[key] = (sum[key] ?? 0) + n;
    }
    const mean = (key) => (sum[key] ?? 0) / times;
    process.stdout.write(`| ${name} | ${COLUMNS.map(([, of]) => shown(of(mean))).join(" | ")} |\n`);
  }
}

/** The process that is workerd, by its parent. */
function workerdOf(parent) {
  const children = readFileSync(`/proc/${parent}/task/${parent}/children`, "utf8").split(" ").filter(Boolean);
  return children.find((pid) => readFileSync(`/proc/${pid}/comm`, "utf8").startsWith("workerd"));
}

/** Milliseconds of CPU that a process has had, all of its threads. */
function cpu(pid) {
  const ticks = Number(execFileSync("getconf", ["CLK_TCK"], { encoding: "utf8" }));
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  return ((Number(fields[11]) + Number(fields[12])) / ticks) * 1000;
}

async function cpuPer(times, pid, run) {
  for (let i = 0; i < 20; i++) await run(`warm ${i}`);
  const before = cpu(pid);
  for (let i = 0; i < times; i++) await run(`[[${i} of ${Date.now()}]]`);
  return (cpu(pid) - before) / times;
}

async function timed(worker) {
  const pid = process.platform === "linux" ? workerdOf(process.pid) : undefined;
  if (!pid || !readdirSync("/proc").includes(pid)) {
    process.stdout.write("\nCPU: not measured here, which takes Linux.\n");
    return;
  }
  const through = async (text) => {
    const { id } = await post(worker.url, "/v1/jobs", job(text));
    await read(worker.url, id, 60);
  };
  const times = JOBS * 10;
  const health = await cpuPer(times, pid, async () => (await fetch(`${worker.url}/healthz`)).text());
  const short = await cpuPer(times, pid, through);
  const long = await cpuPer(times, pid, (text) => through(`${text} ~long~`));
  process.stdout.write(`\nCPU of all of workerd, ms for each of ${times}\n`);
  process.stdout.write(`  GET /healthz, which does nothing                     ${health.toFixed(1)}\n`);
  process.stdout.write(`  a job, submitted and waited for, of a few tokens     ${short.toFixed(1)}\n`);
  process.stdout.write(`  the same, of 4,000 tokens in 1,000 events            ${long.toFixed(1)}\n`);
}

async function withWorker(use, { policy, ...options } = {}) {
  const fake = await startFakeClaude({ script: SCRIPT });
  const worker = await startWorker({
    vars: {
      ANTHROPIC_BASE_URL: fake.url,
      ANTHROPIC_API_KEY: "key",
      CLIENT_KEYS: `app:${KEY}`,
      ADMIN_KEY: "admin",
      POLICY: JSON.stringify({ ...POLICY, ...policy }),
      SIGNING_SECRET: "secret",
    },
    log: (line, level) => level === "error" && process.stderr.write(`${line}\n`),
    ...options,
  });
  try {
    await use(worker);
  } finally {
    await worker.stop();
    await fake.stop();
  }
}

await setUp({ build: true });
head();
await withWorker((worker) => counted(worker, SCENARIOS), { wrapEntry: COUNTER });
const policy = { lease_seconds: 6, retention_seconds: 60 };
await withWorker((worker) => counted(worker, IN_A_HURRY), { wrapEntry: COUNTER, policy });
await withWorker(timed);
