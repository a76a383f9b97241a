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

#[cfg(test)]
mod tests;

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
