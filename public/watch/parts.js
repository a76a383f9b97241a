/** What the parts of Watch share: asking as the operator, cards, tables, and bringing what is shown up to date under its reader's eyes. */
import { h } from "../dom.js";
import { duration } from "../time.js";

/**
 * What the operator is answered. It rejects with `status`, and with `isKey` if the key is to blame. Nothing of it is kept by the
 * browser: with the client's key the same address is answered otherwise.
 *
 * @param {string} path @param {string} key @param {AbortSignal} [signal]
 */
export async function ask(path, key, signal) {
  const headers = { authorization: `Bearer ${key}`, accept: "application/json" };
  const response = await fetch(path, { headers, signal, cache: "no-store" });
  const body = await response.json().catch(() => undefined);
  if (response.ok) return body;
  const { status } = response;
  throw Object.assign(new Error(body?.error?.message ?? `The server answered ${status}.`), {
    status,
    isKey: status === 401 || status === 403,
  });
}

export const UNKNOWN = "There is no job with this id: there never was, or it has been erased, or its time is over.";
export const percent = (value) => `${(value * 100).toLocaleString(undefined, { maximumFractionDigits: 2 })} %`;
export const number = (value) => value.toLocaleString();
export const count = (value, one, more = `${one}s`) => `${number(value)} ${value === 1 ? one : more}`;
/** A duration to the hundredth of a second where that is much of it. */
export const seconds = (ms) =>
  ms < 10_000 ? `${(ms / 1000).toLocaleString(undefined, { maximumFractionDigits: 2 })} s` : duration(ms / 1000);
export const sum = (values) => values.reduce((all, value) => all + value, 0);

export function card(name, more, ...content) {
  return h(
    "section",
    { class: "card", "aria-label": name },
    h("div", { class: "row apart head" }, h("h2", {}, name), more),
    ...content,
  );
}

export function table(heads, rows, nothing) {
  if (rows.length === 0) return h("p", { class: "hint" }, nothing);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": heads.join(", ") },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell) => h("td", {}, String(cell)))))),
    ),
  );
}

/**
 * Puts elements into a container in the place of those that are there. What is the same is left alone, and what its reader has done
 * stays done: what was unfolded, how far it was scrolled, where the focus is.
 */
export function swap(container, ...nodes) {
  const fresh = nodes.flat().filter((node) => node !== undefined);
  fresh.forEach((node, at) => {
    const old = container.children[at];
    if (!old) {
      container.append(node);
      return;
    }
    const scrolled = carry(old, node);
    if (old.isEqualNode(node)) return;
    const path = pathTo(old, document.activeElement);
    old.replaceWith(node);
    for (const [element, left] of scrolled) element.scrollLeft = left;
    path?.reduce((element, index) => element?.children[index], node)?.focus({ preventScroll: true });
  });
  while (container.children.length > fresh.length) container.lastElementChild.remove();
}

/** Unfolds what was unfolded. What was scrolled has to be in the document for that. */
function carry(old, node) {
  if (old.tagName !== node.tagName) return [];
  if (old.open) node.open = true;
  const below = [...node.children].flatMap((child, at) => (old.children[at] ? carry(old.children[at], child) : []));
  return old.scrollLeft > 0 ? [[node, old.scrollLeft], ...below] : below;
}

function pathTo(ancestor, element) {
  if (!ancestor.contains(element)) return undefined;
  const path = [];
  for (let at = element; at !== ancestor; at = at.parentElement)
    path.unshift([...at.parentElement.children].indexOf(at));
  return path;
}
