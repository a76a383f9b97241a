/** Pausing a queue, and draining the deployment: what is unfinished, the forms, and what is in force of it. */
import { card } from "../card.js";
import { h, tell } from "../dom.js";
import { choice } from "../field.js";
import { count } from "../numbers.js";
import { stamped } from "./in-force.js";
import { orderForm } from "./order.js";

const PRIORITIES = ["low", "medium", "high"];
const DRAIN = "/v1/drain";

const pathOf = (name) => (name === DRAIN ? DRAIN : `/v1/queues/${name}/pause`);
const orderIn = ({ queues, drain }, name) => (name === DRAIN ? drain : queues[name].paused);
const versionIn = ({ versions }, name) => versions[name === DRAIN ? "drain" : name];
/** The Meter may be silent. */
export const jobs = (many) => (typeof many === "number" ? count(many, "job") : "an unknown number of jobs");

export class Queues {
  #state;
  #everywhere = "";
  /** What this tab has ordered. A reading of a lower version is an older one, of a place that has not heard of it yet. */
  #told = new Map();
  orders = [];

  constructor(shared) {
    this.states = h("ul", { class: "states" });
    this.left = h("p", { class: "left-over", role: "status" });
    const priority = choice("Priority", Object.fromEntries(PRIORITIES.map((name) => [name, name])));
    const pausing = orderForm(shared, {
      name: "Pause a queue",
      fields: { priority },
      plan: (length) => this.#pause(priority.value, length),
    });
    const draining = orderForm(shared, {
      name: "Drain",
      hint: "Apps that are refused read it.",
      plan: (length) => this.#drain(length),
    });
    this.pauseCard = card("Queues", [this.states, pausing.element]);
    this.drainCard = card("Drain", [this.left, draining.element]);
  }

  get isDraining() {
    return Boolean(this.#state && this.#order(DRAIN)) && this.#state.unfinished > 0;
  }

  show(state) {
    this.#state = state;
    const { queues, unfinished, takes_effect_within_seconds } = state;
    this.#everywhere = `It takes up to ${takes_effect_within_seconds} s to be so everywhere.`;
    this.states.replaceChildren(
      ...PRIORITIES.map((name) => {
        const paused = this.#order(name);
        const badge = h(
          "span",
          { class: "pill", "data-status": paused ? "held" : "done" },
          paused ? "Paused" : "Going",
        );
        const left = h("span", { class: "hint" }, `${jobs(queues[name].unfinished)} unfinished`);
        return h("li", { class: "row" }, h("code", {}, name), badge, left);
      }),
    );
    tell(this.left, `${jobs(unfinished)} unfinished.`);
    this.orders = [DRAIN, ...PRIORITIES].flatMap((name) => {
      const order = this.#order(name);
      const draining = unfinished === 0 ? "Drained" : `Draining: ${jobs(unfinished)} unfinished`;
      const what = name === DRAIN ? draining : `Queue ${name} is paused`;
      return order ? [{ ...order, id: name, what, end: this.#end(name) }] : [];
    });
  }

  #order(name) {
    const told = this.#told.get(name);
    const isOlder = told && versionIn(this.#state, name) < told.version;
    const order = isOlder ? told.order : stamped(orderIn(this.#state, name));
    return order && performance.now() < order.endsAt ? order : undefined;
  }

  #said(name, said) {
    const learn = (answer) => {
      this.#told.set(name, { order: stamped(orderIn(answer, name)), version: versionIn(answer, name) });
    };
    return { ...said, path: pathOf(name), learn, done: `${said.done} ${this.#everywhere}` };
  }

  #pause(name, length) {
    return this.#said(name, {
      question: `Pause ${name} ${length}?`,
      consequences: [
        `Jobs of priority ${name} are taken but not begun: they wait, nothing is lost, and their deadlines go on. Unfinished now: ${jobs(this.#state?.queues[name].unfinished)}.`,
        "Calls on their way are finished. Callers who wait on POST /v1/messages are in no queue, and go on.",
        this.#everywhere,
      ],
      yes: `Yes, pause ${name}`,
      done: `${name} is paused.`,
    });
  }

  #drain(length) {
    return this.#said(DRAIN, {
      question: `Take nothing new ${length}?`,
      consequences: [
        "Apps are refused: what they submit or regenerate is a 503 with your note. Nothing that has failed can be re-driven.",
        `What is here is finished: ${jobs(this.#state?.unfinished)}.`,
        "Callers who wait on POST /v1/messages have no queue behind them: an overload reaches them as an error.",
        this.#everywhere,
      ],
      yes: "Yes, drain",
      done: "Nothing new is taken.",
    });
  }

  #end(name) {
    if (name === DRAIN) {
      return this.#said(DRAIN, {
        name: "End the drain",
        question: "Take new jobs again?",
        consequences: [`What apps submit is taken as before. ${this.#everywhere}`],
        yes: "Yes, end the drain",
        done: "New jobs are taken again.",
      });
    }
    return this.#said(name, {
      name: `Resume ${name}`,
      question: `Resume ${name}?`,
      consequences: [
        "Jobs that sleep come back within a third of the time that it was paused, 15 min at most; re-drive what waits, and they come at once.",
        this.#everywhere,
      ],
      yes: `Yes, resume ${name}`,
      done: `${name} goes on.`,
    });
  }
}
