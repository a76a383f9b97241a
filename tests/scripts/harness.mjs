/**
 * Runs our scripts against the stand-in for wrangler, with an account and answers of the test's choosing: in this
 * process, because loading the real wrangler for its reading of wrangler.toml takes a second each time.
 */
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { SECRETS } from "../../scripts/lib/cloudflare-setup.mjs";
import { root } from "../../scripts/lib/paths.mjs";
import { Problem } from "../../scripts/lib/run.mjs";

const FAKE = fileURLToPath(new URL("./fake-wrangler.mjs", import.meta.url));

/** What the tester's own environment has set must not answer for the test. */
const HUSHED = [...SECRETS.map(({ name }) => name), "CLOUDFLARE_ACCOUNT_ID", "SPILLWAY_CLIENT_KEY", "SPILLWAY_URL"];

/**
 * @param {import("node:test").TestContext} t
 * @param {object} [initial] The account: see fake-wrangler.mjs.
 */
export function account(t, initial = {}) {
  const directory = mkdtempSync(join(tmpdir(), "spillway-account-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const file = join(directory, "state.json");
  writeFileSync(file, JSON.stringify(initial));
  const standIn = { SPILLWAY_WRANGLER: FAKE, FAKE_WRANGLER_STATE: file };
  return {
    state: () => (existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {}),
    /**
     * @param {(args: string[], io: import("../../scripts/lib/wrangler.mjs").Io, ...rest: any[]) => Promise<number>} main
     * @param {{ args?: string[], env?: Record<string, string>, answers?: string, rest?: any[] }} [options]
     * @returns {Promise<{ code: number, output: string }>}
     */
    async run(main, { args = [], env = {}, answers = "", rest = [] } = {}) {
      let output = "";
      const sink = new Writable({ write: (chunk, _, done) => done(void (output += chunk)) });
      const io = { env: { ...outerEnv(), ...standIn, ...env }, input: Readable.from([answers]), output: sink };
      try {
        return { code: await main(args, io, ...rest), output };
      } catch (error) {
        // As the frame of an entry script does it; any other error is a failure of the test.
        if (!(error instanceof Problem)) throw error;
        return { code: 1, output: `${output}${error.detail}\n${error.message}\n` };
      }
    },
    /**
     * The script itself, in a process of its own.
     * @param {string} script
     * @returns {Promise<{ code: number, output: string }>}
     */
    spawn(script, args = [], env = {}) {
      const child = spawn(process.execPath, [join(root, "scripts", script), ...args], {
        cwd: root,
        env: { ...outerEnv(), ...standIn, ...env },
        stdio: ["ignore", "pipe", "pipe"],
        timeout: 60_000,
      });
      let output = "";
      for (const stream of [child.stdout, child.stderr])
        stream.setEncoding("utf8").on("data", (text) => (output += text));
      return new Promise((resolve) => child.on("close", (code) => resolve({ code, output })));
    },
  };
}

const outerEnv = () => Object.fromEntries(Object.entries(process.env).filter(([name]) => !HUSHED.includes(name)));

/**
 * A server that stands in for the deployed Worker.
 * @param {import("node:test").TestContext} t
 * @param {(request: { method: string, path: string, headers: object, body: any }) => { status: number, body: any }} answer
 * @returns {Promise<{ url: string, requests: { method: string, path: string, headers: object, body: any }[] }>}
 */
export async function worker(t, answer) {
  const requests = [];
  const server = createServer(async (incoming, outgoing) => {
    let text = "";
    for await (const chunk of incoming) text += chunk;
    const request = {
      method: incoming.method,
      path: incoming.url,
      headers: incoming.headers,
      body: text ? JSON.parse(text) : undefined,
    };
    requests.push(request);
    const { status, body } = answer(request);
    outgoing.writeHead(status, { "content-type": typeof body === "string" ? "text/html" : "application/json" });
    outgoing.end(typeof body === "string" ? body : JSON.stringify(body));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return { url: `http://127.0.0.1:${server.address().port}`, requests };
}
