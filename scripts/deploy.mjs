/** `npm run deploy`: see lib/deployment.mjs, which needs the build that this makes sure of. */
import { handOver } from "./lib/node.mjs";
import { main } from "./lib/run.mjs";
import { setUp } from "./lib/setup.mjs";

await main(async () => {
  const help = process.argv.includes("--help");
  await setUp({ build: !help });
  return handOver(new URL("./lib/deployment.mjs", import.meta.url));
});
process.exit();
