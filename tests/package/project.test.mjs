/** What a project's wrangler.toml is held against: see scripts/lib/project.mjs. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { advice, lacks } from "../../scripts/lib/project.mjs";

/** What the package needs, as wrangler reads it. */
const needed = () => ({
  name: "spillway",
  compatibility_date: "2026-11-01",
  compatibility_flags: ["enable_request_signal"],
  durable_objects: { bindings: [{ name: "JOB", class_name: "JobObject" }] },
  migrations: [{ tag: "v1", new_sqlite_classes: ["JobObject"] }],
  kv_namespaces: [{ binding: "RESULTS" }],
  analytics_engine_datasets: [{ binding: "METRICS", dataset: "spillway" }],
  r2_buckets: [],
  queues: {
    producers: [{ binding: "QUEUE_HIGH", queue: "spillway-high" }],
    consumers: [
      { queue: "spillway-high", max_retries: 100, dead_letter_queue: "spillway-dead" },
      { queue: "spillway-dead", max_retries: 100 },
    ],
  },
});

/** A project as init writes it, and then changed. */
function project(change = () => {}) {
  const config = JSON.parse(JSON.stringify(needed()).replaceAll('"spillway', '"mine'));
  change(config);
  return config;
}

for (const [rule, change, ofNeeded, tables] of [
  ["a project as init writes it lacks nothing", () => {}, () => {}, []],
  [
    "what is the project's own is left alone: names, sizes, more bindings, a later date",
    (own) => {
      own.name = "other";
      own.queues.producers[0].queue = own.queues.consumers[0].queue = "urgent";
      own.queues.consumers[0].max_retries = 7;
      own.queues.consumers[1].queue = own.queues.consumers[0].dead_letter_queue = "all-the-dead";
      own.kv_namespaces[0].id = "0123";
      own.kv_namespaces.push({ binding: "MINE" });
      own.durable_objects.bindings.push({ name: "OTHER", class_name: "OtherObject" });
      own.compatibility_date = "2027-01-01";
      own.compatibility_flags.push("nodejs_compat");
    },
    () => {},
    [],
  ],
  [
    "a new object has a binding and a migration to add",
    () => {},
    (later) => {
      later.durable_objects.bindings.push({ name: "METER", class_name: "MeterObject" });
      later.migrations.push({ tag: "v2", new_sqlite_classes: ["MeterObject"] });
    },
    [
      '[[durable_objects.bindings]]\nname = "METER"\nclass_name = "MeterObject"\n',
      '[[migrations]]\ntag = "v2"\nnew_sqlite_classes = ["MeterObject"]\n',
    ],
  ],
  [
    "a tag that the project has used for something else is not used twice",
    (own) => own.migrations.push({ tag: "v2", new_sqlite_classes: ["OtherObject"] }),
    (later) => later.migrations.push({ tag: "v2", new_sqlite_classes: ["MeterObject"] }),
    ['[[migrations]]\ntag = "v2-spillway"\nnew_sqlite_classes = ["MeterObject"]\n'],
  ],
  [
    "a class that the project has told of under another tag is not told of again",
    (own) => own.migrations.push({ tag: "mine", new_sqlite_classes: ["MeterObject"] }),
    (later) => later.migrations.push({ tag: "v2", new_sqlite_classes: ["MeterObject"] }),
    [],
  ],
  [
    "a new queue is named after the project, with its consumer",
    () => {},
    (later) => {
      later.queues.producers.push({ binding: "QUEUE_LOW", queue: "spillway-low" });
      later.queues.consumers.push({ queue: "spillway-low", dead_letter_queue: "spillway-dead" });
    },
    [
      '[[queues.producers]]\nbinding = "QUEUE_LOW"\nqueue = "mine-low"\n',
      '[[queues.consumers]]\nqueue = "mine-low"\ndead_letter_queue = "mine-dead"\n',
    ],
  ],
  [
    "a queue without a consumer has one to add, under the name that the project has given it",
    (own) => {
      own.queues.producers[0].queue = "urgent";
      own.queues.consumers = [];
    },
    () => {},
    [
      '[[queues.consumers]]\nqueue = "urgent"\nmax_retries = 100\ndead_letter_queue = "mine-dead"\n',
      '[[queues.consumers]]\nqueue = "mine-dead"\nmax_retries = 100\n',
    ],
  ],
  [
    "any list of bindings counts",
    () => {},
    (later) => later.r2_buckets.push({ binding: "LARGE", bucket_name: "spillway" }),
    ['[[r2_buckets]]\nbinding = "LARGE"\nbucket_name = "spillway"\n'],
  ],
  ["but for what the Worker does without", (own) => (own.analytics_engine_datasets = []), () => {}, []],
  [
    "static files are the package's",
    () => {},
    (later) => (later.assets = { directory: "public", binding: "ASSETS" }),
    ['[assets]\ndirectory = "node_modules/spillway/public"\nbinding = "ASSETS"\n'],
  ],
]) {
  test(rule, () => {
    const [own, later] = [project(change), needed()];
    ofNeeded(later);
    const found = lacks(own, later);
    assert.deepEqual(
      found.map(({ table }) => table),
      tables,
    );
    assert.equal(advice(found).includes("Add this at the end of wrangler.toml"), tables.length > 0);
  });
}

test("an older date, a missing flag and another class are lines to change, which are named", () => {
  const own = project((own) => {
    Object.assign(own, { compatibility_date: "2026-01-01", compatibility_flags: [] });
    own.durable_objects.bindings[0].class_name = "OtherObject";
  });
  const text = advice(lacks(own, needed()));
  assert.match(text, /^compatibility_flags has to hold "enable_request_signal"\.$/m);
  assert.match(text, /^compatibility_date has to be "2026-11-01" or later\.$/m);
  assert.match(text, /^durable_objects\.bindings JOB has to be of the class JobObject\.$/m);
  assert.ok(!text.includes("Add this"));
});
