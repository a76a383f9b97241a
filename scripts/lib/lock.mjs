/**
 * One set-up at a time: two fresh clones on one machine share the cache, and two `cargo install`s of the same tool
 * would only fight for it. The lock is a file that names its holder; a holder that is no longer alive loses it.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

function alive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === "EPERM";
  }
}

/** @param {string} file */
function tryTake(file) {
  try {
    writeFileSync(file, String(process.pid), { flag: "wx" });
    return true;
  } catch (error) {
    if (error.code !== "EEXIST") throw error;
    return false;
  }
}

/** @param {string} file */
function holder(file) {
  try {
    return Number.parseInt(readFileSync(file, "utf8"), 10);
  } catch {
    return undefined;
  }
}

/**
 * @template T
 * @param {string} file
 * @param {() => Promise<T>} work
 * @returns {Promise<T>}
 */
export async function withLock(file, work) {
  mkdirSync(dirname(file), { recursive: true });
  let told = false;
  while (!tryTake(file)) {
    const pid = holder(file);
    // An empty file is a holder between creating and writing it: NaN, which the next round reads properly.
    if (pid && !alive(pid)) {
      rmSync(file, { force: true });
      continue;
    }
    if (pid && !told) {
      told = true;
      process.stderr.write(`Another set-up is at work on this machine (process ${pid}); waiting for it.\n`);
    }
    await sleep(250);
  }
  const release = () => rmSync(file, { force: true });
  process.once("exit", release);
  try {
    return await work();
  } finally {
    process.off("exit", release);
    release();
  }
}
