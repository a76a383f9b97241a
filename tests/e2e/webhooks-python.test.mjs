/** A webhook as the official Python package of Standard Webhooks verifies it. Skipped, and says so, where there is no Python. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, test } from "node:test";
import { start, submission, WEBHOOK_SECRET } from "./harness.mjs";
import { environment } from "./python.mjs";
import { startReceiver } from "./receiver.mjs";

const { python, missing } = environment("standardwebhooks==1.1.0", "standardwebhooks");

const VERIFY = `
import json, sys
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
it = json.load(sys.stdin)
try:
    print(json.dumps(Webhook(it["secret"]).verify(it["text"], it["headers"])))
except WebhookVerificationError as error:
    print(json.dumps({"error": str(error)}))
`;

test("the Python package verifies a webhook, and refuses another secret", { skip: missing ?? false }, async () => {
  const receiver = await startReceiver();
  after(() => receiver.stop());
  const spillway = await start();
  after(() => spillway.stop());
  const id = await spillway.accepted(submission("Hello", { webhook: receiver.url("/hook"), metadata: { name: "é" } }));
  const [{ text, headers }] = await receiver.until("/hook", 1);
  const verified = (secret) => {
    const { stdout, stderr } = spawnSync(python, ["-c", VERIFY], {
      input: JSON.stringify({ text, headers, secret }),
      encoding: "utf8",
    });
    assert.ok(stdout, stderr);
    return JSON.parse(stdout);
  };
  const { type, data } = verified(WEBHOOK_SECRET);
  assert.deepEqual([type, data.id, data.metadata], ["job.done", id, { name: "é" }]);
  assert.match(verified("whsec_YW5vdGhlci1zZWNyZXQtb2Ytc29tZWJvZHk=").error, /signature/i);
});
