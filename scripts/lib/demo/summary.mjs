/** What is said at the end: the answers, what the upstream saw, one line that sums up, and the exit code. */
import { endedAsExpected, failedAsExpected, waitedMs } from "./board.mjs";
import { palette, plural, reasonText, seconds } from "./render.mjs";

/** The answer of a job in one line of at most so many characters. */
export function answerText(row, width) {
  const { last } = row;
  if (row.status !== "done") return shorten(last?.error?.message ?? reasonText(row.reason), width);
  const tools = (last.result?.content ?? []).filter((block) => block.type === "tool_use");
  const parts = [last.text, ...tools.map((tool) => `${tool.name}(${JSON.stringify(tool.input)})`)];
  return shorten(parts.filter(Boolean).join(" "), width);
}

function shorten(text, width) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > width ? `${line.slice(0, Math.max(1, width - 1))}…` : line;
}

/** One line for each job: its answer, or why there is none. */
export function answerLines(board, { columns, colour }) {
  const paint = palette(colour);
  return board.rows.map((row) => {
    const mark = row.status === "done" ? paint.green("done  ") : failedAsExpected(row) ? "failed" : paint.red("failed");
    return `  ${row.name.padEnd(12)} ${mark} ${answerText(row, Math.max(20, columns - 24))}`;
  });
}

/** The one line that sums a run up. */
export function summaryLine(board, now) {
  const { rows } = board;
  const done = rows.filter((row) => row.status === "done").length;
  const failed = rows.filter((row) => row.status !== "done");
  const sum = (field) => rows.reduce((total, row) => total + row[field], 0);
  const longest = rows.reduce((most, row) => (waitedMs(row, now) > waitedMs(most, now) ? row : most));
  const why = [...groups(failed)].map(([reason, names]) => `${shortList(names)}: ${reason}`);
  const waited = waitedMs(longest, now);
  return [
    plural(rows.length, "job"),
    `${done} done`,
    `${failed.length} failed${why.length ? ` (${why.join("; ")})` : ""}`,
    plural(sum("calls"), "call"),
    plural(sum("attempts"), "attempt"),
    waited > 0 ? `longest wait ${seconds(waited)} (${longest.name})` : "nobody waited",
  ].join(" · ");
}

/** Names by the reason for which they failed. */
function groups(failed) {
  const byReason = new Map();
  for (const row of failed) {
    const words = row.status === "failed" ? reasonText(row.reason) : row.status;
    const reason = failedAsExpected(row) ? `${words}, as expected` : words;
    byReason.set(reason, [...(byReason.get(reason) ?? []), row.name]);
  }
  return byReason;
}

const shortList = (names) =>
  names.length > 3 ? `${names.slice(0, 2).join(", ")} and ${names.length - 2} more` : names.join(", ");

/** What the fake's own log says came in, by what it answered. */
export function upstreamLine(calls) {
  const counts = new Map();
  for (const { outcome } of calls) {
    const name = outcomeName(outcome);
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const parts = [...counts].sort(([, a], [, b]) => b - a).map(([name, count]) => `${count} × ${name}`);
  return `The fake Claude's own log: ${plural(calls.length, "call")}${parts.length ? ` (${parts.join(", ")})` : ""}`;
}

function outcomeName(outcome) {
  if (outcome === null) return "still going on";
  if (outcome.completed) return "answered";
  if (outcome.status === 200 && outcome.fault === "error") return "overload inside a 200";
  if (outcome.client_closed) return "client left";
  return String(outcome.status ?? "no answer");
}

/** 0 only if every job ended as it should: done, or failed for the reason for which it had to. */
export const exitCode = (board) => (board.rows.every(endedAsExpected) ? 0 : 1);
