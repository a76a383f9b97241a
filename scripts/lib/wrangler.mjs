/**
 * wrangler as a program that is asked things: its answers as data, its refusals as sentences.
 *
 * It is run without a terminal, so that it never stops at a question of its own; what it would have asked, the account,
 * is settled here first. SPILLWAY_WRANGLER names a stand-in for tests.
 */
import { spawn } from "node:child_process";
import { nodeBinary } from "./node.mjs";
import { bin, root } from "./paths.mjs";
import { Problem, tail } from "./run.mjs";

/** @typedef {{ status: number, stdout: string, output: string }} Answer */

/**
 * What a script talks to; a test gives it its own.
 * @typedef {object} Io
 * @property {Record<string, string | undefined>} env
 * @property {NodeJS.ReadableStream} input
 * @property {NodeJS.WritableStream} output
 */

/** @type {Io} */
export const processIo = { env: process.env, input: process.stdin, output: process.stdout };

/**
 * @param {string[]} args
 * @param {object} options
 * @param {Record<string, string | undefined>} options.env The whole environment.
 * @param {string} [options.input]
 * @param {(text: string) => void} [options.show] Gets what it says as it comes.
 * @returns {Promise<Answer>}
 */
export function wrangler(args, { env, input = "", show }) {
  const program = env.SPILLWAY_WRANGLER || bin("wrangler");
  return new Promise((resolve, reject) => {
    const child = spawn(nodeBinary(), [program, ...args], {
      cwd: root,
      env: { ...env, WRANGLER_SEND_METRICS: "false", WRANGLER_HIDE_BANNER: "true", NO_COLOR: "1" },
      stdio: ["pipe", "pipe", "pipe"],
    });
    let stdout = "";
    let output = "";
    const take = (chunk, out) => {
      output += chunk;
      if (out) stdout += chunk;
      show?.(chunk);
    };
    child.stdout.setEncoding("utf8").on("data", (chunk) => take(chunk, true));
    child.stderr.setEncoding("utf8").on("data", (chunk) => take(chunk, false));
    child.stdin.on("error", () => {}).end(input);
    child.on("error", reject);
    child.on("close", (code) => resolve({ status: code ?? 1, stdout, output: plain(output) }));
  });
}

/** Without colours, which it prints even to a pipe. @param {string} text */
const plain = (text) => text.replaceAll(/\x1b\[[0-9;]*m/g, "").trim();

/**
 * Like `wrangler`, but a refusal is a `Problem`.
 * @param {string[]} args
 * @param {string} remedy
 * @param {Parameters<typeof wrangler>[1]} options
 */
export async function mustWrangler(args, remedy, options) {
  const answer = await wrangler(args, options);
  if (answer.status !== 0) throw new Problem(remedy, tail(answer.output, 15));
  return answer;
}

/** The JSON in an answer: wrangler may say something else first. @param {string} text */
export function jsonIn(text) {
  const start = text.search(/^[[{]/m);
  try {
    return JSON.parse(text.slice(start));
  } catch {
    throw new Problem("wrangler's answer was not understood: run npm ci, so that its version is the locked one.", text);
  }
}

/**
 * Which account everything is for.
 * @param {Io} io
 * @param {(question: string) => Promise<string | undefined>} question
 * @returns {Promise<{ name: string, id: string, env: Record<string, string | undefined> }>} With the environment in
 *   which wrangler uses that account.
 */
export async function chooseAccount({ env, output: out }, question) {
  const { status, stdout, output } = await wrangler(["whoami", "--json"], { env });
  const chosen = ({ name, id }) => ({ name, id, env: { ...env, CLOUDFLARE_ACCOUNT_ID: id } });
  if (status !== 0) {
    const detail = /"loggedIn":\s*false/.test(stdout) ? "" : tail(output, 15);
    throw new Problem("wrangler is not logged in: run npx wrangler login, or set CLOUDFLARE_API_TOKEN.", detail);
  }
  const { accounts } = jsonIn(stdout);
  const wanted = env.CLOUDFLARE_ACCOUNT_ID;
  if (wanted) {
    const account = accounts.find(({ id }) => id === wanted);
    if (!account) throw new Problem(`CLOUDFLARE_ACCOUNT_ID is ${wanted}, which is none of this login's accounts.`);
    return chosen(account);
  }
  if (accounts.length === 1) return chosen(accounts[0]);
  const list = accounts.map(({ name, id }, i) => `  ${i + 1}  ${name} (${id})`).join("\n");
  out.write(`This login has ${accounts.length} accounts:\n${list}\n`);
  const account = accounts[Number(await question("Which one (its number)?")) - 1];
  if (!account) throw new Problem("No account was chosen: set CLOUDFLARE_ACCOUNT_ID to one of the ids above.");
  return chosen(account);
}

/**
 * The KV namespaces of the account by title.
 * @param {Record<string, string | undefined>} env
 * @returns {Promise<Map<string, string>>}
 */
export async function namespaces(env) {
  const { stdout } = await mustWrangler(
    ["kv", "namespace", "list"],
    "The KV namespaces could not be listed: the login needs the permission Workers KV Storage.",
    { env },
  );
  return new Map(jsonIn(stdout).map(({ title, id }) => [title, id]));
}

/**
 * The title of a binding's KV namespace: the one that wrangler would choose, so that a namespace it made and one that
 * we made are the same.
 * @param {string} worker
 * @param {string} binding
 */
export const namespaceTitle = (worker, binding) => `${worker}-${binding.toLowerCase().replaceAll("_", "-")}`;
