/** A part of a view, with its name above it. */
import { h } from "./dom.js";

/**
 * @param {string} name
 * @param {(Node | undefined)[]} content
 * @param {Node} [more] Stands beside the name.
 * @returns {{ element: HTMLElement, heading: HTMLElement }} The heading can be led to.
 */
export function card(name, content, more) {
  const heading = h("h2", { tabindex: "-1" }, name);
  const head = h("div", { class: "row apart head" }, heading, more);
  return { heading, element: h("section", { class: "card", "aria-label": name }, head, content) };
}
