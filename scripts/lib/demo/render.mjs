/**
 * The board as text: the lines of a live table that fit the terminal, or one plain line for each change.
 *
 * Everything is a function of board, time and terminal, so that it can be tested without one. A line never reaches the
 * last column: one that wrapped would spoil the redrawing. Narrow terminals lose columns, least needed first.
 */
import { failedAsExpected, PHASES } from "./board.mjs";

/** What a person reads for the reasons of a wait or a failure. */
const REASONS = {
  retry_after: "rate limit",
  in_flight_limit: "waits its turn",
  probe_in_flight: "probe under way",
  connection_failed: "connection broken",
  truncated: "answer broke off",
};

/** @param {string | null} reason */
export const reasonText = (reason) => (reason === null ? "" : (REASONS[reason] ?? reason.replaceAll("_", " ")));

/** Colours, or none. @param {boolean} on */
export function palette(on) {
  const paint = (code) => (text) => (on ? `\x1b[${code}m${text}\x1b[0m` : text);
  return { dim: paint(2), red: paint(31), green: paint(32), yellow: paint(33), cyan: paint(36), bold: paint(1) };
}

/** Whether colours are wanted: https://no-color.org. */
export const wantsColour = (env, isTTY) => isTTY && !env.NO_COLOR && env.TERM !== "dumb";

/** Whether the terminal's characters go beyond ASCII. */
export const wantsUnicode = (env) => /utf-?8/i.test(env.LC_ALL || env.LC_CTYPE || env.LANG || "");

/** Whether a table of so many lines can be redrawn in place there. */
export function canRedraw({ isTTY, columns = 0, rows = 0 }, env, lines) {
  return !!isTTY && env.TERM !== "dumb" && columns >= 50 && rows > lines;
}

export const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;

/** Whole seconds until then; at least one, because "in 0 s" says nothing. */
const left = (row, now) => (row.wakesAt === null ? null : Math.max(1, Math.ceil((row.wakesAt - now) / 1000)));

/** What a row says of its state: the words and how they are meant. */
export function stateOf(row, now) {
  switch (row.status) {
    case "done":
      return { text: "done", mood: "good" };
    case "failed":
      return { text: `failed: ${reasonText(row.reason)}`, mood: failedAsExpected(row) ? "expected" : "bad" };
    case "held":
    case "retrying": {
      // The time first: where the line has to be cut, the reason can be guessed.
      const wait = left(row, now);
      const until = wait === null ? "" : row.status === "held" ? ` ${wait} s` : ` in ${wait} s`;
      return {
        text: `${row.status}${until}${row.reason === null ? "" : `: ${reasonText(row.reason)}`}`,
        mood: "waiting",
      };
    }
    case "generating":
    case "refining":
      return { text: row.status, mood: "working" };
    default:
      return { text: row.status, mood: "quiet" };
  }
}

const MOODS = { good: "green", bad: "red", expected: "dim", waiting: "yellow", working: "cyan", quiet: "dim" };

function bar(row, unicode) {
  const [full, empty] = unicode ? ["━", "╌"] : ["=", "."];
  return full.repeat(row.phase + 1) + empty.repeat(PHASES.length - 1 - row.phase);
}

/** The columns, in order; `above` is the narrowest terminal that shows one. */
const COLUMNS = [
  { title: "job", width: 12, above: 0, text: (row) => row.name },
  { title: "kind", width: 18, above: 80, text: (row) => row.kind },
  { title: "priority", width: 8, above: 100, text: (row) => row.priority },
  { title: "", width: 4, above: 0, text: (row, now, unicode) => bar(row, unicode) },
  { title: "state", width: 32, above: 0, text: (row, now) => stateOf(row, now).text },
  { title: "calls", width: 5, above: 66, right: true, text: (row) => (row.calls ? String(row.calls) : "") },
  {
    title: "time",
    width: 7,
    above: 90,
    right: true,
    text: (row, now) => seconds((row.endedAt ?? now) - row.startedAt),
  },
];

/**
 * The lines of the live table.
 * @param {import("./board.mjs").Board} board
 * @param {{ now: number, columns: number, colour: boolean, unicode: boolean }} terminal
 */
export function tableLines(board, { now, columns, colour, unicode }) {
  const paint = palette(colour);
  const shown = COLUMNS.filter(({ above }) => columns >= above);
  const state = shown.find(({ title }) => title === "state");
  const others = shown.reduce((sum, column) => sum + (column === state ? 0 : column.width + 2), 0);
  const stateWidth = Math.max(8, Math.min(state.width, columns - 1 - others));
  const line = (cell, painted) =>
    shown
      .map((column) => {
        const width = column === state ? stateWidth : column.width;
        const text = fit(cell(column), width, column.right, unicode);
        return column === state || column.title === "" ? painted(text) : text;
      })
      .join("  ")
      .trimEnd();
  const head = paint.dim(
    line(
      ({ title }) => title,
      (text) => text,
    ),
  );
  return [
    head,
    ...board.rows.map((row) => {
      const colourOf = paint[MOODS[stateOf(row, now).mood]];
      return line((column) => column.text(row, now, unicode), colourOf);
    }),
  ];
}

/** Text of exactly this width. */
function fit(text, width, right, unicode) {
  const short = text.length > width ? text.slice(0, width - 1) + (unicode ? "…" : "~") : text;
  return right ? short.padStart(width) : short.padEnd(width);
}

/** The line for a change. */
export function changeLine(board, index, { now, colour }) {
  const row = board.rows[index];
  const { text, mood } = stateOf(row, now);
  const paint = palette(colour);
  const at = paint.dim(seconds(now - board.startedAt).padStart(7));
  const calls = row.calls ? paint.dim(` (${plural(row.calls, "call")})`) : "";
  return `${at}  ${row.name.padEnd(12)} ${paint[MOODS[mood]](text)}${calls}`;
}

/** "1 call", "2 calls". */
export const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
