/** What the tests of the synchronous path share: the official SDK as it comes from npm, and a call that it makes. */
import Anthropic from "@anthropic-ai/sdk";
import { KEYS, MARK, MODEL } from "./harness.mjs";

/** The SDK, pointed at a deployment; with its own retries unless told otherwise. */
export const sdk = (spillway, options = {}) => new Anthropic({ baseURL: spillway.url, apiKey: KEYS.app, ...options });

export const call = (text, more = {}) => ({
  model: MODEL,
  max_tokens: 200,
  messages: [{ role: "user", content: `${MARK} ${text}` }],
  ...more,
});

/** How the calls with this marker ended, by the fake's log. */
export const statuses = (spillway, marker) => spillway.calls({ marker }).map(({ outcome }) => outcome.status);
