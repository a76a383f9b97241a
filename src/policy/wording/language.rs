//! Which language a message is in.
//!
//! 1. The job's own `locale`: the app knows its user better than the HTTP library that asks for the status.
//! 2. The reader's `Accept-Language` (RFC 9110, 12.5.4), the best weight first, and the earlier of two that are equal. A range
//!    with weight 0 rules out what it covers. `*` stands for any language that no other range names: English if it can be.
//! 3. English.
//!
//! A range finds a text as RFC 4647, 3.4 has it: it loses subtags from its end until there is a text, so that `ja-JP` is
//! Japanese. What is neither a tag nor a weight is passed over: a header is no reason to refuse a request.
//!
//! **Chinese** is a macrolanguage with two scripts, of which `zh` alone names neither. Simplified is what most readers of
//! `zh`, `zh-CN` and `zh-SG` expect. For `zh-Hant`, `zh-TW`, `zh-HK` and `zh-MO` it is the best there is until the deployment
//! adds a `zh-Hant`: a reader of Traditional characters is better served by Simplified ones than by English.

/// The language of last resort.
pub const DEFAULT: &str = "en";

/// The best of the `available` languages.
#[must_use]
pub fn negotiate<'a>(locale: Option<&str>, accept_language: Option<&str>, available: &[&'a str]) -> &'a str {
    locale
        .and_then(|locale| lookup(locale, available))
        .or_else(|| accepted(accept_language.unwrap_or_default(), available))
        .unwrap_or(DEFAULT)
}

/// Whether `tag` can be a language tag (BCP 47): one to eight letters or digits, as often as you like with a hyphen between.
#[must_use]
pub fn is_tag(tag: &str) -> bool {
    tag.len() <= MAX_TAG_BYTES
        && tag
            .split('-')
            .all(|part| (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// The tags under which a text for `tag` may be found, the nearest first.
pub(super) fn steps(tag: &str) -> Vec<&str> {
    let mut steps = Vec::new();
    let mut rest = tag;
    while let Some((shorter, last)) = rest.rsplit_once('-') {
        // A single letter only says what kind of subtag follows it.
        if last.len() > 1 {
            steps.push(rest);
        }
        rest = shorter;
    }
    let is_chinese = rest.eq_ignore_ascii_case("zh");
    if is_chinese && is_traditional(tag) {
        steps.push("zh-Hant");
    }
    steps.push(rest);
    if is_chinese {
        steps.push("zh-Hans");
    }
    steps
}

/// A script stands before a region, and says more.
fn is_traditional(tag: &str) -> bool {
    const TELLING: [(&str, bool); 5] = [("hans", false), ("hant", true), ("tw", true), ("hk", true), ("mo", true)];
    let tells = |part: &str| TELLING.iter().find(|(known, _)| known.eq_ignore_ascii_case(part)).map(|(_, is)| *is);
    tag.split('-').find_map(tells).unwrap_or_default()
}

fn lookup<'a>(tag: &str, available: &[&'a str]) -> Option<&'a str> {
    steps(tag).into_iter().find_map(|step| available.iter().find(|known| known.eq_ignore_ascii_case(step)).copied())
}

fn accepted<'a>(header: &str, available: &[&'a str]) -> Option<&'a str> {
    let mut ranges: Vec<(&str, u32)> = Vec::new();
    for (range, weight) in header.split(',').take(MAX_RANGES).filter_map(range) {
        // The library's sort would be half a kilobyte of the Worker.
        let at = ranges.iter().position(|(_, other)| *other < weight).unwrap_or(ranges.len());
        ranges.insert(at, (range, weight));
    }
    let is_named =
        |language: &str, below: u32| ranges.iter().any(|(range, weight)| *weight < below && covers(range, language));
    ranges.iter().filter(|(_, weight)| *weight > 0).find_map(|(range, _)| {
        if *range == "*" {
            let english = available.iter().find(|language| **language == DEFAULT);
            english.into_iter().chain(available).find(|language| !is_named(language, u32::MAX)).copied()
        } else {
            lookup(range, available).filter(|language| !is_named(language, 1))
        }
    })
}

/// A range and its weight in thousandths.
fn range(element: &str) -> Option<(&str, u32)> {
    let (range, parameters) = element.split_once(';').unwrap_or((element, ""));
    let range = range.trim();
    let weight = match parameters.trim() {
        "" => 1_000,
        parameter => thousandths(parameter.strip_prefix(['q', 'Q'])?.trim_start().strip_prefix('=')?.trim())?,
    };
    (range == "*" || is_tag(range)).then_some((range, weight))
}

/// A weight from 0 to 1 with at most three decimals.
fn thousandths(weight: &str) -> Option<u32> {
    let (whole, decimals) = weight.split_once('.').unwrap_or((weight, ""));
    let is_weight = matches!(whole, "0" | "1") && decimals.len() <= 3 && decimals.bytes().all(|c| c.is_ascii_digit());
    let value = format!("{whole}{decimals:0<3}").parse().ok()?;
    (is_weight && value <= 1_000).then_some(value)
}

/// Whether `language` is the range's own or a narrower one (RFC 4647, 3.3.1).
fn covers(range: &str, language: &str) -> bool {
    language
        .split_at_checked(range.len())
        .is_some_and(|(start, rest)| start.eq_ignore_ascii_case(range) && (rest.is_empty() || rest.starts_with('-')))
}

const MAX_TAG_BYTES: usize = 35;
/// A person speaks fewer; a header may have thousands.
const MAX_RANGES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OURS: [&str; 3] = ["en", "ja", "zh-Hans"];

    #[test]
    fn the_locale_wins_if_there_is_a_text_for_it() {
        for (locale, accept_language, expected) in [
            ("ja", None, "ja"),
            ("ja-JP", Some("en"), "ja"),
            ("JA-jp-x-kansai", None, "ja"),
            ("en-GB", Some("ja"), "en"),
            ("zh", None, "zh-Hans"),
            ("zh-CN", None, "zh-Hans"),
            ("zh-SG", None, "zh-Hans"),
            ("zh-Hans-CN", None, "zh-Hans"),
            ("ZH-HANS", None, "zh-Hans"),
            ("zh-TW", Some("en"), "zh-Hans"),
            ("zh-Hant-HK", None, "zh-Hans"),
            ("fr", None, "en"),
            ("fr", Some("ja"), "ja"),
            ("jam", None, "en"),
            ("", Some("ja"), "ja"),
            ("-", None, "en"),
        ] {
            assert_eq!(negotiate(Some(locale), accept_language, &OURS), expected, "{locale} {accept_language:?}");
        }
    }

    #[test]
    fn without_a_locale_the_header_decides_by_weight_and_then_by_order() {
        for (header, expected) in [
            ("", "en"),
            ("ja", "ja"),
            ("ja-JP,ja;q=0.9,en;q=0.8", "ja"),
            ("zh-CN,zh;q=0.9,en;q=0.8", "zh-Hans"),
            ("zh-TW,zh;q=0.9,en-US;q=0.8", "zh-Hans"),
            ("en;q=0.8, ja;q=0.9", "ja"),
            ("en;q=0.8, ja;q=0.80, zh;q=0.800", "en"),
            ("fr, de;q=0.9, ja;q=0.001", "ja"),
            ("fr", "en"),
            (" ja ; Q = 0.5 ,\tzh", "zh-Hans"),
            ("ja;q=1.000", "ja"),
            (",, ,ja", "ja"),
        ] {
            assert_eq!(negotiate(None, Some(header), &OURS), expected, "{header}");
        }
        assert_eq!(negotiate(None, None, &OURS), "en");
    }

    #[test]
    fn a_weight_of_nothing_rules_out_what_its_range_covers() {
        for (header, expected) in [
            ("ja;q=0", "en"),
            ("ja;q=0, ja-JP", "en"),
            ("ja;q=0.000, zh;q=0.1", "zh-Hans"),
            ("zh;q=0, *", "en"),
            ("en;q=0, *", "ja"),
            ("en;q=0, ja;q=0.0, *;q=0.1", "zh-Hans"),
            ("*;q=0", "en"),
            ("*;q=0, zh", "zh-Hans"),
            ("ja-JP;q=0", "en"),
            ("en;q=0, *;q=0", "en"),
            // Of a language that we have in one form, another form was ruled out.
            ("zh-TW;q=0, zh", "zh-Hans"),
        ] {
            assert_eq!(negotiate(None, Some(header), &OURS), expected, "{header}");
        }
    }

    #[test]
    fn a_star_is_any_language_that_is_not_named_and_english_if_it_can_be() {
        for (header, expected) in [
            ("*", "en"),
            ("fr, *;q=0.5", "en"),
            ("ja;q=0.5, *", "en"),
            ("en;q=0.5, *", "ja"),
            ("ja, *;q=0.5", "ja"),
            ("*;q=0.2, zh;q=0.3", "zh-Hans"),
        ] {
            assert_eq!(negotiate(None, Some(header), &OURS), expected, "{header}");
        }
    }

    #[test]
    fn what_is_no_range_is_passed_over() {
        for header in [
            "ja;q=2",
            "ja;q=1.001",
            "ja;q=.5",
            "ja;q=0.1234",
            "ja;q=-1",
            "ja;q=",
            "ja;q",
            "ja;level=1",
            "ja_JP",
            "j?",
            "日本語",
            "ja;q=0.5;q=1",
            "ja-",
            "ja-abcdefghi",
        ] {
            assert_eq!(negotiate(None, Some(&format!("{header}, zh;q=0.1")), &OURS), "zh-Hans", "{header}");
        }
    }

    #[test]
    fn the_nearest_of_several_is_taken() {
        let available = ["en", "ja", "zh-Hans", "zh-Hant", "en-GB", "fr", "fr-CA"];
        for (tag, expected) in [
            ("en-GB-oxendict", "en-GB"),
            ("en-US", "en"),
            ("fr-CA", "fr-CA"),
            ("fr-x-ca", "fr"),
            ("zh-TW", "zh-Hant"),
            ("zh-HK", "zh-Hant"),
            ("zh-MO", "zh-Hant"),
            ("zh-Hant-SG", "zh-Hant"),
            ("zh-Hans-HK", "zh-Hans"),
            ("zh", "zh-Hans"),
        ] {
            assert_eq!(negotiate(Some(tag), None, &available), expected, "{tag}");
            assert_eq!(negotiate(None, Some(tag), &available), expected, "{tag}");
        }
        assert_eq!(negotiate(Some("zh-TW"), None, &["en", "zh-TW", "zh-Hant"]), "zh-TW");
        assert_eq!(negotiate(Some("fr-x-ca"), None, &["en", "fr-x", "fr"]), "fr", "a single letter is no language");
    }

    #[test]
    fn a_tag_is_letters_and_digits_with_hyphens_between() {
        for tag in ["en", "zh-Hans-CN", "x-klingon", "de-1996"] {
            assert!(is_tag(tag), "{tag}");
        }
        for tag in ["", "-", "en-", "en_GB", "*", "toolongword", "é", &"ab-".repeat(12)] {
            assert!(!is_tag(tag), "{tag}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_the_answer_is_an_available_language(locale in any::<Option<String>>(), header in "[-*;,=q.01 a-jéZH]{0,80}") {
            prop_assert!(OURS.contains(&negotiate(locale.as_deref(), Some(&header), &OURS)));
        }
    }
}
