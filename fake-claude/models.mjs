/**
 * The models that the fake knows, with the abilities that make requests fail.
 *
 * A model that is not in the table but is called claude-… answers like the newest ones, so that a test may use names of
 * its own; every other name is a 404, as a retired model id is.
 */
const NEWEST = { context: 1_000_000, output: 128_000, adaptive: true, enabledThinking: false, prefill: false };

const ABILITIES = {
  "claude-opus-5-5": NEWEST,
  "claude-sonnet-5-5": NEWEST,
  "claude-haiku-5-5": { ...NEWEST, output: 64_000 },
  "claude-fable-5-1": NEWEST,
  "claude-sonnet-4-6": { context: 200_000, output: 64_000, adaptive: true, enabledThinking: true, prefill: false },
  "claude-haiku-4-5": { context: 200_000, output: 64_000, adaptive: false, enabledThinking: true, prefill: true },
};

export const KNOWN_MODELS = Object.keys(ABILITIES);

/** What this model can do, or null if there is no such model. `only` (from the script) limits which there are. */
export function abilitiesOf(model, only = null) {
  if (only && !only.includes(model)) return null;
  const undated = model.replace(/-[0-9]{8}$/, "");
  if (Object.hasOwn(ABILITIES, undated)) return ABILITIES[undated];
  return only || model.startsWith("claude-") ? NEWEST : null;
}

/** One entry of `GET /v1/models`. */
export function modelInfo(model) {
  return { type: "model", id: model, display_name: displayName(model), created_at: "2026-06-01T00:00:00Z" };
}

function displayName(model) {
  const [family, name, ...version] = model.split("-");
  const capital = (word = "") => word.slice(0, 1).toUpperCase() + word.slice(1);
  return [capital(family), capital(name), version.join(".")].filter(Boolean).join(" ");
}
