/** What is in force now, by whose order and for how long yet; and the way to end each. */
import { card } from "../card.js";
import { h, tell } from "../dom.js";
import { momentIn, secondsUntil, tick } from "../ticking.js";
import { toTheSecond } from "../time.js";
import { ending } from "./order.js";

/** @typedef {{ id: string, what: string, note: string, author: string, endsAt: number, end: Parameters<typeof ending>[1] }} Order */

/** An order as the server has just told it, with its end by this tab's clock; or none. */
export const stamped = (order) => order && { ...order, endsAt: performance.now() + order.seconds_left * 1_000 };

export class InForce {
  #rows = new Map();
  #shared;

  constructor(shared) {
    this.#shared = shared;
    this.none = h("p", { class: "hint" }, "Asking …");
    this.list = h("ul", { class: "orders" });
    this.said = h("p", { class: "said", role: "status", hidden: true });
    Object.assign(this, card("In force now", [this.none, this.list, this.said]));
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
      const row = this.#rows.get(id) ?? this.#row(id, end, endsAt);
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
  }

  /** What is left of an order; once there is nothing, the server is asked how it is now. */
  #left(row) {
    const left = secondsUntil(row.endsAt);
    const wasOver = row.isOver;
    row.isOver = left <= 0;
    if (row.isOver && !wasOver) void this.#shared.onChanged();
    return row.isOver ? "is over now" : `${toTheSecond(left)} left`;
  }

  #row(id, end, endsAt) {
    const row = { endsAt, what: h("strong"), note: h("q"), author: h("span") };
    const { what, note, author } = row;
    const left = h(
      "span",
      { class: "left" },
      tick(() => this.#left(row)),
    );
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
