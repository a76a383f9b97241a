/**
 * Watch: is it the provider, or is it us? The four figures with their objectives, what the gates say, and the calls of the last hours.
 * Everything on it is what the running Worker has counted; where it has counted nothing, it says so.
 */
import { barChart } from "../chart.js";
import { h, tell } from "../dom.js";
import { keyField } from "../key-field.js";
import { keys } from "../keys.js";
import { duration, moment } from "../time.js";
import { causeName, gateStateName, holdName } from "../words.js";

export const title = "Watch";

/** How often it asks again while it is looked at. */
const EVERY_MS = 5_000;
/** How far back, in minutes. */
const SPANS = { "1 hour": 60, "6 hours": 360, "2 days": 2_880 };

async function ask(path, key) {
  const headers = { authorization: `Bearer ${key}`, accept: "application/json" };
  const response = await fetch(path, { headers });
  const body = await response.json().catch(() => undefined);
  if (response.ok) return body;
  throw Object.assign(new Error(body?.error?.message ?? `The server answered ${response.status}.`), {
    isKey: response.status === 401 || response.status === 403,
  });
}

export function create() {
  const view = new Watch();
  return { element: view.element, show: () => view.show(), hide: () => view.hide() };
}

class Watch {
  #timer;
  #isShown = false;
  #minutes = SPANS["1 hour"];

  constructor() {
    this.key = keyField({
      role: "operator",
      label: "Operator key",
      hint: "ADMIN_KEY. It stays in this tab’s memory: a reload forgets it.",
      check: (key) => ask("/v1/gates", key),
    });
    this.trouble = h("p", { class: "fault", role: "status", hidden: true });
    this.figures = h("div", { class: "figures" });
    this.gates = h("div", { class: "column" });
    this.span = h(
      "select",
      { "aria-label": "How far back", onchange: () => this.#choose() },
      ...Object.entries(SPANS).map(([name, minutes]) => h("option", { value: minutes }, name)),
    );
    this.chart = h("div", { class: "chart" });
    this.causes = h("div");
    this.hours = h("div");
    this.jobs = h("p", { class: "lead-in" });
    this.content = h(
      "div",
      { class: "column", hidden: true },
      this.figures,
      card("Calls", this.span, [this.chart, this.causes]),
      card("Gates", undefined, [this.gates]),
      card("Jobs", undefined, [this.jobs]),
      card("Hours of the day", undefined, [this.hours]),
    );
    this.element = h(
      "section",
      { class: "view watch" },
      h("h1", {}, "Watch"),
      h("p", { class: "lead" }, "Is it the provider, or is it us?"),
      h("div", { class: "card slim" }, this.key.element),
      this.trouble,
      this.content,
    );
    keys.onChange((role) => role === "operator" && this.#look());
  }

  show() {
    this.#isShown = true;
    this.#look();
  }

  hide() {
    this.#isShown = false;
    clearTimeout(this.#timer);
  }

  #choose() {
    this.#minutes = Number(this.span.value);
    this.#look();
  }

  async #look() {
    clearTimeout(this.#timer);
    const key = keys.get("operator");
    this.content.hidden = key === undefined;
    if (key === undefined || !this.#isShown) return;
    try {
      const [report, { gates }] = await Promise.all([
        ask(`/v1/metrics?format=json&minutes=${this.#minutes}`, key),
        ask("/v1/gates", key),
      ]);
      this.#draw(report, gates);
      tell(this.trouble, undefined);
    } catch (error) {
      if (error.isKey) {
        this.key.refuse(error.message);
        return;
      }
      tell(this.trouble, `What is shown may be old: ${error.message}`);
    }
    clearTimeout(this.#timer);
    if (this.#isShown) this.#timer = setTimeout(() => this.#look(), EVERY_MS);
  }

  #draw(report, gates) {
    const { overload_rate, exposure, fallback_rate, dwell_p95_seconds, held_dwell_p95_seconds } = report.figures;
    this.figures.replaceChildren(
      share("529s among calls", overload_rate, "the provider’s load", "calls"),
      share("Users exposed", exposure, "objective: below 0.5 %", "users"),
      share("Another model", fallback_rate, "objective: at most 35 %", "answers"),
      dwell(dwell_p95_seconds, held_dwell_p95_seconds),
    );
    this.chart.replaceChildren(
      barChart(report.timeline, openPeriods(report), "Calls by how they ended", this.#minutes),
    );
    this.causes.replaceChildren(
      table(
        ["Model", "How it ended", "Calls, last hour"],
        report.calls
          .toSorted((a, b) => b.calls - a.calls)
          .map(({ model, cause, calls }) => [model, causeName(cause), calls.toLocaleString()]),
        "No calls in the last hour.",
      ),
    );
    this.gates.replaceChildren(...Object.entries(gates).map(gateCard));
    const { unfinished, success, first_try, calls_per_answer } = report;
    const waiting = ["high", "medium", "low"].map((it) => `${(unfinished[it] ?? 0).toLocaleString()} ${it}`);
    const parts = [`Not over: ${waiting.join(", ")}.`];
    if (success.value !== null) {
      parts.push(
        `In the last hour ${percent(success.value)} were done, ${percent(first_try.value ?? 0)} at the first call.`,
      );
    }
    if (calls_per_answer.value !== null) parts.push(`${calls_per_answer.value.toFixed(2)} calls for an answer.`);
    tell(this.jobs, parts.join(" "));
    this.hours.replaceChildren(
      table(
        ["Hour, UTC", "Days", "Calls", "Failed, half of the days", "p95", "p99"],
        report.hours_of_day.map(({ hour, days, calls, failed_p50, failed_p95, failed_p99 }) => [
          `${String(hour).padStart(2, "0")}:00`,
          days,
          calls.toLocaleString(),
          ...[failed_p50, failed_p95, failed_p99].map(percent),
        ]),
        "No calls yet.",
      ),
    );
  }
}

const percent = (value) => `${(value * 100).toLocaleString(undefined, { maximumFractionDigits: 2 })} %`;

function card(name, more, content) {
  return h("section", { class: "card" }, h("div", { class: "row apart head" }, h("h2", {}, name), more), ...content);
}

/** A figure is said in words too: a colour alone tells nothing to who cannot see it. */
const VERDICTS = { ok: "met", broken: "broken" };

function figure(name, value, note, state, basis) {
  return h(
    "section",
    { class: `card figure ${state}` },
    h("h2", {}, name),
    h("p", { class: "value" }, value, VERDICTS[state] && h("span", { class: "badge" }, VERDICTS[state])),
    h("p", { class: "hint" }, note),
    h("p", { class: "hint" }, basis),
  );
}

function share(name, { value, count, of, state }, note, what) {
  const basis =
    of === 0 ? `no ${what} in the last hour` : `${count.toLocaleString()} of ${of.toLocaleString()} ${what}`;
  return figure(name, value === null ? "–" : percent(value), note, state, basis);
}

function dwell({ at_most, of, state }, held) {
  const value = of === 0 ? "–" : at_most === null ? "over 4 h" : `≤ ${duration(at_most)}`;
  const apart = held.of > 0 ? `; ${held.of.toLocaleString()} were held, and are counted apart` : "";
  const basis = of === 0 ? "no first calls in the last hour" : `95 % of ${of.toLocaleString()} jobs${apart}`;
  return figure("Wait for the first call", value, "objective: below 25 s", state, basis);
}

function gateCard([model, gate]) {
  if (gate.error) return h("section", { class: "gate" }, h("h3", {}, model), h("p", { class: "fault" }, gate.error));
  const facts = [];
  if (gate.next_check_seconds != null) facts.push(`looks again in ${duration(gate.next_check_seconds)}`);
  if (gate.probe_in_flight) facts.push("one call is finding out");
  facts.push(`${gate.in_flight} of ${gate.in_flight_limit} calls in flight`, `${gate.held} jobs held`);
  if (gate.degraded) facts.push("degraded: who may leave does");
  for (const { reason, seconds_left, trying } of gate.holds ?? []) {
    facts.push(`${holdName(reason)}${trying ? ", one call tries" : `, ${duration(seconds_left)} left`}`);
  }
  const { override } = gate;
  return h(
    "section",
    { class: "gate" },
    h(
      "div",
      { class: "row" },
      h("h3", {}, model),
      h("span", { class: `badge ${gate.state}` }, gateStateName(gate.state)),
      gate.since_seconds != null ? h("span", { class: "hint" }, `for ${duration(gate.since_seconds)}`) : undefined,
    ),
    h("p", {}, `${facts.join(" · ")}.`),
    override
      ? h("p", { class: "note" }, `Forced ${override.state} by ${override.author}: ${override.note}`)
      : undefined,
    gate.history?.length > 0
      ? h(
          "details",
          {},
          h("summary", {}, "History"),
          h(
            "ol",
            {},
            ...gate.history.map(({ seconds_ago, from, to, why }) =>
              h(
                "li",
                {},
                `${duration(seconds_ago)} ago: ${gateStateName(from)} → ${gateStateName(to)} (${why.replaceAll("_", " ")})`,
              ),
            ),
          ),
        )
      : undefined,
  );
}

function table(heads, rows, nothing) {
  if (rows.length === 0) return h("p", { class: "hint" }, nothing);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": heads[0] },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell) => h("td", {}, String(cell)))))),
    ),
  );
}

/** When some gate was open, from the moves that the Meter has: pairs of moments. */
function openPeriods({ events, timeline, at }) {
  const begun = new Map();
  const periods = [];
  for (const { at: moment, event } of events) {
    if (event.event !== "gate_transition") continue;
    if (event.to === "closed") {
      const from = begun.get(event.model) ?? timeline.from;
      if (begun.delete(event.model) || event.from !== "closed") periods.push({ model: event.model, from, to: moment });
    } else if (!begun.has(event.model)) begun.set(event.model, event.from === "closed" ? moment : timeline.from);
  }
  for (const [model, from] of begun) periods.push({ model, from, to: at });
  return periods.map((period) => ({
    ...period,
    text: `${period.model}: open from ${moment(period.from)} to ${moment(period.to)}`,
  }));
}
