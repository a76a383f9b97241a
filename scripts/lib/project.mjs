/**
 * A project that uses the npm package: what its wrangler.toml lacks of what this version of the Worker needs.
 *
 * The Worker comes with the package, and a newer one may need an object, a queue or a namespace that the project's own
 * file has never heard of: a Worker without its binding fails at the first job, and a class without its migration at the
 * upload. The file is the project's and nobody's to write into; so what is missing is said, as the tables to add, before
 * anything runs. All of them are of a kind that may stand at the end of the file. What the project has changed or added
 * (names of queues, sizes of batches, routes, a later compatibility date) is its own.
 */
import { relative, resolve } from "node:path";
import { home, root } from "./paths.mjs";
import { Problem } from "./run.mjs";

/** Where things of the package are, as seen from the project. */
export const PACKAGE = "node_modules/spillway";

/** @param {string} path Relative to the package. */
export const inPackage = (path) => `${PACKAGE}/${relative(home, resolve(home, path))}`;

/**
 * @typedef {object} Lack
 * @property {string} table TOML to add at the end; empty where a line has to be changed.
 * @property {string} text The same in a few words.
 */

/**
 * @param {object} project The project's configuration, as wrangler has read it.
 * @param {object} needed The package's.
 * @returns {Lack[]}
 */
export function lacks(project, needed) {
  const lines = [];
  const flags = needed.compatibility_flags.filter((flag) => !project.compatibility_flags.includes(flag));
  if (flags.length > 0) lines.push(`compatibility_flags has to hold ${flags.map((flag) => `"${flag}"`).join(", ")}`);
  if ((project.compatibility_date ?? "") < needed.compatibility_date) {
    lines.push(`compatibility_date has to be "${needed.compatibility_date}" or later`);
  }
  return [
    ...lines.map((text) => ({ table: "", text })),
    ...bindings(project, needed),
    ...consumers(project, needed),
    ...migrations(project, needed),
    ...assets(project, needed),
  ];
}

function bindings(project, needed) {
  const renamed = (item) => (item.queue ? { ...item, queue: ownName(item.queue, project, needed) } : item);
  return Object.entries(bindingLists(needed)).flatMap(([header, items]) => {
    const there = new Map((bindingLists(project)[header] ?? []).map((item) => [nameOf(item), item]));
    return items.flatMap((item) => {
      const [name, own] = [nameOf(item), there.get(nameOf(item))];
      if (!own) return [lack(header, renamed(item), name)];
      if (own.class_name === item.class_name) return [];
      return [{ table: "", text: `${header} ${name} has to be of the class ${item.class_name}` }];
    });
  });
}

/** Every list of bindings that the Worker has to have, by the header of its tables. It does without Analytics Engine. */
function bindingLists(config) {
  const lists = Object.entries(config).filter(
    ([name, value]) =>
      name !== "analytics_engine_datasets" && Array.isArray(value) && value.some((item) => item?.binding),
  );
  return {
    "durable_objects.bindings": config.durable_objects.bindings,
    ...Object.fromEntries(lists),
    "queues.producers": config.queues.producers ?? [],
  };
}

const nameOf = ({ binding, name }) => binding ?? name;

/** A queue is named by its binding, and that of the dead, which has none, by its ending: the Worker knows it by that. */
function consumers(project, needed) {
  const bindingOf = new Map(needed.queues.producers.map(({ binding, queue }) => [queue, binding]));
  const queueOf = new Map((project.queues.producers ?? []).map(({ binding, queue }) => [binding, queue]));
  const consumed = (project.queues.consumers ?? []).map(({ queue }) => queue);
  return needed.queues.consumers.flatMap((item) => {
    const binding = bindingOf.get(item.queue);
    const queue = (binding && queueOf.get(binding)) ?? ownName(item.queue, project, needed);
    const there = binding ? consumed.includes(queue) : consumed.some((name) => name.endsWith("-dead"));
    const dead = item.dead_letter_queue && ownName(item.dead_letter_queue, project, needed);
    return there ? [] : [lack("queues.consumers", { ...item, queue, dead_letter_queue: dead }, queue)];
  });
}

const ownName = (queue, project, needed) =>
  queue.startsWith(`${needed.name}-`) ? `${project.name}${queue.slice(needed.name.length)}` : queue;

/** A class that the account has to be told of, once; by which tag does not matter. */
function migrations(project, needed) {
  const classes = ({ new_sqlite_classes = [] }) => new_sqlite_classes;
  const known = new Set(project.migrations.flatMap(classes));
  return needed.migrations.flatMap(({ tag, ...migration }) => {
    const missing = classes(migration).filter((name) => !known.has(name));
    if (missing.length === 0) return [];
    const free = project.migrations.some((other) => other.tag === tag) ? `${tag}-spillway` : tag;
    return [lack("migrations", { tag: free, new_sqlite_classes: missing }, missing.join(", "))];
  });
}

function assets(project, needed) {
  if (!needed.assets || project.assets) return [];
  const directory = inPackage(needed.assets.directory);
  const { table } = lack("assets", { ...needed.assets, directory }, "");
  return [{ table: table.replace("[[assets]]", "[assets]"), text: "assets" }];
}

/** @returns {Lack} */
function lack(header, item, name) {
  const lines = Object.entries(item)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => `${key} = ${JSON.stringify(value)}`);
  return { table: `[[${header}]]\n${lines.join("\n")}\n`, text: `${header} ${name}` };
}

/** Both configurations, read by wrangler; in the checkout they are one. */
export async function readConfigs() {
  const { unstable_readConfig } = await import("wrangler");
  const read = (directory) => unstable_readConfig({ config: resolve(directory, "wrangler.toml") });
  return { project: read(root), needed: read(home) };
}

/**
 * What to do about it.
 * @param {Lack[]} list
 */
export function advice(list) {
  const lines = list.filter(({ table }) => !table).map(({ text }) => `${text}.\n`);
  const tables = list.map(({ table }) => table).filter(Boolean);
  const add = tables.length > 0 ? [`Add this at the end of wrangler.toml:\n\n${tables.join("\n")}`] : [];
  return [...lines, ...add].join("\n");
}

/** Refuses to go on with a configuration that the Worker cannot work with. */
export async function checkProject() {
  if (root === home) return;
  const { project, needed } = await readConfigs();
  const list = lacks(project, needed);
  if (list.length === 0) return;
  throw new Problem(
    `wrangler.toml lacks what this version of spillway needs (${list.map(({ text }) => text).join("; ")}): see above.`,
    advice(list),
  );
}
