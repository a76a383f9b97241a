/**
 * One small job through the deployed Worker: submitted, queued, called at Claude, read back. Each place at which it can
 * stop has its own sentence.
 */
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { duration, Problem } from "./run.mjs";

const REQUEST = {
  kind: "tagging",
  priority: "high",
  request: { max_tokens: 16, messages: [{ role: "user", content: "Answer with the one word: ready" }] },
};

/** The queue's that it goes through, by its priority. */
export const CANARY_BINDING = "QUEUE_HIGH";

/**
 * @typedef {object} Patience
 * @property {number} there How many seconds the Worker may take to be there: a new workers.dev name is not known
 *   everywhere at once.
 * @property {number} answer How many seconds the job may take.
 * @property {number} pause Milliseconds between two tries.
 */

/** @type {Patience} */
const PATIENCE = { there: 60, answer: 120, pause: 1000 };

/**
 * @param {string} url
 * @param {string} key
 * @param {string} queue The name that its queue has.
 * @param {(line: string) => void} say
 * @param {Patience} [patience]
 * @returns {Promise<void>}
 */
export async function canary(url, key, queue, say, patience = PATIENCE) {
  const seconds = patience.answer;
  const start = Date.now();
  const headers = { authorization: `Bearer ${key}` };
  const receipt = await submit(url, headers, patience);
  say(`Canary job ${receipt.id}: accepted in ${duration(Date.now() - start)}`);

  const statusUrl = new URL(receipt.status_url ?? `/v1/jobs/${receipt.id}`, url);
  let job = receipt;
  let seen;
  while (Date.now() - start < seconds * 1000) {
    const left = Math.ceil((start + seconds * 1000 - Date.now()) / 1000);
    job = await status(statusUrl, headers, Math.max(1, Math.min(20, left)), patience);
    if (job.status !== seen) say(`Canary job ${receipt.id}: ${job.status}${waitingFor(job)}`);
    seen = job.status;
    if (["done", "failed", "cancelled", "stalled"].includes(job.status)) break;
    await sleep(patience.pause / 5);
  }
  if (job.status === "done") {
    say(`The Worker works: ${job.model_used ?? "Claude"} answered in ${duration(Date.now() - start)}.`);
    return;
  }
  throw new Problem(diagnosis(job, statusUrl, queue, seconds));
}

/** @returns {Promise<{ id: string, status: string, status_url?: string }>} */
async function submit(url, headers, { there, pause }) {
  // With a key of its own, so that a submission whose answer was lost makes no second job.
  const init = {
    method: "POST",
    headers: { ...headers, "content-type": "application/json", "idempotency-key": `canary-${randomUUID()}` },
    body: JSON.stringify(REQUEST),
  };
  const end = Date.now() + there * 1000;
  for (;;) {
    const { response, body, failure } = await request(new URL("/v1/jobs", url), init);
    if (response?.status === 202) return body;
    const message = body?.error?.message;
    if (response?.status === 401 || response?.status === 403) {
      throw new Problem(
        "The Worker is deployed, but refuses this client key: SPILLWAY_CLIENT_KEY has to be the key of one of the name:key pairs in the secret CLIENT_KEYS (npm run setup:cloudflare -- --rotate CLIENT_KEYS sets new ones).",
      );
    }
    // An error of our own Worker has its shape; anything else may be a Worker that is not there yet.
    if (message && response.status < 500)
      throw new Problem(`The Worker refuses the canary job (${response.status}): ${message}`);
    if (Date.now() > end) {
      const why = failure ?? `${response.status}${message ? `: ${message}` : ""}`;
      throw new Problem(
        message
          ? `The Worker is deployed, but cannot take jobs (${why}); ${new URL("/healthz", url)} says what is wrong with its configuration.`
          : `The Worker is deployed, but ${url} does not answer as it should (${why}): look at npx wrangler tail.`,
      );
    }
    await sleep(pause);
  }
}

async function status(url, headers, wait, { pause }) {
  const waiting = new URL(url);
  waiting.searchParams.set("wait", String(wait));
  for (let attempt = 1; ; attempt++) {
    const { response, body, failure } = await request(waiting, { headers });
    if (response?.status === 200 && body) return body;
    if (attempt === 5) {
      const why = failure ?? `${response.status} ${body?.error?.message ?? ""}`.trim();
      throw new Problem(
        `The canary job was accepted, but its status cannot be read (${why}): look at npx wrangler tail.`,
      );
    }
    await sleep(pause);
  }
}

async function request(url, init) {
  try {
    const response = await fetch(url, { ...init, signal: AbortSignal.timeout(45_000) });
    const text = await response.text();
    try {
      return { response, body: JSON.parse(text) };
    } catch {
      return { response };
    }
  } catch (error) {
    return { failure: error.cause?.message || error.message };
  }
}

const waitingFor = ({ waiting }) => (waiting?.reason ? ` (${waiting.reason})` : "");

/**
 * @param {{ id: string, status: string, reason?: string, error?: unknown, waiting?: { reason?: string } }} job
 * @param {URL} url
 * @param {string} queue
 * @param {number} seconds
 */
function diagnosis(job, url, queue, seconds) {
  const reason = job.reason ? ` (${job.reason})` : "";
  const said = typeof job.error === "string" ? job.error : job.error?.message;
  switch (job.status) {
    case "received":
      return `The canary job was accepted, but no consumer took it from its queue in ${seconds} s: npx wrangler queues info ${queue} has to name this Worker as the consumer, and delivery must not be paused; then run npm run deploy again.`;
    case "failed":
      return /auth|permission|credential|key/i.test(`${job.reason} ${said}`)
        ? `The consumer works, but Claude refuses our credentials${reason}: set the key with npm run setup:cloudflare -- --rotate ANTHROPIC_API_KEY.`
        : `The consumer works, but the canary job failed${reason}${said ? `: ${said}` : ""}.`;
    case "cancelled":
      return "Somebody cancelled the canary job: run npm run deploy again.";
    default:
      return `The consumer works, but the canary job has no answer after ${seconds} s: it is ${job.status}${waitingFor(job)}. It goes on by itself; its state is at ${url}.`;
  }
}
