//! Those sections of `POLICY` that no inner ring has: each with its values, their ranges and their defaults.
//!
//! What a gate goes by is in `policy::settings`. The ranges are checked all in one place, by `Policy`.

use crate::json;
use crate::policy::backoff::Jitter;
use crate::policy::hours::Windows;
use crate::policy::settings::Backoff;

/// The limits of one call.
#[derive(Clone, Copy, Debug)]
pub struct CallSettings {
    /// The whole call. 1–780 s, default 480: a delivery has 840 s and starts no call with under 60 s left.
    pub total_seconds: u64,
    /// Until the response headers. 1–780 s, default 60.
    pub headers_seconds: u64,
    /// Silence in the stream. 1–780 s, default 60.
    pub idle_seconds: u64,
}

json::object!(only default CallSettings { total_seconds, headers_seconds, idle_seconds });

impl Default for CallSettings {
    fn default() -> Self {
        Self { total_seconds: 480, headers_seconds: 60, idle_seconds: 60 }
    }
}

/// Peak and off-peak hours, UTC: windows of whole hours such as `13-16`, `22-04` (over midnight) or `06-12,20-22`; `0-24` is
/// always, an empty text never.
#[derive(Clone, Copy, Debug)]
pub struct HourSettings {
    /// When one overload is enough to leave the primary (A11). Default `13-16` (A1: 78 % of their 529s).
    pub peak_utc: Windows,
    /// When what can wait is done (B9). Default `06-12`.
    pub off_peak_utc: Windows,
}

json::object!(only default HourSettings { peak_utc, off_peak_utc });

impl Default for HourSettings {
    fn default() -> Self {
        Self { peak_utc: Windows::between(13, 16), off_peak_utc: Windows::between(6, 12) }
    }
}

/// Deferral of exhausted jobs.
#[derive(Clone, Copy, Debug)]
pub struct DeferralSettings {
    /// How long the offer waits for an answer. 1–86,400 s, default 900.
    pub answer_seconds: u64,
    /// A deferral is at least this long. 0–86,400 s, default 14,400.
    pub at_least_seconds: u64,
}

json::object!(only default DeferralSettings { answer_seconds, at_least_seconds });

impl Default for DeferralSettings {
    fn default() -> Self {
        Self { answer_seconds: 900, at_least_seconds: 14_400 }
    }
}

/// The synchronous path.
#[derive(Clone, Copy, Debug)]
pub struct SyncSettings {
    /// The caller's patience if it does not say. 0–600 s, default 10.
    pub max_wait_seconds: u64,
}

json::object!(only default SyncSettings { max_wait_seconds });

impl Default for SyncSettings {
    fn default() -> Self {
        Self { max_wait_seconds: 10 }
    }
}

/// Live events.
#[derive(Clone, Copy, Debug)]
pub struct EventSettings {
    /// How long a stream may be silent before it shows that it lives. 1–30 s (clients take more for a dead line), default 15.
    pub heartbeat_seconds: u64,
    /// How long it lives; its reader goes on with another one. 1–3,600 s, default 300.
    pub life_seconds: u64,
}

json::object!(only default EventSettings { heartbeat_seconds, life_seconds });

impl Default for EventSettings {
    fn default() -> Self {
        Self { heartbeat_seconds: 15, life_seconds: 300 }
    }
}

/// What the operator is told of.
#[derive(Clone, Copy, Debug)]
pub struct AlertSettings {
    /// After a message about a subject (a gate, an objective …) there is no other for so long. 1–86,400 s, default 600.
    pub quiet_seconds: u64,
}

json::object!(only default AlertSettings { quiet_seconds });

impl Default for AlertSettings {
    fn default() -> Self {
        Self { quiet_seconds: 600 }
    }
}

/// Webhooks to the app.
#[derive(Clone, Copy, Debug)]
pub struct WebhookSettings {
    /// How long a receiver may take to answer. 1–60 s (the object's time costs), default 15.
    pub timeout_seconds: u64,
    /// How long an event is tried for. 1–604,800 s, default 86,400; no longer than the job is kept.
    pub give_up_seconds: u64,
    /// The waits between tries. Default: base 5 s, cap 2 h, equal jitter: about 25 tries in a day.
    pub backoff: Backoff,
}

json::object!(only default WebhookSettings { timeout_seconds, give_up_seconds, backoff });

impl Default for WebhookSettings {
    fn default() -> Self {
        let backoff = Backoff { base_ms: 5_000, cap_ms: 7_200_000, jitter: Jitter::Equal };
        Self { timeout_seconds: 15, give_up_seconds: 86_400, backoff }
    }
}
