//! What one permit decision costs: `cargo bench --bench permit` prints it, for an empty gate, a busy one and a shut one with a
//! hundred thousand jobs asleep. It has to be under 20 µs; storing the state is measured apart.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a benchmark reads the clock")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a benchmark may panic")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use spillway::policy::answer::{Asking, Ended, PermitId, Report};
use spillway::policy::cause::Cause;
use spillway::policy::gate::Gate;
use spillway::policy::priority::Priority;
use spillway::policy::rate_limits::{RateLimit, RateLimits};
use spillway::policy::settings::{BackoffSettings, GateSettings, PaceSettings};
use spillway::policy::time::Timestamp;

const T0: Timestamp = Timestamp::from_millis(1_760_000_000_000);

fn at(ms: u64) -> Timestamp {
    T0 + Duration::from_millis(ms)
}

fn asking(job: u64) -> Asking {
    Asking { priority: Priority::ALL[(job % 3) as usize], dwell_ms: Some(job), ..Asking::default() }
}

fn ended(permit: PermitId, report: Report) -> Ended {
    let limit = RateLimit { limit: 1_000_000, remaining: 900_000, reset_after: Duration::from_secs(6) };
    let limits = RateLimits { requests: Some(limit), input_tokens: Some(limit), ..RateLimits::default() };
    Ended { permit: Some(permit), asking: Asking::default(), report, limits, backoff: BackoffSettings::default() }
}

/// A gate with 400 calls on their way, and a past.
fn busy(settings: &GateSettings) -> Gate {
    let (mut gate, mut rng) = (Gate::default(), fastrand::Rng::with_seed(1));
    for call in 0..20_000 {
        if let Some(permit) = gate.permit(asking(call), at(call), settings).permit() {
            gate.content(permit, &RateLimits::default(), at(call), settings);
            if call % 50 > 0 {
                gate.report(&ended(permit, Report::Success), at(call), &mut rng, settings);
            }
        }
    }
    gate
}

/// A gate that is shut, with a hundred thousand jobs asleep.
fn shut(settings: &GateSettings) -> Gate {
    let (mut gate, mut rng) = (busy(settings), fastrand::Rng::with_seed(1));
    let overload = Report::Failure { cause: Cause::Overloaded, after_content: false, retry_after: None };
    for call in 0..100_000 {
        if let Some(permit) = gate.permit(asking(call), at(21_000), settings).permit() {
            gate.report(&ended(permit, overload), at(21_000), &mut rng, settings);
        }
    }
    gate
}

/// The median of 2,001 runs of `work`, each on a fresh copy.
fn median(gate: &Gate, work: impl Fn(&mut Gate)) -> Duration {
    let mut times: Vec<Duration> = (0..2_001)
        .map(|_| {
            let mut gate = gate.clone();
            let began = Instant::now();
            work(&mut gate);
            began.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

fn main() {
    let pace = PaceSettings { start_in_flight: 512, calls_per_minute: Some(1_000_000), ..PaceSettings::default() };
    let settings = GateSettings { pace, ..GateSettings::default() };
    println!("{:<28}{:>12}{:>12}{:>12}", "gate", "permit", "store", "bytes");
    for (name, gate) in [("empty", Gate::default()), ("busy", busy(&settings)), ("shut", shut(&settings))] {
        let permit = median(&gate, |gate| {
            black_box(gate.permit(black_box(asking(1)), at(21_000), &settings));
        });
        let store = median(&gate, |gate| {
            black_box(spillway::json::write(gate));
        });
        let bytes = spillway::json::write(&gate).len();
        println!("{name:<28}{:>12}{:>12}{bytes:>12}", format!("{permit:.1?}"), format!("{store:.1?}"));
    }
}
