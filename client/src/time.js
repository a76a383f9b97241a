/** Waiting, and stopping to. */

/**
 * How the client paces itself, in milliseconds.
 *
 * - `retry`, `longestRetry`: the first pause after a failure, and the longest.
 * - `request`: how long an ordinary request may take.
 * - `firstByte`: how long a stream of events may be silent at its beginning, where the server speaks at once.
 * - `silence`: how long later, where there is a heartbeat (every 15 s, unless the deployment says otherwise).
 * - `hold`: how long the server is asked to hold the answer of a poll.
 */
export const TIMING = {
  retry: 500,
  longestRetry: 30_000,
  request: 30_000,
  firstByte: 5_000,
  silence: 45_000,
  hold: 30_000,
};

/** How long to wait after so many failures in a row: half of it fixed, half drawn, so that clients do not come as a herd. */
export function backoff(failures, { retry, longestRetry }) {
  const most = Math.min(longestRetry, retry * 2 ** (failures - 1));
  return most / 2 + Math.random() * (most / 2);
}

/** Resolves after a while; rejects as soon as the signal is aborted. */
export function sleep(ms, signal) {
  let timer;
  const over = new Promise((resolve) => (timer = setTimeout(resolve, Math.min(ms, LONGEST))));
  return abortable(over, signal).finally(() => clearTimeout(timer));
}

/** What `promise` comes to, or the reason of the signal as soon as that is aborted: a `fetch` that was passed in may not care. */
export function abortable(promise, signal) {
  return new Promise((resolve, reject) => {
    const aborted = () => reject(reasonOf(signal));
    if (signal?.aborted) aborted();
    signal?.addEventListener("abort", aborted);
    promise.then(resolve, reject).finally(() => signal?.removeEventListener("abort", aborted));
  });
}

/**
 * A signal that follows another one, and can be aborted by hand or by a clock. `AbortSignal.any` and `.timeout` do that, but
 * React Native has neither.
 *
 * @param {AbortSignal} [outer]
 */
export function leash(outer) {
  const controller = new AbortController();
  const { signal } = controller;
  const abort = (reason) => {
    // Where signals know no reasons; before whoever listens looks at it.
    if (!("reason" in signal)) signal.reason = reason;
    controller.abort(reason);
  };
  const follow = () => abort(reasonOf(outer));
  if (outer?.aborted) follow();
  else outer?.addEventListener("abort", follow);
  let timer;
  return {
    signal,
    abort,
    /** Aborts after so long with the error that is made then; until the next call, which starts the clock anew. */
    within(ms, error) {
      clearTimeout(timer);
      timer = setTimeout(() => abort(error()), Math.min(ms, LONGEST));
    },
    /** Nothing follows any more. What is still under way is dropped. */
    release() {
      clearTimeout(timer);
      outer?.removeEventListener("abort", follow);
      abort(new Error("released"));
    },
  };
}

/** Why a signal was aborted; where signals do not say, what `fetch` would reject with. */
function reasonOf(signal) {
  if (signal.reason !== undefined) return signal.reason;
  const message = "This operation was aborted";
  if (typeof DOMException === "function") return new DOMException(message, "AbortError");
  return Object.assign(new Error(message), { name: "AbortError" });
}

/** The longest time that a timer takes: a longer one would ring at once. */
const LONGEST = 2 ** 31 - 1;
