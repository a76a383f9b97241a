//! What is noted while the storm goes on; `report` makes figures of it.

use super::claude::{Answer, Model};
use super::scenario::Scenario;
use super::world::{Job, Ms, SECOND};

/// Everything that is counted.
pub(crate) struct Facts {
    every: Ms,
    pub(crate) series: Vec<Point>,
    pub(crate) calls: [u32; 2],
    pub(crate) overloads: u32,
    pub(crate) stream_overloads: u32,
    pub(crate) rate_limited: u32,
    waiting: i64,
    pub(crate) most_waiting: i64,
    pub(crate) drain: Option<Drain>,
    pub(crate) gate: GateFacts,
}

/// What happened within one step of the plot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Point {
    /// Jobs that waited at its end: unfinished, with no call on its way.
    pub(crate) waiting: u32,
    pub(crate) in_flight: u32,
    pub(crate) calls: u32,
    pub(crate) refused: u32,
}

/// How the backlog goes once the trouble is over.
#[derive(Clone, Debug)]
pub(crate) struct Drain {
    /// The end of the last trouble.
    pub(crate) from: Ms,
    /// So few jobs wait in fair weather, too.
    pub(crate) usual: i64,
    pub(crate) backlog: Option<i64>,
    pub(crate) until: Option<Ms>,
    pub(crate) calls: u32,
    pub(crate) refused: u32,
}

/// What our gates did: other policies leave it at zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct GateFacts {
    pub(crate) trips: u32,
    /// Calls in flight when it tripped, the failures that made it, and the probes since, of all trips and models.
    pub(crate) in_flight_at_trips: u32,
    pub(crate) calls_to_trips: u32,
    pub(crate) probes: u32,
    /// Probes beyond the first of a cooldown.
    pub(crate) extra_probes: u32,
    /// How long the primary's breaker was not Closed, up to the last submission.
    pub(crate) open_ms: Ms,
    /// Trips after the last trouble was over.
    pub(crate) trips_after: u32,
    /// How long a breaker that was open when the last trouble ended stayed so.
    pub(crate) shut_after: Option<Ms>,
    pub(crate) deliveries: u32,
    /// Calls of the synchronous path on a view that was no longer true.
    pub(crate) stale_calls: u32,
}

impl Facts {
    pub(crate) fn new(scenario: &Scenario, jobs: &[Job]) -> Self {
        let last = jobs.last().map_or(0, |job| job.at);
        let per_second = jobs.len() as f64 / (last.max(SECOND) as f64 / SECOND as f64);
        Self {
            every: (scenario.plotted().div_ceil(240)).max(SECOND),
            series: Vec::new(),
            calls: [0; 2],
            overloads: 0,
            stream_overloads: 0,
            rate_limited: 0,
            waiting: 0,
            most_waiting: 0,
            drain: scenario.trouble_ends().map(|from| Drain {
                from,
                usual: ((USUAL_SECONDS * per_second) as i64).max(2),
                backlog: None,
                until: None,
                calls: 0,
                refused: 0,
            }),
            gate: GateFacts::default(),
        }
    }

    pub(crate) const fn sample_every(&self) -> Ms {
        self.every
    }

    /// So many more jobs wait, or fewer.
    pub(crate) fn waiting(&mut self, change: i64, now: Ms) {
        self.look_at_drain(now);
        self.waiting += change;
        self.most_waiting = self.most_waiting.max(self.waiting);
        self.look_at_drain(now);
    }

    pub(crate) fn began(&mut self, model: Model, now: Ms) {
        self.calls[model as usize] += 1;
        self.point(now).calls += 1;
        if let Some(drain) = self.draining(now) {
            drain.calls += 1;
        }
    }

    pub(crate) fn ended(&mut self, _model: Model, answer: Answer, now: Ms) {
        match answer {
            Answer::Message => return,
            Answer::Overloaded => {
                self.overloads += 1;
                if let Some(drain) = self.draining(now) {
                    drain.refused += 1;
                }
            }
            Answer::StreamOverload { .. } => self.stream_overloads += 1,
            Answer::RateLimited { .. } => self.rate_limited += 1,
        }
        self.point(now).refused += 1;
    }

    pub(crate) fn sample(&mut self, now: Ms, in_flight: u32) {
        let waiting = u32::try_from(self.waiting).unwrap_or_default();
        let point = self.point(now);
        (point.waiting, point.in_flight) = (waiting, in_flight);
        self.look_at_drain(now);
    }

    fn point(&mut self, now: Ms) -> &mut Point {
        let index = usize::try_from(now / self.every).unwrap().min(MOST_POINTS);
        if self.series.len() <= index {
            self.series.resize(index + 1, Point::default());
        }
        &mut self.series[index]
    }

    fn draining(&mut self, now: Ms) -> Option<&mut Drain> {
        self.drain.as_mut().filter(|drain| now >= drain.from && drain.until.is_none())
    }

    fn look_at_drain(&mut self, now: Ms) {
        let waiting = self.waiting;
        if let Some(drain) = self.draining(now) {
            let backlog = *drain.backlog.get_or_insert(waiting);
            if waiting <= drain.usual.max(backlog / 100) {
                drain.until = Some(now);
            }
        }
    }
}

/// What comes within these seconds may wait without being a backlog: the queues' own batching.
const USUAL_SECONDS: f64 = 3.0;
/// No scenario is plotted that far.
const MOST_POINTS: usize = 4_000;
