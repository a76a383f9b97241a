/**
 * Try: hand a job over, and look on while it gets through. What an app would do in its backend, the page does with the client key
 * that it was given; what it shows is what `wait` of the client is told, by the placeholder.
 */
import {
  AuthenticationError,
  ConnectionError,
  JobCancelledError,
  JobFailedError,
  NotFoundError,
  Spillway,
  UnavailableError,
} from "../client/index.js";
import { card } from "../card.js";
import { h, tell } from "../dom.js";
import { jobDetails } from "../job-details.js";
import { JobList } from "../job-list.js";
import { keyField } from "../key-field.js";
import { keys } from "../keys.js";
import { Placeholder } from "../placeholder.js";
import { statusName } from "../words.js";
import { tryForm } from "./try-form.js";

export const title = "Try";

const spillwayOf = (key) => new Spillway({ baseUrl: location.origin, key });

/** A key is refused for itself alone: a list that cannot be had just now says nothing about it. */
async function mayOpen(key) {
  try {
    await spillwayOf(key).list({ limit: 1 });
  } catch (error) {
    if (!(error instanceof UnavailableError || error instanceof ConnectionError)) throw error;
  }
}

export function create() {
  const view = new Try();
  return { element: view.element, show: (id) => view.show(id), hide: () => view.hide() };
}

class Try {
  /** For the key that there is, if there is one. */
  #spillway;
  /** The job that is shown, by its id, and what ends the watching of it. */
  #id;
  #watching;
  #isShown = false;
  /** The status that the details are of. */
  #detailed;
  /** The last submission that may or may not have arrived, and its key. */
  #unsure;

  constructor() {
    this.key = keyField({
      role: "client",
      label: "Client key",
      hint: "One of the keys in CLIENT_KEYS. It stays in this tab’s memory: a reload forgets it.",
      check: mayOpen,
    });
    this.list = new JobList(() => this.#spillway);
    this.pill = h("span", { class: "pill" });
    this.placeholder = this.#placeholder();
    this.fault = h("div", { class: "fault", role: "alert", hidden: true });
    this.details = h("div", {});
    this.detailsBox = h("details", { class: "job-details" }, h("summary", {}, "Details and history"), this.details);
    this.again = h("button", { type: "button", class: "quiet", onclick: () => this.#watch() }, "Go on watching");
    this.job = h("div", {}, this.placeholder.element, this.fault, this.again, this.detailsBox);
    this.empty = h("p", { class: "hint" });
    const shown = card("The job", [this.empty, this.job], this.pill);
    this.heading = shown.heading;
    this.element = h(
      "div",
      { class: "view try" },
      h("h1", {}, "Try a job"),
      h("p", { class: "lead" }, "Hand a request over, and watch it get through, as your app’s would."),
      h(
        "section",
        { class: "card", "aria-label": "New job" },
        this.key.element,
        tryForm((job) => this.#submit(job)).element,
      ),
      h("div", { class: "column" }, shown.element, this.list.element),
    );
    keys.onChange((role) => role === "client" && this.#useKey());
    this.#showJob();
  }

  /** @param {string} id The job that the address names; none, and the last one stays. */
  show(id) {
    this.#isShown = true;
    if (id !== "" && id !== this.#id) this.#turnTo(id);
    else this.#watch();
  }

  hide() {
    this.#isShown = false;
    this.#watching?.abort();
    this.placeholder.stop();
  }

  #placeholder() {
    const act = (what) => async () => {
      const id = this.#id;
      try {
        tell(this.fault, "");
        await what(this.#spillway, id);
      } catch (error) {
        // Another job may be shown by now, of which that says nothing.
        if (id === this.#id) this.#fail(error);
      }
    };
    return new Placeholder({
      onCancel: act(async (spillway, id) => {
        // Nothing is answered for a job that was over by then: that takes it for "erase it".
        if ((await spillway.cancel(id)) === undefined) this.#gone(id, "It was over by then, and is erased now.");
      }),
      onAccept: act((spillway, id) => spillway.acceptDeferral(id)),
      onDecline: act((spillway, id) => spillway.declineDeferral(id)),
      onRegenerate: act(async (spillway, id) => this.#open((await spillway.regenerate(id)).id)),
    });
  }

  #useKey() {
    const key = keys.get("client");
    this.#spillway = key === undefined ? undefined : spillwayOf(key);
    this.list.refresh();
    // What is shown was for who had the key before.
    this.#turnTo(this.#id);
  }

  async #submit(job) {
    if (!(await this.key.take())) return;
    // The same again after a failure is the same job: it may have arrived, and only its answer have been lost.
    const body = JSON.stringify(job);
    const idempotencyKey = this.#unsure?.body === body ? this.#unsure.key : undefined;
    try {
      const { id } = await this.#spillway.submit(job, { idempotencyKey });
      this.#unsure = undefined;
      this.#open(id);
    } catch (error) {
      this.#unsure = { body, key: error.idempotencyKey };
      if (error instanceof AuthenticationError) this.key.refuse(error.message);
      else throw error;
    }
  }

  /** By the address, so that a reload and the way back lead here again. */
  #open(id) {
    location.hash = `#try/${id}`;
    this.heading.focus({ preventScroll: true });
    // On a phone the job is below the form; its heading alone, at the lower edge, would show nothing of it.
    const { top } = this.heading.getBoundingClientRect();
    if (top < 0 || top > innerHeight / 2) this.heading.scrollIntoView();
  }

  #turnTo(id) {
    this.#watching?.abort();
    this.placeholder.stop();
    this.#id = id;
    this.list.current = id;
    this.placeholder.element.remove();
    this.placeholder = this.#placeholder();
    this.job.prepend(this.placeholder.element);
    this.#detail(undefined);
    this.#showJob();
    this.#watch();
  }

  #showJob() {
    this.job.hidden = this.#id === undefined || !this.#spillway;
    const why =
      this.#id === undefined ? "Nothing has been submitted yet." : "Give the client key to go on watching this job.";
    tell(this.empty, this.job.hidden ? why : "");
  }

  async #watch() {
    this.#watching?.abort();
    if (this.#id === undefined || !this.#spillway || !this.#isShown) return;
    const watching = (this.#watching = new AbortController());
    this.again.hidden = true;
    tell(this.fault, "");
    const id = this.#id;
    try {
      await this.#spillway.wait(id, { signal: watching.signal, onProgress: (progress) => this.#onProgress(progress) });
    } catch (error) {
      // The placeholder has said how it ended.
      if (watching.signal.aborted || error instanceof JobFailedError || error instanceof JobCancelledError) return;
      if (error instanceof NotFoundError) this.#gone(id, "There is no such job of this client, or it is erased.");
      else this.#fail(error);
      this.again.hidden = error instanceof NotFoundError || error instanceof AuthenticationError;
    }
  }

  #onProgress(progress) {
    this.placeholder.show(progress);
    const { job } = progress;
    // Told of every piece of text, too; and what somebody has marked to copy it must not be taken from under the mouse.
    if (!job || job === this.#detailed) return;
    this.#detail(job);
    this.list.know(job);
  }

  #detail(job) {
    this.#detailed = job;
    this.detailsBox.hidden = !job;
    this.details.replaceChildren(...(job ? jobDetails(job) : []));
    this.pill.dataset.status = job?.status ?? "";
    tell(this.pill, job && statusName(job.status));
  }

  #fail(error) {
    if (error instanceof AuthenticationError) this.key.refuse(error.message);
    else tell(this.fault, error.message);
  }

  #gone(id, why) {
    this.list.forget(id);
    if (id !== this.#id) return;
    this.#watching?.abort();
    this.placeholder.stop();
    this.placeholder.element.hidden = true;
    this.#detail(undefined);
    tell(this.fault, why);
    this.heading.focus();
  }
}
