/** How an answer leaves, whole or not: the delays, the cuts, and the faults of the connection. */
import { errorBody, failureOf, htmlPage, PRESETS, renderFailure } from "./errors.mjs";
import { encode, errorEvent, eventsOf, PING } from "./stream.mjs";

const JSON_TYPE = { "content-type": "application/json" };
const STREAM_TYPE = { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache" };

/** An error as an HTTP answer. */
export async function sendFailure(exchange, failure, { headers = {}, own = {}, delay_ms: delay = 0, now, requestId }) {
  if (!(await exchange.wait(delay))) return;
  const rendered = renderFailure(failure, requestId, now());
  const isJson = (failure.body ?? "json") === "json";
  exchange.send(failure.status, { ...headers, ...rendered.headers, ...own }, rendered.body, {
    error_type: isJson ? failure.type : null,
  });
}

/** A fault in the place of an answer. `refuse` shuts the door for a while. */
export async function sendFault(exchange, then, { message, headers, own = {}, streaming, refuse }) {
  exchange.fault = then.fault;
  if (!(await exchange.wait(then.delay_ms))) return;
  const type = streaming ? STREAM_TYPE : JSON_TYPE;
  switch (then.fault) {
    case "reset":
    case "close":
      return exchange.break(then.fault);
    case "refuse":
      refuse(then.for_ms);
      return exchange.break("reset");
    case "hang":
      return exchange.untilGone();
    case "html": {
      const page = htmlPage({ status: 200, message: "We will be back soon" });
      return exchange.send(200, { ...headers, "content-type": "text/html; charset=UTF-8", ...own }, page);
    }
    case "empty":
      return exchange.send(200, { ...headers, ...type, ...own }, "");
    case "truncated_json": {
      const whole = streaming ? eventsOf(message).slice(0, 4).map(encode).join("") : JSON.stringify(message);
      // Within the JSON of the last event, or of the Message.
      return exchange.send(200, { ...headers, ...type, ...own }, whole.slice(0, -10));
    }
  }
}

/** A Message, streamed. */
export async function sendStream(exchange, message, options, { headers, requestId }) {
  if (!(await exchange.wait(options.delay_ms))) return;
  exchange.begin(200, { ...headers, ...STREAM_TYPE, ...options.headers });
  const { split_bytes: splitBytes, cut } = options;
  let first = true;
  for (const event of eventsOf(message, options)) {
    if (cut && !exchange.fault && reached(cut, exchange)) {
      if (!(await cutStream(exchange, cut, options, requestId))) return;
    }
    const pause = first ? options.first_event_delay_ms : options.chunk_delay_ms;
    first = false;
    if (!(await pausing(exchange, pause, options))) return;
    const outcome = { completed: true, message_id: message.id, stop_reason: message.stop_reason };
    // Before the last event goes out: whoever reads it finds the call's outcome in the log.
    if (event.event === "message_stop") exchange.end({ ...outcome, events: exchange.events + 1 });
    if (!(await exchange.writeEvent(encode(event), { delta: event.delta, splitBytes }))) return;
  }
  exchange.finish();
}

const reached = ({ after_events: events, after_deltas: deltas }, exchange) =>
  events === undefined ? exchange.deltas >= deltas : exchange.events >= events;

/** True if the stream goes on after all. */
async function cutStream(exchange, cut, options, requestId) {
  exchange.fault = cut.how;
  switch (cut.how) {
    case "stall":
      return pausing(exchange, cut.for_ms ?? Infinity, options);
    case "error": {
      const failure = failureIn(cut.error);
      exchange.events += 1;
      exchange.end({ error_type: failure.type });
      await exchange.write(encode(errorEvent(errorBody(failure, requestId))), options.split_bytes);
      exchange.finish();
      return false;
    }
    case "reset":
      // What was written has to leave before the reset throws it away.
      await exchange.wait(5);
      exchange.break("reset");
      return false;
    default:
      exchange.finish();
      return false;
  }
}

/** Waits between events, with pings if the options ask for them. */
async function pausing(exchange, ms = 0, { ping_every_ms: every, split_bytes: splitBytes }) {
  if (!every) return ms === Infinity ? (await exchange.untilGone(), false) : exchange.wait(ms);
  for (let left = ms; left > 0; left -= every) {
    if (!(await exchange.wait(Math.min(left, every)))) return false;
    if (left > every && !(await exchange.writeEvent(encode(PING), { splitBytes }))) return false;
  }
  return !exchange.gone;
}

/** A Message, in one piece: its headers come when a stream would have ended. */
export async function sendWhole(exchange, message, options, context) {
  const { headers } = context;
  const { cut } = options;
  if (cut?.how === "error") {
    exchange.fault = "error";
    return sendFailure(exchange, failureIn(cut.error), {
      ...context,
      own: options.headers,
      delay_ms: options.delay_ms,
    });
  }
  const duration =
    (options.first_event_delay_ms ?? 0) + (options.chunk_delay_ms ?? 0) * eventsOf(message, options).length;
  if (!(await exchange.wait((options.delay_ms ?? 0) + duration))) return;
  const json = JSON.stringify(message);
  const allHeaders = { ...headers, ...JSON_TYPE, ...options.headers };
  const outcome = { completed: true, message_id: message.id, stop_reason: message.stop_reason };
  if (!cut) return exchange.send(200, allHeaders, json, outcome);
  exchange.fault = cut.how;
  const half = Math.floor(json.length / 2);
  exchange.begin(200, allHeaders);
  await exchange.write(json.slice(0, half));
  switch (cut.how) {
    case "stall":
      if (cut.for_ms === undefined) return exchange.untilGone();
      if (!(await exchange.wait(cut.for_ms))) return;
      exchange.end(outcome);
      await exchange.write(json.slice(half));
      return exchange.finish();
    case "reset":
      await exchange.wait(5);
      return exchange.break("reset");
    default:
      return exchange.finish();
  }
}

function failureIn(error = "overloaded") {
  if (typeof error === "string") return PRESETS[error];
  const known = Object.values(PRESETS).find((preset) => preset.type === error.type) ?? failureOf(500);
  return { ...known, details: null, ...error };
}
