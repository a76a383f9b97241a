/** What `npm start` takes: few options, because it is for somebody who has just cloned this. */
import { parseArgs } from "node:util";
import { Problem } from "../run.mjs";

export const HELP = `Runs the main job on this machine: the Worker on workerd, a dozen jobs, and a bad spell of the API to get them through.

  npm start                      with the project's own fake Claude, which fails as a script says
  ANTHROPIC_API_KEY=… npm start  with the real API, which answers as it will, and costs a few cents
  npm start -- --once            exits after the summary: 0 only if every job ended as it should

  --once     exit after the summary
  --plain    one line per change instead of a live table
  --help     this

From the environment: PORT (8787; if it is taken, a free one), NO_COLOR, and with the real API also ANTHROPIC_BASE_URL,
PRIMARY_MODEL, FALLBACK_MODEL and POLICY.
`;

/**
 * @param {string[]} args
 * @param {Record<string, string | undefined>} env
 */
export function readOptions(args, env) {
  const options = { once: { type: "boolean" }, plain: { type: "boolean" }, help: { type: "boolean", short: "h" } };
  let values;
  try {
    ({ values } = parseArgs({ args, options }));
  } catch (error) {
    throw new Problem(`${error.message.split(". ")[0]}. npm start -- --help shows what there is.`);
  }
  const port = Number(env.PORT || 8787);
  if (!Number.isInteger(port) || port < 0 || port > 65_535) {
    throw new Problem(`PORT is ${env.PORT}: it has to be a number from 0 to 65535.`);
  }
  return { once: !!values.once, plain: !!values.plain, help: !!values.help, port };
}
