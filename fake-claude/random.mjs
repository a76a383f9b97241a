/**
 * Chance that can be repeated.
 *
 * A draw is a pure function of the seed, a name and a number ("rules[2]", call 17), not the next value of a shared
 * generator: the same script under the same seed lets the same calls fail, whatever else was drawn in between.
 */
import { createHash } from "node:crypto";

/** A number in [0, 1) for this seed, name and number. */
export function draw(seed, name, number) {
  const digest = createHash("sha256").update(`${seed}/${name}/${number}`).digest();
  return digest.readUIntBE(0, 6) / 2 ** 48;
}

const ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/** An identifier like the API's own (`msg_01…`, `req_011C…`), the same for the same parts. */
export function identifier(prefix, ...parts) {
  const digest = createHash("sha256").update(JSON.stringify(parts)).digest();
  return prefix + Array.from(digest.subarray(0, 22), (byte) => ALPHABET[byte % ALPHABET.length]).join("");
}
