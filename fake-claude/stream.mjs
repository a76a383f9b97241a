/**
 * A Message as the server-sent events that carry it.
 *
 * One list of events, decided before the first byte is sent: what is cut, delayed or broken later is the sender's
 * business (faults.mjs), and "after n events" means the same on every run.
 */
import { tokenize } from "./answer.mjs";

/** @typedef {{event: string, data: object, delta?: boolean}} StreamEvent `delta` marks content */

const event = (data, delta = false) => ({ event: data.type, data, delta });

export const PING = event({ type: "ping" });

/** An error inside the stream. */
export const errorEvent = (body) => ({ event: "error", data: body, delta: false });

/** How an event looks on the wire. */
export function encode({ event: name, data }) {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** The events of a whole answer, unknown ones and pings included if the options ask for them. @returns {StreamEvent[]} */
export function eventsOf(message, options = {}) {
  const { content, stop_reason, stop_sequence, usage } = message;
  const opening = {
    ...message,
    content: [],
    stop_reason: null,
    stop_sequence: null,
    usage: { ...usage, output_tokens: 1 },
  };
  const events = [event({ type: "message_start", message: opening })];
  if (options.unknown_events) events.push(event({ type: "future_event", note: "an event that no client knows yet" }));
  for (const [index, block] of content.entries()) {
    events.push(event({ type: "content_block_start", index, content_block: emptied(block) }));
    if (index === 0) events.push(PING);
    events.push(...deltasOf(block, index, options));
    events.push(event({ type: "content_block_stop", index }));
  }
  if (content.length === 0) events.push(PING);
  if (options.unknown_events) events.push(event({ type: "future_event", note: "another one" }));
  const { input_tokens, cache_creation_input_tokens, cache_read_input_tokens, output_tokens } = usage;
  events.push(
    event({
      type: "message_delta",
      delta: { stop_reason, stop_sequence },
      usage: { input_tokens, cache_creation_input_tokens, cache_read_input_tokens, output_tokens },
    }),
  );
  events.push(event({ type: "message_stop" }));
  return options.pings ? withPings(events, options.pings) : events;
}

function emptied(block) {
  switch (block.type) {
    case "thinking":
      return { ...block, thinking: "", signature: "" };
    case "tool_use":
      return { ...block, input: {} };
    default:
      return block.citations ? { ...block, text: "", citations: [] } : { ...block, text: "" };
  }
}

function deltasOf(block, index, { tokens_per_chunk: size = 4, unknown_deltas: unknown = false }) {
  const deltas = changesOf(block, size).map((delta) => event({ type: "content_block_delta", index, delta }, true));
  if (unknown)
    deltas.splice(1, 0, event({ type: "content_block_delta", index, delta: { type: "future_delta", future: "?" } }));
  return deltas;
}

function changesOf(block, size) {
  switch (block.type) {
    case "thinking":
      return [
        ...chunks(block.thinking, size).map((thinking) => ({ type: "thinking_delta", thinking })),
        { type: "signature_delta", signature: block.signature },
      ];
    case "tool_use": {
      // The first piece is empty, as the API sends it; a tool without input has no other.
      const json = Object.keys(block.input).length ? chunks(JSON.stringify(block.input), size) : [];
      return ["", ...json].map((partial_json) => ({ type: "input_json_delta", partial_json }));
    }
    default:
      return [
        ...chunks(block.text, size).map((text) => ({ type: "text_delta", text })),
        ...(block.citations ?? []).map((citation) => ({ type: "citations_delta", citation })),
      ];
  }
}

function chunks(text, size) {
  const pieces = tokenize(text);
  const joined = [];
  for (let at = 0; at < pieces.length; at += size) joined.push(pieces.slice(at, at + size).join(""));
  return joined;
}

function withPings(events, every) {
  const last = events.length - 1;
  return events.flatMap((item, index) => ((index + 1) % every === 0 && index < last ? [item, PING] : [item]));
}
