/**
 * What Spillway adds to the time until a stream's first content: `npm run bench:messages [-- --calls 400 --gap 40]`.
 *
 * The fake Claude behind the built Worker on workerd, all on this machine; half of the calls go to the fake itself and half
 * through the Worker, in pairs whose order alternates, over connections that are kept open, one call at a time. A pair's
 * difference is what the Worker added; medians and p95 are of these. Both ends and the clock share this machine's cores: it
 * is an upper bound of what the Worker costs on Cloudflare, apart from the network that is between them there.
 *
 * It prints figures and asserts nothing. Where they are above 5 ms at the median, something waits that should not.
 */
import { Agent, request } from "node:http";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { startFakeClaude } from "../fake-claude/server.mjs";
import { setUp } from "../scripts/lib/setup.mjs";
import { startWorker } from "../scripts/lib/worker.mjs";

const { values } = parseArgs({
  options: { calls: { type: "string", default: "400" }, gap: { type: "string", default: "20" } },
});
const [pairs, gap] = [Number(values.calls), Number(values.gap)];
const WARM_UP = 40;

const agent = new Agent({ keepAlive: true });

/** Milliseconds from the call to its first content, and to its end. */
function call(url, key, prompt) {
  const body = JSON.stringify({
    model: "claude-sonnet-5-5",
    max_tokens: 100,
    stream: true,
    messages: [{ role: "user", content: prompt }],
  });
  const headers = {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
    "anthropic-version": "2023-06-01",
    "x-api-key": key,
  };
  return new Promise((resolve, reject) => {
    const began = performance.now();
    let [text, first] = ["", undefined];
    const sent = request(`${url}/v1/messages`, { method: "POST", agent, headers }, (response) => {
      response.setEncoding("utf8");
      response.on("data", (chunk) => {
        text += chunk;
        if (first === undefined && text.includes("content_block_delta")) first = performance.now() - began;
      });
      response.on("end", () => {
        if (response.statusCode !== 200 || first === undefined)
          return reject(new Error(`${response.statusCode} ${text}`));
        resolve({ first, whole: performance.now() - began });
      });
    });
    sent.on("error", reject);
    sent.end(body);
  });
}

const quantile = (list, q) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * q))];
const shown = (list) => [0.5, 0.95].map((q) => `${quantile(list, q).toFixed(2).padStart(8)} ms`).join("");

await setUp({ build: true });
const script = { defaults: { delay_ms: 20, first_event_delay_ms: 5, chunk_delay_ms: 2, tokens: 40 } };
const fake = await startFakeClaude({ script });
const worker = await startWorker({
  vars: { ANTHROPIC_BASE_URL: fake.url, ANTHROPIC_API_KEY: "key", CLIENT_KEYS: "app:key", ADMIN_KEY: "admin" },
  log: (line, level) => level === "error" && process.stderr.write(`${line}\n`),
});
try {
  const times = { direct: [], through: [], added: [], whole: [] };
  for (let pair = -WARM_UP; pair < pairs; pair++) {
    const ways = [
      ["direct", fake.url],
      ["through", worker.url],
    ];
    const got = {};
    for (const [way, url] of pair % 2 ? ways : ways.reverse()) {
      got[way] = await call(url, "key", `pair ${pair}`);
      await sleep(gap);
    }
    if (pair < 0) continue;
    times.direct.push(got.direct.first);
    times.through.push(got.through.first);
    times.added.push(got.through.first - got.direct.first);
    times.whole.push(got.through.whole - got.direct.whole);
  }
  process.stdout.write(`${pairs} pairs, one call at a time, ${gap} ms apart\n`);
  process.stdout.write("                              median        p95\n");
  process.stdout.write(`first content, direct     ${shown(times.direct)}\n`);
  process.stdout.write(`first content, through    ${shown(times.through)}\n`);
  process.stdout.write(`added until first content ${shown(times.added)}\n`);
  process.stdout.write(`added until the end       ${shown(times.whole)}\n`);
} finally {
  agent.destroy();
  await worker.stop();
  await fake.stop();
}
