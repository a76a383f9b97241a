/**
 * The page as files: how they are served beside the API, what a browser is told to allow them, and that they keep what is said of
 * them. None of it needs a browser.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, posix } from "node:path";
import { after, describe, test } from "node:test";
import { gzipSync } from "node:zlib";
import { UNHEARD } from "../../public/watch/jobs.js";
import { KINDS } from "../../public/views/try-form.js";
import { CAUSES, DOWNGRADES, failure, STATUSES, whyItWaits } from "../../public/words.js";
import { assemblePage, pageContents, pageFiles } from "../../scripts/lib/page.mjs";
import { root } from "../../scripts/lib/paths.mjs";
import { KEYS, start } from "../e2e/harness.mjs";

const MAX_BYTES = 150_000;

const files = [...pageFiles()].filter(([path]) => path !== "_headers");
const source = (path) => readFileSync(join(root, path), "utf8");
const contents = await pageContents();
const modules = files.filter(([path]) => path.endsWith(".js"));

describe("the page, served", async () => {
  const spillway = await start();
  after(() => spillway.stop());
  const get = (path, options) => fetch(spillway.url + path, { redirect: "manual", ...options });

  test("every file comes as what it is, under a policy that lets nothing in but this origin's own files", async () => {
    const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
    for (const [path] of files) {
      const response = await get(path === "index.html" ? "/" : `/${path}`);
      assert.equal(response.status, 200, path);
      assert.ok((await response.text()) === contents.get(path).toString(), `${path} is not what was built`);
      assert.ok(response.headers.get("content-type").startsWith(types[posix.extname(path)]), path);
      assert.deepEqual(
        ["x-content-type-options", "referrer-policy"].map((name) => response.headers.get(name)),
        ["nosniff", "no-referrer"],
      );
      const policy = response.headers.get("content-security-policy").split("; ");
      for (const directive of [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
      ]) {
        assert.ok(policy.includes(directive), `${path}: ${directive}`);
      }
      assert.ok(!policy.some((directive) => /unsafe|https?:|\*/.test(directive)), `${policy}`);
    }
  });

  test("the API's routes are the API's, and what is neither is its JSON 404", async () => {
    for (const [path, status, type] of [
      ["/v1/jobs", 401, "authentication_error"],
      ["/v1/gates", 401, "authentication_error"],
      ["/v1/index.html", 404, "not_found_error"],
      ["/nothing", 404, "not_found_error"],
      ["/client/", 404, "not_found_error"],
      ["/_headers", 404, "not_found_error"],
      ["/try", 404, "not_found_error"],
    ]) {
      const response = await get(path);
      assert.equal(response.status, status, path);
      assert.equal((await response.json()).error.type, type, path);
      assert.ok(response.headers.get("request-id"), path);
    }
    assert.equal((await (await get("/healthz")).json()).status, "ok");
    assert.equal((await get("/v1/jobs", { headers: { authorization: `Bearer ${KEYS.app}` } })).status, 200);
  });

  test("a page that is unchanged is not sent again, and one that is changed is not kept from anybody", async () => {
    const { headers } = await get("/");
    assert.match(headers.get("cache-control"), /must-revalidate/);
    const again = await get("/", { headers: { "if-none-match": headers.get("etag") } });
    assert.equal(again.status, 304);
  });
});

describe("the page's files", () => {
  test("are the sources but for comments and blanks, and nothing that was there before", async (t) => {
    const directory = mkdtempSync(join(tmpdir(), "spillway-page-"));
    t.after(() => rmSync(directory, { recursive: true }));
    mkdirSync(join(directory, "old"));
    writeFileSync(join(directory, "old", "left-over.js"), "");
    writeFileSync(join(directory, "index.html"), "of another time");
    await assemblePage(directory);
    const there = readdirSync(directory, { recursive: true }).filter((path) =>
      statSync(join(directory, path)).isFile(),
    );
    assert.deepEqual(there.sort(), [...pageFiles().keys()].sort());
    // What is declared in a module, and what a style is for.
    const names = (text) => [
      ...text.matchAll(/^(?:export )?(?:async )?(?:class|function|const|let) (\w+)|^\.([\w-]+)/gm),
    ];
    for (const [path, from] of pageFiles()) {
      const built = readFileSync(join(directory, path), "utf8");
      assert.equal(built, contents.get(path).toString(), path);
      if (!/\.(js|css)$/.test(path)) assert.equal(built, readFileSync(from, "utf8"), path);
      // Who looks at it in a browser finds the names of the source.
      for (const [, declared, style] of names(readFileSync(from, "utf8"))) {
        assert.ok(built.includes(declared ?? style), `${path}: ${declared ?? style}`);
      }
    }
  });

  test("are under 150 KB, all together and before they are compressed", (t) => {
    const sizes = files.map(([path]) => contents.get(path).length);
    const gzipped = files.map(([path]) => gzipSync(contents.get(path)).length);
    const [all, sent] = [sizes, gzipped].map((list) => list.reduce((sum, size) => sum + size, 0));
    t.diagnostic(`${files.length} files, ${(all / 1000).toFixed(1)} KB, ${(sent / 1000).toFixed(1)} KB gzipped`);
    assert.ok(all < MAX_BYTES, `${all} bytes`);
  });

  test("have nothing inline, and ask nobody else for anything", () => {
    const html = source("public/index.html");
    assert.doesNotMatch(html, /<style|\sstyle=|\son\w+=|javascript:/i);
    for (const [, attributes, content] of html.matchAll(/<script([^>]*)>([^<]*)/g)) {
      assert.match(attributes, /\ssrc="\/[^/]/);
      assert.equal(content, "");
    }
    for (const [path, from] of files.filter(([path]) => !path.startsWith("client/"))) {
      const text = readFileSync(from, "utf8").replace("http://www.w3.org/2000/svg", "");
      assert.doesNotMatch(text, /https?:\/\/|innerHTML|outerHTML|insertAdjacentHTML|eval\(/, path);
    }
  });

  test("are modules that a browser can read, and import nothing but each other", () => {
    for (const [path, from] of modules) {
      const { status, stderr } = spawnSync(process.execPath, ["--check", from], { encoding: "utf8" });
      assert.equal(status, 0, stderr);
      const imports = readFileSync(from, "utf8").matchAll(/^(?:import|export) (?:[^;"]*? from )?"([^"]+)";/gm);
      for (const [, imported] of imports) {
        assert.match(imported, /^\.\.?\//, path);
        const target = posix.join(dirname(path), imported);
        assert.ok(pageFiles().has(target), `${path} imports ${target}`);
      }
    }
  });

  test("keep nothing: no storage, no cookie", () => {
    for (const [path, from] of modules) {
      const code = readFileSync(from, "utf8").replace(/\/\*[^]*?\*\/|\/\/.*/g, "");
      assert.doesNotMatch(code, /sessionStorage|localStorage|indexedDB|\.cookie|caches\./, path);
    }
  });
});

describe("the page's words", () => {
  /** The names of an enum's variants, as `names!` or a match lists them. */
  const names = (path, from, to) => {
    const text = source(path);
    const begin = text.indexOf(from);
    assert.ok(begin >= 0, `${path}: ${from}`);
    const list = [...text.slice(begin, text.indexOf(to, begin)).matchAll(/=> "(\w+)"/g)].map(([, name]) => name);
    assert.ok(list.length > 2, `${path}: ${list}`);
    return list;
  };
  const causes = names("src/policy/cause.rs", "json::names!(Cause {", "});");
  const holds = names("src/policy/answer.rs", "json::names!(HoldReason {", "});");
  const statuses = names("src/job/state.rs", 'Self::Received => "received"', "}\n    }").concat("received");

  test("are there for every status, cause, wait and downgrade that the API names", () => {
    assert.deepEqual(Object.keys(STATUSES).sort(), [...new Set(statuses)].sort());
    assert.deepEqual(Object.keys(CAUSES).sort(), [...causes].sort());
    for (const reason of [...holds, "deferred"]) assert.notEqual(whyItWaits("held", reason), `It waits: ${reason}.`);
    for (const cause of causes) assert.equal(whyItWaits("retrying", cause), CAUSES[cause]);
    const downgrades = names("src/policy/ladder.rs", "json::names!(Downgrade {", "});");
    assert.deepEqual(Object.keys(DOWNGRADES).sort(), downgrades.sort());
    const unheard = source("src/job/notice.rs").split("json::names!(Unheard {")[1].split("});")[0];
    assert.deepEqual(Object.keys(UNHEARD), unheard.match(/(?<=")\w+/g));
  });

  test("say of every reason to fail what happened and what to do", () => {
    const reasons = names("src/job/state.rs", 'Self::AttemptsExhausted => "attempts_exhausted"', "}\n    }");
    const final = ["invalid_request", "authentication_failed", "billing_failed", "permission_denied", "not_found"];
    for (const reason of [...reasons, ...final, "request_too_large", "rejected", "spend_cap", "attempts_exhausted"]) {
      const { what, advice } = failure(reason);
      assert.ok(what && advice && !what.includes(reason), reason);
    }
    assert.match(failure("of_a_later_version").what, /of_a_later_version/);
  });

  test("have the kinds that are built in, and whether the smaller model may answer", () => {
    const table = source("src/policy/kinds.rs").split("const BUILT_IN")[1];
    const rows = [...table.slice(0, table.indexOf("];")).matchAll(/\("(\w+)", (true|false)\)/g)];
    const builtIn = Object.fromEntries(rows.map(([, name, fallback]) => [name, fallback === "true"]));
    assert.ok(rows.length >= 6);
    assert.deepEqual(KINDS, builtIn);
  });
});
