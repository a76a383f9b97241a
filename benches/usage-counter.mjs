/**
 * Counts what the Worker uses of the platform. Runs inside workerd, between the Worker and its bindings and around its
 * handlers: see `wrapEntry` of scripts/lib/worker.mjs. `GET /__test/usage` answers the counts, `DELETE` begins anew.
 *
 * - `worker.fetch`, `worker.queue`: invocations of the Worker; `queue.read`: messages that they were handed; `JobObject.fetch`,
 *   `JobObject.alarm` and so on: requests to objects, as they are billed.
 * - `kv.get`, `kv.put`, `kv.delete`, `kv.list`, `queue.write`.
 * - `rows.read`, `rows.written`: as SQLite's cursors tell; each alarm that is set is a row written, too.
 * - `consumer.calls`: what one run of the queue handler asked of bindings. Only true while nothing else runs.
 * - `object.open_ms`: for how long objects had not answered, all together; a stream is an answer as soon as it begins.
 */
let counts = {};
let cursors = [];
let consuming = 0;

const add = (name, n = 1) => (counts[name] = (counts[name] ?? 0) + n);

function asked(name, where) {
  add(name);
  if (consuming > 0 && where === "worker") add("consumer.calls");
}

export function wrapEnv(env, where, override) {
  const counted =
    (name) =>
    (original, ...args) => {
      asked(name, where);
      // Several keys are read by one request, and each is billed.
      if (Array.isArray(args[0])) add(name, args[0].length - 1);
      return original(...args);
    };
  const kv = Object.fromEntries(["get", "put", "delete", "list"].map((name) => [name, counted(`kv.${name}`)]));
  const queue = { send: counted("queue.write") };
  const object = () => {
    const stub = (original, ...args) =>
      override(original(...args), {
        fetch: (original, ...args) => {
          if (consuming > 0 && where === "worker") add("consumer.calls");
          return original(...args);
        },
      });
    return { get: stub, getByName: stub };
  };
  const wrapped = { RESULTS: override(env.RESULTS, kv) };
  for (const name of ["QUEUE_HIGH", "QUEUE_MEDIUM", "QUEUE_LOW"]) wrapped[name] = override(env[name], queue);
  for (const [name, binding] of Object.entries(env)) {
    if (typeof binding?.idFromName === "function") wrapped[name] = override(binding, object());
  }
  return new Proxy(env, { get: (target, name) => wrapped[name] ?? target[name] });
}

/** What is a method stays one of its object, which checks that. */
const through = (target, own) =>
  new Proxy(target, {
    get(_, name) {
      if (Object.hasOwn(own, name)) return own[name];
      const value = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });

export function wrapState(state) {
  const { storage } = state;
  const sql = through(storage.sql, {
    exec(...args) {
      const cursor = storage.sql.exec(...args);
      cursors.push(cursor);
      return cursor;
    },
  });
  const setAlarm = (...args) => {
    add("rows.written");
    return storage.setAlarm(...args);
  };
  return through(state, { storage: through(storage, { sql, setAlarm }) });
}

export async function invoked(where, handler, run, [batch]) {
  const own = where === "worker" && handler === "fetch" && new URL(batch.url).pathname.startsWith("/__test/");
  if (own) return run();
  const start = Date.now();
  add(`${where}.${handler}`);
  if (where !== "worker") add("object.requests");
  if (handler === "queue") {
    add("queue.read", batch.messages.length);
    consuming += 1;
  }
  try {
    return await run();
  } finally {
    if (handler === "queue") {
      consuming -= 1;
      add("queue.batches_ended");
    }
    if (where !== "worker") add("object.open_ms", Date.now() - start);
  }
}

export async function control(request) {
  if (request.method === "DELETE") {
    counts = {};
    cursors = [];
  }
  const rows = { read: 0, written: 0 };
  for (const cursor of cursors) {
    rows.read += cursor.rowsRead;
    rows.written += cursor.rowsWritten;
  }
  return Response.json({
    ...counts,
    "rows.read": rows.read,
    "rows.written": (counts["rows.written"] ?? 0) + rows.written,
  });
}
