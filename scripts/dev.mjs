/**
 * `npm run dev`: the Worker alone on workerd, set up and built if need be. What it takes from the environment is in
 * lib/dev-server.mjs, which needs the packages that this makes sure of.
 */
import { handOver } from "./lib/node.mjs";
import { main } from "./lib/run.mjs";
import { setUp } from "./lib/setup.mjs";

await main(async () => {
  await setUp({ build: true });
  return handOver(new URL("./lib/dev-server.mjs", import.meta.url));
});
process.exit();
