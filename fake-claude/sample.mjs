/**
 * A value that fits a JSON schema, made from the prompt: what a model would put into a tool's input.
 *
 * Strings carry the prompt's text, numbers its length, choices follow it, so that two prompts give two inputs.
 */
import { draw } from "./random.mjs";

const DEEPEST = 8;

/** A value for this schema and prompt; the same one every time. */
export function sample(schema, prompt) {
  return visit(schema, { prompt, root: schema, depth: 0, name: "value" });
}

function visit(given, at) {
  const schema = resolve(given, at);
  if (typeof schema !== "object" || schema === null || at.depth > DEEPEST) return {};
  if (schema.const !== undefined) return schema.const;
  if (Array.isArray(schema.enum) && schema.enum.length) return pick(schema.enum, at);
  const choices = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(choices) && choices.length) return visit(choices[0], deeper(at, at.name));
  if (Array.isArray(schema.allOf)) {
    return Object.assign({}, ...schema.allOf.map((part) => visit(part, deeper(at, at.name))));
  }
  switch (Array.isArray(schema.type) ? schema.type[0] : (schema.type ?? (schema.properties ? "object" : "string"))) {
    case "object":
      return objectFor(schema, at);
    case "array":
      return arrayFor(schema, at);
    case "integer":
      return clamp(at.prompt.length, schema, 1);
    case "number":
      return clamp(at.prompt.length / 2, schema, 0.5);
    case "boolean":
      return pick([true, false], at);
    case "null":
      return null;
    default:
      return stringFor(schema, at);
  }
}

const deeper = (at, name) => ({ ...at, depth: at.depth + 1, name });

const pick = (choices, at) => choices[Math.floor(draw(at.prompt, at.name, at.depth) * choices.length)];

function resolve(schema, at) {
  const path = schema?.$ref;
  if (typeof path !== "string" || !path.startsWith("#/")) return schema;
  const steps = path.slice(2).split("/");
  return steps.reduce((node, step) => (Object.hasOwn(node ?? {}, step) ? node[step] : undefined), at.root);
}

function objectFor(schema, at) {
  const properties = Object.entries(schema.properties ?? {});
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  // Optional parts are left out deep down, or a schema that contains itself would never end.
  const wanted = at.depth < 3 ? properties : properties.filter(([name]) => required.has(name));
  return Object.fromEntries(wanted.map(([name, property]) => [name, visit(property, deeper(at, name))]));
}

function arrayFor(schema, at) {
  const length = Math.min(Math.max(schema.minItems ?? 1, at.depth < 3 ? 1 : 0), schema.maxItems ?? 100, 100);
  return Array.from({ length }, (_, index) => visit(schema.items ?? {}, deeper(at, `${at.name}.${index}`)));
}

function clamp(value, { minimum, maximum, exclusiveMinimum, exclusiveMaximum }, step) {
  const least = minimum ?? (exclusiveMinimum === undefined ? -Infinity : exclusiveMinimum + step);
  const most = maximum ?? (exclusiveMaximum === undefined ? Infinity : exclusiveMaximum - step);
  return Math.max(least, Math.min(most, value));
}

const FORMATS = {
  date: "2026-11-01",
  "date-time": "2026-11-01T12:00:00Z",
  time: "12:00:00Z",
  email: "reader@example.com",
  uri: "https://example.com/",
  uuid: "00000000-0000-4000-8000-000000000000",
};

function stringFor(schema, at) {
  if (Object.hasOwn(FORMATS, schema.format ?? "")) return FORMATS[schema.format];
  const text = `${at.name}: ${at.prompt}`.slice(0, Math.min(schema.maxLength ?? 120, 120));
  return text.padEnd(Math.min(schema.minLength ?? 0, 10_000), ".");
}
