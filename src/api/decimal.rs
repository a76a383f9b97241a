//! Fractions in JSON.

use crate::json;

/// A number with digits after its point, which no formatter of floats has to write.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    millionths: u64,
}

impl json::ToJson for Decimal {
    fn write(&self, out: &mut String) {
        out.push_str(&(self.millionths / 1_000_000).to_string());
        let rest = (self.millionths % 1_000_000 + 1_000_000).to_string();
        let digits = rest.get(1..).unwrap_or_default().trim_end_matches('0');
        if !digits.is_empty() {
            out.push('.');
            out.push_str(digits);
        }
    }
}

/// So many millionths.
#[must_use]
pub const fn millionths(millionths: u64) -> Decimal {
    Decimal { millionths }
}

/// So many thousandths.
#[must_use]
pub const fn thousandths(value: u64) -> Decimal {
    Decimal { millionths: value.saturating_mul(1_000) }
}
