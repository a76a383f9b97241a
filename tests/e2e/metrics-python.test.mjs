/** The figures as Prometheus' own Python parser reads them. Skipped, and says so, where there is no Python. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { eventually, start, submission } from "./harness.mjs";
import { environment } from "./python.mjs";

const { python, missing } = environment("prometheus-client==0.26.0", "prometheus_client");

const PARSE = `
import json, sys
from prometheus_client.parser import text_string_to_metric_families
families = text_string_to_metric_families(sys.stdin.read())
print(json.dumps({f.name: [f.type, [[s.name, s.labels, s.value] for s in f.samples]] for f in families}))
`;

test(
  "Prometheus' own parser reads every metric, with its type and its buckets",
  { skip: missing ?? false },
  async () => {
    const spillway = await start();
    try {
      await spillway.untilDone(await spillway.accepted(submission("Hello")));
      const text = await eventually(async () => {
        const { text } = await spillway.request("/v1/metrics", { as: "operator" });
        return /^spillway_jobs_finished_total\{/m.test(text) && text;
      });
      const { stdout, stderr } = spawnSync(python, ["-c", PARSE], { input: text, encoding: "utf8" });
      assert.ok(stdout, stderr);
      const families = JSON.parse(stdout);
      // The parser takes `_total` for a part of the sample's name.
      const [type, calls] = families.spillway_calls;
      assert.equal(type, "counter");
      assert.deepEqual(calls, [
        [
          "spillway_calls_total",
          { model: "claude-sonnet-5-5", cause: "answered", kind: "default", priority: "high" },
          1,
        ],
      ]);
      const [histogram, dwell] = families.spillway_dwell_seconds;
      assert.equal(histogram, "histogram");
      const buckets = dwell
        .filter(([name]) => name.endsWith("_bucket"))
        .map(([, { le }, value]) => [Number(le), value]);
      assert.deepEqual(buckets.at(-1)[1], 1);
      assert.ok(buckets.every(([, value], at) => at === 0 || value >= buckets[at - 1][1]));
      const declared = text.match(/^# TYPE \S+/gm).map((line) => line.slice(7).replace(/_total$/, ""));
      assert.deepEqual(Object.keys(families).sort(), [...new Set(declared)].sort());
    } finally {
      await spillway.stop();
    }
  },
);
