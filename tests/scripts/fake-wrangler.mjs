/**
 * A stand-in for wrangler 4.164: the commands that our scripts use, with the words and exit codes of the real one, and
 * an account that is a JSON file (FAKE_WRANGLER_STATE). What it was told, by arguments and stdin, is kept in `calls`.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";

const file = process.env.FAKE_WRANGLER_STATE;
const state = {
  loggedIn: true,
  accounts: [{ id: "a1", name: "Ada" }],
  queues: [],
  namespaces: [],
  secrets: null, // null: there is no Worker yet
  deployed: null,
  analytics: true, // whether it is enabled
  targets: ["https://spillway.ada.workers.dev"],
  calls: [],
  ...(existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {}),
};
const args = process.argv.slice(2);
const input = readFileSync(0, "utf8");
state.calls.push({ args, input });

const say = (text) => process.stdout.write(`${text}\n`);

/** The real one colours its errors even into a pipe. */
function refuse(text) {
  process.stderr.write(`\x1b[31m✘ \x1b[41;31m[\x1b[41;97mERROR\x1b[41;31m]\x1b[0m \x1b[1m${text}\x1b[0m\n\n`);
  return 1;
}

function account() {
  if (!state.loggedIn) {
    return refuse(
      "In a non-interactive environment, it's necessary to set a CLOUDFLARE_API_TOKEN environment variable.",
    );
  }
  if (state.accounts.length > 1 && !process.env.CLOUDFLARE_ACCOUNT_ID) {
    return refuse("More than one account available but unable to select one in non-interactive mode.");
  }
  return 0;
}

const commands = {
  whoami() {
    if (!state.loggedIn) {
      say('{"loggedIn":false}');
      return 1;
    }
    say(JSON.stringify({ loggedIn: true, authType: "OAuth Token", email: "a@example.com", accounts: state.accounts }));
    return 0;
  },
  "queues info"(name) {
    if (!state.queues.includes(name)) {
      return refuse(`Queue "${name}" does not exist. To create it, run: wrangler queues create ${name}`);
    }
    say(`Queue Name: ${name}\nQueue ID: 0123\nNumber of Producers: 0\nNumber of Consumers: 0`);
    return 0;
  },
  "queues create"(name) {
    say(`🌀 Creating queue '${name}'`);
    if (state.queues.includes(name)) {
      return refuse(`A request to the Cloudflare API failed.\n  Queue name '${name}' is already taken. [code: 11009]`);
    }
    state.queues.push(name);
    say(`✅ Created queue '${name}'`);
    return 0;
  },
  "kv namespace list"() {
    say(JSON.stringify(state.namespaces, null, "  "));
    return 0;
  },
  "kv namespace create"(title) {
    say(`🌀 Creating namespace with title "${title}"`);
    if (state.namespaces.some((one) => one.title === title)) {
      return refuse(`A KV namespace with the title "${title}" already exists.`);
    }
    state.namespaces.push({ id: `id-of-${title}`, title, supports_url_encoding: true });
    say("✨ Success!");
    return 0;
  },
  "secret list"() {
    if (!state.secrets)
      return refuse('Worker "spillway" not found.\n\nIf this is a new Worker, run `wrangler deploy` first');
    say(JSON.stringify(Object.keys(state.secrets).map((name) => ({ name, type: "secret_text" }))));
    return 0;
  },
  "secret bulk"() {
    say('🌀 Processing the secrets for the Worker "spillway"');
    state.secrets = { ...state.secrets, ...JSON.parse(input) };
    for (const name of Object.keys(JSON.parse(input))) say(`✨ Successfully created secret for key: ${name}`);
    return 0;
  },
  deploy() {
    const config = readFileSync(
      args.includes("--config") ? args[args.indexOf("--config") + 1] : "wrangler.toml",
      "utf8",
    );
    const worker = config.match(/^name = "(.*)"$/m)[1];
    if (!state.analytics && config.includes("[[analytics_engine_datasets]]")) {
      return refuse(
        "A request to the Cloudflare API failed.\n  You need to enable Analytics Engine. Head to the Cloudflare Dashboard to enable: https://dash.cloudflare.com/a1/workers/analytics-engine [code: 10089]",
      );
    }
    const id = config.match(/binding = "RESULTS".*\nid = "([^"]+)"/)?.[1];
    const title = `${worker}-results`;
    if (!id && !state.deployed) {
      if (state.namespaces.some((one) => one.title === title)) {
        return refuse("a namespace with this account ID and title already exists [code: 10014]");
      }
      state.namespaces.push({ id: `id-of-${title}`, title });
    }
    const dead = `${worker}-dead`;
    if (!state.queues.includes(dead)) {
      return refuse(`Queue "${dead}" does not exist. To create it, run: wrangler queues create ${dead}`);
    }
    state.deployed = {
      analytics: config.includes("analytics_engine"),
      namespace: id ?? state.deployed?.namespace ?? `id-of-${title}`,
    };
    say(`Uploaded ${worker} (3.21 sec)\nDeployed ${worker} triggers (1.02 sec)\n  https://${worker}.ada.workers.dev`);
    const entry = { type: "deploy", version: 1, worker_name: worker, targets: state.targets };
    const report = process.env.WRANGLER_OUTPUT_FILE_PATH;
    if (report) writeFileSync(report, `{"type":"wrangler-session"}\n${JSON.stringify(entry)}\n`);
    return 0;
  },
};

const name = Object.keys(commands).find((words) => words.split(" ").every((word, i) => args[i] === word));
let code;
if (!name) code = refuse(`Unknown arguments: ${args.join(", ")}`);
else code = name === "whoami" ? commands.whoami() : account() || commands[name](args[name.split(" ").length]);
writeFileSync(file, JSON.stringify(state));
process.exitCode = code;
