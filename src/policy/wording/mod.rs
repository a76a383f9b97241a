//! What a person reads while a job is on its way (A9): not one "busy", but what really holds, and nothing that may turn out
//! not to be so. No text promises a time: nobody knows how long an outage lasts.
//!
//! - *Which* message is due follows from a few facts ([`Wording::of`]), so that receipt, status and notification never
//!   disagree. A job that has waited long says so, and goes on saying so until it is over; so does one that waits while
//!   waits in general are long (A10), since it would only find out later. One that waits because somebody agreed to it
//!   (`deferred`) or is being asked (`stalled`) says that instead.
//! - *In which language*: [`language`] has the rules.
//! - *In which words*: ours, unless the deployment has its own ([`Messages`]). A text that it lacks is taken from the nearest
//!   language that has it, wider tags first, English last; a message names the language it really is in.
//!
//! The texts are not templates: a number in a sentence needs plural rules per language, and the status has every number
//! beside the message.

pub mod language;
mod texts;

use std::time::Duration;

use super::settings::Problem;
use crate::json::{self, Faults, FromJson, Json, Map, ToJson};

/// From which wait on a job says that it takes longer (A10): 25 s.
pub const LONG_WAIT: Duration = Duration::from_secs(25);

/// A message to the job's user, by its stable code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wording {
    /// Accepted, and nothing has happened yet.
    Received,
    /// Being worked on, or waiting to be.
    Working,
    /// Taking a little longer than usual.
    Delayed,
    /// The synchronous path met an overload: the draft is kept, and a notification will follow.
    DraftSaved,
    /// The answer is there, from a smaller model than the one asked for; it may be generated again.
    Downgraded,
    /// The answer is there.
    Done,
    /// May it wait until a quieter time?
    Stalled,
    /// It waits for a quieter time.
    Deferred,
    /// There will be no answer.
    Failed,
    /// The user took the job back.
    Cancelled,
}

json::names!(Wording {
    Received => "received",
    Working => "working",
    Delayed => "delayed",
    DraftSaved => "draft_saved",
    Downgraded => "downgraded",
    Done => "done",
    Stalled => "stalled",
    Deferred => "deferred",
    Failed => "failed",
    Cancelled => "cancelled",
});

/// Where a job stands, as far as its user cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for its first call.
    Received,
    /// Waiting for another call.
    Waiting,
    /// Being answered.
    Working,
    /// Waiting for the user's word.
    Stalled,
    /// Waiting for a quieter time.
    Deferred,
    /// Answered.
    Done,
    /// Over without an answer.
    Failed,
    /// Taken back.
    Cancelled,
}

/// What a job's message depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Where the job stands.
    pub stage: Stage,
    /// How long ago it was submitted.
    pub waited: Duration,
    /// Whether jobs wait long at present: the p95 of the dwell is above [`LONG_WAIT`] (A10).
    pub slow: bool,
    /// Whether another model answered than the one asked for.
    pub downgraded: bool,
}

impl Wording {
    /// Every message.
    pub const ALL: [Self; 10] = [
        Self::Received,
        Self::Working,
        Self::Delayed,
        Self::DraftSaved,
        Self::Downgraded,
        Self::Done,
        Self::Stalled,
        Self::Deferred,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The message that is due. `draft_saved` never is: the synchronous path says it of itself.
    #[must_use]
    pub fn of(facts: Facts, long_wait: Duration) -> Self {
        let is_long = facts.waited >= long_wait;
        match facts.stage {
            Stage::Received | Stage::Waiting if is_long || facts.slow => Self::Delayed,
            Stage::Working if is_long => Self::Delayed,
            Stage::Received => Self::Received,
            Stage::Waiting | Stage::Working => Self::Working,
            Stage::Stalled => Self::Stalled,
            Stage::Deferred => Self::Deferred,
            Stage::Done if facts.downgraded => Self::Downgraded,
            Stage::Done => Self::Done,
            Stage::Failed => Self::Failed,
            Stage::Cancelled => Self::Cancelled,
        }
    }

    /// How long until another message is due though nothing happens; `None` if only an event can change it.
    #[must_use]
    pub fn changes_in(facts: Facts, long_wait: Duration) -> Option<Duration> {
        let later = Facts { waited: long_wait, ..facts };
        (Self::of(facts, long_wait) != Self::of(later, long_wait)).then(|| long_wait.saturating_sub(facts.waited))
    }
}

/// A message in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The language of the text.
    pub language: &'a str,
    /// The stable code.
    pub code: Wording,
    /// The sentence.
    pub text: &'a str,
}

json::output!(Message<'_> { code, text });

/// The deployment's own texts, by language: over ours, and in languages that we do not have.
#[derive(Clone, Debug, Default)]
pub struct Messages(Map<String, Texts>);

json::transparent!(Messages);

impl Messages {
    /// The language for a job with this `locale`, read by somebody who sent this `Accept-Language`.
    #[must_use]
    pub fn language(&self, locale: Option<&str>, accept_language: Option<&str>) -> &str {
        let own = self.0.iter().map(|(tag, _)| tag.as_str());
        let available: Vec<&str> = texts::BUILT_IN.iter().map(|ours| ours.tag).chain(own).collect();
        language::negotiate(locale, accept_language, &available)
    }

    /// The message in `language`, or in the nearest one that has it.
    #[must_use]
    pub fn message(&self, language: &str, code: Wording) -> Message<'_> {
        let found = language::steps(language).into_iter().find_map(|tag| self.text(tag, code));
        let (language, text) =
            found.or_else(|| self.text(language::DEFAULT, code)).unwrap_or((language::DEFAULT, texts::english(code)));
        Message { language, code, text }
    }

    /// Everything that is wrong.
    #[must_use]
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (index, (tag, Texts(texts))) in self.0.iter().enumerate() {
            if !language::is_tag(tag) {
                problems.push((tag.clone(), "must be a BCP 47 language tag, such as \"fr\" or \"zh-Hans\"".to_owned()));
            }
            if let Some((other, _)) = self.0.iter().take(index).find(|(other, _)| other.eq_ignore_ascii_case(tag)) {
                problems.push((tag.clone(), format!("is the same language as {other}")));
            }
            for (code, text) in texts {
                if text.trim().is_empty() || text.chars().count() > MAX_TEXT_CHARS {
                    let message = format!("must be a text of 1 to {MAX_TEXT_CHARS} characters");
                    problems.push((format!("{tag}.{}", code.name()), message));
                }
            }
        }
        problems
    }

    fn text(&self, tag: &str, code: Wording) -> Option<(&str, &str)> {
        let own = self.0.iter().filter(|(own, _)| own.eq_ignore_ascii_case(tag)).find_map(|(own, Texts(texts))| {
            let (_, text) = texts.iter().find(|(known, _)| *known == code)?;
            Some((own.as_str(), text.as_str()))
        });
        own.or_else(|| {
            let ours = texts::BUILT_IN.iter().find(|ours| ours.tag.eq_ignore_ascii_case(tag))?;
            Some((ours.tag, (ours.text)(code)))
        })
    }
}

/// The texts of one language; any may be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Texts(Vec<(Wording, String)>);

impl FromJson for Texts {
    fn read(json: Json<'_>, faults: &mut Faults) -> Option<Self> {
        let fields = json.fields(faults)?;
        fields.only(&Wording::ALL.map(Wording::name), faults);
        let text =
            |code: &Wording| fields.read::<Option<String>>(code.name(), faults).flatten().map(|text| (*code, text));
        Some(Self(Wording::ALL.iter().filter_map(text).collect()))
    }
}

impl ToJson for Texts {
    fn write(&self, out: &mut String) {
        let members: Vec<(&str, &dyn ToJson)> = self.0.iter().map(|(code, text)| (code.name(), text as _)).collect();
        json::write_object(&members, out);
    }
}

const MAX_TEXT_CHARS: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts = Facts { stage: Stage::Received, waited: Duration::ZERO, slow: false, downgraded: false };

    fn messages(json: &str) -> Messages {
        json::read(json).unwrap()
    }

    fn code(stage: Stage, waited_ms: u64, slow: bool) -> &'static str {
        Wording::of(Facts { stage, waited: Duration::from_millis(waited_ms), slow, ..FACTS }, LONG_WAIT).name()
    }

    #[test]
    fn an_unfinished_job_is_delayed_from_25_s_on_and_one_that_waits_also_while_waits_are_long() {
        for (stage, at_first, when_slow, after_24_999_ms, after_25_s) in [
            (Stage::Received, "received", "delayed", "received", "delayed"),
            (Stage::Waiting, "working", "delayed", "working", "delayed"),
            (Stage::Working, "working", "working", "working", "delayed"),
            (Stage::Stalled, "stalled", "stalled", "stalled", "stalled"),
            (Stage::Deferred, "deferred", "deferred", "deferred", "deferred"),
            (Stage::Done, "done", "done", "done", "done"),
            (Stage::Failed, "failed", "failed", "failed", "failed"),
            (Stage::Cancelled, "cancelled", "cancelled", "cancelled", "cancelled"),
        ] {
            let codes = [code(stage, 0, false), code(stage, 0, true), code(stage, 24_999, false)];
            assert_eq!(codes, [at_first, when_slow, after_24_999_ms], "{stage:?}");
            assert_eq!([25_000, u64::MAX].map(|ms| code(stage, ms, false)), [after_25_s; 2], "{stage:?}");
        }
    }

    #[test]
    fn only_an_answer_can_be_downgraded() {
        let of = |stage| Wording::of(Facts { stage, downgraded: true, ..FACTS }, LONG_WAIT);
        assert_eq!(of(Stage::Done), Wording::Downgraded);
        assert_eq!([of(Stage::Working), of(Stage::Failed)], [Wording::Working, Wording::Failed]);
    }

    #[test]
    fn what_changes_by_itself_is_known_beforehand() {
        let changes = |stage, waited, slow| {
            Wording::changes_in(Facts { stage, waited: Duration::from_secs(waited), slow, ..FACTS }, LONG_WAIT)
        };
        let in_seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(changes(Stage::Received, 0, false), in_seconds(25));
        assert_eq!(changes(Stage::Working, 24, true), in_seconds(1));
        for (stage, waited, slow) in [
            (Stage::Waiting, 25, false),
            (Stage::Waiting, 3, true),
            (Stage::Stalled, 3, false),
            (Stage::Done, 3, false),
        ] {
            assert_eq!(changes(stage, waited, slow), None, "{stage:?}");
        }
    }

    #[test]
    fn own_texts_replace_ours_one_by_one() {
        let messages = messages(r#"{"en":{"delayed":"Hold on."},"ZH-hans":{"done":"好了。"}}"#);
        assert_eq!(messages.message("en", Wording::Delayed).text, "Hold on.");
        assert_eq!(messages.message("en", Wording::Done).text, texts::english(Wording::Done));
        let done = messages.message("zh-Hans", Wording::Done);
        assert_eq!((done.text, done.language), ("好了。", "ZH-hans"));
        assert_eq!(messages.message("ja", Wording::Delayed).language, "ja");
    }

    #[test]
    fn what_an_added_language_lacks_comes_from_the_nearest_one_that_has_it() {
        let messages = messages(
            r#"{"fr":{"done":"C'est prêt."},"fr-CA":{"failed":"Désolé."},"zh-TW":{"done":"好了。"},"en":{"working":"On it."}}"#,
        );
        for (language, code, expected) in [
            ("fr", Wording::Done, "fr"),
            ("fr", Wording::Working, "en"),
            ("fr-CA", Wording::Failed, "fr-CA"),
            ("fr-CA", Wording::Done, "fr"),
            ("fr-CA", Wording::Cancelled, "en"),
            ("zh-TW", Wording::Done, "zh-TW"),
            ("zh-TW", Wording::Failed, "zh-Hans"),
        ] {
            let message = messages.message(language, code);
            assert_eq!((message.language, message.code), (expected, code), "{language}");
        }
        assert_eq!(messages.message("fr", Wording::Working).text, "On it.", "English as the deployment has it");
        assert_eq!(messages.language(Some("fr-CH"), None), "fr");
    }

    #[test]
    fn a_text_that_nobody_could_read_is_a_problem_with_its_key() {
        let long = |length: usize| format!(r#"{{"ja":{{"done":"{}"}}}}"#, "待".repeat(length));
        assert_eq!(messages(&long(500)).validate(), []);
        for (json, key, says) in [
            (long(501).as_str(), "ja.done", "1 to 500"),
            (r#"{"en":{"done":"  "}}"#, "en.done", "1 to 500"),
            (r#"{"en":{"draft_saved":""}}"#, "en.draft_saved", "1 to 500"),
            (r#"{"french (fr)":{}}"#, "french (fr)", "language tag"),
            (r#"{"":{}}"#, "", "language tag"),
            (r#"{"FR":{},"fr":{}}"#, "fr", "the same language as FR"),
        ] {
            let problems = messages(json).validate();
            let [(found, message)] = problems.as_slice() else { panic!("{json}: {problems:?}") };
            assert!(found == key && message.contains(says), "{json}: {found}: {message}");
        }
    }

    #[test]
    fn a_code_that_does_not_exist_is_refused_by_its_place() {
        let faults = |text: &str| json::read::<Messages>(text).unwrap_err().to_string();
        assert!(faults(r#"{"en":{"delaid":"x"}}"#).starts_with("en.delaid: is an unknown field; there are received, "));
        assert_eq!(
            faults(r#"{"en":{"done":1,"failed":[]}}"#),
            "en.done: must be a string; en.failed: must be a string"
        );
        assert_eq!(faults(r#"{"en":{"done":"a","done":"b"}}"#), "en.done: is a duplicate");
        assert_eq!(faults(r#"{"en":"x"}"#), "en: must be a JSON object");
        assert_eq!(
            messages(r#"{"en":{"done":null}}"#).message("en", Wording::Done).text,
            texts::english(Wording::Done)
        );
    }

    #[test]
    fn what_was_set_is_written_as_it_was() {
        let json = r#"{"en":{"received":"A","done":"B"},"fr":{}}"#;
        assert_eq!(json::write(&messages(json)), json);
        let message = Messages::default();
        assert_eq!(
            json::write(&message.message("zh-Hans", Wording::Cancelled)),
            r#"{"code":"cancelled","text":"该请求已取消。"}"#
        );
    }
}
