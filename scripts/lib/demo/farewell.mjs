/** What stays up after the run, and two commands that can be pasted as they are. */

/**
 * @param {object} running
 * @param {string} running.url
 * @param {string} running.clientKey
 * @param {string} running.adminKey
 * @param {string | null} running.fakeUrl
 */
export function farewell({ url, clientKey, adminKey, fakeUrl }) {
  const places = [
    ["page", `${url}/#watch shows the storm that it just went through (operator key: ${adminKey})`],
    ["", `${url}/#try   hands over a job of your own (client key: ${clientKey})`],
    ["submit", `POST ${url}/v1/jobs`],
    ["read", `GET  ${url}/v1/jobs/{id}?wait=60`],
    ["gates", `GET  ${url}/v1/gates   (Authorization: Bearer ${adminKey})`],
    ["health", `GET  ${url}/healthz`],
    ...(fakeUrl ? [["fake", `GET  ${fakeUrl}/_fake/calls   (PUT ${fakeUrl}/_fake/script changes what it does)`]] : []),
  ];
  return [
    "The Worker stays up; Ctrl-C stops everything.",
    ...places.map(([name, place]) => `  ${name.padEnd(7)} ${place}`),
    "",
    "Paste this to submit a job of your own and read its answer:",
    "",
    curlLines(url, clientKey),
  ].join("\n");
}

/** Submits a job and reads its answer, in any POSIX shell with curl. */
export function curlLines(url, key) {
  const job = JSON.stringify({
    kind: "short_summary",
    request: { max_tokens: 200, messages: [{ role: "user", content: "Summarise the water cycle in one sentence." }] },
  });
  return [
    `id=$(curl -s ${url}/v1/jobs -H 'authorization: Bearer ${key}' -H 'content-type: application/json' \\`,
    `  -d '${job}' | grep -o '"id":"[^"]*"' | head -n 1 | cut -d '"' -f 4)`,
    `curl -s "${url}/v1/jobs/$id?wait=60" -H 'authorization: Bearer ${key}'; echo`,
  ].join("\n");
}
