/** The control routes, `/_fake/…`: change the script, read the log. They are not calls, and are not logged. */
import { readBody } from "./body.mjs";
import { bodyHash } from "./log.mjs";
import { parseScriptText, ScriptError } from "./script.mjs";

const ROUTES = {
  "/_fake/health": { GET: health },
  "/_fake/script": { GET: getScript, PUT: putScript },
  "/_fake/calls": { GET: getCalls, DELETE: deleteCalls },
  "/_fake/reset": { POST: reset },
};

/** Answers one control request. */
export async function handleControl(fake, request, response) {
  const url = new URL(request.url, "http://fake");
  const route = ROUTES[url.pathname.replace(/\/$/, "")];
  const body = await readBody(request, bodyHash());
  if (body === null) return;
  if (!route) return respond(response, 404, { error: `no such route; there are ${Object.keys(ROUTES).join(", ")}` });
  const handle = route[request.method];
  if (!handle) {
    const allow = Object.keys(route).join(", ");
    return respond(response, 405, { error: `use ${allow}` }, { allow });
  }
  try {
    respond(response, 200, await handle(fake, url.searchParams, body.bytes));
  } catch (error) {
    if (!(error instanceof ScriptError || error instanceof QueryError)) throw error;
    respond(response, 400, { error: error.message, problems: error.problems ?? [error.message] });
  }
}

class QueryError extends Error {}

function health(fake) {
  return {
    ok: true,
    url: fake.url,
    listening: fake.listening,
    calls: fake.log.size,
    in_flight: fake.log.inFlight,
    script: fake.rules.script.source.name ?? null,
    since_script_ms: fake.now() - fake.rules.startedAt,
  };
}

function getScript(fake) {
  return fake.rules.script.source;
}

async function putScript(fake, query, bytes) {
  const words = (query.get("keep") ?? "").split(",").filter(Boolean);
  const strange = words.find((word) => word !== "clock" && word !== "counters");
  if (strange !== undefined)
    throw new QueryError(`keep: must be clock, counters or both, not ${JSON.stringify(strange)}`);
  const script = parseScriptText(bytes === null ? "" : bytes.toString("utf8"));
  await fake.setScript(script, { clock: words.includes("clock"), counters: words.includes("counters") });
  return { ok: true, rules: script.rules.length };
}

function getCalls(fake, query) {
  const since = Number(query.get("since") ?? 0);
  if (!Number.isInteger(since) || since < 0) throw new QueryError("since: must be the number of a call");
  return fake.log.list({
    since,
    marker: query.get("marker") ?? undefined,
    model: query.get("model") ?? undefined,
    open: yesOrNo(query, "open"),
    bodies: yesOrNo(query, "bodies") ?? true,
  });
}

function yesOrNo(query, name) {
  const value = query.get(name);
  if (value === null) return undefined;
  if (value === "1" || value === "0") return value === "1";
  throw new QueryError(`${name}: must be 1 or 0`);
}

function deleteCalls(fake) {
  const deleted = fake.log.size;
  fake.log.clear();
  return { ok: true, deleted };
}

async function reset(fake) {
  await fake.reset();
  return { ok: true };
}

function respond(response, status, value, headers = {}) {
  const body = JSON.stringify(value);
  response.writeHead(status, {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
    ...headers,
  });
  response.end(body);
}
