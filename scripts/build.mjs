/** `npm run build`: the Worker for production, in build/. wrangler calls it too, before a deployment. */
import { helpOnly, main } from "./lib/run.mjs";
import { setUp } from "./lib/setup.mjs";
import { wasmSize } from "./lib/worker-build.mjs";

await main(async () => {
  helpOnly("npm run build\n\nBuilds the Worker into build/, unless that is up to date, and says how large it is.\n");
  await setUp({ build: true });
  const { bytes, gzipped } = wasmSize();
  const kilobytes = (n) => `${(n / 1000).toFixed(1)} KB`;
  process.stdout.write(`The Worker is in build/: ${kilobytes(bytes)} of Wasm, ${kilobytes(gzipped)} gzipped.\n`);
});
