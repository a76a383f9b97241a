/** A client's jobs, newest first, as links: how to come back to one. */
import { h, tell } from "./dom.js";
import { moment } from "./time.js";
import { statusName } from "./words.js";

const ON_A_PAGE = 10;

/** The order of the server's list, where jobs of one millisecond go by their ids: older ones are read on from there. */
const compare = (a, b) => Date.parse(a.created_at) - Date.parse(b.created_at) || (a.id < b.id ? -1 : 1);

export class JobList {
  #spillway;
  #jobs = new Map();
  #cursor;
  #current;

  /** @param {() => import("./client/index.js").Spillway | undefined} spillway With the client's key, if there is one. */
  constructor(spillway) {
    this.#spillway = spillway;
    this.rows = h("ul", { class: "jobs" });
    this.note = h("p", { class: "hint" });
    this.fault = h("p", { class: "fault", role: "alert", hidden: true });
    this.older = h("button", { type: "button", class: "quiet", onclick: () => this.#read(this.#cursor) }, "Older");
    this.again = h("button", { type: "button", class: "link", onclick: () => this.refresh() }, "Look again");
    this.element = h(
      "section",
      { class: "card", "aria-label": "Your last jobs" },
      h("div", { class: "row apart" }, h("h2", {}, "Your last jobs"), this.again),
      this.note,
      this.fault,
      this.rows,
      this.older,
    );
    this.#show();
  }

  /** Reads it from its beginning; without a key, forgets it. */
  async refresh() {
    if (!this.#spillway()) this.#jobs.clear();
    await this.#read(undefined);
  }

  /** What is known of a job from elsewhere, and sooner: the one that is watched. */
  know({ id, status, kind, created_at }) {
    const before = this.#jobs.get(id);
    if (before?.status === status) return;
    this.#jobs.set(id, { id, status, kind, created_at });
    this.#show();
  }

  /** It was erased. */
  forget(id) {
    this.#jobs.delete(id);
    this.#show();
  }

  /** @param {string | undefined} id The job that is shown beside the list. */
  set current(id) {
    this.#current = id;
    this.#show();
  }

  async #read(cursor) {
    const spillway = this.#spillway();
    this.#cursor = undefined;
    if (spillway) {
      try {
        const page = await spillway.list({ limit: ON_A_PAGE, cursor });
        // Another key, or none, may be there by now, and these are somebody else's.
        if (spillway !== this.#spillway()) return;
        if (cursor === undefined) this.#jobs.clear();
        for (const job of page.jobs) this.#jobs.set(job.id, job);
        this.#cursor = page.next_cursor;
        tell(this.fault, "");
      } catch (error) {
        tell(this.fault, error.message);
      }
    }
    this.#show();
  }

  #show() {
    const newestFirst = [...this.#jobs.values()].sort((a, b) => compare(b, a));
    const focused = this.rows.contains(document.activeElement) ? document.activeElement.hash : undefined;
    this.rows.replaceChildren(...newestFirst.map((job) => this.#row(job)));
    if (focused) [...this.rows.querySelectorAll("a")].find(({ hash }) => hash === focused)?.focus();
    this.again.hidden = !this.#spillway();
    this.older.hidden = this.#cursor === undefined;
    const none = this.#spillway() ? "There is none yet." : "They are shown once the client key is there.";
    tell(this.note, newestFirst.length === 0 && this.fault.hidden ? none : "");
  }

  #row({ id, status, kind, created_at, unconfirmed }) {
    const old = unconfirmed ? " (when it was last heard of)" : "";
    return h(
      "li",
      {},
      h(
        "a",
        { href: `#try/${id}`, "aria-current": id === this.#current && "true" },
        h("span", { class: "pill", "data-status": status }, `${statusName(status)}${old}`),
        h("span", { class: "kind" }, kind),
        h("time", { datetime: created_at }, moment(created_at)),
      ),
    );
  }
}
