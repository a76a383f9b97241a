//! The Job object's live events: who watches, the text of the draft, the journal, and the streams. What an event looks like is
//! [`events`]'s.
//!
//! A stream is pulled: whenever its reader is ready for more it is given whatever there is that it has not been told, so that a
//! slow one gets larger pieces and no queue grows for it.
//!
//! The draft's text is in memory alone. If the object restarts, its consumer learns with its next renewal that nothing is there,
//! and sends all of it again; a reader, which the restart has cut off, goes on where it was.

use std::rc::Rc;
use std::time::Duration;

use futures_util::stream;
use worker::{Headers, Response, Result};

use super::job_object::Inner;
use super::stubs::{Renew, Renewed, Watch};
use super::{clock, log};
use crate::api::events::{self, Cursor, Entry};
use crate::api::{status, view};
use crate::config::Config;
use crate::job::{Record, Renewal};
use crate::policy::time::Timestamp;

/// The text of the call that is being made.
#[derive(Default)]
pub(super) struct Draft {
    number: u32,
    text: String,
}

/// One reader.
struct Watcher {
    inner: Rc<Inner>,
    config: Rc<Config>,
    watch: Watch,
    cursor: Cursor,
    until: Timestamp,
    is_over: bool,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.inner.watching.set(self.inner.watching.get().saturating_sub(1));
    }
}

impl Inner {
    /// The stream for one more reader; 204 for one that has been told of the end, 404 if there is no such job for it.
    pub(super) fn watch(self: Rc<Self>, watch: Watch, config: Rc<Config>) -> Result<Response> {
        let visible = |record: &Record| !record.is_gone() && watch.caller.may_see(&record.client);
        let Some(record) = self.storage.load()?.filter(visible) else { return Response::error("no such job", 404) };
        self.storage.open_journal()?;
        self.keep_journal(&record, &config)?;
        let newest = self.storage.newest_status()?.map_or(0, |(entry, _)| entry);
        let known = watch.last_event_id.as_deref().and_then(|id| id.parse::<Cursor>().ok());
        // An id from before the object was erased and made anew is not one of its own.
        let known = known.filter(|cursor| cursor.entry <= newest);
        if record.state.is_terminal() && known.is_some_and(|cursor| cursor.entry == newest) {
            return Ok(Response::empty()?.with_status(204));
        }
        let cursor = known.unwrap_or(Cursor { entry: newest.saturating_sub(1), ..Cursor::default() });
        let until = clock::now() + Duration::from_secs(config.policy.events.life_seconds);
        self.watching.set(self.watching.get().saturating_add(1));
        let watcher = Watcher { inner: self, config, watch, cursor, until, is_over: false };
        let stream = stream::unfold((watcher, Some(events::RETRY.to_owned())), |(mut watcher, first)| async move {
            let text = match first {
                Some(text) => text,
                None => watcher.next().await?,
            };
            Some((Ok::<_, worker::Error>(text.into_bytes()), (watcher, None)))
        });
        let headers = Headers::new();
        headers.set("content-type", "text/event-stream")?;
        Ok(Response::from_stream(stream)?.with_headers(headers))
    }

    /// A consumer that is calling: its lease begins anew, and the text grows.
    pub(super) fn renew(&self, renew: &Renew, text: &[u8], config: &Config) -> Result<Renewed> {
        let (timing, now) = (config.policy.timing(), clock::now());
        let renewal = self.change(|record| match renew.has_content {
            true => record.refine(renew.token, now, &timing),
            false => record.renew(renew.token, now, &timing),
        });
        // A job that is erased is one whose holder should stop.
        let renewal = renewal.unwrap_or(Renewal::Fenced);
        let draft = self.storage.load()?.and_then(|record| record.draft());
        let (Renewal::Renewed, Some(number)) = (renewal, draft) else {
            return Ok(Renewed { renewal, text_from: None });
        };
        let mut draft = self.draft.borrow_mut();
        if draft.number != number {
            *draft = Draft { number, text: String::new() };
        }
        if renew.text_from == count(&draft.text) {
            draft.text.push_str(std::str::from_utf8(text).unwrap_or_default());
        }
        let is_watched = self.watching.get() > 0;
        Ok(Renewed { renewal, text_from: is_watched.then(|| count(&draft.text)) })
    }

    /// What is there of a draft.
    pub(super) fn draft_text(&self, number: u32) -> String {
        let draft = self.draft.borrow();
        if draft.number == number { draft.text.clone() } else { String::new() }
    }

    /// Writes into the journal that the status is this one now, if there is a journal and it does not know.
    pub(super) fn keep_journal(&self, record: &Record, config: &Config) -> Result<()> {
        let Some(newest) = self.storage.journal_is_open()?.then(|| self.storage.newest_status()).transpose()? else {
            return Ok(());
        };
        let wording = status::wording(record, config.policy.long_wait(), clock::now());
        if newest.is_some_and(|(_, entry)| entry.tells(record.revision, wording)) {
            return Ok(());
        }
        self.storage.write_journal(&Entry::of(self.publish(record)?))
    }
}

/// How many bytes; no text that is shown has 4 GB.
pub(super) fn count(text: &str) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

impl Watcher {
    /// The next piece of the stream; `None` at its end.
    async fn next(&mut self) -> Option<String> {
        let heartbeat = Duration::from_secs(self.config.policy.events.heartbeat_seconds);
        let mut silent_until = clock::now() + heartbeat;
        loop {
            if self.is_over {
                return None;
            }
            let news = match self.news() {
                Ok(news) => news,
                Err(error) => {
                    log::trouble(None, "job_object", &error.to_string());
                    return None;
                }
            };
            if !news.is_empty() {
                return Some(news);
            }
            let now = clock::now();
            if self.is_over || now >= self.until {
                return None;
            }
            if now >= silent_until {
                return Some(events::HEARTBEAT.to_owned());
            }
            let changed = self.inner.next_change();
            let patience = self.until.min(silent_until).after(now);
            clock::within(self.wording_changes_in(now).map_or(patience, |change| patience.min(change)), changed).await;
            silent_until = silent_until.min(clock::now() + heartbeat);
        }
    }

    /// What its reader has not been told.
    fn news(&mut self) -> Result<String> {
        let inner = self.inner.clone();
        let Some(record) = inner.storage.load()?.filter(|record| !record.is_gone()) else {
            self.is_over = true;
            return Ok(String::new());
        };
        inner.keep_journal(&record, &self.config)?;
        let (mut news, mut entries) = (String::new(), inner.storage.read_journal(self.cursor.entry)?);
        let newest = entries.pop();
        if newest.is_some() && record.state.is_terminal() {
            self.tell_rest(&record, &mut news)?;
        }
        for (number, entry) in entries {
            self.tell(number, entry, &mut news);
        }
        if let Some((number, entry)) = newest {
            // The newest is the job as it is: the seconds in it are those of now, and a final one has its answer with it.
            let entry = match entry {
                Entry::Status { revision, wording, .. } => {
                    self.is_over = record.state.is_terminal();
                    Entry::Status { revision, wording, published: Some(inner.publish(&record)?) }
                }
                discarded => discarded,
            };
            self.tell(number, entry, &mut news);
        }
        if let Some(draft) = record.draft() {
            self.tell_text(draft, &mut news)?;
        }
        Ok(news)
    }

    fn tell(&mut self, number: u64, entry: Entry, news: &mut String) {
        self.cursor.entry = number;
        match entry {
            Entry::Status { published: Some(published), .. } => {
                let messages = &self.config.policy.messages;
                let language = messages.language(published.locale.as_deref(), Some(&self.watch.language));
                news.push_str(&events::status(self.cursor, &published.written(messages, language).0));
            }
            Entry::Discarded(discarded) if discarded.draft == self.cursor.draft => {
                (self.cursor.draft, self.cursor.bytes) = (0, 0);
                news.push_str(&events::discarded(self.cursor, &discarded));
            }
            Entry::Status { published: None, .. } | Entry::Discarded(_) => {}
        }
    }

    fn tell_text(&mut self, number: u32, news: &mut String) -> Result<()> {
        let inner = self.inner.clone();
        let draft = inner.draft.borrow();
        let bytes = if self.cursor.draft == number { self.cursor.bytes } else { 0 };
        let text = if draft.number == number { events::rest(&draft.text, bytes) } else { "" };
        if text.is_empty() {
            return Ok(());
        }
        // Before it is sent: who has seen text has to be known for certain.
        inner.see(number)?;
        (self.cursor.draft, self.cursor.bytes) = (number, draft.text.len());
        news.push_str(&events::text(self.cursor, text));
        Ok(())
    }

    /// The end of the text that the reader has the beginning of: what came since it was told last.
    fn tell_rest(&mut self, record: &Record, news: &mut String) -> Result<()> {
        if self.cursor.draft != record.calls {
            return Ok(());
        }
        let text = view::text_of(record, self.inner.storage.read_answer()?.as_deref()).unwrap_or_default();
        let rest = events::rest(&text, self.cursor.bytes);
        if !rest.is_empty() {
            self.cursor.bytes = text.len();
            news.push_str(&events::text(self.cursor, rest));
        }
        Ok(())
    }

    /// A message that changes with time alone is news that nobody brings.
    fn wording_changes_in(&self, now: Timestamp) -> Option<Duration> {
        let record = self.inner.storage.load().ok().flatten()?;
        status::wording_changes_in(&record, self.config.policy.long_wait(), now)
    }
}
