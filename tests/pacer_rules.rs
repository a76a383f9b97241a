//! The pacer, rule by rule (B9): what may start when, and what it makes of what answers say.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)] // a test may fail

use std::time::Duration;

use spillway::policy::pacer::Pacer;
use spillway::policy::rate_limits::{Limited, RateLimit, RateLimits, Used};
use spillway::policy::settings::PaceSettings;
use spillway::policy::time::Timestamp;

const FREE: PaceSettings =
    PaceSettings { calls_per_minute: None, burst: None, max_in_flight: None, start_in_flight: 8 };

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_760_000_000_000 + ms)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn limit(limit: u64, remaining: u64, reset_s: u64) -> Option<RateLimit> {
    Some(RateLimit { limit, remaining, reset_after: Duration::from_secs(reset_s) })
}

fn requests(of: u64, remaining: u64, reset_s: u64) -> RateLimits {
    RateLimits { requests: limit(of, remaining, reset_s), ..RateLimits::default() }
}

fn used(input_tokens: u64, output_tokens: u64) -> Option<Used> {
    Some(Used { input_tokens, output_tokens })
}

/// Requests left, to the whole one.
fn left(pacer: &Pacer, now_ms: u64) -> u64 {
    pacer.status(&FREE, at(now_ms)).limits[0].remaining
}

/// A pacer whose bucket of ten was full at 0 s, and the starts of calls since, each with how many.
fn of_ten(starts: &[(u64, u32)]) -> Pacer {
    let mut pacer = Pacer::default();
    pacer.note(&requests(10, 10, 0), at(0));
    for (start, calls) in starts {
        (0..*calls).for_each(|_| pacer.take(&FREE, at(*start)));
    }
    pacer
}

#[test]
fn calls_that_start_together_are_counted_once_each_in_whatever_order_they_hear_it() {
    for order in [(10..50).collect::<Vec<u64>>(), (10..50).rev().collect()] {
        let mut pacer = Pacer::default();
        (0..40).for_each(|_| pacer.take(&FREE, at(0)));
        for remaining in order {
            let said = RateLimits { begun_ago: ms(100), ..requests(50, remaining, 48) };
            pacer.note(&said, at(100));
            assert_eq!(pacer.status(&FREE, at(100)).limits[0].remaining, 10, "after {remaining} left");
        }
    }
}

#[test]
fn an_answer_bounds_what_is_left_from_both_sides() {
    // Calls start at 0, 1 and 5 s; the answer belongs to the one at 1 s, its headers came at 3 s, it is told at 6 s.
    let told = |remaining| {
        let mut pacer = Pacer::default();
        [0, 1_000, 5_000].into_iter().for_each(|start| pacer.take(&FREE, at(start)));
        let said = RateLimits { begun_ago: ms(5_000), came_ago: ms(3_000), ..requests(60, remaining, 60 - remaining) };
        pacer.note(&said, at(6_000));
        pacer.status(&FREE, at(6_000)).limits[0].remaining
    };
    // Others took a lot: 10 left at 3 s, 3 came back, one of ours was taken since.
    assert_eq!(told(10), 12);
    // As full as it can be: what we took ourselves has come back, but for what was taken just now.
    assert_eq!(told(60), 60);
    assert_eq!(told(58), 60);
}

#[test]
fn output_that_calls_on_their_way_will_still_write_is_not_forgotten_for_an_answer_that_cannot_know_it() {
    let mut pacer = Pacer::default();
    pacer.note(&RateLimits { used: used(0, 100), ..RateLimits::default() }, at(0));
    for (at_ms, begun_ago) in [(0, 0), (10_000, 9_000)] {
        let tokens = limit(1_000, 1_000, 0);
        let said =
            RateLimits { input_tokens: tokens, output_tokens: tokens, begun_ago: ms(begun_ago), ..requests(90, 90, 0) };
        pacer.note(&said, at(at_ms));
        (0..9).for_each(|_| pacer.take(&FREE, at(at_ms)));
    }
    let left = |of| pacer.status(&FREE, at(10_000)).limits.iter().find(|limit| limit.of == of).unwrap().remaining;
    assert_eq!((left(Limited::Requests), left(Limited::InputTokens)), (81, 991));
    // 900, of which 166 came back in ten seconds, and 900: none of it had been written when the answer came.
    assert_eq!(left(Limited::OutputTokens), 0);
    assert_eq!(pacer.stand(&FREE, at(10_000)), Err(ms(44_000)));
}

#[test]
fn news_that_is_older_than_what_is_known_changes_nothing_and_two_minutes_are_the_end() {
    let mut pacer = Pacer::default();
    pacer.note(&requests(10, 0, 600), at(10_000));
    pacer.note(&requests(10, 10, 0).later(ms(1_000)), at(10_500));
    assert_eq!(pacer.stand(&FREE, at(10_500)), Err(ms(59_500)));
    pacer.note(&requests(10, 0, 60).later(ms(120_000)), at(500_000));
    assert_eq!(pacer, Pacer::default(), "nothing is left of either");
    let slow = RateLimits { tokens: limit(10, 0, 600), used: used(10, 0), ..RateLimits::default() };
    pacer.note(&slow, at(500_000));
    assert_eq!(pacer.stand(&FREE, at(500_000)), Err(ms(120_000)));
    assert_eq!([619_999, 620_000].map(|ms| pacer.interval(&FREE, at(ms)).is_some()), [true, false]);
    assert_eq!([619_999, 620_000].map(|ms| pacer.status(&FREE, at(ms)).limits.len()), [1, 0]);
    assert_eq!(pacer.stand(&FREE, at(620_000)), Ok(()));
}

#[test]
fn of_two_answers_at_the_same_moment_the_second_counts_too() {
    let mut pacer = Pacer::default();
    [40, 30].into_iter().for_each(|remaining| pacer.note(&requests(60, remaining, 60 - remaining), at(0)));
    assert_eq!(left(&pacer, 0), 30);
}

#[test]
fn a_call_is_remembered_for_sixty_seconds_as_seconds_are_counted() {
    let mut pacer = Pacer::default();
    pacer.take(&FREE, at(0));
    for (now_ms, forgotten) in [(59_999, false), (60_000, true)] {
        pacer.stand(&FREE, at(now_ms)).unwrap();
        assert_eq!(pacer == Pacer::default(), forgotten, "{now_ms} ms");
    }
}

#[test]
fn calls_that_the_upstream_did_not_count_are_given_back_by_a_later_answer() {
    // Ten were refused with a 529, say; the call that began at 5 s hears nine left, itself counted.
    let mut pacer = of_ten(&[(0, 10), (5_000, 1)]);
    assert_eq!(left(&pacer, 5_000), 0);
    pacer.note(&requests(10, 9, 6), at(5_000));
    assert_eq!(left(&pacer, 5_000), 9);
}

#[test]
fn an_answer_whose_call_began_longer_ago_than_calls_are_remembered_gives_nothing_back() {
    let mut pacer = of_ten(&[(90_000, 10)]);
    pacer.note(&RateLimits { begun_ago: ms(80_000), ..requests(10, 10, 0) }, at(90_000));
    assert_eq!(left(&pacer, 90_000), 0);
}

#[test]
fn what_came_back_before_calls_started_is_not_given_to_them() {
    // The answer's bucket was full at 10 s and stayed full; eight calls started just now.
    let mut pacer = of_ten(&[(9_000, 1), (40_000, 8)]);
    pacer.note(&RateLimits { begun_ago: ms(31_000), came_ago: ms(30_000), ..requests(10, 10, 0) }, at(40_000));
    assert_eq!(left(&pacer, 40_000), 2);
}

#[test]
fn the_burst_comes_at_once_and_then_one_call_per_interval() {
    for (calls, burst, at_once, interval) in
        [(60, Some(3), 3, 1_000), (100, None, 10, 600), (5, None, 1, 12_000), (7, Some(1), 1, 8_572)]
    {
        let settings = PaceSettings { calls_per_minute: Some(calls), burst, ..FREE };
        let mut pacer = Pacer::default();
        for _ in 0..at_once {
            assert_eq!(pacer.stand(&settings, at(0)), Ok(()), "{calls}");
            pacer.take(&settings, at(0));
        }
        assert_eq!(pacer.stand(&settings, at(0)), Err(ms(interval)), "{calls}");
        assert_eq!(
            pacer.interval(&settings, at(0)).map(|wait| wait.as_micros().div_ceil(1_000)),
            Some(interval.into())
        );
    }
}

#[test]
fn nothing_set_and_nothing_heard_is_no_limit() {
    let mut pacer = Pacer::default();
    for _ in 0..10_000 {
        assert_eq!(pacer.stand(&FREE, at(0)), Ok(()));
        pacer.take(&FREE, at(0));
    }
    assert_eq!(pacer.interval(&FREE, at(0)), None);
    assert_eq!(pacer.status(&FREE, at(0)).calls_per_minute, None);
}

#[test]
fn settings_that_became_smaller_hold_nobody_for_what_the_old_ones_allowed() {
    let large = PaceSettings { calls_per_minute: Some(1_000), burst: Some(1_000), ..FREE };
    let small = PaceSettings { calls_per_minute: Some(1), burst: Some(1), ..FREE };
    let mut pacer = Pacer::default();
    (0..1_000).for_each(|_| pacer.take(&large, at(0)));
    assert_eq!(pacer.stand(&small, at(0)), Err(ms(120_000)));
    assert_eq!(pacer.stand(&FREE, at(0)), Ok(()));
    assert_eq!(pacer.stand(&small, at(0)), Ok(()), "the bucket was given up with its limit");
}

#[test]
fn what_is_left_starts_at_once_and_the_rest_as_the_bucket_refills() {
    for (said, at_once, then) in [
        // Plenty left, and a reset that is too coarse to be a rate.
        (requests(4_000, 3_999, 1), 3_999, 15),
        (requests(50, 0, 60), 0, 1_200),
        (requests(50, 10, 48), 10, 1_200),
        (requests(50, 0, 120), 0, 2_400),
    ] {
        let mut pacer = Pacer::default();
        pacer.note(&said, at(0));
        for call in 0..at_once {
            assert_eq!(pacer.stand(&FREE, at(0)), Ok(()), "{said:?}: {call}");
            pacer.take(&FREE, at(0));
        }
        assert_eq!(pacer.stand(&FREE, at(0)), Err(ms(then)), "{said:?}");
        assert_eq!(pacer.interval(&FREE, at(0)), Some(ms(then)), "{said:?}");
    }
}

#[test]
fn a_call_waits_until_the_bucket_has_enough_tokens_for_an_average_one() {
    let said = |input, left| RateLimits {
        input_tokens: limit(60_000, left, 60),
        output_tokens: limit(6_000, 3_000, 30),
        used: used(input, 1_000),
        ..RateLimits::default()
    };
    for (input, left, wait) in
        [(500, 500, Ok(())), (500, 400, Err(ms(100))), (500, 0, Err(ms(500))), (90_000, 0, Err(ms(60_000)))]
    {
        let mut pacer = Pacer::default();
        pacer.note(&said(input, left), at(0));
        assert_eq!(pacer.stand(&FREE, at(0)), wait, "{input} of {left}");
    }
    let mut pacer = Pacer::default();
    pacer.note(&said(500, 60_000), at(0));
    assert_eq!(pacer.interval(&FREE, at(0)), Some(ms(10_000)), "output is the tightest");
    let status = pacer.status(&FREE, at(0));
    assert_eq!((status.calls_per_minute, status.interval_ms, status.next_call_seconds), (Some(6), Some(10_000), None));
}

#[test]
fn until_a_call_s_use_is_known_only_a_dry_bucket_holds_it() {
    let dry = |tokens| RateLimits { tokens: limit(60_000, tokens, 60), ..RateLimits::default() };
    for (tokens, stand) in [(1, Ok(())), (0, Err(ms(1)))] {
        let mut pacer = Pacer::default();
        pacer.note(&dry(tokens), at(0));
        assert_eq!(pacer.stand(&FREE, at(0)), stand, "{tokens} left");
    }
}

#[test]
fn the_mean_follows_what_calls_use_by_an_eighth_each() {
    let mut pacer = Pacer::default();
    for (input, mean) in [(800, 800), (0, 700), (0, 613), (1_600, 736)] {
        pacer.note(&RateLimits { used: used(input, 0), ..RateLimits::default() }, at(0));
        assert_eq!(pacer.status(&FREE, at(0)).mean_use.map(|mean| mean.input_tokens), Some(mean));
    }
}

#[test]
fn a_limit_that_changes_is_the_new_one_and_one_that_cannot_be_is_none() {
    let mut pacer = Pacer::default();
    pacer.note(&requests(10, 20, 0), at(0));
    assert_eq!(pacer.status(&FREE, at(0)).limits, []);
    for limit in [60, 10, 90] {
        pacer.note(&requests(limit, limit, 0), at(0));
        assert_eq!(pacer.status(&FREE, at(0)).limits[0].limit, limit);
    }
}
