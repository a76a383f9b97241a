/**
 * Waits for a job: by its events, and where those cannot be had by asking again and again.
 *
 * Events are better: there is text in them, and nothing to ask for. They cannot be had where bodies do not stream, where a
 * proxy holds them back, and of a deployment that has no such route. Asking works everywhere, so every doubt is decided for
 * it: who waits needs the answer more than the text. The one thing that does not count as a doubt is a network that comes and
 * goes once events have been heard: they are taken up again where they broke off, however long that takes. While that brings
 * nothing, the job is asked for now and then between two connections: something may cut each of them just before the last event.
 */
import { ConnectionError, errorOf, isTransient, JobCancelledError, JobFailedError, TimeoutError } from "./errors.js";
import { EventParser } from "./event-parser.js";
import { failure, whole } from "./http.js";
import { Progress } from "./progress.js";
import { abortable, backoff, leash, sleep } from "./time.js";

/**
 * @param {import("./http.js").Http} http
 * @param {string} id
 * @param {object} options
 * @param {string} [options.credential]
 * @param {AbortSignal} [options.signal]
 * @param {number} [options.timeout] In milliseconds.
 * @param {(progress: object) => void} [options.onProgress]
 * @param {(offer: object, job: object) => void} [options.onStalled]
 * @returns {Promise<object>} The status of the job, which is done.
 */
export async function watch(http, id, { credential, signal, timeout, ...listeners }) {
  const { signal: own, within, abort, release } = leash(signal);
  const progress = new Progress(listeners, abort);
  if (timeout !== undefined) within(timeout, () => new TimeoutError(id, timeout, progress.job));
  const line = { http, path: `/v1/jobs/${encodeURIComponent(id)}`, credential, signal: own, progress };
  try {
    await untilOver(line);
  } finally {
    release();
  }
  if (progress.job.status === "failed") throw new JobFailedError(progress.job);
  if (progress.job.status === "cancelled") throw new JobCancelledError(progress.job);
  return progress.job;
}

async function untilOver(line) {
  const { http, progress, signal } = line;
  let source = http.mayStream ? new Events(line) : new Polling(line);
  let failures = 0;
  while (!progress.isOver) {
    try {
      await source.round();
      failures = 0;
    } catch (error) {
      if (error instanceof NoEvents) {
        source = new Polling(line);
        continue;
      }
      // Who has heard nothing yet may have the wrong address, and is told; who has, waits for the network.
      if (!isTransient(error) || (!progress.job && failures === RETRIES)) throw error;
      failures = source.hasMoved ? 1 : failures + 1;
      progress.connected = false;
      if (source.isDoubtful) source = new Polling(line);
      else await sleep(http.pause(error, failures), signal);
    }
    if (source.wantsLook) await look(line);
  }
}

/** Asks once how the job is; what a network prevents, the next time may find out. */
async function look(line) {
  try {
    await new Polling(line).round();
  } catch (error) {
    if (!isTransient(error)) throw error;
  }
}

/** As often as any other request. */
const RETRIES = 4;

/** Events cannot be had here. */
class NoEvents extends Error {}

/** One connection after the other, each from where the one before ended. */
class Events {
  #line;
  #lastId;
  #retry;
  /** Connections in a row that brought nothing: that failed, and that were made and stayed silent. */
  #vain = 0;
  #silent = 0;
  /** Connections in a row that began as they should and brought no event, however they ended. */
  #empty = 0;
  #hasBegun = false;
  /** Whether the latest connection brought an event. */
  hasMoved = false;

  constructor(line) {
    this.#line = line;
  }

  /** Whether asking would do better. At first the least sign is enough; later it has to be one that no bad network gives. */
  get isDoubtful() {
    if (this.#lastId === undefined) return this.#silent >= 1 || this.#vain >= 2;
    return this.#silent >= 3;
  }

  get wantsLook() {
    return this.#lastId !== undefined && this.#hasBegun && !this.hasMoved && this.#empty % 3 === 0;
  }

  /** One connection, from its beginning to its end. */
  async round() {
    const { http, path, signal, progress } = this.#line;
    const what = http.what(`${path}/events`);
    const { signal: own, within, release } = leash(signal);
    this.hasMoved = this.#hasBegun = false;
    try {
      await this.#read(what, own, within);
    } catch (error) {
      this.#vain = this.hasMoved ? 0 : this.#vain + 1;
      this.#silent = error instanceof Silence ? this.#silent + 1 : 0;
      throw error;
    } finally {
      if (this.hasMoved) this.#empty = 0;
      else if (this.#hasBegun) this.#empty += 1;
      release();
    }
    if (progress.isOver) return;
    // The server ends every connection after some minutes, and all of a deployment's at once when it is replaced.
    await sleep(backoff(1, { ...http.timing, retry: this.#retry ?? http.timing.retry }), signal);
  }

  async #read(what, signal, within) {
    const { http, progress } = this.#line;
    const { firstByte, silence } = http.timing;
    within(firstByte, () => new Silence(`${what}: silent for ${firstByte} ms from the beginning.`));
    const reader = (await this.#open(what, signal)).getReader();
    const decoder = new TextDecoder();
    const parser = new EventParser();
    for (;;) {
      const { done, value } = await piece(reader, what, signal);
      if (done) break;
      this.#hasBegun = true;
      within(silence, () => new ConnectionError(`${what}: silent for ${silence} ms, without a heartbeat.`));
      progress.connected = true;
      for (const event of parser.push(decoder.decode(value, { stream: true }))) {
        this.#take(event);
        this.hasMoved = true;
        if (progress.isOver) return;
      }
      this.#retry = parser.retry ?? this.#retry;
    }
    if (!this.hasMoved && this.#lastId === undefined) throw new ConnectionError(`${what}: ended before it had begun.`);
    this.#vain = this.#silent = 0;
  }

  /** @returns {Promise<ReadableStream<Uint8Array>>} */
  async #open(what, signal) {
    const { http, path, credential } = this.#line;
    const headers = { accept: "text/event-stream", "last-event-id": this.#lastId };
    const response = await http.open(`${path}/events`, { credential, headers, signal });
    const { status, body } = response;
    if (status === 401 || status === 403 || status === 429 || (status >= 500 && status !== 501)) {
      throw errorOf({ status, headers: response.headers, text: await whole(response, what, signal) }, what);
    }
    // A 404 is the job's or the route's, and a 204 says that nothing is left to be told: asking finds out.
    const isStream = /^text\/event-stream\b/i.test(response.headers.get("content-type") ?? "");
    if (status !== 200 || !isStream || typeof body?.getReader !== "function") throw new NoEvents(what);
    return body;
  }

  #take({ id, name, data }) {
    const { progress } = this.#line;
    let known;
    try {
      known = JSON.parse(data);
    } catch {
      throw new NoEvents(`what came as ${name} is not JSON`);
    }
    // Before anybody is told, so that what a listener throws does not make it come again.
    this.#lastId = id ?? this.#lastId;
    if (name === "status") progress.status(known);
    else if (name === "text") progress.append(known);
    else if (name === "draft_discarded") progress.discard(known);
  }
}

/** Nothing came, though the server speaks first: held back by something between, or lost. */
class Silence extends ConnectionError {}

async function piece(reader, what, signal) {
  try {
    return await abortable(reader.read(), signal);
  } catch (error) {
    throw failure(error, what, signal);
  }
}

/** One question after the other, each held by the server until there is news. */
class Polling {
  #line;
  #etag;
  /** Whether the first answer is there: it is asked for without a wait, so that there is something to show. */
  #asked = false;
  hasMoved = false;
  isDoubtful = false;
  wantsLook = false;

  constructor(line) {
    this.#line = line;
  }

  async round() {
    const { http, path, credential, signal, progress } = this.#line;
    const hold = this.#asked ? Math.ceil(http.timing.hold / 1000) : 0;
    const known = this.#etag;
    const since = Date.now();
    const { status, headers, body } = await http.once(`${path}?wait=${hold}`, {
      credential,
      headers: { "if-none-match": known },
      timeout: hold * 1000 + http.timing.request,
      signal,
    });
    progress.connected = true;
    this.#asked = true;
    if (status === 200) {
      // A page of another origin is not shown the tag, and then the answer is held until the job is over or stalled.
      this.#etag = headers.get("etag") ?? undefined;
      progress.polled(body);
    }
    const wasHeld = hold === 0 || Date.now() - since >= AT_ONCE;
    if (progress.isOver || wasHeld || this.#etag !== known) return;
    // No news, and at once: whatever it is that does not hold answers, it is not asked without a pause.
    const { retry, longestRetry } = http.timing;
    const asked = Number(headers.get("retry-after")) * 1000 || retry;
    await sleep(Math.min(asked, longestRetry) + Math.random() * retry, signal);
  }
}

/** An answer that is here sooner was not held. */
const AT_ONCE = 1000;
