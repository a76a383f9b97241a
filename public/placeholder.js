/**
 * What a user looks at while a job is at work: three steps that move on when something has really happened, never by a clock; the
 * answer as it is written; a wait with its reason; and whatever there is to decide. Made to be copied into an app, together with
 * placeholder.css, words.js, time.js and dom.js. It knows nothing of HTTP:
 *
 *     const placeholder = new Placeholder({ onCancel, onAccept, onDecline, onRegenerate });
 *     document.body.append(placeholder.element);
 *     await spillway.wait(receipt, { onProgress: (progress) => placeholder.show(progress) });
 *
 * Every call of `show` gets all that there is, and shows it all: but for the note that a draft was thrown away, nothing is remembered
 * from the call before, so a page that was reloaded in the middle shows the same as one that was there from the beginning. The
 * elements are made once and filled anew, since one that is replaced loses the user's focus, selection and place.
 *
 * Without a colour, an animation or eyes it says the same: each step has its state as text, and what is new is told once in a live
 * region, without the text of the answer, which would be read out piece by piece.
 */
import { h, tell } from "./dom.js";
import { duration, moment } from "./time.js";
import { DOWNGRADES, failure, statusName, whyItWaits } from "./words.js";

const STEPS = ["received", "generating", "refining"];

/** What a step is said to be, to who does not see it. */
const STATES = { over: "done", now: "now", ahead: "not yet", stopped: "stopped here" };

export class Placeholder {
  #progress;
  #shownAt;
  #timer;
  #has = {};

  /**
   * @param {object} actions What the buttons do. Each may answer a promise; until it is settled its buttons can't be pressed.
   * @param {() => unknown} actions.onCancel
   * @param {() => unknown} actions.onAccept
   * @param {() => unknown} actions.onDecline
   * @param {() => unknown} actions.onRegenerate
   */
  constructor({ onCancel, onAccept, onDecline, onRegenerate }) {
    const has = this.#has;
    const button = (text, act, kind) =>
      h("button", { type: "button", class: kind, onclick: () => this.#press(act) }, text);
    has.steps = STEPS.map((name) => {
      const state = h("span", { class: "unseen" });
      return { item: h("li", {}, statusName(name), state), state };
    });
    has.list = h(
      "ol",
      { class: "steps", "aria-label": "Progress" },
      has.steps.map(({ item }) => item),
    );
    has.live = h("p", { class: "unseen", role: "status" });
    has.message = h("p", { class: "message" });
    has.why = h("p", { class: "why" });
    has.when = h("p", { class: "when" });
    has.connection = h("p", { class: "note" });
    has.discarded = h("p", { class: "note" });
    has.offerText = h("p", {});
    has.offer = h(
      "div",
      { class: "offer", role: "group", "aria-label": "May it wait?" },
      has.offerText,
      h("p", { class: "row" }, button("Let it wait", onAccept, "main"), button("No, end it", onDecline, "quiet")),
    );
    has.text = h("div", { class: "text" });
    has.textTitle = h("h3", {});
    has.answer = h("section", { class: "answer", "aria-label": "Answer" }, has.textTitle, has.text);
    has.adviceText = h("p", {});
    has.again = button("Generate it again", onRegenerate, "main");
    has.advice = h("div", { class: "advice" }, has.adviceText, h("p", {}, has.again));
    has.cancel = h("p", { class: "end" }, button("Cancel the job", onCancel, "quiet"));
    this.element = h(
      "div",
      { class: "placeholder", tabindex: "-1" },
      has.live,
      has.list,
      has.message,
      has.why,
      has.when,
      has.connection,
      has.offer,
      has.discarded,
      has.answer,
      has.advice,
      has.cancel,
    );
    this.element.hidden = true;
  }

  /** @param {object} progress What `onProgress` of the client's `wait` is told. */
  show(progress) {
    const focused = this.element.contains(document.activeElement) ? document.activeElement : undefined;
    this.element.hidden = false;
    this.#progress = progress;
    this.#shownAt = Date.now();
    const { status, message, text, offer, discarded, connected, job } = progress;
    const has = this.#has;
    this.#showSteps(progress);
    tell(has.message, message?.text);
    tell(has.connection, connected ? "" : "The connection is lost, and sought again. The job goes on.");
    // Until the next draft has something to show, so that nobody wonders where the text went.
    if (discarded) tell(has.discarded, `${whyItWaits("retrying", discarded.reason)} What had come is thrown away.`);
    else if (text || isOver(status)) tell(has.discarded, "");
    this.#showText(text, status);
    has.offer.hidden = !offer;
    this.#showAdvice(status, job);
    // A job that asks can be ended by its answer.
    has.cancel.hidden = isOver(status) || status === "stalled";
    this.#tick();
    const why = status === "failed" ? whatFailed(job) : progress.waiting && whyItWaits(status, progress.waiting.reason);
    tell(has.why, why);
    const news = [status && `${statusName(status)}.`, message?.text, why, discarded && has.discarded.textContent];
    const said = news.filter(Boolean).join(" ");
    if (has.live.textContent !== said) has.live.textContent = said;
    // The button that was pressed is gone: whoever works by keyboard goes on from here, and not from the top of the page.
    if (focused?.closest("[hidden]")) this.element.focus();
    // What counts down does so between two news, too.
    clearInterval(this.#timer);
    if (progress.waiting || offer) this.#timer = setInterval(() => this.#tick(), 1000);
  }

  /** It is looked at no longer. */
  stop() {
    clearInterval(this.#timer);
  }

  #showSteps({ status, job }) {
    const at = stepOf(status, job);
    this.#has.list.dataset.mood = moodOf(status);
    this.#has.steps.forEach(({ item, state }, step) => {
      const is = step < at ? "over" : step > at ? "ahead" : isOver(status) ? "stopped" : "now";
      item.dataset.state = is;
      if (is === "now") item.setAttribute("aria-current", "step");
      else item.removeAttribute("aria-current");
      tell(state, `, ${STATES[is]}`);
    });
  }

  /** A text that goes on is added to: what was selected in it stays so. */
  #showText(text, status) {
    const { answer, text: shown, textTitle } = this.#has;
    answer.hidden = !text;
    tell(textTitle, status === "done" ? "Answer" : status === "failed" ? "What had come of the answer" : "Draft");
    answer.dataset.growing = String(status === "refining");
    const before = shown.textContent;
    if (text.startsWith(before)) shown.append(text.slice(before.length));
    else shown.textContent = text;
    shown.normalize();
  }

  /** What could come out better, and how. */
  #showAdvice(status, job) {
    const { advice, adviceText, again } = this.#has;
    const isDowngraded = status === "done" && job.downgraded;
    const { advice: mend, again: mayHelp } = status === "failed" ? failure(job.reason) : {};
    const why = DOWNGRADES[job?.downgrade_reason];
    const instead =
      isDowngraded && `${job.model_used} wrote it${why ? `, because ${job.model_requested} ${why}` : ""}.`;
    tell(adviceText, instead || mend);
    again.hidden = !isDowngraded && !mayHelp;
    advice.hidden = again.hidden && adviceText.hidden;
  }

  /** What depends on the clock. Of durations that the server named, so that a wrong clock of the user's does no harm. */
  #tick() {
    const { waiting, offer } = this.#progress;
    const passed = (Date.now() - this.#shownAt) / 1000;
    tell(this.#has.when, waiting && whenItGoesOn(waiting, passed));
    if (!offer) return;
    const left = offer.answer_within_seconds - passed;
    const silence = left > 0 ? `Without an answer within ${duration(left)}, it waits.` : "";
    tell(this.#has.offerText, `It would be taken up again from ${moment(offer.resumes_at)} on. ${silence}`);
  }

  async #press(act) {
    const buttons = [...this.element.querySelectorAll("button")];
    if (buttons.some((button) => button.ariaDisabled === "true")) return;
    // Not `disabled`, which would throw the focus out of the button that was just pressed.
    for (const button of buttons) button.ariaDisabled = "true";
    try {
      await act();
    } finally {
      for (const button of buttons) button.ariaDisabled = null;
    }
  }
}

/** @param {string} status */
export const isOver = (status) => ["done", "failed", "cancelled"].includes(status);

/** What happened; in Claude's words too, where the request itself is what was wrong. */
function whatFailed({ reason, error }) {
  const { what, again } = failure(reason);
  return again || !error?.message ? what : `${what} It said: ${error.message}`;
}

/**
 * How far it has come, as a step, by what has happened and no guess: a model has been called, content has come. A job that waits
 * stands where its next call begins.
 */
function stepOf(status, job) {
  if (status === "done") return STEPS.length;
  const step = STEPS.indexOf(status);
  if (step >= 0) return step;
  return job?.partial_text ? 2 : job?.calls > 0 ? 1 : 0;
}

function moodOf(status) {
  if (isOver(status)) return status;
  return STEPS.includes(status) ? "moving" : status === "stalled" ? "asking" : "waiting";
}

function whenItGoesOn({ next_check_seconds: next, eta_seconds: eta }, passed) {
  const left = next - passed;
  const check = left >= 1 ? `The next try is in ${duration(left)}.` : "The next try is due now.";
  // An estimate is said to be one, and no longer said when it was wrong.
  return eta - passed >= 1 ? `${check} As it looks, its turn is over in about ${duration(eta - passed)}.` : check;
}
