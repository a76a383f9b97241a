/** Re-driving: one job by its id, and all that have failed or that wait, ten at a time. */
import { ask } from "../ask.js";
import { card } from "../card.js";
import { h, tell } from "../dom.js";
import { choice, field } from "../field.js";
import { number, sum } from "../numbers.js";
import { FAILURES, failure, statusName, whyItWaits } from "../words.js";
import { action } from "./action.js";
import { jobs } from "./queues.js";

const AT_ONCE = 10;
/** Pages of the list of jobs, before a number becomes "more than". */
const PAGES_COUNTED = 20;

const OVER = ["done", "cancelled"];
const PAID = "calls are made and paid for";

const OUTCOMES = {
  sent_again: "sent again",
  started_again: "done again as a new job",
  not_needed: "not needed",
  unanswered: "without an answer",
};

const refused = (message) => Object.assign(new Error(message), { problems: [{ place: "id", message }] });

export class Redrive {
  /** What is under way or was, and what has come of it. */
  #run;
  #shared;

  constructor(shared) {
    this.#shared = shared;
    const { onRefusedKey } = shared;
    this.id = h("input", { autocapitalize: "none", autocomplete: "off", spellcheck: "false", placeholder: "job_…" });
    const one = action({
      name: "Re-drive one job",
      look: "quiet",
      fields: { id: field("One job, by its id", this.id) },
      plan: () => this.#one(this.id.value.trim()),
      onRefusedKey,
    });
    const choose = () => (reason.element.hidden = this.status.value !== "failed");
    this.status = choice("All that", { failed: "have failed", open: "wait" }, choose);
    this.reason = h(
      "select",
      {},
      h("option", { value: "" }, "Whatever the reason"),
      Object.entries(FAILURES).map(([name, { what }]) => h("option", { value: name }, what)),
    );
    this.since = h("input", { type: "datetime-local" });
    const hint =
      "Requests that Claude refused as such, jobs whose users did not want them to wait, and answers that broke off are left alone, unless you choose them.";
    const reason = field("Why they failed", this.reason, hint);
    const since = field("Since", this.since, "Left empty: all that are kept.");
    const all = action({
      name: "Re-drive all",
      fields: { status: this.status, reason, since },
      plan: () => this.#all(),
      onRefusedKey,
    });
    this.progress = h("p", { class: "said", role: "status", tabindex: "-1" });
    this.fault = h("p", { class: "fault", role: "alert", hidden: true });
    this.stop = h("button", { type: "button", class: "quiet", onclick: () => this.pause() }, "Stop");
    this.goOn = h("button", { type: "button", class: "quiet", onclick: () => this.#drive() }, "Go on");
    const buttons = h("div", { class: "row" }, this.stop, this.goOn);
    this.outcome = h("div", { class: "run column", hidden: true }, this.progress, this.fault, buttons);
    this.card = card("Re-drive", [one.element, all.element, this.outcome]);
  }

  fill(id) {
    this.id.value = id;
    this.id.focus({ preventScroll: true });
  }

  /** After the ten that are under way. */
  pause() {
    if (!this.#run?.isGoing) return;
    this.#run.isStopped = true;
    this.#show();
  }

  async #one(id) {
    if (id === "") throw refused("is missing");
    const path = `/v1/jobs/${encodeURIComponent(id)}`;
    const { status, reason, waiting } = await ask(path).catch((error) => {
      throw error.status === 404 ? refused("is no job that there is, or its time is over") : error;
    });
    const name = statusName(status).toLowerCase();
    if (OVER.includes(status)) throw refused(`is ${name}: there is nothing to re-drive`);
    const { what, again } = failure(reason);
    const mended = again ? "" : " Unless what was wrong is mended, Claude refuses it again.";
    const why = waiting ? whyItWaits(status, waiting.reason) : `It is ${name}.`;
    return {
      question: `Re-drive ${id}?`,
      consequences: [
        status === "failed"
          ? `${what} It is done again as a new job, linked to it: ${PAID}.${mended}`
          : `${why} If it waits, its message is sent again now. If its gate lets it, ${PAID}; else it waits again.`,
      ],
      yes: "Yes, re-drive it",
      act: async () => {
        const { outcome, as } = await ask(`${path}/redrive`, { method: "POST" });
        void this.#shared.onChanged();
        return `It is ${OUTCOMES[outcome] ?? outcome}.${as ? ` The job that does it again: ${as}` : ""}`;
      },
    };
  }

  async #all() {
    if (this.#run?.isGoing) throw new Error("One is still under way.");
    const status = this.status.value;
    const hasFailed = status === "failed";
    const since = this.since.value ? new Date(this.since.value).toISOString() : undefined;
    const reason = (hasFailed && this.reason.value) || undefined;
    const { count, isMore } = hasFailed ? await countFailed(since) : { count: (await ask("/v1/queues")).unfinished };
    if (count === 0) throw new Error(hasFailed ? `No job has failed${since ? " since then" : ""}.` : "No job waits.");
    const some = `${isMore ? "more than " : ""}${jobs(count)}`;
    return {
      question: `Re-drive all that ${hasFailed ? "have failed" : "wait"}?`,
      consequences: [
        hasFailed
          ? `Failed: ${some}${reason ? `, of which it is those whose reason is ${reason}` : ""}. Each is done again as a new job, if it has not been yet: ${PAID}.`
          : `Unfinished: ${some}. Those that wait have their messages sent again now. If their gates let them, ${PAID}.`,
        "Ten at a time: you can stop in between.",
      ],
      yes: `Yes, re-drive ${reason || !hasFailed ? "up to " : ""}${some}`,
      act: async () => {
        const body = { status, reason, since, limit: AT_ONCE };
        this.#run = { body, most: isMore ? undefined : count, outcomes: {} };
        this.outcome.hidden = false;
        this.progress.focus();
        void this.#drive();
      },
    };
  }

  async #drive() {
    const run = this.#run;
    run.isGoing = true;
    tell(this.fault, "");
    this.#show();
    try {
      do {
        const { redriven, next_cursor } = await ask("/v1/jobs/redrive", { method: "POST", body: run.body });
        for (const { outcome } of redriven) run.outcomes[outcome] = (run.outcomes[outcome] ?? 0) + 1;
        run.body.cursor = next_cursor ?? undefined;
        run.isOver = !next_cursor;
        this.#show();
      } while (!run.isOver && !run.isStopped);
    } catch (error) {
      if (error.isKey) this.#shared.onRefusedKey(error.message);
      tell(this.fault, error.message);
    }
    run.isGoing = run.isStopped = false;
    this.#show();
    void this.#shared.onChanged();
  }

  #show() {
    const { isGoing, isOver, isStopped, outcomes, most } = this.#run;
    const looked = sum(Object.values(outcomes));
    // What was done first, whatever the jobs' own order; a name of a newer Worker last.
    const names = Object.keys({ ...OUTCOMES, ...outcomes }).filter((name) => outcomes[name]);
    const parts = names.map((name) => `${number(outcomes[name])} ${OUTCOMES[name] ?? name}`);
    const begin = isOver ? "Over" : isStopped ? "Stopping" : isGoing ? "Under way" : "Stopped";
    const of = typeof most !== "number" || isOver ? "" : ` of at most ${number(most)}`;
    tell(this.progress, `${begin}: ${[`${jobs(looked)}${of} looked at`, ...parts].join(", ")}.`);
    const wasHere = this.outcome.contains(document.activeElement);
    this.stop.hidden = !isGoing;
    this.goOn.hidden = isGoing || Boolean(isOver);
    if (wasHere && document.activeElement.hidden) this.progress.focus();
  }
}

/** No route tells how many there are. */
async function countFailed(since) {
  let count = 0;
  let cursor;
  for (let page = 0; page < PAGES_COUNTED; page += 1) {
    const query = new URLSearchParams({ status: "failed", limit: 100, ...(cursor && { cursor }) });
    const { jobs, next_cursor } = await ask(`/v1/jobs?${query}`);
    count += jobs.filter(({ finished_at }) => !since || Date.parse(finished_at) >= Date.parse(since)).length;
    cursor = next_cursor;
    if (!cursor) return { count };
  }
  return { count, isMore: true };
}
