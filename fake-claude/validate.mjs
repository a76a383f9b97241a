/**
 * The 400s of the Messages API: the first thing wrong with a request, in the words that the API has for it.
 *
 * It checks what the API checks and a client can get wrong, the pairing of tool_use and tool_result above all; it does not
 * know every option of every block.
 */
import { abilitiesOf } from "./models.mjs";
import { inputTokens } from "./prompt.mjs";

const FIELDS = new Set(
  (
    "model messages max_tokens metadata stop_sequences stream system temperature thinking tool_choice tools top_k top_p " +
    "service_tier container mcp_servers context_management output_format output_config cache_control inference_geo speed"
  ).split(" "),
);

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

class Refusal extends Error {}

function refuse(message) {
  throw new Refusal(message);
}

/** What is wrong with a body: `{ message }` for a 400, `{ missingModel }` for a 404, or null. */
export function problemWith(
  body,
  { version = "2023-06-01", models = null, counting = false, checkContext = true } = {},
) {
  try {
    return check(body, { version, models, counting, checkContext });
  } catch (error) {
    if (error instanceof Refusal) return { message: error.message };
    throw error;
  }
}

function check(body, { version, models, counting, checkContext }) {
  if (!isObject(body)) refuse("Input should be a valid dictionary or object to extract fields from");
  for (const field of ["model", "messages", ...(counting ? [] : ["max_tokens"])]) {
    if (body[field] === undefined) refuse(`${field}: Field required`);
  }
  const extra = Object.keys(body).find((field) => !FIELDS.has(field));
  if (extra !== undefined) refuse(`${extra}: Extra inputs are not permitted`);
  if (typeof body.model !== "string") refuse("model: Input should be a valid string");
  if (version >= "2026-10-21") checkRemoved(body);
  checkNumbers(body);
  checkSystem(body.system);
  checkMessages(body.messages);
  checkTools(body);
  const abilities = abilitiesOf(body.model, models);
  if (!abilities) return { missingModel: body.model };
  checkAbilities(body, abilities);
  if (checkContext && !counting) checkLength(body, abilities);
  return null;
}

/** What 2026-10-21 takes no more. */
function checkRemoved(body) {
  const sampling = ["temperature", "top_p", "top_k"].find((field) => body[field] !== undefined);
  if (sampling) refuse(`${sampling}: Extra inputs are not permitted`);
  if (!Array.isArray(body.messages)) return;
  for (const [index, message] of body.messages.entries()) {
    for (const [at, block] of (Array.isArray(message?.content) ? message.content : []).entries()) {
      const place = `messages.${index}.content.${at}`;
      if (message.role === "assistant" && block?.type === "document") {
        refuse(`${place}: document blocks are not permitted in assistant messages`);
      }
      if (message.role === "user" && block?.type === "text" && block.citations?.length > 0) {
        refuse(`${place}: citations are not permitted on text blocks in user messages`);
      }
    }
  }
}

function checkNumbers(body) {
  const { max_tokens: maxTokens, temperature, stream, stop_sequences: stops } = body;
  if (maxTokens !== undefined) {
    if (!Number.isInteger(maxTokens)) refuse("max_tokens: Input should be a valid integer");
    if (maxTokens < 1) refuse("max_tokens: Input should be greater than or equal to 1");
  }
  if (temperature !== undefined) {
    if (typeof temperature !== "number") refuse("temperature: Input should be a valid number");
    if (temperature < 0 || temperature > 1) refuse("temperature: range: 0..1");
  }
  if (stream !== undefined && typeof stream !== "boolean") refuse("stream: Input should be a valid boolean");
  if (stops !== undefined && !(Array.isArray(stops) && stops.every((stop) => typeof stop === "string"))) {
    refuse("stop_sequences: Input should be a valid list");
  }
  if (Array.isArray(stops) && stops.some((stop) => stop.trim() === "")) {
    refuse("stop_sequences: each stop sequence must contain non-whitespace");
  }
}

function checkSystem(system) {
  if (system === undefined || typeof system === "string") return;
  if (!Array.isArray(system)) refuse("system: Input should be a valid list");
  for (const [index, block] of system.entries()) {
    if (block?.type !== "text") refuse(`system.${index}.type: Input should be 'text'`);
    if (typeof block.text !== "string") refuse(`system.${index}.text: Field required`);
    if (block.text === "") refuse("system: text content blocks must be non-empty");
  }
}

function checkMessages(messages) {
  if (!Array.isArray(messages)) refuse("messages: Input should be a valid list");
  if (messages.length === 0) refuse("messages: at least one message is required");
  for (const [index, message] of messages.entries()) checkMessage(message, index, index === messages.length - 1);
  for (const [index, message] of messages.entries()) checkToolResults(messages, message, index);
}

function checkMessage(message, index, isLast) {
  const place = `messages.${index}`;
  if (!isObject(message)) refuse(`${place}: Input should be a valid dictionary or object to extract fields from`);
  for (const field of ["role", "content"]) {
    if (message[field] === undefined) refuse(`${place}.${field}: Field required`);
  }
  if (message.role === "system") {
    refuse(
      'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, not "system" as an input message role.',
    );
  }
  if (message.role !== "user" && message.role !== "assistant") {
    refuse(`${place}.role: Input should be 'user' or 'assistant'`);
  }
  if (typeof message.content !== "string" && !Array.isArray(message.content)) {
    refuse(`${place}.content: Input should be a valid string or list`);
  }
  if (message.content.length === 0 && !(isLast && message.role === "assistant")) {
    refuse(`${place}: all messages must have non-empty content except for the optional final assistant message`);
  }
  if (Array.isArray(message.content)) checkBlocks(message, place);
}

function checkBlocks(message, place) {
  for (const [index, block] of message.content.entries()) {
    const where = `${place}.content.${index}`;
    if (typeof block?.type !== "string") refuse(`${where}.type: Field required`);
    if (block.type === "text" && typeof block.text !== "string") refuse(`${where}.text.text: Field required`);
    if (block.type === "text" && block.text === "") refuse("messages: text content blocks must be non-empty");
    if (block.type === "thinking" && typeof block.signature !== "string") {
      refuse(`${where}.thinking.signature: Field required`);
    }
    for (const field of { tool_use: ["id", "name", "input"], tool_result: ["tool_use_id"] }[block.type] ?? []) {
      if (block[field] === undefined) refuse(`${where}.${block.type}.${field}: Field required`);
    }
  }
}

const blocksOf = (message, type) =>
  Array.isArray(message?.content) ? message.content.filter((block) => block.type === type) : [];

function checkToolResults(messages, message, index) {
  if (message.role === "assistant") {
    const answered = new Set(blocksOf(messages[index + 1], "tool_result").map((block) => block.tool_use_id));
    const open = blocksOf(message, "tool_use").filter((block) => !answered.has(block.id));
    if (open.length) {
      refuse(
        `messages.${index}: \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ` +
          `${open.map((block) => block.id).join(", ")}. Each \`tool_use\` block must have a corresponding \`tool_result\` block in the next message.`,
      );
    }
    return;
  }
  const asked = new Set(blocksOf(messages[index - 1], "tool_use").map((block) => block.id));
  const seen = new Set();
  let otherContent = false;
  for (const [position, block] of (Array.isArray(message.content) ? message.content : []).entries()) {
    if (block.type !== "tool_result") {
      otherContent = true;
      continue;
    }
    const id = block.tool_use_id;
    if (!asked.has(id)) {
      refuse(
        `messages.${index}.content.${position}: unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${id}. ` +
          "Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
      );
    }
    if (seen.has(id)) {
      refuse(
        `messages.${index}.content.${position}: each tool_use must have a single result. Found multiple \`tool_result\` blocks with id: ${id}`,
      );
    }
    if (otherContent) {
      refuse(`messages.${index}.content.${position}: \`tool_result\` blocks must come first in the message's content`);
    }
    seen.add(id);
  }
}

function checkTools(body) {
  const { tools, tool_choice: choice } = body;
  if (tools !== undefined && !Array.isArray(tools)) refuse("tools: Input should be a valid list");
  const names = new Set();
  for (const [index, tool] of (tools ?? []).entries()) {
    const custom = tool?.type === undefined || tool?.type === null || tool?.type === "custom";
    const place = `tools.${index}${custom ? ".custom" : ""}`;
    if (typeof tool?.name !== "string") refuse(`${place}.name: Field required`);
    if (!/^[a-zA-Z0-9_-]{1,128}$/.test(tool.name)) {
      refuse(`${place}.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'`);
    }
    if (custom && !isObject(tool.input_schema)) refuse(`${place}.input_schema: Field required`);
    if (custom && tool.input_schema.type !== "object") refuse(`${place}.input_schema.type: Input should be 'object'`);
    if (names.has(tool.name)) refuse("tools: Tool names must be unique.");
    names.add(tool.name);
  }
  if (choice === undefined) return;
  if (!["auto", "any", "tool", "none"].includes(choice?.type)) {
    refuse("tool_choice: Input tag does not match any of the expected tags: 'any', 'auto', 'none', 'tool'");
  }
  if (names.size === 0 && choice.type !== "none") {
    refuse("tool_choice: may only be specified while providing tools.");
  }
  if (choice.type === "tool" && !names.has(choice.name)) {
    refuse(`tool_choice: Tool '${choice.name}' not found in provided tools`);
  }
}

function checkAbilities(body, abilities) {
  const { model, max_tokens: maxTokens, thinking, output_config: output } = body;
  if (maxTokens > abilities.output) {
    refuse(
      `max_tokens: ${maxTokens} > ${abilities.output}, which is the maximum allowed number of output tokens for ${model}`,
    );
  }
  if (thinking !== undefined) checkThinking(body, abilities);
  checkEffort(output?.effort, body, abilities);
  if (!abilities.sampling) checkSampling(body);
  if (body.messages.at(-1).role === "assistant" && !abilities.prefill) {
    refuse("This model does not support assistant message prefill. The conversation must end with a user message.");
  }
}

function checkLength(body, abilities) {
  const { total } = inputTokens(body);
  if (total > abilities.context) refuse(`prompt is too long: ${total} tokens > ${abilities.context} maximum`);
}

function checkEffort(effort, { thinking }, abilities) {
  if (effort === undefined || effort === null) return;
  if (abilities.effort.length === 0) refuse("This model does not support the effort parameter.");
  if (!abilities.effort.includes(effort)) {
    refuse(`output_config.effort: Input should be one of ${abilities.effort.map((level) => `'${level}'`).join(", ")}`);
  }
  const isOff = thinking?.type === "disabled" || thinking?.type === "between_tools";
  if (isOff && (effort === "xhigh" || effort === "max")) {
    refuse(`"thinking.type.${thinking.type}" is not supported with effort "${effort}".`);
  }
}

function checkSampling({ temperature, top_p: topP, top_k: topK }) {
  const isDefault = (temperature ?? 1) === 1 && (topP ?? 0.99) === 0.99 && (topK ?? null) === null;
  if (!isDefault) refuse("`temperature`, `top_p` and `top_k` may only be set to their defaults for this model.");
}

function checkThinking(body, abilities) {
  const { thinking, max_tokens: maxTokens, tool_choice: choice } = body;
  if (thinking === null) return;
  const type = thinking?.type;
  if (!["enabled", "disabled", "adaptive", "between_tools"].includes(type)) {
    refuse("thinking: Input tag does not match any of the expected tags: 'adaptive', 'disabled', 'enabled'");
  }
  if (!abilities.thinking.includes(type)) {
    refuse(
      type === "adaptive"
        ? "adaptive thinking is not supported on this model"
        : `"thinking.type.${type}" is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.`,
    );
  }
  if (type === "disabled" || type === "between_tools") return;
  if (choice?.type === "any" || choice?.type === "tool") {
    refuse("Thinking may not be enabled when tool_choice forces tool use.");
  }
  if (type !== "enabled") return;
  const budget = thinking.budget_tokens;
  if (budget === undefined) refuse("thinking.enabled.budget_tokens: Field required");
  if (!(budget >= 1024)) refuse("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024");
  if (budget >= maxTokens) refuse("`max_tokens` must be greater than `thinking.budget_tokens`.");
  checkWithBudget(body);
}

/** What a budget cannot stand with: other sampling, a prefill, and a call of tools that did not begin with thinking. */
function checkWithBudget({ messages, temperature, top_k: topK }) {
  if ((temperature ?? 1) !== 1) refuse("`temperature` may only be set to 1 when thinking is enabled.");
  if ((topK ?? null) !== null) refuse("`top_k` must be unset when thinking is enabled.");
  const last = messages.length - 1;
  const turn = messages[last].role === "assistant" ? last : last - 1;
  const isAnswered = turn === last || blocksOf(messages[last], "tool_result").length > 0;
  const first = messages[turn]?.role === "assistant" && isAnswered ? (messages[turn].content[0]?.type ?? "text") : null;
  if (first !== null && first !== "thinking" && first !== "redacted_thinking") {
    refuse(
      `messages.${turn}.content.0.type: Expected \`thinking\` or \`redacted_thinking\`, but found \`${first}\`. When \`thinking\` is enabled, ` +
        "a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks).",
    );
  }
}
