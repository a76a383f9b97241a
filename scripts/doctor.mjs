/**
 * `npm run doctor`: what was found, what is missing, and how it comes here. It changes nothing.
 *
 * Exit code 1 only for what no set-up can provide; what `npm start` or `npm test` would install by itself is told, and
 * is no fault.
 */
import { existsSync } from "node:fs";
import { relative } from "node:path";
import { mayUseApt } from "./lib/debian.mjs";
import { nodeBinary, packagesReady } from "./lib/node.mjs";
import { atLeast, bin, minimumRust, readJson, root } from "./lib/paths.mjs";
import { report } from "./lib/report.mjs";
import { ask, helpOnly, main } from "./lib/run.mjs";
import { findToolchain, hasRustup, missingLinters, rustRemedy } from "./lib/toolchain.mjs";
import { findTool, tools } from "./lib/tools.mjs";
import { buildReady, wasmSize } from "./lib/worker-build.mjs";

const AUTOMATIC = "npm start, npm test and npm run dev install it";

/** @returns {import("./lib/report.mjs").Row[]} */
function look() {
  const node = process.versions.node;
  const packages = packagesReady();
  const version = (name) => (packages ? readJson(`node_modules/${name}/package.json`).version : undefined);
  const installed = (name) => ({ name, found: version(name), automatic: true, remedy: AUTOMATIC });

  const toolchain = findToolchain();
  const current = toolchain !== undefined && atLeast(toolchain.version, minimumRust());
  const apt = mayUseApt();
  const wasmComes = apt || (current && hasRustup());
  const linters = toolchain ? missingLinters(toolchain.env) : ["clippy", "rustfmt"];
  const linter = (name) => ({
    name,
    found: linters.includes(name)
      ? undefined
      : ask("cargo", [name === "rustfmt" ? "fmt" : name, "--version"], { env: toolchain.env }),
    automatic: hasRustup() || apt,
    remedy: hasRustup() ? `rustup component add ${name}` : `install your system's package of ${name}`,
  });

  return [
    {
      name: "node",
      found: atLeast(node, "20")
        ? `${node}${packages ? `, and ${ask(nodeBinary(), ["--version"])} for the Worker's tools` : ""}`
        : undefined,
      remedy: `Node.js ${node} is too old: install 20 or newer`,
    },
    { name: "npm", found: ask("npm", ["--version"]), remedy: "install npm, which comes with Node.js" },
    {
      name: "cargo",
      found: toolchain && ask("cargo", ["--version"], { env: toolchain.env }),
      automatic: apt,
      remedy: rustRemedy(undefined),
    },
    {
      name: "rustc",
      found: current ? `${toolchain.version}${toolchain.debian ? ", Debian's" : ""}` : undefined,
      automatic: apt,
      remedy: rustRemedy(toolchain),
    },
    {
      name: "std for Wasm",
      found: toolchain?.wasm ? "compiles and links" : undefined,
      automatic: wasmComes,
      remedy: wasmComes ? AUTOMATIC : rustRemedy(toolchain),
    },
    linter("clippy"),
    linter("rustfmt"),
    ...tools().map((tool) => ({
      name: tool.program,
      found: findTool(tool) && tool.version,
      automatic: true,
      remedy: `${AUTOMATIC} (compiled once for this machine, ${tool.usually})`,
    })),
    {
      ...installed("binaryen"),
      name: "wasm-opt",
      found: packages && existsSync(bin("wasm-opt")) ? version("binaryen") : undefined,
    },
    installed("wrangler"),
    {
      name: "build",
      found: buildReady() ? `up to date, ${(wasmSize().gzipped / 1000).toFixed(1)} KB gzipped` : undefined,
      automatic: true,
      remedy: "npm run build makes it, as do npm start, npm test and npm run dev",
    },
  ];
}

await main(async () => {
  helpOnly(
    "npm run doctor\n\nSays what was found on this machine, what is missing, and how it comes here. It changes nothing.\n",
  );
  const { text, code } = report(look(), "Nothing stands in the way of npm start and npm test.");
  process.stdout.write(`Spillway in ${relative(process.cwd(), root) || "this directory"}\n\n${text}`);
  return code;
});
