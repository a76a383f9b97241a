/**
 * What is known of every job, and what a new status changes about it.
 *
 * The Worker says how long a job still waits in seconds from now; the board turns that into a moment of its own clock, so
 * that it can count down between two statuses, and adds up how long each job has waited. Time is an argument.
 */
import { isFinal } from "./client.mjs";

/** The phases that a job moves through; waiting is no phase, it happens within one. */
export const PHASES = ["received", "generating", "refining", "done"];

const WAITING = new Set(["held", "retrying", "stalled", "deferred"]);

/**
 * @typedef {object} Row
 * @property {string} name
 * @property {string} kind
 * @property {string} priority
 * @property {string | undefined} expectFailure
 * @property {string} status
 * @property {number} phase Index in PHASES: the furthest that it has come.
 * @property {string | null} reason What it waits for, or why it failed.
 * @property {number | null} wakesAt
 * @property {number} attempts
 * @property {number} calls
 * @property {number} startedAt
 * @property {number | null} endedAt
 * @property {number} waitedMs All its waits together, without one that still lasts.
 * @property {number | null} waitingSince
 * @property {object | null} last The last status.
 */

/** The jobs of a run, in order. */
export class Board {
  /** @param {import("./jobs.mjs").DemoJob[]} jobs @param {number} now */
  constructor(jobs, now) {
    /** @type {Row[]} */
    this.rows = jobs.map(({ name, kind, priority, expectFailure }) => ({
      name,
      kind,
      priority,
      expectFailure,
      status: "submitting",
      phase: 0,
      reason: null,
      wakesAt: null,
      attempts: 0,
      calls: 0,
      startedAt: now,
      endedAt: null,
      waitedMs: 0,
      waitingSince: null,
      last: null,
    }));
    this.startedAt = now;
  }

  /**
   * Takes a status. Answers whether anything that a person would want to read has changed: a longer wait has, a second
   * less of it has not.
   */
  apply(index, status, now) {
    const row = this.rows[index];
    const before = [row.status, row.reason, row.calls];
    if (row.waitingSince !== null) {
      row.waitedMs += now - row.waitingSince;
      row.waitingSince = null;
    }
    row.status = status.status;
    row.phase = Math.max(row.phase, PHASES.indexOf(status.status));
    row.attempts = status.attempts ?? row.attempts;
    row.calls = status.calls ?? row.calls;
    row.reason = status.reason ?? status.waiting?.reason ?? null;
    row.wakesAt = status.waiting ? now + status.waiting.next_check_seconds * 1000 : null;
    row.last = status;
    if (WAITING.has(status.status)) row.waitingSince = now;
    if (isFinal(status.status)) row.endedAt = now;
    return before.some((value, at) => value !== [row.status, row.reason, row.calls][at]);
  }

  /** A job that could not even be submitted, or was given up. */
  giveUp(index, reason, now) {
    const row = this.rows[index];
    Object.assign(row, { status: "failed", reason, wakesAt: null, endedAt: now });
  }

  get finished() {
    return this.rows.every((row) => row.endedAt !== null);
  }
}

/** How long a job has waited so far. */
export function waitedMs(row, now) {
  return row.waitedMs + (row.waitingSince === null ? 0 : (row.endedAt ?? now) - row.waitingSince);
}

/** Whether a job ended as it should. */
export function endedAsExpected(row) {
  return row.expectFailure === undefined ? row.status === "done" : failedAsExpected(row);
}

/** Whether a job failed, and should have. */
export function failedAsExpected(row) {
  return row.status === "failed" && row.reason === row.expectFailure;
}
