//! The stream that a finished Message would have come in.
//!
//! Whoever asks for a stream gets one, also if the answer was there before they asked. Its events are those of the API, so
//! that every client puts the same Message together again; they only come faster, and in larger pieces.
//!
//! What goes where is decided by what the official SDKs do with it. They begin with the Message of `message_start` and the
//! block of `content_block_start`, keep all that they do not know, append the deltas that they do know, and then *replace*
//! what `message_delta` is known to bring, by nothing if it does not bring it. So:
//!
//! - `message_start` has all members, with no content, no stop reason, and one output token, as in the API;
//! - `message_delta` has the members that SDKs take from there: `stop_reason`, `stop_sequence`, `stop_details` and
//!   `container` as its delta, `usage` whole, `context_management` beside it;
//! - a block's text, thinking, input and compaction begin empty and come as deltas, its citations and its signature after
//!   them, for many clients read nothing but deltas. Blocks of all other kinds are whole from the start, and so is one of a
//!   known kind that is not as it should be.
//!
//! The law: [`Assembler`](super::response::Assembler) makes the same Message of it.

use super::raw::{self, Fields, Json, Object};

/// The events of a Message, in chunks of some 64 KB that are sent one after the other. Only one of them and one block's text
/// are in memory beside the Message.
#[derive(Debug)]
pub struct Replay {
    json: String,
    /// What is to be sent first.
    ready: String,
    /// Where the blocks are that have not begun.
    blocks: std::vec::IntoIter<(usize, usize)>,
    index: usize,
    growing: Option<Growing>,
    /// What is to be sent last.
    end: String,
}

/// A block whose deltas are being sent.
#[derive(Debug)]
struct Growing {
    /// The delta's type, and the name of its text.
    delta: [&'static str; 2],
    text: String,
    sent: usize,
    /// The events after it.
    rest: String,
}

impl Replay {
    /// The replay of the Message in `json`; `None` if that is no Message, or one of more than [`MAX_BLOCKS`] blocks.
    #[must_use]
    pub fn new(json: String) -> Option<Self> {
        let fields = Fields::parse(&json).ok()?;
        let content = fields.get("content").filter(|_| fields.string("type").is_some_and(|kind| kind == "message"))?;
        let mut blocks = Vec::new();
        let mut count = 0_usize;
        raw::for_each_element(content.get(), &mut |block| {
            count += 1;
            if count <= MAX_BLOCKS {
                let start = block.get().as_ptr().addr().saturating_sub(json.as_ptr().addr());
                blocks.push((start, start + block.get().len()));
            }
        })
        .ok()?;
        if count > MAX_BLOCKS {
            return None;
        }
        let usage = fields.object("usage").map(|usage| {
            let tokens = usage.get("output_tokens").map_or("", Json::get);
            let at_first = if tokens.parse().is_ok_and(|tokens: u64| tokens > 1) { "1" } else { tokens };
            with(&usage, &[("output_tokens", at_first)])
        });
        let mut changes =
            vec![("content", "[]"), ("stop_reason", "null"), ("stop_sequence", "null"), ("stop_details", "null")];
        changes.extend(usage.as_deref().map(|usage| ("usage", usage)));
        let message = with(&fields, &changes);
        let mut ready = String::new();
        push(&mut ready, "message_start", &format!(r#""message":{message}"#));

        let mut delta = Object::default();
        for name in ["container", "stop_details", "stop_reason", "stop_sequence"] {
            if let Some(value) = fields.get(name) {
                delta.set(name, value.get().to_owned());
            }
        }
        let mut update = String::from(r#""delta":"#);
        delta.write(&mut update);
        for (name, is_sent) in [("usage", usage.is_some()), ("context_management", true)] {
            if let Some(value) = fields.get(name).filter(|_| is_sent) {
                update.push_str(&format!(r#","{name}":{}"#, value.get()));
            }
        }
        let mut end = String::new();
        push(&mut end, "message_delta", &update);
        push(&mut end, "message_stop", "");
        Some(Self { ready, blocks: blocks.into_iter(), index: 0, growing: None, end, json })
    }

    /// Begins the next block: adds its first events to `out`, and the rest of them to what is being sent.
    fn begin(&mut self, (start, end): (usize, usize), out: &mut String) {
        let index = self.index;
        self.index += 1;
        let block = self.json.get(start..end).unwrap_or_default();
        let fields = Fields::parse(block).unwrap_or_default();
        let string = |name: &str| fields.string(name).map(String::from);
        let raw = |name: &str| fields.get(name).map_or("null", Json::get);
        let mut rest = String::new();
        let mut changes = Vec::new();
        let mut growing = None;
        match fields.string("type").as_deref() {
            Some("text") => {
                growing = string("text").map(|text| (["text_delta", "text"], text));
                if growing.is_some() {
                    changes.push(("text", r#""""#));
                    let mut has_citations = false;
                    let _ = raw::for_each_element(raw("citations"), &mut |citation| {
                        has_citations = true;
                        push_delta(&mut rest, index, "citations_delta", &format!(r#""citation":{}"#, citation.get()));
                    });
                    if has_citations {
                        changes.push(("citations", "[]"));
                    }
                }
            }
            Some("thinking") => {
                growing = string("thinking").map(|text| (["thinking_delta", "thinking"], text));
                if growing.is_some() {
                    changes.push(("thinking", r#""""#));
                    if string("signature").is_some_and(|signature| !signature.is_empty()) {
                        changes.push(("signature", r#""""#));
                        let signature = format!(r#""signature":{}"#, raw("signature"));
                        push_delta(&mut rest, index, "signature_delta", &signature);
                    }
                }
            }
            Some("tool_use" | "server_tool_use" | "mcp_tool_use") if raw("input").starts_with('{') => {
                let input = if raw("input") == "{}" { "" } else { raw("input") };
                growing = Some((["input_json_delta", "partial_json"], input.to_owned()));
                changes.push(("input", "{}"));
            }
            Some("compaction") if string("content").is_some() => {
                changes.push(("content", "null"));
                let encrypted = fields.get("encrypted_content").map(Json::get);
                let encrypted = encrypted.map(|text| format!(r#","encrypted_content":{text}"#)).unwrap_or_default();
                let members = format!(r#""content":{}{encrypted}"#, raw("content"));
                push_delta(&mut rest, index, "compaction_delta", &members);
            }
            _ => {}
        }
        let block = if changes.is_empty() { block.to_owned() } else { with(&fields, &changes) };
        push(out, "content_block_start", &format!(r#""index":{index},"content_block":{block}"#));
        push(&mut rest, "content_block_stop", &format!(r#""index":{index}"#));
        match growing {
            Some((delta, text)) => {
                if delta[0] == "input_json_delta" {
                    // As the API does, so that a tool without input has a delta too.
                    push_delta(out, index, delta[0], r#""partial_json":"""#);
                }
                self.growing = Some(Growing { delta, text, sent: 0, rest });
            }
            None => out.push_str(&rest),
        }
    }
}

impl Iterator for Replay {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut out = std::mem::take(&mut self.ready);
        while out.len() < CHUNK_BYTES {
            if let Some(growing) = &mut self.growing {
                let text = growing.text.get(growing.sent..).unwrap_or_default();
                let piece = text.get(..text.floor_char_boundary(PIECE_BYTES)).unwrap_or_default();
                if piece.is_empty() {
                    out.push_str(&growing.rest);
                    self.growing = None;
                    continue;
                }
                let [kind, name] = growing.delta;
                let index = self.index.saturating_sub(1);
                push_delta(&mut out, index, kind, &format!(r#""{name}":{}"#, raw::quote(piece)));
                growing.sent += piece.len();
            } else if let Some(block) = self.blocks.next() {
                self.begin(block, &mut out);
            } else {
                out.push_str(&std::mem::take(&mut self.end));
                break;
            }
        }
        (!out.is_empty()).then_some(out)
    }
}

/// The object with other values for some of the members that it has.
fn with(fields: &Fields<'_>, changes: &[(&str, &str)]) -> String {
    let mut object = Object::default();
    for (name, value) in &fields.0 {
        if object.get(name).is_none() {
            let change = changes.iter().find(|(changed, _)| changed == name);
            object.set(name, change.map_or(value.get(), |(_, json)| json).to_owned());
        }
    }
    let mut json = String::new();
    object.write(&mut json);
    json
}

fn push_delta(out: &mut String, index: usize, kind: &str, member: &str) {
    push(out, "content_block_delta", &format!(r#""index":{index},"delta":{{"type":"{kind}",{member}}}"#));
}

/// Appends an event. What is between the tokens of an upstream's JSON may be a line end, which would end the data.
fn push(out: &mut String, name: &str, members: &str) {
    let comma = if members.is_empty() { "" } else { "," };
    out.push_str(&format!("event: {name}\ndata: {{\"type\":\"{name}\"{comma}"));
    for part in members.split_inclusive(['\n', '\r']) {
        match part.strip_suffix(['\n', '\r']) {
            Some(line) => {
                out.push_str(line);
                out.push(' ');
            }
            None => out.push_str(part),
        }
    }
    out.push_str("}\n\n");
}

/// The most blocks of one Message: far above any answer, and an isolate's memory has room for their places.
pub const MAX_BLOCKS: usize = 100_000;

/// How much text a delta has: SDKs parse a tool's input again with every one.
const PIECE_BYTES: usize = 4 * 1024;

/// How much is sent at once, more or less.
const CHUNK_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
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
            (
                r#"{"type":"text","text":"a","citations":[]}"#,
                r#"{"type":"text","text":"","citations":[]}"#,
                "text_delta",
            ),
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
        assert_eq!(
            (&start["message"]["usage"]["output_tokens"], &end["usage"]["output_tokens"]),
            (&json!(1), &json!(15))
        );
        check(&json);
        for tokens in ["0", "1", "null"] {
            check_law(&json.replace(r#""output_tokens":15"#, &format!(r#""output_tokens":{tokens}"#)));
        }
        for without in [
            r#","usage":{"input_tokens":25,"output_tokens":15,"service_tier":"standard"}"#,
            r#","stop_sequence":"END""#,
        ] {
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
}
