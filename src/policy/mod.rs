//! What Spillway decides: how long to wait, whether to call, when to stop. Pure code: no clock, no randomness of its own,
//! no I/O; every type that outlives an event is data that JSON can hold.

pub mod answer;
pub mod backoff;
pub mod breaker;
mod bucket;
pub mod cause;
pub mod deadline;
pub mod degraded;
pub mod demands;
pub mod dwell;
pub mod evidence;
pub mod fit;
pub mod forced;
pub mod gate;
pub mod hold;
pub mod hour_log;
pub mod hours;
pub mod inflight;
pub mod kinds;
pub mod ladder;
pub mod models;
pub mod pacer;
pub mod presets;
pub mod priority;
pub mod rate_limits;
pub mod retry_after;
pub mod served;
pub mod settings;
pub mod slots;
pub mod status;
pub mod time;
pub mod transition;
pub mod unguarded;
pub mod window;
pub mod wording;
