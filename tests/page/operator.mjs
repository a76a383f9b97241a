/** What the tests of the operator's views share: their key, and what the Worker says, in the page's words. */
import { eventually, KEYS } from "../e2e/harness.mjs";

export async function giveOperatorKey(page, key = KEYS.operator) {
  await page.getByLabel("Operator key").fill(key);
  await page.getByRole("button", { name: "Use key" }).click();
}

/** Opens Watch, and waits until it shows something. */
export async function watch(page) {
  await giveOperatorKey(page);
  await page.locator(".figure").first().waitFor();
}

export async function report(spillway, minutes = 60) {
  const { body } = await spillway.request(`/v1/metrics?format=json&minutes=${minutes}`, { as: "operator" });
  return body;
}

const number = (value) => value.toLocaleString("en-GB");
const percent = (value) => `${(value * 100).toLocaleString("en-GB", { maximumFractionDigits: 2 })} %`;
const sum = (values) => values.reduce((all, value) => all + value, 0);

/** The figures of a report as the page has to show them. */
export function figuresOf({ figures, calls, unfinished, timeline, hours_of_day, ...more }) {
  const { overload_rate, exposure, fallback_rate, dwell_p95_seconds, held_dwell_p95_seconds: held } = figures;
  const { success, first_try, calls_per_answer } = more;
  const done = success.of > 0 && [percent(success.value), percent(first_try.value ?? 0)];
  const share = ({ value, count, of }, what) =>
    of === 0 ? `– no ${what} in the last hour` : `${percent(value)} ${number(count)} of ${number(of)} ${what}`;
  const cells = hours_of_day.map(({ hour, days, calls, failed_p50, failed_p95, failed_p99 }) =>
    [
      `${String(hour).padStart(2, "0")}:00`,
      days,
      number(calls),
      ...[failed_p50, failed_p95, failed_p99].map(percent),
    ].join(),
  );
  return {
    overloads: share(overload_rate, "calls"),
    exposed: share(exposure, "users"),
    other: share(fallback_rate, "answers"),
    verdicts: [exposure, fallback_rate, dwell_p95_seconds].map(({ state }) => state),
    dwell: [dwell_p95_seconds.of && dwell_p95_seconds.at_most, dwell_p95_seconds.of],
    held: held.of > 0 && [held.at_most, held.of],
    done,
    perAnswer: calls_per_answer.of > 0 && calls_per_answer.value.toFixed(2),
    causes: calls.map(({ model, cause, calls }) => [model, cause.replaceAll("_", " "), number(calls)].join()).sort(),
    bars: sum(timeline.calls.flatMap(({ values }) => values)),
    unfinished: [unfinished.high, unfinished.medium, unfinished.low],
    depth: timeline.unfinished,
    came: timeline.submitted,
    ended: timeline.finished,
    hours: cells,
  };
}

/** The same, read off the page. */
export function figuresShown(page) {
  return page.evaluate(() => {
    const all = (selector) => [...document.querySelectorAll(selector)];
    const [overloads, exposed, other, dwell] = all(".figure").map((figure) => {
      const value = figure.querySelector(".value").firstChild.textContent;
      const basis = figure.querySelector(".hint:last-child").textContent;
      const state = ["ok", "broken", "unknown"].find((state) => figure.classList.contains(state));
      return { text: `${value} ${basis}`, value, basis, state };
    });
    const rows = (table) =>
      [...table.querySelectorAll("tbody tr")].map((row) => [...row.cells].map((cell) => cell.textContent).join());
    const tables = all(".watch .scroll table");
    const table = (head) => tables.find((table) => table.textContent.startsWith(head));
    /** A line's values, from where there is data on; a picture is 160 high, of which 152 are the highest value. */
    const values = (name, most) => {
      const steps = [
        ...document
          .querySelector(`.${name}.line`)
          .getAttribute("d")
          .matchAll(/[ML][\d.]+ ([\d.]+)H/g),
      ];
      return steps.map(([, y]) => Math.round(((160 - Number(y)) / 152) * most));
    };
    const said = document.body.textContent;
    const seconds = (text) =>
      [...text.matchAll(/([\d.]+) (s|min|h)/g)].reduce(
        (all, [, n, unit]) => all + n * { s: 1, min: 60, h: 3600 }[unit],
        0,
      );
    const found = (pattern) => said.match(pattern)?.slice(1) ?? false;
    const heldApart = dwell.basis.match(/; ≤ (.*) for (\d+) that were held/) ?? false;
    const most = Number(
      document.querySelector(".depth.area").closest("figure").querySelector(".scale").textContent.match(/\d+/)[0],
    );
    return {
      overloads: overloads.text,
      exposed: exposed.text,
      other: other.text,
      verdicts: [exposed, other, dwell].map(({ state }) => state),
      dwell: dwell.value === "–" ? [0, 0] : [seconds(dwell.value), Number(dwell.basis.match(/of (\d+) jobs/)[1])],
      held: heldApart && [seconds(heldApart[1]), Number(heldApart[2])],
      done: found(/In the last hour (.*?) were done, (.*?) at the first call\./),
      perAnswer: found(/([\d.]+) calls for an answer\./)[0] ?? false,
      causes: table("Model") ? rows(table("Model")).sort() : [],
      bars: all(".bar title").reduce((sum, title) => sum + Number(title.textContent.match(/: (\d+)/)[1]), 0),
      unfinished: said
        .match(/Not over: (\d+) high, (\d+) medium, (\d+) low/)
        .slice(1)
        .map(Number),
      depth: values("depth", most),
      came: values("came", most),
      ended: values("ended", most),
      hours: table("Hour, UTC") ? rows(table("Hour, UTC")) : [],
    };
  });
}

/** Resolves with the Worker's report as soon as the page shows every figure of it; what it did not, if it does not come to that. */
export async function untilItAgrees(page, spillway) {
  let differences;
  const agrees = async () => {
    const now = await report(spillway);
    const [expected, shown] = [figuresOf(now), await figuresShown(page)];
    // What is before the first event is as if it were of it.
    for (const line of ["depth", "came", "ended"]) shown[line] = shown[line].slice(-expected[line].length);
    differences = Object.keys(expected).filter((key) => JSON.stringify(expected[key]) !== JSON.stringify(shown[key]));
    differences = differences.map(
      (key) => `${key}: ${JSON.stringify(expected[key])}, shown ${JSON.stringify(shown[key])}`,
    );
    return differences.length === 0 && now;
  };
  return eventually(agrees).catch(() => {
    throw new Error(`the page does not show what the Worker says: ${differences.join("\n")}`);
  });
}
