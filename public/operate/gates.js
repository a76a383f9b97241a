/** Forcing a gate (B11): what each is at now, the form, and what is in force of it. */
import { card } from "../card.js";
import { h } from "../dom.js";
import { choice, field } from "../field.js";
import { gateStateName } from "../words.js";
import { stamped } from "./in-force.js";
import { orderForm } from "./order.js";

const CONSEQUENCES = {
  open: (model) => [
    `Nobody calls ${model}, not even to find out whether it is back. Calls on their way are finished.`,
    "Jobs and callers wait, or have the fallback if their kind allows it. Nothing is lost and no attempt is used up, but deadlines go on.",
    "At its end the gate learns anew, from one call at a time.",
  ],
  closed: (model) => [
    `Calls to ${model} go through although the gate would not let them, in an outage, after a 429 or a spend cap. Only the limit of calls in flight stays.`,
    "If it is down all the same, these calls fail, and each costs its job an attempt.",
  ],
};
const WHEN = "Calls follow within a second, jobs that sleep within two minutes.";

/** No model's id. */
const OTHER = " ";

/** The status of a job that has the colour. */
const PILLS = { closed: "done", open: "failed", half_open: "held" };

const pathOf = (model) => `/v1/gates/${encodeURIComponent(model)}/override`;

export class Gates {
  /** @type {import("./in-force.js").Order[]} */
  orders = [];

  constructor(shared) {
    this.states = h("ul", { class: "states" });
    const choose = () => (typed.element.hidden = this.model.value !== OTHER);
    const options = [h("option", { value: "" }, "Which?"), h("option", { value: OTHER }, "another …")];
    this.model = h("select", { onchange: choose }, options);
    this.typed = h("input", { autocapitalize: "none", autocomplete: "off", spellcheck: "false" });
    const chosen = field("Model", this.model);
    const typed = field("Which other", this.typed, "Its id, as requests name it. It need not have been called yet.");
    choose();
    const model = {
      element: h("div", {}, chosen.element, typed.element),
      refuse: (message) => {
        for (const each of [chosen, typed]) each.refuse("");
        return (this.model.value === OTHER ? typed : chosen).refuse(message);
      },
    };
    const state = choice("Force it", { open: "open: nobody calls", closed: "closed: everybody may" });
    const form = orderForm(shared, {
      name: "Force a gate",
      fields: { model, state },
      check: () => (this.#named ? [] : [{ place: "model", message: "is missing" }]),
      plan: (length) => ({
        path: pathOf(this.#named),
        body: { state: state.value },
        question: `Force ${this.#named} ${state.value} ${length}?`,
        consequences: [...CONSEQUENCES[state.value](this.#named), WHEN],
        yes: `Yes, force it ${state.value}`,
        done: `${this.#named} is forced ${state.value}. ${WHEN}`,
      }),
    });
    this.card = card("Gates", [this.states, form.element]);
  }

  get #named() {
    return this.model.value === OTHER ? this.typed.value.trim() : this.model.value;
  }

  show(gates) {
    const all = Object.entries(gates);
    // Of a gate that does not answer, what was known stays.
    const known = (model) => this.orders.find((order) => order.model === model);
    this.orders = all.map(([model, gate]) => (gate.error ? known(model) : order(model, gate))).filter(Boolean);
    this.states.replaceChildren(...all.map(state));
    const listed = [...this.model.options].map(({ value }) => value);
    const fresh = Object.keys(gates).filter((model) => !listed.includes(model));
    this.model.lastChild.before(...fresh.map((model) => h("option", { value: model }, model)));
  }
}

const order = (model, { override }) =>
  override && {
    ...stamped(override),
    id: `gate ${model}`,
    model,
    what: `${model} is forced ${override.state}`,
    end: {
      name: `End the override of ${model}`,
      path: pathOf(model),
      question: `Let the gate of ${model} decide again?`,
      consequences: [
        "It is closed at first and learns anew what Claude bears; after “open”, from one call at a time.",
        `Jobs that waited for it go on. ${WHEN}`,
      ],
      yes: "Yes, end it",
      done: `The gate of ${model} decides again. ${WHEN}`,
    },
  };

const state = ([model, { error, state, in_flight, held }]) =>
  h(
    "li",
    { class: "row" },
    h("code", {}, model),
    state && h("span", { class: "pill", "data-status": PILLS[state] }, gateStateName(state)),
    h("span", { class: "hint" }, error ?? `${in_flight} in flight, ${held} held`),
  );
