/**
 * The models that the fake knows, with the abilities that make requests fail.
 *
 * `thinking` lists the types that a model takes. `sampling` is whether it takes temperature and its like at other values than
 * their defaults; sonnet-5-5 and opus-5-5 really take neither these nor a forced tool, which the fake lets pass, so that one
 * model is enough for tests of every kind of body. The rest is the API's, as it was documented in October 2026.
 *
 * A model that is not in the table but is called claude-… answers like the newest ones, so that a test may use names of
 * its own; every other name is a 404, as a retired model id is.
 */
const NEWEST = {
  context: 1_000_000,
  output: 128_000,
  thinking: ["adaptive", "disabled"],
  effort: ["low", "medium", "high", "xhigh", "max"],
  sampling: true,
  prefill: false,
};

const ABILITIES = {
  "claude-opus-5-5": { ...NEWEST, thinking: ["adaptive"] },
  "claude-sonnet-5-5": { ...NEWEST, thinking: ["adaptive", "between_tools"] },
  "claude-haiku-5-5": { ...NEWEST, sampling: false },
  "claude-fable-5-1": { ...NEWEST, thinking: ["adaptive"] },
  "claude-sonnet-4-6": {
    ...NEWEST,
    thinking: ["adaptive", "enabled", "disabled"],
    effort: ["low", "medium", "high", "max"],
  },
  "claude-haiku-4-5": {
    context: 200_000,
    output: 64_000,
    thinking: ["enabled", "disabled"],
    effort: [],
    sampling: true,
    prefill: true,
  },
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
