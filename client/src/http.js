/** Requests and their answers: one try, or as many as make sense. */
import { ConnectionError, errorOf, isTransient, SpillwayError, strangeAnswer } from "./errors.js";
import { abortable, backoff, leash, sleep } from "./time.js";

/** How often an ordinary request is sent again. */
const RETRIES = 4;

/**
 * @typedef {object} Sending
 * @property {string} [method]
 * @property {string} [credential] A key or a read token.
 * @property {Record<string, string | undefined>} [headers]
 * @property {string} [body] JSON.
 * @property {AbortSignal} [signal]
 * @property {number} [timeout]
 */

export class Http {
  #baseUrl;
  #fetch;
  #locale;

  constructor({ baseUrl, fetch, locale, timing }) {
    this.#baseUrl = baseUrl.replace(/\/+$/, "");
    // Called as a method of something else than its global, a browser's fetch refuses to work.
    this.#fetch = fetch ? (url, init) => fetch(url, init) : (url, init) => globalThis.fetch(url, init);
    this.#locale = locale;
    this.timing = timing;
    /**
     * Whether bodies can be read while they arrive. React Native's cannot: there, even `fetch` answers when all of them is
     * there, which for a stream of events is minutes later. What was passed in may be better than what is global.
     */
    this.mayStream = !!fetch || (typeof Response === "function" && "body" in Response.prototype);
  }

  /**
   * The answer to a request that may be repeated, which all of Spillway's may: a submission has its key, and the rest says
   * what shall be and not what shall be done. Repeated until it is an answer, or an error that would come again, or one that
   * asks for more patience than a caller has who was promised an answer and not a wait.
   *
   * @param {string} path
   * @param {Sending} sending
   */
  async request(path, sending) {
    for (let failures = 1; ; failures += 1) {
      try {
        return await this.once(path, sending);
      } catch (error) {
        if (failures > RETRIES || !this.#isWorthWaiting(error)) throw error;
        await sleep(this.pause(error, failures), sending.signal);
      }
    }
  }

  /**
   * One try, read to its end.
   *
   * @param {string} path
   * @param {Sending} sending
   * @returns {Promise<{ status: number, headers: Headers, body?: any }>} Without a body if it is a 204 or a 304.
   */
  async once(path, { timeout = this.timing.request, signal, ...sending }) {
    const what = this.what(path, sending);
    const { signal: own, within, release } = leash(signal);
    within(timeout, () => new ConnectionError(`${what}: no answer within ${timeout} ms. ${CHECK}`));
    try {
      const response = await this.open(path, { ...sending, signal: own });
      const { status, headers } = response;
      if (status === 204 || status === 304) return { status, headers };
      const text = await whole(response, what, own);
      if (!response.ok) throw errorOf({ status, headers, text }, what);
      try {
        return { status, headers, body: JSON.parse(text) };
      } catch {
        throw strangeAnswer({ status, headers }, what);
      }
    } finally {
      release();
    }
  }

  /**
   * One try, of which only the headers are there.
   *
   * @param {string} path
   * @param {Sending} sending
   * @returns {Promise<Response>}
   */
  async open(path, { method = "GET", credential, headers, body, signal }) {
    const all = {
      accept: "application/json",
      authorization: credential === undefined ? undefined : `Bearer ${credential}`,
      "accept-language": this.#locale,
      "content-type": body === undefined ? undefined : "application/json",
      ...headers,
    };
    const given = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
    const url = this.#baseUrl + path;
    checkHeaders(given);
    try {
      return await abortable(this.#fetch(url, { method, headers: given, body, signal }), signal);
    } catch (error) {
      throw failure(error, this.what(path, { method }), signal);
    }
  }

  /** A request's name in messages. */
  what(path, { method = "GET" } = {}) {
    return `${method} ${this.#baseUrl}${path}`;
  }

  /** How long to wait after a failure: never less than the server asks for, and not all clients at the same moment. */
  pause(error, failures) {
    const asked = (error.retryAfterSeconds ?? 0) * 1000;
    return Math.max(backoff(failures, this.timing), asked + Math.random() * Math.min(asked / 4, 1000));
  }

  #isWorthWaiting(error) {
    return isTransient(error) && (error.retryAfterSeconds ?? 0) * 1000 <= this.timing.longestRetry;
  }
}

/** What no header can hold a fetch refuses in the words that it has for a broken network, which would be tried again. */
function checkHeaders(headers) {
  for (const [name, value] of Object.entries(headers)) {
    if (/^[\t\x20-\x7e\x80-\xff]*$/.test(value)) continue;
    throw new SpillwayError(`${name} cannot be sent: it has characters that no HTTP header can hold.`);
  }
}

/** The body, read to its end. */
export async function whole(response, what, signal) {
  try {
    return await abortable(response.text(), signal);
  } catch (error) {
    throw failure(error, what, signal);
  }
}

/** What a promise of fetch's was rejected with, in our words; an abort stays what it is. */
export function failure(error, what, signal) {
  if (signal?.aborted) return error;
  // "fetch failed" is what Node says of everything; why is in the cause.
  const why = [error?.message, error?.cause?.message].filter(Boolean).join(": ") || String(error);
  return new ConnectionError(`${what}: no answer, or not all of it (${why}). ${CHECK}`, { cause: error });
}

const CHECK =
  "Check baseUrl and the network. Trying again is safe, with the same idempotency key if it is a submission.";
