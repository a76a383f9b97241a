/**
 * Operate: the knobs, and above them what is in force, with who turned it, why, and for how long yet. `#operate/job_…` fills that job
 * in to be re-driven; `#operate/gate` and its like lead to a knob.
 */
import { ask } from "../ask.js";
import { h, tell } from "../dom.js";
import { keys } from "../keys.js";
import { Gates } from "../operate/gates.js";
import { InForce } from "../operate/in-force.js";
import { authorField } from "../operate/order.js";
import { Queues } from "../operate/queues.js";
import { Redrive } from "../operate/redrive.js";
import { symptoms } from "../operate/symptoms.js";
import { operatorKey } from "../operator-key.js";

export const title = "Operate";

/** How often it asks again, and while the last jobs before a drain's end are waited for. */
const EVERY_MS = 5_000;
const DRAINING_EVERY_MS = 2_000;

export function create() {
  const view = new Operate();
  return { element: view.element, show: (place) => view.show(place), hide: () => view.hide() };
}

class Operate {
  #timer;
  #isShown = false;
  /** Where the address leads, until there is a key to go there. */
  #place = "";
  /** An answer that a later reading has overtaken says nothing any more. */
  #readings = 0;

  constructor() {
    this.key = operatorKey();
    this.trouble = h("p", { class: "fault", role: "status", hidden: true });
    const author = authorField();
    this.author = author.card;
    const shared = { author, onRefusedKey: (why) => this.key.refuse(why), onChanged: () => this.#read() };
    this.inForce = new InForce(shared);
    this.gates = new Gates(shared);
    this.queues = new Queues(shared);
    this.redrive = new Redrive(shared);
    this.places = {
      gate: this.gates.card,
      queue: this.queues.pauseCard,
      drain: this.queues.drainCard,
      redrive: this.redrive.card,
    };
    const { gate, queue, drain, redrive } = this.places;
    this.content = h(
      "div",
      { class: "column" },
      this.inForce.element,
      h(
        "div",
        { class: "knobs" },
        h("div", { class: "column" }, gate.element, drain.element),
        h("div", { class: "column" }, queue.element, redrive.element),
      ),
    );
    this.element = h(
      "section",
      { class: "view operate" },
      h("h1", {}, "Operate"),
      h("p", { class: "lead" }, "Every knob says first what it will do, and every order ends by itself."),
      h("div", { class: "card slim" }, this.key.element, this.author),
      this.trouble,
      this.content,
      symptoms(),
    );
    keys.onChange((role) => role === "operator" && this.#look());
  }

  show(place) {
    this.#isShown = true;
    this.#place = place;
    this.#look();
  }

  hide() {
    this.#isShown = false;
    this.#place = "";
    this.redrive.pause();
    clearTimeout(this.#timer);
  }

  async #look() {
    clearTimeout(this.#timer);
    this.#lead();
    await this.#read();
    clearTimeout(this.#timer);
    if (!this.#isShown || keys.get("operator") === undefined) return;
    this.#timer = setTimeout(() => this.#look(), this.queues.isDraining ? DRAINING_EVERY_MS : EVERY_MS);
  }

  #lead() {
    const isOpen = keys.get("operator") !== undefined;
    this.content.hidden = this.author.hidden = !isOpen;
    if (!isOpen) this.redrive.pause();
    const place = this.#place;
    if (!isOpen || place === "") return;
    this.#place = "";
    if (place.startsWith("job_")) this.redrive.fill(place);
    else this.places[place]?.heading.focus({ preventScroll: true });
    (this.places[place] ?? this.places.redrive).heading.scrollIntoView();
  }

  async #read() {
    if (keys.get("operator") === undefined || !this.#isShown) return;
    const reading = ++this.#readings;
    const [gates, queues] = await Promise.allSettled([ask("/v1/gates"), ask("/v1/queues")]);
    if (reading !== this.#readings) return;
    if (gates.value) this.gates.show(gates.value.gates);
    if (queues.value) this.queues.show(queues.value);
    const orders = [...this.queues.orders, ...this.gates.orders];
    if (gates.value || queues.value) this.inForce.show(orders, Boolean(gates.value && queues.value));
    const error = gates.reason ?? queues.reason;
    if (error?.isKey) this.key.refuse(error.message);
    else tell(this.trouble, error && `What is shown may be old: ${error.message}`);
  }
}
