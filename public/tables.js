/** Tables, and the facts of one thing, which are a table of two columns to the eye. */
import { h } from "./dom.js";

/** @typedef {string | number | Node | (string | Node)[]} Cell */

/**
 * @param {string[]} heads
 * @param {Cell[][]} rows
 * @param {{ named?: boolean }} [options] `named`: the first cell of a row is its name.
 */
export function table(heads, rows, { named = false } = {}) {
  const cell = (content, at) => (named && at === 0 ? h("th", { scope: "row" }, content) : h("td", {}, content));
  return h(
    "table",
    {},
    h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map(cell)))),
  );
}

/** One that scrolls by itself where there is no room for it; without a row, `nothing` is said. */
export function scrollingTable(heads, rows, nothing) {
  if (rows.length === 0) return h("p", { class: "hint" }, nothing);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": heads.join(", ") },
    table(heads, rows),
  );
}

/** @param {[string, Cell | undefined | false | null][]} all By their names; one without a value is left out. */
export const facts = (all) =>
  h(
    "dl",
    { class: "facts" },
    all.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
