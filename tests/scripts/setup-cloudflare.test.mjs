/** `npm run setup:cloudflare` against a stand-in for wrangler. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { main } from "../../scripts/lib/cloudflare-setup.mjs";
import { root } from "../../scripts/lib/paths.mjs";
import { account } from "./harness.mjs";

const QUEUES = ["spillway-dead", "spillway-high", "spillway-low", "spillway-medium"];

/** An account in which everything has been set up. */
const complete = () => ({
  queues: QUEUES,
  namespaces: [{ id: "n1", title: "spillway-results" }],
  secrets: {
    ANTHROPIC_API_KEY: "sk-old",
    CLIENT_KEYS: "app:old",
    ADMIN_KEY: "old",
    SIGNING_SECRET: "old",
    WEBHOOK_SECRET: "old",
  },
});

const changes = ({ calls }) => calls.filter(({ args }) => /create|bulk|put|deploy/.test(args.join(" ")));

test("an empty account gets the queues, the namespace and the secrets, from answers on stdin", async (t) => {
  const cloud = account(t);
  const { code, output } = await cloud.run(main, { answers: "sk-ant-1\nshop:k1,site:k2\noperator\n\n\n" });
  assert.equal(code, 0, output);
  const { queues, namespaces, secrets } = cloud.state();
  assert.deepEqual(queues.sort(), QUEUES);
  assert.deepEqual(
    namespaces.map(({ title }) => title),
    ["spillway-results"],
  );
  const { SIGNING_SECRET: signing, WEBHOOK_SECRET: webhooks, ...rest } = secrets;
  assert.deepEqual(rest, { ANTHROPIC_API_KEY: "sk-ant-1", CLIENT_KEYS: "shop:k1,site:k2", ADMIN_KEY: "operator" });
  assert.match(signing, /^[0-9a-f]{64}$/);
  assert.match(webhooks, /^whsec_[A-Za-z0-9+/]{43}=$/);
});

test("a second run finds everything there and changes nothing", async (t) => {
  const cloud = account(t);
  const env = { ANTHROPIC_API_KEY: "sk-ant-1" };
  assert.equal((await cloud.run(main, { args: ["--generate"], env })).code, 0);
  const first = cloud.state();
  const { code, output } = await cloud.run(main, { args: ["--generate"], env: { ANTHROPIC_API_KEY: "sk-ant-2" } });
  assert.equal(code, 0, output);
  const second = cloud.state();
  assert.deepEqual(changes(second), changes(first));
  assert.deepEqual(second.secrets, first.secrets);
});

test("what is half there is completed", async (t) => {
  const cloud = account(t, { ...complete(), queues: ["spillway-high"], secrets: { ADMIN_KEY: "kept" } });
  const { code, output } = await cloud.run(main, { args: ["--generate"], env: { ANTHROPIC_API_KEY: "sk-ant-1" } });
  assert.equal(code, 0, output);
  const { queues, namespaces, secrets } = cloud.state();
  assert.deepEqual(queues.sort(), QUEUES);
  assert.equal(namespaces.length, 1);
  assert.equal(secrets.ADMIN_KEY, "kept");
  assert.equal(secrets.ANTHROPIC_API_KEY, "sk-ant-1");
});

test("keys that are made are random, shown once, and never an argument", async (t) => {
  const made = [];
  for (let i = 0; i < 2; i++) {
    const cloud = account(t);
    const { code, output } = await cloud.run(main, { answers: "sk-ant-1\n\n\n" });
    assert.equal(code, 0, output);
    const { secrets, calls } = cloud.state();
    assert.match(secrets.CLIENT_KEYS, /^app:[\w-]{32}$/);
    for (const name of ["CLIENT_KEYS", "ADMIN_KEY", "WEBHOOK_SECRET"])
      assert.equal(output.split(secrets[name]).length, 2, name);
    assert.ok(!output.includes("sk-ant-1"));
    assert.ok(!output.includes(secrets.SIGNING_SECRET));
    for (const value of Object.values(secrets)) assert.ok(!calls.some(({ args }) => args.join(" ").includes(value)));
    made.push(secrets.CLIENT_KEYS, secrets.ADMIN_KEY, secrets.SIGNING_SECRET, secrets.WEBHOOK_SECRET);
  }
  assert.equal(new Set(made).size, 8);
});

test("--rotate replaces the secret it names and no other", async (t) => {
  const cloud = account(t, complete());
  const { code, output } = await cloud.run(main, {
    args: ["--rotate", "CLIENT_KEYS"],
    env: { CLIENT_KEYS: "app:old,app:new", ANTHROPIC_API_KEY: "sk-new" },
  });
  assert.equal(code, 0, output);
  assert.deepEqual(cloud.state().secrets, { ...complete().secrets, CLIENT_KEYS: "app:old,app:new" });
});

test("--dry-run says what is missing and changes nothing", async (t) => {
  const cloud = account(t, { queues: ["spillway-high"] });
  const { code, output } = await cloud.run(main, { args: ["--dry-run"] });
  assert.equal(code, 0, output);
  assert.match(output, /Queue spillway-high: there\n/);
  assert.match(output, /Queue spillway-dead: to be created\n/);
  assert.match(output, /KV namespace spillway-results: to be created\n/);
  assert.match(output, /Secret ANTHROPIC_API_KEY: to be set\n/);
  assert.deepEqual(changes(cloud.state()), []);
});

for (const [rule, { args = [], answers = "", env = {}, initial = {}, says }] of Object.entries({
  "without a login it says how to log in": { initial: { loggedIn: false }, says: /run npx wrangler login/ },
  "without an Anthropic key it names the variable": { says: /ANTHROPIC_API_KEY is needed.*nothing was changed/ },
  "client keys without a name are refused": {
    env: { ANTHROPIC_API_KEY: "sk", CLIENT_KEYS: "just-a-key" },
    says: /CLIENT_KEYS has not the form.*name:key.*nothing was changed/,
  },
  "a webhook secret that is none is refused": {
    env: { ANTHROPIC_API_KEY: "sk", CLIENT_KEYS: "app:k", WEBHOOK_SECRET: "whsec_hunter2" },
    says: /WEBHOOK_SECRET has not the form.*whsec_.*nothing was changed/,
  },
  "an unknown secret to rotate is refused": {
    args: ["--rotate", "PASSWORD"],
    says: /PASSWORD is no secret of this Worker/,
  },
  "an unknown option is refused": { args: ["--force"], says: /--force.*--help/ },
  "an account that is not the login's is refused": {
    env: { CLOUDFLARE_ACCOUNT_ID: "zz" },
    says: /zz, which is none of this login's accounts/,
  },
  "with several accounts and no answer it asks for CLOUDFLARE_ACCOUNT_ID": {
    initial: {
      accounts: [
        { id: "a1", name: "Ada" },
        { id: "b2", name: "Bob" },
      ],
    },
    says: /set CLOUDFLARE_ACCOUNT_ID/,
  },
})) {
  test(`${rule}, and nothing is changed`, async (t) => {
    const cloud = account(t, initial);
    const { code, output } = await cloud.run(main, { args, answers, env });
    assert.equal(code, 1, output);
    assert.match(output, says);
    assert.deepEqual(changes({ calls: [], ...cloud.state() }), []);
  });
}

test("with several accounts the chosen one is used throughout", async (t) => {
  const cloud = account(t, {
    accounts: [
      { id: "a1", name: "Ada" },
      { id: "b2", name: "Bob" },
    ],
  });
  const { code, output } = await cloud.run(main, { answers: "2\nsk-ant-1\n\n\n" });
  assert.equal(code, 0, output);
  assert.match(output, /Account Bob/);
  assert.match(output, /CLOUDFLARE_ACCOUNT_ID=b2/);
  assert.equal(cloud.state().queues.length, 4);
});

test("the script itself ends with a sentence and exit code 1, without a stack trace", async (t) => {
  const { code, output } = await account(t, { loggedIn: false }).spawn("setup-cloudflare.mjs");
  assert.equal(code, 1, output);
  assert.match(output, /run npx wrangler login/);
  assert.ok(!/^\s+at /m.test(output), output);
});

test("nothing of the account is written into the checkout", async (t) => {
  const before = readFileSync(join(root, "wrangler.toml"), "utf8");
  const cloud = account(t);
  await cloud.run(main, { answers: "sk-ant-1\n\n\n" });
  assert.equal(readFileSync(join(root, "wrangler.toml"), "utf8"), before);
});

test("the stand-in's words are those of the wrangler that is installed", () => {
  const source = readFileSync(join(root, "node_modules/wrangler/wrangler-dist/cli.js"), "utf8");
  for (const words of [
    'Queue "${queueName}" does not exist.',
    'A KV namespace with the title "${title}" already exists.',
    'Worker "${scriptName}"${args.env ? ` (env: ${args.env})` : ""} not found.',
    "createFatalError({ loggedIn: false }",
    'variableName: "WRANGLER_OUTPUT_FILE_PATH"',
    'return `${scriptName}-${bindingName.toLowerCase().replaceAll("_", "-")}`',
  ]) {
    assert.ok(source.includes(words), words);
  }
});
