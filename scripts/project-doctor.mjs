/** `npm run doctor` in a project of the npm package: see lib/project-doctor.mjs, which has to do with what is there. */
import { handOver, installed, nodeBinary } from "./lib/node.mjs";
import { helpOnly, main } from "./lib/run.mjs";

const HELP = `npm run doctor

Says what this project has of what npm run dev and npm run deploy need, what is missing, and how it comes here.
It changes nothing.
`;

await main(async () => {
  helpOnly(HELP);
  const doctor = new URL("./lib/project-doctor.mjs", import.meta.url);
  return nodeBinary() && installed("wrangler") ? handOver(doctor) : (await import(doctor.href)).main([]);
});
process.exit();
