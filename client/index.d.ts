/** Types of spillway-client. What comes from the API keeps the API's names (`status_url`); what is this module's is camelCase. */

/** A deployment of Spillway. Everything that asks it something may be aborted, and rejects with the signal's reason then. */
export class Spillway {
  constructor(options: SpillwayOptions);

  /**
   * Hands a request over, and resolves with the receipt as soon as it is stored. Connection failures, 429 and 502 to 504 are
   * tried again, at most four times: all tries bear one idempotency key, and so are one job. What the call rejects with has
   * the key as `idempotencyKey`, to try later what may have arrived.
   */
  submit(job: Submission, options?: SubmitOptions): Promise<Receipt>;

  /**
   * Resolves with the status of the job when it is done; also in another process than the one that submitted it, since the
   * id is all that it needs. Follows the job's events, and asks for its status again and again where those cannot be had.
   *
   * A `stalled` job is not over: `onStalled` is asked, and the waiting goes on, whether anybody answers or not (silence means
   * that the job waits for quieter hours).
   *
   * As long as nothing has been heard of the job, it gives up where `submit` does. Once something has, a network that comes
   * and goes is waited out: use `timeout` or `signal` to end that.
   *
   * @throws {JobFailedError} The job failed.
   * @throws {JobCancelledError} The job was cancelled.
   * @throws {TimeoutError} `timeout` is over; the job goes on.
   * @throws {NotFoundError} There is no such job, or it was erased meanwhile.
   */
  wait(job: JobReference, options?: WaitOptions): Promise<DoneJob>;

  /** The job's status as it is now. */
  status(job: JobReference, options?: ReadOptions): Promise<Job>;

  /**
   * Lets a stalled job wait for quieter hours. Twice is as good as once.
   *
   * @throws {ConflictError} The job is not asking.
   */
  acceptDeferral(job: JobReference, options?: CallOptions): Promise<Job>;

  /**
   * Ends a stalled job; it is `failed` with the reason `deferral_declined`.
   *
   * @throws {ConflictError} The job is not asking.
   */
  declineDeferral(job: JobReference, options?: CallOptions): Promise<Job>;

  /**
   * Does a job again that failed, or that another model answered: a new job, on the model that was asked for. Asked twice, it
   * is the same new job.
   *
   * @throws {ConflictError} There is nothing to do better.
   */
  regenerate(job: JobReference, options?: CallOptions): Promise<Receipt>;

  /** Takes a job back. Resolves with its status if it was unfinished, and with nothing if it was finished: then it is erased. */
  cancel(job: JobReference, options?: CallOptions): Promise<Job | undefined>;

  /** One page of this client's jobs, newest first. */
  list(options?: ListOptions): Promise<JobPage>;

  /** All of this client's jobs, newest first, page by page as they are wanted. `limit` is the length of a page. */
  jobs(options?: Omit<ListOptions, "cursor">): AsyncGenerator<JobSummary, void, undefined>;
}

export interface SpillwayOptions {
  /** The deployment's address, without `/v1`. */
  baseUrl: string | URL;
  /** A client key. Not in a browser: whoever opens the page can read it. */
  key?: string | undefined;
  /** In place of the key, a job's read token, which opens that job's status and events only. */
  readToken?: string | undefined;
  /** In place of the global one; such as `expo/fetch`, with which events stream in React Native. */
  fetch?: typeof globalThis.fetch | undefined;
  /** The language of messages to the user (`Accept-Language`); a job's own `locale` goes first. */
  locale?: string | undefined;
  /** How the client paces itself; the defaults are for the internet. */
  timing?: Partial<Timing> | undefined;
}

/** All in milliseconds. */
export interface Timing {
  /** The first pause after a failure, of which half is fixed and half is drawn; it doubles with each. 500. */
  retry: number;
  /** The longest pause; and the longest `Retry-After` that is waited out by anything but `wait`, which obeys any. 30,000. */
  longestRetry: number;
  /** How long an ordinary request may take. 30,000. */
  request: number;
  /** After so long without a byte at its beginning, a stream of events counts as held back by a proxy. 5,000. */
  firstByte: number;
  /** After so long without a byte later on, it counts as broken; longer than the deployment's `events.heartbeat_seconds`. 45,000. */
  silence: number;
  /** How long the server is asked to hold the answer to a poll, at most 60,000. 30,000. */
  hold: number;
}

/** A job's id, or whatever has it: a receipt, a status, an entry of the list. */
export type JobReference = string | { id: string; read_token?: string | undefined };

export interface CallOptions {
  signal?: AbortSignal | undefined;
}

export interface SubmitOptions extends CallOptions {
  /** 1 to 255 printable ASCII characters. Made for you if you give none: one for each call of `submit`. */
  idempotencyKey?: string | undefined;
}

export interface ReadOptions extends CallOptions {
  /** Goes before the client's key and the receipt's own token. */
  readToken?: string | undefined;
}

export interface WaitOptions extends ReadOptions {
  /** In milliseconds; without it, as long as the job takes. */
  timeout?: number | undefined;
  /** Told of every change: of the status, the text, a draft that is discarded, the connection. What it throws, or its promise is rejected with, ends the waiting. */
  onProgress?: ((progress: Progress) => unknown) | undefined;
  /** Told once of every offer to wait for quieter hours, to be answered by `acceptDeferral` or `declineDeferral`. As with `onProgress`, its errors end the waiting. */
  onStalled?: ((offer: Offer, job: Job) => unknown) | undefined;
}

export interface ListOptions extends CallOptions {
  status?: JobStatus | undefined;
  /** 1 to 100; 20 without it. */
  limit?: number | undefined;
  /** `next_cursor` of the page before. */
  cursor?: string | undefined;
}

/** What there is to show while a job is waited for. Show all of it anew each time: `text` is whole, and may be shorter. */
export interface Progress {
  /** Missing only while events have brought text but no status yet, which a healthy server does not do. */
  status?: JobStatus;
  /** A sentence for the user. */
  message?: Message;
  /** Why the job waits, and for how long. */
  waiting?: Waiting;
  /** What a stalled job asks. */
  offer?: Offer;
  /** The text so far; the whole and final one when it is done. Always empty in between where events cannot be had. */
  text: string;
  /** Which draft that is; nothing while there is none, and for the final text. */
  draft?: number;
  /** The draft that was just thrown away, and why: its text is no longer in `text`. */
  discarded?: { draft: number; reason: string };
  /** Whether the server can be heard. While it cannot, the rest is as it was, and the client goes on trying. */
  connected: boolean;
  /** The whole status. */
  job?: Job;
}

/** Names that there are, and any other that a later version may have. */
type Open<Known extends string> = Known | (string & {});

export type JobStatus =
  | "received"
  | "generating"
  | "refining"
  | "retrying"
  | "held"
  | "stalled"
  | "deferred"
  | "done"
  | "failed"
  | "cancelled";

/** See "A submission" in Spillway's README. */
export interface Submission {
  kind: Open<
    | "short_summary"
    | "tagging"
    | "classification"
    | "structured_extract"
    | "long_form_writing"
    | "code_generation"
    | "default"
  >;
  /** The body of a Messages request; `model` may be left out. */
  request: { max_tokens: number; messages: readonly unknown[]; model?: string; [member: string]: unknown };
  priority?: "high" | "medium" | "low";
  deadline_seconds?: number;
  preset?: "realtime" | "batch" | "offline";
  metadata?: Record<string, unknown>;
  locale?: string;
  /** Where to be told how the job goes on, by Standard Webhooks. */
  webhook?: string;
  when_exhausted?: "ask" | "defer" | "fail";
  when_interrupted?: "restart" | "fail";
}

export interface Receipt {
  id: string;
  status: JobStatus;
  status_url: string;
  events_url?: string;
  /** Opens this job's status and events, and nothing else: what a browser may have. Only where SIGNING_SECRET is set. */
  read_token?: string;
  read_token_expires_at?: string;
  message: Message;
}

export interface Message {
  code: Open<
    | "received"
    | "working"
    | "delayed"
    | "done"
    | "downgraded"
    | "failed"
    | "cancelled"
    | "stalled"
    | "deferred"
    | "draft_saved"
  >;
  text: string;
}

export interface Waiting {
  reason: string;
  next_check_seconds: number;
  /** An estimate, no promise. */
  eta_seconds?: number;
}

export interface Offer {
  answer_within_seconds: number;
  without_answer: "deferred";
  resumes_at: string;
}

/** A status; see "A status" in Spillway's README. */
export type Job = UnfinishedJob | DoneJob | FailedJob | CancelledJob;

interface JobFields {
  id: string;
  message: Message;
  kind: string;
  priority: "high" | "medium" | "low";
  model_requested: string;
  attempts: number;
  calls: number;
  history: HistoryEntry[];
  metadata?: Record<string, unknown>;
  /** The job that this one does again. */
  regenerates?: string;
  /** How the telling of its webhook stands. */
  webhook?: { disabled_at?: string; events: WebhookEvent[] };
  created_at: string;
  updated_at: string;
  deadline_at: string;
}

export interface WebhookEvent {
  id: string;
  type: Open<"job.done" | "job.downgraded" | "job.failed" | "job.stalled">;
  attempts: number;
  delivered_at?: string;
  next_attempt_seconds?: number;
  given_up_at?: string;
  last_error?: string;
}

export interface UnfinishedJob extends JobFields {
  status: Exclude<JobStatus, "done" | "failed" | "cancelled">;
  waiting?: Waiting;
  offer?: Offer;
}

export interface DoneJob extends JobFields {
  status: "done";
  model_used: string;
  /** Whether another model answered than the one that was asked for. */
  downgraded: boolean;
  downgrade_reason?: Open<"overloaded" | "breaker_open" | "degraded" | "long_wait" | "overridden" | "low_priority">;
  /** The text of the answer. */
  text: string;
  /** The Message, as the Messages API gives it. Name its type if you have it: `result as Anthropic.Message`. */
  result: ClaudeMessage;
  finished_at: string;
}

export interface FailedJob extends JobFields {
  status: "failed";
  reason: FailureReason;
  error: { type: string; message: string; cause?: string; status?: number; request_id?: string };
  /** What had come before the answer broke off, if that was the end of it (`when_interrupted: "fail"`). */
  partial_text?: string;
  finished_at: string;
}

export interface CancelledJob extends JobFields {
  status: "cancelled";
  finished_at: string;
}

export type FailureReason = Open<
  | "attempts_exhausted"
  | "deadline_exceeded"
  | "deferral_declined"
  | "interrupted"
  | "spend_cap"
  | "invalid_request"
  | "authentication_failed"
  | "billing_failed"
  | "permission_denied"
  | "not_found"
  | "request_too_large"
  | "rejected"
>;

export interface HistoryEntry {
  at: string;
  model: string;
  cause: string;
  status: number | null;
  request_id: string | null;
  costs_attempt: boolean;
  computed_wait_ms: number | null;
  real_wait_ms: number | null;
}

export interface ClaudeMessage {
  id: string;
  type: "message";
  role: "assistant";
  model: string;
  content: { type: string; [member: string]: unknown }[];
  stop_reason: string | null;
  usage: { input_tokens: number; output_tokens: number; [member: string]: unknown };
  [member: string]: unknown;
}

export interface JobSummary {
  id: string;
  status: JobStatus;
  kind: string;
  created_at: string;
  finished_at?: string;
  /** What its webhook was not told, and will not be by itself. */
  webhook?: "given_up" | "disabled";
  status_url: string;
  /** The job did not answer just now, and may be further than this. */
  unconfirmed?: true;
}

export interface JobPage {
  jobs: JobSummary[];
  next_cursor?: string;
}

/** Whatever this module throws, but for aborts, which are the signal's reason. Its message ends with what to do. */
export class SpillwayError extends Error {
  /** Of a submission that failed: with it, the same can be submitted again without becoming another job. */
  idempotencyKey?: string;
}

/** The API said no. What has no class of its own is an InvalidRequestError below 500, and an UnavailableError from there on. */
export class ApiError extends SpillwayError {
  status: number;
  /** Anthropic's name for it, such as `not_found_error`; missing if the answer is a proxy's. */
  type?: string;
  requestId?: string;
  retryAfterSeconds?: number;
  /** Every fault of a submission, with its place. */
  problems: { place: string; message: string }[];
}

/** 400, 405, 413, 415, and what else has no class of its own. */
export class InvalidRequestError extends ApiError {}
/** 401 */
export class AuthenticationError extends ApiError {}
/** 403 */
export class PermissionError extends ApiError {}
/** 404 */
export class NotFoundError extends ApiError {}
/** 409 */
export class ConflictError extends ApiError {}
/** 429 */
export class RateLimitedError extends ApiError {}
/** 5xx */
export class UnavailableError extends ApiError {}

/** Nothing came back, not all of it, or something that is not Spillway's. `cause` has what `fetch` said. */
export class ConnectionError extends SpillwayError {}

/** The time that `wait` was given is over. The job goes on: wait for it again. */
export class TimeoutError extends SpillwayError {
  id: string;
  /** Its last known status. */
  job?: Job;
}

/** The job ended without an answer. */
export class JobFailedError extends SpillwayError {
  id: string;
  reason: FailureReason;
  /** What had come before the answer broke off, if that was the end of it. */
  partialText?: string;
  job: FailedJob;
}

/** The job was taken back. */
export class JobCancelledError extends SpillwayError {
  id: string;
  job: CancelledJob;
}
