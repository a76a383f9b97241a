//! Keeps a claim and a permit alive while a call is on its way.
//!
//! Everything a call awaits is awaited through [`Keeper::drive`]: it renews lease and permit every third of their length,
//! learns from the answers that the job was taken back or taken over, and gives up when its patience is over. The Job object is
//! asked every ten seconds, so that it can say that somebody watches: then it is brought what has been added to the text,
//! once a second.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, join, select};
use worker::Delay;

use super::job_events::count;
use super::stubs::{GateStub, JobStub, ObjectError, Renew, Renewed};
use super::{clock, log};
use crate::claude::response::Usage;
use crate::job::{Renewal, Token};
use crate::policy::answer::PermitId;
use crate::policy::rate_limits::{RateLimits, Used};
use crate::policy::time::Timestamp;

/// Why a call is not waited for any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Patience is over.
    TimedOut,
    /// A later claim has taken over.
    Fenced,
    /// The app took the job back.
    Cancelled,
}

impl Stop {
    /// The stable name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::TimedOut => "timed_out",
            Self::Fenced => "fenced",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Keeps one call's claim and permit.
pub(super) struct Keeper<'a> {
    id: &'a str,
    job: JobStub<'a>,
    token: Token,
    gate: GateStub<'a>,
    permit: Option<PermitId>,
    every: Duration,
    /// When the permit was renewed.
    kept_at: Timestamp,
    /// When the lease was.
    renewed_at: Timestamp,
    has_content: bool,
    /// The answer's text so far.
    text: String,
    /// How much of it the Job object has, while somebody watches.
    shown: Option<u32>,
    limits: RateLimits,
    limits_at: Timestamp,
    billed: Usage,
}

impl<'a> Keeper<'a> {
    /// A keeper for a call that begins now, renewing `every` so often.
    pub(super) fn new(
        id: &'a str,
        job: JobStub<'a>,
        token: Token,
        gate: GateStub<'a>,
        permit: Option<PermitId>,
        every: Duration,
    ) -> Self {
        Self {
            id,
            job,
            token,
            gate,
            permit,
            every,
            kept_at: clock::now(),
            renewed_at: clock::now(),
            has_content: false,
            text: String::new(),
            shown: None,
            limits: RateLimits::default(),
            limits_at: Timestamp::default(),
            billed: Usage::default(),
        }
    }

    /// The headers of the call's answer have come, and say this about the upstream's limits.
    pub(super) fn note(&mut self, limits: RateLimits) {
        (self.limits, self.limits_at) = (limits, clock::now());
    }

    /// What the call is to tell the gate of the upstream's limits at its end, having used so much.
    pub(super) fn limits(&self, used: Option<Used>) -> RateLimits {
        // What came with the headers was told with the first content.
        let told = if self.has_content { RateLimits::default() } else { self.aged() };
        RateLimits { used, ..told }
    }

    /// What `future` came to within `patience`.
    pub(super) async fn drive<F: Future>(&mut self, patience: Duration, future: F) -> Result<F::Output, Stop> {
        let mut future = pin!(future);
        let until = clock::now() + patience;
        loop {
            let now = clock::now();
            let renewal_at = self.renewed_at + self.pause();
            let pause = renewal_at.min(until).after(now);
            match select(future.as_mut(), pin!(Delay::from(pause))).await {
                Either::Left((output, _)) => return Ok(output),
                Either::Right(((), _)) => {
                    let now = clock::now();
                    if now >= until {
                        return Err(Stop::TimedOut);
                    }
                    if now >= renewal_at {
                        self.renew().await?;
                    }
                }
            }
        }
    }

    /// The answer's text goes on like this. Of one that is far too long to be watched no more is shown.
    pub(super) fn grow(&mut self, text: &str) {
        if self.text.len() < MAX_SHOWN_BYTES {
            self.text.push_str(text);
        }
    }

    /// The upstream has said that so much is billed.
    pub(super) const fn bill(&mut self, billed: Usage) {
        self.billed = billed;
    }

    /// What is billed as far as it has said.
    pub(super) const fn billed(&self) -> Usage {
        self.billed
    }

    /// The text so far.
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Until the Job object is told or asked again.
    fn pause(&self) -> Duration {
        match self.shown {
            Some(shown) if shown < count(&self.text) => SHOW_EVERY,
            _ => self.every.min(ASK_EVERY),
        }
    }

    /// The first content has come: the breaker has its success, the watchers their phase.
    pub(super) async fn first_content(&mut self) -> Result<(), Stop> {
        self.has_content = true;
        let (told, renewed) = join(self.tell_gate(), self.tell_job()).await;
        if let Err(error) = told {
            log::trouble(Some(self.id), "gate", &error.to_string());
        }
        self.judge(renewed)
    }

    fn aged(&self) -> RateLimits {
        self.limits.later(clock::now().since(self.limits_at))
    }

    async fn tell_gate(&self) -> Result<(), ObjectError> {
        match self.permit {
            Some(permit) => self.gate.content(permit, self.aged()).await,
            None => Ok(()),
        }
    }

    async fn renew(&mut self) -> Result<(), Stop> {
        let now = clock::now();
        let keeps = now.since(self.kept_at) >= self.every;
        let keep_permit = async {
            if let Some(permit) = self.permit.filter(|_| keeps)
                && let Err(error) = self.gate.renew(permit).await
            {
                log::trouble(Some(self.id), "gate", &error.to_string());
            }
        };
        let ((), renewed) = join(keep_permit, self.tell_job()).await;
        if keeps {
            self.kept_at = now;
        }
        self.judge(renewed)
    }

    async fn tell_job(&self) -> Result<Renewed, ObjectError> {
        // Nobody watches: nothing is brought, and the answer says if that has changed.
        let text_from = self.shown.unwrap_or(count(&self.text));
        let text = usize::try_from(text_from).ok().and_then(|from| self.text.get(from..)).unwrap_or_default();
        self.job.renew(&Renew { token: self.token, has_content: self.has_content, text_from }, text).await
    }

    /// A renewal that got no answer is tried again a third of the lease later: one may fail before it runs out.
    fn judge(&mut self, renewed: Result<Renewed, ObjectError>) -> Result<(), Stop> {
        self.renewed_at = clock::now();
        match renewed {
            Ok(Renewed { renewal: Renewal::Renewed, text_from }) => {
                self.shown = text_from;
                Ok(())
            }
            Ok(Renewed { renewal: Renewal::Fenced, .. }) => Err(Stop::Fenced),
            Ok(Renewed { renewal: Renewal::Cancelled, .. }) => Err(Stop::Cancelled),
            Err(error) => {
                log::trouble(Some(self.id), "job_object", &error.to_string());
                Ok(())
            }
        }
    }
}

/// At most one message a second goes to the Job object.
const SHOW_EVERY: Duration = Duration::from_secs(1);
/// How soon a watcher who comes in the middle of an answer sees it, at the latest.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// Four books.
const MAX_SHOWN_BYTES: usize = 4 * 1024 * 1024;
