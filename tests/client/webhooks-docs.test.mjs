/** The receiver in the README and the push notifications of docs/push.md are run, as they stand, but for the addresses. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createPublicKey, generateKeyPairSync, verify } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer as createHttp1 } from "node:http";
import { createServer as createHttp2 } from "node:http2";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after, describe, test } from "node:test";
import { Webhook } from "standardwebhooks";
import { nodeBinary } from "../../scripts/lib/node.mjs";
import { root } from "../../scripts/lib/paths.mjs";

const SECRET = "whsec_c2VjcmV0LW9mLXdlYmhvb2tzLWluLXRlc3Rz";
const ID = "job_0123456789abcdef0123456789abcdef";
const blocks = (file) =>
  [...readFileSync(join(root, file), "utf8").matchAll(/^```js\n(.*?)^```/gms)].map(([, code]) => code);

const app = mkdtempSync(join(tmpdir(), "spillway-push-"));
after(() => rmSync(app, { recursive: true, force: true }));
mkdirSync(join(app, "node_modules"));
symlinkSync(join(root, "node_modules/standardwebhooks"), join(app, "node_modules/standardwebhooks"));
symlinkSync(join(root, "node_modules/@stablelib"), join(app, "node_modules/@stablelib"));
symlinkSync(join(root, "node_modules/fast-sha256"), join(app, "node_modules/fast-sha256"));

async function listen(t, server) {
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => server.close());
  return server.address().port;
}

/** Runs a receiver, and answers where it listens and what it has printed. */
async function run(t, name, code, env = {}) {
  const spare = createHttp1();
  await once(spare.listen(0, "127.0.0.1"), "listening");
  const { port } = spare.address();
  await new Promise((closed) => spare.close(closed));
  const file = join(app, `${name}.mjs`);
  writeFileSync(file, code);
  const child = spawn(nodeBinary(), ["--no-warnings", file], {
    env: { ...process.env, WEBHOOK_SECRET: SECRET, PORT: String(port), ...env },
  });
  t.after(() => child.kill());
  const said = { output: "" };
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (said.output += data));
  const url = `http://127.0.0.1:${port}/`;
  for (let tries = 0; ; tries += 1) {
    const there = await fetch(url).catch(() => undefined);
    if (there) return { url, said };
    if (tries > 200 || child.exitCode !== null) assert.fail(`it does not listen: ${said.output}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const event = (type, user = "42") =>
  JSON.stringify({
    type,
    timestamp: new Date().toISOString(),
    data: { id: ID, status: "done", message: { code: "done", text: "Your answer is ready." }, metadata: { user } },
  });

/** Sends it as Spillway does; answers the status. */
async function send(url, id, body, secret = SECRET) {
  const at = new Date();
  const headers = {
    "webhook-id": id,
    "webhook-timestamp": String(Math.floor(at.getTime() / 1000)),
    "webhook-signature": new Webhook(secret).sign(id, at, body),
  };
  return (await fetch(url, { method: "POST", headers, body })).status;
}

test("the README's receiver takes what is signed, once, and nothing else", async (t) => {
  const [receiver] = blocks("README.md").filter((code) => code.includes("standardwebhooks"));
  const { url, said } = await run(t, "receiver", receiver);
  const other = "whsec_YW5vdGhlci1zZWNyZXQtb2Ytc29tZWJvZHk=";
  assert.equal(await send(url, "evt_1", event("job.done"), other), 401);
  assert.equal(said.output, "");
  assert.equal(await send(url, "evt_1", event("job.done")), 204);
  assert.equal(await send(url, "evt_1", event("job.done")), 204);
  assert.equal(await send(url, "evt_2", event("job.stalled")), 204);
  assert.equal(
    said.output,
    [1, 2].map((n) => `job.${n === 1 ? "done" : "stalled"} ${ID} Your answer is ready.\n`).join(""),
  );
});

describe("docs/push.md", () => {
  const claims = (jwt) => jwt.split(".").slice(0, 2).map((part) => JSON.parse(Buffer.from(part, "base64url"))); // prettier-ignore
  const isSigned = (jwt, key, options = {}) => {
    const at = jwt.lastIndexOf(".");
    const signature = Buffer.from(jwt.slice(at + 1), "base64url");
    return verify("sha256", Buffer.from(jwt.slice(0, at)), { key, ...options }, signature);
  };

  test("tells each device once, tries again what a service did not take, and forgets devices that are gone", async (t) => {
    const pushed = [];
    const answers = { apns: [200], fcm: [200] };
    const answer = (service) => (answers[service].length > 1 ? answers[service].shift() : answers[service][0]);
    const apple = createHttp2();
    apple.on("stream", async (stream, headers) => {
      const body = JSON.parse(await text(stream));
      const status = answer("apns");
      pushed.push({ service: "apns", headers, body, status });
      stream.respond({ ":status": status });
      stream.end(
        status === 200 ? "" : JSON.stringify({ reason: status === 410 ? "Unregistered" : "ServiceUnavailable" }),
      );
    });
    const google = createHttp1(async (request, response) => {
      const body = await text(request);
      if (request.url === "/token") {
        pushed.push({ service: "oauth", body: new URLSearchParams(body) });
        return response.end(JSON.stringify({ access_token: "ya29.token", expires_in: 3599 }));
      }
      const status = answer("fcm");
      pushed.push({ service: "fcm", path: request.url, headers: request.headers, body: JSON.parse(body), status });
      response.writeHead(status).end(status === 404 ? '{"error":{"details":[{"errorCode":"UNREGISTERED"}]}}' : "{}");
    });
    const [applePort, googlePort] = [await listen(t, apple), await listen(t, google)];
    const ec = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 });
    const pem = (pair) => pair.privateKey.export({ type: "pkcs8", format: "pem" });

    const [apns, fcm, both] = blocks("docs/push.md");
    assert.equal(blocks("docs/push.md").length, 3);
    writeFileSync(join(app, "apns.mjs"), apns.replace("https://api.push.apple.com", `http://127.0.0.1:${applePort}`));
    const local = fcm
      .replace('fetch("https://oauth2.googleapis.com', `fetch("http://127.0.0.1:${googlePort}`)
      .replace("https://fcm.googleapis.com", `http://127.0.0.1:${googlePort}`);
    writeFileSync(join(app, "fcm.mjs"), local);
    const { url, said } = await run(t, "push", both, {
      APNS_KEY: pem(ec),
      APNS_KEY_ID: "KEY1234567",
      APNS_TEAM_ID: "TEAM123456",
      APNS_TOPIC: "com.example.app",
      FCM_SERVICE_ACCOUNT: JSON.stringify({
        client_email: "push@example.iam.gserviceaccount.com",
        project_id: "example",
        private_key: pem(rsa),
      }),
    });
    const services = () => pushed.splice(0).map(({ service, status }) => [service, status]);

    assert.equal(await send(url, "evt_1", event("job.done")), 204, said.output);
    const [toApple, token, toGoogle] = pushed;
    const { authorization, ...headers } = toApple.headers;
    assert.equal(headers[":path"], "/3/device/a1b2");
    assert.deepEqual(
      [headers["apns-topic"], headers["apns-push-type"], headers["apns-collapse-id"]],
      ["com.example.app", "alert", ID],
    );
    assert.ok(ID.length <= 64, "a collapse id has 64 bytes at most");
    assert.deepEqual(toApple.body, { aps: { alert: { body: "Your answer is ready." }, sound: "default" }, job: ID });
    const jwt = authorization.replace("bearer ", "");
    assert.ok(
      isSigned(jwt, createPublicKey(ec.publicKey.export({ type: "spki", format: "pem" })), {
        dsaEncoding: "ieee-p1363",
      }),
    );
    assert.deepEqual(claims(jwt)[0], { alg: "ES256", kid: "KEY1234567" });
    assert.equal(claims(jwt)[1].iss, "TEAM123456");

    const assertion = token.body.get("assertion");
    assert.ok(isSigned(assertion, createPublicKey(rsa.publicKey.export({ type: "spki", format: "pem" }))));
    assert.equal(claims(assertion)[1].aud, "https://oauth2.googleapis.com/token");
    assert.equal(token.body.get("grant_type"), "urn:ietf:params:oauth:grant-type:jwt-bearer");
    assert.deepEqual(
      [toGoogle.path, toGoogle.headers.authorization],
      ["/v1/projects/example/messages:send", "Bearer ya29.token"],
    );
    assert.deepEqual(toGoogle.body.message, {
      token: "c3d4",
      notification: { body: "Your answer is ready." },
      data: { job: ID },
      android: { notification: { tag: ID } },
    });
    pushed.length = 0;

    assert.equal(await send(url, "evt_1", event("job.done")), 204);
    assert.equal(await send(url, "evt_2", event("job.downgraded")), 204);
    assert.equal(await send(url, "evt_3", event("job.done", "nobody")), 204);
    assert.equal(await send(url, "evt_4", event("job.done"), "whsec_YW5vdGhlci1zZWNyZXQtb2Ytc29tZWJvZHk="), 401);
    assert.deepEqual(services(), []);

    answers.fcm = [503, 200];
    assert.equal(await send(url, "evt_5", event("job.failed")), 503);
    assert.equal(await send(url, "evt_5", event("job.failed")), 204);
    assert.deepEqual(services(), [["apns", 200], ["fcm", 503], ["apns", 200], ["fcm", 200]]); // prettier-ignore

    [answers.apns, answers.fcm] = [[410], [404]];
    assert.equal(await send(url, "evt_6", event("job.done")), 204);
    assert.equal(await send(url, "evt_7", event("job.done")), 204);
    assert.deepEqual(services(), [["apns", 410], ["fcm", 404]]); // prettier-ignore
  });
});
