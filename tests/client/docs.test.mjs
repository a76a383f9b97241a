/** Every piece of JavaScript in docs/clients.md and client/README.md is run, as it stands, but for the address. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { nodeBinary } from "../../scripts/lib/node.mjs";
import { root } from "../../scripts/lib/paths.mjs";
import { DONE, eventRoute, ID, job, json, serve, STORY } from "./server.mjs";

const ADDRESS = "https://spillway.example.workers.dev";
const ANSWER = {
  ...DONE,
  metadata: { name: "a" },
  result: { content: [{ text: DONE.text }], usage: { input_tokens: 1 } },
};
const RECEIPT = { ...job("received"), read_token: "token" };

/** What a browser has and Node has not. What is shown is printed when it changes. */
const BROWSER = `
  const shown = { set textContent(text) { console.log(text); } };
  globalThis.document = { querySelector: () => shown };
  globalThis.sessionStorage = { setItem() {} };
  const { fetch: beyond } = globalThis;
  globalThis.fetch = (url, init) => beyond(new URL(url, "${ADDRESS}"), init);
`;

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

function blocks(file, language) {
  const text = readFileSync(join(root, file), "utf8");
  return [...text.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, "gms"))].map(([, code]) => code);
}

describe("what the documentation shows works:", { concurrency: 4 }, () => {
  const app = mkdtempSync(join(tmpdir(), "spillway-docs-"));
  after(() => rmSync(app, { recursive: true, force: true }));
  mkdirSync(join(app, "node_modules"));
  symlinkSync(join(root, "client"), join(app, "node_modules/spillway-client"));

  const story = [
    ...STORY.slice(0, -1),
    ["status", job("stalled", { offer: { resumes_at: "soon" } })],
    ["status", ANSWER],
  ];
  const follow = eventRoute(story);
  const serveAll = (t) =>
    serve(t, (exchange) => {
      const { request, response, path } = exchange;
      if (path.endsWith("/events")) return follow(exchange);
      const [status, body] = {
        "POST /v1/jobs": [202, RECEIPT],
        "POST /v1/messages": [202, RECEIPT],
        "POST /summaries": [200, { id: ID, read_token: "token" }],
        "GET /v1/jobs": [200, { jobs: [{ id: ID, kind: "tagging" }] }],
        [`GET /v1/jobs/${ID}`]: [200, ANSWER],
        [`POST /v1/jobs/${ID}/deferral`]: [200, job("deferred")],
      }[`${request.method} ${path}`];
      json(response, status, body);
    });

  /** Starts it; the answer is the process, and what it has printed when it is over. */
  function run(t, name, code, url, env = {}) {
    const file = join(app, `${name}.mjs`);
    writeFileSync(file, code.replaceAll(ADDRESS, url));
    const child = spawn(nodeBinary(), ["--experimental-eventsource", "--no-warnings", file], {
      env: { ...process.env, ...env },
    });
    t.after(() => child.kill());
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (output += data));
    return { child, over: new Promise((resolve) => child.on("close", (code) => resolve({ code, output }))) };
  }

  const [submitting, batch, backend, page, handoff] = blocks("docs/clients.md", "js");
  const [readme, reading] = blocks("client/README.md", "js");
  const [html] = blocks("docs/clients.md", "html");
  const script = html.slice(html.indexOf('<script type="module">') + 22, html.indexOf("</script>"));

  test("there is no more of it than is run here", () => {
    assert.deepEqual([blocks("docs/clients.md", "js").length, blocks("docs/clients.md", "html").length], [5, 1]);
    assert.equal(blocks("client/README.md", "js").length, 2);
  });

  for (const [name, code, lines] of [
    ["submitting and waiting", submitting, [/^received $/, /^refining Hello, world$/, /^Hello, world$/]],
    ["a batch", batch, [/^a Hello, world$/]],
    ["a page with the client", BROWSER + page, [/^It is received\.$/, /^Hello, world$/]],
    ["a page without it", BROWSER + script, [/^It is received\.$/, /^Hello,$/, /^Hello, world$/]],
    ["a call that becomes a job", handoff, [/^Hello, world$/]],
    ["the client's README", readme, [/^It is received\.$/, /^Hello,$/, /^Hello, world \{ input_tokens: 1 \}$/]],
    ["waiting with a token", reading.replace("job_9f…", ID).replace('"…"', '"token"'), []],
  ]) {
    test(name, async (t) => {
      const { url, requests } = await serveAll(t);
      const { code: status, output } = await run(t, name.replaceAll(/\W/g, "-"), code, url).over;
      assert.equal(status, 0, output);
      const printed = output.split("\n");
      for (const line of lines) assert.ok(printed.some((text) => line.test(text)), `${line} is not in\n${output}`); // prettier-ignore
      const watched = requests.filter(({ path }) => path.endsWith("/events"));
      assert.equal(watched.length, name === "a batch" ? 0 : 1);
      if (name === "a page without it") assert.equal(watched[0].query.get("token"), "token");
      if (name === "submitting and waiting") assert.ok(requests.some(({ path }) => path.endsWith("/deferral")));
    });
  }

  test("a backend for a page", async (t) => {
    const { url, requests } = await serveAll(t);
    const port = await freePort();
    const { child } = run(t, "backend", backend, url, { SPILLWAY_KEY: "a key", PORT: String(port) });
    let answer;
    for (let tries = 0; answer === undefined && tries < 200 && child.exitCode === null; tries += 1) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      answer = await fetch(`http://127.0.0.1:${port}/summaries`, { method: "POST", body: "A text" }).catch(
        () => undefined,
      );
    }
    assert.deepEqual(await answer.json(), { id: ID, read_token: "token" });
    assert.equal(requests[0].headers.authorization, "Bearer a key");
    assert.match(requests[0].body, /Summarise: A text/);
  });
});
