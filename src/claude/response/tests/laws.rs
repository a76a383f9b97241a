//! What holds for every stream, however it was cut into events and chunks.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn however_a_text_is_split_into_deltas_and_chunks_the_message_is_the_same(
        pieces in prop::collection::vec("[a-z\"\\\\\u{0}\u{1f}\u{7f}é🦀\n]{0,5}", 0..12),
        first in "[a-z\"]{0,3}",
        size in 1_usize..50,
    ) {
        let mut events = vec![START.to_owned(), block_start(0, &format!(r#"{{"type":"text","text":{}}}"#, raw::quote(&first)))];
        events.extend(pieces.iter().map(|piece| text_delta(0, piece)));
        events.push(block_stop(0));
        events.extend(ending("end_turn"));
        let bytes: String = events.iter().map(|data| format!("event: any\r\ndata: {data}\r\n\r\n")).collect();

        let (mut decoder, mut assembler, mut live) = (Decoder::new(), Assembler::new(), String::new());
        for chunk in bytes.as_bytes().chunks(size) {
            for event in decoder.push(chunk).unwrap() {
                live.push_str(assembler.feed(&event).unwrap().text);
            }
        }
        let whole = first + &pieces.concat();
        let assembled = assembler.finish(decoder.finish()).unwrap();
        prop_assert_eq!(&live, &whole);
        prop_assert_eq!(&assembled.text, &whole);
        prop_assert_eq!(assembled.json, message(&format!(r#"{{"type":"text","text":{}}}"#, raw::quote(&whole)), "end_turn"));
    }

    #[test]
    fn however_a_tool_input_is_split_into_deltas_the_message_is_the_same(
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
    ) {
        let input = r#"{"a":[1.0,1e400,{"b":"\ud83e\udd80 \"é\" 🦀"}],"a":null, "n":-0}"#;
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| input.floor_char_boundary(cut.index(input.len() + 1))).collect();
        cuts.extend([0, input.len()]);
        cuts.sort_unstable();
        let mut events = vec![START.to_owned(), block_start(0, r#"{"type":"tool_use","input":{}}"#)];
        events.extend(cuts.windows(2).map(|cut| {
            let piece = raw::quote(&input[cut[0]..cut[1]]);
            block_delta(0, &format!(r#"{{"type":"input_json_delta","partial_json":{piece}}}"#))
        }));
        events.extend(ending("tool_use"));
        let expected = message(&format!(r#"{{"type":"tool_use","input":{input}}}"#), "tool_use");
        prop_assert_eq!(assemble(&events).unwrap().json, expected);
    }

    #[test]
    fn whatever_the_order_of_events_a_message_comes_only_from_a_start_and_an_end(
        mut order in prop::sample::subsequence((0..12).collect::<Vec<usize>>(), 0..=12),
        swap in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let mut events = stream(&[
            (r#"{"type":"text","text":""}"#, &[r#"{"type":"text_delta","text":"a"}"#]),
            (r#"{"type":"tool_use","input":{}}"#, &[r#"{"type":"input_json_delta","partial_json":"{}"}"#]),
        ], "end_turn");
        events.extend(["{".to_owned(), "null".to_owned()]);
        prop_assert_eq!(events.len(), 12);
        if !order.is_empty() {
            let (one, other) = (swap.0.index(order.len()), swap.1.index(order.len()));
            order.swap(one, other);
        }
        let order: Vec<&String> = order.iter().map(|&at| &events[at]).collect();
        if assemble(&order).is_ok() {
            let position = |kind: &str| order.iter().position(|event| event.contains(kind));
            let end = position(r#""message_stop""#).into_iter().chain(position(r#""message_delta""#)).min();
            prop_assert!(position(r#""message_start""#).is_some_and(|start| end.is_some_and(|end| start < end)));
        }
    }
}
