/**
 * The jobs of the demo: every kind, every priority, text and tools, short and long, and one request that has to fail.
 *
 * Each prompt holds a word that no other has, by which the spell (spell.mjs) knows its job at the upstream.
 */

/**
 * @typedef {object} DemoJob
 * @property {string} name
 * @property {string} kind
 * @property {"high" | "medium" | "low"} priority
 * @property {object} request A Messages body.
 * @property {string} [expectFailure] The reason with which it should fail; without it, it should succeed.
 */

const ask = (content, maxTokens, more = {}) => ({
  max_tokens: maxTokens,
  messages: [{ role: "user", content }],
  ...more,
});

/** A request that has to be answered with this tool. */
const extract = (content, name, description, properties) =>
  ask(content, 400, {
    tools: [
      {
        name,
        description,
        input_schema: { type: "object", properties, required: Object.keys(properties), additionalProperties: false },
      },
    ],
    tool_choice: { type: "tool", name },
  });

const string = { type: "string" };

/** @type {DemoJob[]} */
export const JOBS = [
  {
    name: "digest",
    kind: "short_summary",
    priority: "high",
    request: ask(
      "Summarise in one sentence: The harbour's new breakwater held in its first storm; two moorings broke, no boat was lost.",
      150,
    ),
  },
  {
    name: "minutes",
    kind: "short_summary",
    priority: "medium",
    request: ask(
      "Summarise in one sentence: The committee met for three hours, agreed on the budget and put off everything else.",
      150,
    ),
  },
  {
    name: "photo-tags",
    kind: "tagging",
    priority: "low",
    request: ask("Five tags, comma-separated, for a photo of a lighthouse at dusk with gulls over the rocks.", 80),
  },
  {
    name: "song-tags",
    kind: "tagging",
    priority: "medium",
    request: ask("Three tags, comma-separated, for a slow waltz played on an accordion in an empty café.", 80),
  },
  {
    name: "ticket",
    kind: "classification",
    priority: "high",
    request: ask("Answer with one word, billing, bug or praise: I was charged twice for the same subscription.", 30),
  },
  {
    name: "review",
    kind: "classification",
    priority: "low",
    request: ask("Answer with one word, good, bad or mixed: Lovely umbrella, but it does not like wind.", 30),
  },
  {
    name: "invoice",
    kind: "structured_extract",
    priority: "medium",
    request: extract(
      "Invoice 2026-118 of Larch Joinery: two oak doors, 840 euros, due on 14 December.",
      "record_invoice",
      "Records an invoice.",
      { number: string, supplier: string, euros: { type: "number" }, due: string },
    ),
  },
  {
    name: "contact",
    kind: "structured_extract",
    priority: "high",
    request: extract(
      "From a signature: Ada Birk, surveyor, Quay Street 4, reachable on weekdays until four.",
      "record_contact",
      "Records a person.",
      { name: string, profession: string, weekdays_only: { type: "boolean" } },
    ),
  },
  {
    name: "essay",
    kind: "long_form_writing",
    priority: "medium",
    request: ask("Write two paragraphs on why tide mills were given up, and what is left of them.", 600),
  },
  {
    name: "story",
    kind: "long_form_writing",
    priority: "medium",
    request: ask("Write the beginning of a story in which a ferryman refuses a passenger.", 600),
  },
  {
    name: "parser",
    kind: "code_generation",
    priority: "medium",
    request: ask("Write a JavaScript function that parses durations such as 1h30m into seconds.", 500),
  },
  {
    name: "query",
    kind: "code_generation",
    priority: "high",
    request: ask("Write an SQL query for the three busiest weekdays in a table of departures.", 300),
  },
  {
    name: "bad-request",
    kind: "classification",
    priority: "medium",
    // The API takes temperatures up to 1. Only it knows that: the Worker passes on what it need not understand.
    request: ask("This one is refused by the API, at once and for good.", 30, { temperature: 3 }),
    expectFailure: "invalid_request",
  },
];
