/**
 * The npm package as somebody gets it who has no Rust: packed here, installed by npm into a project that its own init has
 * written, on a PATH that holds node, npm and sh, and nothing else.
 *
 * It works offline. npm installs the packed file for real; its two dependencies it gets as stubs of the same name and
 * version, which are then replaced by the repository's. So what an app would have to install is exactly these three.
 */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { nodeBinary } from "../../scripts/lib/node.mjs";
import { readJson, root } from "../../scripts/lib/paths.mjs";

const execute = promisify(execFile);
const read = (file) => JSON.parse(readFileSync(file, "utf8"));

/** What npm pack says, which may come after what prepack has said. */
const packed = (stdout) => [JSON.parse(stdout.slice(stdout.search(/^[[{]/m)))].flat()[0];

/** Packs a directory into another; answers what npm says of it. */
export async function pack(from, into) {
  const { stdout } = await execute("npm", ["pack", "--json", "--pack-destination", into], { cwd: from });
  return packed(stdout);
}

/** A PATH without a compiler, or anything else. */
function barePath(directory) {
  const programs = join(directory, "bin");
  mkdirSync(programs);
  const places = (process.env.PATH ?? "").split(delimiter);
  const npm = places.map((place) => join(place, "npm")).find((file) => existsSync(file));
  for (const [name, file] of [
    ["node", nodeBinary()],
    ["npm", npm],
    ["sh", "/bin/sh"],
  ]) {
    symlinkSync(realpathSync(file), join(programs, name));
  }
  return programs;
}

/** The package, unpacked as npx would have it, and where projects may be written. */
export class Package {
  static async make() {
    const made = new Package();
    made.directory = mkdtempSync(join(tmpdir(), "spillway-package-"));
    made.env = { PATH: barePath(made.directory), HOME: made.directory, CI: "1", WRANGLER_SEND_METRICS: "false" };
    made.packed = await pack(root, made.directory);
    made.tarball = join(made.directory, made.packed.filename);
    await execute("tar", ["-xzf", made.tarball, "-C", made.directory]);
    return made;
  }

  remove() {
    rmSync(this.directory, { recursive: true, force: true, maxRetries: 3 });
  }

  /** `npx spillway …`, and its end. */
  spillway(args, { cwd = this.directory } = {}) {
    return this.run("node", [join(this.directory, "package/bin/spillway.mjs"), ...args], { cwd });
  }

  /** A program to its end; whatever it asks gets no answer. */
  async run(command, args, { cwd, env = {} }) {
    const running = execute(command, args, { cwd, env: { ...this.env, ...env }, timeout: 60_000 });
    running.child.stdin?.end();
    try {
      return { code: 0, ...(await running) };
    } catch (error) {
      if (error.code === "ENOENT") throw error;
      return { code: error.code ?? error.signal, stdout: error.stdout, stderr: error.stderr };
    }
  }

  /** `npm run …` in a project, without npm's own lines. */
  script(cwd, script, args = [], env = {}) {
    return this.run("npm", ["run", "--silent", script, "--", ...args], { cwd, env });
  }

  /** What init has written, installed. */
  async project(name) {
    const { code, stderr } = await this.spillway(["init", name, "--from", this.packed.filename]);
    assert.equal(code, 0, stderr);
    const directory = join(this.directory, name);
    const manifest = join(directory, "package.json");
    const given = read(manifest);
    const stubs = await this.#stubs();
    writeFileSync(manifest, JSON.stringify({ ...given, devDependencies: {}, overrides: stubs }));
    const install = ["install", "--offline", "--no-audit", "--no-fund", "--cache", join(this.directory, "cache")];
    const { code: installed, stderr: why } = await this.run("npm", install, { cwd: directory });
    assert.equal(installed, 0, why);
    for (const dependency of Object.keys(stubs)) {
      const place = join(directory, "node_modules", dependency);
      rmSync(place, { recursive: true });
      symlinkSync(realpathSync(join(root, "node_modules", dependency)), place);
    }
    writeFileSync(manifest, JSON.stringify(given, undefined, 2));
    return directory;
  }

  async #stubs() {
    const specs = {};
    for (const [name, version] of Object.entries(readJson("package.json").dependencies)) {
      const source = join(this.directory, "stubs", name);
      const { bin = {} } = read(join(root, "node_modules", name, "package.json"));
      for (const file of Object.values(bin)) {
        mkdirSync(join(source, file, ".."), { recursive: true });
        writeFileSync(join(source, file), "");
      }
      mkdirSync(source, { recursive: true });
      writeFileSync(join(source, "package.json"), JSON.stringify({ name, version, bin }));
      specs[name] = `file:${join(this.directory, (await pack(source, this.directory)).filename)}`;
    }
    return specs;
  }

  /** `npm run dev`, until `stop`. */
  async dev(cwd, env = {}) {
    const child = spawn("npm", ["run", "--silent", "dev"], {
      cwd,
      env: { ...this.env, PORT: "0", ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    const said = { stdout: "", stderr: "" };
    const ended = new Promise((resolve) => child.on("close", resolve));
    for (const name of Object.keys(said)) child[name].setEncoding("utf8").on("data", (text) => (said[name] += text));
    await Promise.race([ended, new Promise((resolve) => child.stdout.once("data", resolve))]);
    const url = said.stdout.match(/^Spillway is ready on (http:\S+)\n$/)?.[1];
    const stop = () => {
      child.kill("SIGTERM");
      return ended;
    };
    return { url, said, stop };
  }
}
