//! A body as another model needs it than the one it was written for.
//!
//! [`fit`](crate::policy::fit) says what has to be different; here it is done to the text: `thinking`, `output_config.effort`
//! and the sampling members are replaced or taken out where they stand, everything else stays byte for byte.
//!
//! One more thing goes: the thinking blocks of earlier turns. Each is signed, and can be read by the model that wrote it and
//! by some others (sonnet-5-5's by none of its fallbacks). The documentation says that the API drops what a model cannot read
//! without an error; clients report 400s when the model changes in a conversation (vybestack/llxprt-code #2335), and one
//! refusal would cost the job. Taking all of them out is what the API's own troubleshooting page advises, and always
//! accepted where thinking is adaptive or off; that is why [`fit`](crate::policy::fit) never asks for a budget while tools
//! are being answered, where a block would have to come first. The price is that the fallback reasons anew. A turn that
//! consists of such blocks alone goes with them, as it may not be empty; the last one stays as it is.
//!
//! The body for the model that was asked for never comes through here.

use std::borrow::Cow;

use super::demands::Gathering;
use super::raw::{self, Fields, Json, Object};
use super::tool_history::{self, History};
use crate::json::for_each_of_members;
use crate::policy::demands::Thinking;
use crate::policy::fit::{self, Edit, Plan};
use crate::policy::models::{Abilities, Models};

/// The body (without model and stream) of a call to `model`, where the job asked for `asked`.
#[must_use]
pub fn for_model<'a>(body_rest: &'a [u8], asked: &str, model: &str, models: &Models) -> Cow<'a, [u8]> {
    let (Some(to), Ok(text)) = (models.get(model).filter(|_| model != asked), std::str::from_utf8(body_rest)) else {
        return Cow::Borrowed(body_rest);
    };
    match sound(rewrite(text, models.get(asked), to)) {
        Cow::Borrowed(_) => Cow::Borrowed(body_rest),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// The same body with its tool history mended, if it has to be: turns have gone that stood between others, and what was kept may be
/// older than today's rules. What cannot be mended is the upstream's to refuse.
fn sound(body_rest: Cow<'_, str>) -> Cow<'_, str> {
    match tool_history::check(&body_rest) {
        History::Mended { body_rest, .. } => Cow::Owned(body_rest),
        History::Sound | History::Broken(_) => body_rest,
    }
}

/// The same for the abilities of two models; those of the one asked for may be unknown.
#[must_use]
pub fn rewrite<'a>(body_rest: &'a str, asked: Option<&Abilities>, to: &Abilities) -> Cow<'a, str> {
    let mut members: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::new();
    let mut gathering = Gathering::default();
    let walked = for_each_of_members(body_rest, &mut |name, value| {
        gathering.member(&name, value.get());
        if name == "messages" {
            gather_messages(value.get(), &mut gathering);
        }
        members.push((name, Cow::Borrowed(value.get())));
        Ok(())
    });
    if walked.is_err() {
        return Cow::Borrowed(body_rest);
    }
    let has_thinking_blocks = gathering.has_thinking_blocks;
    let demands = gathering.finish(body_rest.len());
    let plan = fit::plan(&demands, asked, to);
    let nothing = Plan { thinking: Edit::Keep, effort: Edit::Keep, drop_sampling: false };
    if plan == nothing && !has_thinking_blocks {
        return Cow::Borrowed(body_rest);
    }
    match plan.thinking {
        Edit::Keep => (),
        Edit::Drop => members.retain(|(name, _)| name != "thinking"),
        Edit::Set(thinking) => {
            let old = members.iter_mut().find(|(name, _)| name == "thinking");
            let display = old.as_ref().and_then(|(_, value)| display(value));
            let new = Cow::Owned(thinking_member(thinking, display.as_deref()));
            match old {
                Some((_, value)) => *value = new,
                None => members.push(("thinking".into(), new)),
            }
        }
    }
    match plan.effort {
        Edit::Keep => (),
        Edit::Drop => set_effort(&mut members, None),
        Edit::Set(effort) => set_effort(&mut members, Some(effort.name())),
    }
    if plan.drop_sampling {
        members.retain(|(name, _)| !SAMPLING.contains(&name.as_ref()));
    }
    if has_thinking_blocks
        && let Some((_, messages)) = members.iter_mut().find(|(name, _)| name == "messages")
        && let Some(stripped) = without_thinking_blocks(messages)
    {
        *messages = Cow::Owned(stripped);
    }
    let mut out = String::with_capacity(body_rest.len());
    for (name, value) in members {
        push(&mut out, &format!("{}:", raw::quote(&name)));
        out.push_str(&value);
    }
    Cow::Owned(out)
}

fn gather_messages(messages: &str, gathering: &mut Gathering) {
    let _ = raw::for_each_element(messages, &mut |message| {
        let Ok(fields) = Fields::parse(message.get()) else { return };
        gathering.message(&fields);
        if let Some(content) = fields.get("content") {
            let _ = raw::for_each_element(content.get(), &mut |block| {
                if let Ok(fields) = Fields::parse(block.get()) {
                    gathering.block(&fields);
                }
            });
        }
    });
}

/// What the caller wants to see of the thinking, as JSON.
fn display(thinking: &str) -> Option<String> {
    let fields = Fields::parse(thinking).ok()?;
    let kind = fields.string("type")?;
    let has_display = matches!(kind.as_ref(), "adaptive" | "enabled");
    fields.get("display").filter(|_| has_display).map(|display| display.get().to_owned())
}

fn thinking_member(thinking: Thinking, display: Option<&str>) -> String {
    match (thinking, display) {
        (Thinking::BetweenTools, _) => r#"{"type":"between_tools"}"#.to_owned(),
        (Thinking::Adaptive, None) => r#"{"type":"adaptive"}"#.to_owned(),
        (Thinking::Adaptive, Some(display)) => format!(r#"{{"type":"adaptive","display":{display}}}"#),
        (Thinking::Enabled { budget_tokens }, _) => {
            format!(r#"{{"type":"enabled","budget_tokens":{budget_tokens}}}"#)
        }
        (Thinking::Disabled | Thinking::Unset | Thinking::Other, _) => r#"{"type":"disabled"}"#.to_owned(),
    }
}

fn set_effort(members: &mut Vec<(Cow<'_, str>, Cow<'_, str>)>, effort: Option<&str>) {
    let Some(at) = members.iter().position(|(name, _)| name == "output_config") else { return };
    let Some((_, config)) = members.get_mut(at) else { return };
    let Ok(fields) = Fields::parse(config) else { return };
    let mut object = Object::default();
    for (name, value) in &fields.0 {
        match (name.as_ref(), effort) {
            ("effort", None) => (),
            ("effort", Some(effort)) => object.set(name, raw::quote(effort)),
            _ => object.set(name, value.get().to_owned()),
        }
    }
    let mut text = String::new();
    object.write(&mut text);
    if text == "{}" {
        members.remove(at);
    } else {
        *config = Cow::Owned(text);
    }
}

/// The messages without thinking blocks in the assistant's turns.
fn without_thinking_blocks(messages: &str) -> Option<String> {
    let mut count = 0_usize;
    raw::for_each_element(messages, &mut |_| count += 1).ok()?;
    let (mut out, mut index) = (String::with_capacity(messages.len()), 0_usize);
    raw::for_each_element(messages, &mut |message| {
        index += 1;
        match turn_without_thinking_blocks(message) {
            Turn::Untouched => push(&mut out, message.get()),
            Turn::Stripped(text) => push(&mut out, &text),
            Turn::Empty if index == count => push(&mut out, message.get()),
            Turn::Empty => (),
        }
    })
    .ok()?;
    Some(format!("[{out}]"))
}

enum Turn {
    Untouched,
    Stripped(String),
    Empty,
}

fn turn_without_thinking_blocks(message: Json<'_>) -> Turn {
    let fields = Fields::parse(message.get()).unwrap_or_default();
    let (Some(content), Some("assistant")) = (fields.get("content"), fields.string("role").as_deref()) else {
        return Turn::Untouched;
    };
    let (mut kept, mut stripped) = (String::new(), false);
    let walked = raw::for_each_element(content.get(), &mut |block| {
        let kind = Fields::parse(block.get()).ok().and_then(|block| block.string("type").map(String::from));
        if matches!(kind.as_deref(), Some("thinking" | "redacted_thinking")) {
            stripped = true;
        } else {
            push(&mut kept, block.get());
        }
    });
    if walked.is_err() || !stripped {
        return Turn::Untouched;
    }
    if kept.is_empty() {
        return Turn::Empty;
    }
    let mut object = Object::from(&fields);
    object.set("content", format!("[{kept}]"));
    let mut text = String::new();
    object.write(&mut text);
    Turn::Stripped(text)
}

/// Appends to a list.
fn push(out: &mut String, text: &str) {
    if !out.is_empty() {
        out.push(',');
    }
    out.push_str(text);
}

const SAMPLING: [&str; 3] = ["temperature", "top_p", "top_k"];

#[cfg(test)]
mod tests {
    use super::super::request::MessagesRequest;
    use super::*;
    use crate::policy::fit::fits;
    use proptest::prelude::*;

    const HI: &str = r#""max_tokens":10000,"messages":[{"role":"user","content":"Hi"}]"#;

    fn on(model: &str, asked: &str, body_rest: &str) -> String {
        let models = Models::default();
        let once = rewrite(body_rest, models.get(asked), models.get(model).unwrap()).into_owned();
        let twice = rewrite(&once, models.get(asked), models.get(model).unwrap()).into_owned();
        assert_eq!(once, twice, "rewriting is idempotent");
        once
    }

    #[test]
    fn members_are_replaced_and_taken_out_where_they_stand() {
        let (sonnet, haiku, old_haiku) = ("claude-sonnet-5-5", "claude-haiku-5-5", "claude-haiku-4-5");
        for (asked, model, members, expected) in [
            (sonnet, haiku, r#","thinking":{"type" : "adaptive"},"x":1"#, r#","thinking":{"type" : "adaptive"},"x":1"#),
            (
                sonnet,
                old_haiku,
                r#","thinking":{"type":"adaptive"},"x":1"#,
                r#","thinking":{"type":"enabled","budget_tokens":5000},"x":1"#,
            ),
            (sonnet, old_haiku, r#","output_config":{"effort":"low"},"x":1"#, r#","x":1"#),
            (
                sonnet,
                old_haiku,
                r#","output_config":{"effort":"low", "format": {"a": 1.0}}"#,
                r#","output_config":{"format":{"a": 1.0}}"#,
            ),
            (
                sonnet,
                old_haiku,
                r#","thinking":{"type":"adaptive"},"output_config":{"effort":"low"}"#,
                r#","thinking":{"type":"enabled","budget_tokens":1024}"#,
            ),
            (
                sonnet,
                old_haiku,
                r#","thinking":{"type":"adaptive"},"temperature":1"#,
                r#","thinking":{"type":"enabled","budget_tokens":5000}"#,
            ),
            (
                sonnet,
                old_haiku,
                r#","thinking":{"type":"adaptive"},"tool_choice":{"type":"any"}"#,
                r#","tool_choice":{"type":"any"}"#,
            ),
            (sonnet, haiku, r#","thinking":{"type":"between_tools"}"#, r#","thinking":{"type":"disabled"}"#),
            (
                "claude-sonnet-4-6",
                haiku,
                r#","temperature":0.2,"top_k":3,"thinking":null"#,
                r#","thinking":{"type":"disabled"}"#,
            ),
            (
                "claude-sonnet-4-6",
                haiku,
                r#","output_config":{"effort":"max"}"#,
                r#","output_config":{"effort":"high"},"thinking":{"type":"disabled"}"#,
            ),
            (
                "claude-sonnet-4-6",
                haiku,
                r#","thinking":{"type":"enabled","budget_tokens":2000,"display":"omitted"}"#,
                r#","thinking":{"type":"adaptive","display":"omitted"}"#,
            ),
        ] {
            assert_eq!(on(model, asked, &format!("{HI}{members}")), format!("{HI}{expected}"), "{members}");
        }
    }

    #[test]
    fn thinking_blocks_of_earlier_turns_go_and_all_else_of_them_stays() {
        let thinking = r#"{"type":"thinking","thinking":"…","signature":"s"}"#;
        let spelt = r#"{"type":"\u0074hinking","thinking":"","signature":"s"}"#;
        let redacted = r#"{"type":"redacted_thinking","data":"d"}"#;
        let call = r#"{"type":"tool_use","id":"t","name":"f","input":{ "a" : 1.0 }}"#;
        let result = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]}"#;
        let turn = |blocks: &str| format!(r#"{{"role":"assistant","content":[{blocks}]}}"#);
        let user = r#"{"role": "user","content":"thinking"}"#;
        for (messages, expected) in [
            (
                format!("{user},{},{result}", turn(&[thinking, redacted, call].join(" , "))),
                format!("{user},{},{result}", turn(call)),
            ),
            (format!("{user},{},{user}", turn(spelt)), format!("{user},{user}")),
            (format!("{user},{}", turn(thinking)), format!("{user},{}", turn(thinking))),
            (format!("{user},{}", turn(&[thinking, call].join(","))), format!("{user},{}", turn(call))),
            (
                format!(r#"{{"role":"user","content":[{thinking}]}},{user}"#),
                format!(r#"{{"role":"user","content":[{thinking}]}},{user}"#),
            ),
        ] {
            let body = |messages: &str| format!(r#""max_tokens":10,"messages":[{messages}],"z":[ 1 ]"#);
            assert_eq!(on("claude-haiku-5-5", "claude-sonnet-5-5", &body(&messages)), body(&expected), "{messages}");
        }
    }

    #[test]
    fn a_budget_is_not_asked_for_while_tools_are_answered() {
        let body = r#""thinking":{"type":"adaptive"},"max_tokens":9000,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]}]"#;
        assert!(!on("claude-haiku-4-5", "claude-sonnet-5-5", body).contains("thinking"));
    }

    #[test]
    fn the_body_for_the_model_that_was_asked_for_is_never_touched() {
        let models = Models::default();
        let body = format!(r#"{HI},"thinking":{{"type":"adaptive"}}"#).into_bytes();
        for (asked, model, is_changed) in [
            ("claude-haiku-4-5", "claude-haiku-4-5", false),
            ("claude-sonnet-5-5", "claude-haiku-4-5", true),
            ("claude-sonnet-5-5", "claude-haiku-4-5-20251001", true),
            ("claude-sonnet-5-5", "nobody-knows", false),
        ] {
            assert_eq!(matches!(for_model(&body, asked, model, &models), Cow::Owned(_)), is_changed, "{asked} {model}");
        }
        assert!(matches!(for_model(b"\xff", "a", "claude-haiku-4-5", &models), Cow::Borrowed(_)));
    }

    #[test]
    fn what_is_no_body_is_left_alone() {
        let models = Models::default();
        for body in ["", "{}", r#""a""#, r#""thinking":{"type":"adaptive"}]"#] {
            let rewritten = rewrite(body, None, models.get("claude-haiku-4-5").unwrap());
            assert!(matches!(rewritten, Cow::Borrowed(_)), "{body}");
        }
    }

    /// Members that models differ in, and some that they do not.
    fn body() -> impl Strategy<Value = String> {
        let thinking = prop_oneof![
            Just(None),
            Just(Some(r#""thinking":{"type":"adaptive"}"#.to_owned())),
            Just(Some(r#""thinking":{"type":"adaptive", "display":"summarized"}"#.to_owned())),
            Just(Some(r#""thinking":{"type":"disabled"}"#.to_owned())),
            Just(Some(r#""thinking":{"type":"between_tools"}"#.to_owned())),
            (0_u32..9_000)
                .prop_map(|budget| { Some(format!(r#""thinking":{{"type":"enabled","budget_tokens":{budget}}}"#)) }),
        ];
        let effort = prop_oneof![
            Just(None),
            prop_oneof!["low", "medium", "high", "xhigh", "max"]
                .prop_map(|level| Some(format!(r#""output_config":{{"effort":"{level}","format": {{ }}}}"#))),
        ];
        let other = prop::option::of(prop_oneof![
            Just(r#""temperature": 0.50"#.to_owned()),
            Just(r#""tool_choice":{"type":"any"}"#.to_owned()),
            Just(r#""metadata":{ "a" : 1e2 }"#.to_owned()),
        ]);
        let messages = prop_oneof![
            Just(r#"{"role":"user","content":"Hi"}"#),
            Just(r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]}"#),
            Just(
                r#"{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s"},{"type":"text","text":"a"}]},{"role":"user","content":"Hi"}"#
            ),
        ];
        (thinking, effort, other, messages, 1_u32..70_000).prop_map(
            |(thinking, effort, other, messages, max_tokens)| {
                let fixed =
                    [Some(format!(r#""max_tokens":{max_tokens}"#)), Some(format!(r#""messages":[{messages}]"#))];
                let system = Some(r#""system":[ {"type":"text", "text":"\u00e9"} ]"#.to_owned());
                let [max_tokens, messages] = fixed;
                let members = [thinking, max_tokens, effort, system, other, messages];
                members.into_iter().flatten().collect::<Vec<_>>().join(",")
            },
        )
    }

    /// What the API says to a body, where models differ (the fake Claude has the same rules in `validate.mjs`).
    fn refusal(body_rest: &str, to: &Abilities) -> Option<&'static str> {
        let body = format!("{{{body_rest}}}");
        let demands = MessagesRequest::parse(&body, "request").unwrap().demands;
        let is_off = matches!(demands.thinking, Thinking::Disabled | Thinking::BetweenTools);
        match demands.thinking {
            Thinking::Adaptive if !to.adaptive_thinking => return Some("adaptive"),
            Thinking::Disabled if !to.disabled_thinking => return Some("disabled"),
            Thinking::BetweenTools if !to.between_tools_thinking => return Some("between_tools"),
            Thinking::Enabled { .. } if !to.enabled_thinking => return Some("enabled"),
            Thinking::Enabled { budget_tokens } if !(1_024..demands.max_tokens).contains(&budget_tokens) => {
                return Some("budget");
            }
            Thinking::Enabled { .. } if demands.answers_tools => return Some("no thinking block before the tool"),
            Thinking::Adaptive | Thinking::Enabled { .. } if demands.forced_tool => return Some("forced tool"),
            _ => (),
        }
        let effort = demands.effort.map_or("", |effort| effort.name());
        match effort {
            "" => (),
            _ if !to.effort => return Some("effort"),
            "xhigh" if !to.xhigh_effort => return Some("xhigh"),
            "xhigh" | "max" if is_off => return Some("effort without thinking"),
            _ => (),
        }
        (demands.sampling && !to.sampling).then_some("sampling")
    }

    proptest! {
        #[test]
        fn what_fits_is_accepted_after_rewriting_and_all_else_is_the_same(
            body in body(),
            asked in 0_usize..6,
            to in 0_usize..5,
        ) {
            let models = Models::default();
            let rows: Vec<&Abilities> = models.iter().map(|(_, row)| row).collect();
            let (asked, to) = (rows.get(asked).copied(), rows[to]);
            let demands = MessagesRequest::parse(&format!("{{{body}}}"), "request").unwrap().demands;
            prop_assume!(fits(&demands, Some(to)).is_ok());
            let once = rewrite(&body, asked, to).into_owned();
            prop_assert_eq!(rewrite(&once, asked, to), once.as_str());
            prop_assert_eq!(refusal(&once, to), None, "{}", once);

            let texts = |body: &str| {
                let mut list = Vec::new();
                let edited = ["thinking", "output_config", "temperature", "messages"];
                for_each_of_members(body, &mut |name, value| {
                    if !edited.contains(&name.as_ref()) {
                        list.push(format!("{name}:{}", value.get()));
                    }
                    Ok(())
                }).unwrap();
                list
            };
            prop_assert_eq!(texts(&once), texts(&body));
            prop_assert!(!once.contains("signature"));
            prop_assert_eq!(body.contains("format"), once.contains("{ }"));
        }

        #[test]
        fn any_text_is_rewritten_or_left_alone_and_never_a_panic(body in r#"[\[\]{}",:\\u0-9dmodelnr ]{0,60}"#) {
            let models = Models::default();
            let _ = rewrite(&body, None, models.get("claude-haiku-4-5").unwrap());
        }
    }
}
