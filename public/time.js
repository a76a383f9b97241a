/** Moments and durations, as people say them. */

/** @param {number} seconds */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return pair(whole, 60, "min", 1, "s");
  if (whole < 172_800) return pair(whole, 3600, "h", 60, "min");
  return pair(whole, 86_400, "days", 3600, "h");
}

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
