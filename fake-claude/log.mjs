/**
 * Every call that came, in order, from the moment its headers were read.
 *
 * This log is what tests count in ("one call", "one probe"), so a call is in it before anything is answered, with
 * `outcome: null` while it lasts, and its outcome is set before the last byte of the answer goes out: whoever has read
 * an answer finds it logged.
 */
import { createHash } from "node:crypto";

const LARGEST_KEPT_BODY = 64 * 1024;
// Bodies kept over all; the oldest are dropped first.
const ALL_KEPT_BODIES = 64 * 1024 * 1024;
const PROMPT_SHOWN = 200;

/**
 * @typedef {object} Outcome
 * @property {number|null} status      HTTP status, null if no headers were sent
 * @property {string|null} error_type  `error.type` of an error answer or of an error in the stream
 * @property {string} by               what decided: answer, rule, validation, authentication, capacity, rate_limit, size, route, control
 * @property {string|null} fault       what was done to the connection or the stream, if anything
 * @property {number} events           server-sent events written
 * @property {number} deltas           those of them with content
 * @property {boolean} completed       a whole, successful answer was written
 * @property {boolean} client_closed   the client left first
 * @property {string|null} message_id
 * @property {string|null} stop_reason
 */

/** The list of calls. */
export class CallLog {
  #entries = [];
  #withBody = [];
  #keptBytes = 0;
  #n = 0;

  /** A call has begun. */
  open({ method, path, headers, now, sinceScript }) {
    this.#n += 1;
    const entry = {
      n: this.#n,
      call: null,
      model_call: null,
      prompt_call: null,
      method,
      path,
      model: null,
      key: headers["x-api-key"] ?? null,
      stream: false,
      marker: null,
      prompt: null,
      started_at: now,
      since_script_ms: sinceScript,
      ended_at: null,
      request_id: null,
      rule: null,
      headers,
      body_bytes: null,
      body_sha256: null,
      outcome: null,
    };
    this.#entries.push(entry);
    return entry;
  }

  /** The body has arrived. */
  keepBody(entry, bytes, size, sha256) {
    entry.body_bytes = size;
    entry.body_sha256 = sha256;
    if (bytes === null || bytes.length > LARGEST_KEPT_BODY) return;
    entry.body = bytes.toString("utf8");
    this.#withBody.push(entry);
    this.#keptBytes += bytes.length;
    while (this.#keptBytes > ALL_KEPT_BODIES) {
      const oldest = this.#withBody.shift();
      this.#keptBytes -= oldest.body_bytes;
      delete oldest.body;
    }
  }

  /** The prompt has been read. */
  describe(entry, { model, stream, marker, lastUserText, numbers }) {
    Object.assign(entry, { model, stream, marker, prompt: lastUserText.slice(0, PROMPT_SHOWN), ...numbers });
  }

  /** The call is over; only the first outcome counts. */
  close(entry, outcome, now) {
    if (entry.outcome) return false;
    entry.ended_at = now;
    entry.outcome = {
      status: null,
      error_type: null,
      by: "answer",
      fault: null,
      events: 0,
      deltas: 0,
      completed: false,
      client_closed: false,
      message_id: null,
      stop_reason: null,
      ...outcome,
    };
    return true;
  }

  /** Copies, so that what a test holds does not change under it. */
  list({ since = 0, marker, model, open, bodies = true } = {}) {
    return this.#entries
      .filter((entry) => entry.n > since)
      .filter((entry) => marker === undefined || entry.marker === marker)
      .filter((entry) => model === undefined || entry.model === model)
      .filter((entry) => open === undefined || (entry.outcome === null) === open)
      .map((entry) => {
        const { body, outcome, ...rest } = entry;
        const copy = { ...rest, outcome: outcome && { ...outcome } };
        return bodies && body !== undefined ? { ...copy, body } : copy;
      });
  }

  get size() {
    return this.#entries.length;
  }

  get inFlight() {
    return this.#entries.filter((entry) => entry.outcome === null).length;
  }

  /** Forgets everything and counts from one again; calls in progress go on unlogged. */
  clear() {
    this.#entries = [];
    this.#withBody = [];
    this.#keptBytes = 0;
    this.#n = 0;
  }
}

/** A hash that takes the body as it arrives. */
export const bodyHash = () => createHash("sha256");
