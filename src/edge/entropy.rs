//! The one place where randomness comes from.

use super::clock;

/// 128 random bits; `None` if the platform has none to give.
pub(super) fn bits() -> Option<u128> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(u128::from_le_bytes(bytes))
}

/// A generator for jitter. Where there is no entropy the clock has to do: a bad spread is better than none.
pub(super) fn rng() -> fastrand::Rng {
    fastrand::Rng::with_seed(getrandom::u64().unwrap_or_else(|_| clock::now().as_millis()))
}

/// An id for a request of ours.
pub(super) fn request_id() -> String {
    format!("req_{:032x}", bits().unwrap_or_default())
}
