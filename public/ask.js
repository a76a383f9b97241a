/**
 * How the operator asks the API, and what time it is there. What goes wrong is an Error with what is known then: `problems`, by the
 * places that the API names; `isKey`, that the key opens nothing; `status`, if there was an answer.
 */
import { keys } from "./keys.js";

/** Ten jobs may take long. */
const PATIENCE_MS = 60_000;

/** How far the server's clock is ahead of this machine's, by its last answer: an end is a moment by the server's. */
let aheadMs = 0;

/** @param {number} seconds @returns {string} The moment that is so far away, in RFC 3339. */
export const fromNow = (seconds) => new Date(Date.now() + aheadMs + seconds * 1000).toISOString();

/**
 * @param {string} path
 * @param {{ method?: string, body?: object, key?: string, signal?: AbortSignal }} [options] `signal` is for who no longer wants to
 *   know: what it rejects with then says nothing.
 */
export async function ask(path, { method = "GET", body, key = keys.get("operator"), signal } = {}) {
  const headers = { authorization: `Bearer ${key}`, accept: "application/json" };
  if (body) headers["content-type"] = "application/json";
  const patience = AbortSignal.timeout(PATIENCE_MS);
  let response;
  let answer;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body && JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, patience]) : patience,
      // Nothing of it is kept by the browser: with the client's key the same address is answered otherwise.
      cache: "no-store",
    });
    answer = await response.json();
  } catch (error) {
    if (!response) throw unreachable(method, error);
  }
  const date = Date.parse(response.headers.get("date") ?? "");
  if (date) aheadMs = date - Date.now();
  if (response.ok && answer !== undefined) return answer;
  const { status } = response;
  const { message, problems } = answer?.error ?? {};
  throw Object.assign(new Error(message ?? `The server answered ${status}.`), {
    status,
    problems,
    isKey: status === 401 || status === 403,
  });
}

function unreachable(method, error) {
  const what = error.name === "TimeoutError" ? "The server does not answer." : "The server is out of reach.";
  return new Error(
    method === "GET" ? what : `${what} Whether it has been done is not known: look, or do the same again.`,
  );
}
