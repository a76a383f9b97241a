/** `npm run format`: rustfmt and prettier over everything. */
import { bin, root } from "./lib/paths.mjs";
import { nodeBinary } from "./lib/node.mjs";
import { main, run } from "./lib/run.mjs";
import { setUp } from "./lib/setup.mjs";

await main(async () => {
  const { toolchain } = await setUp({ rust: true });
  await run("cargo", ["fmt"], { log: "rustfmt", env: toolchain.env, remedy: "rustfmt could not read a file." });
  await run(nodeBinary(), [bin("prettier"), "--write", "--log-level", "warn", root], {
    log: "prettier",
    remedy: "prettier could not read a file.",
  });
});
