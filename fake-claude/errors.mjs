/**
 * The API's failures: status, body and headers of each, as claude-like clients meet them.
 *
 * Presets have names, so that a script says what it means ("acceleration", "spend_cap") and not only a number: several
 * of them share a status and differ in what a client ought to do. A 529 carries `x-should-retry: true` and no
 * retry-after, as the real one does; 413 and 520–524 come from the network in front of the API, as HTML.
 */
/**
 * @typedef {object} Failure
 * @property {number} status
 * @property {string} type            `error.type`
 * @property {string} message         `error.message`
 * @property {object|null} [details]  `error.details`
 * @property {"json"|"html"|"empty"|"truncated"} [body]
 * @property {boolean|null} [should_retry]  `x-should-retry`; null leaves the header out
 */

const OVERLOADED = { status: 529, type: "overloaded_error", message: "Overloaded", should_retry: true };

/** @type {Record<string, Failure>} */
export const PRESETS = {
  overloaded: OVERLOADED,
  rate_limit: {
    status: 429,
    type: "rate_limit_error",
    message:
      "This request would exceed your organization's rate limit of 50 requests per minute. For details, refer to: https://docs.claude.com/en/api/rate-limits",
    should_retry: true,
  },
  acceleration: {
    status: 429,
    type: "rate_limit_error",
    message:
      "This request would exceed your organization's maximum usage increase rate (acceleration limit) for input tokens per minute. Scale up your usage more gradually to stay within it.",
    should_retry: true,
  },
  spend_cap: {
    status: 429,
    type: "rate_limit_error",
    message: "Your organization has reached its enforced monthly spend limit. Usage resets at 00:00 UTC on the 1st.",
    details: { error_code: "enforced_spend_limit_reached" },
    should_retry: false,
  },
  usage_limit: {
    status: 400,
    type: "invalid_request_error",
    message:
      "You have reached your specified API usage limits. You will regain access on the first day of next month at 00:00 UTC.",
    should_retry: false,
  },
  workspace_usage_limit: {
    status: 400,
    type: "invalid_request_error",
    message:
      "You have reached your specified workspace API usage limits. You will regain access on the first day of next month at 00:00 UTC.",
    should_retry: false,
  },
  invalid_request: { status: 400, type: "invalid_request_error", message: "Bad request", should_retry: false },
  authentication: { status: 401, type: "authentication_error", message: "invalid x-api-key", should_retry: false },
  billing: {
    status: 402,
    type: "billing_error",
    message: "There is a problem with your billing information. Please check your payment details.",
    should_retry: false,
  },
  permission: {
    status: 403,
    type: "permission_error",
    message: "Your API key does not have permission to use the specified resource.",
    should_retry: false,
  },
  not_found: { status: 404, type: "not_found_error", message: "Not found", should_retry: false },
  request_timeout: { status: 408, type: "timeout_error", message: "Request timed out", should_retry: true },
  conflict: {
    status: 409,
    type: "conflict_error",
    message: "The request conflicts with one still in progress.",
    should_retry: true,
  },
  too_large: { status: 413, type: "request_too_large", message: "Request Entity Too Large", body: "html" },
  api_error: { status: 500, type: "api_error", message: "Internal server error", should_retry: true },
  bad_gateway: { status: 502, type: "api_error", message: "Bad gateway", should_retry: true },
  unavailable: { status: 503, type: "api_error", message: "Service unavailable", should_retry: true },
  timeout: {
    status: 504,
    type: "timeout_error",
    message: "The request took too long to process. Consider streaming long requests.",
    should_retry: true,
  },
  ...Object.fromEntries(
    [
      [520, "Web server is returning an unknown error"],
      [521, "Web server is down"],
      [522, "Connection timed out"],
      [523, "Origin is unreachable"],
      [524, "A timeout occurred"],
    ].map(([status, message]) => [`cdn_${status}`, { status, type: "api_error", message, body: "html" }]),
  ),
};

// The first preset of a status is what a bare `"status": 429` means.
const BY_STATUS = new Map();
for (const failure of [PRESETS.invalid_request, ...Object.values(PRESETS)]) {
  if (!BY_STATUS.has(failure.status)) BY_STATUS.set(failure.status, failure);
}

/** The failure that a bare status means; any other 4xx or 5xx gets the type of its class. */
export function failureOf(status) {
  const known = BY_STATUS.get(status);
  if (known) return known;
  return status < 500
    ? { status, type: "invalid_request_error", message: `HTTP ${status}`, should_retry: false }
    : { status, type: "api_error", message: `HTTP ${status}`, should_retry: true };
}

/** A 400 with this message. */
export const invalidRequest = (message) => ({ ...PRESETS.invalid_request, message });

/** The JSON body that every error of the API has, in an answer or as the data of a stream's `error` event. */
export function errorBody(failure, requestId) {
  const { type, message, details = null } = failure;
  return { type: "error", error: { type, message, details }, request_id: requestId };
}

/** The page that stands in for an answer when something in front of the API speaks. */
export function htmlPage(failure) {
  const title = `${failure.status} ${failure.message}`;
  return `<!DOCTYPE html>\n<html>\n<head><title>${title}</title></head>\n<body>\n<center><h1>${title}</h1></center>\n<hr><center>cloudflare</center>\n</body>\n</html>\n`;
}

/** Body, content type and the headers of a failure's own (not those that every answer has). */
export function renderFailure(failure, requestId, now) {
  const headers = {};
  const { should_retry: shouldRetry, retry_after: retryAfter, retry_after_ms: retryAfterMs } = failure;
  if (typeof shouldRetry === "boolean") headers["x-should-retry"] = String(shouldRetry);
  if (retryAfter !== undefined) headers["retry-after"] = retryAfterHeader(retryAfter, now);
  if (retryAfterMs !== undefined) headers["retry-after-ms"] = String(retryAfterMs);
  const json = JSON.stringify(errorBody(failure, requestId));
  switch (failure.body ?? "json") {
    case "html":
      return { headers: { ...headers, "content-type": "text/html; charset=UTF-8" }, body: htmlPage(failure) };
    case "empty":
      return { headers, body: "" };
    case "truncated":
      return { headers: { ...headers, "content-type": "application/json" }, body: json.slice(0, json.length / 2) };
    default:
      return { headers: { ...headers, "content-type": "application/json" }, body: json };
  }
}

function retryAfterHeader(value, now) {
  if (typeof value === "object") return new Date(now + value.date_in_seconds * 1000).toUTCString();
  return String(value);
}
