/**
 * The answer to a request: one complete Message, made from the prompt alone.
 *
 * Streaming and not are the same answer: stream.mjs takes this Message apart, and nothing else makes one. The text holds
 * the last user message and its length, a tool's input is made from its schema and the prompt, ids are hashes, so the
 * same request always gets the same answer and two requests can be told apart. A "token" is a piece of at most four
 * characters; `max_tokens` and the script's `tokens` count those.
 */
import { createHash } from "node:crypto";
import { identifier } from "./random.mjs";
import { citableDocuments, inputTokens, lastUserText } from "./prompt.mjs";
import { sample } from "./sample.mjs";

const LONGEST_ECHO = 4000;

const FILLER =
  " It goes on for a while, because the answer was asked to be long, and so it says again what it has said before.";

/** Text in pieces of at most four characters, each with the space before it; joined they are the text again. */
export function tokenize(text) {
  return text.match(/\s?\S{1,4}|\s/gu) ?? [];
}

/** The Message that answers `body` under the options of a rule (see README.md). */
export function composeAnswer(body, options = {}) {
  const { messages, model, system, tools, max_tokens: maxTokens } = body;
  const digest = createHash("sha256")
    .update(JSON.stringify([messages, model, system, tools, maxTokens]))
    .digest("hex");
  const writer = new Writer(maxTokens);
  writeThinking(writer, body, options, digest);
  const tool = toolFor(body, options);
  if (!tool || (options.tool_use && options.text !== undefined)) writeText(writer, body, options);
  if (tool) writeToolUse(writer, tool, body, options, digest);
  return {
    id: identifier("msg_01", digest),
    type: "message",
    role: "assistant",
    model,
    content: writer.content,
    ...writer.stop(options.stop_reason, tool ? "tool_use" : "end_turn"),
    usage: usageOf(body, options, writer.used),
  };
}

/** Content blocks within the limit of max_tokens. */
class Writer {
  content = [];
  used = 0;
  stopSequence = null;
  full = false;

  constructor(limit) {
    this.limit = limit;
  }

  /** As much of the text as fits. */
  fit(text) {
    const pieces = tokenize(text);
    const left = this.limit - this.used;
    this.used += Math.min(pieces.length, left);
    if (pieces.length <= left) return text;
    this.full = true;
    return pieces.slice(0, left).join("");
  }

  add(block) {
    this.content.push(block);
  }

  /** Why the answer ends: as the script says, else by its own length, else the natural way. */
  stop(scripted, natural) {
    if (scripted) return { stop_reason: scripted, stop_sequence: null };
    if (this.full) return { stop_reason: "max_tokens", stop_sequence: null };
    if (this.stopSequence !== null) return { stop_reason: "stop_sequence", stop_sequence: this.stopSequence };
    return { stop_reason: natural, stop_sequence: null };
  }
}

/** Exactly this many tokens of a text, padded with filler or cut. */
function ofLength(text, tokens) {
  const pieces = tokenize(text);
  const filler = tokenize(FILLER);
  while (pieces.length < tokens) pieces.push(filler[pieces.length % filler.length]);
  return pieces.slice(0, tokens).join("");
}

function writeThinking(writer, body, { thinking }, digest) {
  const asked = body.thinking?.type === "enabled" || body.thinking?.type === "adaptive";
  const wanted = thinking ?? asked;
  if (wanted === false) return;
  const musing = `The prompt has ${lastUserText(body).length} characters. I repeat it, so that the answer can be told apart.`;
  const text = typeof wanted === "string" ? wanted : typeof wanted === "number" ? ofLength(musing, wanted) : musing;
  const signature = createHash("sha512").update(`signature of ${digest}`).digest("base64");
  writer.add({ type: "thinking", thinking: writer.fit(text), signature });
}

/** The tool to use, or null for an answer in text: as the script says, else as tool_choice and the conversation ask. */
function toolFor(body, { tool_use: scripted, text }) {
  if (scripted === false) return null;
  const tools = (body.tools ?? []).filter((tool) => tool.input_schema);
  if (scripted === true) return tools[0] ?? { name: "fake_tool" };
  if (typeof scripted === "string") return tools.find((tool) => tool.name === scripted) ?? { name: scripted };
  if (scripted) return tools.find((tool) => tool.name === scripted.name) ?? { name: scripted.name ?? "fake_tool" };
  if (text !== undefined || tools.length === 0 || body.tool_choice?.type === "none") return null;
  if (body.tool_choice?.type === "tool") return tools.find((tool) => tool.name === body.tool_choice.name) ?? null;
  if (body.tool_choice?.type === "any") return tools[0];
  const { content } = body.messages.at(-1);
  const hasResult = Array.isArray(content) && content.some((block) => block.type === "tool_result");
  return hasResult ? null : tools[0];
}

function writeToolUse(writer, tool, body, { tool_use: scripted }, digest) {
  const input = scripted?.input ?? sample(tool.input_schema ?? { type: "object" }, lastUserText(body));
  // Never cut: the input of a tool has to be whole to be one.
  writer.used += tokenize(JSON.stringify(input)).length;
  writer.add({ type: "tool_use", id: identifier("toolu_01", digest, tool.name), name: tool.name, input });
}

function writeText(writer, body, options) {
  if (options.tokens === 0 || writer.full) return;
  let text = options.text ?? defaultText(body);
  if (options.tokens !== undefined) text = ofLength(text, options.tokens);
  for (const stop of body.stop_sequences ?? []) {
    const at = text.indexOf(stop);
    if (at < 0) continue;
    text = text.slice(0, at);
    writer.stopSequence = stop;
  }
  const documents = options.text === undefined ? citableDocuments(body) : [];
  for (const document of documents) {
    writer.add({
      type: "text",
      text: writer.fit(`Document ${document.index} says this.`),
      citations: [citation(document)],
    });
  }
  if (!writer.full) writer.add({ type: "text", text: writer.fit(text) });
}

function defaultText(body) {
  const prompt = lastUserText(body);
  const format = body.output_config?.format ?? body.output_format;
  if (format?.type === "json_schema") return JSON.stringify(sample(format.schema ?? {}, prompt));
  const echo = prompt.length > LONGEST_ECHO ? `${prompt.slice(0, LONGEST_ECHO)}…` : prompt;
  return `${body.model} answers ${prompt.length} characters: ${echo}`;
}

function citation({ index, title, block }) {
  const common = { document_index: index, document_title: title };
  const { source } = block;
  if (source?.type === "text") {
    const cited = String(source.data ?? "").slice(0, 80);
    return { type: "char_location", cited_text: cited, ...common, start_char_index: 0, end_char_index: cited.length };
  }
  if (source?.type === "content") {
    const cited = String(Array.isArray(source.content) ? (source.content[0]?.text ?? "") : (source.content ?? ""));
    return { type: "content_block_location", cited_text: cited, ...common, start_block_index: 0, end_block_index: 1 };
  }
  return { type: "page_location", cited_text: "page 1", ...common, start_page_number: 1, end_page_number: 2 };
}

function usageOf(body, { cache }, outputTokens) {
  const { total, cached, ttl } = inputTokens(body);
  const hit = cache === "hit";
  const written = hit ? 0 : cached;
  return {
    input_tokens: total - cached,
    cache_creation_input_tokens: written,
    cache_read_input_tokens: hit ? cached : 0,
    cache_creation: {
      ephemeral_5m_input_tokens: ttl === "1h" ? 0 : written,
      ephemeral_1h_input_tokens: ttl === "1h" ? written : 0,
    },
    output_tokens: Math.max(1, outputTokens),
    service_tier: "standard",
  };
}
