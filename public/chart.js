/**
 * What happened over time, as SVG: how calls ended, as stacked bars, and how many jobs were not over, as an area; with the times
 * shaded in which a gate was open. A library for these pictures would be larger than the page.
 *
 * Each is a picture with a name, and what it shows is beside it as text or as a table: nobody has to see it. It is as wide as there
 * is room, and its words are not part of the drawing, or a phone would show them at half their size.
 */
import { h } from "./dom.js";
import { count, number, sum } from "./numbers.js";
import { moment } from "./time.js";
import { causeName } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [720, 160];
/** The highest bar leaves so much free. */
const HEADROOM = 8;

/** From the bottom up; what has no place of its own is "other". */
const GROUPS = ["answered", "overloaded", "rate_limited", "other"];
const groupOf = (cause) => (GROUPS.includes(cause) ? cause : "other");

/** @typedef {{ from: string, to: string, text: string }} Period A gate was open. */

/**
 * @param {{ from: string, step_seconds: number, calls: { cause: string, values: number[] }[], submitted: number[] }} timeline
 * @param {Period[]} periods
 * @param {number} minutes How far back it goes.
 */
export function barChart(timeline, periods, minutes) {
  const axis = axisOf(timeline, minutes);
  const sums = Object.fromEntries(GROUPS.map((group) => [group, new Array(axis.count).fill(0)]));
  for (const { cause, values } of timeline.calls) {
    values.forEach((value, at) => (sums[groupOf(cause)][axis.empty + at] += value));
  }
  const most = Math.max(1, ...sums.answered.map((_, at) => sum(GROUPS.map((group) => sums[group][at]))));
  const picture = drawing("Calls by how they ended", axis, periods);
  for (let at = 0; at < axis.count; at += 1) {
    let top = HEIGHT;
    for (const group of GROUPS) {
      const value = sums[group][at];
      if (value === 0) continue;
      const height = (value / most) * (HEIGHT - HEADROOM);
      top -= height;
      const bar = { class: `bar ${group}`, x: at * axis.slot, y: top, width: Math.max(1, axis.slot - 1), height };
      picture.append(s("rect", bar, s("title", {}, `${axis.when(at)}: ${value} ${causeName(group)}`)));
    }
  }
  const legend = GROUPS.map((group) => [group, causeName(group)]);
  return figure(picture, axis, `${number(most)} in ${axis.step}`, legend, periods);
}

/**
 * @param {{ from: string, step_seconds: number, submitted: number[], finished: number[], unfinished: number[] }} timeline
 * @param {Period[]} periods
 * @param {number} minutes How far back it goes.
 */
export function depthChart(timeline, periods, minutes) {
  const axis = axisOf(timeline, minutes);
  const { submitted, finished, unfinished } = timeline;
  // Before the first point nothing has moved.
  const before = (unfinished[0] ?? 0) + (finished[0] ?? 0) - (submitted[0] ?? 0);
  const padded = (values, value) => [...new Array(axis.empty).fill(Math.max(0, value)), ...values];
  const lines = [
    ["depth", padded(unfinished, before), "not over"],
    ["came", padded(submitted, 0), `came in, in ${axis.step}`],
    ["ended", padded(finished, 0), `ended, in ${axis.step}`],
  ];
  const most = Math.max(1, ...lines.flatMap(([, values]) => values));
  const y = (value) => HEIGHT - (value / most) * (HEIGHT - HEADROOM);
  const picture = drawing("Jobs that are not over, and how many came in and ended", axis, periods);
  for (const [name, values] of lines) {
    const steps = values.map((value, at) => `L${at * axis.slot} ${y(value)}H${(at + 1) * axis.slot}`).join("");
    if (name === "depth") {
      const area = s("path", { class: "depth area", d: `M0 ${HEIGHT}${steps}V${HEIGHT}Z` });
      area.append(s("title", {}, "Jobs that are not over"));
      picture.append(area);
    }
    picture.append(s("path", { class: `${name} line`, d: `M${steps.slice(1)}` }));
  }
  const legend = lines.map(([name, , text]) => [name, text]);
  return figure(picture, axis, count(most, "job"), legend, periods);
}

function axisOf({ from, step_seconds, submitted }, minutes) {
  // A deployment that is younger than what is asked for has nothing to show of before.
  const slots = Math.max(submitted.length, Math.ceil((minutes * 60) / step_seconds));
  const empty = slots - submitted.length;
  const begin = Date.parse(from) - empty * step_seconds * 1000;
  const slot = WIDTH / slots;
  return {
    count: slots,
    empty,
    slot,
    step: `${step_seconds / 60} min`,
    when: (at) => moment(new Date(begin + at * step_seconds * 1000).toISOString()),
    x: (at) => Math.min(WIDTH, Math.max(0, ((Date.parse(at) - begin) / 1000 / step_seconds) * slot)),
  };
}

function drawing(name, axis, periods) {
  const picture = s("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": name,
  });
  for (const period of periods) {
    const [left, right] = [axis.x(period.from), axis.x(period.to)];
    const shade = { class: "shade", x: left, y: 0, width: Math.max(2, right - left), height: HEIGHT };
    picture.append(s("rect", shade, s("title", {}, period.text)));
  }
  return picture;
}

function figure(picture, axis, most, legend, periods) {
  const shown = periods.length > 0 ? [...legend, ["shut", "a gate shut"]] : legend;
  return h(
    "figure",
    {},
    h("p", { class: "scale" }, most),
    picture,
    h("p", { class: "scale row apart" }, h("span", {}, axis.when(0)), h("span", {}, axis.when(axis.count))),
    h("ul", { class: "legend" }, ...shown.map(([name, text]) => h("li", { class: name }, text))),
  );
}

function s(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
