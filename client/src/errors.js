/**
 * What can go wrong, as classes to be told apart by `instanceof`. Each message ends with what to do about it, because it is
 * read in a log by somebody who has not read this.
 *
 * An abort is none of these: it rejects with the reason of the caller's own signal, as `fetch` does.
 */

/** Whatever this module throws, but for aborts. */
export class SpillwayError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The API said no. */
export class ApiError extends SpillwayError {
  /**
   * @param {string} message
   * @param {object} answer
   * @param {number} answer.status
   * @param {string} [answer.type] Anthropic's name for it.
   * @param {string} [answer.requestId]
   * @param {number} [answer.retryAfterSeconds]
   * @param {{ place: string, message: string }[]} [answer.problems] Every fault of a submission, with its place.
   */
  constructor(message, { status, type, requestId, retryAfterSeconds, problems = [] }) {
    super(message);
    Object.assign(this, { status, type, requestId, retryAfterSeconds, problems });
  }
}

export class InvalidRequestError extends ApiError {}
export class AuthenticationError extends ApiError {}
export class PermissionError extends ApiError {}
export class NotFoundError extends ApiError {}
export class ConflictError extends ApiError {}
export class RateLimitedError extends ApiError {}
export class UnavailableError extends ApiError {}

const KINDS = {
  401: [AuthenticationError, "Check the key; if it is a read token, get a new one from your backend."],
  403: [PermissionError, "Use a client key; a read token opens one job's status and events, and nothing else."],
  404: [
    NotFoundError,
    "Check baseUrl and the id; a job is kept until its retention is over, and its client alone sees it.",
  ],
  409: [ConflictError, "Read the job's status: what was asked for does not go with it. A used key needs the same job."],
  429: [RateLimitedError, "Try again later, after retryAfterSeconds if it is there."],
};
const INVALID = [InvalidRequestError, "Correct the request: the same again is refused again."];
const UNAVAILABLE = [UnavailableError, "Try again later; with the same idempotency key, if it was a submission."];

/**
 * The error that an answer is.
 *
 * @param {{ status: number, headers: Headers, text: string }} answer
 * @param {string} what The method and the address, for who reads the message.
 */
export function errorOf({ status, headers, text }, what) {
  const body = parsed(text);
  const [Kind, advice] = KINDS[status] ?? (status < 500 ? INVALID : UNAVAILABLE);
  // What a proxy answers is a page, and says less than its status.
  const said = body?.error?.message ?? `the answer was ${status} without a reason`;
  const requestId = body?.request_id ?? headers.get("request-id") ?? undefined;
  const named = requestId === undefined ? "" : ` (request ${requestId})`;
  return new Kind(`${what}: ${sentence(said)}${named} ${advice}`, {
    status,
    type: body?.error?.type,
    requestId,
    retryAfterSeconds: retryAfter(headers),
    problems: body?.error?.problems,
  });
}

/** Nothing came back from Spillway, or not all of it. */
export class ConnectionError extends SpillwayError {}

/** A success that is not Spillway's: the sign-in page of a network, or an app's index.html. Who answered was somebody else. */
export function strangeAnswer({ status, headers }, what) {
  const type = headers.get("content-type") ?? "no content-type";
  return new ConnectionError(
    `${what}: what answered (${status}, ${type}) is not Spillway. Check baseUrl, and whether the network wants a sign-in.`,
  );
}

/** The time that `wait` was given is over. */
export class TimeoutError extends SpillwayError {
  constructor(id, timeout, job) {
    const stands = job ? `it is ${job.status}` : "nothing is known of it yet";
    super(`Job ${id} was not over within ${timeout} ms; ${stands}, and it goes on. Wait for the same id again.`);
    Object.assign(this, { id, job });
  }
}

/** The job ended without an answer. */
export class JobFailedError extends SpillwayError {
  constructor(job) {
    const { id, reason, error, partial_text: partialText } = job;
    const advice = HOPELESS.has(reason)
      ? "Claude refused the request itself: correct it, or the deployment's account, before it is submitted again."
      : "It can be done again: regenerate(id).";
    super(`Job ${id} failed, ${reason}: ${sentence(error?.message ?? "no reason was given")} ${advice}`);
    Object.assign(this, { id, reason, partialText, job });
  }
}

/** Reasons with which regenerating ends as before. */
const HOPELESS = new Set([
  "invalid_request",
  "authentication_failed",
  "billing_failed",
  "permission_denied",
  "not_found",
  "request_too_large",
  "rejected",
]);

/** The job was taken back. */
export class JobCancelledError extends SpillwayError {
  constructor(job) {
    super(`Job ${job.id} was cancelled: there will be no answer. Submit it again, with another key, if it is wanted.`);
    Object.assign(this, { id: job.id, job });
  }
}

/** Whether the same request may well succeed later, though nothing is done about it. */
export function isTransient(error) {
  if (error instanceof ConnectionError || error instanceof RateLimitedError) return true;
  return error instanceof UnavailableError && (TRANSIENT.has(error.status) || error.status >= 520);
}

/** Ours, and those of proxies; Cloudflare has its own from 520 on. A 500 is a mistake, and stays one. */
const TRANSIENT = new Set([502, 503, 504]);

/** Seconds, from either form of the header. */
function retryAfter(headers) {
  const value = headers.get("retry-after");
  if (value === null || value.trim() === "") return undefined;
  const seconds = /^\s*\d+\s*$/.test(value) ? Number(value) : (Date.parse(value) - Date.now()) / 1000;
  return Number.isNaN(seconds) ? undefined : Math.max(0, Math.ceil(seconds));
}

/** @returns {any} */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const sentence = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);
