/**
 * docs/grafana.json as Grafana's own model of a dashboard reads it, and its queries as PromQL. Skipped, and says so, where there is no
 * Python. That the metrics and labels are ours is said by tests/telemetry.rs.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { environment } from "./python.mjs";

const sdk = environment("grafana-foundation-sdk==1769699998!10.1.0", "grafana_foundation_sdk");
const promql = environment("promql-parser==0.12.0", "promql_parser");

const text = readFileSync(new URL("../../docs/grafana.json", import.meta.url), "utf8");
const dashboard = JSON.parse(text);

/** What only an export for others has, and the model of a stored dashboard has not. */
const OF_AN_EXPORT = ["__inputs", "__requires"];

const READ = `
import json, sys
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
print(JSONEncoder().encode(Dashboard.from_json(json.load(sys.stdin))))
`;

const PARSE = `
import json, sys
import promql_parser
for expr in json.load(sys.stdin):
    promql_parser.parse(expr)
`;

const python = (interpreter, program, input) => {
  const { status, stdout, stderr } = spawnSync(interpreter, ["-c", program], { input, encoding: "utf8" });
  assert.equal(status, 0, stderr);
  return stdout;
};

/** What of `wanted` is not in `found`. */
function missing(wanted, found, place = "") {
  if (wanted === null || typeof wanted !== "object") return wanted === found ? [] : [place];
  return Object.entries(wanted).flatMap(([name, value]) => missing(value, found?.[name], `${place}/${name}`));
}

test("Grafana's own model of a dashboard knows every member of it", { skip: sdk.missing ?? false }, () => {
  const read = JSON.parse(python(sdk.python, READ, text));
  const own = Object.fromEntries(Object.entries(dashboard).filter(([name]) => !OF_AN_EXPORT.includes(name)));
  assert.deepEqual(missing(own, read), []);
  assert.deepEqual(missing({ panels: [{ titel: "x" }] }, read), ["/panels/0/titel"], "the comparison can fail");
});

test("each of its queries is PromQL", { skip: promql.missing ?? false }, () => {
  const queries = dashboard.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
  assert.ok(queries.length > 15);
  python(promql.python, PARSE, JSON.stringify(queries));
});

test("no two panels share a place or an id, and each asks the chosen source", () => {
  const { panels } = dashboard;
  assert.equal(new Set(panels.map(({ id }) => id)).size, panels.length);
  assert.equal(new Set(panels.map(({ gridPos: { x, y } }) => `${x},${y}`)).size, panels.length);
  for (const { datasource, targets } of panels) {
    for (const source of [datasource, ...targets.map(({ datasource }) => datasource)]) {
      assert.deepEqual(source, { type: "prometheus", uid: `\${${dashboard.__inputs[0].name}}` });
    }
  }
});
