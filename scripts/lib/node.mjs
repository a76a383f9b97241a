/**
 * The npm packages, and the Node that runs them.
 *
 * wrangler and Miniflare need Node 22 or newer; the machine may have 20. The npm package `node` carries a real Node
 * binary, so the set-up needs no version manager: the entry scripts use nothing but Node's own modules until the
 * packages are there, and then hand over to a second script that runs under the Node of node_modules.
 */
import { spawn } from "node:child_process";
import { existsSync, readFileSync, realpathSync } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { atLeast, bin, packaged, readJson, root } from "./paths.mjs";
import { ask, Problem, run, step } from "./run.mjs";

/** What wrangler and Miniflare ask for. */
export const OLDEST_NODE = "22.12";

/** PATH without the packages' own programs, or `npm ci` would run on the very Node that it is replacing. */
function outerPath() {
  const own = join(root, "node_modules");
  return (process.env.PATH ?? "")
    .split(delimiter)
    .filter((entry) => !entry.startsWith(own))
    .join(delimiter);
}

/**
 * Whether what is installed is what package-lock.json asks for. npm records what it installed in
 * node_modules/.package-lock.json; optional packages of other platforms are in the one and not in the other.
 * @param {{ packages: Record<string, { version?: string, optional?: boolean }> }} wanted
 * @param {{ packages: Record<string, { version?: string }> } | undefined} installed
 */
export function sameVersions(wanted, installed) {
  if (!installed) return false;
  return Object.entries(wanted.packages)
    .filter(([path]) => path !== "")
    .every(([path, { version, optional }]) => {
      const there = installed.packages[path];
      return there ? there.version === version : optional === true;
    });
}

/** @returns {boolean} */
export function packagesReady() {
  const record = join(root, "node_modules", ".package-lock.json");
  if (!existsSync(record)) return false;
  return sameVersions(readJson("package-lock.json"), JSON.parse(readFileSync(record, "utf8"))) && !!nodeBinary();
}

/** Installs the npm packages exactly as locked, unless they are there. */
export async function providePackages() {
  if (packaged) return lookForPackages();
  if (packagesReady()) return;
  const env = { PATH: outerPath() };
  if (!ask("npm", ["--version"], { env })) throw new Problem("npm is missing: install Node.js 20 or newer with npm.");
  await step("Installing the npm packages", "15 to 40 s", () =>
    run("npm", ["ci", "--no-progress"], {
      log: "npm-ci",
      seconds: 900,
      env,
      remedy: "npm could not install the packages: check that the npm registry can be reached, then run this again.",
    }),
  );
  if (!packagesReady()) {
    throw new Problem(
      "npm ci ended well, but node_modules/.bin/node does not run: allow install scripts for node, workerd and esbuild (npm config get ignore-scripts must be false), or use Node.js 22 or newer.",
    );
  }
}

/** In a project packages are npm's business; what it has left out is told. */
function lookForPackages() {
  const missing = ["wrangler", "miniflare"].filter((name) => !installed(name));
  if (missing.length > 0) throw new Problem(`Not installed here: ${missing.join(", ")}. Run npm install.`);
  if (!nodeBinary()) throw new Problem(NODE_REMEDY);
}

/**
 * Whether a package of that name is within reach.
 * @param {string} name
 */
export function installed(name) {
  try {
    return Boolean(import.meta.resolve(name));
  } catch {
    return false;
  }
}

/** For a project on a machine with too old a Node. */
export const NODE_REMEDY = `Node.js ${process.versions.node} is too old for wrangler: install ${OLDEST_NODE} or newer, or give this project one of its own: npm install --save-dev node@24`;

/** @returns {string | undefined} A Node that can run wrangler: the packages' own, or the one we run on. */
export function nodeBinary() {
  const own = bin("node");
  if (existsSync(own) && ask(own, ["--version"])) return own;
  return atLeast(process.versions.node, OLDEST_NODE) ? process.execPath : undefined;
}

/**
 * Runs a script under the packages' Node: in this process if it is that Node already, otherwise in a child that gets
 * our streams, our signals, and an end of its own when we die (the IPC channel closes).
 * @param {URL} script A module with `export async function main(args)` that answers the exit code.
 * @param {string[]} [args]
 * @returns {Promise<number>}
 */
export async function handOver(script, args = process.argv.slice(2)) {
  const node = nodeBinary();
  if (!node) throw new Problem("No Node.js 22 or newer was found: run npm ci in this directory.");
  if (realpathSync(process.execPath) === realpathSync(node)) {
    return (await (await import(script.href)).main(args)) ?? 0;
  }
  const child = spawn(node, [fileURLToPath(new URL("./launch.mjs", import.meta.url)), fileURLToPath(script), ...args], {
    stdio: ["inherit", "inherit", "inherit", "ipc"],
  });
  const forward = (signal) => child.kill(signal);
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, forward);
  return new Promise((resolve) => {
    child.on("error", (error) => {
      process.stderr.write(`${error.message}\n`);
      resolve(1);
    });
    child.on("exit", (code, signal) => resolve(code ?? (signal === "SIGINT" ? 130 : 1)));
  });
}
