/**
 * Deploys the Worker, then proves that it works: a Worker whose queue has no consumer accepts every job and finishes
 * none, and nothing about the deployment would tell.
 *
 * wrangler.toml names the KV namespace only by its binding (cloudflare-setup.mjs says why); the account's id for it is
 * looked up and added to a copy, which is what wrangler deploys. If the account has no such namespace, wrangler makes
 * it. After the first deployment a plain `wrangler deploy` works as well: it keeps the binding that the Worker has.
 *
 * An account that has not enabled Analytics Engine cannot deploy a Worker that writes to it. The Worker's own figures do without, so
 * it is left out then, and said.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { canary, CANARY_BINDING } from "./canary.mjs";
import { root } from "./paths.mjs";
import { checkProject } from "./project.mjs";
import { questions } from "./questions.mjs";
import { createQueue, queueExists, queueNames } from "./queues.mjs";
import { Problem, tail } from "./run.mjs";
import { chooseAccount, namespaces, namespaceTitle, processIo, wrangler } from "./wrangler.mjs";

const HELP = `npm run deploy -- [options]

Builds and deploys the Worker, then submits a canary job and waits for its answer.

  --skip-canary      deploys only
  --help             this

  SPILLWAY_CLIENT_KEY   one of the client keys, for the canary job; asked for if it is not set
  SPILLWAY_URL          where the Worker answers, if that is not what wrangler says (a domain of your own)

In Workers Builds (WORKERS_CI), where nobody can be asked and the account is given, it makes the queues that are missing
and deploys, without a canary.
`;

/**
 * @param {string[]} args
 * @param {import("./wrangler.mjs").Io} [io]
 * @param {import("./canary.mjs").Patience} [patience]
 * @returns {Promise<number>}
 */
export async function main(args, io = processIo, patience = undefined) {
  const say = (line) => void io.output.write(`${line}\n`);
  const options = parse(args);
  if (options.help) {
    io.output.write(HELP);
    return 0;
  }
  await checkProject();
  if (io.env.WORKERS_CI) {
    await deployInBuilds(io.env, say, (text) => io.output.write(text));
    return 0;
  }
  const { question, close } = questions(io);
  try {
    const { name: account, env } = await chooseAccount(io, question);
    say(`Deploying to the account ${account}`);
    const { targets, queue } = await deploy(env, say, (text) => io.output.write(text));
    const url = env.SPILLWAY_URL || targets.find((target) => target.startsWith("https://"));
    if (!url) {
      throw new Problem(
        "The Worker is deployed, but wrangler names no URL for it: set SPILLWAY_URL, and run this again.",
      );
    }
    say(`Deployed: ${url}`);
    if (options["skip-canary"]) return 0;
    const key = env.SPILLWAY_CLIENT_KEY || (await question("A client key for the canary job:", { secret: true }));
    if (!key) {
      throw new Problem(
        "The Worker is deployed, but nothing has proved that it works: set SPILLWAY_CLIENT_KEY to one of the client keys, and run this again.",
      );
    }
    await canary(url, key, queue, say, patience);
    return 0;
  } finally {
    close();
  }
}

function parse(args) {
  try {
    return parseArgs({ args, options: { help: { type: "boolean", short: "h" }, "skip-canary": { type: "boolean" } } })
      .values;
  } catch (error) {
    throw new Problem(`${error.message}. See npm run deploy -- --help.`);
  }
}

/** @returns {Promise<{ targets: string[], queue: string }>} Where the Worker answers, and the queue of the canary. */
async function deploy(env, say, show) {
  const { unstable_readConfig } = await import("wrangler");
  const config = unstable_readConfig({ config: join(root, "wrangler.toml") });
  const known = await namespaces(env);
  const ids = new Map();
  for (const { binding, id } of config.kv_namespaces) {
    const found = known.get(namespaceTitle(config.name, binding));
    if (!id && found) ids.set(binding, found);
  }

  const scratch = mkdtempSync(join(tmpdir(), "spillway-deploy-"));
  const report = join(scratch, "report.ndjson");
  try {
    const toml = withNamespaceIds(readFileSync(join(root, "wrangler.toml"), "utf8"), ids);
    await upload(toml, { ...env, WRANGLER_OUTPUT_FILE_PATH: report }, say, show);
    const entries = readFileSync(report, "utf8")
      .split("\n")
      .filter(Boolean)
      .map((line) => JSON.parse(line));
    const { queue } = config.queues.producers.find(({ binding }) => binding === CANARY_BINDING);
    return { targets: entries.find(({ type }) => type === "deploy")?.targets ?? [], queue };
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/**
 * A Deploy button makes the namespace and the queues that are written to, and says nothing about one that is only read
 * from, as that of the dead is. A token that may not see queues is no reason to stop: wrangler will name the one it lacks.
 */
async function deployInBuilds(env, say, show) {
  const { unstable_readConfig } = await import("wrangler");
  const config = unstable_readConfig({ config: join(root, "wrangler.toml") });
  try {
    for (const name of queueNames(config)) if (!(await queueExists(name, env))) await createQueue(name, env, say);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    say(`${error.message}\n${error.detail}`);
  }
  await upload(readFileSync(join(root, "wrangler.toml"), "utf8"), env, say, show);
}

/** Deploys with this configuration, or where the account has no Analytics Engine with what is left of it. */
async function upload(toml, env, say, show) {
  // In the checkout, because paths in it are relative to it.
  const copy = join(root, "wrangler.deploy.toml");
  const attempt = (text) => {
    writeFileSync(copy, text);
    return wrangler(["deploy", "--config", copy], { env, show });
  };
  try {
    let answer = await attempt(toml);
    const rest = withoutAnalytics(toml);
    if (answer.status !== 0 && answer.output.includes(NO_ANALYTICS) && rest !== toml) {
      say(
        "This account has no Analytics Engine: the Worker is deployed without it, and keeps its figures itself. To have them there too, enable it in the dashboard, and deploy again.",
      );
      answer = await attempt(rest);
    }
    if (answer.status !== 0) {
      throw new Problem("wrangler could not deploy the Worker: see its message above.", tail(answer.output, 15));
    }
  } finally {
    rmSync(copy, { force: true });
  }
}

/** What the API says where Analytics Engine is not enabled. */
const NO_ANALYTICS = "10089";

/** @param {string} toml */
export const withoutAnalytics = (toml) =>
  toml.replaceAll(/(?:^#.*\n)*^\[\[analytics_engine_datasets\]\]\n(?:^[^[\n].*\n)*\n?/gm, "");

/**
 * @param {string} toml
 * @param {Map<string, string>} ids By binding.
 * @returns {string}
 */
export function withNamespaceIds(toml, ids) {
  let text = toml;
  for (const [binding, id] of ids) {
    const table = new RegExp(`^(\\[\\[kv_namespaces\\]\\]\\n(?:[^[\\n].*\\n|\\n)*?binding = "${binding}".*\\n)`, "m");
    if (!table.test(text)) throw new Problem(`wrangler.toml has no [[kv_namespaces]] with binding = "${binding}".`);
    text = text.replace(table, `$1id = "${id}"\n`);
  }
  return text;
}
