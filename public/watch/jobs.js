/**
 * Everybody's last jobs, newest first, and the way to one of them by its id. The list follows the Worker as far as one question
 * reaches (a hundred jobs); who looks further back reads on by hand, and then what is shown stays as it was read.
 */
import { h, tell, uniqueId } from "../dom.js";
import { count, number } from "../numbers.js";
import { swap } from "../swap.js";
import { moment } from "../time.js";
import { NO_SUCH_JOB, STATUSES, statusName } from "../words.js";

const ON_A_PAGE = 20;
const MOST_FOLLOWED = 100;
/** The Worker looks through so many jobs at once for those of a status, and there may be none among them. */
const MOST_IN_VAIN = 5;

const ID = /^job_[0-9a-f]{32}$/;
const WHAT_AN_ID_IS = "A job’s id is job_ and 32 digits from 0 to 9 and a to f, as its receipt has it.";
/** What the app of a job has not been told, and will not be by itself. */
export const UNHEARD = { given_up: "webhook given up", disabled: "webhook disabled" };

export class Jobs {
  #ask;
  #jobs = [];
  /** Where to read on; nothing if there is no more. */
  #cursor;
  /** How many jobs have been looked through. */
  #reach = ON_A_PAGE;
  #reading;
  #seen = false;

  /** @param {(path: string) => Promise<any>} ask Asks as the operator. */
  constructor(ask) {
    this.#ask = ask;
    const [inputId, faultId] = [uniqueId("job"), uniqueId("fault")];
    this.input = h("input", {
      id: inputId,
      autocomplete: "off",
      autocapitalize: "none",
      spellcheck: "false",
      "aria-describedby": faultId,
    });
    this.searchFault = h("p", { class: "fault", id: faultId, role: "alert", hidden: true });
    this.find = h("button", { class: "quiet" }, "Find");
    const search = h(
      "form",
      { class: "field", role: "search", onsubmit: (event) => (event.preventDefault(), this.#find()) },
      h("label", { for: inputId }, "Job id"),
      h("div", { class: "row" }, this.input, this.find),
      this.searchFault,
    );
    this.status = h(
      "select",
      { "aria-label": "Status", onchange: () => this.#again() },
      h("option", { value: "" }, "Any status"),
      ...Object.keys(STATUSES).map((status) => h("option", { value: status }, statusName(status))),
    );
    this.rows = h("ul", { class: "jobs" });
    this.note = h("p", { class: "hint" });
    this.fault = h("p", { class: "fault", role: "status", hidden: true });
    this.more = h("button", { type: "button", class: "quiet", onclick: () => this.#readOn() }, "More");
    this.newest = h("button", { type: "button", class: "link", onclick: () => this.#again() }, "Back to the newest");
    this.element = h(
      "div",
      {},
      search,
      this.rows,
      this.note,
      this.fault,
      h("div", { class: "row" }, this.more, this.newest),
    );
    this.#show();
  }

  /** Brings what is shown up to date, unless its reader has gone too far back for that. */
  async refresh() {
    if (this.#reach <= MOST_FOLLOWED && !this.#reading) await this.#readFromTheTop();
  }

  /** @param {string} id The job that was looked at: the focus goes back to where it is listed. */
  comeBackTo(id) {
    this.#focus(`#watch/${id}`);
  }

  #focus(hash) {
    [...this.rows.querySelectorAll("a")].find((link) => link.hash === hash)?.focus({ preventScroll: true });
  }

  #again() {
    this.#reach = ON_A_PAGE;
    return this.#readFromTheTop();
  }

  #readFromTheTop() {
    return this.#read(async (list) => {
      const { jobs, next_cursor } = await this.#page(list.reach);
      Object.assign(list, { jobs, cursor: next_cursor });
      await this.#until(list, 1);
    });
  }

  #readOn() {
    return this.#read((list) => this.#until(list, list.jobs.length + 1));
  }

  /** Reads on until there are so many jobs, for as long as it is sensible to look in vain. */
  async #until(list, wanted) {
    for (let n = 0; n < MOST_IN_VAIN && list.cursor && list.jobs.length < wanted; n += 1) {
      const { jobs, next_cursor } = await this.#page(ON_A_PAGE, list.cursor);
      list.jobs = [...list.jobs, ...jobs];
      list.cursor = next_cursor;
      list.reach += ON_A_PAGE;
    }
  }

  #page(limit, cursor) {
    const query = new URLSearchParams({ limit });
    if (this.status.value) query.set("status", this.status.value);
    if (cursor) query.set("cursor", cursor);
    return this.#ask(`/v1/jobs?${query}`);
  }

  /** Of two readings the one that was begun last counts: the other may be of another status. */
  async #read(what) {
    const reading = (this.#reading = {});
    const list = { jobs: this.#jobs, cursor: this.#cursor, reach: this.#reach };
    const fault = await what(list).catch((error) => error);
    if (this.#reading !== reading) return;
    this.#reading = undefined;
    if (!fault) [this.#jobs, this.#cursor, this.#reach, this.#seen] = [list.jobs, list.cursor, list.reach, true];
    tell(this.fault, fault && `The list may be old: ${fault.message}`);
    this.#show();
  }

  async #find() {
    const id = this.input.value.trim();
    this.#refuse("");
    if (!ID.test(id)) {
      this.#refuse(WHAT_AN_ID_IS);
      return;
    }
    this.find.disabled = true;
    try {
      await this.#ask(`/v1/jobs/${id}`);
      this.input.value = "";
      location.hash = `#watch/${id}`;
    } catch (error) {
      this.#refuse(error.status === 404 ? NO_SUCH_JOB : error.message);
    } finally {
      this.find.disabled = false;
    }
  }

  #refuse(why) {
    tell(this.searchFault, why);
    if (why) this.input.setAttribute("aria-invalid", "true");
    else this.input.removeAttribute("aria-invalid");
    if (why) this.input.focus();
  }

  #show() {
    const focused = this.rows.contains(document.activeElement) ? document.activeElement.hash : undefined;
    swap(this.rows, ...this.#jobs.map(row));
    if (focused) this.#focus(focused);
    const isFollowed = this.#reach <= MOST_FOLLOWED;
    this.more.hidden = this.#cursor === undefined;
    this.newest.hidden = isFollowed;
    const looked = this.#cursor === undefined ? "" : ` among the newest ${number(this.#reach)} that were looked at`;
    const none = this.status.value ? `None is “${statusName(this.status.value)}”${looked}.` : "There is none yet.";
    const old = `${count(this.#jobs.length, "job")}, as they were when they were read.`;
    tell(this.note, this.#seen ? (this.#jobs.length === 0 ? none : isFollowed ? "" : old) : "");
  }
}

function row({ id, client, status, kind, created_at, unconfirmed, webhook }) {
  const old = unconfirmed ? " (when it was last heard of)" : "";
  return h(
    "li",
    {},
    h(
      "a",
      { href: `#watch/${id}` },
      h("span", { class: "pill", "data-status": status }, `${statusName(status)}${old}`),
      h("span", { class: "kind" }, `${client}, ${kind}`),
      webhook && h("span", { class: "badge open" }, UNHEARD[webhook] ?? `webhook ${webhook}`),
      h("code", {}, `…${id.slice(-6)}`),
      h("time", { datetime: created_at }, moment(created_at, "medium")),
    ),
  );
}
