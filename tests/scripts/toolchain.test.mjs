/**
 * Which Rust the set-up chooses, and what it says when there is none: with programs of our own in PATH that answer as
 * rustc, cargo and rustup do. apt-get is not among them, so nothing is ever installed.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const TOOLCHAIN = fileURLToPath(new URL("../../scripts/lib/toolchain.mjs", import.meta.url));

/** `$MACHINE/std-NAME` is the Wasm library of the toolchain NAME; without it a compilation for Wasm fails. */
const PROGRAMS = {
  rustc: `
name=\${RUSTUP_TOOLCHAIN:-active}
[ -f "$MACHINE/rustc-$name" ] || exit 1
case "$1" in
  -vV) read -r release < "$MACHINE/rustc-$name"; echo "release: $release"; echo "host: x86_64-unknown-linux-gnu" ;;
  *) [ -f "$MACHINE/std-$name" ] ;;
esac`,
  cargo: "echo cargo 1.0.0",
  rustup: `
case "$1 $2" in
  "target add") echo "target add" >> "$MACHINE/calls"; [ -f "$MACHINE/online" ] && : > "$MACHINE/std-active" ;;
  *) echo rustup 1.28.0 ;;
esac`,
};

/**
 * @param {import("node:test").TestContext} t
 * @param {{ programs?: string[], files?: Record<string, string> }} machine
 */
function provide(t, { programs = ["rustc", "cargo", "rustup"], files = {} }) {
  const directory = mkdtempSync(join(tmpdir(), "spillway-machine-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  mkdirSync(join(directory, "bin"));
  for (const name of programs) {
    writeFileSync(join(directory, "bin", name), `#!/bin/sh\n${PROGRAMS[name]}\n`);
    chmodSync(join(directory, "bin", name), 0o755);
  }
  for (const [name, content] of Object.entries(files)) writeFileSync(join(directory, name), `${content}\n`);
  const script = `
    const { provideToolchain } = await import(${JSON.stringify(TOOLCHAIN)});
    try { console.log(JSON.stringify(await provideToolchain())); } catch (error) { console.log(JSON.stringify({ problem: error.message })); }`;
  const { stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", script], {
    encoding: "utf8",
    env: { PATH: join(directory, "bin"), MACHINE: directory, HOME: directory },
    timeout: 30_000,
  });
  const calls = existsSync(join(directory, "calls")) ? readFileSync(join(directory, "calls"), "utf8") : "";
  return { ...JSON.parse(stdout || JSON.stringify({ problem: stderr })), calls };
}

test("an active toolchain that can build Wasm is used as it is, and rustup is not asked", (t) => {
  const { version, env, calls, problem } = provide(t, { files: { "rustc-active": "1.95.0", "std-active": "" } });
  assert.equal(problem, undefined);
  assert.equal(version, "1.95.0");
  assert.deepEqual(env, {});
  assert.equal(calls, "");
});

test("a toolchain without the Wasm library gets it from rustup", (t) => {
  const { wasm, env, calls } = provide(t, { files: { "rustc-active": "1.95.0", online: "" } });
  assert.equal(wasm, true);
  assert.deepEqual(env, {});
  assert.equal(calls, "target add\n");
});

test("Debian's Rust of an earlier set-up is used by name, without asking rustup's server again", (t) => {
  const { version, debian, env, calls } = provide(t, {
    files: { "rustc-active": "1.95.0", "rustc-spillway-debian": "1.96.0", "std-spillway-debian": "" },
  });
  assert.equal(version, "1.96.0");
  assert.equal(debian, true);
  assert.deepEqual(env, { RUSTUP_TOOLCHAIN: "spillway-debian" });
  assert.equal(calls, "");
});

for (const [rule, { says, ...machine }] of Object.entries({
  "without Rust it says where to get it": { programs: [], says: /^Install Rust 1\.\d+ or newer with rustup/ },
  "with rustup's server out of reach it says which command to try": {
    files: { "rustc-active": "1.95.0" },
    says: /has no standard library for Wasm: run rustup target add wasm32-unknown-unknown/,
  },
  "with an old rustc of rustup it says to update": {
    files: { "rustc-active": "1.70.0", "std-active": "", online: "" },
    says: /^rustc 1\.70\.0 is too old: run rustup update \(1\.\d+ or newer is needed\)/,
  },
  "with an old rustc of the system it says to take rustup's": {
    programs: ["rustc", "cargo"],
    files: { "rustc-active": "1.70.0", "std-active": "" },
    says: /^rustc 1\.70\.0 is too old: install Rust .* with rustup/,
  },
  "without rustup it names the system's package": {
    programs: ["rustc", "cargo"],
    files: { "rustc-active": "1.95.0" },
    says: /install your system's package of it for wasm32-unknown-unknown/,
  },
})) {
  test(rule, (t) => {
    const { problem } = provide(t, machine);
    assert.match(problem, says);
    assert.equal(problem.split("\n").length, 1);
  });
}
