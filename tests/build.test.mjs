/** What is deployed: its size, and that wrangler would take it. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { nodeBinary } from "../scripts/lib/node.mjs";
import { bin, root } from "../scripts/lib/paths.mjs";
import { wasmSize } from "../scripts/lib/worker-build.mjs";

/** Far below the platform's 3 MB; what counts is that start-up stays short and growth is noticed. */
const LIMIT = 400_000;

test("the gzipped Wasm is under 400 KB", (t) => {
  const { bytes, gzipped } = wasmSize();
  t.diagnostic(`${(gzipped / 1000).toFixed(1)} KB gzipped, ${(bytes / 1000).toFixed(1)} KB of Wasm`);
  assert.ok(gzipped < LIMIT, `${gzipped} bytes`);
});

test("wrangler deploy --dry-run accepts the Worker and its configuration", () => {
  const directory = mkdtempSync(join(tmpdir(), "spillway-dry-run-"));
  try {
    const { status, stdout, stderr } = spawnSync(
      nodeBinary(),
      [bin("wrangler"), "deploy", "--dry-run", "--outdir", join(directory, "out")],
      {
        cwd: root,
        encoding: "utf8",
        timeout: 120_000,
        env: { ...process.env, CI: "1", WRANGLER_SEND_METRICS: "false", WRANGLER_LOG_PATH: join(directory, "logs") },
      },
    );
    assert.equal(status, 0, stdout + stderr);
    assert.match(stdout, /--dry-run: exiting now/);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});
