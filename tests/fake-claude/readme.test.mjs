/** The README's own examples are scripts that the fake takes. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { parseScript } from "../../fake-claude/script.mjs";

test("every rule and script in the README is valid", async () => {
  const readme = await readFile(new URL("../../fake-claude/README.md", import.meta.url), "utf8");
  const rules = [...readme.matchAll(/`(\{"(?:when|then)": .*\})`/g)].map(([, rule]) => JSON.parse(rule));
  const scripts = [...readme.matchAll(/```json\n([^`]*"rules"[^`]*)```/g)].map(([, script]) => JSON.parse(script));
  assert.ok(rules.length >= 6 && scripts.length === 1);
  for (const script of [...scripts, { rules }]) parseScript(script);
});
