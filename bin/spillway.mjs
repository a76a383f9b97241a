#!/usr/bin/env node
/**
 * The npm package as a program: `spillway init` writes a project, and in a project it is what the npm scripts run.
 *
 * Each other command is the script of that name of the repository, told by SPILLWAY_PROJECT that configuration, keys and
 * state are in the directory from which it was called. Imports are made late: an old Node is to be told that it is one
 * before it meets something that it does not have.
 */
const OLDEST_NODE = 20;

const COMMANDS = {
  init: ["init DIR", "writes a project into a new directory"],
  dev: ["dev", "runs the Worker on this machine", "../scripts/dev.mjs"],
  doctor: ["doctor", "says what was found, and what is missing", "../scripts/project-doctor.mjs"],
  "setup:cloudflare": [
    "setup:cloudflare",
    "makes what the Worker needs in your Cloudflare account",
    "../scripts/setup-cloudflare.mjs",
  ],
  deploy: ["deploy", "deploys the Worker, and proves that it works", "../scripts/deploy.mjs"],
  "fake-claude": ["fake-claude", "a Claude API that fails as a script says", "../fake-claude/main.mjs"],
};

const HELP = `A Spillway absorbs Claude API overload and rate limits in a durable queue on Cloudflare Workers.

  npx spillway init my-spillway

${Object.values(COMMANDS)
  .map(([usage, about]) => `  spillway ${usage.padEnd(18)} ${about}`)
  .join("\n")}

All but init are for a project that init has written, where npm run dev and so on call them. Each has a --help.
`;

const [command, ...args] = process.argv.slice(2);

if (Number.parseInt(process.versions.node, 10) < OLDEST_NODE) {
  process.stderr.write(`Node.js ${process.versions.node} is too old for spillway: install ${OLDEST_NODE} or newer.\n`);
  process.exitCode = 1;
} else if (command === undefined || command === "--help" || command === "-h" || command === "help") {
  (command === undefined ? process.stderr : process.stdout).write(HELP);
  process.exitCode = command === undefined ? 1 : 0;
} else if (!Object.keys(COMMANDS).includes(command)) {
  process.stderr.write(`There is no command ${command} here; spillway --help says what there is.\n`);
  process.exitCode = 1;
} else if (command === "init") {
  const { main } = await import("../scripts/lib/run.mjs");
  await main(async () => (await import("../scripts/lib/init.mjs")).main(args));
} else {
  const { existsSync } = await import("node:fs");
  const helps = args.includes("--help") || args.includes("-h");
  if (command === "fake-claude" || helps || existsSync("wrangler.toml")) {
    process.env.SPILLWAY_PROJECT = process.cwd();
    // The script reads its arguments where it would find them if it had been called by itself.
    process.argv.splice(2, 1);
    await import(COMMANDS[command][2]);
  } else {
    process.stderr.write(
      "There is no wrangler.toml in this directory: call this in a project, which npx spillway init DIR writes.\n",
    );
    process.exitCode = 1;
  }
}
