/** The figures as the operator reads them, and the same as the fake's log of calls would have them. */
import assert from "node:assert/strict";

/** `GET /v1/metrics` as the operator's page reads it. */
export const figures = async (spillway, query = "") => {
  const { status, text, body } = await spillway.request(`/v1/metrics?format=json${query}`, { as: "operator" });
  assert.equal(status, 200, text);
  return body;
};

const CAUSES = {
  200: "answered",
  400: "invalid_request",
  404: "not_found",
  429: "rate_limited",
  500: "server_error",
  529: "overloaded",
};

/** What the fake was asked, as the Meter would say it. */
export function asked(spillway) {
  const counts = {};
  for (const { model, outcome } of spillway.calls()) {
    const cause = outcome.client_closed ? "abandoned" : CAUSES[outcome.status];
    const key = `${model ?? "unnamed"} ${cause}`;
    counts[key] = (counts[key] ?? 0) + 1;
  }
  return counts;
}

/** What the Meter says. */
export const counted = ({ calls }) =>
  Object.fromEntries(calls.map(({ model, cause, calls }) => [`${model} ${cause}`, calls]));

/** What went to Analytics Engine. */
export async function analysed(spillway) {
  const points = (await spillway.points()).filter(({ indexes }) => indexes[0] === "spillway_calls_total");
  const sums = {};
  for (const { blobs, doubles } of points) {
    const [, model, cause] = blobs[0].match(/model="([^"]+)",cause="([^"]+)"/);
    sums[`${model} ${cause}`] = (sums[`${model} ${cause}`] ?? 0) + doubles[0];
  }
  return sums;
}

export const sum = (counts) => Object.values(counts).reduce((all, count) => all + count, 0);
