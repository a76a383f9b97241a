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

/**
 * One of a few, all of them in sight; the first is chosen.
 *
 * @param {string} legend
 * @param {Record<string, string>} options Their texts by their values.
 * @param {() => void} [onChange]
 */
export function choice(legend, options, onChange) {
  const name = uniqueId("choice");
  const faultId = uniqueId("fault");
  const fault = h("p", { class: "fault", id: faultId, hidden: true });
  const inputs = Object.keys(options).map((value, n) =>
    h("input", { type: "radio", name, value, checked: n === 0, onchange: onChange }),
  );
  const group = h(
    "fieldset",
    { class: "field choice", role: "radiogroup", "aria-describedby": faultId },
    h("legend", {}, legend),
    h(
      "div",
      { class: "row" },
      inputs.map((input) => h("label", {}, input, options[input.value])),
    ),
    fault,
  );
  const chosen = () => inputs.find(({ checked }) => checked);
  return {
    element: group,
    get value() {
      return chosen().value;
    },
    refuse(message) {
      tell(fault, message && `It ${message}.`);
      if (message) group.setAttribute("aria-invalid", "true");
      else group.removeAttribute("aria-invalid");
      return chosen();
    },
  };
}
