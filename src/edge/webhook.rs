//! The Job object's webhook: sends what `job::notice` says is due, and tells the record what became of it.
//!
//! It runs beside everything else that the object does, and nothing waits for it: a receiver that hangs keeps neither the
//! alarm nor a request.

use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use worker::Result;

use super::job_object::Inner;
use super::post::post;
use super::stubs::Reply;
use super::{clock, entropy, js, log, meter, settings};
use crate::api::auth::Caller;
use crate::api::webhook::Signed;
use crate::config::Config;
use crate::job::{Notice, Reception, Record, Told};
use crate::policy::retry_after;
use crate::policy::time::millis;
use crate::telemetry::Event;

impl Inner {
    /// Sends these notices, one after the other, and has done what had to wait for them.
    pub(super) fn notify(self: Rc<Self>, numbers: Vec<u32>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            for number in numbers {
                if let Err(error) = self.notify_one(number).await {
                    self.trouble("webhook", &error.to_string());
                }
            }
            self.clone().do_effects().await;
            meter::flush(&self.env).await;
        })
    }

    async fn notify_one(&self, number: u32) -> Result<()> {
        let config = settings::load(&self.env).map_err(|_| "the configuration is broken")?;
        let Some(record) = self.storage.load()? else { return Ok(()) };
        // It may have been taken back while another one was sent.
        let (Some(notice), Some(address)) = (record.pending_notice(number), record.spec.webhook.as_deref()) else {
            return Ok(());
        };
        let reception = send(address, &record, notice, &config).await;
        let error = match &reception {
            Reception::Refused { error, .. } => Some(error.clone()),
            Reception::Taken | Reception::Gone => None,
        };
        let Some(mut record) = self.storage.load()? else { return Ok(()) };
        let (tried, timing) = (notice.tries, config.policy.timing());
        // No state is entered: nobody who watches has to know.
        let told = record.told(number, tried, reception, clock::now(), &timing, &mut entropy::rng());
        self.storage.save(&record)?;
        log::event(&Event::WebhookSent {
            job: &record.id.to_string(),
            client: &record.client,
            news: notice.news.event(),
            attempt: tried,
            then: told.name(),
            error: error.as_deref(),
            wait_ms: if let Told::Again(wait) = told { Some(millis(wait)) } else { None },
        });
        Ok(())
    }

    pub(super) fn tell_again(&self, caller: &Caller) -> Result<Reply> {
        let visible = |record: &Record| caller.may_see(&record.client) && !record.is_gone();
        let Some(mut record) = self.storage.load()?.filter(visible) else { return Ok(Reply::Unknown) };
        if !record.tell_again(clock::now()) {
            return Ok(Reply::Void);
        }
        self.storage.save(&record)?;
        Ok(Reply::Taken(self.publish(&record)?))
    }
}

async fn send(address: &str, record: &Record, notice: &Notice, config: &Config) -> Reception {
    if config.webhook_secrets.is_empty() {
        return Reception::missing("the secret WEBHOOK_SECRET is not set any more");
    }
    let policy = &config.policy;
    let messages = &policy.messages;
    let signed = Signed::new(record, notice, &config.webhook_secrets, messages, policy.long_wait(), clock::now());
    let patience = policy.timing().webhooks.answer;
    let headers = [
        ("content-type", "application/json".into()),
        ("user-agent", concat!("spillway/", env!("CARGO_PKG_VERSION")).into()),
        ("webhook-id", signed.id.as_str().into()),
        ("webhook-timestamp", signed.timestamp.as_str().into()),
        ("webhook-signature", signed.signature.as_str().into()),
    ];
    match post(address, &headers, js::bytes(signed.body.as_bytes()), patience).await {
        Err(error) => Reception::missing(error),
        Ok(response) => {
            let header = response.headers().get("retry-after").ok().flatten();
            Reception::of(response.status_code(), retry_after::parse(None, header.as_deref(), clock::now()))
        }
    }
}
