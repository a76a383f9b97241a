/** What a caller who waits is shown: the job as it was last heard of, and the text so far. */
export class Progress {
  #onProgress;
  #onStalled;
  #fail;
  /** The offer that `onStalled` was told of: one question is asked once, however often it is heard. */
  #offered;
  #connected = true;
  /** Of the last status: another number means that the model was called again, and the text is another draft's. */
  #calls;

  /** The last status, whole. */
  job = undefined;
  text = "";
  draft = undefined;

  /** @param {(error: unknown) => void} fail Is told what becomes of a promise that a listener returns. */
  constructor({ onProgress, onStalled }, fail) {
    this.#onProgress = onProgress;
    this.#onStalled = onStalled;
    this.#fail = fail;
  }

  get isOver() {
    return FINAL.has(this.job?.status);
  }

  /** The job's status as an event tells it. Drafts have events of their own, so the text stays. */
  status(job) {
    this.job = job;
    this.#calls = job.calls;
    this.#connected = true;
    if (this.isOver) this.#show(undefined, job.text ?? job.partial_text ?? "");
    this.#tell();
    if (job.status !== "stalled") this.#offered = undefined;
    else if (this.#offered !== job.offer?.resumes_at) {
      this.#offered = job.offer?.resumes_at;
      this.#minded(this.#onStalled?.(job.offer, job));
    }
  }

  /** The same without events, which nobody can rely on for what became of a draft: it stays only while it must be the same. */
  polled(job) {
    if (job.status !== "refining" || job.calls !== this.#calls) this.#show(undefined, "");
    this.status(job);
  }

  /** More text. That of another draft than the one before replaces it. */
  append({ draft, text }) {
    this.#show(draft, draft === this.draft ? this.text + text : text);
    this.#connected = true;
    this.#tell();
  }

  discard({ draft, reason }) {
    if (draft !== this.draft) return;
    this.#show(undefined, "");
    this.#tell({ discarded: { draft, reason } });
  }

  /** Whether the server can be heard, which is news only when it changes, and if there was something to lose. */
  set connected(connected) {
    if (connected === this.#connected) return;
    this.#connected = connected;
    if (this.job) this.#tell();
  }

  #show(draft, text) {
    this.draft = draft;
    this.text = text;
  }

  #tell(more) {
    const { job, text, draft } = this;
    const { status, message, waiting, offer } = job ?? {};
    const told = { status, message, waiting, offer, text, draft, connected: this.#connected, job, ...more };
    this.#minded(this.#onProgress?.(told));
  }

  /** What a listener throws ends the waiting, and so does what the promise that it returned is rejected with. */
  #minded(said) {
    if (typeof said?.then === "function") said.then(undefined, this.#fail);
  }
}

const FINAL = new Set(["done", "failed", "cancelled"]);
