/**
 * The programs that turn a Rust crate into a Worker: worker-build, wasm-bindgen, wasm-opt, esbuild, and what the first
 * two need to be compiled.
 *
 * wasm-bindgen has to be exactly the version of the crate in Cargo.lock, worker-build that of `worker`. Both come from
 * crates.io and are compiled without optimisation: that takes two minutes instead of ten, and an unoptimised
 * wasm-bindgen still needs only half a second for our binary. worker-build would fetch its helpers from GitHub, which
 * not every machine reaches; it is told where ours are.
 */
import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { installPackages, mayUseApt } from "./debian.mjs";
import { bin, cacheDir, lockedVersion } from "./paths.mjs";
import { ask, Problem, run, step } from "./run.mjs";

/**
 * @typedef {object} Tool
 * @property {string} crate
 * @property {string} program
 * @property {string} version
 * @property {string} usually
 */

/** @returns {Tool[]} */
export const tools = () => [
  { crate: "wasm-bindgen-cli", program: "wasm-bindgen", version: lockedVersion("wasm-bindgen"), usually: "2 min" },
  { crate: "worker-build", program: "worker-build", version: lockedVersion("worker"), usually: "2 min" },
];

/** @param {string} version @param {string | undefined} said */
const says = (version, said) => said?.split(/\s+/).includes(version) === true;

/**
 * @param {Tool} tool
 * @returns {string | undefined} The program of exactly this version: ours, or the user's own.
 */
export function findTool({ program, version }) {
  const ours = join(directory(program, version), "bin", program);
  if (existsSync(ours)) return ours;
  return says(version, ask(program, ["--version"])) ? program : undefined;
}

const directory = (program, version) => join(cacheDir, "tools", `${program}-${version}`);

/**
 * Compiles the tools that are missing.
 * @param {import("./toolchain.mjs").Toolchain} toolchain
 * @returns {Promise<Record<string, string>>} The environment in which worker-build finds everything.
 */
export async function provideTools(toolchain) {
  const missing = tools().filter((tool) => !findTool(tool));
  if (missing.length > 0) await provideNativeBuild();
  // One target directory for both, so that what they share is compiled once; it is of no use afterwards.
  const target = join(cacheDir, "tools", "target");
  for (const tool of missing) await install(tool, toolchain, target);
  rmSync(target, { recursive: true, force: true });
  return toolEnv();
}

/** @returns {Record<string, string>} */
export function toolEnv() {
  const [wasmBindgen, workerBuild] = tools().map(findTool);
  if (!wasmBindgen || !workerBuild) throw new Problem("The build tools are missing: run npm run build.");
  return {
    WORKER_BUILD: workerBuild,
    WASM_BINDGEN_BIN: wasmBindgen,
    WASM_OPT_BIN: bin("wasm-opt"),
    ESBUILD_BIN: bin("esbuild"),
  };
}

function install({ crate, program, version, usually }, { env }, target) {
  return step(`Compiling ${crate} ${version}, once for this machine`, usually, () =>
    run(
      "cargo",
      // Without --locked: a version in wasm-bindgen-cli's own lock file was withdrawn.
      [
        "install",
        "--debug",
        "--force",
        "--root",
        directory(program, version),
        "--version",
        `=${version}`,
        "--bin",
        program,
        crate,
      ],
      {
        log: `install-${program}`,
        env: { ...env, CARGO_TARGET_DIR: target, CARGO_PROFILE_DEV_DEBUG: "0", RUSTFLAGS: undefined },
        remedy: `${crate} ${version} could not be compiled: check that crates.io can be reached, then run this again, or install it yourself (cargo install ${crate} --version ${version}).`,
      },
    ),
  );
}

/** worker-build's TLS library wants OpenSSL's headers on Linux, and every Rust program a C linker. */
async function provideNativeBuild() {
  const missing = [];
  if (ask("cc", ["--version"]) === undefined) missing.push("gcc", "libc6-dev");
  if (process.platform === "linux") {
    if (ask("pkg-config", ["--version"]) === undefined) missing.push("pkg-config");
    if (ask("pkg-config", ["--exists", "openssl"]) === undefined) missing.push("libssl-dev");
  }
  if (missing.length === 0) return;
  if (mayUseApt()) return installPackages(missing, "Installing a C compiler and OpenSSL's headers", "20 s");
  throw new Problem(
    process.platform === "darwin"
      ? "A C compiler is missing: run xcode-select --install."
      : `Install ${missing.join(", ")} (Debian's names; elsewhere a C compiler, pkg-config and the headers of OpenSSL).`,
  );
}
