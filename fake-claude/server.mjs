/**
 * The fake Claude API, for tests in process and for `main.mjs`.
 *
 * A call goes: logged → body read (413 above 32 MB) → counted → key and version → body checked → rules → rate limits and
 * capacity → answer. Rules come after the checks, because a 400 is a 400 for the real API under any load, and before the
 * limits, because a script that says what happens to a call means it.
 */
import { createServer } from "node:http";
import { composeAnswer } from "./answer.mjs";
import { readBody } from "./body.mjs";
import { Capacity } from "./capacity.mjs";
import { handleControl } from "./control.mjs";
import { PRESETS, invalidRequest } from "./errors.mjs";
import { Exchange } from "./exchange.mjs";
import { sendFailure, sendFault, sendStream, sendWhole } from "./faults.mjs";
import { Listener } from "./listener.mjs";
import { bodyHash, CallLog } from "./log.mjs";
import { KNOWN_MODELS, abilitiesOf, modelInfo } from "./models.mjs";
import { inputTokens, lastUserText, markerOf, promptText } from "./prompt.mjs";
import { identifier } from "./random.mjs";
import { RuleBook } from "./rules.mjs";
import { parseScript } from "./script.mjs";
import { problemWith } from "./validate.mjs";

const ORGANIZATION = "5b0c1f9e-7a63-4d1b-9c58-2f6f1f0a4e77";
const VERSIONS = new Set(["2026-10-21", "2023-06-01", "2023-01-01"]);

const ROUTES = {
  "/v1/messages": { name: "messages", method: "POST" },
  "/v1/messages/count_tokens": { name: "count_tokens", method: "POST" },
  "/v1/models": { name: "models", method: "GET" },
};

/**
 * Starts a fake Claude.
 *
 * @param {object} [options]
 * @param {number} [options.port]    0 for any free one
 * @param {string} [options.host]    loopback by default
 * @param {object} [options.script]  see README.md
 * @param {() => number} [options.now]  the clock, in ms
 * @param {(entry: object) => void} [options.onCall]  told of every call when its outcome is known
 */
export async function startFakeClaude({ port = 0, host = "127.0.0.1", script = {}, now = Date.now, onCall } = {}) {
  const fake = new FakeClaude({ script: parseScript(script), now, onCall });
  await fake.listen(port, host);
  return {
    url: fake.url,
    port: fake.port,
    calls: (filter) => fake.log.list(filter),
    script: () => fake.rules.script.source,
    setScript: (next, keep) => fake.setScript(parseScript(next), keep),
    reset: () => fake.reset(),
    until: (condition, timeoutMs) => fake.until(condition, timeoutMs),
    stop: () => fake.stop(),
  };
}

/** The server and everything that it remembers. */
export class FakeClaude {
  #http;
  #listener;
  #onCall;
  #watchers = new Set();

  constructor({ script, now, onCall }) {
    this.now = now;
    this.#onCall = onCall;
    this.log = new CallLog();
    this.rules = new RuleBook(script, now());
    this.capacity = new Capacity(script);
    this.#http = createServer({ keepAliveTimeout: 0, requestTimeout: 0, headersTimeout: 0 });
    this.#http.on("request", (request, response) => this.#serve(request, response));
    this.#http.on("clientError", (error, socket) => {
      if (socket.writable) socket.end("HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    });
    this.#listener = new Listener(this.#http);
  }

  async listen(port, host) {
    this.port = await this.#listener.open(port, host);
    this.url = `http://${host.includes(":") ? `[${host}]` : host}:${this.port}`;
    this.#scheduleRefusals();
  }

  /** Replaces the script; its clock and counters start anew unless `keep` says otherwise. */
  async setScript(script, keep = {}) {
    this.rules.replace(script, this.now(), keep);
    this.capacity.configure(script);
    await this.#listener.unschedule();
    this.#scheduleRefusals();
  }

  /** The same script from its beginning, with an empty log. */
  async reset() {
    this.log.clear();
    await this.setScript(this.rules.script);
  }

  /** Resolves with the calls as soon as they fulfil the condition; rejects after the timeout. */
  until(condition, timeoutMs = 5000) {
    return new Promise((resolve, reject) => {
      const look = () => {
        const calls = this.log.list();
        if (!condition(calls)) return;
        clearTimeout(timer);
        this.#watchers.delete(look);
        resolve(calls);
      };
      const timer = setTimeout(() => {
        this.#watchers.delete(look);
        reject(new Error(`the fake Claude's calls did not become as expected within ${timeoutMs} ms`));
      }, timeoutMs);
      this.#watchers.add(look);
      look();
    });
  }

  async stop() {
    await this.#listener.stop();
  }

  get listening() {
    return !this.#listener.refusing;
  }

  #scheduleRefusals() {
    const elapsed = this.now() - this.rules.startedAt;
    for (const window of this.rules.script.refuseConnections) {
      if (window.until_ms <= elapsed) continue;
      this.#listener.schedule({ from_ms: window.from_ms - elapsed, until_ms: window.until_ms - elapsed });
    }
  }

  async #serve(request, response) {
    const release = this.#listener.occupy(request.socket);
    response.on("close", release);
    const path = request.url.split("?")[0];
    if (path === "/_fake" || path.startsWith("/_fake/")) {
      await handleControl(this, request, response).catch((error) => response.destroy(error));
      return;
    }
    const entry = this.log.open({
      method: request.method,
      path: request.url,
      headers: request.headers,
      now: this.now(),
      sinceScript: this.now() - this.rules.startedAt,
    });
    entry.request_id = identifier("req_011C", this.rules.script.seed, entry.n);
    const exchange = new Exchange({ request, response, entry, log: this.log, now: this.now });
    exchange.whenOver(() => {
      this.#onCall?.(entry);
      this.#changed();
    });
    this.#changed();
    try {
      await this.#answer(exchange, path);
    } catch (error) {
      console.error("fake Claude: a call failed in a way that it should not", error);
      exchange.by = "fake_failed";
      exchange.break("reset");
    }
  }

  #changed() {
    for (const look of this.#watchers) look();
  }

  async #answer(exchange, path) {
    const { request, entry } = exchange;
    const received = await readBody(request, bodyHash());
    if (received === null) return;
    this.log.keepBody(entry, received.bytes, received.size, received.sha256);
    const body = parseJson(received.bytes);
    const call = this.#describe(entry, ROUTES[path]?.name ?? modelRoute(path), body.value);
    this.#changed();
    const refusal = received.bytes === null ? ["size", PRESETS.too_large] : this.#refusal(request, path, body);
    if (refusal) return this.#fail(exchange, ...refusal);
    const rule = this.rules.match(call, this.now());
    entry.rule = rule?.name ?? null;
    return this.#follow(exchange, call, rule?.then ?? { kind: "answer" }, body.value, path);
  }

  #describe(entry, route, body) {
    const prompt = promptText(body);
    const marker = markerOf(prompt);
    const model = typeof body?.model === "string" ? body.model : null;
    const stream = body?.stream === true;
    const promptId = marker ?? (prompt.trim() === "" ? null : identifier("", prompt));
    const numbers = this.rules.count({ model, promptId });
    this.log.describe(entry, { model, stream, marker, lastUserText: lastUserText(body), numbers });
    return { ...numbers, model, stream, route, key: entry.key, promptText: prompt };
  }

  /** What the API refuses whatever its load: [by, failure], or null. */
  #refusal(request, path, body) {
    const route = ROUTES[path] ?? (modelRoute(path) ? ROUTES["/v1/models"] : null);
    const bearer = /^bearer (.*)$/i.exec(request.headers.authorization ?? "")?.[1];
    const key = request.headers["x-api-key"] ?? bearer;
    if (!route) return ["route", PRESETS.not_found];
    if (request.method !== route.method) {
      return ["route", { ...invalidRequest("Method Not Allowed"), status: 405, allow: route.method }];
    }
    if (key === undefined || key.trim() === "") {
      return ["authentication", { ...PRESETS.authentication, message: "x-api-key header is required" }];
    }
    if (this.rules.script.refusedKeys.has(key)) return ["authentication", PRESETS.authentication];
    const version = request.headers["anthropic-version"];
    if (version === undefined) return ["validation", invalidRequest("anthropic-version: header is required")];
    if (!VERSIONS.has(version)) {
      return ["validation", invalidRequest(`anthropic-version: "${version}" is not a valid version`)];
    }
    if (route.method === "GET") return null;
    if (body.error) return ["validation", invalidRequest(`The request body is not valid JSON: ${body.error}`)];
    const { models, checkContext } = this.rules.script;
    const problem = problemWith(body.value, { version, models, checkContext, counting: route.name === "count_tokens" });
    if (problem?.missingModel !== undefined) {
      return ["validation", { ...PRESETS.not_found, message: `model: ${problem.missingModel}` }];
    }
    return problem && ["validation", invalidRequest(problem.message)];
  }

  async #follow(exchange, call, then, body, path) {
    if (then.kind === "error") {
      return this.#fail(exchange, "rule", then.failure, { own: then.headers, delay_ms: then.delay_ms });
    }
    const { requestId, headers } = this.#common(exchange, call.model);
    const options = { ...this.rules.script.defaults, ...then };
    const isMessage = call.route === "messages";
    if (then.kind === "fault") {
      exchange.by = "rule";
      const message = isMessage ? composeAnswer(body, options) : { input_tokens: 1, models: KNOWN_MODELS };
      const refuse = (ms) => this.#listener.refuse(ms);
      return sendFault(exchange, then, { message, headers, own: then.headers, streaming: call.stream, refuse });
    }
    if (!isMessage) return this.#answerOther(exchange, call, options, body, { headers, path });
    const admission = this.capacity.enter(call.model, this.now());
    if (admission.refused) return this.#overLimit(exchange, call.model, admission);
    exchange.whenOver(admission.leave);
    const message = composeAnswer(body, options);
    const context = { ...this.#common(exchange, call.model), now: this.now };
    await (call.stream ? sendStream : sendWhole)(exchange, message, options, context);
    admission.leave();
  }

  #overLimit(exchange, model, { refused, retryAfterSeconds }) {
    if (refused === "capacity") return this.#fail(exchange, "capacity", PRESETS.overloaded);
    return this.#fail(exchange, "rate_limit", { ...PRESETS.rate_limit, retry_after: retryAfterSeconds });
  }

  async #answerOther(exchange, { route }, options, body, { headers, path }) {
    if (!(await exchange.wait(options.delay_ms))) return;
    const allHeaders = { ...headers, "content-type": "application/json", ...options.headers };
    const send = (value) => exchange.send(200, allHeaders, JSON.stringify(value), { completed: true });
    if (route === "count_tokens") return send({ input_tokens: inputTokens(body).total });
    const { models } = this.rules.script;
    const single = decodeURIComponentSafely(path.slice("/v1/models/".length));
    if (path !== "/v1/models") {
      return abilitiesOf(single, models)
        ? send(modelInfo(single))
        : this.#fail(exchange, "route", { ...PRESETS.not_found, message: `model: ${single}` });
    }
    const data = (models ?? KNOWN_MODELS).map(modelInfo);
    return send({ data, has_more: false, first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null });
  }

  /** The headers of every answer, with the state of the model's limits. */
  #common({ entry }, model) {
    return {
      requestId: entry.request_id,
      headers: {
        "request-id": entry.request_id,
        "anthropic-organization-id": ORGANIZATION,
        ...(model === null ? {} : this.capacity.headers(model, this.now())),
      },
    };
  }

  #fail(exchange, by, failure, { own = {}, delay_ms } = {}) {
    exchange.by = by;
    const { headers, requestId } = this.#common(exchange, exchange.entry.model);
    const allow = failure.allow ? { allow: failure.allow } : {};
    return sendFailure(exchange, failure, { headers, own: { ...allow, ...own }, delay_ms, now: this.now, requestId });
  }
}

const modelRoute = (path) => (/^\/v1\/models\/[^/]+$/.test(path) || path === "/v1/models" ? "models" : null);

function parseJson(bytes) {
  if (bytes === null || bytes.length === 0) return { error: "EOF while parsing a value: line 1 column 0 (char 0)" };
  try {
    return { value: JSON.parse(bytes.toString("utf8")) };
  } catch (error) {
    return { error: error.message };
  }
}

function decodeURIComponentSafely(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
