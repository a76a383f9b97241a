/**
 * Where things are. Everything that costs minutes (tools, the Wasm standard library) lives in a cache outside the
 * checkout, keyed by version, so that a second fresh clone on the same machine is quick; everything that belongs to
 * this checkout alone (build output, state, logs) lives in git-ignored directories inside it.
 *
 * The same scripts are in the npm package, where the built Worker is the package's (`home`) and the configuration, the
 * keys and the state are those of the project that has installed it (`root`). In the checkout the two are one.
 */
import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

/** What these scripts are part of: the checkout, or node_modules/spillway in a project. */
export const home = resolve(dirname(fileURLToPath(import.meta.url)), "../..");

/** Whether that is the npm package, which has the built Worker and not its sources. */
export const packaged = !existsSync(join(home, "Cargo.toml"));

/** What they work on: the checkout, or the project from which bin/spillway.mjs was started, which says so by this. */
export const root = process.env.SPILLWAY_PROJECT ? resolve(process.env.SPILLWAY_PROJECT) : home;

/** Build output of the Worker; `main` of wrangler.toml points into it. */
export const buildDir = join(home, "build");

/** The page, as it is served; `assets.directory` of wrangler.toml. */
export const pageDir = join(buildDir, "page");

/** State of `npm run dev` and the logs of the set-up. */
export const stateDir = join(root, ".state");

/** Tools bought once for every checkout on this machine. */
export const cacheDir = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "spillway");

/** What workerd runs. */
export const WASM = "wasm32-unknown-unknown";

/** @param {string} name A program that npm installed; in a workspace, further up than the project. */
export function bin(name) {
  const own = join(root, "node_modules", ".bin", name);
  if (!packaged || existsSync(own)) return own;
  for (let directory = home; dirname(directory) !== directory; directory = dirname(directory)) {
    const program = join(directory, "node_modules", ".bin", name);
    if (existsSync(program)) return program;
  }
  return own;
}

/** @param {string} path Relative to the checkout, or the package. */
export const readJson = (path) => JSON.parse(readFileSync(join(home, path), "utf8"));

/**
 * The version of a crate in Cargo.lock: the tools that go with a crate have to match it exactly.
 * @param {string} crate
 * @param {string} [lock] The text of the lock file.
 */
export function lockedVersion(crate, lock = readFileSync(join(root, "Cargo.lock"), "utf8")) {
  const entry = lock.match(new RegExp(`^name = "${crate}"\\nversion = "([^"]+)"`, "m"));
  if (!entry) throw new Error(`Cargo.lock has no crate ${crate}`);
  return entry[1];
}

/** The oldest rustc that Cargo.toml accepts, such as "1.91". */
export function minimumRust(manifest = readFileSync(join(root, "Cargo.toml"), "utf8")) {
  const entry = manifest.match(/^rust-version = "([^"]+)"/m);
  if (!entry) throw new Error("Cargo.toml has no rust-version");
  return entry[1];
}

/**
 * Compares dotted versions by number.
 * @param {string} version
 * @param {string} minimum
 */
export function atLeast(version, minimum) {
  const numbers = (text) => text.split(/[.+-]/).map((part) => Number.parseInt(part, 10) || 0);
  const [have, want] = [numbers(version), numbers(minimum)];
  for (let i = 0; i < want.length; i++) {
    if ((have[i] ?? 0) !== want[i]) return (have[i] ?? 0) > want[i];
  }
  return true;
}
