/**
 * The Worker in a process of its own, which can be killed: for tests of what a crash loses.
 *
 * Same options and interface as `startWorker`, but without `mf`, plus `kill()`: SIGKILL for the Node, Miniflare and
 * workerd together, as when a machine goes down. Started again on the same `stateDir` and port, it is the same Worker.
 */
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { nodeBinary } from "./node.mjs";

const CHILD = fileURLToPath(new URL("./worker-child.mjs", import.meta.url));

/**
 * @param {import("./worker.mjs").WorkerOptions} [options]
 * @returns {Promise<Omit<import("./worker.mjs").RunningWorker, "mf"> & { pid: number, kill: () => Promise<void> }>}
 */
export async function spawnWorker({ log = (line) => process.stderr.write(`${line}\n`), ...options } = {}) {
  // A process group of its own: workerd is the child's child, and both have to go at once.
  const child = fork(CHILD, { detached: true, execPath: nodeBinary(), serialization: "advanced", stdio: "inherit" });
  const gone = new Promise((resolve) => child.once("exit", (code, signal) => resolve({ code, signal })));
  const waiting = new Map();
  let calls = 0;

  child.on("message", ({ kind, id, line, level, result, error }) => {
    if (kind === "log") return log(line, level);
    const { resolve, reject } = waiting.get(id) ?? {};
    waiting.delete(id);
    if (error === undefined) resolve?.(result);
    else reject?.(new Error(error));
  });
  gone.then(({ code, signal }) => {
    for (const { reject } of waiting.values()) reject(new Error(`the Worker's process ended (${signal ?? code})`));
    waiting.clear();
  });

  const call = (method, ...args) =>
    new Promise((resolve, reject) => {
      const id = ++calls;
      waiting.set(id, { resolve, reject });
      child.send({ id, method, args }, (error) => error && waiting.delete(id) && reject(error));
    });
  const kill = async () => {
    try {
      process.kill(-child.pid, "SIGKILL");
    } catch {
      // Gone already.
    }
    await gone;
  };

  try {
    const url = await call("start", options);
    return {
      url,
      pid: child.pid,
      queue: (name, messages) => call("queue", name, messages),
      stop: async () => {
        await call("stop").catch(() => {});
        await kill();
      },
      kill,
    };
  } catch (error) {
    await kill();
    throw error;
  }
}
