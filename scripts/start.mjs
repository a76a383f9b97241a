/**
 * `npm start`: from a fresh clone to a dozen answered jobs. Sets up and builds what is missing, then runs the demo
 * (lib/demo/main.mjs), which needs the packages that this makes sure of.
 */
import { HELP, readOptions } from "./lib/demo/options.mjs";
import { handOver } from "./lib/node.mjs";
import { main } from "./lib/run.mjs";
import { setUp } from "./lib/setup.mjs";

await main(async () => {
  const { help } = readOptions(process.argv.slice(2), process.env);
  if (help) return void process.stdout.write(HELP);
  await setUp({ build: true });
  return handOver(new URL("./lib/demo/main.mjs", import.meta.url));
});
process.exit();
