//! An answer on its way to who waits for it.
//!
//! Only its beginning is held back: `message_start` comes from an overloaded upstream, too, and once a byte is out nothing can be
//! tried again (A2). From the first content on each event goes out as it comes, by the rules of
//! [`passage`](crate::claude::passage). The gate is told behind the caller's back how it ended; and what breaks off is kept as a
//! job, whose name is in the last event that the caller reads: only once it is stored, so that nobody is promised what is not there.

use std::rc::Rc;
use std::time::Duration;

use futures_channel::oneshot;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use web_sys::AbortController;
use worker::{ByteStream, Context, Delay, Env, Error, Headers, Response};

use super::account::{Account, Closing};
use super::stubs::{GateStub, JobStub};
use super::upstream::{Opened, Raw};
use super::{clock, log, meter, views};
use crate::call::Call;
use crate::claude::failure::Failure;
use crate::claude::passage::{End, Passage};
use crate::claude::response::Usage;
use crate::config::Config;
use crate::job::{Broken, Kept};
use crate::policy::answer::{Ended, Report};
use crate::policy::cause::Cause;
use crate::policy::rate_limits::{RateLimits, Used};
use crate::policy::time::{Timestamp, millis};
use crate::relay::{self, Outcome};
use crate::telemetry::Event;

/// Tells the gate how a call ended, behind the caller's back. Dropped without a word, the call was given up.
pub(super) struct Reporter {
    pub(super) env: Env,
    pub(super) context: Rc<Context>,
    pub(super) config: Rc<Config>,
    pub(super) call: Call,
    pub(super) account: Rc<Account>,
    pub(super) abort: AbortController,
    pub(super) began_at: Timestamp,
    pub(super) limits: RateLimits,
    /// What is billed, as far as the upstream has said.
    pub(super) billed: Usage,
    pub(super) is_told: bool,
}

impl Reporter {
    /// Content has come to a call that the gate counts: it waits for that, and not for the end of it, with all the others.
    fn content(&self) {
        let Some(permit) = self.call.permit else { return };
        views::forget(&self.call.model);
        let (env, model, limits) = (self.env.clone(), self.call.model.clone(), self.limits);
        self.context.wait_until(async move {
            if let Err(error) = GateStub::new(&env, &model, "").content(permit, limits).await {
                log::trouble(None, "gate", &error.to_string());
            }
        });
    }

    pub(super) fn answered(&mut self, used: Option<Usage>) {
        if self.is_told {
            return;
        }
        let Usage { input_tokens, output_tokens } = used.unwrap_or_default();
        self.log(|job, model, kind, priority, duration_ms| Event::CallSucceeded {
            job,
            model,
            kind,
            priority,
            request_id: None,
            duration_ms,
            input_tokens,
            output_tokens,
        });
        let used = used.map(|Usage { input_tokens, output_tokens }| Used { input_tokens, output_tokens });
        self.report(Report::Success, used);
        self.close(Outcome::Answered, None);
    }

    pub(super) fn failed(&mut self, failure: &Failure, after_content: bool) {
        let Failure { cause, retry_after, status, .. } = *failure;
        if !self.is_told {
            let Usage { input_tokens, output_tokens } = self.billed;
            self.log(|job, model, kind, priority, duration_ms| Event::CallFailed {
                job,
                model,
                cause: cause.name(),
                kind,
                priority,
                status,
                request_id: failure.request_id.as_deref(),
                duration_ms,
                input_tokens,
                output_tokens,
            });
        }
        self.report(Report::Failure { cause, after_content, retry_after }, None);
    }

    /// Logs how the call ended: no job, model, kind, priority, milliseconds.
    fn log<'a>(&'a self, event: impl FnOnce(Option<&'a str>, &'a str, &'a str, &'static str, u64) -> Event<'a>) {
        let spec = &self.account.call.accepted.record.spec;
        let duration_ms = millis(clock::now().since(self.began_at));
        log::event(&event(None, &self.call.model, &spec.kind, spec.priority.name(), duration_ms));
    }

    fn report(&mut self, report: Report, used: Option<Used>) {
        if std::mem::replace(&mut self.is_told, true) {
            return;
        }
        // An answer is what the view said already, unless the call was to find that out.
        if self.call.permit.is_some() || matches!(report, Report::Failure { .. }) {
            views::forget(&self.call.model);
        }
        let Call { model, permit, asking, .. } = self.call.clone();
        let limits = RateLimits { used, ..self.limits };
        let ended = Ended { permit, asking, report, limits, backoff: self.config.policy.backoff.clone() };
        let env = self.env.clone();
        // The caller first: what goes well is no news to anybody, and all of an isolate's work is done one after the other.
        let pause = if matches!(report, Report::Success) { REPORT_PAUSE } else { Duration::ZERO };
        self.context.wait_until(async move {
            Delay::from(pause).await;
            if let Err(error) = GateStub::new(&env, &model, "").report(ended).await {
                log::trouble(None, "gate", &error.to_string());
            }
            meter::flush(&env).await;
        });
    }

    fn close(&self, outcome: Outcome, cause: Option<Cause>) {
        self.account.close(outcome, &closing(&self.call.model, cause, None));
    }

    /// Keeps what came of an answer that broke off. The job's name, if it is stored soon.
    async fn keep(&self, failure: &Failure, text: &str, request_id: Option<String>) -> Option<String> {
        let account = self.account.clone();
        let Some(id) = account.call.kept_as.clone() else {
            self.close(Outcome::Interrupted, Some(failure.cause));
            return None;
        };
        let broken = Broken {
            model: self.call.model.clone(),
            cause: failure.cause,
            error_type: failure.kind.clone(),
            request_id: failure.request_id.clone().or(request_id),
            calls: account.calls(),
            at: clock::now(),
        };
        let record = account.call.accepted.record.clone().broken_off(id.clone(), broken);
        let kept = Kept { record, text: text.to_owned() };
        let (told, stored) = oneshot::channel();
        let (env, model, cause) = (self.env.clone(), self.call.model.clone(), failure.cause);
        let name = id.to_string();
        self.context.wait_until(async move {
            let mut is_stored = false;
            for pause in KEEP_PAUSES {
                Delay::from(pause).await;
                match JobStub::new(&env, &id).keep(&kept, account.call.accepted.request.as_bytes()).await {
                    Ok(()) => {
                        is_stored = true;
                        break;
                    }
                    Err(error) => log::trouble(Some(&id.to_string()), "job_object", &error.to_string()),
                }
            }
            let job = id.to_string();
            account.close(Outcome::Interrupted, &closing(&model, Some(cause), is_stored.then_some(&job)));
            // Who waited for it may have gone.
            let _ = told.send(is_stored);
            meter::flush(&env).await;
        });
        matches!(clock::within(KEEP_PATIENCE, stored).await, Some(Ok(true))).then_some(name)
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        if !self.is_told {
            let Usage { input_tokens, output_tokens } = self.billed;
            self.log(|job, model, kind, priority, duration_ms| Event::CallAbandoned {
                job,
                reason: "caller_gone",
                model,
                kind,
                priority,
                duration_ms,
                input_tokens,
                output_tokens,
            });
            self.report(Report::Abandoned, None);
            self.close(Outcome::Abandoned, None);
            self.abort.abort();
        }
    }
}

fn closing<'a>(model: &'a str, cause: Option<Cause>, job: Option<&'a str>) -> Closing<'a> {
    Closing { job, model_used: Some(model), cause: cause.map(Cause::name), exposed: cause.is_some_and(relay::exposes) }
}

/// A stream on its way.
pub(super) struct Flow {
    stream: ByteStream,
    passage: Passage,
    idle: Duration,
    until: Timestamp,
    request_id: Option<String>,
    /// Whether the upstream has nothing more to say.
    is_closed: bool,
    is_over: bool,
    reporter: Reporter,
}

impl Drop for Flow {
    /// Whoever read it may have gone in the middle: what has come by then is billed.
    fn drop(&mut self) {
        self.reporter.billed = self.passage.usage();
    }
}

impl Flow {
    pub(super) fn new(stream: ByteStream, began_at: Timestamp, request_id: Option<String>, reporter: Reporter) -> Self {
        let limits = reporter.call.limits;
        Self {
            stream,
            passage: Passage::new(),
            idle: limits.idle,
            until: began_at + limits.total,
            request_id,
            is_closed: false,
            is_over: false,
            reporter,
        }
    }

    /// Reads on until there is content, or an end.
    pub(super) async fn begin(mut self, headers: Headers) -> Opened {
        while !self.is_closed && self.passage.end().is_none() && !self.passage.has_content() {
            self.read().await;
        }
        if !self.passage.has_content()
            && let Some(End::Broken(failure) | End::Unreadable(failure)) = self.passage.end().cloned()
        {
            self.reporter.failed(&failure, false);
            self.reporter.abort.abort();
            // What ends in the upstream's own error can be passed on. What just stops, a client would take for a whole answer.
            let raw = failure.kind.is_some().then(|| Raw {
                status: 200,
                headers,
                body: std::mem::take(&mut self.passage).into_bytes(),
            });
            return Opened::Failed(Box::new((failure, raw)));
        }
        if self.passage.has_content() {
            self.reporter.content();
        }
        match Response::from_stream(unfold(self, Self::pass)) {
            Ok(response) => Opened::Flowing(response.with_headers(headers)),
            Err(_) => Opened::Failed(Box::new((Failure::transport(Cause::ConnectionFailed), None))),
        }
    }

    /// The next piece for the caller.
    async fn pass(mut self) -> Option<(Result<Vec<u8>, Error>, Self)> {
        loop {
            // Not only when the upstream closes: who has the whole answer may leave.
            if let Some(End::Complete(usage)) = self.passage.end() {
                self.reporter.answered(Some(*usage));
            }
            let out = self.passage.take();
            if !out.is_empty() {
                return Some((Ok(out), self));
            }
            match self.passage.end().cloned() {
                _ if self.is_over => return None,
                Some(End::Broken(failure)) => {
                    self.is_over = true;
                    let out = self.interrupted(&failure).await;
                    return Some((Ok(out), self));
                }
                end if self.is_closed => {
                    if let Some(End::Unreadable(failure)) = end {
                        self.reporter.failed(&failure, true);
                        self.reporter.close(Outcome::Unreadable, Some(failure.cause));
                    }
                    return None;
                }
                _ => self.read().await,
            }
        }
    }

    /// The end of an answer that broke off.
    async fn interrupted(&mut self, failure: &Failure) -> Vec<u8> {
        self.reporter.billed = self.passage.usage();
        self.reporter.failed(failure, true);
        self.reporter.abort.abort();
        let job = self.reporter.keep(failure, self.passage.text(), self.request_id.take()).await;
        self.passage.last(job.as_deref())
    }

    /// Takes what the upstream says next.
    async fn read(&mut self) {
        let patience = self.idle.min(self.until.after(clock::now()));
        let cause = match clock::within(patience, self.stream.next()).await {
            Some(Some(Ok(chunk))) => return self.passage.push(&chunk),
            Some(None) => None,
            Some(Some(Err(_))) if self.passage.has_content() => Some(Cause::Truncated),
            Some(Some(Err(_))) => Some(Cause::ConnectionFailed),
            None if clock::now() >= self.until => Some(Cause::TotalTimeout),
            None => Some(Cause::IdleTimeout),
        };
        self.is_closed = true;
        self.passage.close(cause);
    }
}

/// How long the gate waits for what is no news.
const REPORT_PAUSE: Duration = Duration::from_millis(20);
/// How long after one another it is tried to keep what broke off.
const KEEP_PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(10),
];
/// How long the caller's last event waits for that.
const KEEP_PATIENCE: Duration = Duration::from_secs(2);
