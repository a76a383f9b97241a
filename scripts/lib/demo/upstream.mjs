/**
 * Which Claude the demo talks to: the real API if there is a key for it, else the project's own fake with a bad spell.
 *
 * The real one gets the settings of the environment and no script; how it behaves is its own affair, and so is the time
 * that it takes.
 */
import { startFakeClaude } from "../../../fake-claude/server.mjs";
import { SHORT_POLICY, SPELL } from "./spell.mjs";

const REAL = "https://api.anthropic.com";
const PASSED_ON = ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "PRIMARY_MODEL", "FALLBACK_MODEL", "POLICY"];

/**
 * @typedef {object} Upstream
 * @property {string} says What a person should know about it.
 * @property {boolean} fake
 * @property {Record<string, string | undefined>} vars For the Worker.
 * @property {number} patienceMs How long the jobs may take.
 * @property {() => Promise<void>} begin The bad spell, if there is one, starts now.
 * @property {(() => object[]) | null} calls The fake's log.
 * @property {string | null} url Of the fake.
 * @property {() => Promise<void>} stop
 */

/**
 * @param {Record<string, string | undefined>} env
 * @returns {Promise<Upstream>}
 */
export async function openUpstream(env) {
  if (env.ANTHROPIC_API_KEY) {
    return {
      says: `Upstream: the real Claude API at ${env.ANTHROPIC_BASE_URL || REAL}, with your ANTHROPIC_API_KEY. It costs a few cents.`,
      fake: false,
      vars: Object.fromEntries(PASSED_ON.map((name) => [name, env[name] || undefined])),
      patienceMs: 600_000,
      begin: async () => {},
      calls: null,
      url: null,
      stop: async () => {},
    };
  }
  const fake = await startFakeClaude({ script: SPELL });
  return {
    says: `Upstream: the project's own fake Claude on ${fake.url} (ANTHROPIC_API_KEY is not set), about to have a bad spell.`,
    fake: true,
    vars: { ANTHROPIC_BASE_URL: fake.url, ANTHROPIC_API_KEY: "fake-key", POLICY: JSON.stringify(SHORT_POLICY) },
    patienceMs: 120_000,
    begin: () => fake.reset(),
    calls: () => fake.calls({ bodies: false }),
    url: fake.url,
    stop: () => fake.stop(),
  };
}
