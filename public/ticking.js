/**
 * Seconds that pass on the page: what the server says is so and so many seconds away comes nearer without it being asked again. One
 * timer for all of them, and none while there are none; what has left the page is forgotten.
 */
import { h } from "./dom.js";
import { duration } from "./time.js";

/** @type {Map<HTMLElement, () => void>} */
const ticking = new Map();
let timer;

/** @param {number} seconds @returns {number} The moment that is so far away, by this tab's own clock, which nobody sets. */
export const momentIn = (seconds) => performance.now() + seconds * 1000;

/** @param {number} moment Of `momentIn`. @returns {number} Whole seconds; 0 or less if it has come. */
export const secondsUntil = (moment) => Math.ceil((moment - performance.now()) / 1000);

/** Time left; `over` is said once there is none. @param {number} seconds */
export function countdown(seconds, over = "any moment") {
  const end = momentIn(seconds);
  return tick(() => {
    const left = secondsUntil(end);
    return left > 0 ? duration(left) : over;
  });
}

/** Time since. @param {number} seconds */
export function age(seconds) {
  const from = momentIn(-seconds);
  return tick(() => duration((performance.now() - from) / 1000));
}

/** A text that is said anew each second. @param {() => string} say */
export function tick(say) {
  const element = h("span", { class: "tick" }, say());
  ticking.set(element, () => {
    const text = say();
    if (element.textContent !== text) element.textContent = text;
  });
  timer ??= setInterval(pass, 1_000);
  return element;
}

function pass() {
  for (const [element, draw] of ticking) {
    if (element.isConnected) draw();
    else ticking.delete(element);
  }
  if (ticking.size > 0) return;
  clearInterval(timer);
  timer = undefined;
}
