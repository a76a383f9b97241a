//! Cloudflare Queues, as far as they matter here.
//!
//! - A message is delivered at least once: now and then a copy comes as well, up to a minute later.
//! - It can be delayed; the delay of a retry starts when the whole batch has returned.
//! - A batch starts with five messages, or when the first has waited for the batch timeout, if a consumer is free.
//! - Consumers are added and taken away only when a batch returns: half again as many while messages wait, one less while
//!   half of them are idle; at most so many.
//! - An invocation that runs for 15 minutes is ended, and what it had not settled is delivered again.
//! - After `max_retries` further deliveries a message goes to the dead queue.

use std::collections::VecDeque;

use serde::Deserialize;

use super::world::{MINUTE, Ms, SECOND, TaskId};

/// The queues' parameters.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct QueueLaw {
    pub(crate) batch: usize,
    /// Of the queues for high, medium and low jobs.
    pub(crate) batch_timeout_ms: [u64; 3],
    pub(crate) max_consumers: usize,
    pub(crate) max_retries: u32,
    pub(crate) duplicate_percent: f64,
    /// From the send to the earliest delivery.
    pub(crate) latency_ms: u64,
}

impl Default for QueueLaw {
    fn default() -> Self {
        Self {
            batch: 5,
            batch_timeout_ms: [0, 1_000, 1_000],
            max_consumers: 250,
            max_retries: 100,
            duplicate_percent: 0.1,
            latency_ms: 50,
        }
    }
}

/// The wall of an invocation.
pub(crate) const WALL: Ms = 15 * MINUTE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvocationId {
    index: u32,
    generation: u32,
}

/// A message in a consumer's hands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) queue: u8,
    pub(crate) payload: u64,
    /// Which delivery of the message this is, from 1 on.
    pub(crate) number: u32,
    /// When its invocation began.
    pub(crate) began_at: Ms,
    invocation: InvocationId,
    place: u8,
}

pub(crate) struct Queues {
    law: QueueLaw,
    rng: fastrand::Rng,
    queues: [Queue; 3],
    messages: Vec<Message>,
    free_messages: Vec<u32>,
    invocations: Vec<Invocation>,
    free_invocations: Vec<u32>,
    started: VecDeque<InvocationId>,
    pub(crate) dead: u32,
    pub(crate) duplicated: u32,
}

struct Queue {
    ready: VecDeque<(u32, Ms)>,
    consumers: usize,
    busy: usize,
    most_consumers: usize,
}

#[derive(Clone, Copy)]
struct Message {
    payload: u64,
    deliveries: u32,
}

#[derive(Clone)]
struct Invocation {
    generation: u32,
    queue: u8,
    began_at: Ms,
    open: u8,
    places: Vec<Place>,
}

#[derive(Clone, Copy)]
struct Place {
    message: u32,
    task: Option<TaskId>,
    settled: bool,
    retry_seconds: Option<u32>,
}

impl Queues {
    pub(crate) fn new(law: QueueLaw, seed: u64) -> Self {
        let queue = || Queue { ready: VecDeque::new(), consumers: 1, busy: 0, most_consumers: 1 };
        Self {
            law,
            rng: fastrand::Rng::with_seed(seed),
            queues: [queue(), queue(), queue()],
            messages: Vec::new(),
            free_messages: Vec::new(),
            invocations: Vec::new(),
            free_invocations: Vec::new(),
            started: VecDeque::new(),
            dead: 0,
            duplicated: 0,
        }
    }

    /// The storm breaks over a running deployment: as many consumers as jobs that come at this rate need.
    pub(crate) fn warm_up(&mut self, queue: u8, per_second: f64, call_seconds: f64) {
        let timeout = self.law.batch_timeout_ms[usize::from(queue)] as f64 / SECOND as f64;
        let size = (1.0 + per_second * timeout).min(self.law.batch as f64);
        // A batch lasts as long as its longest call.
        let length = call_seconds * if size > 1.5 { 2.0 } else { 1.0 };
        let consumers = (per_second / size * length).ceil() as usize + 1;
        self.queues[usize::from(queue)].consumers = consumers.min(self.law.max_consumers);
    }

    /// Takes a message that is due at `at`: when which copy of it becomes visible.
    pub(crate) fn send(&mut self, _queue: u8, payload: u64, at: Ms) -> Vec<(Ms, u32)> {
        let at = at + self.law.latency_ms;
        let mut sent = vec![(at, self.insert(payload))];
        if self.rng.f64() * 100.0 < self.law.duplicate_percent {
            self.duplicated += 1;
            sent.push((at + self.rng.u64(0..MINUTE), self.insert(payload)));
        }
        sent
    }

    /// A message can be delivered; the moment at which its batch is due, if nothing else starts one.
    pub(crate) fn visible(&mut self, queue: u8, message: u32, now: Ms) -> Option<Ms> {
        self.queues[usize::from(queue)].ready.push_back((message, now));
        self.dispatch(queue, now);
        let timeout = self.law.batch_timeout_ms[usize::from(queue)];
        (!self.queues[usize::from(queue)].ready.is_empty() && timeout > 0).then_some(now + timeout)
    }

    /// Starts the batches that can start.
    pub(crate) fn dispatch(&mut self, queue: u8, now: Ms) {
        let timeout = self.law.batch_timeout_ms[usize::from(queue)];
        let it = &mut self.queues[usize::from(queue)];
        while it.busy < it.consumers
            && let Some(&(_, since)) = it.ready.front()
            && (it.ready.len() >= self.law.batch || now >= since + timeout)
        {
            it.busy += 1;
            let count = it.ready.len().min(self.law.batch);
            let places: Vec<Place> = it
                .ready
                .drain(..count)
                .map(|(message, _)| Place { message, task: None, settled: false, retry_seconds: None })
                .collect();
            let open = u8::try_from(count).unwrap();
            let index = self.free_invocations.pop().unwrap_or_else(|| {
                let blank = Invocation { generation: 0, queue, began_at: 0, open: 0, places: Vec::new() };
                self.invocations.push(blank);
                u32::try_from(self.invocations.len() - 1).unwrap()
            });
            let invocation = &mut self.invocations[index as usize];
            (invocation.queue, invocation.began_at, invocation.open, invocation.places) = (queue, now, open, places);
            self.started.push_back(InvocationId { index, generation: invocation.generation });
        }
    }

    /// The next batch that has started, and its deliveries.
    pub(crate) fn next_started(&mut self) -> Option<(InvocationId, Vec<Delivery>)> {
        let id = self.started.pop_front()?;
        let invocation = &self.invocations[id.index as usize];
        let deliveries = invocation
            .places
            .iter()
            .enumerate()
            .map(|(place, &Place { message, .. })| {
                let message = &mut self.messages[message as usize];
                message.deliveries += 1;
                Delivery {
                    queue: invocation.queue,
                    payload: message.payload,
                    number: message.deliveries,
                    began_at: invocation.began_at,
                    invocation: id,
                    place: u8::try_from(place).unwrap(),
                }
            })
            .collect();
        Some((id, deliveries))
    }

    /// Which task has a delivery in its hands.
    pub(crate) fn assign(&mut self, id: InvocationId, delivery: Delivery, task: TaskId) {
        self.invocations[id.index as usize].places[usize::from(delivery.place)].task = Some(task);
    }

    /// The platform ends an invocation: the tasks to be killed and what they had.
    pub(crate) fn wall(&mut self, id: InvocationId) -> Vec<(TaskId, Delivery)> {
        let Some(invocation) = self.invocations.get(id.index as usize).filter(|i| i.generation == id.generation) else {
            return Vec::new();
        };
        let unsettled = invocation.places.iter().enumerate().filter(|(_, place)| !place.settled);
        unsettled
            .filter_map(|(place, &Place { message, task, .. })| {
                let Message { payload, deliveries } = self.messages[message as usize];
                let delivery = Delivery {
                    queue: invocation.queue,
                    payload,
                    number: deliveries,
                    began_at: invocation.began_at,
                    invocation: id,
                    place: u8::try_from(place).unwrap(),
                };
                Some((task?, delivery))
            })
            .collect()
    }

    /// Settles a delivery, the first time: acknowledged, or to come again. What comes again when the batch has returned.
    pub(crate) fn settle(&mut self, delivery: Delivery, retry_seconds: Option<u32>, now: Ms) -> Vec<(Ms, u32)> {
        let id = delivery.invocation;
        let invocation = &mut self.invocations[id.index as usize];
        if invocation.generation != id.generation {
            return Vec::new();
        }
        let place = &mut invocation.places[usize::from(delivery.place)];
        if place.settled {
            return Vec::new();
        }
        (place.settled, place.retry_seconds) = (true, retry_seconds);
        invocation.open -= 1;
        if invocation.open > 0 {
            return Vec::new();
        }
        invocation.generation += 1;
        let places = std::mem::take(&mut invocation.places);
        self.free_invocations.push(id.index);
        let mut again = Vec::new();
        for place in places {
            match place.retry_seconds {
                Some(seconds) if self.messages[place.message as usize].deliveries <= self.law.max_retries => {
                    again.push((now + Ms::from(seconds) * SECOND, place.message));
                }
                Some(_) => {
                    self.dead += 1;
                    self.free_messages.push(place.message);
                }
                None => self.free_messages.push(place.message),
            }
        }
        self.returned(delivery.queue, now);
        again
    }

    /// A batch has returned: the only moment at which consumers are added or taken away.
    fn returned(&mut self, queue: u8, now: Ms) {
        let it = &mut self.queues[usize::from(queue)];
        it.busy -= 1;
        let wanted = it.busy + it.ready.len().div_ceil(self.law.batch);
        if wanted > it.consumers {
            it.consumers = wanted.min(it.consumers + (it.consumers / 2).max(1)).min(self.law.max_consumers);
            it.most_consumers = it.most_consumers.max(it.consumers);
        } else if wanted.max(1) * 2 < it.consumers {
            it.consumers -= 1;
        }
        self.dispatch(queue, now);
    }

    pub(crate) fn most_consumers(&self) -> usize {
        self.queues.iter().map(|queue| queue.most_consumers).max().unwrap_or_default()
    }

    fn insert(&mut self, payload: u64) -> u32 {
        let message = Message { payload, deliveries: 0 };
        if let Some(index) = self.free_messages.pop() {
            self.messages[index as usize] = message;
            return index;
        }
        self.messages.push(message);
        u32::try_from(self.messages.len() - 1).unwrap()
    }
}
