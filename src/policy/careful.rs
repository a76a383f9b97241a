//! Feeling for the limit, after a cut: by one after two windows (as many successes as the limit is high), then by one, two,
//! four … per window, until the next cut, and never by more than a quarter at once.
//!
//! At the upstream's limit that is one refusal in twice as many calls as it bears; when the limit has been lifted, it is found in
//! minutes.

use crate::json;

/// How far the limit has been felt for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Careful {
    /// Successes since the last step.
    successes: u32,
    /// How far the next step goes; 0 for the first after a cut.
    step: u32,
}

json::object!(default Careful { successes, step });

impl Careful {
    /// A success at `limit`; by how much that rises, if its window is full. Windows are `times` as long.
    pub fn succeed(&mut self, limit: u32, times: u32) -> Option<u32> {
        let windows = if self.step == 0 { 2 } else { 1 };
        self.successes = self.successes.saturating_add(1);
        if self.successes < limit.saturating_mul(windows).saturating_mul(times) {
            return None;
        }
        let (step, next) = if self.step == 0 { (1, 1) } else { (self.step, self.step.saturating_mul(2)) };
        *self = Self { successes: 0, step: next.min(limit.div_ceil(4)) };
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_double_from_window_to_window_up_to_a_quarter() {
        let (mut careful, mut limit, mut steps) = (Careful::default(), 20, Vec::new());
        for success in 1..=250_u32 {
            if let Some(step) = careful.succeed(limit, 1) {
                limit += step;
                steps.push((success, step));
            }
        }
        assert_eq!(steps, [(40, 1), (61, 1), (83, 2), (107, 4), (135, 6), (169, 7), (210, 9)]);
    }

    #[test]
    fn a_ramp_that_is_too_steep_takes_four_times_as_long() {
        let mut careful = Careful::default();
        assert_eq!((1..=80).find(|_| careful.succeed(10, 4).is_some()), Some(80));
    }
}
