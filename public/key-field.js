/** Asks for a key, tries it, and says whether it opens anything, before somebody has written a prompt for nothing. */
import { h, tell, uniqueId } from "./dom.js";
import { keys } from "./keys.js";

/**
 * @param {object} options
 * @param {import("./keys.js").Role} options.role
 * @param {string} options.label
 * @param {string} options.hint
 * @param {(key: string) => Promise<unknown>} options.check Asks the server something that only such a key is answered. What it
 *   rejects with is shown.
 * @returns {{ element: HTMLElement, refuse: (why: string) => void, take: () => Promise<boolean>, focus: () => void }} `take` is
 *   whether there is a key that opens something, asked anew if one was typed; `refuse` is for a key that has stopped to.
 */
export function keyField({ role, label, hint, check }) {
  const [inputId, hintId, faultId] = [uniqueId("key"), uniqueId("hint"), uniqueId("fault")];
  // Not "current-password", which a browser offers to keep.
  const input = h("input", {
    id: inputId,
    type: "password",
    autocomplete: "off",
    autocapitalize: "none",
    spellcheck: "false",
    "aria-describedby": `${faultId} ${hintId}`,
  });
  const button = h("button", { class: "quiet" }, "Use key");
  const fault = h("p", { class: "fault", id: faultId, role: "alert", hidden: true });
  const given = h("p", { class: "given", tabindex: "-1", hidden: true });
  const asked = h(
    "form",
    { class: "field", onsubmit: (event) => (event.preventDefault(), take()) },
    h("label", { for: inputId }, label),
    h("div", { class: "row" }, input, button),
    fault,
    h("p", { class: "hint", id: hintId }, hint),
  );

  let trying;

  function take() {
    trying ??= attempt().finally(() => (trying = undefined));
    return trying;
  }

  async function attempt() {
    const key = input.value.trim();
    if (key === "") {
      if (keys.get(role) === undefined) refuse(`Give the ${label.toLowerCase()} first.`);
      return keys.get(role) !== undefined;
    }
    // No header can hold another, and a browser's own words for that help nobody.
    if (!/^[\x21-\x7e]+$/.test(key)) {
      refuse("No key has such characters in it.");
      return false;
    }
    button.disabled = true;
    try {
      await check(key);
    } catch (error) {
      refuse(error.message);
      return false;
    } finally {
      button.disabled = false;
    }
    // The field is hidden then, and whoever was in it must not be lost.
    const wasHere = asked.contains(document.activeElement);
    input.value = "";
    tell(fault);
    keys.set(role, key);
    if (wasHere) given.focus();
    return true;
  }

  function refuse(why) {
    keys.set(role, undefined);
    tell(fault, why);
    input.setAttribute("aria-invalid", "true");
    input.focus();
  }

  function show() {
    const key = keys.get(role);
    asked.hidden = key !== undefined;
    given.hidden = key === undefined;
    if (key === undefined) return;
    input.removeAttribute("aria-invalid");
    // Enough to tell two keys apart, of a key that is long enough for that.
    const end = key.length >= 16 ? `, ending in ${key.slice(-4)}` : "";
    const forget = () => {
      keys.set(role, undefined);
      input.focus();
    };
    given.replaceChildren(
      h("span", {}, `${label} in use${end}`),
      h("button", { type: "button", class: "link", onclick: forget }, "Forget it"),
    );
  }

  keys.onChange((changed) => changed === role && show());
  show();
  // A key that is pasted and left is as good as one that is sent.
  input.addEventListener("change", () => input.value !== "" && take());
  return { element: h("div", {}, asked, given), refuse, take, focus: () => input.focus() };
}
