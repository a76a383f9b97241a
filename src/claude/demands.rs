//! What a Messages body asks of its model, gathered while the body is walked anyway.
//!
//! How long the input is only the upstream can count. The estimate here must not be too small, or the fallback answers 400;
//! if it is too large, a job waits that need not have. Text is taken to have a token for every two bytes of its JSON: the
//! newest models' tokenizer has 2.5 characters of English a token, other scripts have more bytes a character, and older
//! models have 30 % fewer tokens. Tool definitions and everything else in the body count the same.
//!
//! The data of images and documents is no text. An image costs 4,784 tokens at most, whatever its bytes. A PDF is taken to
//! have a page for every 8 KB of its data, up to 600 pages, each with the text of a full page and its image, 7,500 tokens.
//! That is more than the page of any scan, and no more than 600,000 a document: what lies further, no model reads, and the
//! model that was asked for would not take it either. A document that is only linked counts as the largest.

use crate::json::{Fields, Json, for_each_element};
use crate::policy::demands::{Demands, Effort, Thinking};

/// Gathers the demands of one body.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    demands: Demands,
    data_bytes: u64,
    media_tokens: u64,
    /// Whether a turn of the assistant has thinking blocks.
    pub(super) has_thinking_blocks: bool,
    is_assistant: bool,
}

impl Gathering {
    /// A member of the body.
    pub(super) fn member(&mut self, name: &str, value: &str) {
        if value == "null" {
            return;
        }
        match name {
            "max_tokens" => self.demands.max_tokens = value.parse().unwrap_or_default(),
            "thinking" => self.demands.thinking = thinking(value),
            "output_config" => self.output_config(value),
            "temperature" | "top_p" | "top_k" => self.demands.sampling = true,
            "tools" => self.tools(value),
            "tool_choice" => {
                let choice = Fields::parse(value).ok();
                let kind = choice.as_ref().and_then(|choice| choice.string("type"));
                self.demands.forced_tool = matches!(kind.as_deref(), Some("any" | "tool"));
            }
            name if COMMON_MEMBERS.contains(&name) => (),
            name => self.demands.add_feature(name),
        }
    }

    /// A message; its blocks come next.
    pub(super) fn message(&mut self, fields: &Fields<'_>) {
        let role = fields.string("role");
        self.is_assistant = role.as_deref() == Some("assistant");
        self.demands.prefill = self.is_assistant;
        self.demands.answers_tools = false;
        self.demands.system_messages |= role.as_deref() == Some("system");
        for (name, _) in &fields.0 {
            if !matches!(name.as_ref(), "role" | "content") {
                self.demands.add_feature(&format!("messages.{name}"));
            }
        }
    }

    /// A block of the message.
    pub(super) fn block(&mut self, fields: &Fields<'_>) {
        let kind = fields.string("type").unwrap_or_default();
        match kind.as_ref() {
            "tool_result" => self.demands.answers_tools = true,
            "thinking" | "redacted_thinking" => self.has_thinking_blocks |= self.is_assistant,
            kind if COMMON_BLOCKS.contains(&kind) => (),
            kind => self.demands.add_feature(kind),
        }
        self.media(fields, 0);
    }

    /// The demands of a body of `bytes` bytes.
    pub(super) fn finish(self, bytes: usize) -> Demands {
        let text = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_sub(self.data_bytes);
        let input_tokens = (text / BYTES_PER_TOKEN).saturating_add(self.media_tokens).saturating_add(OVERHEAD_TOKENS);
        Demands { input_tokens, ..self.demands }
    }

    fn output_config(&mut self, value: &str) {
        let Ok(fields) = Fields::parse(value) else { return };
        for (name, value) in &fields.0 {
            match name.as_ref() {
                "effort" if value.get() == "null" => (),
                "effort" => self.demands.effort = Some(Effort::parse(&value.string().unwrap_or_default())),
                "format" => (),
                name => self.demands.add_feature(&format!("output_config.{name}")),
            }
        }
    }

    fn tools(&mut self, value: &str) {
        let _ = for_each_element(value, &mut |tool| {
            self.demands.tools = true;
            let kind = Fields::parse(tool.get()).ok().and_then(|tool| tool.string("type").map(String::from));
            if let Some(kind) = kind.filter(|kind| kind != "custom") {
                self.demands.add_typed_tool(&kind);
            }
        });
    }

    /// Weighs an image or a document, or those inside of a block.
    fn media(&mut self, fields: &Fields<'_>, depth: u32) {
        let kind = fields.string("type").unwrap_or_default();
        let source = fields.object("source").unwrap_or_default();
        let source_kind = source.string("type").unwrap_or_default();
        match (kind.as_ref(), source_kind.as_ref()) {
            ("image", _) => {
                self.data(&source);
                self.weigh(IMAGE_TOKENS);
            }
            ("document", "base64") => {
                let bytes = self.data(&source);
                self.weigh((bytes / PAGE_BYTES).saturating_add(1).saturating_mul(PAGE_TOKENS).min(DOCUMENT_TOKENS));
            }
            ("document", "text") => (),
            ("document", "content") => self.inside(source.get("content"), depth),
            ("document", _) => self.weigh(DOCUMENT_TOKENS),
            ("tool_result", _) => self.inside(fields.get("content"), depth),
            _ => (),
        }
    }

    fn inside(&mut self, content: Option<Json<'_>>, depth: u32) {
        if depth < MAX_DEPTH
            && let Some(content) = content
        {
            let _ = for_each_element(content.get(), &mut |block| {
                if let Ok(fields) = Fields::parse(block.get()) {
                    self.media(&fields, depth + 1);
                }
            });
        }
    }

    /// Takes a source's data out of the text; answers with its length.
    fn data(&mut self, source: &Fields<'_>) -> u64 {
        let length = source.get("data").map_or(0, |data| data.get().len());
        let bytes = u64::try_from(length).unwrap_or(u64::MAX);
        self.data_bytes = self.data_bytes.saturating_add(bytes);
        bytes
    }

    const fn weigh(&mut self, tokens: u64) {
        self.media_tokens = self.media_tokens.saturating_add(tokens);
    }
}

fn thinking(value: &str) -> Thinking {
    let fields = Fields::parse(value).unwrap_or_default();
    match fields.string("type").unwrap_or_default().as_ref() {
        "disabled" => Thinking::Disabled,
        "between_tools" => Thinking::BetweenTools,
        "adaptive" => Thinking::Adaptive,
        "enabled" => {
            let budget = fields.get("budget_tokens").and_then(|budget| budget.get().parse().ok());
            Thinking::Enabled { budget_tokens: budget.unwrap_or_default() }
        }
        _ => Thinking::Other,
    }
}

/// Members that every model takes, in some form.
const COMMON_MEMBERS: [&str; 8] =
    ["model", "messages", "stream", "metadata", "stop_sequences", "system", "service_tier", "cache_control"];

/// Blocks that every model takes in its history.
const COMMON_BLOCKS: [&str; 12] = [
    "text",
    "image",
    "document",
    "search_result",
    "tool_use",
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_result",
];

const BYTES_PER_TOKEN: u64 = 2;
/// What the API adds to a prompt, above all where there are tools.
const OVERHEAD_TOKENS: u64 = 1_000;
const IMAGE_TOKENS: u64 = 4_784;
const PAGE_BYTES: u64 = 8_192;
const PAGE_TOKENS: u64 = 7_500;
const DOCUMENT_TOKENS: u64 = 600_000;
/// A document in the result of a tool, with blocks of its own.
const MAX_DEPTH: u32 = 3;

#[cfg(test)]
mod tests {
    use super::super::request::MessagesRequest;
    use super::*;

    fn demands(members: &str, messages: &str) -> Demands {
        let body = format!(r#"{{"max_tokens":100,"messages":[{messages}]{members}}}"#);
        MessagesRequest::parse(&body, "request").unwrap().demands
    }

    const HI: &str = r#"{"role":"user","content":"Hi"}"#;

    fn of(member: &str) -> Demands {
        demands(&format!(",{member}"), HI)
    }

    #[test]
    fn each_member_that_models_differ_in_is_found() {
        let plain = demands("", HI);
        assert_eq!(plain, Demands { max_tokens: 100, input_tokens: plain.input_tokens, ..Demands::default() });
        for (json, thinking) in [
            (r#"{"type":"adaptive","display":"omitted"}"#, Thinking::Adaptive),
            (r#"{"type":"enabled","budget_tokens":2048}"#, Thinking::Enabled { budget_tokens: 2_048 }),
            (r#"{"type":"enabled"}"#, Thinking::Enabled { budget_tokens: 0 }),
            (r#"{"type":"disabled"}"#, Thinking::Disabled),
            (r#"{"type":"between_tools"}"#, Thinking::BetweenTools),
            (r#"{"type":"new"}"#, Thinking::Other),
            ("{}", Thinking::Other),
            ("null", Thinking::Unset),
        ] {
            assert_eq!(of(&format!(r#""thinking":{json}"#)).thinking, thinking, "{json}");
        }
        for (json, effort) in [
            (r#"{"effort":"low"}"#, Some(Effort::Low)),
            (r#"{"effort":"xhigh"}"#, Some(Effort::XHigh)),
            (r#"{"effort":"huge"}"#, Some(Effort::Other)),
            (r#"{"effort":null}"#, None),
            (r#"{"format":{"type":"json_schema"}}"#, None),
        ] {
            assert_eq!(of(&format!(r#""output_config":{json}"#)).effort, effort, "{json}");
        }
        for (member, sampling, forced_tool) in [
            (r#""temperature":0"#, true, false),
            (r#""top_p":0.9"#, true, false),
            (r#""top_k":5"#, true, false),
            (r#""temperature":null"#, false, false),
            (r#""tool_choice":{"type":"any"}"#, false, true),
            (r#""tool_choice":{"type":"tool","name":"f"}"#, false, true),
            (r#""tool_choice":{"type":"auto"}"#, false, false),
        ] {
            assert_eq!((of(member).sampling, of(member).forced_tool), (sampling, forced_tool), "{member}");
        }
    }

    #[test]
    fn tools_of_the_client_are_told_from_typed_ones() {
        for (tools, any, typed) in [
            ("[]", false, vec![]),
            (r#"[{"name":"f","input_schema":{}},{"type":"custom","name":"g"},{"type":null}]"#, true, vec![]),
            (r#"[{"type":"web_search_20250305","name":"web_search"}]"#, true, vec!["web_search_20250305"]),
        ] {
            let demands = of(&format!(r#""tools":{tools}"#));
            assert_eq!((demands.tools, demands.typed_tools), (any, typed.into_iter().map(String::from).collect()));
        }
    }

    #[test]
    fn the_last_message_says_whether_it_is_a_prefill_or_answers_tools() {
        let assistant = r#"{"role":"assistant","content":"So"}"#;
        let result = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]}"#;
        for (messages, prefill, answers_tools) in [
            (HI.to_owned(), false, false),
            (format!("{HI},{assistant}"), true, false),
            (format!("{assistant},{HI}"), false, false),
            (result.to_owned(), false, true),
            (format!("{result},{assistant}"), true, false),
            (format!("{result},{HI}"), false, false),
        ] {
            let demands = demands("", &messages);
            assert_eq!((demands.prefill, demands.answers_tools), (prefill, answers_tools), "{messages}");
        }
        assert!(demands("", &format!(r#"{HI},{{"role":"system","content":"x"}}"#)).system_messages);
    }

    #[test]
    fn what_not_every_model_takes_is_named() {
        let block = r#"{"role":"user","content":[{"type":"hologram"},{"type":"text","text":"a"}],"cache":1}"#;
        assert_eq!(demands("", block).features, ["messages.cache", "hologram"]);
        assert_eq!(of(r#""inference_geo":"eu","metadata":{}"#).features, ["inference_geo"]);
        assert_eq!(of(r#""output_config":{"task_budget":{}}"#).features, ["output_config.task_budget"]);
    }

    #[test]
    fn text_counts_by_its_bytes_and_media_do_not() {
        let base = demands("", HI).input_tokens;
        let content = |content: &str| {
            let tokens = demands("", &format!(r#"{{"role":"user","content":{content}}}"#)).input_tokens;
            tokens.saturating_sub(base)
        };
        let data = "A".repeat(1_000_000);
        let image =
            format!(r#"{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{data}"}}}}"#);
        let pdf = |bytes: usize| {
            format!(r#"{{"type":"document","source":{{"type":"base64","data":"{}"}}}}"#, "A".repeat(bytes))
        };
        let linked = r#"{"type":"document","source":{"type":"url","url":"https://x"}}"#;
        let near = |found: u64, expected: u64| (expected..expected + 150).contains(&found);
        for (name, tokens, expected) in [
            ("text", content(&format!(r#""{}""#, "x".repeat(20_000))), 9_990),
            ("an image", content(&format!("[{image}]")), 4_784),
            ("two images", content(&format!("[{image},{image}]")), 9_568),
            ("an image of a tool", content(&format!(r#"[{{"type":"tool_result","content":[{image}]}}]"#)), 4_784),
            (
                "an image in a document",
                content(&format!(r#"[{{"type":"document","source":{{"type":"content","content":[{image}]}}}}]"#)),
                4_784,
            ),
            ("a small document", content(&format!("[{}]", pdf(100))), 7_500),
            ("a document of ten pages", content(&format!("[{}]", pdf(9 * 8_192))), 75_000),
            ("a huge document", content(&format!("[{}]", pdf(7_000_000))), 600_000),
            ("a linked document", content(&format!("[{linked}]")), 600_000),
            (
                "a text document",
                content(&format!(
                    r#"[{{"type":"document","source":{{"type":"text","data":"{}"}}}}]"#,
                    "x".repeat(20_000)
                )),
                10_000,
            ),
        ] {
            assert!(near(tokens, expected), "{name}: {tokens}");
        }
    }
}
