/**
 * `npm test`: everything, in the order in which a mistake is cheapest to hear of. One line a stage; the first that
 * fails ends the run and shows what it said. On success the closing lines of each test runner are shown, so that a run
 * without tests cannot look like a good one.
 */
import { spawn } from "node:child_process";
import { createWriteStream, existsSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { nodeBinary } from "./lib/node.mjs";
import { bin, root, WASM } from "./lib/paths.mjs";
import { duration, logFile, main, Problem, tail } from "./lib/run.mjs";
import { setUp } from "./lib/setup.mjs";

const HELP = `npm test                       everything
npm test -- --only lint        formatting and clippy, on the host and for Wasm
npm test -- --only host        the Rust tests that need no Worker
npm test -- --only e2e         the build, then the tests against the built Worker on workerd, and of the scripts
npm test -- --only e2e FILE…   the build, then only these test files
`;

/**
 * @typedef {object} Stage
 * @property {string} name
 * @property {"lint" | "host" | "e2e"} group
 * @property {string} command
 * @property {string[]} args
 * @property {RegExp} [closing] Lines to show of a good run.
 */

/**
 * @param {string} node
 * @param {string[]} files
 * @returns {Stage[]}
 */
function stages(node, files) {
  const tests = files.length > 0 ? files : ["tests/**/*.test.mjs"];
  return [
    { name: "prettier", group: "lint", command: node, args: [bin("prettier"), "--check", "--log-level", "warn", "."] },
    { name: "rustfmt", group: "lint", command: "cargo", args: ["fmt", "--check"] },
    { name: "clippy", group: "lint", command: "cargo", args: ["clippy", "--all-targets", "--", "-D", "warnings"] },
    {
      name: "clippy for Wasm",
      group: "lint",
      command: "cargo",
      args: ["clippy", "--target", WASM, "--", "-D", "warnings"],
    },
    { name: "host tests", group: "host", command: "cargo", args: ["test"], closing: /^test result: / },
    {
      name: "tests on workerd",
      group: "e2e",
      command: node,
      // Three files at a time: each has a workerd of its own, and mostly waits.
      args: ["--test", "--test-concurrency=3", "--test-timeout=600000", "--test-reporter=spec", ...tests],
      closing: /^ *ℹ (?!start of|end of)|^# printed: /,
    },
  ];
}

/**
 * @param {Stage} stage
 * @param {Record<string, string>} env
 */
async function runStage({ name, command, args, closing }, env) {
  const start = Date.now();
  process.stdout.write(`${name} … `);
  const file = logFile(`test-${name.replaceAll(" ", "-")}`);
  mkdirSync(dirname(file), { recursive: true });
  const log = createWriteStream(file);
  let output = "";
  const code = await new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd: root,
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    const forward = (signal) => child.kill(signal);
    for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, forward);
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (chunk) => {
        output += chunk;
        log.write(chunk);
      });
    }
    child.on("error", reject);
    child.on("close", (code, signal) => {
      for (const signal of ["SIGINT", "SIGTERM"]) process.off(signal, forward);
      resolve(signal ? 1 : code);
    });
  });
  log.end();
  process.stdout.write(`${code === 0 ? "ok" : "FAILED"}, ${duration(Date.now() - start)}\n`);
  if (code !== 0) {
    process.stdout.write(`\n${failure(output)}\n\n`);
    throw new Problem(`${name} failed; all of its output is in ${file}.`);
  }
  for (const line of output.split("\n")) if (closing?.test(line)) process.stdout.write(`  ${line}\n`);
}

/** What a failing run said: from where Node's runner or cargo's sums up, else the end of it. */
function failure(output) {
  const summary = output.search(/^✖ failing tests:|^failures:$/m);
  return tail(summary < 0 ? output : output.slice(summary), 120);
}

/**
 * @param {string[]} args
 * @returns {{ only: string | undefined, files: string[] } | undefined} Nothing when it asks for help.
 */
function parse(args) {
  if (args.includes("--help") || args.includes("-h")) return undefined;
  const [flag, only, ...files] = args;
  if (flag === undefined) return { only: undefined, files: [] };
  if (flag !== "--only" || !["lint", "host", "e2e"].includes(only) || (files.length > 0 && only !== "e2e")) {
    throw new Problem(`${args.join(" ")} is not understood.\n${HELP}`);
  }
  const absent = files.find((file) => !existsSync(join(root, file)));
  if (absent) throw new Problem(`There is no test file ${absent}: the runner would pass it over without a word.`);
  return { only, files };
}

await main(async () => {
  const wanted = parse(process.argv.slice(2));
  if (!wanted) {
    process.stdout.write(HELP);
    return;
  }
  const start = Date.now();
  const { only, files } = wanted;
  const { toolchain } = await setUp({ rust: true });
  const env = { ...toolchain.env, CARGO_TERM_COLOR: "never" };
  for (const stage of stages(nodeBinary(), files)) {
    if (only && stage.group !== only) continue;
    if (stage.group === "e2e") await setUp({ build: true });
    await runStage(stage, env);
  }
  process.stdout.write(`${only ? "Passed" : "Everything passed"}, ${duration(Date.now() - start)}.\n`);
});
