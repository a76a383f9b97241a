/** Each gate with its state, how long it will be so, what holds it, who forced it, and its last moves. */
import { h } from "../dom.js";
import { count } from "../numbers.js";
import { age, countdown } from "../ticking.js";
import { moment } from "../time.js";
import { gateStateName, holdName } from "../words.js";

/** @param {Record<string, object>} gates Those of GET /v1/gates. @returns {Node[]} */
export function gateCards(gates) {
  const cards = Object.entries(gates).map(gateCard);
  return cards.length > 0 ? cards : [h("p", { class: "hint" }, "No model has been called yet.")];
}

function gateCard([model, gate]) {
  if (gate.error) return h("section", { class: "gate" }, h("h3", {}, model), h("p", { class: "fault" }, gate.error));
  const { state, since_seconds, next_check_seconds, in_flight, in_flight_limit, held, override, history } = gate;
  const facts = [
    next_check_seconds != null && ["looks again in ", countdown(next_check_seconds)],
    gate.probe_in_flight && ["one call is finding out"],
    [`${in_flight} of ${count(in_flight_limit, "call")} in flight`],
    [`${count(held, "job")} held`],
    gate.degraded && ["degraded: who may leave does"],
    ...(gate.holds ?? []).map(({ reason, seconds_left, trying }) =>
      trying ? [`${holdName(reason)}, one call tries`] : [`${holdName(reason)}, `, countdown(seconds_left), " left"],
    ),
  ].filter(Boolean);
  return h(
    "section",
    { class: "gate" },
    h(
      "div",
      { class: "row" },
      h("h3", {}, model),
      h("span", { class: `badge ${state}` }, gateStateName(state)),
      since_seconds != null ? h("span", { class: "hint" }, "for ", age(since_seconds)) : undefined,
    ),
    h("p", {}, ...facts.flatMap((fact, at) => (at === 0 ? fact : [" · ", ...fact])), "."),
    override ? forced(override) : undefined,
    history?.length > 0 ? moves(history) : undefined,
  );
}

const forced = ({ state, author, note, seconds_left }) =>
  h("p", { class: "note" }, `Forced ${state} by ${author}, `, countdown(seconds_left), ` left: ${note}`);

function moves(history) {
  const move = ({ seconds_ago, from, to, why }) =>
    h("li", {}, age(seconds_ago), ` ago: ${gateStateName(from)} → ${gateStateName(to)} (${why.replaceAll("_", " ")})`);
  return h("details", {}, h("summary", {}, "History"), h("ol", {}, ...history.map(move)));
}

/** When some gate was open, from the moves that the Meter has: pairs of moments. */
export function openPeriods({ events, timeline, at }) {
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
