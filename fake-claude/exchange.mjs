/**
 * One call while it lasts: its response, its entry in the log, and the client that may leave at any moment.
 *
 * Every wait ends early when the client has gone, and whatever happens the call gets exactly one outcome.
 */
import { setImmediate as nextTurn } from "node:timers/promises";

// How many events are written before other calls get a turn.
const EVENTS_PER_TURN = 64;

/** A call in progress. */
export class Exchange {
  events = 0;
  deltas = 0;
  by = "answer";
  fault = null;
  #gone = new AbortController();
  #log;
  #now;
  #onEnd = [];

  constructor({ request, response, entry, log, now }) {
    this.request = request;
    this.response = response;
    this.entry = entry;
    this.#log = log;
    this.#now = now;
    response.on("error", () => {});
    response.on("close", () => {
      this.#gone.abort();
      this.end({ client_closed: true });
      for (const action of this.#onEnd) action();
    });
  }

  /** Runs when the connection is done with this call, however it ended. */
  whenOver(action) {
    this.#onEnd.push(action);
  }

  get gone() {
    return this.#gone.signal.aborted;
  }

  /** Settles the outcome; later ones are ignored. */
  end(outcome) {
    const { response, events, deltas, by, fault } = this;
    const status = response.headersSent ? response.statusCode : null;
    this.#log.close(this.entry, { status, events, deltas, by, fault, ...outcome }, this.#now());
  }

  /** Waits; false if the client left meanwhile. */
  async wait(ms) {
    if (this.gone) return false;
    if (!(ms > 0)) return true;
    await new Promise((resolve) => {
      const timer = setTimeout(done, ms);
      const { signal } = this.#gone;
      function done() {
        clearTimeout(timer);
        signal.removeEventListener("abort", done);
        resolve();
      }
      signal.addEventListener("abort", done);
    });
    return !this.gone;
  }

  /** Waits until the client has left. */
  async untilGone() {
    if (this.gone) return;
    await new Promise((resolve) => this.#gone.signal.addEventListener("abort", resolve, { once: true }));
  }

  /** A whole answer at once. */
  send(status, headers, body, outcome) {
    if (this.gone) return;
    this.response.writeHead(status, withoutNulls({ ...headers, "content-length": Buffer.byteLength(body) }));
    this.end({ status, ...outcome });
    this.response.end(body);
  }

  /** Headers now, body later. */
  begin(status, headers) {
    if (this.gone) return;
    this.response.writeHead(status, withoutNulls(headers));
    this.response.flushHeaders();
  }

  /** Part of a body, in pieces of at most so many bytes if asked; waits while the client reads slowly. False if it left. */
  async write(text, splitBytes = Infinity) {
    if (this.gone) return false;
    const bytes = Buffer.from(text);
    for (let at = 0; at < bytes.length && !this.gone; at += splitBytes) {
      if (!this.response.write(bytes.subarray(at, at + Math.min(splitBytes, bytes.length)))) await this.#drained();
      if (splitBytes < bytes.length) await nextTurn();
    }
    return !this.gone;
  }

  /** One server-sent event. */
  async writeEvent(encoded, { delta = false, splitBytes } = {}) {
    this.events += 1;
    if (delta) this.deltas += 1;
    const written = await this.write(encoded, splitBytes);
    if (this.events % EVENTS_PER_TURN === 0) await nextTurn();
    return written;
  }

  /** The end of a body, properly. */
  finish(outcome) {
    this.end(outcome);
    this.response.end();
  }

  /** The connection is broken: with a reset, or closed without another word. */
  break(how, outcome = {}) {
    const { socket } = this.request;
    this.end(outcome);
    if (how === "reset") socket.resetAndDestroy();
    else socket.destroy();
  }

  #drained() {
    const { response } = this;
    return new Promise((resolve) => {
      const { signal } = this.#gone;
      function done() {
        response.off("drain", done);
        signal.removeEventListener("abort", done);
        resolve();
      }
      response.on("drain", done);
      signal.addEventListener("abort", done);
    });
  }
}

function withoutNulls(headers) {
  return Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== null && value !== undefined));
}
