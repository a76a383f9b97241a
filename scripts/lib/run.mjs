/**
 * Runs other programs for the set-up: one line a slow step, the noise in a log file, a sentence on failure.
 *
 * A set-up that prints a compiler's 400 lines hides the one that matters, and one that prints nothing for three
 * minutes looks hung. So each slow step says what is happening and how long it usually takes, then how long it took;
 * what the tools print goes to `.state/logs/`, and the end of it is shown when they fail. A failure is a `Problem`:
 * a sentence that says what to install or do. Progress goes to stderr, because stdout belongs to the program that
 * needed the set-up (`npm run dev` prints exactly one line there).
 *
 * Children get a process group of their own, so that a time limit or Ctrl-C ends a compiler together with the
 * processes it started.
 */
import { spawn, spawnSync } from "node:child_process";
import { appendFileSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { root, stateDir } from "./paths.mjs";

/** A failure that a person can act on. */
export class Problem extends Error {
  /**
   * @param {string} message One sentence: what is wrong and what to install or do.
   * @param {string} [detail] The end of what the failing program printed.
   */
  constructor(message, detail = "") {
    super(message);
    this.name = "Problem";
    this.detail = detail;
  }
}

/** @type {Set<number>} Process groups to end when we are asked to end. */
const groups = new Set();
const endings = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 };

function endGroups(signal) {
  for (const pid of groups) killGroup(pid, "SIGKILL");
  process.exit(endings[signal]);
}

/** Only while a child runs: afterwards a signal is the business of whoever asked for the set-up. */
function watch(pid) {
  if (groups.size === 0) for (const signal of Object.keys(endings)) process.on(signal, endGroups);
  groups.add(pid);
}

function unwatch(pid) {
  groups.delete(pid);
  if (groups.size === 0) for (const signal of Object.keys(endings)) process.off(signal, endGroups);
}

function killGroup(pid, signal) {
  try {
    process.kill(-pid, signal);
  } catch {
    // It ended by itself in the meantime.
  }
}

/** @param {string} name */
export const logFile = (name) => join(stateDir, "logs", `${name}.log`);

/**
 * @typedef {object} RunOptions
 * @property {string} log Name of the log file that takes the output.
 * @property {string} remedy One sentence for when it fails.
 * @property {Record<string, string | undefined>} [env] Added to ours.
 * @property {string} [cwd]
 * @property {number} [seconds] Time limit.
 * @property {string} [input] Given to it on stdin.
 */

/**
 * Runs a program to its end.
 * @param {string} command
 * @param {string[]} args
 * @param {RunOptions} options
 * @returns {Promise<string>} What it printed, stdout and stderr as they came.
 */
export function run(command, args, { log, remedy, env, cwd = root, seconds = 1800, input }) {
  const file = logFile(log);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, `$ ${command} ${args.join(" ")}\n`);
  return new Promise((resolve, reject) => {
    let output = "";
    let late = false;
    const child = spawn(command, args, {
      cwd,
      env: { ...process.env, ...env },
      detached: true,
      stdio: [input === undefined ? "ignore" : "pipe", "pipe", "pipe"],
    });
    if (child.pid) watch(child.pid);
    const timer = setTimeout(() => {
      late = true;
      if (child.pid) killGroup(child.pid, "SIGKILL");
    }, seconds * 1000);
    const take = (chunk) => {
      output += chunk;
      appendFileSync(file, chunk);
    };
    child.stdout.setEncoding("utf8").on("data", take);
    child.stderr.setEncoding("utf8").on("data", take);
    if (input !== undefined) child.stdin.end(input);
    const end = (failure) => {
      clearTimeout(timer);
      if (child.pid) unwatch(child.pid);
      if (!failure) return resolve(output);
      reject(new Problem(remedy, `${tail(output)}\n${command}: ${failure} (all of it: ${file})`.trim()));
    };
    child.on("error", (error) => end(error.code === "ENOENT" ? "not found" : error.message));
    child.on("close", (code, signal) => {
      if (late) end(`stopped after ${seconds} s`);
      else end(code === 0 ? undefined : signal ? `ended by ${signal}` : `exit code ${code}`);
    });
  });
}

/**
 * Asks a program something quick.
 * @param {string} command
 * @param {string[]} args
 * @param {{ env?: Record<string, string | undefined>, cwd?: string, input?: string }} [options]
 * @returns {string | undefined} Its stdout, or nothing when it is missing or fails.
 */
export function ask(command, args, { env, cwd = root, input } = {}) {
  const answer = spawnSync(command, args, {
    cwd,
    env: { ...process.env, ...env },
    encoding: "utf8",
    input,
    stdio: [input === undefined ? "ignore" : "pipe", "pipe", "ignore"],
    timeout: 60_000,
  });
  return answer.status === 0 ? answer.stdout.trim() : undefined;
}

/** @param {string} output */
export function tail(output, lines = 25) {
  return output.trimEnd().split("\n").slice(-lines).join("\n");
}

/** @param {number} milliseconds */
export function duration(milliseconds) {
  const seconds = milliseconds / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

/**
 * A slow step: says what happens and how long it usually takes, then how long it took.
 * @template T
 * @param {string} what
 * @param {string} usually
 * @param {() => Promise<T>} work
 * @param {(result: T) => string} [ending] What to say instead of "done".
 * @returns {Promise<T>}
 */
export async function step(what, usually, work, ending = () => "done") {
  const start = Date.now();
  process.stderr.write(`${what} (usually ${usually}) … `);
  try {
    const result = await work();
    process.stderr.write(`${ending(result)}, ${duration(Date.now() - start)}\n`);
    return result;
  } catch (error) {
    process.stderr.write(`failed after ${duration(Date.now() - start)}\n`);
    throw error;
  }
}

/**
 * For a command that takes no arguments but --help: answers that, and refuses others.
 * @param {string} text
 */
export function helpOnly(text) {
  const [first] = process.argv.slice(2);
  if (first === undefined) return;
  if (first !== "--help" && first !== "-h")
    throw new Problem(`There is no option ${first} here; --help says what there is.`);
  process.stdout.write(text);
  process.exit(0);
}

/**
 * The frame of an entry script: a `Problem` ends it with its sentence, never with a stack trace.
 * @param {() => Promise<number | void>} work Answers the exit code, 0 by default.
 */
export async function main(work) {
  try {
    const code = await work();
    if (code !== undefined) process.exitCode = code;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.detail) process.stderr.write(`\n${error.detail}\n\n`);
    process.stderr.write(`${error.message}\n`);
    process.exitCode = 1;
  }
}
