/**
 * The demo, step by step: upstream, Worker, jobs, answers, summary, and then it stays up.
 *
 * The Worker here is the built one on workerd, as `npm run dev` runs it; only its keys are made up for the occasion and
 * its state is gone when the demo is. What it logs goes to a file, or the table would not stay whole.
 */
import { randomBytes } from "node:crypto";
import { createWriteStream, mkdirSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, relative } from "node:path";
import { logFile, Problem } from "../run.mjs";
import { startWorker } from "../worker.mjs";
import { Board } from "./board.mjs";
import { farewell } from "./farewell.mjs";
import { JOBS } from "./jobs.mjs";
import { readOptions } from "./options.mjs";
import { runJobs } from "./run.mjs";
import { answerLines, exitCode, summaryLine, upstreamLine } from "./summary.mjs";
import { Screen } from "./terminal.mjs";
import { openUpstream } from "./upstream.mjs";

const say = (text = "") => process.stdout.write(`${text}\n`);

/**
 * @param {string[]} args
 * @returns {Promise<number>} The exit code.
 */
export async function main(args) {
  const options = readOptions(args, process.env);
  const stopping = stopOnSignal();
  const open = [];
  try {
    const upstream = await openUpstream(process.env);
    open.push(upstream);
    say(upstream.says);
    const keys = { client: randomBytes(16).toString("hex"), admin: randomBytes(16).toString("hex") };
    const worker = await openWorker(options.port, upstream, keys);
    open.push(worker);
    const code = await show({ options, upstream, worker, keys, stopping });
    if (stopping.signal.aborted) {
      say("\nStopped before the jobs were done.");
      return 130;
    }
    if (options.once) return code;
    say();
    say(farewell({ url: worker.url, clientKey: keys.client, adminKey: keys.admin, fakeUrl: upstream.url }));
    await stopping.reached;
    say("Stopped.");
    return 0;
  } finally {
    for (const one of open.reverse()) await one.stop();
  }
}

async function openWorker(port, { vars }, { client, admin }) {
  const free = port === 0 || (await isFree(port));
  if (!free) say(`Port ${port} is taken: the Worker gets a free one.`);
  const file = logFile("demo");
  mkdirSync(dirname(file), { recursive: true });
  const log = createWriteStream(file);
  const worker = await startWorker({
    port: free ? port : 0,
    vars: {
      ...vars,
      CLIENT_KEYS: `demo:${client}`,
      ADMIN_KEY: admin,
      SIGNING_SECRET: randomBytes(32).toString("hex"),
    },
    log: (line) => log.write(`${line}\n`),
  });
  say(`Worker:   ${worker.url} on workerd; its log is ${relative(process.cwd(), file)}`);
  return {
    url: worker.url,
    stop: async () => {
      await worker.stop();
      await new Promise((resolve) => log.end(resolve));
    },
  };
}

/** The run itself, its answers and its summary. */
async function show({ options, upstream, worker, keys, stopping }) {
  const board = new Board(JOBS, Date.now());
  const screen = new Screen({ board, out: process.stdout, env: process.env, plain: options.plain });
  say(`Submitting ${JOBS.length} jobs.${upstream.fake ? " The bad spell passes in about half a minute." : ""}\n`);
  await upstream.begin();
  screen.start();
  try {
    const run = randomBytes(8).toString("hex");
    const { url } = worker;
    const { signal } = stopping;
    await runJobs({ url, key: keys.client, run, jobs: JOBS, board, screen, signal, patienceMs: upstream.patienceMs });
  } finally {
    screen.stop();
  }
  if (stopping.signal.aborted) return 130;
  say();
  for (const line of answerLines(board, { columns: screen.columns, colour: screen.colour })) say(line);
  say();
  if (upstream.calls) say(upstreamLine(upstream.calls()));
  say(summaryLine(board, Date.now()));
  return exitCode(board);
}

/** The first signal asks us to stop; a terminal sends it to every process of the group, so it may come twice. */
function stopOnSignal() {
  const controller = new AbortController();
  const reached = new Promise((resolve) => controller.signal.addEventListener("abort", resolve, { once: true }));
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(name, () => controller.abort());
  return { signal: controller.signal, reached };
}

function isFree(port) {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once("error", (error) => {
      if (error.code === "EADDRINUSE") resolve(false);
      else reject(new Problem(`Port ${port} cannot be listened on (${error.code}): choose another one with PORT.`));
    });
    probe.listen({ port, host: "127.0.0.1" }, () => probe.close(() => resolve(true)));
  });
}
