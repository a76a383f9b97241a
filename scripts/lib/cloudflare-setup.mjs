/**
 * Makes what the Worker needs in a Cloudflare account: its queues, its KV namespace, its secrets.
 *
 * It looks first, then asks, then makes, so that an answer one does not have leaves nothing half done; what exists is
 * kept, so that it can be run again at any time. Names come from wrangler.toml. Secrets go to wrangler through a pipe,
 * never through an argument that other users of the machine could see, and a secret that is set is only replaced when
 * `--rotate` names it. Keys that were made here are shown once.
 *
 * The namespace's id is not written anywhere: `npm run deploy` looks it up by its title. An id in wrangler.toml would
 * be one account's value in everybody's repository, and a modified file at every `git pull`.
 */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { root } from "./paths.mjs";
import { checkProject } from "./project.mjs";
import { questions } from "./questions.mjs";
import { createQueue, queueExists, queueNames } from "./queues.mjs";
import { Problem, tail } from "./run.mjs";
import { chooseAccount, jsonIn, mustWrangler, namespaces, namespaceTitle, processIo, wrangler } from "./wrangler.mjs";

export const HELP = `npm run setup:cloudflare -- [options]

Creates the queues, the KV namespace and the secrets of the account that wrangler is logged in to.
What exists is kept; running it again is safe.

  --dry-run        says what it would do, and changes nothing
  --generate       makes CLIENT_KEYS, ADMIN_KEY and WEBHOOK_SECRET without asking
  --rotate NAME    replaces a secret that is set; may be given several times
  --help           this

Secrets are taken from environment variables of their names, else asked for:
`;

const randomKey = () => randomBytes(24).toString("base64url");

/**
 * @typedef {object} Secret
 * @property {string} name
 * @property {string} about
 * @property {string} [byHand] The same for somebody who has to come by a value without this script.
 * @property {string} [question] Without one it is made, and nobody has to know it.
 * @property {boolean} [required]
 * @property {() => string} [make]
 * @property {RegExp} [shape]
 */

/** @type {Secret[]} */
export const SECRETS = [
  {
    name: "ANTHROPIC_API_KEY",
    about: "the key with which Claude is called",
    question: "Anthropic API key:",
    required: true,
    shape: /^\S+$/,
  },
  {
    name: "CLIENT_KEYS",
    about: "who may submit jobs: name:key pairs, comma-separated",
    byHand: "who may submit jobs: name:key pairs, comma-separated, with keys of your own making (openssl rand -hex 24)",
    question: 'Client keys, as name:key, comma-separated (Enter makes one for a client "app"):',
    make: () => `app:${randomKey()}`,
    shape: /^[^:,\s]+:[^,\s]+(,[^:,\s]+:[^,\s]+)*$/,
  },
  {
    name: "ADMIN_KEY",
    about: "the operator's key",
    byHand: "the operator's key, of your own making (openssl rand -hex 24)",
    question: "The operator's key (Enter makes one):",
    make: randomKey,
    shape: /^\S+$/,
  },
  {
    name: "SIGNING_SECRET",
    about: "ties job ids to idempotency keys; made here",
    byHand: "ties job ids to idempotency keys, and signs read tokens: any long random text (openssl rand -hex 32)",
    make: () => randomBytes(32).toString("hex"),
  },
  {
    name: "WEBHOOK_SECRET",
    about: "signs webhooks: whsec_ and base64; two, comma-separated, in a rotation",
    question: "Secret for signing webhooks, whsec_ and base64 (Enter makes one):",
    make: () => `whsec_${randomBytes(32).toString("base64")}`,
    shape: /^(whsec_)?[A-Za-z0-9+/]{22,}={0,2}([\s,]+(whsec_)?[A-Za-z0-9+/]{22,}={0,2})*$/,
  },
  {
    name: "SLACK_WEBHOOK_URL",
    about: "where alerts go; optional",
    question: "Slack webhook URL for alerts (Enter leaves it out):",
    shape: /^https:\/\/\S+$/,
  },
];

/**
 * @param {string[]} args
 * @param {import("./wrangler.mjs").Io} [io]
 * @returns {Promise<number>}
 */
export async function main(args, io = processIo) {
  const say = (line) => void io.output.write(`${line}\n`);
  const options = parse(args);
  if (options.help) {
    io.output.write(`${HELP}${SECRETS.map(({ name, about }) => `  ${name.padEnd(18)} ${about}\n`).join("")}`);
    return 0;
  }
  await checkProject();
  const { unstable_readConfig } = await import("wrangler");
  const config = unstable_readConfig({ config: join(root, "wrangler.toml") });
  const { question, close } = questions(io);
  try {
    const account = await chooseAccount(io, question);
    const { env } = account;
    say(`Account ${account.name}, Worker ${config.name}${options["dry-run"] ? ", dry run: nothing is changed" : ""}`);
    const plan = await look(config, env, options.rotate, say);
    if (options["dry-run"]) return 0;

    const values = await answers(plan.secrets, options, env, question, say);
    for (const queue of plan.queues) await createQueue(queue, env, say);
    for (const title of plan.namespaces) {
      await mustWrangler(["kv", "namespace", "create", title], `The KV namespace ${title} could not be created.`, {
        env,
      });
      say(`KV namespace ${title}: created`);
    }
    await putSecrets(values, env, say);
    say("\nNext: npm run deploy, with one of the client keys in SPILLWAY_CLIENT_KEY for its canary job.");
    if (!io.env.CLOUDFLARE_ACCOUNT_ID) {
      say(`So that the account is not asked for again: CLOUDFLARE_ACCOUNT_ID=${account.id}`);
    }
    return 0;
  } finally {
    close();
  }
}

function parse(args) {
  try {
    const { values } = parseArgs({
      args,
      options: {
        help: { type: "boolean", short: "h" },
        "dry-run": { type: "boolean" },
        generate: { type: "boolean" },
        rotate: { type: "string", multiple: true, default: [] },
      },
    });
    const unknown = values.rotate.filter((name) => !SECRETS.some((secret) => secret.name === name));
    if (unknown.length === 0) return values;
    throw new Error(
      `${unknown.join(", ")} is no secret of this Worker; they are ${SECRETS.map((s) => s.name).join(", ")}`,
    );
  } catch (error) {
    throw new Problem(`${error.message}. See npm run setup:cloudflare -- --help.`);
  }
}

/**
 * What is there and what is missing; says both.
 * @returns {Promise<{ queues: string[], namespaces: string[], secrets: Secret[] }>}
 */
async function look(config, env, rotate, say) {
  const queues = [];
  for (const name of queueNames(config)) {
    const there = await queueExists(name, env);
    if (!there) queues.push(name);
    say(`Queue ${name}: ${there ? "there" : "to be created"}`);
  }

  const known = await namespaces(env);
  const missing = [];
  for (const { binding, id } of config.kv_namespaces) {
    const title = namespaceTitle(config.name, binding);
    const there = Boolean(id) || known.has(title);
    if (!there) missing.push(title);
    say(`KV namespace ${id || title}: ${there ? "there" : "to be created"}`);
  }

  const set = await secretsThere(env);
  const secrets = SECRETS.filter(({ name }) => !set.has(name) || rotate.includes(name));
  for (const { name, required, make } of SECRETS) {
    const state = !set.has(name) ? (required || make ? "to be set" : "not set, optional") : "there";
    say(`Secret ${name}: ${set.has(name) && rotate.includes(name) ? "to be replaced" : state}`);
  }
  return { queues, namespaces: missing, secrets };
}

/** @returns {Promise<Set<string>>} */
async function secretsThere(env) {
  const { status, stdout, output } = await wrangler(["secret", "list", "--format", "json"], { env });
  if (status === 0) return new Set(jsonIn(stdout).map(({ name }) => name));
  // No Worker yet; setting the first secret makes an empty one.
  if (/not found/.test(output)) return new Set();
  throw new Problem(
    "The secrets could not be listed: the login needs the permission Workers Scripts.",
    tail(output, 15),
  );
}

/**
 * A value for each secret that is to be set, from the environment, a person, or chance.
 * @param {Secret[]} secrets
 * @returns {Promise<Record<string, string>>}
 */
async function answers(secrets, { generate }, env, question, say) {
  const values = {};
  for (const { name, question: text, required, make, shape } of secrets) {
    const given = env[name] || (text && !(generate && make) ? await question(text, { secret: true }) : undefined);
    if (given !== undefined && shape && !shape.test(given)) {
      throw new Problem(
        `${name} has not the form it needs (${SECRETS.find((s) => s.name === name).about}); nothing was changed.`,
      );
    }
    const value = given ?? make?.();
    if (value === undefined && required) {
      throw new Problem(`${name} is needed: set it in the environment or answer the question; nothing was changed.`);
    }
    if (value === undefined) continue;
    values[name] = value;
    if (given === undefined && text) say(`${name} was made; it is shown only now: ${value}`);
  }
  return values;
}

async function putSecrets(values, env, say) {
  const names = Object.keys(values);
  if (names.length === 0) return;
  await mustWrangler(["secret", "bulk"], "The secrets could not be set: see wrangler's message above.", {
    input: JSON.stringify(values),
    env,
  });
  for (const name of names) say(`Secret ${name}: set`);
}
