/**
 * `spillway init`: writes a project that holds a configuration and nothing of ours. The Worker, the scripts and the fake
 * Claude stay in the package, so that a newer version is an `npm install` away and no file has to be merged.
 *
 * The configuration is made out of the repository's own wrangler.toml, and so is what the project is later compared with
 * (project.mjs): there is no second template that could fall behind. Its names are the project's, because a queue belongs to
 * the whole account and has one consumer: a second project under the same names would take the first one's jobs.
 *
 * Nothing is overwritten: it writes into a directory that is new or empty (but for .git), and takes its files back if it
 * cannot finish.
 */
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join, relative, resolve } from "node:path";
import { parseArgs } from "node:util";
import { SECRETS } from "./cloudflare-setup.mjs";
import { OLDEST_NODE } from "./node.mjs";
import { atLeast, home, readJson } from "./paths.mjs";
import { inPackage } from "./project.mjs";
import { Problem } from "./run.mjs";

export const HELP = `npx spillway init DIR [options]

Writes a Spillway project into DIR, which has to be new or empty: a configuration, scripts, and keys for this machine.
Nothing is overwritten, nothing is installed, and nothing is sent anywhere.

  --name NAME   of the Worker and its queues; by default that of the directory
  --from SPEC   what npm shall install as spillway: a version, or a packed file (default ^${readJson("package.json").version})
  --help        this
`;

/** A Worker is found under its name, and a queue's name, which is longer, has 63 characters at most. */
const NAME = /^[a-z0-9](?:[a-z0-9-]{0,52}[a-z0-9])?$/;

/**
 * @param {string[]} args
 * @param {{ node?: string, say?: (line: string) => void }} [of]
 * @returns {Promise<number>}
 */
export async function main(args, { node = process.versions.node, say = (line) => console.log(line) } = {}) {
  const { values, positionals } = parse(args);
  if (values.help) {
    say(HELP.trimEnd());
    return 0;
  }
  const [where, ...more] = positionals;
  if (where === undefined) throw new Problem("Where to? Name a directory: npx spillway init my-spillway");
  if (more.length > 0) throw new Problem(`One directory, please: ${positionals.join(", ")} are ${positionals.length}.`);
  const directory = resolve(where);
  checkEmpty(directory, where);
  const name = nameFor(directory, values.name);
  const given = values.from ?? `^${readJson("package.json").version}`;
  const files = projectFiles({ name, from: existsSync(given) ? fileSpec(directory, given) : given, node });
  write(directory, where, files);

  say(`${where} has a Spillway named ${name}: ${Object.keys(files).join(", ")}.`);
  if (!atLeast(node, OLDEST_NODE)) {
    say(`wrangler needs Node.js ${OLDEST_NODE}, and this is ${node}: the project brings one of its own.`);
  }
  const there = directory === process.cwd() ? "" : `  cd ${where}\n`;
  say(`\nNext:\n${there}  npm install\n  npm run dev        # try it: without an Anthropic key a fake Claude answers`);
  say("  npm run setup:cloudflare && npm run deploy");
  return 0;
}

function parse(args) {
  try {
    return parseArgs({
      args,
      allowPositionals: true,
      options: { help: { type: "boolean", short: "h" }, name: { type: "string" }, from: { type: "string" } },
    });
  } catch (error) {
    throw new Problem(`${error.message.split(". ")[0]}. See npx spillway init --help.`);
  }
}

function nameFor(directory, given) {
  const name = given ?? basename(directory);
  if (NAME.test(name)) return name;
  const rule = "up to 54 lower-case letters, digits and dashes, with a letter or digit at both ends";
  throw new Problem(
    given === undefined
      ? `The directory's name, "${name}", cannot be a Worker's (${rule}): choose one with --name.`
      : `--name "${name}" cannot be a Worker's name (${rule}).`,
  );
}

/** A path that means the same in the project. */
const fileSpec = (directory, given) => `file:${relative(directory, resolve(given))}`;

function checkEmpty(directory, where) {
  let held;
  try {
    held = readdirSync(directory).filter((name) => name !== ".git");
  } catch (error) {
    if (error.code === "ENOENT") return;
    const why = error.code === "ENOTDIR" ? "is a file, or would be in one" : `cannot be looked into (${error.code})`;
    throw new Problem(`${where} ${why}: name a directory. Nothing was changed.`);
  }
  if (held.length === 0) return;
  const some = held.slice(0, 3).join(", ");
  throw new Problem(
    `${where} is not empty (${some}${held.length > 3 ? ", …" : ""}): name a new or an empty directory. Nothing was changed.`,
  );
}

/**
 * @param {object} of
 * @param {string} of.name
 * @param {string} of.from
 * @param {string} of.node The version that it is going to be installed with.
 * @returns {Record<string, string>} By their names.
 */
export function projectFiles({ name, from, node }) {
  const secrets = SECRETS.filter(({ required, make }) => required || make);
  const optional = SECRETS.filter((secret) => !secrets.includes(secret));
  const key = () => randomBytes(24).toString("base64url");
  const manifest = {
    name,
    private: true,
    description: "A Spillway: absorbs Claude API overload and rate limits in a durable queue on Cloudflare Workers",
    type: "module",
    scripts: Object.fromEntries(
      ["dev", "doctor", "setup:cloudflare", "deploy", "fake-claude"].map((script) => [script, `spillway ${script}`]),
    ),
    dependencies: { spillway: from },
    ...(!atLeast(node, OLDEST_NODE) && { devDependencies: { node: readJson("package.json").devDependencies.node } }),
    allowScripts: { esbuild: true, node: true, workerd: true },
    cloudflare: {
      bindings: Object.fromEntries(SECRETS.map(({ name, about, byHand }) => [name, { description: byHand ?? about }])),
    },
  };
  return {
    "package.json": `${JSON.stringify(manifest, undefined, 2)}\n`,
    "wrangler.toml": wranglerToml(readFileSync(join(home, "wrangler.toml"), "utf8"), name),
    "README.md": readme(name),
    ".gitignore": "node_modules/\n.wrangler/\n.state/\n.dev.vars\n.env\nwrangler.deploy.toml\n",
    ".dev.vars": `# Keys of this machine, for npm run dev. Not for git, and not for production.
CLIENT_KEYS=app:${key()}
ADMIN_KEY=${key()}
# Without it a fake Claude answers.
ANTHROPIC_API_KEY=
`,
    ".dev.vars.example": `# The secrets of a deployment. Locally they are in .dev.vars.
${secrets.map(({ name, about, byHand }) => `# ${byHand ?? about}\n${name}=\n`).join("")}${optional
      .map(({ name, about }) => `# ${about}\n# ${name}=\n`)
      .join("")}`,
  };
}

/** The project behind the Deploy-to-Cloudflare button, which is built where Node is new and keys are asked for. */
export function buttonFiles() {
  const { version, devDependencies } = readJson("package.json");
  const files = projectFiles({ name: "spillway", from: `^${version}`, node: devDependencies.node });
  // Workers Builds installs the Node that this names; by itself it may have one that wrangler refuses.
  const held = { ...files, ".node-version": `${devDependencies.node.split(".")[0]}\n` };
  return Object.fromEntries(Object.entries(held).filter(([name]) => name !== ".dev.vars"));
}

/**
 * The project's configuration: the repository's, without its build, under another name, and with paths into the package.
 * @param {string} toml
 * @param {string} name
 */
export function wranglerToml(toml, name) {
  const own = toml.match(/^name = "(.*)"$/m)[1];
  const text = toml
    .replace(/^\[build\]\n(?:.+\n)*\n/m, "")
    .replace(/^name = .*$/m, `name = "${name}"`)
    .replace(/^(main|directory) = "(.*)"$/gm, (_, field, path) => `${field} = "${inPackage(path)}"`)
    .replace(
      new RegExp(`^((?:dead_letter_)?queue) = "${own}-(.*)"$`, "gm"),
      (_, field, rest) => `${field} = "${name}-${rest}"`,
    );
  return `# Written by spillway init, and yours from now on: change what you like. After an update of spillway, npm run doctor says\n# what has to be added.\n${text}`;
}

const readme = (name) => `# ${name}

A Spillway (npm package \`spillway\`): it takes Claude requests, and waits out overload and rate limits for them.

- \`npm run dev\` runs it on this machine, with the keys in .dev.vars; without an \`ANTHROPIC_API_KEY\` a fake Claude answers.
- \`npm run setup:cloudflare\` makes its queues, namespace and secrets in your account; \`npm run deploy\` deploys it and tries it.
- \`npm run doctor\` says what is missing. Settings are in wrangler.toml; node_modules/spillway/README.md has all there are.
- To update: \`npm install spillway@latest\`, then \`npm run doctor\`, which says what wrangler.toml has to have for it.

Submit a job with \`POST /v1/jobs\`, or point an Anthropic SDK's base URL at it; both want one of the \`CLIENT_KEYS\`.
`;

/**
 * All of them, or none; what is there stays as it is.
 * @param {string} directory
 * @param {string} where The same, as it was called.
 * @param {Record<string, string>} files
 */
export function write(directory, where, files) {
  const written = [];
  try {
    mkdirSync(directory, { recursive: true });
    for (const [name, text] of Object.entries(files)) {
      const file = join(directory, name);
      writeFileSync(file, text, { flag: "wx", mode: name === ".dev.vars" ? 0o600 : 0o644 });
      written.push(file);
    }
  } catch (error) {
    for (const file of written) rmSync(file, { force: true });
    throw new Problem(
      `${where} could not be written (${error.code ?? error.message}): nothing was left there that had not been there.`,
    );
  }
}
