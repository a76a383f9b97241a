//! The rules of [`MessagesRequest::parse`](super::MessagesRequest::parse).

use proptest::prelude::*;

use super::*;

fn parse(json: &str) -> Result<MessagesRequest, Vec<Problem>> {
    MessagesRequest::parse(json, "request")
}

/// The problems as "place: message".
fn problems(json: &str) -> Vec<String> {
    let problems = parse(json).err().unwrap_or_default();
    problems.into_iter().map(|problem| format!("{}: {}", problem.place, problem.message)).collect()
}

/// A valid body with `members` added.
fn with(members: &str) -> String {
    format!(r#"{{"max_tokens":1,"messages":[{{"role":"user","content":"Hi"}}],{members}}}"#)
}

fn with_messages(messages: &str) -> String {
    format!(r#"{{"max_tokens":1,"messages":{messages}}}"#)
}

#[test]
fn all_but_model_and_stream_goes_upstream_byte_for_byte_and_in_order() {
    let body = r#" { "system" : [ {"type":"text", "text":"\u00e9\/"} ], "model":"claude-x","temperature":1.0e0,
        "max_tokens": 1024 , "zzz":{"b":12345678901234567890123,"a":[ ]},"stream":false,"messages":[ {"content":"Hi","role":"user"} ]} "#;
    let request = parse(body).unwrap();
    assert_eq!(request.model.as_deref(), Some("claude-x"));
    assert_eq!(request.max_tokens, 1024);
    let call = call_body_prefix("claude-\"y\"", true) + &request.body_rest + "}";
    assert_eq!(
        call,
        concat!(
            r#"{"model":"claude-\"y\"","stream":true,"#,
            r#""system":[ {"type":"text", "text":"\u00e9\/"} ],"temperature":1.0e0,"max_tokens":1024,"#,
            r#""zzz":{"b":12345678901234567890123,"a":[ ]},"messages":[ {"content":"Hi","role":"user"} ]}"#
        )
    );
}

#[test]
fn every_problem_is_reported_at_once_with_its_place() {
    let body = r#"{"model":"","stream":1,"temperature":"hot","max_tokens":0,"tools":{},"system":7,"messages":[
        {"role":"user","content":"Hi"},
        {"role":"robot","content":[]},
        {"role":"user","content":[{"type":"text"},{"text":"?"},"x",{"type":3}]},
        "Hi",
        {},
        {"role":"user","content":7}],"system":""}"#;
    assert_eq!(
        problems(body),
        [
            "request.model: must be the id of a model, of 1 to 200 visible ASCII characters",
            "request.stream: must be true or false",
            "request.temperature: must be a number",
            "request.max_tokens: must be a whole number, at least 1",
            "request.tools: must be an array",
            "request.system: must be a string or an array",
            r#"request.messages[1].role: must be "user", "assistant" or "system""#,
            "request.messages[1].content: must not be empty",
            "request.messages[2].content[1].type: must be a string",
            "request.messages[2].content[2]: must be a JSON object",
            "request.messages[2].content[3].type: must be a string",
            "request.messages[3]: must be a JSON object",
            r#"request.messages[4].role: must be "user", "assistant" or "system""#,
            "request.messages[4].content: is missing",
            "request.messages[5].content: must be a string or an array",
            "request.system: appears twice",
        ]
    );
    assert_eq!(problems("{}"), ["request.messages: is missing", "request.max_tokens: is missing"]);
}

#[test]
fn a_body_that_is_no_object_is_one_problem_and_none_of_it_is_quoted() {
    for body in ["", " ", "[]", "7", "null", r#""secret""#, "nul", "\u{0}"] {
        assert_eq!(problems(body), ["request: must be a JSON object"], "{body}");
    }
    for body in [
        "{",
        r#"{"secret"}"#,
        r#"{"max_tokens":1,}"#,
        r#"{"max_tokens":1} secret"#,
        "{\"secret\":\"\u{0}\"}",
        r#"{"secret":"\ud83d}"#,
        r#"{"\ud83d":"secret"}"#,
        r#"{"secret":"\x"}"#,
        r#"{"max_tokens":NaN}"#,
    ] {
        let problems = problems(body);
        assert_eq!(problems.len(), 1, "{body}");
        assert!(problems[0].starts_with("request: is not a usable JSON object: "), "{problems:?}");
        assert!(!problems[0].contains("secret"), "{problems:?}");
    }
}

#[test]
fn max_tokens_is_a_whole_number_from_one() {
    for (json, expected) in [("1", Some(1)), ("64000", Some(64_000)), ("18446744073709551615", Some(u64::MAX))] {
        let request = parse(&format!(r#"{{"messages":[{{"role":"user","content":"Hi"}}],"max_tokens":{json}}}"#));
        assert_eq!(request.ok().map(|request| request.max_tokens), expected, "{json}");
    }
    for json in ["0", "-1", "1.0", "1.5", "1e3", "\"1\"", "null", "true", "[1]", "18446744073709551616"] {
        let body = format!(r#"{{"messages":[{{"role":"user","content":"Hi"}}],"max_tokens":{json}}}"#);
        assert_eq!(problems(&body), ["request.max_tokens: must be a whole number, at least 1"], "{json}");
    }
}

#[test]
fn a_model_is_optional_and_fit_for_a_log_and_a_key() {
    let longest = "m".repeat(MAX_MODEL_BYTES);
    for (json, expected) in [
        (r#""claude-sonnet-5-5""#.to_owned(), Some("claude-sonnet-5-5")),
        (r#""us.anthropic/claude:0@x""#.to_owned(), Some("us.anthropic/claude:0@x")),
        (r#""\u0063laude""#.to_owned(), Some("claude")),
        (raw::quote(&longest), Some(longest.as_str())),
        ("null".to_owned(), None),
    ] {
        assert_eq!(parse(&with(&format!(r#""model":{json}"#))).unwrap().model.as_deref(), expected, "{json}");
    }
    for json in ["\"\"", "7", "[]", r#""a b""#, r#""a\n""#, r#""\u0000""#, r#""é""#, &raw::quote(&"m".repeat(201))] {
        assert_eq!(problems(&with(&format!(r#""model":{json}"#))).len(), 1, "{json}");
    }
}

#[test]
fn a_member_that_appears_twice_is_refused_however_it_is_spelt() {
    for (members, place) in [
        (r#""max_tokens":2"#, "request.max_tokens"),
        (r#""max\u005ftokens":2"#, "request.max_tokens"),
        (r#""stream":true,"stream":true"#, "request.stream"),
        (r#""a\nb":1,"a\nb":2"#, "request.a b"),
    ] {
        assert_eq!(problems(&with(members)), [format!("{place}: appears twice")]);
    }
    assert_eq!(problems(r#"{"max_tokens":1,"messages":[{"role":"user","content":"Hi"}],"messages":[]}"#).len(), 1);
}

#[test]
fn what_we_cannot_be_certain_about_passes() {
    for members in [
        r#""stream":null"#,
        r#""system":null,"tools":null,"metadata":null,"temperature":null"#,
        r#""system":"","tools":[],"tool_choice":{},"thinking":{"type":"new"},"stop_sequences":[7]"#,
        r#""brand_new":true,"":1,"mcp_servers":7"#,
    ] {
        assert_eq!(problems(&with(members)), [""; 0], "{members}");
    }
    for messages in [
        r#"[{"role":"user","content":" "}]"#,
        r#"[{"role":"assistant","content":"Hi"},{"role":"assistant","content":"there"}]"#,
        r#"[{"role":"user","content":"Hi"},{"role":"system","content":"Be brief."}]"#,
        r#"[{"role":"user","content":[{"type":"hologram","rays":[1e999]}],"cache":1}]"#,
        r#"[{"role":"user","content":"Hi"},{"role":"assistant","content":""}]"#,
        r#"[{"role":"user","content":"Hi"},{"role":"assistant","content":[ ]}]"#,
        r#"[{"role":"user","content":"\ud83e\udd80 \\ud83e \u0000"}]"#,
    ] {
        assert_eq!(problems(&with_messages(messages)), [""; 0], "{messages}");
    }
}

#[test]
fn only_the_last_message_of_the_assistant_may_be_empty() {
    for (messages, places) in [
        ("[]", vec![""]),
        (r#"[{"role":"user","content":""}]"#, vec!["[0].content"]),
        (r#"[{"role":"user","content":[ ]}]"#, vec!["[0].content"]),
        (r#"[{"role":"assistant","content":""},{"role":"user","content":""}]"#, vec!["[0].content", "[1].content"]),
        (r#"[{"role":"assistant","content":[]},{"role":"assistant","content":[]}]"#, vec!["[0].content"]),
    ] {
        let expected: Vec<String> = places.iter().map(|place| format!("request.messages{place}")).collect();
        let found: Vec<String> = parse(&with_messages(messages)).unwrap_err().into_iter().map(|p| p.place).collect();
        assert_eq!(found, expected, "{messages}");
    }
}

#[test]
fn half_of_a_surrogate_pair_is_a_problem_of_its_member() {
    for text in [r"\ud83e", r"\uDD80", r"\ud83e\ud83e", r"\ud83e \udd80", r"\udd80\ud83e", r"\\\ud83e", r"\ud83e\n"] {
        let body = with_messages(&format!(r#"[{{"role":"user","content":"{text}"}}]"#));
        let problems = problems(&body);
        assert_eq!(problems.len(), 1, "{text}");
        assert!(problems[0].starts_with("request.messages: holds half of a surrogate pair"), "{problems:?}");
    }
}

#[test]
fn nesting_a_hundred_thousand_deep_overflows_no_stack() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(parse(&with(&format!(r#""new":{deep}"#))).is_ok());
    assert!(parse(&with_messages(&format!(r#"[{{"role":"user","content":[{{"type":"x","y":{deep}}}]}}]"#))).is_ok());
    assert_eq!(problems(&with_messages(&deep)), ["request.messages[0]: must be a JSON object"]);
    assert_eq!(problems(&deep), ["request: must be a JSON object"]);
    assert_eq!(problems(&r#"{"a":"#.repeat(100_000)).len(), 1);
}

#[test]
fn a_body_made_of_problems_is_answered_with_a_few_of_them() {
    for messages in ["[0]", "[{}]", r#"[{"role":"user","content":[0]}]"#] {
        let body = with_messages(&format!("[{}]", [&messages[1..messages.len() - 1]; 100_000].join(",")));
        let problems = problems(&body);
        assert_eq!(problems.len(), MAX_PROBLEMS + 1);
        assert_eq!(problems.last().unwrap(), "request: has more problems than are listed here");
    }
    let members: Vec<String> = (0..1_000_000).map(|index| format!(r#""{index}":0"#)).collect();
    let problems = problems(&format!("{{{}}}", members.join(",")));
    assert_eq!(problems.len(), 1);
    assert!(problems[0].contains("more than 256 members"), "{problems:?}");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a bound on the real time is what is tested")]
fn eight_megabytes_are_read_in_linear_time_whatever_they_consist_of() {
    let size = 8_000_000;
    let repeat = |part: &str| vec![part; size / (part.len() + 1)].join(",");
    for messages in [
        format!(r#"[{{"role":"user","content":"{}"}}]"#, "x".repeat(size)),
        format!(r#"[{{"role":"user","content":"{}"}}]"#, r"\n".repeat(size / 2)),
        format!("[{}]", repeat(r#"{"role":"user","content":"a"}"#)),
        format!(r#"[{{"role":"user","content":[{}]}}]"#, repeat(r#"{"type":""}"#)),
        format!(r#"[{{"role":"user","content":[{{"type":"","x":[{}]}}]}}]"#, repeat("0")),
    ] {
        let body = with_messages(&messages);
        let start = std::time::Instant::now();
        assert!(parse(&body).is_ok());
        assert!(start.elapsed() < std::time::Duration::from_secs(10), "{:?} for {}", start.elapsed(), &messages[..60]);
    }
}

/// JSON values as text, spaced at will.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,3})?(e[+-]?[0-9]{1,3})?",
        r#""([a-z é🦀]|\\n|\\u00e9|\\"|\\\\)*""#,
        Just("true".to_owned()),
        Just("null".to_owned()),
    ];
    leaf.prop_recursive(4, 30, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|items| format!("[{} ]", items.join(" , "))),
            prop::collection::vec(("[a-z]{0,3}", inner), 0..5).prop_map(|members| {
                let members: Vec<_> = members.iter().map(|(name, value)| format!(r#""{name}": {value}"#)).collect();
                format!("{{\t{}}}", members.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn a_value_of_an_unknown_member_passes_byte_for_byte(value in json(), model in "[!-~]{1,30}") {
        let request = parse(&with(&format!(r#" "new" : {value} , "model" : {} "#, raw::quote(&model)))).unwrap();
        prop_assert_eq!(request.model.as_ref(), Some(&model));
        let call = call_body_prefix(&model, true) + &request.body_rest + "}";
        let fields = Fields::parse(&call).unwrap();
        prop_assert_eq!(fields.get("new").map(crate::json::Json::get), Some(value.as_str()));
        prop_assert_eq!(fields.string("model"), Some(model.as_str().into()));
        prop_assert_eq!(fields.get("stream").map(crate::json::Json::get), Some("true"));
        prop_assert_eq!(fields.0.len(), 5);
        prop_assert_eq!(&parse(&call).unwrap().body_rest, &request.body_rest, "taking apart what was put together");
    }

    #[test]
    fn any_json_in_any_place_is_an_answer_and_never_a_panic(value in json(), place in 0_usize..6) {
        let body = match place {
            0 => value,
            1 => with_messages(&value),
            2 => with_messages(&format!("[{value}]")),
            3 => with_messages(&format!(r#"[{{"role":{value},"content":"Hi"}}]"#)),
            4 => with_messages(&format!(r#"[{{"role":"user","content":{value}}}]"#)),
            _ => with_messages(&format!(r#"[{{"role":"user","content":[{value}]}}]"#)),
        };
        match parse(&body) {
            Ok(request) => prop_assert!(request.body_rest.contains("messages")),
            Err(problems) => prop_assert!(problems.iter().all(|problem| problem.place.starts_with("request"))),
        }
    }

    #[test]
    fn any_text_at_all_is_an_answer_and_never_a_panic(body in r#"[\[\]{}",:\\u0-9dmodelnr ]{0,60}"#) {
        prop_assert!(parse(&body).is_err());
    }
}
