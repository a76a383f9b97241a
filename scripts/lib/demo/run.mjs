/**
 * One run of the demo's jobs: submit them all, follow each to its end, tell the screen.
 *
 * Nothing is awaited that could hang for ever: the patience ends every held request, and what is unfinished then counts
 * as failed.
 */
import { Client } from "./client.mjs";

/**
 * @param {object} options
 * @param {string} options.url The Worker.
 * @param {string} options.key A client key.
 * @param {string} options.run Names this run in the idempotency keys.
 * @param {import("./jobs.mjs").DemoJob[]} options.jobs
 * @param {import("./board.mjs").Board} options.board
 * @param {{ changed: (index: number) => void, now: () => number }} options.screen
 * @param {AbortSignal} options.signal Somebody wants to leave.
 * @param {number} options.patienceMs
 */
export async function runJobs({ url, key, run, jobs, board, screen, signal, patienceMs }) {
  const client = new Client(url, key);
  // Not AbortSignal.any of AbortSignal.timeout: Node 20 may collect that as garbage before it fires.
  const ending = new AbortController();
  const end = () => ending.abort();
  const patience = setTimeout(end, patienceMs);
  signal.addEventListener("abort", end, { once: true });
  if (signal.aborted) end();
  const ended = ending.signal;
  await Promise.all(
    jobs.map(async ({ name, kind, priority, request }, index) => {
      const take = (status) => board.apply(index, status, screen.now()) && screen.changed(index);
      try {
        const receipt = await client.submit({ kind, priority, request }, `${run}-${name}`, ended);
        take(receipt);
        for await (const status of client.follow(receipt.id, ended)) take(status);
      } catch (error) {
        if (!ended.aborted) {
          board.giveUp(index, error.message, screen.now());
          screen.changed(index);
        }
      }
    }),
  );
  clearTimeout(patience);
  signal.removeEventListener("abort", end);
  for (const [index, row] of board.rows.entries()) {
    if (row.endedAt === null && !signal.aborted) {
      board.giveUp(index, `not finished after ${Math.round(patienceMs / 1000)} s`, screen.now());
      screen.changed(index);
    }
  }
}
