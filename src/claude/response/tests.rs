//! The rules of [`Assembler`](super::Assembler), and one pair of stream and Message for every kind of block.

mod laws;

use super::*;
use crate::claude::sse::Decoder;

/// The start of every stream here, with the members that a real one has.
const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-5-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"cache_read_input_tokens":0,"output_tokens":1,"service_tier":"standard"}}}"#;

/// What [`ending`] makes of [`START`]'s members around `content`.
fn message(content: &str, stop_reason: &str) -> String {
    format!(
        r#"{{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-5-5","content":[{content}],"stop_reason":"{stop_reason}","stop_sequence":null,"usage":{{"input_tokens":25,"cache_read_input_tokens":0,"output_tokens":15,"service_tier":"standard"}}}}"#
    )
}

fn ending(stop_reason: &str) -> [String; 2] {
    [
        format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"{stop_reason}","stop_sequence":null}},"usage":{{"output_tokens":15}}}}"#
        ),
        r#"{"type":"message_stop"}"#.to_owned(),
    ]
}

fn block_start(index: usize, block: &str) -> String {
    format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#)
}

fn block_delta(index: usize, delta: &str) -> String {
    format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#)
}

fn block_stop(index: usize) -> String {
    format!(r#"{{"type":"content_block_stop","index":{index}}}"#)
}

fn text_delta(index: usize, text: &str) -> String {
    block_delta(index, &format!(r#"{{"type":"text_delta","text":{}}}"#, raw::quote(text)))
}

/// A whole stream with the given blocks, each a start and its deltas.
fn stream(blocks: &[(&str, &[&str])], stop_reason: &str) -> Vec<String> {
    let mut events = vec![START.to_owned(), r#"{"type":"ping"}"#.to_owned()];
    for (index, (start, deltas)) in blocks.iter().enumerate() {
        events.push(block_start(index, start));
        events.extend(deltas.iter().map(|delta| block_delta(index, delta)));
        events.push(block_stop(index));
    }
    events.extend(ending(stop_reason));
    events
}

fn event(data: &str) -> Event {
    let name = Fields::parse(data).ok().and_then(|data| data.string("type").map(Cow::into_owned));
    Event { name, data: data.to_owned() }
}

fn assemble(events: &[impl AsRef<str>]) -> Result<Message, Failure> {
    let mut assembler = Assembler::new();
    for data in events {
        assembler.feed(&event(data.as_ref()))?;
    }
    assembler.finish(None)
}

fn cause(events: &[impl AsRef<str>]) -> Result<Message, Cause> {
    assemble(events).map_err(|failure| failure.cause)
}

#[test]
fn every_kind_of_block_comes_out_as_a_non_streaming_call_would_have_returned_it() {
    type Block = (&'static str, &'static [&'static str], &'static str);
    let cases: &[Block] = &[
        (
            r#"{"type":"text","text":""}"#,
            &[r#"{"type":"text_delta","text":"Hel"}"#, r#"{"type":"text_delta","text":"lo \"you\"\n"}"#],
            r#"{"type":"text","text":"Hello \"you\"\n"}"#,
        ),
        (r#"{"type":"text","text":""}"#, &[], r#"{"type":"text","text":""}"#),
        (
            r#"{"type":"text","text":"He"}"#,
            &[r#"{"type":"text_delta","text":"llo"}"#],
            r#"{"type":"text","text":"Hello"}"#,
        ),
        (
            r#"{"type":"text","text":"","citations":null}"#,
            &[
                r#"{"type":"citations_delta","citation":{"type":"char_location","start_char_index":1e3}}"#,
                r#"{"type":"text_delta","text":"Grass is green."}"#,
                r#"{"type":"citations_delta","citation":{"type":"page_location","cited_text":"}"}}"#,
            ],
            r#"{"type":"text","text":"Grass is green.","citations":[{"type":"char_location","start_char_index":1e3},{"type":"page_location","cited_text":"}"}]}"#,
        ),
        (
            r#"{"type":"text","text":"","citations":[{"a":1}]}"#,
            &[r#"{"type":"citations_delta","citation":{"b":2}}"#],
            r#"{"type":"text","text":"","citations":[{"a":1},{"b":2}]}"#,
        ),
        (
            r#"{"type":"tool_use","id":"toolu_1","name":"weather","input":{}}"#,
            &[
                r#"{"type":"input_json_delta","partial_json":""}"#,
                r#"{"type":"input_json_delta","partial_json":"{\"big\":12345678901234567890123,"}"#,
                r#"{"type":"input_json_delta","partial_json":"\"place\":\"S\\u00e3"}"#,
                r#"{"type":"input_json_delta","partial_json":"o\"}"}"#,
            ],
            r#"{"type":"tool_use","id":"toolu_1","name":"weather","input":{"big":12345678901234567890123,"place":"S\u00e3o"}}"#,
        ),
        (
            r#"{"type":"tool_use","id":"toolu_1","name":"now","input":{}}"#,
            &[r#"{"type":"input_json_delta","partial_json":""}"#],
            r#"{"type":"tool_use","id":"toolu_1","name":"now","input":{}}"#,
        ),
        (
            r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}"#,
            &[r#"{"type":"input_json_delta","partial_json":"{\"query\": \"a\"}"}"#],
            r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query": "a"}}"#,
        ),
        (
            r#"{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"https://example.com"}]}"#,
            &[],
            r#"{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"https://example.com"}]}"#,
        ),
        (
            r#"{"type":"thinking","thinking":"","signature":""}"#,
            &[
                r#"{"type":"thinking_delta","thinking":"Let me "}"#,
                r#"{"type":"thinking_delta","thinking":"see."}"#,
                r#"{"type":"signature_delta","signature":"EqQB/+="}"#,
            ],
            r#"{"type":"thinking","thinking":"Let me see.","signature":"EqQB/+="}"#,
        ),
        (
            r#"{"type":"thinking","thinking":""}"#,
            &[r#"{"type":"signature_delta","signature":"EqQB"}"#],
            r#"{"type":"thinking","thinking":"","signature":"EqQB"}"#,
        ),
        (r#"{"type":"redacted_thinking","data":"Eq"}"#, &[], r#"{"type":"redacted_thinking","data":"Eq"}"#),
        (
            r#"{"type":"compaction","content":null,"encrypted_content":null}"#,
            &[r#"{"type":"compaction_delta","content":"So far: nothing.","encrypted_content":"Eq"}"#],
            r#"{"type":"compaction","content":"So far: nothing.","encrypted_content":"Eq"}"#,
        ),
        (
            r#"{"z":1.0,"type":"hologram","a":{"x":[1e400,-0]},"u":"\u00e9"}"#,
            &[r#"{"type":"hologram_delta","rays":7}"#, r#"{"type":"text_delta","text":"caption"}"#],
            r#"{"z":1.0,"type":"hologram","a":{"x":[1e400,-0]},"u":"\u00e9","text":"caption"}"#,
        ),
    ];
    for (start, deltas, expected) in cases {
        let assembled = assemble(&stream(&[(start, deltas)], "end_turn")).unwrap();
        assert_eq!(assembled.json, message(expected, "end_turn"));
        assert_eq!(Message::from_json(assembled.json.as_bytes()).unwrap(), assembled);
    }
    let blocks: Vec<_> = cases.iter().map(|(start, deltas, _)| (*start, *deltas)).collect();
    let expected: Vec<_> = cases.iter().map(|(_, _, expected)| *expected).collect();
    let all = assemble(&stream(&blocks, "tool_use")).unwrap();
    assert_eq!(all.json, message(&expected.join(","), "tool_use"));
    assert_eq!(all.text, "Hello \"you\"\nHelloGrass is green.");
}

#[test]
fn the_facts_of_a_message_are_read_from_it() {
    let assembled = assemble(&stream(&[], "refusal")).unwrap();
    assert_eq!(assembled.model, "claude-sonnet-5-5");
    assert_eq!(assembled.stop_reason.as_deref(), Some("refusal"));
    assert_eq!(assembled.usage, Usage { input_tokens: 25, output_tokens: 15 });
    assert_eq!(assembled.json, message("", "refusal"));
}

#[test]
fn message_delta_adds_its_members_and_null_replaces_nothing() {
    let assembled = assemble(&[
        START,
        r#"{"type":"message_delta","delta":{"stop_reason":"stop_sequence","stop_sequence":"END","container":{"id":"c"},"stop_details":null},"usage":{"input_tokens":null,"output_tokens":7,"server_tool_use":{"web_search_requests":1}},"context_management":{"applied_edits":[]}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{"input_tokens":30,"output_tokens":9}}"#,
        r#"{"type":"message_stop"}"#,
    ])
    .unwrap();
    assert_eq!(
        assembled.json,
        r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-5-5","content":[],"stop_reason":"stop_sequence","stop_sequence":"END","usage":{"input_tokens":30,"cache_read_input_tokens":0,"output_tokens":9,"service_tier":"standard","server_tool_use":{"web_search_requests":1}},"container":{"id":"c"},"stop_details":null,"context_management":{"applied_edits":[]}}"#
    );
}

#[test]
fn unknown_events_are_ignored_whatever_their_data_is() {
    let mut assembler = Assembler::new();
    let mut feed = |name: Option<&str>, data: &str| {
        assembler.feed(&Event { name: name.map(str::to_owned), data: data.to_owned() }).map(drop)
    };
    assert_eq!(feed(Some("heartbeat"), "not JSON"), Ok(()));
    assert_eq!(feed(Some("ping"), ""), Ok(()));
    assert_eq!(feed(None, r#"{"type":"content_block_hologram","index":"far"}"#), Ok(()));
    // The name is a courtesy: the data says what it is, with or without it.
    assert_eq!(feed(None, START), Ok(()));
    assert_eq!(feed(Some("message_delta"), r#"{"delta":{"stop_reason":"end_turn"}}"#), Ok(()));
    assert_eq!(assembler.finish(None).unwrap().stop_reason.as_deref(), Some("end_turn"));
}

#[test]
fn first_content_is_reported_once_and_an_empty_start_is_none() {
    let empty = [
        r#"{"type":"text","text":""}"#,
        r#"{"type":"text","text":"","citations":[]}"#,
        r#"{"type":"thinking","thinking":"","signature":""}"#,
        r#"{"type":"tool_use","id":"t","name":"n","input":{}}"#,
        r#"{"type":"compaction","content":null}"#,
    ];
    let full = [
        r#"{"type":"text","text":"Hi"}"#,
        r#"{"type":"redacted_thinking","data":"Eq"}"#,
        r#"{"type":"web_search_tool_result","tool_use_id":"t","content":[]}"#,
        r#"{"type":"tool_use","id":"t","name":"n","input":{"a":1}}"#,
        r#"{"type":"hologram"}"#,
    ];
    for (start, in_itself) in empty.map(|start| (start, false)).into_iter().chain(full.map(|start| (start, true))) {
        let mut assembler = Assembler::new();
        let mut first = |data: &str| assembler.feed(&event(data)).unwrap().first_content;
        assert!(!first(START) && !first(r#"{"type":"ping"}"#));
        assert_eq!(first(&block_start(0, start)), in_itself, "{start}");
        assert_eq!(first(&block_delta(0, r#"{"type":"hologram_delta"}"#)), !in_itself, "{start}");
        assert!(!first(&text_delta(0, "a")) && !first(&block_stop(0)));
        assert!(assembler.has_content());
    }
}

#[test]
fn only_text_blocks_add_to_the_live_text() {
    for (start, live) in
        [(r#"{"type":"text","text":"a"}"#, ["a", "b"]), (r#"{"type":"hologram","text":"a"}"#, ["", ""])]
    {
        let mut assembler = Assembler::new();
        assembler.feed(&event(START)).unwrap();
        assert_eq!(assembler.feed(&event(&block_start(0, start))).unwrap().text, live[0]);
        assert_eq!(assembler.feed(&event(&text_delta(0, "b"))).unwrap().text, live[1]);
    }
}

#[test]
fn an_error_in_the_stream_is_a_failure_before_and_after_content() {
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let mut events = stream(&[(r#"{"type":"text","text":""}"#, &[r#"{"type":"text_delta","text":"a"}"#])], "end_turn");
    for at in 0..events.len() {
        events.insert(at, overloaded.to_owned());
        assert_eq!(cause(&events), Err(Cause::Overloaded), "at {at}");
        events.remove(at);
    }
    events.push(overloaded.to_owned());
    assert!(assemble(&events).is_ok(), "what follows message_stop does not matter");

    let named = Event { name: Some("error".to_owned()), data: "bad gateway".to_owned() };
    assert_eq!(Assembler::new().feed(&named).map_err(|failure| failure.cause), Err(Cause::ServerError));
    let last = Assembler::new().finish(Some(event(overloaded)));
    assert_eq!(last.map_err(|failure| failure.cause), Err(Cause::Overloaded));
}

#[test]
fn an_answer_is_complete_only_if_it_says_so() {
    let events = stream(
        &[
            (r#"{"type":"text","text":""}"#, &[r#"{"type":"text_delta","text":"a"}"#]),
            (r#"{"type":"tool_use","input":{}}"#, &[r#"{"type":"input_json_delta","partial_json":"{}"}"#]),
        ],
        "end_turn",
    );
    for length in 1..events.len() - 2 {
        assert_eq!(cause(&events[..length]), Err(Cause::Truncated), "{length} events");
    }
    assert_eq!(cause(&events[..events.len() - 1]), cause(&events), "a stop reason is enough");
    let without_reason: Vec<_> = events.iter().filter(|event| !event.contains("message_delta")).collect();
    assert!(assemble(&without_reason).is_ok(), "message_stop is enough");
}

#[test]
fn what_never_was_a_messages_stream_is_malformed_and_not_truncated() {
    assert_eq!(cause(&[""; 0]), Err(Cause::MalformedAnswer));
    assert_eq!(cause(&[r#"{"hello":"world"}"#]), Err(Cause::MalformedAnswer));
    assert_eq!(cause(&[r#"{"type":"ping"}"#]), Err(Cause::Truncated));
    let mut decoder = Decoder::new();
    let page = b"<html>\n\n<p>data: none</p>\n\n</html>";
    assert_eq!(decoder.push(page).unwrap(), []);
    assert_eq!(Assembler::new().finish(decoder.finish()).map_err(|failure| failure.cause), Err(Cause::MalformedAnswer));
}

#[test]
fn the_unfinished_event_counts_if_it_is_whole_and_means_a_cut_stream_if_not() {
    let events = stream(&[], "end_turn");
    for (rest, expected) in [(events[2].clone(), Ok(())), (events[2][..40].to_owned(), Err(Cause::Truncated))] {
        let mut assembler = Assembler::new();
        assembler.feed(&event(START)).unwrap();
        let rest = Event { name: Some("message_delta".to_owned()), data: rest };
        assert_eq!(assembler.finish(Some(rest)).map(drop).map_err(|failure| failure.cause), expected);
    }
}

#[test]
fn events_that_do_not_fit_are_malformed_and_never_a_panic() {
    let text = r#"{"type":"text","text":""}"#;
    let delta = text_delta(0, "a");
    for (rule, events) in [
        ("no message_start: block", vec![block_start(0, text)]),
        ("no message_start: delta", vec![delta.clone()]),
        ("no message_start: end", vec![ending("end_turn")[0].clone()]),
        ("no message_start: stop", vec![ending("end_turn")[1].clone()]),
        ("two message_starts", vec![START.into(), START.into()]),
        ("message_start without message", vec![r#"{"type":"message_start"}"#.into()]),
        ("message_start with a string", vec![r#"{"type":"message_start","message":"hi"}"#.into()]),
        ("block skipped", vec![START.into(), block_start(1, text)]),
        ("block twice", vec![START.into(), block_start(0, text), block_start(0, text)]),
        (
            "block without index",
            vec![START.into(), format!(r#"{{"type":"content_block_start","content_block":{text}}}"#)],
        ),
        ("negative index", vec![START.into(), block_delta(0, "{}").replace(":0", ":-1")]),
        ("huge index", vec![START.into(), block_delta(0, "{}").replace(":0", ":18446744073709551616")]),
        ("block of nothing", vec![START.into(), block_start(0, "null")]),
        ("delta for no block", vec![START.into(), delta.clone()]),
        ("delta after the stop", vec![START.into(), block_start(0, text), block_stop(0), delta.clone()]),
        ("stop for no block", vec![START.into(), block_stop(0)]),
        ("stop twice", vec![START.into(), block_start(0, text), block_stop(0), block_stop(0)]),
        ("delta of nothing", vec![START.into(), block_start(0, text), block_delta(0, "7")]),
        ("delta without type", vec![START.into(), block_start(0, text), block_delta(0, "{}")]),
        (
            "text that is none",
            vec![START.into(), block_start(0, text), block_delta(0, r#"{"type":"text_delta","text":1}"#)],
        ),
        ("citation missing", vec![START.into(), block_start(0, text), block_delta(0, r#"{"type":"citations_delta"}"#)]),
        ("known event cut", vec![START.into(), r#"{"type":"content_block_del"#.into()]),
    ] {
        let mut assembler = Assembler::new();
        let (last, before) = events.split_last().unwrap();
        for data in before {
            assert!(assembler.feed(&event(data)).is_ok(), "{rule}");
        }
        assert_eq!(
            assembler.feed(&event(last)).map_err(|failure| failure.cause),
            Err(Cause::MalformedAnswer),
            "{rule}"
        );
    }
}

#[test]
fn a_tool_input_that_is_no_json_is_malformed_unless_the_model_was_cut_off_in_it() {
    let cut: (&str, &[&str]) = (
        r#"{"type":"tool_use","id":"t","name":"n","input":{}}"#,
        &[r#"{"type":"input_json_delta","partial_json":"{\"html\":\"<p>"}"#],
    );
    let whole: (&str, &[&str]) = (r#"{"type":"text","text":""}"#, &[]);
    for (blocks, stop_reason, expected) in [
        (vec![cut], "tool_use", Err(Cause::MalformedAnswer)),
        (vec![cut], "end_turn", Err(Cause::MalformedAnswer)),
        (vec![cut, whole], "max_tokens", Err(Cause::MalformedAnswer)),
        (vec![cut], "max_tokens", Ok(())),
        (vec![whole, cut], "max_tokens", Ok(())),
        (vec![cut], "model_context_window_exceeded", Ok(())),
        (vec![cut], "refusal", Ok(())),
    ] {
        let result = cause(&stream(&blocks, stop_reason));
        if let Ok(message) = &result {
            assert!(message.json.contains(r#"{"type":"tool_use","id":"t","name":"n","input":{}}"#), "{}", message.json);
        }
        assert_eq!(result.map(drop), expected, "{stop_reason}");
    }
}

#[test]
fn a_plain_json_answer_is_taken_verbatim_and_anything_else_is_a_failure() {
    let json =
        message(r#"{"type":"text","text":"a\u00e9"},{"type":"hologram"},{"type":"text","text":"b"}"#, "end_turn");
    let read = Message::from_json(format!("\n {json} \n").as_bytes()).unwrap();
    assert_eq!((read.json, read.text.as_str()), (json.clone(), "aéb"));
    assert_eq!(read.usage, Usage { input_tokens: 25, output_tokens: 15 });

    for (body, expected) in [
        (r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, Cause::Overloaded),
        (r#"{"type":"error","error":{"type":"api_error","message":"?"}}"#, Cause::ServerError),
        ("", Cause::MalformedAnswer),
        ("<html></html>", Cause::MalformedAnswer),
        ("[]", Cause::MalformedAnswer),
        ("{}", Cause::MalformedAnswer),
        (&json[..json.len() - 1], Cause::MalformedAnswer),
        (r#"{"type":"message"}"#, Cause::MalformedAnswer),
        (r#"{"type":"message","content":"hi"}"#, Cause::MalformedAnswer),
        (r#"{"type":"message","content":["hi"]}"#, Cause::MalformedAnswer),
        (r#"{"type":"completion","content":[]}"#, Cause::MalformedAnswer),
    ] {
        assert_eq!(Message::from_json(body.as_bytes()).map_err(|failure| failure.cause), Err(expected), "{body}");
    }
    assert_eq!(Message::from_json(b"\xff{}").map_err(|failure| failure.cause), Err(Cause::MalformedAnswer));
    let deep = message(&"[".repeat(100_000), "end_turn");
    assert_eq!(Message::from_json(deep.as_bytes()).map_err(|failure| failure.cause), Err(Cause::MalformedAnswer));
}

#[test]
fn an_endless_answer_is_an_error_before_it_fills_the_isolate() {
    let mut assembler = Assembler::new();
    assembler.feed(&event(START)).unwrap();
    assembler.feed(&event(&block_start(0, r#"{"type":"text","text":""}"#))).unwrap();
    let delta = event(&text_delta(0, &"x".repeat(1_000_000)));
    let fed = (0..100).take_while(|_| assembler.feed(&delta).is_ok()).count();
    assert_eq!(fed, MAX_ANSWER_BYTES / 1_000_000);
    assert_eq!(Failure::from(EventTooLarge { limit: 1 }).cause, Cause::MalformedAnswer);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a bound on the real time is what is tested")]
fn an_answer_of_64k_tokens_in_81_000_chunks_costs_linear_time() {
    let mut events = vec![START.to_owned(), block_start(0, r#"{"type":"text","text":""}"#)];
    events.extend((0..40_000).map(|token| text_delta(0, &format!(" token {token}"))));
    events.extend([block_stop(0), block_start(1, r#"{"type":"tool_use","id":"t","name":"n","input":{}}"#)]);
    events.push(block_delta(1, r#"{"type":"input_json_delta","partial_json":"[0"}"#));
    events.extend((0..24_000).map(|_| block_delta(1, r#"{"type":"input_json_delta","partial_json":",1234"}"#)));
    events.push(block_delta(1, r#"{"type":"input_json_delta","partial_json":"]"}"#));
    events.extend(ending("tool_use"));
    let bytes: String = events.iter().map(|data| format!("event: x\ndata: {data}\n\n")).collect();
    let size = bytes.len().div_ceil(81_000);

    let start = std::time::Instant::now();
    let (mut decoder, mut assembler, mut text) = (Decoder::new(), Assembler::new(), String::new());
    for chunk in bytes.as_bytes().chunks(size) {
        for event in decoder.push(chunk).unwrap() {
            text.push_str(assembler.feed(&event).unwrap().text);
        }
    }
    let message = assembler.finish(decoder.finish()).unwrap();
    let elapsed = start.elapsed();
    assert!(message.text.ends_with(" token 39999") && message.text == text);
    assert!(message.json.contains(",1234]}]"));
    // Copying what there is with every delta would be 10¹⁰ bytes, parsing it 10¹⁰ steps.
    assert!(elapsed < std::time::Duration::from_secs(5), "{elapsed:?}");
}
