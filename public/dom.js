/** The least that a page without a framework needs to make elements. Text is always text: nothing here parses HTML. */

/**
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes] `onclick` and its like are listeners; `true` is an attribute without a value, and
 *   `false` or nothing is none. No `style`: the Content-Security-Policy forbids it.
 * @param {...(Node | string | undefined | (Node | string | undefined)[])} children
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== undefined));
  return element;
}

/** Shows a text, or, where there is none, no element. The same text again is left alone, selection and screen readers with it. */
export function tell(element, text) {
  element.hidden = !text;
  if (element.textContent !== (text ?? "")) element.textContent = text ?? "";
}

let made = 0;

/** For `for`, `aria-describedby` and their like. */
export const uniqueId = (what) => `${what}-${++made}`;
