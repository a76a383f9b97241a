/** Moments and durations, as people say them. */

/** @param {number} seconds */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return pair(whole, 60, "min", 1, "s");
  if (whole < 172_800) return pair(whole, 3600, "h", 60, "min");
  return pair(whole, 86_400, "days", 3600, "h");
}

/** To the second, however long: it is seen to go down. @param {number} seconds A whole number. */
export function toTheSecond(seconds) {
  const { floor } = Math;
  const parts = {
    d: floor(seconds / 86_400),
    h: floor(seconds / 3_600) % 24,
    min: floor(seconds / 60) % 60,
    s: seconds % 60,
  };
  const shown = Object.entries(parts).map(([unit, value]) => `${value} ${unit}`);
  return shown.slice(Object.values(parts).findIndex(Boolean)).join(" ");
}

/** To the hundredth of a second where that is much of it. @param {number} ms */
export const exactDuration = (ms) =>
  ms < 10_000 ? `${(ms / 1000).toLocaleString(undefined, { maximumFractionDigits: 2 })} s` : duration(ms / 1000);

function pair(whole, large, largeName, small, smallName) {
  const [first, second] = [Math.floor(whole / large), Math.floor((whole % large) / small)];
  return second === 0 ? `${first} ${largeName}` : `${first} ${largeName} ${second} ${smallName}`;
}

/**
 * A moment of today by its time, any other with its day.
 *
 * @param {string} at RFC 3339
 * @param {"short" | "medium"} [precision] Minutes or seconds.
 */
export function moment(at, precision = "short") {
  const date = new Date(at);
  const isToday = date.toDateString() === new Date().toDateString();
  return date.toLocaleString(undefined, { ...(!isToday && { dateStyle: "medium" }), timeStyle: precision });
}
