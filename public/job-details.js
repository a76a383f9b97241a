/** A job for who wants to know exactly: its id, its figures, and each call that failed, with the waits after it. */
import { h } from "./dom.js";
import { facts } from "./tables.js";
import { duration, moment } from "./time.js";
import { CAUSES } from "./words.js";

/** @param {object} job A status of the API. @returns {Node[]} */
export function jobDetails(job) {
  const model = job.model_used && job.model_used !== job.model_requested ? `, answered by ${job.model_used}` : "";
  const usage = job.result?.usage;
  const rows = [
    ["Id", h("code", {}, job.id)],
    ["Kind and priority", `${job.kind}, ${job.priority}`],
    ["Model", `${job.model_requested}${model}`],
    ["Calls", String(job.calls)],
    ["Attempts used up", String(job.attempts)],
    ["Tokens", usage && `${usage.input_tokens} in, ${usage.output_tokens} out`],
    ["Does again", job.regenerates && h("a", { href: `#try/${job.regenerates}` }, job.regenerates)],
    ["Error", job.error?.message],
    ["Submitted", moment(job.created_at, "medium")],
    ["Over", job.finished_at && moment(job.finished_at, "medium")],
    ["Deadline", !job.finished_at && moment(job.deadline_at, "medium")],
  ];
  return [facts(rows), job.history.length === 0 ? h("p", { class: "hint" }, "No call has failed.") : failedCalls(job)];
}

/** A list and not a table: what each call has to tell is a sentence, and a phone has no room for columns. */
function failedCalls({ history, finished_at }) {
  const calls = history.map((call) => failedCall(call, finished_at === undefined));
  return h("ol", { class: "calls", "aria-label": "Calls that failed" }, calls);
}

function failedCall(call, mayComeYet) {
  const { at, model, cause, status, request_id, costs_attempt, computed_wait_ms, real_wait_ms } = call;
  const facts = [
    costs_attempt ? "used an attempt up" : "used no attempt up",
    real_wait_ms && `waited ${duration(real_wait_ms / 1000)} then`,
    real_wait_ms === null && computed_wait_ms && mayComeYet && `waits ${duration(computed_wait_ms / 1000)} now`,
    request_id && `request ${request_id}`,
  ];
  return h(
    "li",
    {},
    h("p", {}, `${CAUSES[cause] ?? cause}${status === null ? "" : ` (${status})`}`),
    h("p", { class: "hint" }, `${moment(at, "medium")}, ${model}: ${facts.filter(Boolean).join("; ")}`),
  );
}
