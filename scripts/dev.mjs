/**
 * `npm run dev`: the Worker alone on workerd, set up and built if need be. What it takes from the environment is in
 * lib/dev-server.mjs, which needs the packages that this makes sure of.
 */
import { handOver } from "./lib/node.mjs";
import { helpOnly, main } from "./lib/run.mjs";
import { setUp } from "./lib/setup.mjs";

const HELP = `npm run dev

Runs the Worker on workerd until you stop it, and says when it is ready. It takes from the environment, or from .dev.vars:

  PORT               8787
  HOST               127.0.0.1
  STATE_DIR          where jobs are kept; .state/dev by default
  ANTHROPIC_API_KEY  the key with which Claude is called
  CLIENT_KEYS        who may submit jobs: name:key pairs, comma-separated
  ADMIN_KEY          the operator's key
  POLICY             JSON; see the README
  WEBHOOK_SECRET     whsec_ and base64; without it, submissions that name a webhook are refused
  ANTHROPIC_BASE_URL, PRIMARY_MODEL, FALLBACK_MODEL, SIGNING_SECRET, SLACK_WEBHOOK_URL
`;

await main(async () => {
  helpOnly(HELP);
  await setUp({ build: true });
  return handOver(new URL("./lib/dev-server.mjs", import.meta.url));
});
process.exit();
