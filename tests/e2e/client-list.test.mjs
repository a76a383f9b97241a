/** The JavaScript client (client/) on the list of a client's own jobs: what an app finds after it was installed anew. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Spillway } from "../../client/index.js";
import { KEYS, start, submission } from "./harness.mjs";

test("the client lists its own jobs, newest first, and page by page", async (t) => {
  const spillway = await start({
    script: { rules: [{ when: { marker: "[[refused]]" }, then: { error: "invalid_request" } }] },
  });
  t.after(() => spillway.stop());
  const client = new Spillway({ baseUrl: spillway.url, key: KEYS.app });
  const ids = [];
  for (const marker of ["a", "b", "refused", "c", "d"]) {
    const { id } = await client.submit(submission(`[[${marker}]]`));
    await client.wait(id).catch(() => {});
    ids.unshift(id);
  }
  await new Spillway({ baseUrl: spillway.url, key: KEYS.web }).submit(submission("[[another client's]]"));

  const { jobs, next_cursor } = await client.list({ limit: 2 });
  assert.deepEqual(
    jobs.map(({ id }) => id),
    ids.slice(0, 2),
  );
  assert.equal(typeof next_cursor, "string");
  assert.deepEqual([jobs[0].status, jobs[0].kind], ["done", "default"]);
  const all = [];
  for await (const { id } of client.jobs({ limit: 2 })) all.push(id);
  assert.deepEqual(all, ids);
  assert.deepEqual(
    (await client.list({ status: "failed" })).jobs.map(({ id }) => id),
    [ids[2]],
  );
  await assert.rejects(client.list({ limit: 101 }), { name: "InvalidRequestError" });
});
