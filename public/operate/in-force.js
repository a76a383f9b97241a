/** What is in force now, by whose order and for how long yet; and the way to end each. */
import { h, tell } from "../dom.js";
import { card } from "./action.js";
import { ending } from "./order.js";

/** @typedef {{ id: string, what: string, note: string, author: string, endsAt: number, end: Parameters<typeof ending>[1] }} Order */

/** An order as the server has just told it, with its end by this tab's clock; or none. */
export const stamped = (order) => order && { ...order, endsAt: performance.now() + order.seconds_left * 1_000 };

export class InForce {
  #rows = new Map();
  #shared;
  #timer;

  constructor(shared) {
    this.#shared = shared;
    this.none = h("p", { class: "hint" }, "Asking …");
    this.list = h("ul", { class: "orders" });
    this.said = h("p", { class: "said", role: "status", hidden: true });
    Object.assign(this, card("In force now", this.none, this.list, this.said));
  }

  /** @param {Order[]} orders @param {boolean} areAll Whether it is known that there are no others. */
  show(orders, areAll) {
    const wasHere = this.list.contains(document.activeElement);
    for (const [id, { element }] of this.#rows) {
      if (orders.some((order) => order.id === id)) continue;
      element.remove();
      this.#rows.delete(id);
    }
    for (const { id, what, note, author, endsAt, end } of orders) {
      const row = this.#rows.get(id) ?? this.#row(id, end);
      row.endsAt = endsAt;
      tell(row.what, what);
      tell(row.note, note);
      tell(row.author, author);
    }
    const none = areAll ? "Nothing: every gate and every queue goes by itself." : "Nothing that is known yet.";
    tell(this.none, orders.length === 0 ? none : "");
    this.element.classList.toggle("some", orders.length > 0);
    // Whoever was in a row that is gone must not be lost.
    if (wasHere && !this.list.contains(document.activeElement)) this.heading.focus();
    this.#tick();
  }

  start() {
    clearInterval(this.#timer);
    this.#timer = setInterval(() => this.#tick(), 1_000);
  }

  stop() {
    clearInterval(this.#timer);
  }

  #tick() {
    for (const row of this.#rows.values()) {
      const left = Math.ceil((row.endsAt - performance.now()) / 1_000);
      tell(row.left, left > 0 ? `${countdown(left)} left` : "is over now");
      if (left === 0) void this.#shared.onChanged();
    }
  }

  #row(id, end) {
    const row = { what: h("strong"), left: h("span", { class: "left" }), note: h("q"), author: h("span") };
    const { what, left, note, author } = row;
    row.element = h(
      "li",
      {},
      h("p", { class: "row apart" }, what, left),
      h("p", {}, note, " – ", author),
      ending(this.#shared, end, (done) => tell(this.said, done)).element,
    );
    this.#rows.set(id, row);
    this.list.append(row.element);
    return row;
  }
}

/** To the second, however long: it is seen to go down. */
function countdown(seconds) {
  const { floor } = Math;
  const parts = {
    d: floor(seconds / 86_400),
    h: floor(seconds / 3_600) % 24,
    min: floor(seconds / 60) % 60,
    s: seconds % 60,
  };
  const shown = Object.entries(parts).map(([unit, value]) => `${value} ${unit}`);
  return shown.slice(Object.values(parts).findIndex(Boolean)).join(" ");
}
