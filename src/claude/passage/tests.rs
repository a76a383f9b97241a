use proptest::prelude::*;

use super::super::replay::Replay;
use super::super::response::Assembler;
use super::*;

const OVERLOADED: &str = r#"{"type":"error","error":{"details":null,"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}"#;

/// A stream with every kind of delta.
fn stream() -> String {
    let message = r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[
        {"type":"thinking","thinking":"Hm. \u00e9🦀","signature":"c2ln"},
        {"type":"text","text":"One.","citations":[{"type":"page_location","cited_text":"}"}]},
        {"type":"tool_use","id":"toolu_1","name":"look","input":{"place":"S\u00e3o","n":[1,2]}},
        {"type":"text","text":" Two é🦀."}],
        "stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":25,"output_tokens":15}}"#;
    Replay::new(message.to_owned()).unwrap().collect()
}

fn events(stream: &str) -> Vec<&str> {
    stream.split_inclusive("\n\n").collect()
}

fn error_event(data: &str) -> String {
    format!("event: error\ndata: {data}\n\n")
}

/// What a client gets of a stream that comes in these chunks and then ends by `cause`, and the passage after it.
fn pass<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, cause: Option<Cause>, job: Option<&str>) -> (String, Passage) {
    let (mut passage, mut out) = (Passage::new(), Vec::new());
    for chunk in chunks {
        passage.push(chunk);
        out.extend(passage.take());
    }
    passage.close(cause);
    out.extend(passage.take());
    out.extend(passage.last(job));
    (String::from_utf8(out).unwrap(), passage)
}

fn names(stream: &str) -> Vec<String> {
    let events = Decoder::new().push(stream.as_bytes()).unwrap();
    events.into_iter().map(|event| event.name.unwrap_or_default()).collect()
}

#[test]
fn a_whole_stream_goes_out_as_it_came_however_it_was_cut_into_chunks() {
    let stream = stream();
    for size in [1, 2, 7, 64, 10_000] {
        let (out, passage) = pass(stream.as_bytes().chunks(size), None, Some("job_1"));
        assert_eq!(out, stream, "chunks of {size}");
        assert_eq!(passage.end(), Some(&End::Complete(Usage { input_tokens: 25, output_tokens: 15 })));
        assert_eq!(passage.text(), "One. Two é🦀.");
    }
    for ends in ["\r\n", "\r"] {
        let other = stream.replace('\n', ends);
        assert_eq!(pass(other.as_bytes().chunks(5), None, None).0, other, "{ends:?}");
    }
}

#[test]
fn what_comes_as_one_chunk_goes_out_with_it() {
    let mut passage = Passage::new();
    for event in events(&stream()) {
        passage.push(event.as_bytes());
        assert_eq!(passage.take(), event.as_bytes());
    }
}

#[test]
fn cut_at_every_byte_the_client_has_whole_events_and_then_an_error_that_names_the_job() {
    let stream = stream();
    for cause in [None, Some(Cause::Truncated), Some(Cause::IdleTimeout)] {
        for at in 0..stream.len() {
            let cut = &stream.as_bytes()[..at];
            let (out, passage) = pass(cut.chunks(11), cause, Some("job_1"));
            let Some(End::Broken(failure)) = passage.end() else {
                // Its stop reason has come.
                assert!(String::from_utf8_lossy(cut).contains("message_delta") && stream.starts_with(&out), "{at}");
                continue;
            };
            let (before, error) = out.split_at(out.find("event: error\n").unwrap());
            assert!(
                cut.starts_with(before.as_bytes()) && (before.is_empty() || before.ends_with("\n\n")),
                "{at}: {out}"
            );
            let expected = format!(
                "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"api_error\",\"message\":{}}},\"spillway_job\":\"job_1\"}}\n\n",
                raw::quote(&failure.message)
            );
            assert_eq!(error, expected);
            assert_eq!(failure.cause == Cause::IdleTimeout, cause == Some(Cause::IdleTimeout));
        }
    }
}

#[test]
fn an_error_at_every_event_ends_the_stream_and_names_the_job_in_the_apis_own_event() {
    let stream = stream();
    let all = events(&stream);
    for at in 0..all.len() {
        let before = all[..at].concat();
        let broken = format!("{before}{}", error_event(OVERLOADED));
        let named = error_event(&OVERLOADED.replace("\"req_1\"}", "\"req_1\",\"spillway_job\":\"job_1\"}"));
        for size in [1, 3, 10, 100, 10_000] {
            let (out, passage) = pass(broken.as_bytes().chunks(size), None, Some("job_1"));
            assert_eq!(out, format!("{before}{named}"), "after {at} events, in chunks of {size}");
            let Some(End::Broken(failure)) = passage.end() else { panic!("not broken") };
            assert_eq!(failure.cause, Cause::Overloaded);
            let (out, _) = pass(broken.as_bytes().chunks(size), None, None);
            assert_eq!(out, broken, "without a job nothing is touched");
        }
    }
}

#[test]
fn nothing_goes_out_behind_an_error() {
    let late = format!("event: ping\ndata: {{}}\n\n{}event: ping\ndata: {{}}\n\n", error_event(OVERLOADED));
    assert_eq!(names(&pass([late.as_bytes()], None, Some("job_1")).0), ["ping", "error"]);
}

#[test]
fn an_error_that_cannot_be_added_to_goes_out_as_it_came() {
    for data in ["[]", "Overloaded", "{}", r#"{"type":"error","spillway_job":1}"#] {
        assert_eq!(pass([error_event(data).as_bytes()], None, Some("job_1")).0, error_event(data));
    }
    let lines = "event: error\ndata: {\"type\":\"error\",\ndata: \"error\":{\"type\":\"overloaded_error\"}}\n\n";
    let one = "event: error\ndata: {\"type\":\"error\", \"error\":{\"type\":\"overloaded_error\"},\"spillway_job\":\"job_1\"}\n\n";
    assert_eq!(pass([lines.as_bytes()], None, Some("job_1")).0, one);
}

#[test]
fn a_huge_event_goes_out_in_parts_and_an_error_after_a_part_is_an_event_of_its_own() {
    let huge = format!("event: x\ndata: {}", "x".repeat(3 * MAX_HELD_BYTES));
    let mut passage = Passage::new();
    let (mut out, mut most) = (Vec::new(), 0);
    for chunk in huge.as_bytes().chunks(10_000) {
        passage.push(chunk);
        most = most.max(passage.held.len());
        out.extend(passage.take());
    }
    assert!(most <= MAX_HELD_BYTES + 10_000 && out.len() >= 2 * MAX_HELD_BYTES, "{most} {}", out.len());
    passage.close(Some(Cause::Truncated));
    out.extend(passage.take());
    out.extend(passage.last(None));
    assert_eq!(names(std::str::from_utf8(&out).unwrap()), ["x", "error"]);
}

#[test]
fn the_text_that_is_kept_has_a_bound_and_no_half_characters() {
    let mut passage = Passage::new();
    passage.push(events(&stream())[0].as_bytes());
    let delta = format!(
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{}\"}}}}\n\n",
        "é🦀".repeat(10_000)
    );
    for _ in 0..100 {
        passage.push(delta.as_bytes());
        passage.take();
    }
    assert!(passage.text().len() <= MAX_TEXT_BYTES && passage.text().len() > MAX_TEXT_BYTES - 4);
}

#[test]
fn what_cannot_be_read_goes_on_as_it_comes() {
    let start = events(&stream())[0].to_owned();
    let rubbish = "event: content_block_delta\ndata: {\n\n";
    let rest = "event: content_block_stop\ndata: {\"type\":\"content_block_stop\"}\n\nunfinis";
    let (out, passage) = pass([start.as_bytes(), rubbish.as_bytes(), rest.as_bytes()], None, Some("job_1"));
    assert_eq!(out, format!("{start}{rubbish}{rest}"));
    assert!(matches!(passage.end(), Some(End::Unreadable(_))));
}

#[test]
fn a_stream_without_a_messages_event_is_malformed() {
    for body in ["", "<html></html>", ": comment\n\n"] {
        let (_, passage) = pass([body.as_bytes()], None, None);
        let Some(End::Broken(failure)) = passage.end() else { panic!("{body}") };
        assert_eq!(failure.cause, Cause::MalformedAnswer, "{body}");
    }
}

#[test]
fn the_empty_line_at_the_end_may_be_missing() {
    let stream = stream();
    let (out, passage) = pass([stream.trim_end().as_bytes()], None, None);
    assert_eq!(out, stream.trim_end());
    assert!(matches!(passage.end(), Some(End::Complete(_))));
}

proptest! {
    /// What the assembler of a delivery says of the same events.
    #[test]
    fn it_sees_what_the_assembler_sees(events in prop::collection::vec(0..14_usize, 0..12), end in any::<bool>()) {
        let all = [
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"begun"}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"n","input":{}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"x"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"more"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"future_delta"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"ping"}"#,
            r#"{"type":"future_event","x":1}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":3}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7,"input_tokens":null}}"#,
            r#"{"type":"message_stop"}"#,
            OVERLOADED,
            r#"{"type":"error","error":{"type":"api_error","message":"x"}}"#,
        ];
        let start = r#"{"type":"message_start","message":{"type":"message","content":[],"usage":{"input_tokens":25,"output_tokens":1}}}"#;
        let (mut passage, mut assembler) = (Passage::new(), Assembler::new());
        let mut failed = None;
        let mut text = String::new();
        for data in std::iter::once(start).chain(events.iter().map(|at| all[*at])) {
            passage.push(format!("data: {data}\n\n").as_bytes());
            match assembler.feed(&Event { name: None, data: data.to_owned() }) {
                Ok(progress) => text.push_str(progress.text),
                Err(failure) => {
                    failed = Some(failure);
                    break;
                }
            }
            prop_assert_eq!(passage.has_content(), assembler.has_content(), "{}", data);
            prop_assert!(passage.text().starts_with(&text));
        }
        // Events that do not follow from one another are the assembler's to find; a client may take them.
        let is_out_of_turn = failed.as_ref().is_some_and(|failure| failure.cause == Cause::MalformedAnswer);
        prop_assume!(!is_out_of_turn);
        passage.close((!end).then_some(Cause::IdleTimeout));
        let expected = match failed {
            Some(failure) => End::Broken(failure),
            None => match assembler.finish(None) {
                Ok(message) => End::Complete(message.usage),
                Err(failure) if end => End::Broken(failure),
                Err(_) => End::Broken(Failure::transport(Cause::IdleTimeout)),
            },
        };
        prop_assert_eq!(passage.end(), Some(&expected));
    }
}
