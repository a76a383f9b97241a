/** The fields that forms are made of: what the API says is wrong with one is shown at it. */
import { h, tell, uniqueId } from "./dom.js";

/**
 * An input with its label, a hint, and room for what is wrong with it.
 *
 * @param {string} label
 * @param {HTMLElement} input
 * @param {string} [hint]
 */
export function field(label, input, hint) {
  const [inputId, hintId, faultId] = [uniqueId("input"), uniqueId("hint"), uniqueId("fault")];
  const fault = h("p", { class: "fault", id: faultId, hidden: true });
  const explanation = hint && h("p", { class: "hint", id: hintId }, hint);
  input.id = inputId;
  input.setAttribute("aria-describedby", hint ? `${faultId} ${hintId}` : faultId);
  return {
    element: h("div", { class: "field" }, h("label", { for: inputId }, label), input, fault, explanation),
    explain: (text) => tell(explanation, text),
    refuse(message) {
      tell(fault, message && `It ${message}.`);
      if (message) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
      return input;
    },
  };
}
