/**
 * Watch: is it the provider, or is it us? The four figures with their objectives, what the gates say, the calls and the jobs of the last
 * hours, and each job's history (`#watch/job_…`). Everything on it is what the running Worker has counted or kept; where there is
 * nothing, it says so. What is done about it is another view's.
 */
import { ask } from "../ask.js";
import { card } from "../card.js";
import { barChart, depthChart } from "../chart.js";
import { h, tell } from "../dom.js";
import { keys } from "../keys.js";
import { count, number, percent, sum } from "../numbers.js";
import { operatorKey } from "../operator-key.js";
import { swap } from "../swap.js";
import { scrollingTable } from "../tables.js";
import { moment } from "../time.js";
import { causeName } from "../words.js";
import { figures } from "../watch/figures.js";
import { gateCards, openPeriods } from "../watch/gates.js";
import { HoursOfDay } from "../watch/hours.js";
import { isOver, Job } from "../watch/job.js";
import { Jobs } from "../watch/jobs.js";

export const title = "Watch";

/**
 * How often it asks again while it is looked at: for the figures and the gates, and for what costs more and moves less, the pictures, the
 * hours and the list; of a job that is not over more often.
 */
const EVERY_MS = 5_000;
const WHOLE_EVERY_MS = 15_000;
const JOB_EVERY_MS = 2_000;
/** How far back, in minutes. */
const SPANS = { "1 hour": 60, "15 minutes": 15, "6 hours": 360, "2 days": 2_880 };

export function create() {
  const view = new Watch();
  return { element: view.element, show: (rest) => view.show(rest), hide: () => view.hide() };
}

class Watch {
  #timer;
  #asking;
  #isShown = false;
  #minutes = SPANS["1 hour"];
  #timeline;
  /** When all of it is asked for again, by this tab's clock. */
  #wholeAt = 0;
  /** The job that is looked at, if it is one, and where on the page its reader came from. */
  #id = "";
  #cameFrom = { id: "", top: 0 };

  constructor() {
    this.key = operatorKey();
    this.trouble = h("p", { class: "fault", role: "status", hidden: true });
    this.orders = h("p", { class: "note", role: "status", hidden: true });
    this.figures = h("div", { class: "figures" });
    this.gates = h("div", { class: "column" });
    this.span = h(
      "select",
      { "aria-label": "How far back", onchange: () => this.#choose() },
      ...Object.entries(SPANS).map(([name, minutes]) => h("option", { value: minutes }, name)),
    );
    this.calls = h("div");
    this.causes = h("div");
    this.depth = h("div");
    this.depthSaid = h("p", {});
    this.success = h("p", { hidden: true });
    this.steps = h("div");
    this.stepsBox = h("details", { ontoggle: () => this.#drawSteps() }, h("summary", {}, "As a table"), this.steps);
    this.hours = new HoursOfDay();
    this.jobs = new Jobs((path) => this.#ask(path));
    this.overview = h(
      "div",
      { class: "column" },
      this.orders,
      this.figures,
      card("Gates", [this.gates]).element,
      card("Calls", [this.calls, this.causes], this.span).element,
      card("Jobs that are not over", [this.depthSaid, this.depth, this.stepsBox, this.success]).element,
      card("Last jobs", [this.jobs.element], this.jobs.status).element,
      card("Hours of the day", [this.hours.element]).element,
    );
    this.job = new Job();
    this.content = h("div", { class: "column", hidden: true }, this.overview, this.job.element);
    this.element = h(
      "section",
      { class: "view watch" },
      h("h1", {}, "Watch"),
      h("p", { class: "lead" }, "Is it the provider, or is it us?"),
      h("div", { class: "card slim" }, this.key.element),
      this.trouble,
      this.content,
    );
    keys.onChange((role) => role === "operator" && this.#lookAnew());
  }

  /** @param {string} id The job that the address names; none, and it is the overview. */
  show(id) {
    const [before, wasShown] = [this.#id, this.#isShown];
    [this.#id, this.#isShown] = [id, true];
    if (id !== before && id !== "") {
      if (before === "") this.#cameFrom = { id, top: scrollY };
      this.job.turnTo(id);
    }
    this.overview.hidden = id !== "";
    this.job.element.hidden = id === "";
    if (wasShown && id !== before) this.#arrive();
    this.#lookAnew();
  }

  /** To the job's name, or back to where the list was left. */
  #arrive() {
    if (this.#id !== "") {
      this.job.heading.focus({ preventScroll: true });
      scrollTo({ top: 0 });
    } else {
      this.jobs.comeBackTo(this.#cameFrom.id);
      scrollTo({ top: this.#cameFrom.top });
    }
  }

  hide() {
    this.#isShown = false;
    this.#asking?.abort();
    clearTimeout(this.#timer);
  }

  #choose() {
    this.#minutes = Number(this.span.value);
    this.#lookAnew();
  }

  #lookAnew() {
    this.#wholeAt = 0;
    this.#look();
  }

  async #ask(path, signal) {
    try {
      return await ask(path, { signal });
    } catch (error) {
      if (error.isKey) this.key.refuse(error.message);
      throw error;
    }
  }

  async #look() {
    clearTimeout(this.#timer);
    this.#asking?.abort();
    const hasKey = keys.get("operator") !== undefined;
    this.content.hidden = !hasKey;
    if (!hasKey || !this.#isShown) return;
    const { signal } = (this.#asking = new AbortController());
    const next = await (this.#id === "" ? this.#lookAtAll(signal) : this.#lookAtJob(signal));
    if (!signal.aborted && next) this.#timer = setTimeout(() => this.#look(), next);
  }

  /** @returns When to look again, in milliseconds, if at all. */
  async #lookAtAll(signal) {
    // Half a round early, or a timer that is late by a little would put it off by a whole one.
    const isWhole = performance.now() >= this.#wholeAt - EVERY_MS / 2;
    const minutes = isWhole ? this.#minutes : 1;
    const jobs = isWhole && this.jobs.refresh();
    try {
      const [report, { gates }, queues] = await Promise.all([
        this.#ask(`/v1/metrics?format=json&minutes=${minutes}`, signal),
        this.#ask("/v1/gates", signal),
        isWhole ? this.#ask("/v1/queues", signal) : undefined,
      ]);
      this.#draw(report, gates);
      if (isWhole) this.#drawWhole(report, queues);
      tell(this.trouble, undefined);
    } catch (error) {
      if (signal.aborted || error.isKey) return undefined;
      tell(this.trouble, `What is shown may be old: ${error.message}`);
    }
    await jobs;
    return EVERY_MS;
  }

  async #lookAtJob(signal) {
    tell(this.trouble, undefined);
    try {
      const job = await this.#ask(`/v1/jobs/${encodeURIComponent(this.#id)}`, signal);
      this.job.show(job);
      return isOver(job) ? undefined : JOB_EVERY_MS;
    } catch (error) {
      if (signal.aborted || error.isKey) return undefined;
      this.job.fail(error);
      return error.status === 404 ? undefined : EVERY_MS;
    }
  }

  /** What every answer has. */
  #draw(report, gates) {
    const { success, first_try, calls_per_answer } = report;
    swap(this.figures, ...figures(report.figures));
    swap(this.gates, ...gateCards(gates));
    swap(
      this.causes,
      scrollingTable(
        ["Model", "How it ended", "Calls, last hour"],
        report.calls
          .toSorted((a, b) => b.calls - a.calls)
          .map(({ model, cause, calls }) => [model, causeName(cause), number(calls)]),
        "No calls in the last hour.",
      ),
    );
    const said = [];
    if (success.value !== null) {
      said.push(
        `In the last hour ${percent(success.value)} were done, ${percent(first_try.value ?? 0)} at the first call.`,
      );
    }
    if (calls_per_answer.value !== null) said.push(`${calls_per_answer.value.toFixed(2)} calls for an answer.`);
    tell(this.success, said.join(" "));
  }

  /** What needs the timeline as far back as it is looked at. */
  #drawWhole(report, queues) {
    const { timeline, unfinished } = report;
    tell(this.orders, ordersInWords(queues));
    const periods = openPeriods(report);
    this.#wholeAt = performance.now() + WHOLE_EVERY_MS;
    this.#timeline = timeline;
    swap(this.calls, barChart(timeline, periods, this.#minutes));
    const waiting = ["high", "medium", "low"].map((it) => `${number(unfinished[it] ?? 0)} ${it}`);
    tell(this.depthSaid, `Not over: ${waiting.join(", ")}. ${depthInWords(timeline)}`);
    swap(this.depth, depthChart(timeline, periods, this.#minutes));
    this.#drawSteps();
    this.hours.show(report);
  }

  /** The depth for who cannot see it, and only once somebody wants it. */
  #drawSteps() {
    if (!this.stepsBox.open || !this.#timeline) return;
    const { from, step_seconds, submitted, finished, unfinished } = this.#timeline;
    const when = (at) => moment(new Date(Date.parse(from) + at * step_seconds * 1000).toISOString());
    const rows = unfinished.map((left, at) => [when(at), submitted[at], finished[at], left]);
    const moved = rows.filter(([, came, ended]) => came > 0 || ended > 0).reverse();
    swap(this.steps, scrollingTable(["From", "Came in", "Ended", "Not over at its end"], moved, "Nothing has moved."));
  }
}

/** Why jobs wait though every gate lets them: what the operator has ordered, which the view Operate ends. */
function ordersInWords({ queues, drain }) {
  const said = ({ author, note, until }) => `by ${author} until ${moment(until)} (\u2068${note}\u2069)`;
  const paused = Object.entries(queues).filter(([, queue]) => queue.paused);
  return [
    ...paused.map(([name, { paused }]) => `Jobs of priority ${name} are paused ${said(paused)}.`),
    ...(drain ? [`Nothing new is taken: ordered ${said(drain)}.`] : []),
  ].join(" ");
}

function depthInWords({ from, step_seconds, submitted, finished, unfinished }) {
  const most = Math.max(...unfinished);
  const when = moment(new Date(Date.parse(from) + unfinished.indexOf(most) * step_seconds * 1000).toISOString());
  const step = step_seconds === 60 ? "a minute" : `${step_seconds / 60} minutes`;
  const peak = most === 0 ? "" : `At the end of ${step} at most ${count(most, "job")}, at ${when}; `;
  return `${peak}${number(sum(submitted))} came in and ${number(sum(finished))} ended in this time.`;
}
