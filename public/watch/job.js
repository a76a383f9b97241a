/**
 * One job's whole history: what it was to be, each call of it that failed, what it waited for, how it ended, and whether its app has been
 * told. All of it is the Worker's own record, as GET /v1/jobs/{id} tells it to the operator; nothing is guessed in between.
 */
import { h, tell } from "../dom.js";
import { count } from "../numbers.js";
import { swap } from "../swap.js";
import { facts } from "../tables.js";
import { countdown } from "../ticking.js";
import { exactDuration, moment } from "../time.js";
import { CAUSES, DOWNGRADES, failure, NO_SUCH_JOB, statusName, whyItWaits } from "../words.js";

const exactly = (at) => moment(at, "medium");
const link = (view, id) => h("a", { href: `#${view}/${id}` }, h("code", {}, id));

export class Job {
  constructor() {
    this.back = h("a", { href: "#watch" }, "← All jobs");
    this.heading = h("h2", { tabindex: "-1" }, "The job");
    this.pill = h("span", { class: "pill" });
    this.fault = h("p", { class: "fault", role: "status", hidden: true });
    this.now = h("div");
    this.facts = h("div");
    this.steps = h("div");
    this.webhook = h("div");
    this.content = h(
      "div",
      { class: "column" },
      this.now,
      this.facts,
      part("What happened", this.steps),
      part("Webhook", this.webhook),
    );
    this.element = h(
      "section",
      { class: "card one-job", "aria-label": "One job" },
      h("p", {}, this.back),
      h("div", { class: "row apart head" }, this.heading, this.pill),
      this.fault,
      this.content,
    );
  }

  /** Another job's place: nothing is known of it yet. */
  turnTo(id) {
    this.heading.replaceChildren(h("code", {}, id));
    tell(this.pill, "");
    tell(this.fault, "");
    this.content.hidden = true;
    for (const element of [this.now, this.facts, this.steps, this.webhook]) element.replaceChildren();
  }

  fail(error) {
    const isUnknown = error.status === 404;
    if (isUnknown) {
      this.content.hidden = true;
      tell(this.pill, "");
    }
    const old = this.content.hidden ? "" : "What is shown may be old: ";
    tell(this.fault, isUnknown ? NO_SUCH_JOB : old + error.message);
  }

  show(job) {
    tell(this.fault, "");
    this.pill.dataset.status = job.status;
    tell(this.pill, statusName(job.status));
    this.content.hidden = false;
    swap(this.now, h("p", {}, standing(job), " ", h("a", { href: `#operate/${job.id}` }, "Act on it")));
    swap(this.facts, factsOf(job));
    swap(this.steps, h("ol", { class: "steps-taken" }, ...steps(job)));
    swap(this.webhook, ...webhook(job));
  }
}

const part = (name, content) => h("section", { "aria-label": name }, h("h3", {}, name), content);

/** Whether there may be news of it by itself. */
export const isOver = ({ status, webhook }) =>
  ["done", "failed", "cancelled"].includes(status) &&
  !(webhook?.events ?? []).some(({ next_attempt_seconds }) => next_attempt_seconds !== undefined);

/** How it stands, in a sentence with what is left of its wait. */
function standing({
  status,
  waiting,
  offer,
  reason,
  downgraded,
  downgrade_reason,
  model_requested,
  model_used,
  operator,
}) {
  if (waiting) {
    const eta =
      waiting.eta_seconds === undefined ? [] : ["; its answer should be there in ", countdown(waiting.eta_seconds)];
    return h(
      "span",
      {},
      whyItWaits(status, waiting.reason),
      " Looked at again in ",
      countdown(waiting.next_check_seconds),
      ...eta,
      ".",
    );
  }
  if (offer)
    return h(
      "span",
      {},
      "Its user is asked whether it may wait; silence is a yes in ",
      countdown(offer.answer_within_seconds),
      ".",
    );
  if (reason) return failure(reason).what;
  if (downgraded)
    return `${model_used} answered: ${model_requested} ${DOWNGRADES[downgrade_reason] ?? downgrade_reason ?? "did not"}.`;
  return {
    received: "It has not been called for yet.",
    generating: `${operator?.model_called ?? "Its model"} has been called.`,
    refining: `${operator?.model_called ?? "Its model"} is answering.`,
    done: `${model_used} has answered.`,
    cancelled: "Its app took it back.",
  }[status];
}

function factsOf(job) {
  const { operator = {}, error, finished_at, created_at } = job;
  const took = finished_at && exactDuration(Date.parse(finished_at) - Date.parse(created_at));
  const usage = job.result?.usage;
  return facts([
    ["Client", operator.client],
    ["Kind and priority", `${job.kind}, ${job.priority}`],
    ["Model asked for", job.model_requested],
    ["Model that answered", job.model_used],
    ["Came from", operator.handed_over && "a call that was waited for"],
    ["Patience", operator.preset],
    ["When exhausted", operator.when_exhausted],
    ["Calls", String(job.calls)],
    ["Attempts used up", String(job.attempts)],
    ["Deferred", operator.deferrals > 0 && count(operator.deferrals, "time")],
    ["Tokens", usage && `${usage.input_tokens} in, ${usage.output_tokens} out`],
    ["Submitted", exactly(created_at)],
    ["Over", finished_at && `${exactly(finished_at)}, after ${took}`],
    ["Deadline", exactly(job.deadline_at)],
    ["Does again", job.regenerates && link("watch", job.regenerates)],
    ["Done again as", operator.regenerated_as && link("watch", operator.regenerated_as)],
    ["Reason", job.reason && h("code", {}, job.reason)],
    ["Error", error && [error.type, error.status, error.message, error.request_id].filter(Boolean).join(" · ")],
  ]);
}

/** All that is known to have happened, in its order. */
function steps(job) {
  const { history, operator = {}, finished_at } = job;
  const isUnder = finished_at === undefined;
  const list = [
    { at: job.created_at, what: "Submitted" },
    ...history.map((call) => failedCall(call, isUnder)),
    ...(operator.stays ?? []).map(stay),
  ];
  // What was submitted, or failed, at the very moment in which a wait began came before it.
  list.sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
  if (!isUnder) list.push({ at: finished_at, what: ending(job), end: job.status });
  return list.map(({ at, what, more, end }) =>
    h(
      "li",
      { "data-end": end },
      h("p", {}, what),
      h("p", { class: "hint" }, h("time", { datetime: at }, exactly(at)), ...(more ? [` · ${more}`] : [])),
    ),
  );
}

function failedCall(call, mayComeYet) {
  const { at, model, cause, status, request_id, costs_attempt, computed_wait_ms, real_wait_ms } = call;
  const drawn = computed_wait_ms === null ? undefined : `drew a wait of ${exactDuration(computed_wait_ms)}`;
  const passed = real_wait_ms === null ? undefined : `waited ${exactDuration(real_wait_ms)}`;
  const more = [
    model,
    costs_attempt ? "used an attempt up" : "used no attempt up",
    drawn,
    passed ?? (mayComeYet && drawn && "waits now"),
    request_id && `request ${request_id}`,
  ];
  return {
    at,
    what: `${CAUSES[cause] ?? cause}${status === null ? "" : ` (${status})`}`,
    more: more.filter(Boolean).join("; "),
  };
}

function stay({ reason, from, until, waits }) {
  const what = reason === "stalled" ? "Its user was asked whether it may wait." : whyItWaits("held", reason);
  const long =
    until === undefined
      ? "it waits still"
      : `until ${exactly(until)}, ${exactDuration(Date.parse(until) - Date.parse(from))}`;
  return { at: from, what, more: `${long}${waits > 1 ? `; ${waits} waits in a row` : ""}` };
}

function ending({ status, model_used, reason }) {
  if (status === "done") return `Answered by ${model_used}`;
  return status === "failed" ? `Failed: ${failure(reason).what}` : statusName(status);
}

function webhook({ webhook, operator = {} }) {
  if (!webhook) return [h("p", { class: "hint" }, "It has none.")];
  const { disabled_at, events } = webhook;
  return [
    operator.webhook_target ? h("p", {}, h("code", {}, operator.webhook_target)) : undefined,
    disabled_at &&
      h(
        "p",
        { class: "note" },
        `Disabled at ${exactly(disabled_at)}: the target said that it wants nothing of this job.`,
      ),
    events.length === 0
      ? h("p", { class: "hint" }, "There has been nothing to tell yet.")
      : h("ol", { class: "steps-taken" }, ...events.map(event)),
  ];
}

function event({ type, attempts, delivered_at, next_attempt_seconds, given_up_at, last_error }) {
  const tries = count(attempts, "try", "tries");
  const state = delivered_at
    ? `delivered ${exactly(delivered_at)}`
    : given_up_at
      ? `given up ${exactly(given_up_at)}`
      : undefined;
  return h(
    "li",
    { "data-end": delivered_at ? "done" : given_up_at ? "failed" : undefined },
    h(
      "p",
      {},
      h("code", {}, type),
      ": ",
      ...(state ? [state] : ["tried again in ", countdown(next_attempt_seconds, "a moment")]),
    ),
    h("p", { class: "hint" }, `${tries}${last_error ? ` · ${last_error}` : ""}`),
  );
}
