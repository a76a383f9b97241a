/**
 * `npm run deploy-button`: writes deploy-button/, the project that a Deploy-to-Cloudflare button copies. It is what
 * `spillway init` writes, without this machine's keys; a test compares the two, so that neither falls behind.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buttonFiles } from "./lib/init.mjs";
import { root } from "./lib/paths.mjs";
import { helpOnly, main } from "./lib/run.mjs";

await main(async () => {
  helpOnly(
    "npm run deploy-button\n\nWrites deploy-button/ anew, after a change of wrangler.toml or of what init writes.\n",
  );
  const directory = join(root, "deploy-button");
  mkdirSync(directory, { recursive: true });
  for (const [name, text] of Object.entries(buttonFiles())) writeFileSync(join(directory, name), text);
});
