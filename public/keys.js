/**
 * The keys that were given to this page, in memory and nowhere else: not in the address, not in a cookie, and not in
 * sessionStorage either, which a browser writes to its disk to bring a tab back after a crash, and copies into a tab that is
 * duplicated. The price is that a reload asks for the key again; the job that was watched is in the address, and goes on by itself
 * once the key is there.
 */

/** @typedef {"client" | "operator"} Role */

/** @type {Map<Role, string>} */
const held = new Map();
/** @type {Set<(role: Role) => void>} */
const listeners = new Set();

export const keys = {
  /** @param {Role} role */
  get: (role) => held.get(role),

  /** @param {Role} role @param {string | undefined} key Nothing forgets it. */
  set(role, key) {
    if (held.get(role) === key) return;
    if (key === undefined) held.delete(role);
    else held.set(role, key);
    for (const listener of listeners) listener(role);
  },

  /** @param {(role: Role) => void} listener Told of a key that was given, changed or forgotten. */
  onChange: (listener) => void listeners.add(listener),
};
