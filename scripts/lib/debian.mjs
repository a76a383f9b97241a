/**
 * What Debian's package manager can give: a C compiler and the headers that the build tools need, and a newer Rust.
 *
 * Debian keeps a Rust for building browsers (`rustc-web`) that is years newer than its ordinary one, with sources. It
 * lacks only the standard library for wasm32, which takes a minute to build from those sources. It is the way for
 * machines that reach Debian's servers and not rustup's; everything it does is skipped where it is not needed.
 *
 * Used only as root or with a sudo that asks for no password, and always with --no-remove: a set-up that takes
 * somebody's packages away, or stops at a password prompt in a script, is worse than one that says what it lacks.
 */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  copyFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { atLeast, cacheDir, minimumRust, WASM } from "./paths.mjs";
import { ask, Problem, run, step } from "./run.mjs";

const RUSTC = "/usr/bin/rustc";
const CARGO = "/usr/bin/cargo";
const RUST_PACKAGES = ["rustc-web", "cargo-web", "rust-web-src", "rust-web-clippy", "rustfmt-web"];

const isRoot = () => process.getuid?.() === 0;

/** Whether packages can be installed without asking anybody. */
export const mayUseApt = () =>
  ask("apt-get", ["--version"]) !== undefined && (isRoot() || ask("sudo", ["-n", "true"]) !== undefined);

/** Runs a command as root. */
function asRoot(command, args, options) {
  const env = { DEBIAN_FRONTEND: "noninteractive", ...options.env };
  return isRoot()
    ? run(command, args, { ...options, env })
    : run("sudo", ["-n", "--preserve-env=DEBIAN_FRONTEND", command, ...args], { ...options, env });
}

/** @returns {string | undefined} The version that apt would install. */
function candidate(name) {
  const version = ask("apt-cache", ["policy", name])?.match(/^ {2}Candidate: (\S+)/m)?.[1];
  return version === "(none)" ? undefined : version;
}

const apt = (args, remedy) =>
  asRoot("apt-get", ["-o", "DPkg::Lock::Timeout=300", ...args], { log: `apt-get-${args[0]}`, remedy, seconds: 900 });

/**
 * @param {string[]} names
 * @param {string} usually
 * @param {string} what
 */
export async function installPackages(names, what, usually) {
  const line = `apt-get install ${names.join(" ")}`;
  await step(what, usually, async () => {
    if (!names.every(candidate)) await apt(["update"], `Debian's package lists could not be fetched; needed: ${line}.`);
    await apt(
      ["install", "-y", "--no-install-recommends", "--no-remove", ...names],
      `Debian's packages could not be installed; needed: ${line}.`,
    );
  });
}

/** @returns {string | undefined} The package of the newest LLVM linker that there is, such as "lld-19". */
function linkerPackage() {
  const numbers = (ask("apt-cache", ["pkgnames", "lld-"]) ?? "")
    .split("\n")
    .map((name) => Number(name.match(/^lld-(\d+)$/)?.[1]))
    .filter((number) => number > 0 && candidate(`lld-${number}`));
  // 19 is the one that was tried; a newer one understands the same objects.
  const number = numbers.includes(19) ? 19 : Math.max(...numbers);
  return Number.isFinite(number) ? `lld-${number}` : undefined;
}

/** @returns {string | undefined} */
const version = () => ask(RUSTC, ["--version"])?.match(/^rustc (\S+)/)?.[1];

/**
 * Makes Debian's Rust able to build Wasm, as far as that is possible here.
 * @returns {Promise<boolean>} False where it is not: no apt-get, no right to use it, or no Rust new enough.
 */
export async function provideDebianRust() {
  if (!mayUseApt()) return false;
  const minimum = minimumRust();
  const offered = () => atLeast(candidate("rustc-web") ?? "0", minimum);
  if (!atLeast(version() ?? "0", minimum) && !offered()) {
    await apt(["update"], "Debian's package lists could not be fetched; install Rust with rustup (https://rustup.rs).");
    if (!offered()) return false;
  }
  const linker = linkerPackage();
  if (!linker) return false;
  const rlld = `/usr/lib/llvm-${linker.slice(4)}/bin/lld`;
  if (!atLeast(version() ?? "0", minimum) || !existsSync(CARGO) || !existsSync(rlld)) {
    await installPackages([...RUST_PACKAGES, linker], "Installing Debian's newer Rust", "25 s");
  }
  const release = version();
  const host = ask(RUSTC, ["-vV"])?.match(/^host: (\S+)/m)?.[1];
  const sysroot = ask(RUSTC, ["--print", "sysroot"]);
  if (!release || !host || !sysroot) return false;

  const std = join(cacheDir, "wasm-std", `${release}-${host}`);
  if (!existsSync(std)) {
    await step("Building Rust's standard library for Wasm, once for this machine", "1 min", () =>
      buildStd(`/usr/bin/${linker}`, std),
    );
  }
  const remedy = `The standard library for Wasm could not be put into ${sysroot}: install Rust with rustup (https://rustup.rs).`;
  const put = (command, args) => asRoot(command, args, { log: "wasm-std-install", remedy });
  const library = join(sysroot, "lib/rustlib", WASM, "lib");
  const programs = join(sysroot, "lib/rustlib", host, "bin");
  await put("rm", ["-rf", library]);
  await put("mkdir", ["-p", library, programs]);
  await put("cp", [...readdirSync(std).map((file) => join(std, file)), library]);
  // rustc asks for its Wasm linker by this name.
  await put("ln", ["-sfn", rlld, join(programs, "rust-lld")]);
  return true;
}

/**
 * Builds the standard library out of its own sources. -Z build-std is a nightly's flag; RUSTC_BOOTSTRAP lets this one
 * build use it, and nothing after it needs either.
 * @param {string} linker
 * @param {string} into Comes to be only when it is complete.
 */
async function buildStd(linker, into) {
  const crate = mkdtempSync(join(tmpdir(), "spillway-std-"));
  try {
    mkdirSync(join(crate, "src"));
    writeFileSync(join(crate, "src/lib.rs"), "");
    writeFileSync(join(crate, "Cargo.toml"), '[package]\nname = "empty"\nversion = "0.0.0"\nedition = "2021"\n');
    await run(CARGO, ["build", "--release", "-Z", "build-std=std,panic_abort", "--target", WASM], {
      log: "wasm-std",
      cwd: crate,
      env: {
        RUSTC,
        RUSTC_BOOTSTRAP: "1",
        RUSTFLAGS: undefined,
        CARGO_BUILD_RUSTFLAGS: undefined,
        CARGO_TARGET_DIR: join(crate, "target"),
        CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER: linker,
      },
      remedy:
        "The standard library for Wasm could not be built from Debian's sources: check that crates.io can be reached, or install Rust with rustup (https://rustup.rs).",
    });
    const built = join(crate, "target", WASM, "release/deps");
    const libraries = readdirSync(built).filter((file) => file.endsWith(".rlib") && !file.startsWith("libempty-"));
    if (!libraries.some((file) => file.startsWith("libstd-"))) {
      throw new Problem("The build of Debian's Rust sources made no standard library: install Rust with rustup.");
    }
    const partial = `${into}.${process.pid}`;
    mkdirSync(partial, { recursive: true });
    for (const file of libraries) copyFileSync(join(built, file), join(partial, file));
    renameSync(partial, into);
  } finally {
    rmSync(crate, { recursive: true, force: true });
  }
}
