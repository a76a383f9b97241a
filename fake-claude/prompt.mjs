/** What a request asks, as text: for markers, for counting tokens, and for an answer that can be told from others. */
/** About four characters make a token. */
export const estimateTokens = (characters) => Math.ceil(characters / 4);

const MARKER = /\[\[([^\]]{1,200})\]\]/;

function textOf(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content
    .map((block) => (block?.type === "tool_result" ? textOf(block.content) : (block?.text ?? "")))
    .filter((text) => typeof text === "string" && text !== "")
    .join("\n");
}

/** The text of the last message of the user. */
export function lastUserText(body) {
  const messages = Array.isArray(body?.messages) ? body.messages : [];
  const last = messages.findLast((message) => message?.role === "user");
  return last ? textOf(last.content) : "";
}

/** All text of a prompt: system, then every message. */
export function promptText(body) {
  const messages = Array.isArray(body?.messages) ? body.messages : [];
  return [textOf(body?.system), ...messages.map((message) => textOf(message?.content))].join("\n");
}

/** The marker of a prompt: what stands in its first `[[…]]`, or null. */
export function markerOf(text) {
  return MARKER.exec(text)?.[1] ?? null;
}

/** How much of a request is input, and how much of that stands before its last cache_control mark, in tokens. */
export function inputTokens(body) {
  const parts = [...list(body.tools), ...blocks(body.system)];
  for (const message of list(body.messages)) parts.push(...blocks(message?.content));
  let total = 0;
  let cached = 0;
  let ttl = "5m";
  for (const part of parts) {
    total += JSON.stringify(part, withoutBase64)?.length ?? 0;
    if (!part?.cache_control) continue;
    cached = total;
    ttl = part.cache_control.ttl ?? "5m";
  }
  if (body.cache_control) cached = total;
  return { total: Math.max(1, estimateTokens(total)), cached: estimateTokens(cached), ttl };
}

// An image or a PDF costs by its pixels and pages, not by its base64: a flat price here.
const FLAT_PRICE = "x".repeat(4 * 1_500);

const withoutBase64 = (key, value) => (value?.type === "base64" ? FLAT_PRICE : value);

const list = (value) => (Array.isArray(value) ? value : []);

function blocks(content) {
  return typeof content === "string" ? [{ type: "text", text: content }] : list(content);
}

/** Documents of the prompt that ask for citations, as citations refer to them. */
export function citableDocuments(body) {
  return list(body.messages)
    .flatMap((message) => blocks(message?.content))
    .filter((block) => block?.type === "document")
    .map((block, index) => ({ index, title: block.title ?? null, block }))
    .filter(({ block }) => block.citations?.enabled === true);
}
