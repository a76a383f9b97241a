/** The npm package, from nothing to a deployment, where there is no Rust: see support.mjs. */
import assert from "node:assert/strict";
import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { parseEnv } from "node:util";
import { buttonFiles, projectFiles, write } from "../../scripts/lib/init.mjs";
import { readJson, root } from "../../scripts/lib/paths.mjs";
import { Package } from "./support.mjs";

const STAND_IN = fileURLToPath(new URL("../scripts/fake-wrangler.mjs", import.meta.url));
const MIB = 1024 * 1024;

describe("the package", () => {
  let spillway, project;
  before(async () => {
    spillway = await Package.make();
    project = await spillway.project("my-spillway");
  });
  after(() => spillway?.remove());
  const file = (name) => join(project, name);
  const text = (name) => readFileSync(file(name), "utf8");

  test("holds the Worker, the configuration, the scripts, the fake and the client, and is small", () => {
    const paths = spillway.packed.files.map(({ path }) => path);
    for (const path of [
      "build/index.js",
      "build/index_bg.wasm",
      "build/page/index.html",
      "build/page/client/src/spillway.js",
      "wrangler.toml",
      "bin/spillway.mjs",
      "fake-claude/server.mjs",
      "client/index.js",
      "client/index.d.ts",
      "README.md",
      "LICENSE-MIT",
      "LICENSE-APACHE",
    ]) {
      assert.ok(paths.includes(path), path);
    }
    const strange = paths.filter((path) =>
      /^(src|tests|docs|target|examples|benches)\/|\.rs$|Cargo|\.dev\.vars/.test(path),
    );
    assert.deepEqual(strange, []);
    assert.ok(spillway.packed.size < MIB, `${spillway.packed.size} bytes`);
  });

  test("is used here without a compiler, and needs two packages and no third", async () => {
    for (const program of ["cargo", "rustc", "rustup"]) {
      await assert.rejects(spillway.run(program, ["--version"], { cwd: project }), { code: "ENOENT" });
    }
    const installed = readdirSync(file("node_modules")).filter((name) => !name.startsWith("."));
    assert.deepEqual(installed.sort(), ["miniflare", "spillway", "wrangler"]);
  });

  test("has the client in it", async () => {
    const script = 'import("spillway/client").then(({ Spillway }) => console.log(typeof Spillway))';
    assert.equal((await spillway.run("node", ["-e", script], { cwd: project })).stdout, "function\n");
  });

  test("every command has a help, and what is no command is told", async () => {
    const { stdout } = await spillway.spillway(["--help"]);
    const commands = [...stdout.matchAll(/^  spillway (\S+)/gm)].map(([, name]) => name);
    assert.deepEqual(commands, ["init", "dev", "doctor", "setup:cloudflare", "deploy", "fake-claude"]);
    for (const command of commands) {
      const args = ["node_modules/.bin/spillway", command, "--help"];
      const { code, stdout, stderr } = await spillway.run("node", args, { cwd: project });
      assert.equal(code, 0, stderr);
      assert.match(
        stdout,
        command === "fake-claude" ? /^A fake Claude/ : new RegExp(`^np[mx] (run )?.*${command}`),
        command,
      );
    }
    const { code, stderr } = await spillway.spillway(["deplyo"]);
    assert.deepEqual([code, stderr], [1, "There is no command deplyo here; spillway --help says what there is.\n"]);
  });

  test("an old Node is told that it is one, and a directory without a project that it has none", async () => {
    const pretend = "Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '18.19.0' } })";
    const bin = join(spillway.directory, "package/bin/spillway.mjs");
    const old = await spillway.run("node", ["--import", `data:text/javascript,${pretend}`, bin, "init", "old"], {
      cwd: spillway.directory,
    });
    assert.deepEqual([old.code, old.stderr], [1, "Node.js 18.19.0 is too old for spillway: install 20 or newer.\n"]);
    for (const command of ["dev", "doctor", "setup:cloudflare", "deploy"]) {
      const { code, stderr } = await spillway.spillway([command]);
      assert.equal(code, 1, command);
      assert.match(stderr, /^There is no wrangler\.toml in this directory: .*npx spillway init DIR/, command);
    }
  });

  test("doctor, and whatever needs them, say that the packages are not installed", async () => {
    // The unpacked package has no packages within reach.
    const doctor = await spillway.spillway(["doctor"], { cwd: project });
    assert.equal(doctor.code, 1, doctor.stdout);
    assert.match(doctor.stdout, /^wrangler +MISSING +npm install$/m);
    assert.match(doctor.stdout, /^Still to do by hand: wrangler, miniflare\.$/m);
    const { code, stderr } = await spillway.spillway(["dev"], { cwd: project });
    assert.deepEqual([code, stderr], [1, "Not installed here: wrangler, miniflare. Run npm install.\n"]);
  });

  describe("a project that init has written", () => {
    test("has what the repository's configuration has, without its build, under its own names", async () => {
      const { unstable_readConfig } = await import("wrangler");
      const relevant = ({ configPath, userConfigPath, topLevelName, build, name, main, ...rest }) => rest;
      const text = (config) => JSON.stringify(relevant(config), undefined, 1);
      const own = unstable_readConfig({ config: file("wrangler.toml") });
      const ours = unstable_readConfig({ config: join(root, "wrangler.toml") });
      const expected = text(ours).replaceAll('"spillway-', '"my-spillway-');
      assert.equal(text(own), expected.replace('"build/page"', '"node_modules/spillway/build/page"'));
      assert.equal(own.build.command, undefined);
      assert.equal(own.name, "my-spillway");
      assert.equal(own.main, file("node_modules/spillway/build/index.js"));
    });

    test("has keys of its own, which only its owner can read and git never sees", () => {
      assert.equal(statSync(file(".dev.vars")).mode & 0o777, 0o600);
      const [, key] = parseEnv(text(".dev.vars")).CLIENT_KEYS.match(/^app:([\w-]{32})$/);
      assert.match(text(".gitignore"), /^\.dev\.vars$/m);
      for (const name of readdirSync(project, { withFileTypes: true })) {
        if (name.isFile() && name.name !== ".dev.vars") assert.ok(!text(name.name).includes(key), name.name);
      }
    });

    test("npm run dev answers a job through the fake, and says that it is one", async () => {
      const { url, said, stop } = await spillway.dev(project);
      try {
        assert.ok(url, JSON.stringify(said));
        const { CLIENT_KEYS } = parseEnv(text(".dev.vars"));
        const script = `
          import { Spillway } from "spillway/client";
          const spillway = new Spillway({ baseUrl: "${url}", key: "${CLIENT_KEYS.split(":")[1]}" });
          const request = { max_tokens: 50, messages: [{ role: "user", content: "Hello" }] };
          const { text } = await spillway.wait(await spillway.submit({ kind: "tagging", priority: "high", request }));
          console.log(text);`;
        const answer = await spillway.run("node", ["--input-type=module", "-e", script], { cwd: project });
        assert.equal(answer.stdout, "claude-sonnet-5-5 answers 5 characters: Hello\n", answer.stderr);
        assert.match(said.stderr, /ANTHROPIC_API_KEY is not set: a fake Claude answers/);
        assert.equal(said.stdout, `Spillway is ready on ${url}\n`);
      } finally {
        await stop();
      }
      await assert.rejects(fetch(url), "nothing answers any more");
    });

    test("wrangler would deploy it", async () => {
      const out = join(spillway.directory, "out");
      const args = ["node_modules/.bin/wrangler", "deploy", "--dry-run", "--outdir", out];
      const { code, stdout, stderr } = await spillway.run("node", args, { cwd: project });
      assert.equal(code, 0, stdout + stderr);
      assert.match(stdout, /env\.JOB \(JobObject\)/);
      assert.match(stdout, /--dry-run: exiting now/);
      const [wasm] = readdirSync(out).filter((name) => name.endsWith(".wasm"));
      assert.deepEqual(readFileSync(join(out, wasm)), readFileSync(join(root, "build/index_bg.wasm")));
    });

    test("setup:cloudflare and deploy make and use what bears its name", async () => {
      const state = join(spillway.directory, "account.json");
      const env = { SPILLWAY_WRANGLER: STAND_IN, FAKE_WRANGLER_STATE: state, ANTHROPIC_API_KEY: "sk-ant-1" };
      const made = await spillway.script(project, "setup:cloudflare", ["--generate"], env);
      assert.equal(made.code, 0, made.stderr);
      const deployed = await spillway.script(project, "deploy", ["--skip-canary"], env);
      assert.equal(deployed.code, 0, deployed.stderr);
      const account = JSON.parse(readFileSync(state, "utf8"));
      assert.deepEqual(
        account.queues.sort(),
        ["dead", "high", "low", "medium"].map((name) => `my-spillway-${name}`),
      );
      assert.equal(
        account.deployed.namespace,
        account.namespaces.find(({ title }) => title === "my-spillway-results").id,
      );
      assert.ok(!existsSync(file("wrangler.deploy.toml")));
    });

    test("in Workers Builds deploy asks nobody, makes the queues that are missing, and sends no canary", async () => {
      const state = join(spillway.directory, "builds.json");
      const queues = ["high", "medium", "low"].map((name) => `my-spillway-${name}`);
      writeFileSync(state, JSON.stringify({ queues }));
      const env = { SPILLWAY_WRANGLER: STAND_IN, FAKE_WRANGLER_STATE: state, WORKERS_CI: "1" };
      const { code, stderr } = await spillway.script(project, "deploy", [], env);
      assert.equal(code, 0, stderr);
      const { calls } = JSON.parse(readFileSync(state, "utf8"));
      const changes = calls.map(({ args }) => args.join(" ")).filter((line) => !line.startsWith("queues info"));
      assert.equal(changes.length, 2);
      assert.equal(changes[0], "queues create my-spillway-dead");
      assert.match(changes[1], /^deploy --config /);
    });

    test("doctor says what is missing, and what an older wrangler.toml has to have added", async () => {
      const env = { SPILLWAY_WRANGLER: STAND_IN, FAKE_WRANGLER_STATE: join(spillway.directory, "doctor.json") };
      const doctor = () => spillway.script(project, "doctor", [], env);
      const well = await doctor();
      assert.equal(well.code, 0, well.stdout + well.stderr);
      assert.match(well.stdout, /^Cloudflare +ok +Ada$/m);
      assert.match(well.stdout, /Nothing stands in the way of npm run dev/);

      const [whole, keys] = [text("wrangler.toml"), text(".dev.vars")];
      const index = '[[durable_objects.bindings]]\nname = "INDEX"\nclass_name = "IndexObject"\n\n';
      const migration = '[[migrations]]\ntag = "v2"\nnew_sqlite_classes = ["IndexObject"]\n\n';
      writeFileSync(file("wrangler.toml"), whole.replace(index, "").replace(migration, ""));
      writeFileSync(file(".dev.vars"), "");
      try {
        const ill = await doctor();
        assert.equal(ill.code, 1, ill.stdout);
        assert.match(
          ill.stdout,
          /^wrangler\.toml +MISSING +lacks durable_objects\.bindings INDEX; migrations IndexObject/m,
        );
        assert.match(ill.stdout, /^CLIENT_KEYS +MISSING/m);
        assert.match(ill.stdout, /^Still to do by hand: wrangler\.toml, CLIENT_KEYS, ADMIN_KEY\.$/m);
        for (const script of ["dev", "deploy"]) {
          const { code, stderr } = await spillway.script(project, script, [], { ...env, PORT: "0" });
          assert.equal(code, 1, script);
          assert.match(stderr, /wrangler\.toml lacks what this version of spillway needs/, script);
        }

        appendFileSync(file("wrangler.toml"), ill.stdout.slice(ill.stdout.indexOf("[[")));
        writeFileSync(file(".dev.vars"), keys);
        const mended = await doctor();
        assert.equal(mended.code, 0, mended.stdout);
      } finally {
        writeFileSync(file("wrangler.toml"), whole);
        writeFileSync(file(".dev.vars"), keys);
      }
    });
  });

  test("deploy-button/ is what init writes: if this fails, run npm run deploy-button", () => {
    const directory = join(root, "deploy-button");
    const files = buttonFiles();
    assert.deepEqual(readdirSync(directory).sort(), Object.keys(files).sort());
    for (const [name, text] of Object.entries(files)) {
      assert.equal(readFileSync(join(directory, name), "utf8"), text, name);
    }
  });

  describe("init", () => {
    test("writes into a new or an empty directory, a repository's too, and nowhere else", async () => {
      mkdirSync(join(spillway.directory, "empty/.git"), { recursive: true });
      assert.equal((await spillway.spillway(["init", "empty"])).code, 0);
      for (const [rule, args, says] of [
        ["a directory that is not empty", ["my-spillway"], /^my-spillway is not empty \(.*Nothing was changed\.$/m],
        ["a file", [spillway.packed.filename], /is a file.*Nothing was changed/],
        ["a place in a file", [`${spillway.packed.filename}/x`], /is a file, or would be in one/],
        ["no directory", [], /^Where to\? .*npx spillway init my-spillway/],
        ["two directories", ["a", "b"], /^One directory, please/],
        ["a directory whose name cannot be a Worker's", ["My_App"], /"My_App", cannot be a Worker's.*--name/],
        ["a name that cannot be a Worker's", ["app", "--name", "-app"], /--name "-app" cannot|argument is ambiguous/],
        ["a name that is too long for its queues", ["a".repeat(55)], /cannot be a Worker's/],
        ["an option that there is not", ["app", "--force"], /'--force'.*init --help/],
      ]) {
        const before = readdirSync(spillway.directory);
        const { code, stdout, stderr } = await spillway.spillway(["init", ...args]);
        assert.deepEqual([code, stdout], [1, ""], rule);
        assert.match(stderr, says, rule);
        assert.ok(!/^\s+at /m.test(stderr), stderr);
        assert.deepEqual(readdirSync(spillway.directory), before, rule);
      }
    });

    test("takes back what it could not finish, and overwrites nothing that came in between", () => {
      const directory = join(spillway.directory, "half");
      mkdirSync(directory);
      writeFileSync(join(directory, "README.md"), "mine");
      const files = { "package.json": "{}", "README.md": "theirs", "wrangler.toml": "" };
      assert.throws(() => write(directory, "half", files), /^Problem: half could not be written \(EEXIST\)/);
      assert.deepEqual(readdirSync(directory), ["README.md"]);
      assert.equal(readFileSync(join(directory, "README.md"), "utf8"), "mine");
    });

    test("takes the version of the package that wrote it, or what it is told to", async () => {
      const from = async (...args) => {
        assert.equal((await spillway.spillway(["init", ...args])).code, 0);
        return JSON.parse(readFileSync(join(spillway.directory, args[0], "package.json"), "utf8")).dependencies
          .spillway;
      };
      assert.equal(await from("one"), `^${readJson("package.json").version}`);
      assert.equal(await from("two", "--from", "next"), "next");
      assert.equal(await from("three", "--from", spillway.packed.filename), `file:../${spillway.packed.filename}`);
    });

    test("gives a project a Node of its own where wrangler would find too old a one", () => {
      const dependencies = (node) =>
        JSON.parse(projectFiles({ name: "app", from: "^0.1.0", node })["package.json"]).devDependencies;
      assert.deepEqual(Object.keys(dependencies("20.20.2")), ["node"]);
      assert.deepEqual(Object.keys(dependencies("22.11.0")), ["node"]);
      assert.equal(dependencies("22.12.0"), undefined);
      assert.equal(dependencies("24.1.0"), undefined);
    });
  });
});
