/** `npm run deploy` against a stand-in for wrangler and a server that stands in for the Worker. */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { main, withNamespaceIds, withoutAnalytics } from "../../scripts/lib/deployment.mjs";
import { root } from "../../scripts/lib/paths.mjs";
import { account, worker } from "./harness.mjs";

const QUEUES = ["spillway-high", "spillway-medium", "spillway-low", "spillway-dead"];
const ready = { queues: QUEUES, namespaces: [{ id: "n1", title: "spillway-results" }], secrets: {} };
const error = (status, message) => ({ status, body: { type: "error", error: { type: "api_error", message } } });
const receipt = { status: 202, body: { id: "j1", status: "received", status_url: "/v1/jobs/j1" } };

/** A Worker whose job goes through these states, one a poll, and stays in the last. */
const jobThrough = (...states) => {
  const left = [...states];
  return ({ method }) =>
    method === "POST" ? receipt : { status: 200, body: { id: "j1", ...(left.length > 1 ? left.shift() : left[0]) } };
};

/** Enough for a Worker on loopback. */
const patience = { there: 0.5, answer: 1, pause: 20 };

const deploy = (cloud, url, env = {}) =>
  cloud.run(main, { env: { SPILLWAY_URL: url, SPILLWAY_CLIENT_KEY: "k1", ...env }, rest: [patience] });

test("the Worker is deployed with the account's namespace, and the canary job is submitted as the client and read back", async (t) => {
  const cloud = account(t, ready);
  const { url, requests } = await worker(
    t,
    jobThrough({ status: "generating" }, { status: "done", text: "ready", model_used: "claude-x" }),
  );
  const { code, output } = await deploy(cloud, url);
  assert.equal(code, 0, output);
  assert.match(output, /The Worker works: claude-x answered/);
  assert.equal(cloud.state().deployed.namespace, "n1");
  const [submitted, ...polls] = requests;
  assert.equal(submitted.headers.authorization, "Bearer k1");
  assert.ok(submitted.headers["idempotency-key"]);
  assert.ok(submitted.body.request.max_tokens > 0);
  assert.equal(submitted.body.request.messages[0].role, "user");
  assert.match(polls[0].path, /^\/v1\/jobs\/j1\?wait=\d+$/);
  assert.equal(polls[0].headers.authorization, "Bearer k1");
  assert.ok(!existsSync(join(root, "wrangler.deploy.toml")));
});

test("an account without Analytics Engine gets the Worker without it, and is told so", async (t) => {
  const { url } = await worker(t, jobThrough({ status: "done" }));
  for (const analytics of [true, false]) {
    const cloud = account(t, { ...ready, analytics });
    const { code, output } = await deploy(cloud, url);
    assert.equal(code, 0, output);
    assert.equal(cloud.state().deployed.analytics, analytics);
    assert.equal(/has no Analytics Engine: the Worker is deployed without it/.test(output), !analytics);
  }
});

test("the dataset is taken out with what is said of it, and nothing else", () => {
  const before = '[vars]\nA = "1"\n\n';
  const dataset = '# Said of it.\n[[analytics_engine_datasets]]\nbinding = "METRICS"\ndataset = "spillway"\n\n';
  const after = "# Said of others.\n[observability]\nenabled = true\n";
  assert.equal(withoutAnalytics(before + dataset + after), before + after);
  assert.equal(withoutAnalytics(before + after), before + after);
});

test("without a namespace of ours wrangler makes one, and the next deployment uses the same", async (t) => {
  const cloud = account(t, { ...ready, namespaces: [] });
  const { url } = await worker(t, jobThrough({ status: "done" }));
  for (let i = 0; i < 2; i++) {
    const { code, output } = await deploy(cloud, url);
    assert.equal(code, 0, output);
    assert.equal(cloud.state().deployed.namespace, "id-of-spillway-results");
  }
});

for (const [rule, { answer, says }] of Object.entries({
  "a job that stays received says that no consumer took it": {
    answer: jobThrough({ status: "received" }),
    says: /no consumer took it.*wrangler queues info/,
  },
  "refused credentials name the secret": {
    answer: jobThrough({ status: "failed", reason: "authentication", error: { message: "invalid x-api-key" } }),
    says: /refuses our credentials \(authentication\).*--rotate ANTHROPIC_API_KEY/,
  },
  "another failure tells its reason": {
    answer: jobThrough({ status: "failed", reason: "not_found", error: { message: "model: claude-none" } }),
    says: /canary job failed \(not_found\): model: claude-none/,
  },
  "a job that is held says that it goes on": {
    answer: jobThrough({ status: "held", waiting: { reason: "breaker_open" } }),
    says: /consumer works.*it is held \(breaker_open\)/,
  },
  "a refused client key names CLIENT_KEYS": {
    answer: () => error(401, "unknown key"),
    says: /refuses this client key.*CLIENT_KEYS/,
  },
  "a configuration error points to healthz": {
    answer: () => error(503, "POLICY: unknown key breaker.windw_seconds"),
    says: /503: POLICY: unknown key breaker\.windw_seconds.*\/healthz/,
  },
  "a refused job tells why": {
    answer: () => error(400, "kind: unknown"),
    says: /refuses the canary job \(400\): kind: unknown/,
  },
  "something that is not our Worker is told apart": {
    answer: () => ({ status: 404, body: "<html>There is nothing here yet</html>" }),
    says: /does not answer as it should \(404\)/,
  },
  "a status that cannot be read is told": {
    answer: ({ method }) => (method === "POST" ? receipt : error(500, "broken")),
    says: /status cannot be read \(500 broken\)/,
  },
})) {
  test(rule, async (t) => {
    const cloud = account(t, ready);
    const { url } = await worker(t, answer);
    const { code, output } = await deploy(cloud, url);
    assert.equal(code, 1, output);
    assert.match(output, says);
  });
}

test("a Worker that is not everywhere yet is waited for", async (t) => {
  let calls = 0;
  const cloud = account(t, ready);
  const then = jobThrough({ status: "done" });
  const { url } = await worker(t, (request) => (++calls < 3 ? { status: 404, body: "not here yet" } : then(request)));
  const { code, output } = await deploy(cloud, url);
  assert.equal(code, 0, output);
});

test("a missing queue is wrangler's refusal, shown, and no canary is sent", async (t) => {
  const cloud = account(t, { ...ready, queues: [] });
  const { url, requests } = await worker(t, jobThrough({ status: "done" }));
  const { code, output } = await deploy(cloud, url);
  assert.equal(code, 1, output);
  assert.match(output, /Queue "spillway-dead" does not exist/);
  assert.match(output, /wrangler could not deploy the Worker/);
  assert.deepEqual(requests, []);
  assert.ok(!existsSync(join(root, "wrangler.deploy.toml")));
});

test("without a client key the deployment stands, and nothing is claimed", async (t) => {
  const cloud = account(t, ready);
  const { code, output } = await deploy(cloud, "http://127.0.0.1:9", { SPILLWAY_CLIENT_KEY: "" });
  assert.equal(code, 1, output);
  assert.match(output, /nothing has proved that it works: set SPILLWAY_CLIENT_KEY/);
  assert.ok(cloud.state().deployed);
});

test("--skip-canary deploys only, to the URL that wrangler names", async (t) => {
  const cloud = account(t, ready);
  const { code, output } = await cloud.spawn("deploy.mjs", ["--skip-canary"]);
  assert.equal(code, 0, output);
  assert.match(output, /Deployed: https:\/\/spillway\.ada\.workers\.dev/);
});

test("an id goes into the table of its binding and nowhere else", () => {
  const toml =
    '[[kv_namespaces]]\nbinding = "A"\n\n[[kv_namespaces]]\nbinding = "RESULTS"\n\n[[queues.producers]]\nbinding = "B"\n';
  assert.equal(
    withNamespaceIds(toml, new Map([["RESULTS", "n1"]])),
    toml.replace('binding = "RESULTS"\n', 'binding = "RESULTS"\nid = "n1"\n'),
  );
  assert.equal(withNamespaceIds(toml, new Map()), toml);
  assert.throws(() => withNamespaceIds(toml, new Map([["B", "n1"]])), /no \[\[kv_namespaces\]\] with binding = "B"/);
});
