use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::response::{Assembler, Message};
use super::super::sse::{Decoder, Event};
use super::*;

fn message(content: &str, more: &str) -> String {
    format!(
        r#"{{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{content}],"stop_reason":"end_turn","stop_sequence":null,"usage":{{"input_tokens":25,"output_tokens":15,"service_tier":"standard"}}{more}}}"#
    )
}

fn replay(json: &str) -> String {
    Replay::new(json.to_owned()).unwrap().collect()
}

fn events(json: &str) -> Vec<Event> {
    let mut decoder = Decoder::new();
    let events = Replay::new(json.to_owned()).unwrap().flat_map(|chunk| decoder.push(chunk.as_bytes()).unwrap());
    let events: Vec<_> = events.collect();
    assert_eq!(decoder.finish(), None);
    events
}

fn assemble(events: &[Event]) -> Message {
    let mut assembler = Assembler::new();
    for event in events {
        assembler.feed(event).unwrap();
    }
    assembler.finish(None).unwrap()
}

fn data(event: &Event) -> Value {
    serde_json::from_str(&event.data).unwrap()
}

/// What the official SDKs make of the events: they replace where the assembler merges.
fn as_sdks_do(events: &[Event]) -> Value {
    let mut message = Value::Null;
    let mut inputs = String::new();
    for event in events.iter().map(data) {
        let index = event["index"].as_u64().map_or(0, |index| usize::try_from(index).unwrap());
        match event["type"].as_str().unwrap() {
            "message_start" => message = event["message"].clone(),
            "content_block_start" => {
                inputs.clear();
                message["content"].as_array_mut().unwrap().push(event["content_block"].clone());
            }
            "content_block_delta" => {
                let (block, delta) = (&mut message["content"][index], &event["delta"]);
                let mut append = |name: &str| {
                    let text = format!("{}{}", block[name].as_str().unwrap_or(""), delta[name].as_str().unwrap());
                    block[name] = text.into();
                };
                match delta["type"].as_str().unwrap() {
                    "text_delta" => append("text"),
                    "thinking_delta" => append("thinking"),
                    "signature_delta" => block["signature"] = delta["signature"].clone(),
                    "compaction_delta" => block["content"] = delta["content"].clone(),
                    "citations_delta" => {
                        if !block["citations"].is_array() {
                            block["citations"] = json!([]);
                        }
                        block["citations"].as_array_mut().unwrap().push(delta["citation"].clone());
                    }
                    "input_json_delta" => {
                        inputs.push_str(delta["partial_json"].as_str().unwrap());
                        if let Ok(input) = serde_json::from_str(&inputs) {
                            block["input"] = input;
                        }
                    }
                    kind => panic!("{kind}"),
                }
            }
            "message_delta" => {
                for name in ["stop_reason", "stop_sequence", "stop_details", "container"] {
                    message[name] = event["delta"][name].clone();
                }
                message["context_management"] = event["context_management"].clone();
                message["usage"]["output_tokens"] = event["usage"]["output_tokens"].clone();
                for name in ["input_tokens", "cache_read_input_tokens", "server_tool_use", "iterations"] {
                    if !event["usage"][name].is_null() {
                        message["usage"][name] = event["usage"][name].clone();
                    }
                }
            }
            "content_block_stop" | "message_stop" => {}
            kind => panic!("{kind}"),
        }
    }
    // What is not there and what is null are one for them.
    message.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    message
}

/// Checks that the assembler makes the same Message of it.
fn check_law(json: &str) -> Vec<Event> {
    let events = events(json);
    let assembled = assemble(&events);
    let tree = |json: &str| serde_json::from_str::<Value>(json).unwrap();
    assert_eq!(tree(&assembled.json), tree(json));
    let message = Message::from_json(json.as_bytes()).unwrap();
    assert_eq!(Message { json: String::new(), ..assembled }, Message { json: String::new(), ..message });
    events
}

/// Checks that everyone makes the same Message of it.
fn check(json: &str) {
    let events = check_law(json);
    let mut expected: Value = serde_json::from_str(json).unwrap();
    expected.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    assert_eq!(as_sdks_do(&events), expected);
}

#[test]
fn the_events_are_the_apis_to_the_byte() {
    let text = r#"{"type":"text","text":"Hi \"you\" é","citations":[{"type":"char_location","n":1.0}]}"#;
    let call = r#"{"type":"tool_use","id":"t","name":"f","input":{"a": 1.0}}"#;
    let expected = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"output_tokens":1,"service_tier":"standard"},"container":{"id":"c"},"context_management":{"applied_edits":[]}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"","citations":[]}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi \"you\" é"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"type":"char_location","n":1.0}}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\": 1.0}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: message_delta
data: {"type":"message_delta","delta":{"container":{"id":"c"},"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens":25,"output_tokens":15,"service_tier":"standard"},"context_management":{"applied_edits":[]}}

event: message_stop
data: {"type":"message_stop"}

"#;
    let more = r#","container":{"id":"c"},"context_management":{"applied_edits":[]}"#;
    assert_eq!(replay(&message(&format!("{text},{call}"), more)), expected);
}

#[test]
fn each_kind_of_block_comes_in_its_own_deltas() {
    for (block, start, deltas) in [
        (r#"{"type":"text","text":""}"#, r#"{"type":"text","text":""}"#, ""),
        (
            r#"{"type":"text","text":"a","citations":null}"#,
            r#"{"type":"text","text":"","citations":null}"#,
            "text_delta",
        ),
        (r#"{"type":"text","text":"a","citations":[]}"#, r#"{"type":"text","text":"","citations":[]}"#, "text_delta"),
        (
            r#"{"citations":[{},{"b":[2]}],"type":"text","text":"a","x":-1.50e3}"#,
            r#"{"citations":[],"type":"text","text":"","x":-1.50e3}"#,
            "text_delta citations_delta citations_delta",
        ),
        (
            r#"{"type":"thinking","thinking":"hm","signature":"Eq/+="}"#,
            r#"{"type":"thinking","thinking":"","signature":""}"#,
            "thinking_delta signature_delta",
        ),
        (
            r#"{"type":"thinking","thinking":"","signature":"Eq"}"#,
            r#"{"type":"thinking","thinking":"","signature":""}"#,
            "signature_delta",
        ),
        (r#"{"type":"thinking","thinking":"hm"}"#, r#"{"type":"thinking","thinking":""}"#, "thinking_delta"),
        (
            r#"{"type":"tool_use","id":"t","name":"f","input":{}}"#,
            r#"{"type":"tool_use","id":"t","name":"f","input":{}}"#,
            "input_json_delta",
        ),
        (
            r#"{"type":"server_tool_use","id":"t","name":"f","input":{ "q" : -0 }}"#,
            r#"{"type":"server_tool_use","id":"t","name":"f","input":{}}"#,
            "input_json_delta input_json_delta",
        ),
        (
            r#"{"type":"mcp_tool_use","id":"t","name":"f","server_name":"s","input":{"q":"\u00e9"}}"#,
            r#"{"type":"mcp_tool_use","id":"t","name":"f","server_name":"s","input":{}}"#,
            "input_json_delta input_json_delta",
        ),
        (
            r#"{"type":"compaction","content":"so far","encrypted_content":"Eq"}"#,
            r#"{"type":"compaction","content":null,"encrypted_content":"Eq"}"#,
            "compaction_delta",
        ),
    ] {
        let events = events(&message(block, ""));
        assert!(events[1].data.contains(&format!(r#""content_block":{start}"#)), "{block}: {}", events[1].data);
        let deltas: Vec<_> = deltas.split_whitespace().collect();
        let found: Vec<_> = events.iter().map(data).filter(|data| data["type"] == "content_block_delta").collect();
        assert_eq!(found.iter().map(|data| data["delta"]["type"].clone()).collect::<Vec<_>>(), deltas, "{block}");
        check(&message(block, ""));
    }
}

#[test]
fn other_blocks_are_whole_from_the_start() {
    for block in [
        r#"{"type":"redacted_thinking","data":"Eq"}"#,
        r#"{"type":"web_search_tool_result","tool_use_id":"t","content":[{"url":"x", "n":1.0}]}"#,
        r#"{"type":"compaction","content":null}"#,
        r#"{"z":1.0,"type":"hologram","text":"caption","input":{"x":[1e5,-0]}}"#,
        r#"{"type":"tool_use","id":"t","name":"f"}"#,
        r#"{"type":"tool_use","id":"t","name":"f","input":null}"#,
        r#"{"type":"tool_use","id":"t","name":"f","input":[1]}"#,
        r#"{}"#,
    ] {
        let events = events(&message(block, ""));
        assert_eq!(events.len(), 5, "{block}");
        assert!(events[1].data.contains(block), "{block}");
        check(&message(block, ""));
    }
    // The assembler would have made texts of these; no API sends them.
    for block in
        [r#"{"type":"text"}"#, r#"{"type":"text","text":7,"citations":[{}]}"#, r#"{"type":"text","text":"\ud83d"}"#]
    {
        let events = events(&message(block, ""));
        assert!(events.len() == 5 && events[1].data.contains(block), "{block}");
    }
}

#[test]
fn what_the_end_of_a_stream_brings_is_not_in_its_beginning() {
    let json = message("", "").replace(
        r#""stop_reason":"end_turn","stop_sequence":null"#,
        r#""stop_reason":"refusal","stop_sequence":"END","stop_details":{"type":"refusal"}"#,
    );
    let events = events(&json);
    let (start, end) = (data(&events[0]), data(&events[1]));
    for name in ["stop_reason", "stop_sequence", "stop_details"] {
        assert_eq!(start["message"][name], Value::Null);
        assert!(!end["delta"][name].is_null());
    }
    assert_eq!((&start["message"]["usage"]["output_tokens"], &end["usage"]["output_tokens"]), (&json!(1), &json!(15)));
    check(&json);
    for tokens in ["0", "1", "null"] {
        check_law(&json.replace(r#""output_tokens":15"#, &format!(r#""output_tokens":{tokens}"#)));
    }
    for without in
        [r#","usage":{"input_tokens":25,"output_tokens":15,"service_tier":"standard"}"#, r#","stop_sequence":"END""#]
    {
        check_law(&json.replace(without, ""));
    }
    check_law(r#"{"type":"message","content":[],"stop_reason":"end_turn","usage":null}"#);
}

#[test]
fn line_ends_between_tokens_do_not_end_the_data() {
    let json = "{\r\n \"type\": \"message\",\n \"content\": [\n {\"type\": \"hologram\",\r\"a\": [\n1]},\n{\"type\":\"tool_use\",\"input\":{\n}}],\n\"usage\": {\r\n\"output_tokens\":\n 2}, \"stop_reason\":\"end_turn\"\n}";
    let events = events(json);
    assert_eq!(events.len(), 9);
    for event in &events {
        assert!(!event.data.contains('\n') && event.name.as_deref() == data(event)["type"].as_str());
    }
    assert!(assemble(&events).json.contains("\"input\":{\n}"));
    check(json);
}

#[test]
fn what_is_no_message_has_no_replay() {
    let many = message(&vec!["{}"; MAX_BLOCKS + 1].join(","), "");
    for json in [
        "",
        "[]",
        "{}",
        r#"{"type":"message"}"#,
        r#"{"type":"error","content":[]}"#,
        r#"{"type":"message","content":"a"}"#,
        &many,
    ] {
        assert!(Replay::new(json.to_owned()).is_none(), "{}", &json[..json.len().min(40)]);
    }
    assert!(Replay::new(message(&vec!["{}"; MAX_BLOCKS].join(","), "")).is_some());
}

#[test]
fn large_blocks_come_in_pieces_and_large_messages_in_chunks() {
    let text = "🦀é\"\n".repeat(200_000);
    let block = format!(r#"{{"type":"text","text":{}}}"#, raw::quote(&text));
    let json = message(&format!("{block},{block}"), "");
    let chunks: Vec<_> = Replay::new(json.clone()).unwrap().collect();
    assert!(chunks.len() > 40 && chunks.iter().all(|chunk| chunk.len() < CHUNK_BYTES + 4 * PIECE_BYTES));
    assert!(chunks.concat().len() < json.len() * 11 / 10);
    check(&json);
    let input = format!(r#"{{"type":"tool_use","id":"t","name":"f","input":{{"text":{}}}}}"#, raw::quote(&text));
    let assembled = assemble(&events(&message(&input, "")));
    assert!(assembled.json.contains(&input), "the input is the same byte for byte");
}

/// Any JSON.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("-1.50".to_owned()),
        any::<String>().prop_map(|text| raw::quote(&text))
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|list| format!("[{}]", list.join(" ,\n"))),
            (any::<String>(), inner).prop_map(|(name, value)| format!("{{{}: {value}}}", raw::quote(&name))),
        ]
    })
}

fn any_block() -> impl Strategy<Value = String> {
    let text = prop_oneof![any::<String>(), "[a-zé🦀\"\\\\\n ]{0,40}".prop_map(|text| text.repeat(300))];
    (text, prop::collection::vec(value(), 0..3), value(), 0_usize..10).prop_map(|(text, list, value, kind)| {
        let (text, object) = (raw::quote(&text), format!(r#"{{ "v":{value} }}"#));
        let list = format!("[{}]", list.join(","));
        match kind {
            0 => format!(r#"{{"type":"text","text":{text}}}"#),
            1 => format!(r#"{{"type":"text","text":{text},"citations":{list}}}"#),
            2 => format!(r#"{{"citations":null,"text":{text},"type":"text"}}"#),
            3 => format!(r#"{{"type":"thinking","thinking":{text},"signature":{text}}}"#),
            4 => format!(r#"{{"type":"redacted_thinking","data":{text}}}"#),
            5 => format!(r#"{{"type":"tool_use","id":"t","name":"f","input":{object}}}"#),
            6 => format!(r#"{{"type":"server_tool_use","id":"t","name":"f","input":{value}}}"#),
            7 => format!(r#"{{"type":"web_search_tool_result","tool_use_id":"t","content":{value}}}"#),
            8 => format!(r#"{{"type":"compaction","content":{text},"encrypted_content":{text}}}"#),
            _ => format!(r#"{{"type":{text},"text":{value},"input":{value},"x":{object}}}"#),
        }
    })
}

proptest! {
    #[test]
    fn the_assembler_and_the_sdks_make_the_same_message_of_it(
        blocks in prop::collection::vec(any_block(), 0..5),
        more in prop::option::of(value()),
        names in prop::sample::subsequence(vec!["container", "context_management", "stop_details", "new"], 0..4),
    ) {
        let more = more.unwrap_or_else(|| "null".to_owned());
        let more: String = names.iter().map(|name| format!(r#","{name}":{more}"#)).collect();
        check(&message(&blocks.join(","), &more));
    }

    #[test]
    fn any_text_is_replayed_or_not_and_never_a_panic(text in r#"[\[\]{}",:\\u0-9a-z ]{0,60}"#) {
        for json in [text.clone(), format!(r#"{{"type":"message","content":[{text}],"usage":{text}}}"#)] {
            if let Some(replay) = Replay::new(json) {
                let end = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
                let is_ended = replay.last().unwrap().ends_with(end);
                prop_assert!(is_ended);
            }
        }
    }
}
