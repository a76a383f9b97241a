//! Every event that is logged. The field names are the metric labels of later exporters, units are in the names.

use crate::json;
use crate::policy::transition::{State, Why};

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A job was stored and its receipt given.
    JobSubmitted {
        /// The job.
        job: &'a str,
        /// Whose it is.
        client: &'a str,
        /// Its kind.
        kind: &'a str,
        /// Its priority.
        priority: &'a str,
        /// The model asked for.
        model: &'a str,
        /// The size of the submission.
        request_bytes: usize,
        /// Whether the idempotency key had been used before: nothing new was stored.
        replayed: bool,
    },
    /// A consumer took a job up.
    JobClaimed {
        /// The job.
        job: &'a str,
        /// The turn.
        turn: u64,
        /// Attempts used so far.
        attempts: u32,
    },
    /// A message led to no work, and that is as it should be.
    DeliverySkipped {
        /// The job.
        job: &'a str,
        /// The turn.
        turn: u64,
        /// `finished`, `stale_turn`, `leased` or `early`.
        reason: &'a str,
    },
    /// The gate let a job not through.
    JobHeld {
        /// The job.
        job: &'a str,
        /// The model.
        model: &'a str,
        /// The gate's reason.
        reason: &'a str,
        /// Until the job is looked at again.
        wait_ms: u64,
    },
    /// A job's attempts are used up, and it may go on later.
    JobExhausted {
        /// The job.
        job: &'a str,
        /// `stall` (the user is asked) or `defer`.
        then: &'a str,
        /// Until it would be taken up again.
        resume_ms: u64,
    },
    /// The upstream is about to be called.
    CallStarted {
        /// The job.
        job: &'a str,
        /// The model.
        model: &'a str,
        /// `granted`, `probe`, or `unguarded` if the gate did not answer.
        permit: &'a str,
        /// The job's kind.
        kind: &'a str,
        /// Its priority.
        priority: &'a str,
        /// From the submission to now, if it is the job's first call.
        dwell_ms: Option<u64>,
        /// Whether a gate or the hour had kept it waiting before.
        held: bool,
    },
    /// The upstream answered.
    CallSucceeded {
        /// The job; none if somebody waited for the call.
        job: Option<&'a str>,
        /// The model.
        model: &'a str,
        /// The job's kind, or the call's.
        kind: &'a str,
        /// Its priority.
        priority: &'a str,
        /// The upstream's request id.
        request_id: Option<&'a str>,
        /// From the call to its end.
        duration_ms: u64,
        /// Billed input.
        input_tokens: u64,
        /// Billed output.
        output_tokens: u64,
    },
    /// A call failed (B10).
    CallFailed {
        /// The job; none if somebody waited for the call.
        job: Option<&'a str>,
        /// The model.
        model: &'a str,
        /// Why.
        cause: &'a str,
        /// The job's kind, or the call's.
        kind: &'a str,
        /// Its priority.
        priority: &'a str,
        /// The HTTP status.
        status: Option<u16>,
        /// The upstream's request id.
        request_id: Option<&'a str>,
        /// From the call to its end.
        duration_ms: u64,
        /// What had been billed, as far as the upstream had said.
        input_tokens: u64,
        /// The same of output.
        output_tokens: u64,
    },
    /// A job waits before its next attempt (B10); the wait that really passed is in the next `job_resumed`.
    Backoff {
        /// The job.
        job: &'a str,
        /// The model.
        model: &'a str,
        /// Why the call failed.
        cause: &'a str,
        /// The failure count of the cause's bucket.
        failures: u32,
        /// The wait that was drawn or asked for.
        computed_wait_ms: u64,
        /// The wait that was set: whole seconds, within the deadline.
        wait_ms: u64,
        /// Whether it used up an attempt.
        costs_attempt: bool,
    },
    /// A job that waited is taken up again (B10).
    JobResumed {
        /// The job.
        job: &'a str,
        /// The turn.
        turn: u64,
        /// The wait that was set.
        computed_wait_ms: Option<u64>,
        /// The wait that passed.
        real_wait_ms: u64,
    },
    /// A job is over.
    JobFinished {
        /// The job.
        job: &'a str,
        /// `done`, `failed` or `cancelled`.
        status: &'a str,
        /// The stable code of a failure.
        reason: Option<&'a str>,
        /// Attempts used.
        attempts: u32,
        /// Calls made.
        calls: u32,
        /// From the submission to now.
        age_ms: u64,
        /// Whether it had been a call that somebody waited for. If so, and if it is not `done`, its user has seen an error (A10).
        handed_over: bool,
        /// Its kind.
        kind: &'a str,
        /// Its priority.
        priority: &'a str,
        /// The model asked for.
        model: &'a str,
        /// The one that answered.
        model_used: Option<&'a str>,
        /// Whether that is another one.
        downgraded: bool,
        /// Whether its user has seen an error, or half an answer, because Claude was overloaded or failed (A10).
        exposed: bool,
        /// Whether it only keeps what is left of a call that broke off; `sync_call` has told of that.
        kept: bool,
    },
    /// The app was told something by its webhook, or was not.
    WebhookSent {
        /// The job.
        job: &'a str,
        /// Whose it is.
        client: &'a str,
        /// The event's type.
        news: &'a str,
        /// Its how manieth try this was.
        attempt: u32,
        /// `delivered`, `again`, `given_up`, `disabled`, or `void` if the job was taken back meanwhile.
        then: &'a str,
        /// Why it failed.
        error: Option<&'a str>,
        /// Until the next try.
        wait_ms: Option<u64>,
    },
    /// A call that somebody waited for is over, or has become a job: one line each.
    SyncCall {
        /// The job that it has become, or in which a part of its answer is kept.
        job: Option<&'a str>,
        /// Whose it is.
        client: &'a str,
        /// Its kind.
        kind: &'a str,
        /// Its priority.
        priority: &'a str,
        /// The model asked for.
        model: &'a str,
        /// The model that answered, or that broke off.
        model_used: Option<&'a str>,
        /// How it ended.
        ended: &'a str,
        /// Why it was not answered.
        cause: Option<&'a str>,
        /// Whether its user has seen an error that is Claude's (A10).
        exposed: bool,
        /// Calls made.
        calls: u32,
        /// From its arrival to now.
        age_ms: u64,
    },
    /// A call was cut short: its claim is void, the app took the job back, or whoever waited for it has gone.
    CallAbandoned {
        /// The job; none if somebody waited for the call.
        job: Option<&'a str>,
        /// `fenced`, `cancelled`, or `caller_gone`.
        reason: &'a str,
        /// The model.
        model: &'a str,
        /// The job's kind, or the call's.
        kind: &'a str,
        /// Its priority.
        priority: &'a str,
        /// From the call to its end.
        duration_ms: u64,
        /// What is billed all the same, as far as the upstream had said.
        input_tokens: u64,
        /// The same of what it had written.
        output_tokens: u64,
    },
    /// A delivery ended with something that the job has no use for: its claim is void.
    SettlementDiscarded {
        /// The job.
        job: &'a str,
    },
    /// Claude refused a call for what only the operator can mend: told once a minute for each model.
    AccountRefused {
        /// The job, if somebody did not wait for the call.
        job: Option<&'a str>,
        /// The model.
        model: &'a str,
        /// `spend_cap`, `authentication_failed`, `billing_failed` or `permission_denied`.
        cause: &'a str,
    },
    /// A breaker changed its state.
    GateTransition {
        /// The job whose call or question moved it, if it was not the operator.
        job: Option<&'a str>,
        /// The model.
        model: &'a str,
        /// From this state.
        from: State,
        /// To this one.
        to: State,
        /// What tripped or closed it.
        why: Why,
    },
    /// The operator forced a gate; `gate_transition` lines tell what it did to the breaker, and when it ended.
    GateOverridden {
        /// The model.
        model: &'a str,
        /// `open` or `closed`.
        state: &'a str,
        /// Until it ends by itself.
        lasts_ms: u64,
        /// Who.
        author: &'a str,
        /// Why.
        note: &'a str,
    },
    /// The operator's order for a gate is over.
    OverrideEnded {
        /// The model.
        model: &'a str,
        /// Whether it was taken back; otherwise its time was over.
        early: bool,
    },
    /// The operator paused the deliveries of a priority's jobs. It ends by itself, which nobody is told.
    QueuePaused {
        /// The priority.
        priority: &'a str,
        /// Until it ends by itself.
        lasts_ms: u64,
        /// Who.
        author: &'a str,
        /// Why.
        note: &'a str,
    },
    /// The operator ended a pause before its time.
    QueueResumed {
        /// The priority.
        priority: &'a str,
        /// Until it would have ended by itself.
        early_ms: u64,
    },
    /// The operator has nothing new taken. It ends by itself, which nobody is told.
    DrainStarted {
        /// Until it ends by itself.
        lasts_ms: u64,
        /// Who.
        author: &'a str,
        /// Why.
        note: &'a str,
    },
    /// The operator ended that before its time.
    DrainEnded {
        /// Until it would have ended by itself.
        early_ms: u64,
    },
    /// The operator drove a job on.
    JobRedriven {
        /// The job.
        job: &'a str,
        /// `sent_again`: it waited, and its message was sent at once; `started_again`: it had failed, and is done again.
        outcome: &'a str,
        /// The job that does it again.
        new_job: Option<&'a str>,
    },
    /// A message that cannot be one of ours was taken out of its queue.
    MessageDiscarded {
        /// The queue.
        queue: &'a str,
        /// What is wrong with it.
        reason: &'a str,
        /// How many this isolate has discarded so far, this one included.
        count: u32,
    },
    /// A message will be delivered again, since something of ours did not answer.
    MessageRetried {
        /// The job, if the message names one.
        job: Option<&'a str>,
        /// The queue.
        queue: &'a str,
        /// What happened.
        reason: &'a str,
        /// Until then.
        delay_seconds: u32,
    },
    /// Something of ours did not answer or refused.
    Trouble {
        /// The job, if it is about one.
        job: Option<&'a str>,
        /// What: `job_object`, `gate`, `queue`, `kv`, `configuration` …
        part: &'a str,
        /// What it said.
        message: &'a str,
    },
}

/// The name as a member among the others.
macro_rules! events {
    ($($name:literal => $variant:ident { $($field:ident),* },)*) => {
        impl json::ToJson for Event<'_> {
            fn write(&self, out: &mut String) {
                match self {
                    $(Self::$variant { $($field),* } => {
                        json::write_object(&[("event", &$name), $((stringify!($field), $field)),*], out);
                    })*
                }
            }
        }
    };
}

events! {
    "job_submitted" => JobSubmitted { job, client, kind, priority, model, request_bytes, replayed },
    "job_claimed" => JobClaimed { job, turn, attempts },
    "delivery_skipped" => DeliverySkipped { job, turn, reason },
    "job_held" => JobHeld { job, model, reason, wait_ms },
    "job_exhausted" => JobExhausted { job, then, resume_ms },
    "call_started" => CallStarted { job, model, permit, kind, priority, dwell_ms, held },
    "call_succeeded" => CallSucceeded { job, model, kind, priority, request_id, duration_ms, input_tokens, output_tokens },
    "call_failed" => CallFailed {
        job, model, cause, kind, priority, status, request_id, duration_ms, input_tokens, output_tokens
    },
    "backoff" => Backoff { job, model, cause, failures, computed_wait_ms, wait_ms, costs_attempt },
    "job_resumed" => JobResumed { job, turn, computed_wait_ms, real_wait_ms },
    "job_finished" => JobFinished {
        job, status, reason, attempts, calls, age_ms, handed_over, kind, priority, model, model_used, downgraded, exposed, kept
    },
    "webhook_sent" => WebhookSent { job, client, news, attempt, then, error, wait_ms },
    "sync_call" => SyncCall { job, client, kind, priority, model, model_used, ended, cause, exposed, calls, age_ms },
    "call_abandoned" => CallAbandoned { job, reason, model, kind, priority, duration_ms, input_tokens, output_tokens },
    "settlement_discarded" => SettlementDiscarded { job },
    "account_refused" => AccountRefused { job, model, cause },
    "gate_transition" => GateTransition { job, model, from, to, why },
    "gate_overridden" => GateOverridden { model, state, lasts_ms, author, note },
    "override_ended" => OverrideEnded { model, early },
    "queue_paused" => QueuePaused { priority, lasts_ms, author, note },
    "queue_resumed" => QueueResumed { priority, early_ms },
    "drain_started" => DrainStarted { lasts_ms, author, note },
    "drain_ended" => DrainEnded { early_ms },
    "job_redriven" => JobRedriven { job, outcome, new_job },
    "message_discarded" => MessageDiscarded { queue, reason, count },
    "message_retried" => MessageRetried { job, queue, reason, delay_seconds },
    "trouble" => Trouble { job, part, message },
}

impl Event<'_> {
    /// The log line.
    #[must_use]
    pub fn line(&self) -> String {
        json::write(self)
    }

    /// Whether somebody should look at it.
    #[must_use]
    pub const fn is_trouble(&self) -> bool {
        matches!(self, Self::Trouble { .. } | Self::MessageDiscarded { .. } | Self::MessageRetried { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_json_line_with_its_name() {
        let event = Event::DeliverySkipped { job: "job_1", turn: 2, reason: "stale\nturn" };
        assert_eq!(event.line(), r#"{"event":"delivery_skipped","job":"job_1","turn":2,"reason":"stale\nturn"}"#);
    }
}
