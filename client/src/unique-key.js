/**
 * An idempotency key that nobody else has. It need not be secret: a client's keys are its own. `randomUUID` is missing in
 * React Native, and on pages that did not come over https.
 */
export function uniqueKey() {
  const { crypto } = globalThis;
  if (crypto?.randomUUID) return crypto.randomUUID();
  const bytes = new Uint8Array(16);
  if (crypto?.getRandomValues) crypto.getRandomValues(bytes);
  else for (let n = 0; n < bytes.length; n += 1) bytes[n] = Math.random() * 256;
  const random = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  // Where there is no real randomness, the time makes two starts of the app differ.
  return `${Date.now().toString(36)}-${random}`;
}
