/**
 * Stacked bars over time, as SVG: how calls ended, minute by minute, with the times shaded in which a gate was open. A library for
 * this one picture would be larger than the page.
 *
 * It is a picture with a name, and the numbers behind it are in a table below: nobody has to see it.
 */
import { moment } from "./time.js";
import { causeName } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, BASE] = [720, 180, 160];

/** From the bottom up; what has no place of its own is "other". */
const GROUPS = ["answered", "overloaded", "rate_limited", "other"];
const groupOf = (cause) => (GROUPS.includes(cause) ? cause : "other");

function s(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/**
 * @param {{ from: string, step_seconds: number, calls: { cause: string, values: number[] }[] }} timeline
 * @param {{ from: string, to: string, text: string }[]} periods
 * @param {string} name
 * @param {number} minutes How far back it goes.
 */
export function barChart({ from, step_seconds, calls, submitted }, periods, name, minutes) {
  // A deployment that is younger than what is asked for has nothing to show of before.
  const count = Math.max(submitted.length, Math.ceil((minutes * 60) / step_seconds));
  const empty = count - submitted.length;
  const sums = Object.fromEntries(GROUPS.map((group) => [group, new Array(count).fill(0)]));
  for (const { cause, values } of calls) values.forEach((value, at) => (sums[groupOf(cause)][empty + at] += value));
  const most = Math.max(1, ...sums.answered.map((_, at) => GROUPS.reduce((sum, group) => sum + sums[group][at], 0)));
  const begin = Date.parse(from) - empty * step_seconds * 1000;
  const slot = WIDTH / count;
  const x = (at) => Math.min(WIDTH, Math.max(0, ((Date.parse(at) - begin) / 1000 / step_seconds) * slot));
  const picture = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": name });
  for (const period of periods) {
    const [left, right] = [x(period.from), x(period.to)];
    const shade = { class: "shade", x: left, y: 0, width: Math.max(1, right - left), height: BASE };
    picture.append(s("rect", shade, s("title", {}, period.text)));
  }
  for (let at = 0; at < count; at += 1) {
    let top = BASE;
    for (const group of GROUPS) {
      const value = sums[group][at];
      if (value === 0) continue;
      const height = (value / most) * (BASE - 14);
      top -= height;
      const bar = { class: `bar ${group}`, x: at * slot, y: top, width: Math.max(1, slot - 1), height };
      const when = moment(new Date(begin + at * step_seconds * 1000).toISOString());
      picture.append(s("rect", bar, s("title", {}, `${when}: ${value} ${causeName(group)}`)));
    }
  }
  const end = new Date(begin + count * step_seconds * 1000).toISOString();
  picture.append(
    s("line", { class: "axis", x1: 0, y1: BASE, x2: WIDTH, y2: BASE }),
    s("text", { x: 0, y: 10 }, `${most} in ${step_seconds / 60} min`),
    s("text", { x: 0, y: HEIGHT - 4 }, moment(new Date(begin).toISOString())),
    s("text", { x: WIDTH, y: HEIGHT - 4, "text-anchor": "end" }, moment(end)),
  );
  const legend = document.createElement("ul");
  legend.className = "legend";
  for (const group of GROUPS) {
    const item = document.createElement("li");
    item.className = group;
    item.textContent = causeName(group);
    legend.append(item);
  }
  const figure = document.createElement("figure");
  figure.append(picture, legend);
  return figure;
}
