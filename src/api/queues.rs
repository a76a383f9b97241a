//! `GET /v1/queues`, `PUT` and `DELETE /v1/queues/{priority}/pause` and `/v1/drain`: what the operator sends, and sees.

use super::error::ApiError;
use super::form::Form;
use super::order::{self, Ordered};
use super::status::rfc3339;
use crate::claude::request::Problem;
use crate::json;
use crate::policy::priority::Priority;
use crate::policy::switches::{Name, Order, Switches, TAKES_EFFECT_WITHIN};
use crate::policy::time::{Timestamp, millis, whole_seconds};
use crate::telemetry::Event;

/// Reads the order to pause a queue, or to take nothing new; `None` is a queue that there is not.
///
/// # Errors
/// 400 with every fault, the queue's among them.
pub fn order(name: Option<Name>, body: &[u8], now: Timestamp) -> Result<(Name, Order), ApiError> {
    let mut form = Form::parse(body, &order::FIELDS)?;
    let ordered = Ordered::read(&mut form, now);
    match (name, ordered) {
        (Some(name), Some(Ordered { until, note, author, .. })) if form.problems.is_empty() => {
            Ok((name, Order { since: now, until, note, author }))
        }
        _ => {
            let of_the_name = name.is_none().then(no_queue);
            Err(ApiError::invalid(of_the_name.into_iter().chain(form.problems).collect()))
        }
    }
}

/// The switch that is taken back.
///
/// # Errors
/// 400 if there is no such queue.
pub fn name(name: Option<Name>) -> Result<Name, ApiError> {
    name.ok_or_else(|| ApiError::invalid(vec![no_queue()]))
}

/// What is to be told of a switch that was set so, after an order that was in force `before`; `None` if there was nothing to take
/// back.
#[must_use]
pub fn switched<'a>(name: Name, order: Option<&'a Order>, before: Option<&Order>, now: Timestamp) -> Option<Event<'a>> {
    let lasts_ms = order.map_or(0, |order| millis(order.left(now)));
    let early_ms = before.map_or(0, |before| millis(before.left(now)));
    Some(match (name, order) {
        (_, None) if early_ms == 0 => return None,
        (Name::Pause(priority), Some(Order { author, note, .. })) => {
            Event::QueuePaused { priority: priority.name(), lasts_ms, author, note }
        }
        (Name::Pause(priority), None) => Event::QueueResumed { priority: priority.name(), early_ms },
        (Name::Drain, Some(Order { author, note, .. })) => Event::DrainStarted { lasts_ms, author, note },
        (Name::Drain, None) => Event::DrainEnded { early_ms },
    })
}

fn no_queue() -> Problem {
    Problem::new("priority", "must be one of high, medium, low")
}

/// How the queues stand. `unfinished` are each one's jobs; `None` if the Meter did not say.
#[must_use]
pub fn document(switches: &Switches, unfinished: Option<&json::Map<String, u64>>, now: Timestamp) -> String {
    let of = |priority: Priority| Queue {
        unfinished: unfinished.map(|jobs| jobs.get(priority.name()).copied().unwrap_or_default()),
        paused: switches.pause(priority, now).map(|order| OrderView::of(order, now)),
    };
    json::write(&Document {
        queues: Queues { high: of(Priority::High), medium: of(Priority::Medium), low: of(Priority::Low) },
        drain: switches.drain(now).map(|order| OrderView::of(order, now)),
        unfinished: unfinished.map(|jobs| jobs.iter().map(|(_, jobs)| *jobs).sum()),
        versions: Name::ALL.into_iter().map(|name| (name.label().to_owned(), switches.version(name))).collect(),
        takes_effect_within_seconds: TAKES_EFFECT_WITHIN.as_secs(),
    })
}

struct Document<'a> {
    queues: Queues<'a>,
    drain: Option<OrderView<'a>>,
    unfinished: Option<u64>,
    /// Of two documents that of the greater number is the later one, for each switch: who asks twice may be told by two places.
    versions: json::Map<String, u64>,
    takes_effect_within_seconds: u64,
}

json::output!(Document<'_> { queues, drain, unfinished, versions, takes_effect_within_seconds });

struct Queues<'a> {
    high: Queue<'a>,
    medium: Queue<'a>,
    low: Queue<'a>,
}

json::output!(Queues<'_> { high, medium, low });

struct Queue<'a> {
    unfinished: Option<u64>,
    paused: Option<OrderView<'a>>,
}

json::output!(Queue<'_> { unfinished, paused });

struct OrderView<'a> {
    since: String,
    until: String,
    seconds_left: u64,
    note: &'a str,
    author: &'a str,
}

json::output!(OrderView<'_> { since, until, seconds_left, note, author });

impl<'a> OrderView<'a> {
    fn of(order: &'a Order, now: Timestamp) -> Self {
        Self {
            since: rfc3339(order.since),
            until: rfc3339(order.until),
            seconds_left: whole_seconds(order.left(now)),
            note: &order.note,
            author: &order.author,
        }
    }
}
