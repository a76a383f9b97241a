#!/usr/bin/env node
/** The fake Claude as a program. */
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { ScriptError, parseScriptText } from "./script.mjs";
import { startFakeClaude } from "./server.mjs";

const HELP = `A fake Claude API on this machine, that fails as a script says.

  npm run fake-claude -- [--port N] [--script FILE]

  --port N       the port (default 4010; 0 takes any free one)
  --host HOST    the address to listen on (default 127.0.0.1)
  --script FILE  what happens to which call, as JSON (default: every call is answered)
  --check        only check the script
  --log          print a line for every call
  --help         this

Point a client at the URL that it prints (ANTHROPIC_BASE_URL); any API key will do. Its calls are at /_fake/calls,
and PUT /_fake/script changes the script. fake-claude/README.md has the script's format.
`;

async function main() {
  const options = readOptions();
  if (options.help) return void process.stdout.write(HELP);
  const script = options.script === undefined ? { source: {}, rules: [] } : readScript(options.script);
  const rules = `${script.rules.length} ${script.rules.length === 1 ? "rule" : "rules"}`;
  const named = options.script === undefined ? "no script: every call is answered" : `${options.script}: ${rules}`;
  if (options.check) return void console.log(`${named}, no problems`);
  const fake = await start(options, script.source);
  console.log(`fake Claude on ${fake.url} (${named})`);
  for (const signal of ["SIGINT", "SIGTERM"]) {
    process.once(signal, async () => {
      await fake.stop();
      process.exit(0);
    });
  }
}

function readOptions() {
  const known = {
    port: { type: "string", default: "4010" },
    host: { type: "string", default: "127.0.0.1" },
    script: { type: "string" },
    check: { type: "boolean", default: false },
    log: { type: "boolean", default: false },
    help: { type: "boolean", short: "h", default: false },
  };
  let values;
  try {
    ({ values } = parseArgs({ options: known }));
  } catch (error) {
    fail(`${error.message} (--help shows what there is)`);
  }
  const port = Number(values.port);
  if (!/^[0-9]+$/.test(values.port) || port > 65_535)
    fail(`--port must be a number from 0 to 65535, not "${values.port}"`);
  return { ...values, port };
}

function readScript(file) {
  let text;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    fail(`cannot read ${file}: ${error.message}`);
  }
  try {
    return parseScriptText(text);
  } catch (error) {
    if (!(error instanceof ScriptError)) throw error;
    fail(error.problems.map((problem) => `${file}: ${problem}`).join("\n"));
  }
}

async function start({ port, host, log }, script) {
  try {
    return await startFakeClaude({ port, host, script, onCall: log ? logCall : undefined });
  } catch (error) {
    if (error.code === "EADDRINUSE") fail(`port ${port} is taken; --port 0 takes any free one`);
    fail(`cannot listen on ${host}:${port}: ${error.message}`);
  }
}

function logCall({ n, method, path, model, marker, rule, started_at: from, ended_at: to, outcome }) {
  const what = outcome.client_closed
    ? "client left"
    : (outcome.fault ?? outcome.error_type ?? outcome.stop_reason ?? "");
  const where = [model, marker && `[[${marker}]]`, rule && `rule ${rule}`].filter(Boolean).join(" ");
  console.log(`#${n} ${method} ${path} ${where} → ${outcome.status ?? "no answer"} ${what} (${to - from} ms)`);
}

function fail(message) {
  console.error(message);
  process.exit(1);
}

await main();
