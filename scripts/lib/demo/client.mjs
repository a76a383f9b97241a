/**
 * An app's side of the HTTP contract: submit a job, then follow it with one held request after the other.
 *
 * `?wait=` with the last ETag answers when the job has changed, so that nothing is missed and nothing is asked in vain.
 * A poll that fails is no failure of the job: it is asked again after a moment, until the follower's patience ends.
 */
import { setTimeout as sleep } from "node:timers/promises";

const HELD_SECONDS = 20;
const PAUSE_MS = 500;
const FINAL = new Set(["done", "failed", "cancelled"]);

/** Whether nothing will change any more. */
export const isFinal = (status) => FINAL.has(status);

/** A client of one Worker. */
export class Client {
  /**
   * @param {string} url
   * @param {string} key A client key.
   */
  constructor(url, key) {
    this.url = url;
    this.headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  }

  /**
   * Hands a job over.
   * @param {object} submission
   * @param {string} idempotencyKey The same key is the same job, however often it is sent.
   * @param {AbortSignal} [signal]
   * @returns {Promise<object>} The receipt.
   */
  async submit(submission, idempotencyKey, signal) {
    for (let tries = 1; ; tries++) {
      const response = await fetch(`${this.url}/v1/jobs`, {
        method: "POST",
        headers: { ...this.headers, "idempotency-key": idempotencyKey },
        body: JSON.stringify(submission),
        signal,
      });
      const body = await response.json().catch(() => null);
      if (response.status === 202) return body;
      if (response.status < 500 || tries === 3) {
        throw new Error(`The Worker did not take the job (${response.status}): ${body?.error?.message ?? "no reason"}`);
      }
      await sleep(PAUSE_MS, undefined, { signal });
    }
  }

  /**
   * Every status of a job that differs from the one before, up to its last.
   * @param {string} id
   * @param {AbortSignal} signal Ends it early.
   * @returns {AsyncGenerator<object>}
   */
  async *follow(id, signal) {
    let etag = null;
    while (!signal.aborted) {
      const answer = await this.#poll(id, etag, signal);
      const isNews = answer !== null && answer.etag !== etag;
      if (isNews) {
        etag = answer.etag;
        yield answer.status;
        if (isFinal(answer.status.status)) return;
      }
      // A failure, or a request that was not held: the next one must not follow at once.
      if (answer === null || (!isNews && !answer.held)) await sleep(PAUSE_MS, undefined, { signal }).catch(() => {});
    }
  }

  /** One held request: the status and its ETag, and whether it was held for as long as asked; null if it failed. */
  async #poll(id, etag, signal) {
    // Without a known ETag `wait` would hold the answer to the very end.
    const query = etag === null ? "" : `?wait=${HELD_SECONDS}`;
    const known = etag === null ? {} : { "if-none-match": etag };
    const asked = performance.now();
    try {
      const response = await fetch(`${this.url}/v1/jobs/${id}${query}`, {
        headers: { ...this.headers, ...known },
        signal,
      });
      const held = performance.now() - asked >= (HELD_SECONDS - 1) * 1000;
      if (response.status === 304) return { etag, held };
      const status = await response.json();
      return response.ok ? { status, etag: response.headers.get("etag"), held } : null;
    } catch {
      return null;
    }
  }
}
