/**
 * Builds the Worker, if it is not up to date.
 *
 * Whether it is, a stamp beside the output says: a hash of everything that goes in. Hashes, not times, because a git
 * checkout gives every file the time of the checkout. An up-to-date build needs no Rust, so the second `npm run dev`
 * does not even look for it.
 *
 * worker-build compiles, binds and bundles; the Wasm is optimised here. Left to itself, worker-build runs `wasm-opt -O`,
 * whose inlining, after LLVM's own, costs 25 s and makes the gzipped file a tenth larger; without inlining it takes half
 * the time and makes it smaller. Names and producers are stripped in the same pass. (`strip = true` in Cargo.toml would do
 * it too early: wasm-bindgen reads what it removes.)
 */
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { buildDir, readJson, root } from "./paths.mjs";
import { run, step } from "./run.mjs";

// worker-build's own list: what rustc emits and workerd runs. --all-features would let wasm-opt use newer encodings.
const FEATURES = [
  "mutable-globals",
  "sign-ext",
  "nontrapping-float-to-int",
  "bulk-memory",
  "multivalue",
  "reference-types",
  "exception-handling",
].map((feature) => `--enable-${feature}`);

const OPTIMISATIONS = [
  "-Os",
  "--always-inline-max-function-size=0",
  "--flexible-inline-max-function-size=0",
  "--one-caller-inline-max-function-size=0",
  "--strip-debug",
  "--strip-producers",
];

const wasm = join(buildDir, "index_bg.wasm");
const stampFile = join(buildDir, ".stamp");

/** Everything that the output depends on, as paths relative to the checkout. */
function sources() {
  const rust = readdirSync(join(root, "src"), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name).slice(root.length + 1));
  return ["Cargo.toml", "Cargo.lock", "scripts/lib/worker-build.mjs", ...rust.sort()];
}

/** @returns {string} */
export function sourceHash() {
  const { dependencies, devDependencies } = readJson("package.json");
  const hash = createHash("sha256").update(JSON.stringify({ ...dependencies, ...devDependencies }));
  for (const file of sources()) hash.update(`\0${file}\0`).update(readFileSync(join(root, file)));
  return hash.digest("hex");
}

/** @returns {boolean} */
export function buildReady() {
  return existsSync(wasm) && existsSync(stampFile) && readFileSync(stampFile, "utf8") === sourceHash();
}

/** @returns {{ bytes: number, gzipped: number }} */
export function wasmSize() {
  return { bytes: statSync(wasm).size, gzipped: gzipSync(readFileSync(wasm), { level: 9 }).length };
}

/**
 * @param {Record<string, string>} env The toolchain's and the tools'.
 * @returns {Promise<void>}
 */
export async function build(env) {
  const stamp = sourceHash();
  await step("Building the Worker", "2 min the first time, then 40 s", async () => {
    await run(env.WORKER_BUILD, ["--profile", "worker", "--no-opt"], {
      log: "worker-build",
      // WASM_OPT_BIN and the others: see tools.mjs. A target directory of the user's stays theirs.
      env,
      remedy: "The Worker could not be built: the compiler's message is above.",
    });
    const optimised = `${wasm}.optimised`;
    await run(env.WASM_OPT_BIN, [wasm, "-o", optimised, ...OPTIMISATIONS, ...FEATURES], {
      log: "wasm-opt",
      remedy: "wasm-opt could not optimise the Worker: run npm ci and then this again.",
    });
    renameSync(optimised, wasm);
    writeFileSync(stampFile, stamp);
  });
}
