//! Whether a request's tool history can be sent, and what it looks like mended.
//!
//! The API's rule: every `tool_use` block of the assistant has exactly one `tool_result` with its id, in the very next message
//! of the user, before all other content of it; and a result without its `tool_use` in the message before is refused. A
//! client that was interrupted while tools ran breaks that rule, keeps the broken history, and gets a 400 for every call
//! from then on (OpenHands #2127). Most of the damage can be undone without running anything again:
//!
//! | damage | mend | name |
//! | --- | --- | --- |
//! | a result behind other content | to the front of its message | `reordered` |
//! | a result in a later one of several messages of the user | into the first one, to the front | `gathered` |
//! | no result, and the user goes on | a result that says that nothing is known, and is an error | `completed` |
//! | the same result again, byte for byte | dropped | `deduplicated` |
//!
//! Results that are moved come in the order of their `tool_use` blocks. A message that only had results which went elsewhere
//! goes with them, as it may not be empty; what else stood in later messages stays there, because the API joins consecutive
//! messages of one role itself. Everything else stays byte for byte.
//!
//! What cannot be undone is [`History::Broken`]: a result that nothing asked for, two results that differ, two blocks with one
//! id, an id that is no string, and more than [`MAX_COMPLETED`] calls without a result. Guessing there would tell the model something that nobody has found out.
//!
//! What is not touched, because the API takes it, or might:
//!
//! - results at the front in another order than they were asked for: that is no damage;
//! - `tool_use` blocks at the very end of the history: that is a prefill, and the API's to judge;
//! - ids that come again in another turn; consecutive messages of the assistant, which are one turn;
//! - a turn with a system message (or one that cannot be read) between the calls and their results, or between the results:
//!   newer models have such messages, with rules of their own;
//! - what stands before a `compaction` block, which the API does not read, however broken it is;
//! - a turn of more than [`MAX_CALLS`] calls. So little is remembered at a time, and every block costs the same;
//! - the tools that the API runs itself: their blocks have other types.
//!
//! A mend depends on nothing but its turn, so the same history is mended into the same text call after call. Prompt caches
//! need that, and so do thinking blocks, which the API may refuse once the text before them has changed.

use std::borrow::Cow;

use super::raw::{self, Fields, Json};
use super::request::Problem;
use super::wording::sanitise;
use crate::json::{Map, for_each_of_members};

/// What a tool history is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum History {
    /// Nothing is known to be wrong with it.
    Sound,
    /// It was damaged, and can be sent like this.
    Mended {
        /// All members of the body, as [`MessagesRequest::body_rest`](super::request::MessagesRequest::body_rest) has them.
        body_rest: String,
        /// What was done to it, in its order: the first [`MAX_MENDS`].
        mended: Vec<Mend>,
    },
    /// Nobody but the client can mend it. The place is a path as the API writes it: `messages.4.content.1`.
    Broken(Problem),
}

/// Something that was done to a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mend {
    /// What.
    pub kind: MendKind,
    /// Where, as the API writes paths, in the history that came: a message that was reordered (`messages.4`), the block that
    /// was gathered or dropped, the `tool_use` that got no result (`messages.3.content.1`).
    pub place: String,
}

/// What can be done to a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MendKind {
    /// Results were put before the other content of their message.
    Reordered,
    /// A result was put into the message right after its call.
    Gathered,
    /// A call got a result, which says that it is not known.
    Completed,
    /// A result that came twice was dropped once.
    Deduplicated,
}

impl MendKind {
    /// The name in headers and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reordered => "reordered",
            Self::Gathered => "gathered",
            Self::Completed => "completed",
            Self::Deduplicated => "deduplicated",
        }
    }
}

/// Checks the tool history of a body, and mends it if it has to be.
#[must_use]
pub fn check(body_rest: &str) -> History {
    let mut messages = None;
    let walked = for_each_of_members(body_rest, &mut |name, value| {
        if name == "messages" && messages.is_none() {
            messages = Some(value.get());
        }
        Ok(())
    });
    let (Ok(()), Some(messages)) = (walked, messages) else { return History::Sound };
    let mut walk = Walk { body: body_rest, ..Walk::default() };
    if raw::for_each_element(messages, &mut |message| walk.message(message.get())).is_err() {
        return History::Sound;
    }
    walk.close();
    if let Some(problem) = walk.problem {
        return History::Broken(problem);
    }
    if walk.copied == 0 {
        return History::Sound;
    }
    walk.out.push_str(body_rest.get(walk.copied..).unwrap_or_default());
    History::Mended { body_rest: walk.out, mended: walk.mended }
}

/// A walk over the messages, turn by turn.
#[derive(Debug, Default)]
struct Walk<'a> {
    body: &'a str,
    /// The number of the next message, and where in the body the last one ended.
    index: usize,
    end: usize,
    turn: Turn<'a>,
    problem: Option<Problem>,
    mended: Vec<Mend>,
    completed: usize,
    /// The new body as far as it has been written, and how far that is in the old one.
    out: String,
    copied: usize,
}

/// The assistant's calls, and what the user has answered so far.
#[derive(Debug, Default)]
struct Turn<'a> {
    calls: Vec<Call<'a>>,
    by_id: Map<Cow<'a, str>, usize>,
    /// The first message of the user, and those after it that have results.
    answers: Vec<Answer<'a>>,
    /// A system message has come after the first message of the user.
    late: bool,
    /// Not ours to judge.
    doubtful: bool,
    damaged: bool,
    /// How many mends there were before this turn.
    mends_before: usize,
}

#[derive(Debug)]
struct Call<'a> {
    /// As JSON.
    id: &'a str,
    message: usize,
    block: usize,
    result: Option<&'a str>,
}

#[derive(Debug)]
struct Answer<'a> {
    /// Where the message before this one ended.
    before: usize,
    message: &'a str,
    content: &'a str,
}

impl<'a> Walk<'a> {
    fn message(&mut self, message: &'a str) {
        let (index, before) = (self.index, self.end);
        self.index += 1;
        self.end = self.offset(message) + message.len();
        let fields = Fields::parse(message).unwrap_or_default();
        let content = fields.get("content").map(Json::get).filter(|content| content.starts_with(['"', '[']));
        match (fields.string("role").as_deref(), content) {
            (Some("assistant"), Some(content)) => self.calls(index, content),
            (Some("user"), Some(content)) => self.answer(index, Answer { before, message, content }),
            _ if self.turn.answers.is_empty() => self.turn.doubtful = true,
            _ => self.turn.late = true,
        }
    }

    fn calls(&mut self, message: usize, content: &'a str) {
        if !self.turn.answers.is_empty() || self.turn.doubtful {
            self.close();
        }
        let mut block = 0;
        let _ = raw::for_each_element(content, &mut |json| {
            let fields = Fields::parse(json.get()).unwrap_or_default();
            match fields.string("type").as_deref() {
                Some("tool_use") => self.call(message, block, &fields),
                Some("compaction") => {
                    self.problem = None;
                    self.turn = Turn { mends_before: self.mended.len(), ..Turn::default() };
                }
                _ => {}
            }
            block += 1;
        });
    }

    fn call(&mut self, message: usize, block: usize, fields: &Fields<'a>) {
        let (Some(id), Some(name)) = (fields.get("id"), fields.string("id")) else {
            return self.complain(message, block, "must have a string as its id".to_owned());
        };
        match self.turn.by_id.get(name.as_ref()).and_then(|&at| self.turn.calls.get(at)) {
            Some(earlier) if earlier.message == message => {
                let id = shown(&name);
                let what = format!("must have an id of its own: an earlier tool_use of the message has {id} already");
                self.complain(message, block, what);
            }
            Some(_) => {}
            None if self.turn.calls.len() >= MAX_CALLS => self.turn.doubtful = true,
            None => {
                self.turn.by_id.insert(name, self.turn.calls.len());
                self.turn.calls.push(Call { id: id.get(), message, block, result: None });
            }
        }
    }

    fn answer(&mut self, message: usize, answer: Answer<'a>) {
        let is_first = self.turn.answers.is_empty();
        let (mut block, mut has_results, mut has_other, mut is_reordered) = (0, false, false, false);
        let _ = raw::for_each_element(answer.content, &mut |json| {
            let fields = Fields::parse(json.get()).unwrap_or_default();
            match fields.string("type").as_deref() {
                Some("tool_result") => {
                    has_results = true;
                    let is_new = self.result(message, block, json.get(), &fields);
                    if is_new && !is_first {
                        self.mend(MendKind::Gathered, place(message, block));
                    } else if is_new && has_other && !is_reordered {
                        is_reordered = true;
                        self.mend(MendKind::Reordered, format!("messages.{message}"));
                    }
                }
                Some("compaction") => {
                    self.problem = None;
                    self.turn.doubtful = true;
                }
                _ => has_other = true,
            }
            block += 1;
        });
        if is_first || has_results {
            self.turn.answers.push(answer);
        }
    }

    /// Takes a result; answers whether it is the first one for its call.
    fn result(&mut self, message: usize, block: usize, json: &'a str, fields: &Fields<'a>) -> bool {
        if self.turn.doubtful {
            return false;
        }
        let Some(id) = fields.string("tool_use_id") else {
            self.complain(message, block, "must have a string as its tool_use_id".to_owned());
            return false;
        };
        let Some(call) = self.turn.by_id.get(id.as_ref()).and_then(|&at| self.turn.calls.get_mut(at)) else {
            let what =
                format!("must answer a tool_use of the message before it, and none there has the id {}", shown(&id));
            self.complain(message, block, what);
            return false;
        };
        if self.turn.late {
            self.turn.doubtful = true;
            return false;
        }
        match call.result {
            None => {
                call.result = Some(json);
                return true;
            }
            Some(earlier) if earlier == json => self.mend(MendKind::Deduplicated, place(message, block)),
            Some(_) => {
                let what = format!("must be the only result of {}, and there is another one that differs", shown(&id));
                self.complain(message, block, what);
            }
        }
        false
    }

    /// Ends the turn, and mends it.
    fn close(&mut self) {
        let mut turn = std::mem::take(&mut self.turn);
        if turn.doubtful || turn.answers.is_empty() {
            self.mended.truncate(turn.mends_before);
            turn.damaged = false;
        } else {
            for call in turn.calls.iter().filter(|call| call.result.is_none()) {
                turn.damaged = true;
                self.completed += 1;
                if self.completed > MAX_COMPLETED {
                    let what = format!("must have a result, and there are over {MAX_COMPLETED} that have none");
                    self.complain(call.message, call.block, what);
                }
                self.mend(MendKind::Completed, place(call.message, call.block));
            }
        }
        if turn.damaged && self.problem.is_none() {
            self.write(&turn);
        }
        self.turn = Turn { mends_before: self.mended.len(), ..Turn::default() };
    }

    fn write(&mut self, turn: &Turn<'a>) {
        if self.copied == 0 {
            self.out.reserve(self.body.len());
        }
        let mut blocks = String::new();
        for call in &turn.calls {
            match call.result {
                Some(result) => push(&mut blocks, result),
                None => push(
                    &mut blocks,
                    &format!(
                        r#"{{"type":"tool_result","tool_use_id":{},"is_error":true,"content":"{INTERRUPTED}"}}"#,
                        call.id
                    ),
                ),
            }
        }
        for answer in &turn.answers {
            push_other_content(&mut blocks, answer.content);
            if blocks.is_empty() {
                self.copy(answer.before);
                self.copied = self.offset(answer.message) + answer.message.len();
            } else {
                let start = self.offset(answer.content);
                self.copy(start);
                self.out.push_str(&format!("[{blocks}]"));
                self.copied = start + answer.content.len();
                blocks.clear();
            }
        }
    }

    /// Copies the body up to `end`.
    fn copy(&mut self, end: usize) {
        self.out.push_str(self.body.get(self.copied..end).unwrap_or_default());
    }

    /// Where in the body this part of it begins.
    fn offset(&self, part: &str) -> usize {
        part.as_ptr().addr().saturating_sub(self.body.as_ptr().addr())
    }

    fn mend(&mut self, kind: MendKind, place: String) {
        self.turn.damaged = true;
        if self.mended.len() < MAX_MENDS {
            self.mended.push(Mend { kind, place });
        }
    }

    /// Notes what is wrong with a block, if it is the first.
    fn complain(&mut self, message: usize, block: usize, what: String) {
        if self.problem.is_none() {
            self.problem = Some(Problem::new(place(message, block), what));
        }
    }
}

fn place(message: usize, block: usize) -> String {
    format!("messages.{message}.content.{block}")
}

fn shown(id: &str) -> String {
    sanitise(id, MAX_ID_CHARS)
}

/// Appends everything in `content` that is no result.
fn push_other_content(blocks: &mut String, content: &str) {
    if content.starts_with('"') {
        if content != r#""""# {
            push(blocks, &format!(r#"{{"type":"text","text":{content}}}"#));
        }
        return;
    }
    let _ = raw::for_each_element(content, &mut |block| {
        let kind = Fields::parse(block.get()).ok().and_then(|fields| fields.string("type").map(Cow::into_owned));
        if kind.as_deref() != Some("tool_result") {
            push(blocks, block.get());
        }
    });
}

/// Appends to a list.
fn push(list: &mut String, json: &str) {
    if !list.is_empty() {
        list.push(',');
    }
    list.push_str(json);
}

/// What the model gets to read in the place of a result. It must not run the tool again as if nothing had happened.
const INTERRUPTED: &str =
    "The run of this tool was interrupted, and its result is not known. It may or may not have taken effect.";

/// The most calls of one turn that are looked at.
pub const MAX_CALLS: usize = 256;

/// The most results that are filled in: many times what an interruption loses, and each is longer than its call.
pub const MAX_COMPLETED: usize = 1_000;

/// The most mends that are told of.
pub const MAX_MENDS: usize = 50;

const MAX_ID_CHARS: usize = 80;

#[cfg(test)]
mod tests {
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
        let same = damaged
            .replace(r#"{"tool_use_id":"a","type":"tool_result"}"#, r#"{"type":"tool_result", "tool_use_id":"a"}"#);
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
        let problem =
            Problem::new("messages.2000.content.1", "must have a result, and there are over 1000 that have none");
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
}
