/**
 * What the API says by its stable names, in words. What it says in words itself (`message.text`, in the language and the wording of
 * the deployment) is shown as it comes, and not said here again. A name that is not here is one of a newer Spillway: it is shown as
 * it is.
 */

/** The ten statuses, as the title of a job. */
export const STATUSES = {
  received: "Received",
  generating: "Generating",
  refining: "Refining",
  retrying: "Retrying",
  held: "Waiting",
  stalled: "Asking",
  deferred: "Put off",
  done: "Done",
  failed: "Failed",
  cancelled: "Cancelled",
};

/** @param {string} status */
export const statusName = (status) => STATUSES[status] ?? status;

/** The job waits without a failure of its own. */
const HELD = {
  breaker_open:
    "Claude is overloaded or out of reach. Nobody calls it but one job at a time, to find out when it is back.",
  probe_in_flight: "One job is finding out whether Claude is back.",
  retry_after: "The account’s rate limit asks for a wait.",
  overloaded: "Claude is overloaded, and has asked to be left alone for a while.",
  degraded: "Claude has been overloaded, call after call.",
  spend_cap: "The account has reached its spend cap. It is tried again now and then.",
  overridden: "Whoever runs this Spillway keeps the model from being called for now.",
  in_flight_limit: "As many calls are on their way as Claude bears. This one is in line.",
  pacing: "The rate that is allowed is used up for the moment.",
  off_peak: "It is of low priority, and waits for quieter hours.",
  paused: "Whoever runs this Spillway has paused the jobs of its priority for now.",
  gate_unavailable: "The gate in front of Claude does not answer. It is asked again.",
  delivery_budget: "There was no time left for a call. It goes on with fresh time.",
  delivery_lost: "Whoever was at work on it went silent. It is begun again.",
};

/** The last call failed: the causes of a failed call, which history and errors have too. */
export const CAUSES = {
  overloaded: "Claude was overloaded.",
  rate_limited: "The account’s rate limit was reached.",
  acceleration: "The account’s calls became more too quickly.",
  spend_cap: "The account’s spend cap was reached.",
  server_error: "Claude answered with an error of its own.",
  upstream_timeout: "Claude ran out of time.",
  conflict: "Claude met a conflict.",
  connection_failed: "The connection to Claude failed.",
  headers_timeout: "Claude did not begin to answer in time.",
  idle_timeout: "Claude fell silent in the middle of its answer.",
  total_timeout: "The answer took too long.",
  truncated: "The answer broke off.",
  malformed_answer: "The answer could not be read.",
  invalid_request: "Claude refused the request as invalid.",
  authentication_failed: "Claude refused the deployment’s key.",
  billing_failed: "The deployment’s account has a billing problem.",
  permission_denied: "The deployment’s account may not do this.",
  not_found: "Claude knows no such model.",
  request_too_large: "The request is too large.",
  rejected: "Claude refused the request.",
};

/** What an id that the API does not know may have been. */
export const NO_SUCH_JOB = "There is no job with this id: there never was, or it has been erased, or its time is over.";

/** Why a job waits: `waiting.reason`, which of a `retrying` job is the cause of its last failure. */
export function whyItWaits(status, reason) {
  if (reason === "deferred") return "It waits for quieter hours.";
  const known = status === "retrying" ? CAUSES[reason] : (HELD[reason] ?? CAUSES[reason]);
  return known ?? `It waits: ${reason}.`;
}

/** Why another model answered: `downgrade_reason`. */
export const DOWNGRADES = {
  overloaded: "was overloaded",
  breaker_open: "was overloaded or out of reach",
  degraded: "was overloaded, call after call",
  long_wait: "would have kept it waiting for long",
  overridden: "was kept from being called by whoever runs this Spillway",
  low_priority: "is not called first for jobs of low priority",
};

/** What to do about a job that failed, by its `reason`. Where `again` is set, the very same may well succeed later. */
export const FAILURES = {
  attempts_exhausted: { what: "Every attempt was in vain.", advice: "Try it again later.", again: true },
  deadline_exceeded: {
    what: "Its deadline passed before Claude could be reached.",
    advice: "Try it again, or submit it with a longer deadline.",
    again: true,
  },
  deferral_declined: { what: "You did not want it to wait.", advice: "Try it again whenever you like.", again: true },
  interrupted: {
    what: "Claude broke off in the middle of its answer.",
    advice: "What had come is kept. Generating it again begins anew.",
    again: true,
  },
  spend_cap: {
    what: "The account’s spend cap is reached.",
    advice: "Whoever runs this Spillway has to raise it; then try again.",
    again: true,
  },
  invalid_request: {
    what: "Claude refused the request as invalid.",
    advice: "Change the request, and submit it anew.",
  },
  authentication_failed: {
    what: "Claude refused this Spillway’s key.",
    advice: "Whoever runs it has to set ANTHROPIC_API_KEY; then submit it anew.",
  },
  billing_failed: {
    what: "The account behind this Spillway has a billing problem.",
    advice: "Whoever runs it has to settle that; then submit it anew.",
  },
  permission_denied: {
    what: "The account behind this Spillway may not do this.",
    advice: "Choose another model, or ask whoever runs it.",
  },
  not_found: { what: "Claude knows no such model.", advice: "Choose another model, and submit it anew." },
  request_too_large: {
    what: "The request is too large for Claude.",
    advice: "Shorten the prompt, and submit it anew.",
  },
  rejected: { what: "Claude refused the request.", advice: "Change the request, and submit it anew." },
};

/** @param {string} reason @returns {{ what: string, advice: string, again?: boolean }} */
export const failure = (reason) => FAILURES[reason] ?? { what: `It failed: ${reason}.`, advice: "", again: true };

/** How a call ended, in a table or a legend. */
export const causeName = (cause) => ({ answered: "answered", other: "other" })[cause] ?? cause.replaceAll("_", " ");

/** A gate's state. Open means that nobody gets through, which everybody but engineers reads the other way round. */
const GATE_STATES = { closed: "Serving", open: "Shut", half_open: "Trying" };
export const gateStateName = (state) => GATE_STATES[state] ?? state;

/** Why a gate holds everybody. */
const HOLDS = { retry_after: "asked to wait by a 429", overloaded: "asked to wait by a 529", spend_cap: "spend cap" };
export const holdName = (reason) => HOLDS[reason] ?? reason.replaceAll("_", " ");
