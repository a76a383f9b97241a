/** `npm run setup:cloudflare`: see lib/cloudflare-setup.mjs, which needs the packages that this makes sure of. */
import { handOver } from "./lib/node.mjs";
import { main } from "./lib/run.mjs";
import { setUp } from "./lib/setup.mjs";

await main(async () => {
  await setUp();
  return handOver(new URL("./lib/cloudflare-setup.mjs", import.meta.url));
});
process.exit();
