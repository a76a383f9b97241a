//! `POLICY`: every number has its range, every key is known, and whatever is wrong is named.

use spillway::config::{Config, Fault, Policy};

use super::config_with;

fn faults(json: &str) -> Vec<String> {
    Policy::parse(json).err().unwrap_or_default().iter().map(Fault::to_string).collect()
}

/// Path, least, most.
const RANGES: [(&str, u64, u64); 35] = [
    ("max_attempts", 1, 100),
    ("max_calls", 1, 1_000),
    ("max_deferrals", 0, 10),
    ("deadline_seconds", 30, 604_800),
    ("retention_seconds", 60, 2_592_000),
    ("lease_seconds", 1, 900),
    ("watchdog_seconds", 1, 86_400),
    ("spend_cap_retry_seconds", 1, 86_400),
    ("long_wait_seconds", 1, 86_400),
    ("call.total_seconds", 1, 780),
    ("call.headers_seconds", 1, 780),
    ("call.idle_seconds", 1, 780),
    ("breaker.window_seconds", 1, 3_600),
    ("breaker.minimum_calls", 1, 10_000),
    ("breaker.failure_rate_percent", 1, 100),
    ("breaker.confidence_z", 0, 10),
    ("breaker.consecutive_seconds", 0, 3_600),
    ("breaker.consecutive_hard", 5, 10_000),
    ("breaker.open_seconds", 1, 3_600),
    ("breaker.open_jitter_percent", 0, 90),
    ("breaker.probe_lease_seconds", 1, 3_600),
    ("backoff.rate_limited.cap_ms", 1_000, 86_400_000),
    ("backoff.overloaded.cap_ms", 2_000, 86_400_000),
    ("backoff.transient.cap_ms", 1_000, 86_400_000),
    ("backoff.rate_limited.base_ms", 1, 30_000),
    ("backoff.overloaded.base_ms", 1, 120_000),
    ("pace.calls_per_minute", 1, 1_000_000),
    ("pace.burst", 1, 100_000),
    ("pace.max_in_flight", 1, 512),
    ("pace.start_in_flight", 1, 512),
    ("degraded.consecutive_overloads", 1, 1_000),
    ("degraded.retry_seconds", 1, 86_400),
    ("deferral.answer_seconds", 1, 86_400),
    ("deferral.at_least_seconds", 0, 86_400),
    ("sync.max_wait_seconds", 0, 600),
];

/// `{"a":{"b":value}}` for `a.b`.
fn nested(path: &str, value: &str) -> String {
    path.rsplit('.').fold(value.to_owned(), |inner, key| format!(r#"{{"{key}":{inner}}}"#))
}

#[test]
fn every_number_is_taken_from_its_least_to_its_most_and_no_further() {
    for (path, least, most) in RANGES {
        for value in [least, most] {
            assert_eq!(faults(&nested(path, &value.to_string())), [""; 0], "{path} = {value}");
        }
        let below = least.checked_sub(1).map(|value| value.to_string());
        for value in below.into_iter().chain([(most + 1).to_string()]) {
            let found = faults(&nested(path, &value));
            // A base above its cap is said of the cap.
            let section = path.rsplit_once('.').map_or(path, |(section, _)| section);
            assert_eq!(found.len(), 1, "{path} = {value}: {found:?}");
            assert!(
                found.iter().all(|fault| fault.starts_with(&format!("POLICY.{section}"))),
                "{path} = {value}: {found:?}"
            );
        }
    }
}

#[test]
fn every_number_refuses_text_and_fractions_and_says_where() {
    for (path, ..) in RANGES {
        for value in [r#""7""#, "true", "-1"] {
            let found = faults(&nested(path, value)).join("; ");
            assert!(found.starts_with(&format!("POLICY.{path}: ")), "{path} = {value}: {found}");
        }
    }
    assert_eq!(faults(r#"{"breaker":{"confidence_z":2.5}}"#), [""; 0], "the one that may be a fraction");
    assert!(faults(r#"{"max_attempts":2.5}"#).join("").starts_with("POLICY.max_attempts: "));
}

#[test]
fn an_unknown_key_is_refused_by_its_path_on_every_level() {
    for path in [
        "max_attempt",
        "call.total",
        "breaker.open_secs",
        "backoff.overload",
        "backoff.overloaded.base",
        "pace.calls",
        "degraded.x",
        "hours.night",
        "deferral.x",
        "sync.x",
        "kinds.poem.colour",
        "models.claude-haiku-4-5.colour",
        "messages.en.delaid",
    ] {
        let found = faults(&nested(path, "1")).join("; ");
        assert!(found.starts_with(&format!("POLICY.{path}: ")) && found.contains("unknown"), "{path}: {found}");
    }
}

#[test]
fn a_kinds_name_and_its_models_are_such_as_can_be_called() {
    for (kinds, key) in [
        (r#"{"a":{"primary_model":""}}"#, "POLICY.kinds.a.primary_model: must be a model id"),
        (r#"{"a":{"fallback_model":"x y"}}"#, "POLICY.kinds.a.fallback_model: must be a model id"),
        (r#"{"":{}}"#, "POLICY.kinds: its name must be 1 to 64 visible ASCII characters"),
        (r#"{"a b":{}}"#, "POLICY.kinds: its name must be 1 to 64 visible ASCII characters"),
    ] {
        assert_eq!(faults(&format!(r#"{{"kinds":{kinds}}}"#)), [key], "{kinds}");
    }
    assert_eq!(faults(r#"{"kinds":{"a":{"primary_model":"any/model:1@x"}}}"#), [""; 0]);
}

#[test]
fn all_faults_are_named_at_once() {
    let found =
        faults(r#"{"max_attempts":0,"call":{"idle_seconds":0},"breaker":{"open_seconds":0},"hours":{"peak_utc":"x"}}"#);
    assert_eq!(
        found,
        [
            concat!(
                r#"POLICY.hours.peak_utc: must be hours from 0 to 24, as "13-16", "22-04" or "06-12,20-22"; "#,
                r#""0-24" is always, "" is never"#
            ),
            "POLICY.max_attempts: must be from 1 to 100",
            "POLICY.call.idle_seconds: must be from 1 to 780",
            "POLICY.breaker.open_seconds: must be from 1 to 3600, is 0",
        ]
    );
}

#[test]
fn hours_are_windows_of_whole_hours() {
    for hours in ["13-16", "0-24", "22-6", " 1 - 2 ", "06-12,20-22", ""] {
        assert_eq!(faults(&nested("hours.peak_utc", &format!("\"{hours}\""))), [""; 0], "{hours}");
    }
    for hours in ["13", "13-13", "6-12,", "13-25", "-1-3", "a-b", "13-16-18"] {
        assert_eq!(faults(&nested("hours.off_peak_utc", &format!("\"{hours}\""))).len(), 1, "{hours}");
    }
}

#[test]
fn messages_are_texts_that_can_be_read_by_codes_that_exist() {
    for (messages, fault) in [
        (r#"{"en":{"delayed":"Hold on."},"fr":{"done":"C'est prêt."},"pt-BR":{}}"#, ""),
        (r#"{"en":{"delayed":""}}"#, "POLICY.messages.en.delayed: must be a text of 1 to 500 characters"),
        (r#"{"en":{"delayed":7}}"#, "POLICY.messages.en.delayed: must be a string"),
        (r#"{"en":{"later":"x"}}"#, "POLICY.messages.en.later: is an unknown field; there are received, working,"),
        (r#"{"en":"x"}"#, "POLICY.messages.en: must be a JSON object"),
        (r#"{"pt_BR":{}}"#, "POLICY.messages.pt_BR: must be a BCP 47 language tag"),
        (r#"{"FR":{},"fr":{}}"#, "POLICY.messages.fr: is the same language as FR"),
    ] {
        let found = faults(&nested("messages", messages));
        assert_eq!(found.len(), usize::from(!fault.is_empty()), "{messages}: {found:?}");
        assert!(found.join("; ").starts_with(fault), "{messages}: {found:?}");
    }
    let long = format!(r#"{{"messages":{{"en":{{"done":"{}"}}}}}}"#, "x".repeat(501));
    assert!(faults(&long).join("").starts_with("POLICY.messages.en.done: "));
}

#[test]
fn vars_have_their_rules_too_and_an_empty_one_is_none() {
    for (key, value, is_valid) in [
        ("ANTHROPIC_BASE_URL", "http://127.0.0.1:4010", true),
        ("ANTHROPIC_BASE_URL", "https://gateway.example/v1/x/anthropic/", true),
        ("ANTHROPIC_BASE_URL", "api.anthropic.com", false),
        ("ANTHROPIC_BASE_URL", "https://", false),
        ("ANTHROPIC_BASE_URL", "https:///x", false),
        ("ANTHROPIC_BASE_URL", "https://a b", false),
        ("ANTHROPIC_BASE_URL", "https://a#b", false),
        ("ANTHROPIC_BASE_URL", "https://a/b?c=d", false),
        ("ANTHROPIC_BASE_URL", "https://user:pw@a", false),
        ("ANTHROPIC_API_KEY", "sk-1\nsk-2", false),
        ("ANTHROPIC_API_KEY", "sk-1\n", true),
        ("PRIMARY_MODEL", "claude-opus-5-5", true),
        ("PRIMARY_MODEL", "two words", false),
        ("FALLBACK_MODEL", "two words", false),
        ("CLIENT_KEYS", "app:k1,app:k2", true),
        ("CLIENT_KEYS", "k1", false),
        ("CLIENT_KEYS", "app:k1,bob:k1", false),
        ("CLIENT_KEYS", "", true),
        ("POLICY", "", true),
        ("POLICY", "{", false),
        ("POLICY", "[]", false),
    ] {
        let parsed = Config::parse(|name| (name == key).then(|| value.to_owned()));
        let found: Vec<String> = parsed.err().unwrap_or_default().into_iter().map(|fault| fault.key).collect();
        let expected = if is_valid { vec![] } else { vec![key.to_owned()] };
        assert_eq!(found, expected, "{key} = {value}");
    }
}

#[test]
fn what_is_set_is_what_counts() {
    let config = config_with(|name| match name {
        "ANTHROPIC_BASE_URL" => Some(" https://gateway.example/a/ "),
        "PRIMARY_MODEL" => Some("claude-opus-5-5"),
        "POLICY" => Some(r#"{"kinds":{"poem":{"fallback":true}},"lease_seconds":3,"spend_cap_retry_seconds":2}"#),
        _ => None,
    });
    assert_eq!(
        (config.base_url.as_str(), config.primary_model.as_str()),
        ("https://gateway.example/a", "claude-opus-5-5")
    );
    assert!(config.kinds.get("poem").is_some() && config.kinds.get("tagging").is_some());
    assert_eq!((config.policy.gate().lease_seconds, config.policy.gate().spend_cap_retry_seconds), (3, 2));
    assert_eq!(config.policy.timing().lease.as_secs(), 3);
}

#[test]
fn a_model_is_changed_value_by_value_and_a_new_one_has_its_limits() {
    let config = config_with(|name| match name {
        "POLICY" => Some(
            r#"{"models":{"claude-haiku-4-5":{"context_tokens":100000},
                "mine":{"context_tokens":9,"output_tokens":3,"adaptive_thinking":true,"features":["inference_geo"]}}}"#,
        ),
        _ => None,
    });
    let limits = |model: &str| config.models.get(model).map(|row| (row.context_tokens, row.output_tokens));
    assert_eq!(limits("claude-haiku-4-5-20251001"), Some((100_000, 64_000)));
    assert_eq!(limits("claude-haiku-5-5"), Some((1_000_000, 128_000)));
    assert_eq!(limits("mine"), Some((9, 3)));
    assert_eq!(limits("yours"), None);
    for row in [r#"{"context_tokens":9}"#, r#"{"output_tokens":9}"#, "{}"] {
        let found = faults(&format!(r#"{{"models":{{"mine":{row}}}}}"#));
        assert_eq!(found, ["POLICY.models.mine: its context_tokens and output_tokens must be above 0"]);
    }
    assert_eq!(faults(r#"{"models":{"claude-haiku-4-5":{"output_tokens":0}}}"#).len(), 1);
    assert!(faults(r#"{"models":7}"#).join("").starts_with("POLICY.models: must be a JSON object"));
}
