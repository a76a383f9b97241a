/**
 * A form that turns a knob: its fields, then what it will do and one question, and only then is it sent, once. What is wrong comes
 * back to the fields, and what was typed is still in them. Without fields it is a button with a question.
 */
import { h, tell, uniqueId } from "../dom.js";

/**
 * @param {object} options
 * @param {string} options.name What its button says.
 * @param {object} [options.fields] By the places that the API names. One without an element is elsewhere on the page.
 * @param {string} [options.look] The button's class.
 * @param {() => object} options.plan Answers `question`, `consequences`, `yes`, and `act`, which does it, and answers what to say of
 *   it. What either of them rejects with is shown.
 * @param {(why: string) => void} options.onRefusedKey
 */
export function action({ name, fields = {}, look = "main", plan, onRefusedKey }) {
  const fault = h("div", { class: "fault", role: "alert", tabindex: "-1", hidden: true });
  const said = h("p", { class: "said", role: "status", tabindex: "-1", hidden: true });
  const button = h("button", { class: look }, `${name} …`);
  const form = h(
    "form",
    { novalidate: true, "aria-label": name, onsubmit: (event) => (event.preventDefault(), once(ponder)) },
    Object.values(fields).map(({ element }) => element),
    fault,
    button,
    said,
  );
  const question = h("h3", { id: uniqueId("question"), tabindex: "-1" });
  const consequences = h("ul");
  // The second half of a double click on what asked is no answer.
  const answer = ({ detail }) => detail < 2 && once(act);
  const yes = h("button", { type: "button", class: "main", onclick: answer });
  const no = h("button", { type: "button", class: "quiet", onclick: () => !isBusy && back() }, "No, go back");
  const asked = h(
    "div",
    {
      class: "confirm",
      role: "group",
      "aria-labelledby": question.id,
      hidden: true,
      onkeydown: ({ key }) => key === "Escape" && !isBusy && back(),
    },
    question,
    consequences,
    h("div", { class: "row" }, yes, no),
  );

  let isBusy = false;
  let planned;

  /** A second click while the first one's request is under way does nothing. */
  async function once(step) {
    if (isBusy) return;
    isBusy = true;
    for (const each of [button, yes, no]) each.ariaDisabled = "true";
    tell(fault, "");
    try {
      await step();
    } catch (error) {
      refuse(error);
    } finally {
      isBusy = false;
      for (const each of [button, yes, no]) each.ariaDisabled = null;
    }
  }

  async function ponder() {
    tell(said, "");
    for (const { refuse } of Object.values(fields)) refuse("");
    planned = await plan();
    tell(question, planned.question);
    consequences.replaceChildren(...planned.consequences.map((text) => h("li", {}, text)));
    tell(yes, planned.yes);
    turn(true);
    question.focus();
  }

  async function act() {
    const text = await planned.act();
    // What was done may have led elsewhere.
    const isHere = asked.contains(document.activeElement);
    turn(false);
    tell(said, text);
    if (isHere) (text ? said : button).focus();
  }

  function back() {
    turn(false);
    button.focus();
  }

  function turn(isAsking) {
    asked.hidden = !isAsking;
    form.hidden = isAsking;
  }

  function refuse(error) {
    turn(false);
    if (error.isKey) {
      onRefusedKey(error.message);
      return;
    }
    const refused = [];
    const others = [];
    for (const { place, message } of error.problems ?? []) {
      if (fields[place]) refused.push(fields[place].refuse(message));
      else others.push(`${place} ${message}`);
    }
    const isBefore = (a, b) => a.compareDocumentPosition(b) & Node.DOCUMENT_POSITION_FOLLOWING;
    const [first] = refused.sort((a, b) => (isBefore(a, b) ? -1 : 1));
    tell(fault, first ? others.join(". ") : error.message);
    (first ?? fault).focus();
  }

  return { element: h("div", { class: "action" }, form, asked) };
}
