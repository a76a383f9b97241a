//! Numbers in SQLite.

use worker::SqlStorageValue;

/// A number, as far as one of JavaScript's can say it.
pub(super) fn number(value: u64) -> SqlStorageValue {
    i64::try_from(value).unwrap_or(i64::MAX).min(MAX_SAFE_INTEGER).into()
}

/// A sum may come back as a double.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sums of what was no larger when it came in"
)]
pub(super) fn whole_number(value: &SqlStorageValue) -> u64 {
    match value {
        SqlStorageValue::Integer(value) => u64::try_from(*value).unwrap_or_default(),
        SqlStorageValue::Float(value) => *value as u64,
        _ => 0,
    }
}

const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;
