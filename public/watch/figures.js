/** The four figures with their objectives. A figure is said in words too: a colour alone tells nothing to who cannot see it. */
import { h } from "../dom.js";
import { number, percent } from "../numbers.js";
import { exactDuration } from "../time.js";

/** @param {object} figures Those of GET /v1/metrics. */
export function figures({ overload_rate, exposure, fallback_rate, dwell_p95_seconds, held_dwell_p95_seconds }) {
  return [
    share("529s among calls", overload_rate, "the provider’s load", "calls"),
    share("Users exposed", exposure, "objective: below 0.5 %", "users"),
    share("Another model", fallback_rate, "objective: at most 35 %", "answers"),
    dwell(dwell_p95_seconds, held_dwell_p95_seconds),
  ];
}

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
  const basis = of === 0 ? `no ${what} in the last hour` : `${number(count)} of ${number(of)} ${what}`;
  return figure(name, value === null ? "–" : percent(value), note, state, basis);
}

const atMost = ({ at_most, of }) =>
  of === 0 ? "–" : at_most === null ? "over 4 h" : `≤ ${exactDuration(at_most * 1000)}`;

function dwell(free, held) {
  const apart = held.of > 0 ? `; ${atMost(held)} for ${number(held.of)} that were held` : "";
  const basis = free.of === 0 ? "no first calls in the last hour" : `95 % of ${number(free.of)} jobs`;
  return figure("Wait for the first call", atMost(free), "objective: below 25 s", free.state, basis + apart);
}
