/** What the set-up decides with. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync, existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { settings } from "../../scripts/lib/dev-server.mjs";
import { withLock } from "../../scripts/lib/lock.mjs";
import { sameVersions } from "../../scripts/lib/node.mjs";
import { atLeast, lockedVersion } from "../../scripts/lib/paths.mjs";
import { table } from "../../scripts/lib/report.mjs";
import { Problem, run } from "../../scripts/lib/run.mjs";

test("versions are compared by number, not by letter", () => {
  for (const [version, minimum, expected] of [
    ["1.91.0", "1.91", true],
    ["1.100.0", "1.91", true],
    ["1.90.9", "1.91", false],
    ["2.0.0", "1.91", true],
    ["0", "1.91", false],
    ["1.96.0+dfsg1-1~deb12u2", "1.91", true],
    ["1.92.0-nightly", "1.91", true],
    ["20.20.2", "20", true],
    ["9.1.0", "20", false],
  ]) {
    assert.equal(atLeast(version, minimum), expected, `${version} and ${minimum}`);
  }
});

test("a tool's version is that of its very crate in Cargo.lock", () => {
  const lock =
    '[[package]]\nname = "worker-macros"\nversion = "0.1.0"\n\n[[package]]\nname = "worker"\nversion = "0.8.7"\nsource = "x"\n';
  assert.equal(lockedVersion("worker", lock), "0.8.7");
  assert.throws(() => lockedVersion("work", lock), /no crate work/);
});

test("installed packages are right when every version is the locked one; only optional ones may be absent", () => {
  const wanted = {
    packages: { "": { version: "9" }, a: { version: "1.0.0" }, b: { version: "2.0.0", optional: true } },
  };
  for (const [packages, expected] of [
    [{ a: { version: "1.0.0" } }, true],
    [{ a: { version: "1.0.0" }, b: { version: "2.0.0" } }, true],
    [{ a: { version: "1.0.1" } }, false],
    [{ a: { version: "1.0.0" }, b: { version: "2.0.1" } }, false],
    [{ b: { version: "2.0.0" } }, false],
  ]) {
    assert.equal(sameVersions(wanted, { packages }), expected, JSON.stringify(packages));
  }
  assert.equal(sameVersions(wanted, undefined), false);
});

test("the environment wins over .dev.vars, and an empty variable is as none", () => {
  const given = settings(
    { POLICY: "", ADMIN_KEY: "from-env", OTHER: "x" },
    { ADMIN_KEY: "from-file", CLIENT_KEYS: "a:b" },
  );
  assert.equal(given.POLICY, undefined);
  assert.equal(given.ADMIN_KEY, "from-env");
  assert.equal(given.CLIENT_KEYS, "a:b");
  assert.ok(!("OTHER" in given));
});

function scratch(t) {
  const directory = mkdtempSync(join(tmpdir(), "spillway-setup-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

test("two holders of a lock work one after the other, and the lock is gone afterwards", async (t) => {
  const file = join(scratch(t), "lock");
  const events = [];
  const work = (name) =>
    withLock(file, async () => {
      events.push(`${name} begins`);
      await sleep(50);
      events.push(`${name} ends`);
    });
  await Promise.all([work("one"), work("two")]);
  assert.deepEqual(events, ["one begins", "one ends", "two begins", "two ends"]);
  assert.ok(!existsSync(file));
});

test("a lock whose holder died is taken over, and one whose work failed is free", async (t) => {
  const file = join(scratch(t), "lock");
  // Above the largest process id that Linux or macOS gives.
  writeFileSync(file, "2147483646");
  await assert.rejects(
    withLock(file, async () => {
      throw new Error("broken");
    }),
    /broken/,
  );
  assert.equal(await withLock(file, async () => "again"), "again");
});

test("a failing program is a sentence, with the end of what it said and where the rest is", async () => {
  const remedy = "Install the thing.";
  const failing = run("sh", ["-c", "echo reason >&2; exit 3"], { log: "test-run", remedy });
  await assert.rejects(failing, (error) => {
    assert.ok(error instanceof Problem);
    assert.equal(error.message, remedy);
    assert.match(error.detail, /^reason\nsh: exit code 3 \(all of it: .*test-run\.log\)$/);
    return true;
  });
  await assert.rejects(run("no-such-program", [], { log: "test-run", remedy }), {
    message: remedy,
    detail: /not found/,
  });
});

test("a program that takes too long is ended together with what it started", async (t) => {
  const file = join(scratch(t), "late");
  const hanging = run("sh", ["-c", `(sleep 1; echo late > ${file}) & wait`], {
    log: "test-run",
    remedy: "Late.",
    seconds: 0.3,
  });
  await assert.rejects(hanging, { message: "Late.", detail: /stopped after 0.3 s/ });
  await sleep(1200);
  assert.ok(!existsSync(file));
});

test("the doctor tells what is there, what will come by itself, and what is missing", () => {
  const rows = [
    { name: "node", found: "20.1.0", remedy: "x" },
    { name: "wrangler", found: undefined, automatic: true, remedy: "npm start installs it" },
    { name: "cargo", found: undefined, remedy: "install Rust" },
  ];
  assert.equal(
    table(rows),
    "node      ok       20.1.0\nwrangler  to come  npm start installs it\ncargo     MISSING  install Rust",
  );
});
