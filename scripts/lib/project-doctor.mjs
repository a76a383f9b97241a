/**
 * `npm run doctor` in a project: what it has of what dev and deploy need, and how the rest comes. It changes nothing.
 *
 * Exit code 1 for what stands in the way of both; a login, which only a deployment needs, is told.
 */
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { parseEnv } from "node:util";
import { gzipSync } from "node:zlib";
import { settings } from "./dev-server.mjs";
import { installed, NODE_REMEDY, nodeBinary } from "./node.mjs";
import { buildDir, home, readJson, root } from "./paths.mjs";
import { advice, inPackage, lacks, readConfigs } from "./project.mjs";
import { report } from "./report.mjs";
import { ask, Problem } from "./run.mjs";
import { jsonIn, wrangler } from "./wrangler.mjs";

/**
 * @param {string[]} _
 * @param {{ env?: Record<string, string | undefined>, output?: NodeJS.WritableStream }} [io]
 * @returns {Promise<number>}
 */
export async function main(_, { env = process.env, output = process.stdout } = {}) {
  const { rows, lacking } = await look(env);
  const { text, code } = report(rows, "Nothing stands in the way of npm run dev.");
  output.write(`${text}${lacking.length > 0 ? `\n${advice(lacking)}` : ""}`);
  return code;
}

async function look(env) {
  const ready = installed("wrangler") && installed("miniflare") && nodeBinary() !== undefined;
  const config = ready ? await configuration() : undefined;
  const file = join(root, ".dev.vars");
  const vars = settings(env, existsSync(file) ? parseEnv(readFileSync(file, "utf8")) : {});
  const wasm = join(buildDir, "index_bg.wasm");
  const lacking = config?.lacking ?? [];
  const packageRow = (name) => ({ name, found: installed(name) ? version(name) : undefined, remedy: "npm install" });

  /** @type {import("./report.mjs").Row[]} */
  const rows = [
    { name: "node", found: nodeBinary() && ask(nodeBinary(), ["--version"]), remedy: NODE_REMEDY },
    {
      name: "spillway",
      found: existsSync(wasm)
        ? `${readJson("package.json").version}, ${(gzipSync(readFileSync(wasm)).length / 1000).toFixed(1)} KB gzipped`
        : undefined,
      remedy: "the package has no Worker in it: npm install spillway@latest",
    },
    packageRow("wrangler"),
    packageRow("miniflare"),
  ];
  if (config?.problem) rows.push({ name: "wrangler.toml", found: undefined, remedy: config.problem });
  else if (config) {
    rows.push({
      name: "wrangler.toml",
      found: lacking.length === 0 ? `has what this version needs, as ${config.name}` : undefined,
      remedy: `lacks ${lacking.map(({ text }) => text).join("; ")}: see below`,
    });
    const main = `main = "${inPackage("build/index.js")}"`;
    rows.push({
      name: "main",
      found: config.main,
      remedy: `names no file: it has to be ${main}, and spillway installed`,
    });
  }
  for (const name of ["CLIENT_KEYS", "ADMIN_KEY"]) {
    rows.push({
      name,
      found: vars[name] && "set",
      remedy: `${name} is not set: put it into .dev.vars, for npm run dev`,
    });
  }
  const claude = vars.ANTHROPIC_BASE_URL ? `Claude at ${vars.ANTHROPIC_BASE_URL}` : vars.ANTHROPIC_API_KEY && "set";
  rows.push({ name: "ANTHROPIC_API_KEY", found: claude || "not set: in npm run dev a fake Claude answers" });
  if (ready) rows.push(await login(env));
  return { rows, lacking };
}

async function configuration() {
  if (!existsSync(join(root, "wrangler.toml"))) return { problem: "there is none: npx spillway init DIR writes one" };
  try {
    const { project, needed } = await readConfigs();
    const main = project.main && existsSync(project.main) ? whose(project.main) : undefined;
    return { name: project.name, main, lacking: lacks(project, needed) };
  } catch (error) {
    return { problem: `cannot be read: ${error.message.split("\n")[0]}` };
  }
}

const whose = (main) =>
  resolve(main) === join(root, inPackage("build/index.js"))
    ? "the package's Worker"
    : "a file of your own, which npm run dev does not run: it runs the package's Worker";

/** Of an installed package, whatever it exports: its package.json is beside or above what is imported of it. */
function version(name) {
  const require = createRequire(join(home, "package.json"));
  for (
    let directory = dirname(require.resolve(name));
    dirname(directory) !== directory;
    directory = dirname(directory)
  ) {
    const file = join(directory, "package.json");
    const manifest = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {};
    if (manifest.name === name) return manifest.version;
  }
  return "installed";
}

/** @returns {Promise<import("./report.mjs").Row>} */
async function login(env) {
  const row = { name: "Cloudflare", automatic: true };
  try {
    const { accounts = [] } = jsonIn((await wrangler(["whoami", "--json"], { env })).stdout);
    const names = accounts.map(({ name }) => name).join(", ");
    return { ...row, found: names || undefined, remedy: "before npm run deploy: npx wrangler login" };
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return { ...row, found: undefined, remedy: "could not be asked who is logged in: see npx wrangler whoami" };
  }
}
