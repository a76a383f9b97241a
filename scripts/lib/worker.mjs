/**
 * Runs the built Worker on workerd, through Miniflare's JavaScript API. `npm run dev`, the demo and the end-to-end
 * tests all use this.
 *
 * Miniflare and not `wrangler dev`: tests need to hand a batch straight to the queue handler, to put faults between
 * the Worker and its bindings, and to stop within milliseconds, and nobody needs a bundler, a file watcher or a
 * terminal interface around a Worker that is already built. Queues, KV, objects and their settings are read from
 * wrangler.toml by wrangler's own code, so that what is tested is what is deployed. Variables are not: only [vars] and
 * what the caller gives, never a .dev.vars that happens to lie about.
 *
 * What is stored survives under `stateDir`: KV, objects, their alarms. Messages waiting in a queue do not; Miniflare
 * keeps them in memory, and the watchdog of each job is what brings them back.
 */
import childProcess from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { buildDir, root } from "./paths.mjs";
import { Problem } from "./run.mjs";

process.env.WRANGLER_SEND_METRICS = "false";

/**
 * @typedef {object} WorkerOptions
 * @property {number} [port] 0 takes a free one.
 * @property {string} [host]
 * @property {string} [stateDir] Without it nothing survives.
 * @property {Record<string, string | undefined>} [vars] Variables and secrets, over those of wrangler.toml.
 * @property {string} [wrapEntry] A module that stands between the Worker and its bindings: see `entryModule`.
 * @property {(line: string, level: string) => void} [log] Takes what the Worker logs, and what workerd says.
 */

/**
 * @typedef {object} RunningWorker
 * @property {string} url Without a slash at the end.
 * @property {import("miniflare").Miniflare} mf
 * @property {(name: string, messages: QueueMessage[]) => Promise<QueueResult>} queue Hands one batch to the handler.
 * @property {() => Promise<void>} stop
 */

/** @typedef {string | { id?: string, timestamp?: Date, attempts?: number, body: unknown }} QueueMessage */

/**
 * @typedef {object} QueueResult
 * @property {string} outcome
 * @property {boolean} ackAll
 * @property {string[]} explicitAcks
 * @property {{ msgId: string, delaySeconds?: number }[]} retryMessages
 */

/**
 * @param {WorkerOptions} [options]
 * @returns {Promise<RunningWorker>}
 */
export async function startWorker({
  port = 0,
  host = "127.0.0.1",
  stateDir,
  vars = {},
  wrapEntry,
  log = (line) => process.stderr.write(`${line}\n`),
} = {}) {
  endWorkerdWithUs();
  const { convertV4MiniflareOptions, Log, LogLevel, Miniflare } = await import("miniflare");
  const { unstable_getMiniflareWorkerOptions, unstable_readConfig } = await import("wrangler");
  const config = unstable_readConfig({ config: join(root, "wrangler.toml") });
  // Told of another file, which there is not, wrangler leaves .dev.vars alone, and says nothing about it on stdout.
  const noSecrets = { envFiles: [join(buildDir, "none.env")] };
  const { modulesRules: _, ...worker } = unstable_getMiniflareWorkerOptions(config, undefined, noSecrets).workerOptions;
  const given = Object.fromEntries(Object.entries(vars).filter(([, value]) => value !== undefined));
  if (stateDir) mkdirSync(stateDir, { recursive: true });

  class WorkerdLog extends Log {
    log(message) {
      log(message, "info");
    }
  }

  const listeners = signals.map((signal) => process.listeners(signal));
  const mf = new Miniflare(
    convertV4MiniflareOptions({
      host,
      port,
      log: new WorkerdLog(LogLevel.WARN),
      handleStructuredLogs: ({ level, message }) => log(message, level),
      logRequests: false,
      // Nothing of this may need the network, and Request.cf would be fetched.
      cf: false,
      telemetry: { enabled: false },
      resourcePersistencePath: stateDir,
      workers: [
        {
          ...worker,
          name: config.name,
          bindings: { ...config.vars, ...given },
          modulesRoot: buildDir,
          modules: modules(config.durable_objects.bindings, wrapEntry),
        },
      ],
    }),
  );
  // Miniflare would end the process by itself on a signal, with an exit code of failure; when to stop is our caller's
  // business, and should nobody care, the watchman ends workerd.
  signals.forEach((signal, i) => {
    for (const listener of process.listeners(signal)) {
      if (!listeners[i].includes(listener)) process.off(signal, listener);
    }
  });
  try {
    const url = (await mf.ready).origin;
    return {
      url,
      mf,
      queue: async (name, messages) => (await mf.getWorker()).queue(name, messages.map(message)),
      stop: () => Promise.race([mf.dispose(), sleep(3000, undefined, { ref: false })]),
    };
  } catch (error) {
    await mf.dispose().catch(() => {});
    if (error?.code === "ERR_ADDRESS_IN_USE") {
      throw new Problem(`Port ${port} of ${host} is in use: stop what listens there, or choose another one with PORT.`);
    }
    throw error;
  }
}

const signals = ["SIGINT", "SIGTERM", "SIGHUP", "message"];

let messageNumber = 0;

/** @param {QueueMessage} given */
function message(given) {
  const { id, timestamp = new Date(), attempts = 1, body } = typeof given === "object" ? given : { body: given };
  return { id: id ?? `test-${++messageNumber}`, timestamp, attempts, body };
}

/** The modules as worker-build leaves them, behind an entry of our own if there is something to wrap. */
function modules(objects, wrapEntry) {
  const built = [
    { type: "ESModule", path: join(buildDir, "index.js") },
    { type: "CompiledWasm", path: join(buildDir, "index_bg.wasm") },
  ];
  if (!wrapEntry) return built;
  const classes = [...new Set(objects.map(({ class_name }) => class_name))];
  return [
    { type: "ESModule", path: join(buildDir, "wrapped-entry.mjs"), contents: entryModule(classes) },
    { type: "ESModule", path: join(buildDir, "wrapper.mjs"), contents: readFileSync(wrapEntry, "utf8") },
    ...built,
  ];
}

/**
 * The entry that lets a test lie to the Worker. The wrapper is a module without imports:
 *
 * - `export function wrapEnv(env, where, override)` answers the environment that `where` ("worker", or the name of an
 *   object's class) sees. `override(binding, { method })` is that binding with some methods replaced; each gets the
 *   original method, bound, as its first argument.
 * - `export function wrapState(state, where)` answers the state that an object has: its storage, its alarm.
 * - `export async function invoked(where, handler, run, args)` stands around each run of a handler ("fetch", "queue", "alarm") and
 *   answers what `run()` does.
 * - `export async function control(request)` answers requests for /__test/…, for switching faults on and off; the
 *   Worker and its objects share one isolate, so the wrapper's module variables are seen by all of them.
 *
 * @param {string[]} classes
 */
function entryModule(classes) {
  return `
import Worker, * as built from "./index.js";
import * as wrapper from "./wrapper.mjs";

const override = (binding, methods) =>
  new Proxy(binding, {
    get(target, name) {
      const value = Reflect.get(target, name, target);
      if (typeof value !== "function" || name === "constructor") return value;
      const original = value.bind(target);
      return Object.hasOwn(methods, name) ? (...args) => methods[name](original, ...args) : original;
    },
  });
const wrap = (env, where) => wrapper.wrapEnv?.(env, where, override) ?? env;
const wrapState = (state, where) => wrapper.wrapState?.(state, where) ?? state;

class Entry extends Worker {
  constructor(context, env) {
    super(context, wrap(env, "worker"));
  }
  fetch(request) {
    if (wrapper.control && new URL(request.url).pathname.startsWith("/__test/")) return wrapper.control(request);
    return super.fetch(request);
  }
}
export { Entry as default };
${classes
  .map(
    (name) => `
export class ${name} extends built.${name} {
  constructor(state, env) {
    super(wrapState(state, "${name}"), wrap(env, "${name}"));
  }
}`,
  )
  .join("")}

// Only what is there is stood around: an object with an alarm that does nothing is not the object that is deployed.
for (const [where, { prototype }] of Object.entries({ worker: Entry, ${classes.join(", ")} })) {
  for (const handler of wrapper.invoked ? ["fetch", "queue", "alarm"] : []) {
    const original = prototype[handler];
    if (!original) continue;
    prototype[handler] = function (...args) {
      return wrapper.invoked(where, handler, () => original.apply(this, args), args);
    };
  }
}
`;
}

let watching = false;

/**
 * Miniflare ends workerd when it is told to, or when Node exits; a Node that is killed tells nobody, and its workerd
 * would keep the port and the state. So each workerd gets a watchman: a shell that waits for our end of a pipe to
 * close, which the kernel does whatever becomes of us.
 */
function endWorkerdWithUs() {
  if (watching || process.platform === "win32") return;
  watching = true;
  // Miniflare is CommonJS and looks spawn up at each call, so that the module object is the place to stand.
  const node = createRequire(import.meta.url)("node:child_process");
  const spawn = node.spawn;
  node.spawn = (command, ...rest) => {
    const child = spawn(command, ...rest);
    if (/workerd/.test(String(command)) && child.pid) watch(child);
    return child;
  };

  function watch(workerd) {
    const script = `trap '' INT TERM HUP; read -r _; kill -9 ${workerd.pid}`;
    const watchman = childProcess.spawn("/bin/sh", ["-c", script], { stdio: ["pipe", "ignore", "ignore"] });
    watchman.unref();
    watchman.stdin.unref?.();
    workerd.once("exit", () => watchman.kill("SIGKILL"));
  }
}
