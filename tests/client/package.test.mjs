/** The client as it is published: packed, installed elsewhere, imported there, in Node, on workerd, and by TypeScript. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { convertV4MiniflareOptions, Miniflare } from "miniflare";
import * as client from "../../client/index.js";
import { nodeBinary } from "../../scripts/lib/node.mjs";
import { bin, root } from "../../scripts/lib/paths.mjs";
import { eventRoute, ID, serve, STORY } from "./server.mjs";

const run = promisify(execFile);
const source = join(root, "client");

describe("the package", () => {
  const app = mkdtempSync(join(tmpdir(), "spillway-client-"));
  after(() => rmSync(app, { recursive: true, force: true }));
  const installed = join(app, "node_modules/spillway-client");
  let packed;

  before(async () => {
    const { stdout } = await run("npm", ["pack", "--json", "--pack-destination", app], { cwd: source });
    [packed] = [JSON.parse(stdout)].flat();
    writeFileSync(join(app, "package.json"), JSON.stringify({ name: "app", private: true, type: "module" }));
    // Offline: it has no dependencies.
    await run("npm", ["install", `./${packed.filename}`, "--offline", "--no-audit", "--no-fund"], { cwd: app });
  });

  test("has the module, its types, its licence, and nothing else", () => {
    const files = packed.files.map(({ path }) => path).sort();
    const modules = readdirSync(join(source, "src")).map((name) => `src/${name}`);
    const others = ["LICENSE", "LICENSE-APACHE", "LICENSE-MIT", "README.md", "index.d.ts", "index.js", "package.json"];
    assert.deepEqual(files, [...others, ...modules].sort());
    for (const name of ["LICENSE", "LICENSE-APACHE", "LICENSE-MIT"]) {
      assert.equal(readFileSync(join(source, name), "utf8"), readFileSync(join(root, name), "utf8"), name);
    }
    const { dependencies, license } = JSON.parse(readFileSync(join(installed, "package.json"), "utf8"));
    assert.equal(dependencies, undefined);
    assert.equal(license, JSON.parse(readFileSync(join(root, "package.json"), "utf8")).license);
  });

  test("uses nothing but what every platform has", () => {
    for (const name of readdirSync(join(installed, "src"))) {
      const text = readFileSync(join(installed, "src", name), "utf8").replaceAll(/\/\*.*?\*\/|\/\/.*$/gms, "");
      for (const [, from] of text.matchAll(/^import .* from "(.*)";$/gm)) assert.match(from, /^\.\/[a-z-]+\.js$/, name);
      assert.doesNotMatch(text, /\b(process|Buffer|require|window|document|EventSource|AbortSignal\.\w+\()/, name);
    }
  });

  test("waits for a job in Node", async (t) => {
    const { url } = await serve(t, eventRoute(STORY));
    writeFileSync(
      join(app, "main.js"),
      `import { Spillway } from "spillway-client";
       const { text } = await new Spillway({ baseUrl: process.argv[2], key: "key" }).wait("${ID}");
       console.log(text);`,
    );
    const { stdout } = await run(nodeBinary(), ["main.js", url], { cwd: app });
    assert.equal(stdout, "Hello, world\n");
  });

  test("waits for a job in a Worker", async (t) => {
    const { url, paths } = await serve(t, eventRoute(STORY));
    const files = ["index.js", ...readdirSync(join(installed, "src")).map((name) => `src/${name}`)];
    const worker = `
      import { Spillway } from "./client/index.js";
      export default {
        async fetch() {
          const seen = [];
          const onProgress = ({ status, text }) => seen.push(status + "|" + text);
          const { text } = await new Spillway({ baseUrl: "${url}", key: "key" }).wait("${ID}", { onProgress });
          return Response.json({ text, seen });
        },
      };`;
    const options = convertV4MiniflareOptions({
      name: "app",
      modules: [
        { type: "ESModule", path: "main.js", contents: worker },
        ...files.map((path) => ({
          type: "ESModule",
          path: `client/${path}`,
          contents: readFileSync(join(installed, path), "utf8"),
        })),
      ],
      compatibilityDate: "2025-06-01",
    });
    const mf = new Miniflare(options);
    try {
      const { text, seen } = await (await mf.dispatchFetch("http://worker/")).json();
      assert.deepEqual([text, seen.length], ["Hello, world", STORY.length]);
      assert.deepEqual(paths(), [`/v1/jobs/${ID}/events`], "events work there");
    } finally {
      await mf.dispose();
    }
  });

  test("is typed: an app that uses all of it compiles strictly, and what is wrong does not", async () => {
    copyFileSync(new URL("./sample.ts", import.meta.url), join(app, "sample.ts"));
    for (const [module, moduleResolution] of [
      ["nodenext", "nodenext"],
      ["esnext", "bundler"],
    ]) {
      const options = { module, moduleResolution, target: "es2022", lib: "es2022,dom", types: "" };
      const flags = Object.entries(options).flatMap(([name, value]) => [`--${name}`, value]);
      await run(bin("tsc"), ["--noEmit", "--strict", "--exactOptionalPropertyTypes", ...flags, "sample.ts"], {
        cwd: app,
      }).catch((error) => assert.fail(error.stdout));
    }
  });

  test("types what it exports, and exports what it types", () => {
    const text = readFileSync(join(installed, "index.d.ts"), "utf8");
    const typed = [...text.matchAll(/^export class (\w+)/gm)].map(([, name]) => name);
    assert.deepEqual(typed.sort(), Object.keys(client).sort());
    const body = text.slice(text.indexOf("export class Spillway {"), text.indexOf("\n}\n"));
    const methods = [...body.matchAll(/^  (\w+)\(/gm)].map(([, name]) => name);
    const real = Object.getOwnPropertyNames(client.Spillway.prototype);
    assert.deepEqual(methods.sort(), real.sort());
  });

  test("says in its README what the code has", () => {
    const text = readFileSync(join(source, "README.md"), "utf8");
    for (const name of Object.getOwnPropertyNames(client.Spillway.prototype).slice(1)) {
      assert.ok(text.includes(`${name}(`), `${name} is not in ${relative(root, source)}/README.md`);
    }
  });
});
