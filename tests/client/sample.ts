/** What an app in TypeScript writes: package.test.mjs compiles it against the packed client, and never runs it. */
import {
  ApiError,
  ConflictError,
  ConnectionError,
  JobCancelledError,
  JobFailedError,
  Spillway,
  TimeoutError,
  type DoneJob,
  type Job,
  type JobSummary,
  type Progress,
  type Receipt,
  type Submission,
} from "spillway-client";

const spillway = new Spillway({
  baseUrl: "https://spillway.example",
  key: "key",
  locale: "ja",
  fetch: globalThis.fetch,
  timing: { hold: 20_000 },
});

const submission: Submission = {
  kind: "short_summary",
  request: { max_tokens: 300, messages: [{ role: "user", content: "Hello" }], temperature: 0.2 },
  when_interrupted: "fail",
};

export async function all(signal: AbortSignal): Promise<string> {
  const receipt: Receipt = await spillway.submit(submission, { idempotencyKey: "order-1042", signal });
  const own: Receipt = await spillway.submit({ ...submission, kind: "a kind of our own" });
  try {
    const done: DoneJob = await spillway.wait(receipt, {
      signal,
      timeout: 60_000,
      readToken: receipt.read_token,
      onProgress: ({ status, text, draft, waiting, connected, discarded }: Progress) => {
        const shown: string = text;
        const eta: number | undefined = waiting?.eta_seconds;
        const gone: string | undefined = discarded?.reason;
        console.log(status === "held", shown, draft?.toFixed(), eta, connected, gone);
      },
      onStalled: async (offer, job) => {
        console.log(offer.resumes_at, job.status);
        const after: Job = await spillway.acceptDeferral(job);
        // A status tells by its name what else it has.
        if (after.status === "failed") console.log(after.reason, after.partial_text);
        // @ts-expect-error Only a job that is done has a result.
        console.log(after.result);
      },
    });
    const blocks: { type: string }[] = done.result.content;
    return done.downgraded ? (await spillway.regenerate(done.id)).id : done.text + blocks.length;
  } catch (error) {
    if (error instanceof JobFailedError) return error.partialText ?? error.job.error.message;
    if (error instanceof JobCancelledError) return error.job.finished_at;
    if (error instanceof TimeoutError) return error.job?.status ?? "unknown";
    if (error instanceof ConflictError) return error.problems.map(({ place }) => place).join();
    if (error instanceof ApiError) return `${error.status} ${error.requestId} ${error.retryAfterSeconds}`;
    if (error instanceof ConnectionError) return error.idempotencyKey ?? "";
    throw error;
  } finally {
    const gone: Job | undefined = await spillway.cancel(own);
    console.log(gone?.status);
  }
}

export async function listed(): Promise<string[]> {
  const { jobs, next_cursor } = await spillway.list({ status: "done", limit: 10 });
  const ids = jobs.map((job: JobSummary) => job.id).concat(next_cursor ?? []);
  for await (const { id, finished_at } of spillway.jobs()) ids.push(`${id} ${finished_at}`);
  // @ts-expect-error There is no such status.
  await spillway.list({ status: "finished" });
  // @ts-expect-error A submission has a kind.
  await spillway.submit({ request: submission.request });
  // @ts-expect-error An address is needed.
  new Spillway({ key: "key" });
  return ids;
}
