/**
 * A reader of `GET /v1/jobs/{id}/events` for tests: by the rules of server-sent events and nothing more.
 *
 *     const watcher = await watch(spillway, id);
 *     await watcher.until((events) => events.at(-1)?.data.status === "done");
 *     watcher.events // [{ id, event, data, at }], in order
 */
import assert from "node:assert/strict";
import { KEYS, PATIENCE } from "./harness.mjs";

const TERMINAL = ["done", "failed", "cancelled"];

/**
 * @param {{ as?: keyof KEYS | null, lastEventId?: string, token?: string, headers?: Record<string, string>, expect?: number }} [options]
 */
export async function watch(spillway, id, { as = "app", lastEventId, token, headers = {}, expect = 200 } = {}) {
  const abort = new AbortController();
  const query = token === undefined ? "" : `?token=${token}`;
  const response = await fetch(`${spillway.url}/v1/jobs/${id}/events${query}`, {
    headers: {
      ...(as && token === undefined && { authorization: `Bearer ${KEYS[as]}` }),
      ...(lastEventId !== undefined && { "last-event-id": lastEventId }),
      ...headers,
    },
    signal: abort.signal,
  });
  assert.equal(response.status, expect, expect === 200 ? await textOfFailure(response) : undefined);
  return new Watcher(response, abort);
}

const textOfFailure = async (response) => (response.status === 200 ? "" : response.text());

class Watcher {
  events = [];
  comments = 0;
  text = "";
  #looks = new Set();
  #abort;

  constructor(response, abort) {
    this.response = response;
    this.#abort = abort;
    this.ended = this.#read();
  }

  async #read() {
    const decoder = new TextDecoder();
    let rest = "";
    try {
      for await (const chunk of this.response.body ?? []) {
        const text = decoder.decode(chunk, { stream: true });
        this.text += text;
        const parts = (rest + text).split("\n\n");
        rest = parts.pop();
        for (const part of parts) this.#take(part);
        for (const look of this.#looks) look();
      }
    } catch (error) {
      if (error.name !== "AbortError") this.broken = error;
    }
    this.isOver = true;
    for (const look of this.#looks) look();
  }

  #take(part) {
    if (part.startsWith(":")) {
      this.comments += 1;
      return;
    }
    const fields = Object.fromEntries(part.split("\n").map((line) => line.split(/: (.*)/s, 2)));
    if (fields.event === undefined) return;
    this.events.push({ id: fields.id, event: fields.event, data: JSON.parse(fields.data), at: Date.now() });
  }

  /** Resolves with the events as soon as `condition` holds for them; fails if the stream ends before. */
  until(condition) {
    return new Promise((resolve, reject) => {
      const settle = (done, value) => {
        clearTimeout(timer);
        this.#looks.delete(look);
        done(value);
      };
      const look = () => {
        if (condition(this.events)) settle(resolve, this.events);
        else if (this.isOver) settle(reject, new Error(`the stream ended: ${this.text.slice(-2000)}`));
      };
      const timer = setTimeout(() => settle(reject, new Error(`not within ${PATIENCE} ms: ${this.text}`)), PATIENCE);
      this.#looks.add(look);
      look();
    });
  }

  untilOver() {
    return this.until((events) => TERMINAL.includes(events.at(-1)?.data.status));
  }

  untilText(length = 1) {
    return this.until(() => this.draftText().length >= length);
  }

  /** The text of a draft, or of all of them, as its reader would put it together. */
  draftText(draft) {
    const texts = this.events.filter(({ event, data }) => event === "text" && (draft ?? data.draft) === data.draft);
    return texts.map(({ data }) => data.text).join("");
  }

  statuses() {
    return this.events.filter(({ event }) => event === "status").map(({ data }) => data.status);
  }

  stop() {
    this.#abort.abort();
  }
}
