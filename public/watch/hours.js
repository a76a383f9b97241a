/**
 * How bad each hour of the day is (B13): a map of days against hours, and under it what half of the days, and the bad ones, come to.
 *
 * The map is a grid for assistive technology, too: one stop for Tab, arrows from cell to cell, each with its words; whoever points or
 * moves there reads the same below it. Colour is not alone: a cell has its percentage as text where there is room, and the worst
 * hour is said in a sentence.
 */
import { h, tell } from "../dom.js";
import { count, number, percent } from "../numbers.js";
import { swap } from "../swap.js";
import { scrollingTable } from "../tables.js";

const MOST_DAYS = 60;
const HOUR_MS = 3_600_000;
/** Up to which share of failed calls a cell is of which level; above the last one it is of the next. */
const LEVELS = [0, 0.02, 0.1, 0.3, 0.6];
const LEVEL_NAMES = ["none failed", "up to 2 %", "to 10 %", "to 30 %", "to 60 %", "more"];

const clock = (hour) => `${String(hour).padStart(2, "0")}:00`;
const dayName = (day) =>
  new Date(day * 24 * HOUR_MS).toLocaleDateString(undefined, { timeZone: "UTC", day: "numeric", month: "short" });

export class HoursOfDay {
  #drawn;
  /** The cell that Tab leads to: its day and its hour. */
  #at;

  constructor() {
    this.worst = h("p", {});
    this.map = h("div", { class: "heat" });
    this.reading = h("p", { class: "hint" });
    this.table = h("div");
    const legend = LEVEL_NAMES.map((name, level) => h("li", { class: `level-${level}` }, name));
    this.legend = h("ul", { class: "legend" }, h("li", { class: "level-none" }, "no calls"), legend);
    const numbers = h("details", {}, h("summary", {}, "Half of the days, and the bad ones"), this.table);
    this.element = h("div", {}, this.worst, this.map, this.reading, this.legend, numbers);
    for (const event of ["pointerover", "click", "focusin"]) {
      this.map.addEventListener(event, ({ target }) => this.#read(target.closest("td")));
    }
    this.map.addEventListener("keydown", (event) => this.#move(event));
  }

  /** @param {object} report The JSON of GET /v1/metrics. */
  show({ hours, hours_of_day, at }) {
    const key = JSON.stringify([hours, hours_of_day]);
    if (key === this.#drawn) return;
    this.#drawn = key;
    tell(this.worst, worst(hours_of_day));
    this.#draw(byDay(hours, at));
    swap(
      this.table,
      scrollingTable(
        ["Hour, UTC", "Days", "Calls", "Failed, half of the days", "p95", "p99"],
        hours_of_day.map(({ hour, days, calls, failed_p50, failed_p95, failed_p99 }) => [
          clock(hour),
          days,
          calls.toLocaleString(),
          ...[failed_p50, failed_p95, failed_p99].map(percent),
        ]),
        "No calls yet.",
      ),
    );
  }

  #draw(days) {
    const isFocused = this.map.contains(document.activeElement);
    const heads = Array.from({ length: 24 }, (_, hour) =>
      h("th", { scope: "col", class: hour % 6 === 0 ? "marked" : "" }, h("abbr", { title: clock(hour) }, String(hour))),
    );
    const rows = days.map(({ day, cells }) =>
      h("tr", {}, h("th", { scope: "row" }, dayName(day)), ...cells.map((cell, hour) => drawCell(day, hour, cell))),
    );
    this.map.replaceChildren(
      h(
        "table",
        { role: "grid", "aria-label": "Failed calls by day and hour, UTC", "aria-readonly": "true" },
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "UTC"), ...heads)),
        h("tbody", {}, ...rows),
      ),
    );
    const cell = this.#cell(this.#at) ?? this.map.querySelector("tbody tr td:last-of-type");
    if (!cell) return;
    cell.tabIndex = 0;
    if (isFocused) cell.focus({ preventScroll: true });
    else tell(this.reading, "Point at an hour, or move there with the arrow keys, to read it.");
  }

  #cell(at) {
    return at && this.map.querySelector(`td[data-day="${at[0]}"][data-hour="${at[1]}"]`);
  }

  #read(cell) {
    if (cell) tell(this.reading, cell.getAttribute("aria-label"));
  }

  #move(event) {
    const cell = event.target.closest("td");
    const row = cell?.parentElement;
    const next = {
      ArrowLeft: () => cell.previousElementSibling,
      ArrowRight: () => cell.nextElementSibling,
      ArrowUp: () => row.previousElementSibling?.children[cell.cellIndex],
      ArrowDown: () => row.nextElementSibling?.children[cell.cellIndex],
      Home: () => row.children[1],
      End: () => row.lastElementChild,
    }[event.key];
    if (!cell || !next) return;
    event.preventDefault();
    const to = next();
    if (to?.tagName !== "TD") return;
    cell.tabIndex = -1;
    to.tabIndex = 0;
    this.#at = [to.dataset.day, to.dataset.hour];
    to.focus();
  }
}

function drawCell(day, hour, { calls, failed }) {
  const when = `${dayName(day)}, ${clock(hour)} UTC`;
  const share = calls === 0 ? undefined : failed / calls;
  const found = LEVELS.findIndex((most) => share <= most);
  const level = share === undefined ? "none" : found < 0 ? LEVELS.length : found;
  const said =
    share === undefined ? "no calls" : `${count(failed, "call")} of ${number(calls)} failed, ${percent(share)}`;
  return h("td", {
    class: `level-${level}`,
    tabindex: "-1",
    "data-day": day,
    "data-hour": hour,
    "aria-label": `${when}: ${said}`,
    title: `${when}: ${said}`,
    // Shown by the style sheet where there is room: as text it would have to be part of the name.
    "data-share": share > 0 && Math.max(1, Math.round(share * 100)),
  });
}

/** The days that there are, the latest first, each with 24 hours; those before the first call and to come are without. */
function byDay({ from, calls, failed }, at) {
  const first = Math.floor(Date.parse(from) / HOUR_MS);
  const today = Math.floor(Date.parse(at) / HOUR_MS / 24);
  const since = Math.max(Math.floor(first / 24), today - MOST_DAYS + 1);
  return Array.from({ length: today - since + 1 }, (_, back) => {
    const day = today - back;
    const cell = (hour) => ({
      calls: calls[day * 24 + hour - first] ?? 0,
      failed: failed[day * 24 + hour - first] ?? 0,
    });
    return { day, cells: Array.from({ length: 24 }, (_, hour) => cell(hour)) };
  });
}

/** @param {object[]} hours Those of the day that have had calls. */
function worst(hours) {
  if (hours.length === 0) return "No calls yet.";
  const [bad] = hours.toSorted((a, b) => b.failed_p50 - a.failed_p50 || b.failed_p99 - a.failed_p99);
  const { hour, days, failed_p50, failed_p99 } = bad;
  if (failed_p99 === 0) return "No call has failed in any hour.";
  if (days === 1) return `Worst: ${clock(hour)} UTC, on its only day ${percent(failed_p50)} of the calls failed.`;
  const half = `On half of its ${days} days at most ${percent(failed_p50)} of the calls failed`;
  // Of sixty days at most, the 99th percentile is the worst.
  return `Worst: ${clock(hour)} UTC. ${half}, on the worst day ${percent(failed_p99)}.`;
}
