/** A deployment of Spillway, as an app speaks to it. */
import { SpillwayError } from "./errors.js";
import { Http } from "./http.js";
import { TIMING } from "./time.js";
import { uniqueKey } from "./unique-key.js";
import { watch } from "./watch.js";

export class Spillway {
  #http;
  #key;
  #readToken;

  constructor(options) {
    const { baseUrl, key, readToken, fetch, locale, timing } = options ?? {};
    if (!/^https?:\/\/[^/]/i.test(String(baseUrl ?? ""))) {
      const given = baseUrl === undefined || baseUrl === null ? "missing" : `${JSON.stringify(String(baseUrl))}`;
      throw new SpillwayError(`baseUrl is ${given}: give the address of your Spillway, which begins with https://.`);
    }
    this.#http = new Http({ baseUrl: String(baseUrl), fetch, locale, timing: { ...TIMING, ...timing } });
    this.#key = key;
    this.#readToken = readToken;
  }

  async submit(job, { idempotencyKey = uniqueKey(), signal } = {}) {
    const sending = { method: "POST", headers: { "idempotency-key": idempotencyKey }, body: JSON.stringify(job) };
    try {
      return await this.#request("/v1/jobs", { ...sending, signal });
    } catch (error) {
      // Whether the job exists is open, and only with this key can it be asked for without making another.
      if (error instanceof SpillwayError) error.idempotencyKey = idempotencyKey;
      throw error;
    }
  }

  async wait(job, { readToken, ...options } = {}) {
    const { timeout, onProgress, onStalled } = options;
    if (timeout !== undefined && !(timeout >= 0)) throw new SpillwayError("timeout must be a number of milliseconds.");
    for (const [name, listener] of Object.entries({ onProgress, onStalled })) {
      if (listener !== undefined && typeof listener !== "function")
        throw new SpillwayError(`${name} must be a function.`);
    }
    return watch(this.#http, idOf(job), { ...options, credential: this.#reading(job, readToken) });
  }

  async status(job, { readToken, signal } = {}) {
    return this.#request(pathOf(job), { credential: this.#reading(job, readToken), signal });
  }

  async acceptDeferral(job, { signal } = {}) {
    return this.#answer(job, true, signal);
  }

  async declineDeferral(job, { signal } = {}) {
    return this.#answer(job, false, signal);
  }

  async regenerate(job, { signal } = {}) {
    return this.#request(`${pathOf(job)}/regenerate`, { method: "POST", signal });
  }

  async cancel(job, { signal } = {}) {
    return this.#request(pathOf(job), { method: "DELETE", signal });
  }

  async list({ status, limit, cursor, signal } = {}) {
    const query = Object.entries({ status, limit, cursor })
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
      .join("&");
    return this.#request(query === "" ? "/v1/jobs" : `/v1/jobs?${query}`, { signal });
  }

  async *jobs({ status, limit, signal } = {}) {
    let cursor;
    do {
      const page = await this.list({ status, limit, cursor, signal });
      yield* page.jobs;
      cursor = page.next_cursor;
    } while (cursor !== undefined);
  }

  /** With what a job is read: a token of its own is enough, and a key is better, because it does not expire. */
  #reading(job, readToken) {
    return readToken ?? this.#key ?? job?.read_token ?? this.#readToken;
  }

  #answer(job, accept, signal) {
    return this.#request(`${pathOf(job)}/deferral`, { method: "POST", body: JSON.stringify({ accept }), signal });
  }

  async #request(path, sending) {
    const { body } = await this.#http.request(path, { credential: this.#key ?? this.#readToken, ...sending });
    return body;
  }
}

/** Paths are made from the id, though receipts have addresses: a key goes to baseUrl, whatever a receipt may say. */
const pathOf = (job) => `/v1/jobs/${encodeURIComponent(idOf(job))}`;

/** Of a receipt, a status, or the id itself. */
function idOf(job) {
  const id = typeof job === "string" ? job : job?.id;
  if (typeof id === "string" && id !== "") return id;
  throw new SpillwayError("A job is named by its id: give that, or the receipt or status that it is in.");
}
