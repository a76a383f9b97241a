/**
 * Lies to the Worker about its bindings. Runs inside workerd, between the Worker and KV, the queues and the objects: see
 * `wrapEntry` of scripts/lib/worker.mjs; it can import nothing. `PUT /__test/faults` replaces the list of faults, and
 * `GET /__test/faults` tells how often each has struck.
 *
 * `PUT /__test/clock` with `{"ahead_ms": …}` puts the Worker's clock and that of its objects so far ahead of the real one,
 * for waits of hours that nothing can shorten. Queues and alarms go on by the real one: what has come due by the other is
 * delivered by hand (`deliver` in harness.mjs).
 *
 * The first fault that fits an operation decides:
 *
 * `GET /__test/points` tells what the Worker has written to Analytics Engine, which no local binding keeps.
 *
 * `GET /__test/sent` tells which messages were given to the queues, lost or not, in order, and with which delay.
 *
 * - `binding`: "kv", "queue", "job", "gate", "index" or "meter"; left out, all of them.
 * - `operation`: KV's "get", "put", "delete", "list"; the queue's "send"; for objects what they are asked: "create",
 *   "claim", "begin", "renew", "settle", "status", "row", "cancel", "revive", the index' "tell" and "list", the meter's "take",
 *   "hear" and "read", and "gate" for all of the gate. A list will do.
 * - `key`: part of the KV key, of the object's name, or of the queue's binding and the message ("QUEUE_LOW {…}").
 * - `where`: who asks: "worker", "JobObject", "GateObject", "IndexObject" or "MeterObject".
 * - `times`: strikes so often, then no more; `after`: lets so many pass first.
 * - `how`: "refuse" throws before anything happened; "lost_answer" throws when it has happened; "overloaded" throws what
 *   the platform throws when an object has too much to do; "hang" never answers, and nothing happens; "hang_after" never
 *   answers when it has happened; "slow" answers `ms` later; "lose" says that it worked, and nothing happened (queues).
 */
let faults = [];

/** Data points, no more than a test looks at. */
const points = [];
const MOST_POINTS = 10_000;

/** Messages, no more than a test looks at. */
const sent = [];
const MOST_SENT = 10_000;

let aheadMs = 0;
const RealDate = Date;

globalThis.Date = class extends RealDate {
  constructor(...given) {
    super(...(given.length > 0 ? given : [RealDate.now() + aheadMs]));
  }
  static now() {
    return RealDate.now() + aheadMs;
  }
};

export function wrapEnv(env, where, override) {
  const strike = (binding, operation, key, original) => {
    const fault = faults.find(
      (fault) => fits(fault, { binding, operation, key, where }) && fault.passed++ >= fault.after,
    );
    if (!fault) return original();
    fault.struck += 1;
    fault.times -= 1;
    return HOW[fault.how](original, fault);
  };
  const kv =
    (operation) =>
    (original, key, ...rest) =>
      strike("kv", operation, typeof key === "string" || Array.isArray(key) ? `${key}` : "", () =>
        original(key, ...rest),
      );
  const queue = (name) =>
    override(env[name], {
      send: (original, body, ...rest) => {
        if (sent.length < MOST_SENT) sent.push({ queue: name, body, delay_seconds: rest[0]?.delaySeconds ?? 0 });
        return strike("queue", "send", `${name} ${body}`, () => original(body, ...rest));
      },
    });
  const objects = (binding) => {
    const stub = (original, id, ...rest) =>
      override(original(id, ...rest), {
        fetch: (original, ...asked) => {
          // A body is left where it is: what is struck may still be sent.
          const { url, headers } = asked[0] instanceof Request ? asked[0] : { url: asked[0], ...asked[1] };
          const name = new Headers(headers).get("spillway-name") ?? "";
          return strike(binding, new URL(url).pathname.slice(1), name, () => original(...asked));
        },
      });
    return { get: stub, getByName: stub };
  };
  const wrapped = {
    RESULTS: override(env.RESULTS, { get: kv("get"), put: kv("put"), delete: kv("delete"), list: kv("list") }),
    QUEUE_HIGH: queue("QUEUE_HIGH"),
    QUEUE_MEDIUM: queue("QUEUE_MEDIUM"),
    QUEUE_LOW: queue("QUEUE_LOW"),
    JOB: override(env.JOB, objects("job")),
    GATE: override(env.GATE, objects("gate")),
    INDEX: override(env.INDEX, objects("index")),
    METER: override(env.METER, objects("meter")),
    METRICS: { writeDataPoint: (point) => void (points.length < MOST_POINTS && points.push(point)) },
  };
  return new Proxy(env, { get: (target, name) => wrapped[name] ?? target[name] });
}

export async function control(request) {
  const { pathname } = new URL(request.url);
  if (pathname === "/__test/clock") {
    aheadMs = (await request.json()).ahead_ms;
    return Response.json({ now: Date.now() });
  }
  if (pathname === "/__test/points") return Response.json(points);
  if (pathname === "/__test/sent") return Response.json(sent);
  if (pathname !== "/__test/faults") return new Response("no such control", { status: 404 });
  if (request.method === "PUT") {
    const list = await request.json();
    const unknown = list.find(({ how }) => !Object.hasOwn(HOW, how));
    if (unknown) return new Response(`there is no fault "${unknown.how}"`, { status: 400 });
    faults = list.map((fault) => ({ times: Infinity, after: 0, ...fault, struck: 0, passed: 0 }));
  }
  return Response.json(faults.map(({ struck, passed }) => ({ struck, passed })));
}

function fits(fault, { binding, operation, key, where }) {
  return (
    fault.times > 0 &&
    (fault.binding ?? binding) === binding &&
    [fault.operation ?? operation].flat().includes(operation) &&
    (fault.where ?? where) === where &&
    key.includes(fault.key ?? "")
  );
}

const refused = (properties) => Object.assign(new Error("a test refuses this"), properties);
const never = () => new Promise(() => {});

const HOW = {
  refuse: async () => {
    throw refused();
  },
  overloaded: async () => {
    throw refused({ overloaded: true, retryable: true });
  },
  lost_answer: async (original) => {
    await original();
    throw refused({ retryable: true });
  },
  hang: never,
  hang_after: async (original) => {
    await original();
    return never();
  },
  slow: async (original, { ms }) => {
    await new Promise((resolve) => setTimeout(resolve, ms));
    return original();
  },
  lose: async () => {},
};
