/**
 * Server-sent events out of the pieces of a stream. Ours rather than `EventSource`, which cannot send headers and is not
 * everywhere.
 *
 * An event counts as soon as its empty line is there. What a broken connection leaves behind without one is dropped, its id
 * too: the server sends it again, whole.
 */
export class EventParser {
  #rest = "";
  #event = blank();

  /** The number of milliseconds that the server wants between two connections, once it has said so. */
  retry = undefined;

  /**
   * @param {string} piece
   * @returns {{ id?: string, name: string, data: string }[]} The events that it completes.
   */
  push(piece) {
    const lines = (this.#rest + piece).split(LINE_END);
    this.#rest = lines.pop();
    return lines.map((line) => this.#line(line)).filter((event) => event !== undefined);
  }

  #line(line) {
    if (line === "") return this.#complete();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.#event.data.push(value);
    else if (field === "event") this.#event.name = value;
    else if (field === "id" && !value.includes("\0")) this.#event.id = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.retry = Number(value);
    return undefined;
  }

  #complete() {
    const { id, name, data } = this.#event;
    this.#event = blank();
    return data.length === 0 ? undefined : { id, name: name || "message", data: data.join("\n") };
  }
}

const blank = () => ({ id: undefined, name: "", data: [] });

/** A CR at the end of what is there may be half of a CRLF: it ends a line when the next character is known. */
const LINE_END = /\r\n|\n|\r(?=[^])/;
