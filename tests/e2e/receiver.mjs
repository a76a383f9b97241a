/**
 * An app's end of its webhooks, on loopback: answers each path as it is told to, and remembers what it was sent.
 *
 *     const receiver = await startReceiver({ "/flaky": [{ status: 500 }, {}] });
 *     await receiver.until("/flaky", 2);
 *
 * A path's answers are given in turn, the last one from then on; a path without any is answered 204. `hang: true` never
 * answers. Each request has its path, headers, body (`text`, `body`) and `at`, when it came.
 */
import { createServer } from "node:http";
import { once } from "node:events";
import { eventually } from "./harness.mjs";

export async function startReceiver(answers = {}, port = 0) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const at = Date.now();
    let text = "";
    for await (const chunk of request.setEncoding("utf8")) text += chunk;
    const { url: path, headers, method } = request;
    requests.push({ path, method, headers, text, body: JSON.parse(text), at });
    const nth = requests.filter((other) => other.path === path).length;
    const { hang, status = 204, headers: own = {} } = (answers[path] ?? []).slice(0, nth).at(-1) ?? {};
    if (!hang) response.writeHead(status, own).end();
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  const own = server.address().port;
  return {
    port: own,
    answers,
    url: (path) => `http://127.0.0.1:${own}${path}`,
    /** What came to a path. */
    requests: (path) => requests.filter((request) => request.path === path),
    /** Resolves with what came to a path as soon as it is so many requests. */
    async until(path, count) {
      const these = () => requests.filter((request) => request.path === path);
      await eventually(() => these().length >= count, { what: `${count} requests to ${path}` });
      return these();
    },
    stop() {
      server.close();
      server.closeAllConnections();
    },
  };
}
