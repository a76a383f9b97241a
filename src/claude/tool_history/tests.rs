use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// A body whose messages are written short: `A: a? b? / U: a= b= text / S: text`. A role and blocks: a call, a result
/// (`a=` and `a=2` differ; `a!` is an interrupted one), a block of another type (`<compaction>`), or a text, which is the
/// whole content if it stands in quotes.
fn body(short: &str) -> String {
    let messages: Vec<_> = short.split(" / ").map(message).collect();
    format!(r#""max_tokens": 1e1,"messages":[ {} ],"z":[ 1 ]"#, messages.join(" , "))
}

fn message(short: &str) -> String {
    let (role, blocks) = short.split_once(':').unwrap();
    let role = match role {
        "A" => "assistant",
        "U" => "user",
        _ => "system",
    };
    let content = match blocks.trim() {
        text if text.starts_with('"') => text.to_owned(),
        blocks => format!("[{}]", blocks.split_whitespace().map(block).collect::<Vec<_>>().join(",")),
    };
    format!(r#"{{ "role":"{role}", "content": {content} }}"#)
}

fn block(short: &str) -> String {
    if let Some(kind) = short.strip_prefix('<').and_then(|kind| kind.strip_suffix('>')) {
        format!(r#"{{"type":"{kind}","id":"a","tool_use_id":"a"}}"#)
    } else if let Some(id) = short.strip_suffix('?') {
        format!(r#"{{"type":"tool_use","id":"{id}","name":"f","input":{{ "n" : 1.0 }}}}"#)
    } else if let Some(id) = short.strip_suffix('!') {
        format!(r#"{{"type":"tool_result","tool_use_id":"{id}","is_error":true,"content":"{INTERRUPTED}"}}"#)
    } else if let Some((id, value)) = short.split_once('=') {
        format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"{value}"}}"#)
    } else {
        format!(r#"{{"type":"text","text":"{short}"}}"#)
    }
}

fn names(mended: &[Mend]) -> Vec<String> {
    mended.iter().map(|mend| format!("{} {}", mend.kind.name(), mend.place)).collect()
}

/// The mends of a history, and what it is then.
fn mended(short: &str) -> (Vec<String>, String) {
    match check(&body(short)) {
        History::Mended { body_rest, mended } => {
            assert_eq!(check(&body_rest), History::Sound, "{short}");
            (names(&mended), body_rest)
        }
        other => panic!("{short}: {other:?}"),
    }
}

#[test]
fn a_sound_history_is_left_alone() {
    for short in [
        "U: \"hi\"",
        "U: hi / A: \"ho\" / U: hi",
        "U: hi / A: a? / U: a=",
        "U: hi / A: text a? b? / U: a= b= text / A: c? / U: c= / A: done",
        "A: a? b? / U: b= a= text",
        "A: a? / U: a= / A: a? / U: a=",
        "A: a? / U: a= text / U: more / U: \"and more\" / A: ok",
        "A: a? / A: b? / U: b= a=",
        "A: a? / A: a? / U: a=",
        "U: hi / A: a?",
        "U: hi / A: a? / A: text",
        "U: hi / A: <server_tool_use> <mcp_tool_use> <web_search_tool_result> / U: <mcp_tool_result> text",
        "U: <tool_use>",
        "A: <tool_result> / U: hi",
    ] {
        assert_eq!(check(&body(short)), History::Sound, "{short}");
    }
}

#[test]
fn damage_that_can_be_undone_is_undone() {
    for (damaged, expected, mends) in [
        ("A: a? / U: one a= two", "A: a? / U: a= one two", "reordered messages.1"),
        ("A: a? b? / U: one b= two a=", "A: a? b? / U: a= b= one two", "reordered messages.1"),
        ("A: a? b? / U: b= one a= / A: ok", "A: a? b? / U: a= b= one / A: ok", "reordered messages.1"),
        ("A: a? b? / U: a= / U: b= / A: ok", "A: a? b? / U: a= b= / A: ok", "gathered messages.2.content.0"),
        (
            "A: a? b? / U: a= one / U: two b= three / U: four / A: ok",
            "A: a? b? / U: a= b= one / U: two three / U: four / A: ok",
            "gathered messages.2.content.1",
        ),
        ("A: a? / U: \"one\" / U: a=", "A: a? / U: a= one", "gathered messages.2.content.0"),
        (
            "A: a? b? / U: one / U: \"two\" / U: b= / U: a= / U: three",
            "A: a? b? / U: a= b= one / U: \"two\" / U: three",
            "gathered messages.3.content.0, gathered messages.4.content.0",
        ),
        ("A: x a? / U: \"go on\"", "A: x a? / U: a! on", "completed messages.0.content.1"),
        (
            "A: a? b? c? / U: b= / A: ok",
            "A: a? b? c? / U: a! b= c! / A: ok",
            "completed messages.0.content.0, completed messages.0.content.2",
        ),
        ("A: a? / A: b? / U: a= / A: ok", "A: a? / A: b? / U: a= b! / A: ok", "completed messages.1.content.0"),
        ("A: a? / U: one / U: two", "A: a? / U: a! one / U: two", "completed messages.0.content.0"),
        ("A: a? / U: \"\" / A: ok", "A: a? / U: a! / A: ok", "completed messages.0.content.0"),
        ("A: a? / U: a=1 one a=1", "A: a? / U: a=1 one", "deduplicated messages.1.content.2"),
        ("A: a? / U: a=1 / U: a=1 / A: ok", "A: a? / U: a=1 / A: ok", "deduplicated messages.2.content.0"),
        (
            "A: a? / U: a=1 / U: a=1 one / U: a=1",
            "A: a? / U: a=1 / U: one",
            "deduplicated messages.2.content.0, deduplicated messages.3.content.0",
        ),
        (
            "A: a? / U: one a= / A: b? c? / U: c=1 / U: c=1 / A: d? / U: d= / A: e?",
            "A: a? / U: a= one / A: b? c? / U: b! c=1 / A: d? / U: d= / A: e?",
            "reordered messages.1, deduplicated messages.4.content.0, completed messages.2.content.0",
        ),
    ] {
        let (found, text) = mended(damaged);
        let expected = body(expected).replace(r#""text":"on""#, r#""text":"go on""#);
        assert_eq!((found.join(", ").as_str(), text), (mends, expected), "{damaged}");
    }
}

#[test]
fn damage_that_nobody_else_can_undo_is_named_with_its_place() {
    let whose = "must answer a tool_use of the message before it, and none there has the id";
    for (short, place, message) in [
        ("U: a=", "messages.0.content.0", format!("{whose} a")),
        ("U: hi / A: a? / U: a= b=", "messages.2.content.1", format!("{whose} b")),
        ("A: a? / U: a= / A: text / U: a=", "messages.3.content.0", format!("{whose} a")),
        ("A: a? / U: a= / S: x / U: b=", "messages.3.content.0", format!("{whose} b")),
        ("A: <server_tool_use> / U: a=", "messages.1.content.0", format!("{whose} a")),
        (
            "A: a? / U: a=1 one a=2",
            "messages.1.content.2",
            "must be the only result of a, and there is another one that differs".to_owned(),
        ),
        (
            "A: a? / U: a=1 / U: a=2",
            "messages.2.content.0",
            "must be the only result of a, and there is another one that differs".to_owned(),
        ),
        (
            "A: a? x a? / U: a=1",
            "messages.0.content.2",
            "must have an id of its own: an earlier tool_use of the message has a already".to_owned(),
        ),
        ("U: x y= / A: a? a? / U: a=1 a=2", "messages.0.content.1", format!("{whose} y")),
    ] {
        assert_eq!(check(&body(short)), History::Broken(Problem::new(place, message)), "{short}");
    }
    for id in ["", r#","id":null"#, r#","id":7"#, r#","id":["a"]"#] {
        let body = format!(r#""messages":[{{"role":"assistant","content":[{{"type":"tool_use"{id}}}]}}]"#);
        let problem = Problem::new("messages.0.content.0", "must have a string as its id");
        assert_eq!(check(&body), History::Broken(problem), "{id}");
        let id = id.replace("id", "tool_use_id");
        let body = format!(r#""messages":[{{"role":"user","content":[{{"type":"tool_result"{id}}}]}}]"#);
        let problem = Problem::new("messages.0.content.0", "must have a string as its tool_use_id");
        assert_eq!(check(&body), History::Broken(problem), "{id}");
    }
}

#[test]
fn a_turn_with_a_system_message_in_it_is_not_judged_unless_all_is_clear() {
    for short in [
        "A: a? / S: x / U: one a=",
        "A: a? / S: x / U: one",
        "A: a? / S: x / U: one / U: a=1 a=2 / A: ok",
        "A: a? / S: x / U: b=",
        "A: a? b? / U: one a= / S: x / U: b= / A: ok",
        "A: a? b? / U: a=1 / S: x / U: a=2",
        "A: a? / S: x",
        "A: a? / S: x / A: ok",
        "S: x / U: a=",
    ] {
        assert_eq!(check(&body(short)), History::Sound, "{short}");
    }
    for (damaged, expected) in [
        ("A: a? / U: one a= / S: x / A: ok", "A: a? / U: a= one / S: x / A: ok"),
        ("A: a? b? / U: b= / S: x / A: ok", "A: a? b? / U: a! b= / S: x / A: ok"),
        ("A: a? / S: x / U: one / A: b? / U: two", "A: a? / S: x / U: one / A: b? / U: b! two"),
        (
            "A: a? b? / U: one a= / S: x / U: b= / A: c? / U: two c=",
            "A: a? b? / U: one a= / S: x / U: b= / A: c? / U: c= two",
        ),
    ] {
        let (found, text) = mended(damaged);
        assert_eq!((found.len(), text), (1, body(expected)), "{damaged}");
    }
}

#[test]
fn what_stands_before_a_compaction_is_not_held_against_the_history() {
    for short in [
        "U: x= / A: <compaction> a? / U: a=",
        "U: x= / A: a? a? / U: y= / U: <compaction>",
        "A: a? / A: b? <compaction> / U: one",
        "A: a? / U: <compaction> one a=",
    ] {
        assert_eq!(check(&body(short)), History::Sound, "{short}");
    }
    assert_eq!(mended("U: x= / A: <compaction> a? / U: one a=").0, ["reordered messages.2"]);
    assert!(matches!(check(&body("A: <compaction> / U: a=")), History::Broken(_)));
}

#[test]
fn ids_are_compared_by_what_they_say_and_written_as_they_were() {
    let history = |answer: &str| {
        let call = r#"{"role":"assistant","content":[{"type":"\u0074ool_use","id":"\u0061\"é"}]}"#;
        format!(r#""messages":[{call},{{"role":"user","content":[{answer}]}}]"#)
    };
    let result = r#"{"type":"tool_\u0072esult","tool_use_id":"a\u0022é"}"#;
    let text = r#"{"type":"text","text":"x"}"#;
    assert_eq!(check(&history(result)), History::Sound);
    for (answer, expected) in [
        (format!("{text} , {result}"), format!("{result},{text}")),
        (
            text.to_owned(),
            format!(
                r#"{{"type":"tool_result","tool_use_id":"\u0061\"é","is_error":true,"content":"{INTERRUPTED}"}},{text}"#
            ),
        ),
    ] {
        let History::Mended { body_rest, .. } = check(&history(&answer)) else { panic!("{answer}") };
        assert_eq!(body_rest, history(&expected));
    }
}

#[test]
fn all_else_stays_byte_for_byte() {
    let damaged = r#" "a" : 1.00 ,"messages" :[ { "role" : "user" , "content" : "\u00e9" } , {"x":1e400, "content":[ {"id":"a","type":"tool_use","input": { "n" : -0 }} ],"role":"assistant"},{"role":"user","cache":{ },"content":[ {"type":"text","text":"1"} , {"type":"tool_result", "tool_use_id":"a"} ], "y" : [ ] } ,
        {"role":"user","content": [ {"tool_use_id":"a","type":"tool_result"} ] } ],"z" : { } "#;
    let broken =
        Problem::new("messages.3.content.0", "must be the only result of a, and there is another one that differs");
    assert_eq!(check(damaged), History::Broken(broken));
    let same =
        damaged.replace(r#"{"tool_use_id":"a","type":"tool_result"}"#, r#"{"type":"tool_result", "tool_use_id":"a"}"#);
    let History::Mended { body_rest, mended } = check(&same) else { panic!() };
    assert_eq!(names(&mended), ["reordered messages.2", "deduplicated messages.3.content.0"]);
    assert_eq!(
        body_rest,
        r#" "a" : 1.00 ,"messages" :[ { "role" : "user" , "content" : "\u00e9" } , {"x":1e400, "content":[ {"id":"a","type":"tool_use","input": { "n" : -0 }} ],"role":"assistant"},{"role":"user","cache":{ },"content":[{"type":"tool_result", "tool_use_id":"a"},{"type":"text","text":"1"}], "y" : [ ] } ],"z" : { } "#
    );
}

#[test]
fn what_is_no_history_is_left_alone() {
    for body in [
        "",
        "{}",
        r#""messages":7"#,
        r#""messages":[7,{},{"role":"user"},{"role":7,"content":[]},{"role":"user","content":null}]"#,
        r#""messages":[{"role":"user","content":[{"type":"tool_result"}]}"#,
        r#""x":1"#,
    ] {
        assert_eq!(check(body), History::Sound, "{body}");
    }
}

#[test]
fn more_calls_than_a_turn_can_have_are_not_looked_at() {
    let calls = |count: usize| (0..count).map(|id| format!("{id}?")).collect::<Vec<_>>().join(" ");
    assert_eq!(check(&body(&format!("A: {} / U: x=", calls(MAX_CALLS + 1)))), History::Sound);
    let (mends, text) = mended(&format!("A: {} / U: one", calls(MAX_CALLS)));
    assert_eq!((mends.len(), text.matches(INTERRUPTED).count()), (MAX_MENDS, MAX_CALLS));
}

#[test]
fn only_so_many_results_are_filled_in() {
    let turns = |count: usize| (0..count).map(|id| format!("A: x {id}? / U: go")).collect::<Vec<_>>().join(" / ");
    let (_, text) = mended(&turns(MAX_COMPLETED));
    assert_eq!(text.matches(INTERRUPTED).count(), MAX_COMPLETED);
    let problem = Problem::new("messages.2000.content.1", "must have a result, and there are over 1000 that have none");
    assert_eq!(check(&body(&turns(MAX_COMPLETED + 1))), History::Broken(problem));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a bound on the real time is what is tested")]
fn eight_megabytes_of_the_worst_cost_seconds_at_most() {
    let many = |piece: &dyn Fn(usize) -> String, bytes: usize| {
        let (mut list, mut number) = (String::new(), 0);
        while list.len() < bytes {
            push(&mut list, &piece(number));
            number += 1;
        }
        list
    };
    let turn = |role: &str, blocks: &str| format!(r#"{{"role":"{role}","content":[{blocks}]}}"#);
    let long = "x".repeat(2_000);
    let call = |id: &str| format!(r#"{{"type":"tool_use","id":"{id}"}}"#);
    let result = |id: &str| format!(r#"{{"type":"tool_result","tool_use_id":"{id}"}}"#);
    let calls = (0..MAX_CALLS).rev().map(|id| call(&format!("{long}{id:03}"))).collect::<Vec<_>>().join(",");
    let m = 1_000_000;
    let start = std::time::Instant::now();
    for messages in [
        turn("assistant", &many(&|id| call(&format!("{:07}", 9_999_999 - id)), 8 * m)),
        format!(
            "{},{}",
            turn("assistant", &calls),
            turn("user", &many(&|id| result(&format!("{long}{:03}", id % MAX_CALLS)), 7 * m))
        ),
        format!("{},{}", turn("assistant", &call("a")), many(&|_| turn("user", &result("a")), 8 * m)),
        many(&|_| format!("{},{}", turn("assistant", &call("a")), turn("user", "{}")), 8 * m),
        format!("{},{}", turn("assistant", &call("a")), many(&|_| turn("user", "0"), 8 * m)),
        many(&|_| turn("system", "0"), 8 * m),
        turn("user", &format!("{}{}", "[".repeat(4 * m), "]".repeat(4 * m))),
    ] {
        let body = format!(r#""messages":[{messages}]"#);
        if let History::Mended { body_rest, mended } = check(&body) {
            assert!(mended.len() <= MAX_MENDS);
            assert_eq!(check(&body_rest), History::Sound);
        }
    }
    // Comparing each block with all before it would be 10¹¹ steps.
    assert!(start.elapsed() < std::time::Duration::from_secs(30), "{:?}", start.elapsed());
}

/// One turn: how many calls, and the messages of the user that follow, block by block in the short form.
type Damaged = (usize, Vec<Vec<String>>);

fn short(turns: &[Damaged]) -> String {
    let mut messages = vec!["U: begin".to_owned()];
    for (number, (calls, answers)) in turns.iter().enumerate() {
        let calls: String = (0..*calls).map(|call| format!(" {number}.{call}?")).collect();
        messages.push(format!("A: thought{number}{calls}"));
        messages.extend(answers.iter().map(|blocks| format!("U: {}", blocks.join(" "))));
    }
    messages.push("A: end".to_owned());
    messages.join(" / ")
}

/// Turns in which results are missing, out of order, spread and doubled, as a turn's seed says.
fn turns() -> impl Strategy<Value = Vec<Damaged>> {
    let turn = (0_usize..4, 1_usize..4, any::<[bool; 4]>(), 0_usize..4, any::<bool>(), any::<u64>());
    prop::collection::vec(turn, 1..5).prop_map(|turns| {
        turns
            .into_iter()
            .enumerate()
            .map(|(number, (calls, texts, lost, doubled, shuffled, seed))| {
                let mut rng = fastrand::Rng::with_seed(seed);
                let mut blocks: Vec<String> = (0..calls)
                    .filter(|call| !(shuffled && lost[*call]))
                    .map(|call| format!("{number}.{call}={call}"))
                    .collect();
                if shuffled && doubled < blocks.len() {
                    blocks.push(blocks[doubled].clone());
                }
                blocks.extend((0..texts).map(|text| format!("text{number}.{text}")));
                let mut answers = vec![Vec::new()];
                if shuffled {
                    rng.shuffle(&mut blocks);
                }
                for block in blocks {
                    if shuffled && rng.bool() && !answers[answers.len() - 1].is_empty() {
                        answers.push(Vec::new());
                    }
                    answers.last_mut().unwrap().push(block);
                }
                (calls, answers)
            })
            .collect()
    })
}

/// The API's rule, read from the tree.
fn is_accepted(body_rest: &str) -> bool {
    let body: Value = serde_json::from_str(&format!("{{{body_rest}}}")).unwrap();
    let messages = body["messages"].as_array().unwrap();
    let ids = |at: usize, kind: &str, id: &str| -> Vec<String> {
        let blocks = messages.get(at).and_then(|message| message["content"].as_array());
        let blocks = blocks.into_iter().flatten().filter(|block| block["type"] == kind);
        blocks.map(|block| block[id].as_str().unwrap().to_owned()).collect()
    };
    (0..messages.len()).all(|at| {
        let mut calls = if at == 0 { Vec::new() } else { ids(at - 1, "tool_use", "id") };
        let mut results = ids(at, "tool_result", "tool_use_id");
        let content = messages[at]["content"].as_array();
        let first = content.into_iter().flatten().take_while(|block| block["type"] == "tool_result").count();
        let are_first = first == results.len();
        calls.sort();
        results.sort();
        calls == results && are_first
    })
}

/// The blocks of all messages that begin like this, in order.
fn blocks(body_rest: &str, start: &str) -> Vec<String> {
    let body: Value = serde_json::from_str(&format!("{{{body_rest}}}")).unwrap();
    let messages = body["messages"].as_array().unwrap().iter();
    let blocks = messages.flat_map(|message| message["content"].as_array().unwrap());
    blocks.map(Value::to_string).filter(|block| block.contains(start)).collect()
}

proptest! {
    #[test]
    fn whatever_can_be_mended_is_sound_then_and_nothing_is_lost(turns in turns()) {
        let before = body(&short(&turns));
        let after = match check(&before) {
            History::Sound => before.clone(),
            History::Mended { body_rest, mended } => {
                prop_assert!(!mended.is_empty());
                body_rest
            }
            History::Broken(problem) => panic!("{problem:?}"),
        };
        prop_assert_eq!(is_accepted(&before), after == before, "{}", before);
        prop_assert!(is_accepted(&after), "{}", after);
        prop_assert_eq!(check(&after), History::Sound);
        for kind in [r#""type":"text""#, r#""type":"tool_use""#] {
            prop_assert_eq!(blocks(&before, kind), blocks(&after, kind));
        }
        let mut results = blocks(&before, r#""type":"tool_result""#);
        let mut kept = blocks(&after, r#""type":"tool_result""#);
        kept.retain(|block| !block.contains(INTERRUPTED));
        results.sort();
        results.dedup();
        kept.sort();
        prop_assert_eq!(results, kept);
        for text in before.split(['[', ']']).filter(|text| !text.contains("tool_result")) {
            prop_assert!(after.contains(text.trim_matches([' ', ','])), "{} in {}", text, after);
        }
    }

    #[test]
    fn any_text_is_a_verdict_and_never_a_panic(
        text in r#"[\[\]{}",:\\u0-9a ]{0,60}"#,
        pieces in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..30),
    ) {
        let _ = check(&text);
        for text in [pieces.concat(), format!(r#""messages":[{{"role":"user","content":[{}]}}]"#, pieces.concat())] {
            if let History::Mended { body_rest, .. } = check(&text) {
                prop_assert_eq!(check(&body_rest), History::Sound);
            }
        }
    }

    #[test]
    fn any_history_is_a_verdict_and_mended_once_for_all(
        messages in prop::collection::vec(
            (prop::sample::select(vec!["A", "U", "U", "S"]), prop::collection::vec(
                prop::sample::select(vec!["a?", "b?", "a=", "b=", "a=2", "x", "<compaction>"]), 1..4)), 1..9),
    ) {
        let short: Vec<_> = messages.iter().map(|(role, blocks)| format!("{role}: {}", blocks.join(" "))).collect();
        if let History::Mended { body_rest, .. } = check(&body(&short.join(" / "))) {
            prop_assert_eq!(check(&body_rest), History::Sound);
            let tree = serde_json::from_str::<Value>(&format!("{{{body_rest}}}"));
            prop_assert!(tree.is_ok());
        }
    }
}

const PIECES: [&str; 20] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"messages\"",
    "\"role\"",
    "\"content\"",
    "\"user\"",
    "\"assistant\"",
    "\"type\"",
    "\"tool_use\"",
    "\"tool_result\"",
    "\"id\"",
    "\"tool_use_id\"",
    "\"a\"",
    "\"é\\ud83d\"",
    "null",
    "\n",
];
