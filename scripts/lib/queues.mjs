/** The queues of an account. */
import { Problem, tail } from "./run.mjs";
import { wrangler } from "./wrangler.mjs";

/** All that a configuration names: to write to, to read from, and for the dead. */
export function queueNames({ queues: { producers = [], consumers = [] } }) {
  return [
    ...new Set(
      [...producers, ...consumers].flatMap(({ queue, dead_letter_queue: dead }) => [queue, ...(dead ? [dead] : [])]),
    ),
  ];
}

/**
 * @param {string} name
 * @param {Record<string, string | undefined>} env
 * @returns {Promise<boolean>}
 */
export async function queueExists(name, env) {
  const { status, output } = await wrangler(["queues", "info", name], { env });
  if (status === 0) return true;
  if (/does not exist/.test(output)) return false;
  throw new Problem("The queues could not be looked at: the login needs the permission Queues.", tail(output, 15));
}

/**
 * @param {string} name
 * @param {Record<string, string | undefined>} env
 * @param {(line: string) => void} say
 */
export async function createQueue(name, env, say) {
  const { status, output } = await wrangler(["queues", "create", name], { env });
  // Another run of this may have been quicker.
  if (status !== 0 && !/already (taken|exists)/i.test(output)) {
    throw new Problem(`The queue ${name} could not be created: see wrangler's message above.`, tail(output, 15));
  }
  say(`Queue ${name}: created`);
}
