/** `node scripts/setup.mjs`: everything that building and testing need, without building. */
import { main } from "./lib/run.mjs";
import { setUp } from "./lib/setup.mjs";

await main(async () => {
  await setUp({ rust: true });
});
