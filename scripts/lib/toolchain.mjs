/**
 * The one Rust toolchain that does everything here: host tests, clippy for both targets, the Wasm build. One, because
 * two would each compile every dependency.
 *
 * What decides is the standard library for wasm32, which not every machine can get the same way. In this order:
 *
 * 1. The toolchain that is active, if it is new enough and has it already.
 * 2. Debian's newer Rust, if an earlier set-up made it ready (4).
 * 3. `rustup target add wasm32-unknown-unknown`: the normal way. Its server may be out of reach; then quietly on.
 * 4. Where `apt-get` exists and we may use it: Debian's security suite carries a newer Rust with its sources; the
 *    standard library is built from them once, and kept in our cache.
 * 5. Otherwise one sentence that says what to install.
 *
 * "Has it" means that a small Wasm file was really compiled and linked: a directory of a library that belongs to
 * another compiler, or a missing rust-lld, would only come to light minutes later. Nobody's default toolchain is
 * changed: the choice is made through RUSTUP_TOOLCHAIN in the environment of our own children. For the same reason
 * there is no rust-toolchain.toml: with a list of targets in it every cargo call fails where rustup's server does.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { provideDebianRust } from "./debian.mjs";
import { atLeast, minimumRust, WASM } from "./paths.mjs";
import { ask, Problem, run, step } from "./run.mjs";

/** The name under which rustup knows Debian's Rust, once it was linked. */
const DEBIAN = "spillway-debian";

/**
 * @typedef {object} Toolchain
 * @property {string} version Such as "1.95.0".
 * @property {string} host Such as "x86_64-unknown-linux-gnu".
 * @property {boolean} wasm Whether it can build for wasm32.
 * @property {boolean} debian Whether it is Debian's.
 * @property {Record<string, string>} env What a child needs in its environment to use it.
 */

/** @returns {boolean} */
export const hasRustup = () => ask("rustup", ["--version"]) !== undefined;

/** Really compiles and links: see the header. */
function canBuildWasm(env) {
  const directory = mkdtempSync(join(tmpdir(), "spillway-probe-"));
  try {
    const args = ["--edition=2024", "--crate-type=cdylib", `--target=${WASM}`, "-Cpanic=abort", "--crate-name=probe"];
    const source = '#[unsafe(no_mangle)] pub extern "C" fn probe(n: u32) -> usize { vec![0u8; n as usize].len() }\n';
    return ask("rustc", [...args, "-"], { env, cwd: directory, input: source }) !== undefined;
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/**
 * @param {Record<string, string>} env
 * @returns {Toolchain | undefined}
 */
function inspect(env) {
  const about = ask("rustc", ["-vV"], { env });
  const version = about?.match(/^release: (\S+)/m)?.[1];
  const host = about?.match(/^host: (\S+)/m)?.[1];
  if (!version || !host || !ask("cargo", ["--version"], { env })) return undefined;
  const debian = env.RUSTUP_TOOLCHAIN === DEBIAN;
  return { version, host, debian, env, wasm: atLeast(version, minimumRust()) && canBuildWasm(env) };
}

/** Debian's Rust as a toolchain: through rustup's name for it, or straight from PATH where there is no rustup. */
const debianEnv = () => (hasRustup() ? { RUSTUP_TOOLCHAIN: DEBIAN } : {});

/**
 * Looks, and changes nothing.
 * @returns {Toolchain | undefined} One that can build Wasm if there is one, else the active one, else nothing.
 */
export function findToolchain() {
  const active = inspect({});
  if (active?.wasm) return active;
  const env = debianEnv();
  const debian = env.RUSTUP_TOOLCHAIN && inspect(env);
  return debian?.wasm ? debian : active;
}

/** @returns {string} One sentence: how to get what is missing. */
export function rustRemedy(found = findToolchain()) {
  const minimum = minimumRust();
  if (!found) return `Install Rust ${minimum} or newer with rustup (https://rustup.rs).`;
  const { version } = found;
  if (!atLeast(version, minimum)) {
    return hasRustup()
      ? `rustc ${version} is too old: run rustup update (${minimum} or newer is needed).`
      : `rustc ${version} is too old: install Rust ${minimum} or newer with rustup (https://rustup.rs).`;
  }
  return hasRustup()
    ? `rustc ${version} has no standard library for Wasm: run rustup target add ${WASM}.`
    : `rustc ${version} has no standard library for Wasm: install your system's package of it for ${WASM}, or Rust with rustup (https://rustup.rs).`;
}

/**
 * Looks, and gets what is missing.
 * @returns {Promise<Toolchain>}
 */
export async function provideToolchain() {
  const found = findToolchain();
  if (found?.wasm) return found;

  if (found && atLeast(found.version, minimumRust()) && hasRustup()) {
    const added = await step(
      `Adding Rust's standard library for Wasm with rustup`,
      "10 s",
      () => addTarget(),
      (ok) => (ok ? "done" : "not available here"),
    );
    const toolchain = added && inspect({});
    if (toolchain?.wasm) return toolchain;
  }

  if (await provideDebianRust()) {
    const env = debianEnv();
    if (env.RUSTUP_TOOLCHAIN) await link();
    const toolchain = inspect(env);
    if (toolchain?.wasm) return toolchain;
  }
  throw new Problem(rustRemedy(found));
}

/** Bounded, because a server that never answers must not keep the other ways from being tried. */
async function addTarget() {
  try {
    await run("rustup", ["target", "add", WASM], { log: "rustup-target", remedy: "", seconds: 180 });
    return true;
  } catch (error) {
    if (error instanceof Problem) return false;
    throw error;
  }
}

function link() {
  return run("rustup", ["toolchain", "link", DEBIAN, "/usr"], {
    log: "rustup-link",
    remedy: `rustup could not link Debian's Rust: run rustup toolchain link ${DEBIAN} /usr and see what it says.`,
  });
}

/** clippy and rustfmt, which a minimal rustup profile leaves out. */
export async function provideLinters({ env, debian }) {
  const missing = missingLinters(env);
  if (missing.length === 0) return;
  const names = missing.join(" and ");
  if (!debian && hasRustup()) {
    await step(`Adding ${names} with rustup`, "10 s", () =>
      run("rustup", ["component", "add", ...missing], {
        log: "rustup-components",
        env,
        seconds: 180,
        remedy: `${names} could not be added: run rustup component add ${missing.join(" ")}.`,
      }),
    );
    return;
  }
  throw new Problem(`${names} for this Rust is missing: install your system's package of it.`);
}

/** @param {Record<string, string>} env */
export function missingLinters(env) {
  const there = {
    clippy: ask("cargo", ["clippy", "--version"], { env }),
    rustfmt: ask("rustfmt", ["--version"], { env }),
  };
  return Object.keys(there).filter((name) => there[name] === undefined);
}
