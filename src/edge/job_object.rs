//! The Durable Object of one job: stores what the record's steps return, and does the effects they name.
//!
//! An operation reads its body first; from then on until the record is written there is no await, so that two operations
//! can never see each other half done. Effects are done after the answer is given; the alarm does again what was lost.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use futures_channel::oneshot;
use futures_util::future::LocalBoxFuture;
use worker::{Delay, DurableObject, Env, Request, Response, Result, State, durable_object};

use super::job_events::Draft;
use super::job_storage::JobStorage;
use super::stubs::{
    AnswerDeferral, Begin, Cancellation, IndexStub, Interrupted, Regenerate, Regeneration, Reply, Settle,
};
use super::{clock, js, log, meter, results, settings, together, wire};
use crate::api::auth::Caller;
use crate::api::events::Entry;
use crate::api::status::{self, Published, Question};
use crate::config::Policy;
use crate::job::{Begun, Claim, DeferralAnswer, Effect, Kept, Record, Redrive, Row, Settled, Spec, Timing};
use crate::json::{self, ToJson};
use crate::policy::priority::Priority;
use crate::submission::Creation;
use crate::telemetry::Event;

/// One job.
#[durable_object(alarm)]
pub struct JobObject {
    inner: Rc<Inner>,
}

pub(super) struct Inner {
    state: State,
    pub(super) env: Env,
    pub(super) storage: JobStorage,
    /// Readers that wait for the next change.
    watchers: RefCell<Vec<oneshot::Sender<()>>>,
    /// How many streams of events there are.
    pub(super) watching: Cell<u32>,
    pub(super) draft: RefCell<Draft>,
}

impl DurableObject for JobObject {
    fn new(state: State, env: Env) -> Self {
        let storage = JobStorage::new(state.storage().sql());
        let inner = Inner {
            state,
            env,
            storage,
            watchers: RefCell::default(),
            watching: Cell::default(),
            draft: RefCell::default(),
        };
        Self { inner: Rc::new(inner) }
    }

    async fn fetch(&self, request: Request) -> Result<Response> {
        // An error becomes an answer: a rejected promise would say less.
        match self.inner.clone().answer(request).await {
            Ok(response) => Ok(response),
            Err(error) => Response::error(error.to_string(), 500),
        }
    }

    async fn alarm(&self) -> Result<Response> {
        self.inner.clone().do_effects().await;
        meter::flush(&self.inner.env).await;
        Response::empty()
    }
}

impl Inner {
    async fn answer(self: Rc<Self>, mut request: Request) -> Result<Response> {
        let operation = request.path();
        let body = request.bytes().await?;
        let config = settings::load(&self.env).map_err(|_| BROKEN)?;
        let timing = config.policy.timing();
        // No await from here to the end of each arm, except in `status`, which only reads.
        let response = match operation.as_str() {
            "/create" => self.create(&body)?,
            "/keep" => self.keep(&body)?,
            "/peek" => {
                let record = self.storage.load()?;
                return json(&record.map(|record| Creation { is_new: false, record }));
            }
            "/claim" => {
                let turn = wire::decode(&body)?;
                json(&match self.storage.load()? {
                    Some(_) => self.change(|record| record.claim(turn, clock::now(), &timing))?,
                    // Its retention is over, and a late message is all that is left of it.
                    None => Claim::Finished,
                })?
            }
            "/begin" => return self.begin(&body, &timing),
            "/renew" => {
                let (head, text) = wire::unframe(&body);
                json(&self.renew(&wire::decode(head)?, text, &config)?)?
            }
            "/interrupted" => {
                let Interrupted { token, cause } = wire::decode(&body)?;
                json(&self.change(|record| record.interrupted(token, cause, clock::now(), &timing))?)?
            }
            "/events" => return self.watch(wire::decode(&body)?, config),
            "/settle" => self.settle(&body)?,
            "/revive" => {
                let turn = wire::decode(&body)?;
                if self.storage.load()?.is_some() {
                    self.change(|record| record.revive(turn, clock::now()))?;
                }
                json(&())?
            }
            "/deferral" => self.answer_deferral(&wire::decode(&body)?)?,
            "/webhook" => json(&self.tell_again(&wire::decode(&body)?)?)?,
            "/regenerate" => return self.regenerate(wire::decode(&body)?).await,
            "/cancel" => return self.clone().cancel(&wire::decode(&body)?).await,
            "/row" => {
                let record = self.storage.load()?.filter(|record| !record.is_gone());
                return json(&record.map(|record| record.row()));
            }
            "/status" => return self.status(&wire::decode(&body)?, &config.policy).await,
            _ => return Response::error("no such operation", 404),
        };
        self.clone().after_change().await;
        Ok(response)
    }

    fn create(&self, body: &[u8]) -> Result<Response> {
        let (head, request) = wire::unframe(body);
        let known = self.storage.load()?;
        let (is_new, record) = (known.is_none(), known.map_or_else(|| wire::decode::<Record>(head), Ok)?);
        if is_new {
            self.storage.create(&record, request)?;
        }
        log::event(&Event::JobSubmitted {
            job: &record.id.to_string(),
            client: &record.client,
            kind: &record.spec.kind,
            priority: record.spec.priority.name(),
            model: &record.spec.model,
            request_bytes: request.len(),
            replayed: !is_new,
        });
        json(&Creation { is_new, record })
    }

    /// A job that is over from its beginning. Kept twice, it is kept once.
    fn keep(&self, body: &[u8]) -> Result<Response> {
        let (head, request) = wire::unframe(body);
        let Kept { record, text } = wire::decode(head)?;
        if self.storage.load()?.is_none() {
            self.storage.create(&record, request)?;
            self.storage.write_answer(text.as_bytes())?;
            log_if_finished(&record, true);
        }
        json(&())
    }

    fn begin(&self, body: &[u8], timing: &Timing) -> Result<Response> {
        let Begin { token, model } = wire::decode(body)?;
        let begun = self.change(|record| record.begin(token, model, clock::now(), timing))?;
        self.draft.take();
        let mut request = Vec::new();
        if begun == Begun::Go {
            self.storage.read_request(&mut request)?;
        }
        let answer = wire::frame(&begun, &request);
        self.wake_watchers();
        Response::from_bytes(answer)
    }

    fn settle(&self, body: &[u8]) -> Result<Response> {
        let (head, answer) = wire::unframe(body);
        let Settle { token, settlement } = wire::decode(head)?;
        let before = self.storage.load()?.ok_or(NO_JOB)?;
        let mut record = before.clone();
        let settled = record.settle(token, settlement, clock::now());
        if settled == Settled::Stored {
            // The answer first: a record that says `done` is never without one.
            self.storage.write_answer(answer)?;
            self.save(&before, &record)?;
        }
        json(&settled)
    }

    fn answer_deferral(&self, answer: &AnswerDeferral) -> Result<Response> {
        if self.storage.load()?.is_none_or(|record| record.is_gone() || !answer.caller.may_see(&record.client)) {
            return json(&Reply::Unknown);
        }
        json(&match self.change(|record| record.answer_deferral(answer.accept, clock::now()))? {
            DeferralAnswer::Taken => Reply::Taken(self.publish(&self.storage.load()?.ok_or(NO_JOB)?)?),
            DeferralAnswer::NotAsked => Reply::Void,
        })
    }

    /// The same new job for every caller that asks, so that two asking at once are answered once.
    async fn regenerate(self: Rc<Self>, wish: Regenerate) -> Result<Response> {
        let Regenerate { caller, id, instead_of, redrive } = wish;
        let visible = |record: &Record| caller.may_see(&record.client) && !record.is_gone();
        let Some(mut record) = self.storage.load()?.filter(visible) else {
            return Response::from_bytes(wire::frame(&Regeneration::Unknown, &[]));
        };
        match redrive.map_or(Redrive::DoAgain, |which| record.redrive(&which, clock::now())) {
            Redrive::DoAgain => {}
            Redrive::SentAgain => {
                self.storage.save(&record)?;
                self.after_change().await;
                return Response::from_bytes(wire::frame(&Regeneration::SentAgain, &[]));
            }
            Redrive::NotNeeded => return Response::from_bytes(wire::frame(&Regeneration::NotNeeded, &[])),
        }
        let Some(id) = record.regenerate(id, instead_of.as_ref()) else {
            return Response::from_bytes(wire::frame(&Regeneration::NotNeeded, &[]));
        };
        self.storage.save(&record)?;
        self.wake_watchers();
        let mut request = Vec::new();
        self.storage.read_request(&mut request)?;
        Response::from_bytes(wire::frame(&Regeneration::As { record, id }, &request))
    }

    async fn cancel(self: Rc<Self>, caller: &Caller) -> Result<Response> {
        let visible =
            |record: &Record| caller.may_see(&record.client) && (!record.is_gone() || record.is_withdrawing());
        let Some(mut record) = self.storage.load()?.filter(visible) else {
            return json(&Cancellation::Unknown);
        };
        let before = record.clone();
        record.cancel(clock::now());
        if !before.erased {
            self.storage.erase_content()?;
        }
        self.save(&before, &record)?;
        self.wake_watchers();
        self.set_alarm().await;
        if !record.is_gone() {
            return json(&Cancellation::Cancelled(self.publish(&record)?));
        }
        // What KV still has, a reader still gets: until it has forgotten the job too, the job is not erased.
        self.clone().do_effects().await;
        json(&match self.storage.load()? {
            Some(record) if record.is_withdrawing() => Cancellation::Withdrawing,
            _ => Cancellation::Erased,
        })
    }

    async fn status(&self, question: &Question, policy: &Policy) -> Result<Response> {
        let long_wait = policy.long_wait();
        let until = clock::now() + Duration::from_secs(question.wait_seconds);
        loop {
            let Some(record) = self.storage.load()?.filter(|record| !record.is_gone()) else {
                return json(&None::<Published>);
            };
            let now = clock::now();
            let language = policy.messages.language(record.spec.locale.as_deref(), Some(&question.language));
            let tag = question.tag(&record, long_wait, now, language);
            if now >= until || question.is_answered_by(&tag, record.state.wants_reader()) {
                return json(&Some(self.publish(&record)?));
            }
            let changed = self.next_change();
            // A message that changes with time alone is news that nobody brings.
            let left = until.after(now);
            let patience = status::wording_changes_in(&record, long_wait, now).map_or(left, |change| left.min(change));
            clock::within(patience, changed).await;
        }
    }

    pub(super) fn publish(&self, record: &Record) -> Result<Published> {
        let long_wait = settings::load(&self.env).map_err(|_| BROKEN)?.policy.long_wait();
        let said = self.storage.read_answer()?;
        Ok(Published::new(record, said.as_deref(), long_wait, clock::now()).map_err(|error| error.to_string())?)
    }

    /// Applies `step` to the record and writes it.
    pub(super) fn change<T>(&self, step: impl FnOnce(&mut Record) -> T) -> Result<T> {
        let before = self.storage.load()?.ok_or(NO_JOB)?;
        let mut record = before.clone();
        let outcome = step(&mut record);
        self.save(&before, &record)?;
        Ok(outcome)
    }

    /// Writes the record, and what its readers are to know of the change.
    fn save(&self, before: &Record, record: &Record) -> Result<()> {
        if record.is_interrupted() && !before.is_interrupted() && self.storage.read_answer()?.is_none() {
            // Its consumer is gone, and what it had told of the text is all that there is.
            self.storage.write_answer(self.draft_text(before.calls).as_bytes())?;
        }
        self.storage.save(record)?;
        if record.discarded != before.discarded
            && self.storage.journal_is_open()?
            && let Some(discarded) = &record.discarded
        {
            self.storage.write_journal(&Entry::Discarded(discarded.clone()))?;
        }
        self.keep_journal(record, &*settings::load(&self.env).map_err(|_| BROKEN)?)?;
        if !before.state.is_terminal() {
            log_if_finished(record, false);
        }
        Ok(())
    }

    /// Somebody is about to see text of the draft.
    pub(super) fn see(&self, draft: u32) -> Result<()> {
        let mut record = self.storage.load()?.ok_or(NO_JOB)?;
        if record.see(draft) {
            self.storage.save(&record)?;
        }
        Ok(())
    }

    /// Sets the alarm, so that nothing is lost from here on, and has the effects done while the answer is on its way.
    async fn after_change(self: Rc<Self>) {
        self.wake_watchers();
        self.set_alarm().await;
        let inner = self.clone();
        self.state.wait_until(async move {
            inner.clone().do_effects().await;
            meter::flush(&inner.env).await;
        });
    }

    /// Resolves with the next change.
    pub(super) fn next_change(&self) -> oneshot::Receiver<()> {
        let (watcher, changed) = oneshot::channel();
        let mut watchers = self.watchers.borrow_mut();
        watchers.retain(|watcher| !watcher.is_canceled());
        watchers.push(watcher);
        changed
    }

    fn wake_watchers(&self) {
        for watcher in self.watchers.take() {
            // A reader that has left wants nothing any more.
            let _ = watcher.send(());
        }
    }

    async fn set_alarm(&self) {
        let alarm = match (settings::load(&self.env), self.storage.load()) {
            (Ok(config), Ok(Some(record))) => record.next_alarm(&config.policy.timing()).after(clock::now()),
            (Ok(_), Ok(None)) => return,
            // Until the configuration is mended.
            _ => TROUBLE_PAUSE,
        };
        if let Err(error) = self.state.storage().set_alarm(alarm.max(MIN_ALARM)).await {
            self.trouble("alarm", &error.to_string());
        }
    }

    /// Does what is due. Each effect may be done twice without harm.
    pub(super) async fn do_effects(self: Rc<Self>) {
        if let Ok(config) = settings::load(&self.env) {
            let timing = config.policy.timing();
            let due = self.storage.load().and_then(|record| match record {
                Some(_) => self.change(|record| record.tick(clock::now(), &timing)),
                None => Ok(Vec::new()),
            });
            match due {
                Ok(effects) if effects.is_empty() => {}
                Ok(effects) => {
                    self.wake_watchers();
                    // Side by side: an index that hangs keeps nothing else waiting.
                    let doing = effects
                        .into_iter()
                        .map(|effect| -> LocalBoxFuture<'_, ()> { Box::pin(self.clone().do_effect(effect)) });
                    together::all(doing.collect()).await;
                }
                Err(error) => self.trouble("job_object", &error.to_string()),
            }
        }
        self.set_alarm().await;
    }

    async fn do_effect(self: Rc<Self>, effect: Effect) {
        let done = match effect {
            Effect::Announce { priority, envelope, delay_seconds } => {
                let turn = envelope.turn;
                self.send(priority, envelope.encode(), delay_seconds).await.and_then(|()| {
                    self.change(|record| record.announced(turn, clock::now())).map_err(|error| error.to_string())
                })
            }
            Effect::Publish { ttl_seconds } => self.write_to_kv(ttl_seconds).await,
            Effect::Withdraw => self.delete_from_kv().await,
            Effect::List { client, row } => self.tell_index(&client, &row).await,
            Effect::Notify { numbers } => {
                // A receiver may take its time; the alarm has other things to do.
                self.state.wait_until(self.clone().notify(numbers));
                Ok(())
            }
            Effect::Erase => self.erase().await,
        };
        if let Err(error) = done {
            self.trouble("outbox", &error);
        }
    }

    pub(super) fn trouble(&self, part: &str, message: &str) {
        let job = self.storage.load().ok().flatten().map(|record| record.id.to_string());
        log::trouble(job.as_deref(), part, message);
    }

    async fn send(&self, priority: Priority, body: String, delay_seconds: u32) -> std::result::Result<(), String> {
        let binding = match priority {
            Priority::High => "QUEUE_HIGH",
            Priority::Medium => "QUEUE_MEDIUM",
            Priority::Low => "QUEUE_LOW",
        };
        let send = async {
            let options = js::object(&[("contentType", "text".into()), ("delaySeconds", delay_seconds.into())])?;
            js::settle(&js::binding(&self.env, binding)?, "send", &[body.into(), options]).await
        };
        match clock::within(SEND_PATIENCE, send).await {
            Some(sent) => sent.map(drop).map_err(|error| format!("{binding}: {error}")),
            None => Err(format!("{binding}: a send took too long")),
        }
    }

    async fn write_to_kv(&self, ttl_seconds: u64) -> std::result::Result<(), String> {
        let record = self.storage.load().map_err(|error| error.to_string())?.ok_or("the job is gone")?;
        let published = self.publish(&record).map_err(|error| error.to_string())?;
        results::put(&self.env, &record.id, &published, ttl_seconds).await?;
        self.change(|record| record.published(clock::now())).map_err(|error| error.to_string())
    }

    async fn delete_from_kv(&self) -> std::result::Result<(), String> {
        let record = self.storage.load().map_err(|error| error.to_string())?.ok_or("the job is gone")?;
        if results::delete(&self.env, &record.id).await.is_err() {
            // Most likely it was published within this very second.
            Delay::from(KV_WRITE_INTERVAL).await;
            results::delete(&self.env, &record.id).await?;
        }
        self.change(Record::withdrawn).map_err(|error| error.to_string())
    }

    async fn tell_index(&self, client: &str, row: &Row) -> std::result::Result<(), String> {
        let told = IndexStub::new(&self.env, client, &row.id.to_string()).tell(row).await;
        told.map_err(|error| format!("index: {error}"))?;
        if self.storage.load().is_ok_and(|record| record.is_none()) {
            // Its retention has ended meanwhile, and so has the row's.
            return Ok(());
        }
        self.change(|record| record.listed(row.version)).map_err(|error| error.to_string())
    }

    async fn erase(&self) -> std::result::Result<(), String> {
        let storage = self.state.storage();
        storage.delete_alarm().await.map_err(|error| error.to_string())?;
        storage.delete_all().await.map_err(|error| error.to_string())?;
        self.storage.forget();
        Ok(())
    }
}

/// `kept`: it is over from its beginning.
fn log_if_finished(record: &Record, kept: bool) {
    if !record.state.is_terminal() {
        return;
    }
    let Spec { kind, priority, model, handed_over, .. } = &record.spec;
    let model_used = record.state.model_used();
    log::event(&Event::JobFinished {
        job: &record.id.to_string(),
        status: record.state.name(),
        reason: record.state.reason(),
        attempts: record.attempts,
        calls: record.calls,
        age_ms: crate::policy::time::millis(clock::now().since(record.created_at)),
        handed_over: *handed_over,
        kind,
        priority: priority.name(),
        model,
        model_used,
        downgraded: record.is_downgraded(),
        exposed: !kept && record.is_exposed(),
        kept,
    });
}

fn json(value: &dyn ToJson) -> Result<Response> {
    Response::ok(json::write(value))
}

/// A queue that is overloaded answers after 57 s; the outbox sends again anyway.
const SEND_PATIENCE: Duration = Duration::from_secs(30);
/// KV takes one write a second for each key.
const KV_WRITE_INTERVAL: Duration = Duration::from_millis(1_100);
const BROKEN: &str = "the configuration is broken";
const NO_JOB: &str = "there is no such job";
const TROUBLE_PAUSE: Duration = Duration::from_secs(60);
/// What is due at once is done at once, beside the answer; the alarm only comes back to what failed, and never in a loop.
const MIN_ALARM: Duration = Duration::from_secs(1);
