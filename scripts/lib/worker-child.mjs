/** The other side of worker-process.mjs. */
import { startWorker } from "./worker.mjs";

let worker;

const methods = {
  async start(options) {
    worker = await startWorker({ ...options, log: (line, level) => process.send({ kind: "log", line, level }) });
    return worker.url;
  },
  async queue(name, messages) {
    const { outcome, ackAll, retryBatch, explicitAcks, retryMessages } = await worker.queue(name, messages);
    return { outcome, ackAll, retryBatch, explicitAcks: [...explicitAcks], retryMessages: [...retryMessages] };
  },
  stop: () => worker?.stop(),
};

process.on("message", async ({ id, method, args }) => {
  try {
    process.send({ id, result: await methods[method](...args) });
  } catch (error) {
    process.send({ id, error: String(error?.stack ?? error) });
  }
});

// The test that started us is gone: so are we, and the watchman takes workerd along.
process.on("disconnect", () => process.exit());
