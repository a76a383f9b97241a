/**
 * The development server: the Worker on workerd until somebody stops it.
 *
 * Settings come from the environment, then from .dev.vars, then from wrangler.toml; an empty variable is as none, so
 * that a script can pass on what it may not have. In a project of the npm package that has neither key nor address, a
 * fake Claude answers, and that is said: who has only just written it wants to see a job come through. Exactly one line goes to stdout, when the Worker answers; what the
 * Worker logs goes to stderr, one JSON object a line. Keys are never made up: without them the Worker refuses
 * everything, as it would in production, and a hint says so. The one exception is SIGNING_SECRET, which nobody has to
 * know: it is made once and kept with the state, because job ids under an idempotency key depend on it.
 */
import { randomBytes } from "node:crypto";
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseEnv } from "node:util";
import { packaged, root, stateDir } from "./paths.mjs";
import { checkProject } from "./project.mjs";
import { Problem } from "./run.mjs";
import { startWorker } from "./worker.mjs";

/** Variables and secrets of the Worker. */
export const SETTINGS = [
  "ANTHROPIC_BASE_URL",
  "PRIMARY_MODEL",
  "FALLBACK_MODEL",
  "POLICY",
  "ANTHROPIC_API_KEY",
  "CLIENT_KEYS",
  "ADMIN_KEY",
  "SIGNING_SECRET",
  "WEBHOOK_SECRET",
  "SLACK_WEBHOOK_URL",
];

/**
 * @param {Record<string, string | undefined>} env
 * @param {Record<string, string | undefined>} file What .dev.vars says.
 * @returns {Record<string, string | undefined>}
 */
export function settings(env, file) {
  return Object.fromEntries(SETTINGS.map((name) => [name, env[name] || file[name] || undefined]));
}

/** @returns {string} */
function signingSecret(directory) {
  const file = join(directory, "signing-secret");
  if (!existsSync(file)) {
    mkdirSync(directory, { recursive: true });
    writeFileSync(file, randomBytes(32).toString("hex"), { mode: 0o600 });
  }
  chmodSync(file, 0o600);
  return readFileSync(file, "utf8").trim();
}

/** @param {string | undefined} text */
function portNumber(text) {
  const port = Number(text || 8787);
  if (Number.isInteger(port) && port >= 0 && port <= 65535) return port;
  throw new Problem(`PORT is ${text}: it has to be a number from 0 to 65535.`);
}

/** Puts a fake Claude behind the Worker. */
async function fakeClaude(vars) {
  const { startFakeClaude } = await import("../../fake-claude/server.mjs");
  const fake = await startFakeClaude({});
  vars.ANTHROPIC_BASE_URL = fake.url;
  vars.ANTHROPIC_API_KEY = "of-the-fake";
  process.stderr.write(
    `ANTHROPIC_API_KEY is not set: a fake Claude answers, on ${fake.url}. Put a key into .dev.vars for the real one.\n`,
  );
  return fake;
}

/** Resolves when somebody wants us gone: a signal, or the npm that started us is no longer there. */
function untilStopped() {
  const parent = process.ppid;
  return new Promise((resolve) => {
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => resolve(signal));
    // Started by hand in the background, a server may well outlive its shell; npm's child should not outlive npm.
    if (process.env.npm_lifecycle_event) {
      setInterval(() => process.ppid !== parent && resolve("parent"), 500).unref();
    }
  });
}

/** @returns {Promise<number>} */
export async function main() {
  const stopped = untilStopped();
  await checkProject();
  const file = join(root, ".dev.vars");
  const state = resolve(process.env.STATE_DIR || join(stateDir, "dev"));
  const vars = settings(process.env, existsSync(file) ? parseEnv(readFileSync(file, "utf8")) : {});
  vars.SIGNING_SECRET ??= signingSecret(state);
  const fake = packaged && !vars.ANTHROPIC_API_KEY && !vars.ANTHROPIC_BASE_URL ? await fakeClaude(vars) : undefined;

  const worker = await startWorker({
    port: portNumber(process.env.PORT),
    host: process.env.HOST || undefined,
    stateDir: state,
    vars,
    log: (line) => process.stderr.write(`${line}\n`),
  });
  const missing = ["CLIENT_KEYS", "ADMIN_KEY"].filter((name) => !vars[name]);
  if (missing.length > 0) {
    process.stderr.write(
      `Hint: ${missing.join(" and ")} not set, so the Worker refuses what needs them. For example: CLIENT_KEYS=app:a-key ADMIN_KEY=another npm run dev\n`,
    );
  }
  if (!vars.ANTHROPIC_API_KEY && !vars.ANTHROPIC_BASE_URL) {
    process.stderr.write("Hint: ANTHROPIC_API_KEY is not set, so Claude will refuse every call.\n");
  }
  const { problems } = await (await fetch(`${worker.url}/healthz`)).json();
  if (problems.length > 0) {
    const list = problems.map(({ key, message }) => `  ${key}: ${message}\n`).join("");
    process.stderr.write(`The configuration is broken, and every route answers 503 until it is mended:\n${list}`);
  }
  process.stderr.write(`The page is at ${worker.url}/\n`);
  process.stdout.write(`Spillway is ready on ${worker.url}\n`);
  await stopped;
  await worker.stop();
  await fake?.stop();
  return 0;
}
