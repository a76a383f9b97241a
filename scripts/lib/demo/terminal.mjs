/**
 * The screen of the demo: a table that is redrawn in place where that works, plain lines where it does not.
 *
 * Piped into a file, in CI, on a dumb or tiny terminal there is one line per change, and no escape sequence at all
 * beyond colours. The cursor is hidden while the table moves and comes back however the demo ends.
 */
import { canRedraw, changeLine, tableLines, wantsColour, wantsUnicode } from "./render.mjs";

const FRAME_MS = 200;
const HIDE_CURSOR = "\x1b[?25l";
const SHOW_CURSOR = "\x1b[?25h";

/** Where the board is shown. */
export class Screen {
  #out;
  #board;
  #timer = null;
  #drawn = 0;

  /**
   * @param {object} options
   * @param {import("./board.mjs").Board} options.board
   * @param {NodeJS.WriteStream} options.out
   * @param {Record<string, string | undefined>} options.env
   * @param {boolean} [options.plain] Lines whatever the terminal.
   * @param {() => number} [options.now]
   */
  constructor({ board, out, env, plain = false, now = Date.now }) {
    this.#out = out;
    this.#board = board;
    this.now = now;
    this.colour = wantsColour(env, !!out.isTTY);
    this.unicode = wantsUnicode(env);
    // One line more for the cursor, and the terminal may not grow smaller by much.
    this.live = !plain && !env.CI && canRedraw(out, env, board.rows.length + 2);
  }

  get columns() {
    return this.#out.columns ?? 100;
  }

  start() {
    if (!this.live) return;
    this.#out.write(HIDE_CURSOR);
    this.#draw();
    this.#timer = setInterval(() => this.#draw(), FRAME_MS);
  }

  /** A job has changed. */
  changed(index) {
    if (this.live) this.#draw();
    else this.#out.write(`${changeLine(this.#board, index, { now: this.now(), colour: this.colour })}\n`);
  }

  /** Leaves what is drawn standing, with the cursor below it. */
  stop() {
    if (this.#timer === null) return;
    clearInterval(this.#timer);
    this.#timer = null;
    this.#draw();
    this.#out.write(SHOW_CURSOR);
  }

  #draw() {
    const { columns, colour, unicode } = this;
    const lines = tableLines(this.#board, { now: this.now(), columns, colour, unicode });
    const up = this.#drawn ? `\x1b[${this.#drawn}A\r` : "";
    // \x1b[K after each line and \x1b[J at the end: a terminal that was wider leaves nothing behind.
    this.#out.write(`${up}${lines.map((line) => `${line}\x1b[K\n`).join("")}\x1b[J`);
    this.#drawn = lines.length;
  }
}
