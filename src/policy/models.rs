//! What models can do: the table that says whether a request fits another model than the one it was written for.
//!
//! A model that is swapped by its id alone answers 400 to what the other one took (hermes #109698), and a 400 ends the job.
//! So a fallback is only called if its row is known. The built-in rows (platform.claude.com, October 2026: the overview and
//! migration guide of each model, "Troubleshooting thinking"):
//!
//! | | sonnet-5-5 | haiku-5-5 | opus-5-5 | sonnet-4-6 | haiku-4-5 |
//! | --- | --- | --- | --- | --- | --- |
//! | context, output (tokens) | 1M, 128k | 1M, 128k | 1M, 128k | 1M, 128k | 200k, 64k |
//! | `thinking` it takes | adaptive, between_tools | adaptive, disabled | adaptive | adaptive, enabled, disabled | enabled, disabled |
//! | without `thinking` it | thinks | thinks | thinks | does not | does not |
//! | effort, the level `xhigh` | yes, yes | yes, yes | yes, yes | yes, no | no, no |
//! | `temperature`, `top_p`, `top_k` | no | no | no | yes | yes |
//! | continues a prefill | no | no | no | no | yes |
//! | `system` messages | yes | yes | yes | no | no |
//! | a forced tool (`any`, `tool`) | no | yes | no | yes | yes |
//!
//! Known, but not from those pages: that typed tools of the common versions work on all five. Not known, and therefore not in
//! a row: newer tools, and betas that change what a model does. `POLICY.models` adds rows and changes single values; a row
//! of its own needs the two limits, and else gets the values that no model answers with a 400.

use crate::json::{self, FromJson, Json, Map, ToJson};

/// What one model can do. The defaults are those of a row that POLICY adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Its context, in tokens. Above 0.
    pub context_tokens: u64,
    /// Its longest answer, in tokens. Above 0.
    pub output_tokens: u64,
    /// Whether it takes `thinking.type` `adaptive`. Default false.
    pub adaptive_thinking: bool,
    /// `enabled`, with `budget_tokens`. Default false.
    pub enabled_thinking: bool,
    /// `disabled`. Default false.
    pub disabled_thinking: bool,
    /// `between_tools`. Default false.
    pub between_tools_thinking: bool,
    /// Whether it thinks if the request has no `thinking`. Default false.
    pub thinks_unasked: bool,
    /// Whether it takes `output_config.effort`. Default false.
    pub effort: bool,
    /// Whether `xhigh` is one of its levels. Default false.
    pub xhigh_effort: bool,
    /// Whether it takes values of `temperature`, `top_p` and `top_k`. Default false.
    pub sampling: bool,
    /// Whether it continues a last message of the assistant. Default false.
    pub prefill: bool,
    /// Whether messages may have the role `system`. Default false.
    pub system_messages: bool,
    /// Whether it takes tools. Default true.
    pub tools: bool,
    /// Whether `tool_choice` may force one. Default true.
    pub forced_tools: bool,
    /// What else it takes, by name: types of tools (`web_search_20250305`), betas, members of a request that not every
    /// model has. What POLICY lists is added to what is known of every model.
    pub features: Vec<String>,
}

json::object!(only default Abilities {
    context_tokens,
    output_tokens,
    adaptive_thinking,
    enabled_thinking,
    disabled_thinking,
    between_tools_thinking,
    thinks_unasked,
    effort,
    xhigh_effort,
    sampling,
    prefill,
    system_messages,
    tools,
    forced_tools,
    features,
});

impl Default for Abilities {
    fn default() -> Self {
        Self {
            context_tokens: 0,
            output_tokens: 0,
            adaptive_thinking: false,
            enabled_thinking: false,
            disabled_thinking: false,
            between_tools_thinking: false,
            thinks_unasked: false,
            effort: false,
            xhigh_effort: false,
            sampling: false,
            prefill: false,
            system_messages: false,
            tools: true,
            forced_tools: true,
            features: names(&COMMON_FEATURES),
        }
    }
}

/// The models that a deployment knows, by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Models(Map<String, Abilities>);

impl Default for Models {
    fn default() -> Self {
        let newest = Abilities {
            context_tokens: 1_000_000,
            output_tokens: 128_000,
            adaptive_thinking: true,
            thinks_unasked: true,
            effort: true,
            xhigh_effort: true,
            system_messages: true,
            forced_tools: false,
            features: names(&[&COMMON_FEATURES[..], &[LONG_CONTEXT_BETA]].concat()),
            ..Abilities::default()
        };
        let rows = [
            ("claude-sonnet-5-5", Abilities { between_tools_thinking: true, ..newest.clone() }),
            ("claude-haiku-5-5", Abilities { disabled_thinking: true, forced_tools: true, ..newest.clone() }),
            (
                "claude-sonnet-4-6",
                Abilities {
                    enabled_thinking: true,
                    disabled_thinking: true,
                    thinks_unasked: false,
                    xhigh_effort: false,
                    sampling: true,
                    system_messages: false,
                    forced_tools: true,
                    ..newest.clone()
                },
            ),
            (
                "claude-haiku-4-5",
                Abilities {
                    context_tokens: 200_000,
                    output_tokens: 64_000,
                    enabled_thinking: true,
                    disabled_thinking: true,
                    sampling: true,
                    prefill: true,
                    ..Abilities::default()
                },
            ),
            ("claude-opus-5-5", newest),
        ];
        Self(rows.into_iter().map(|(name, row)| (name.to_owned(), row)).collect())
    }
}

impl Models {
    /// What `model` can do; a dated id finds the row of its alias. None if nobody has said.
    #[must_use]
    pub fn get(&self, model: &str) -> Option<&Abilities> {
        self.0.get(model).or_else(|| self.0.get(alias(model)?))
    }

    /// Every row.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Abilities)> {
        self.0.iter()
    }
}

impl FromJson for Models {
    /// Reads rows over those that are built in. A dated id begins as its alias is.
    fn read(json: Json<'_>, faults: &mut json::Faults) -> Option<Self> {
        let fields = json.fields(faults)?;
        let names: Vec<&str> = fields.0.iter().map(|(name, _)| name.as_ref()).collect();
        fields.only(&names, faults);
        let built_in = Self::default();
        let mut models = built_in.clone();
        for name in names {
            let base = built_in.get(name).cloned().unwrap_or_default();
            let known = base.features.clone();
            if let Some(mut row) = fields.read_over(base, name, faults) {
                let missing = known.into_iter().filter(|feature| !row.features.contains(feature)).collect::<Vec<_>>();
                row.features.extend(missing);
                models.0.insert(name.to_owned(), row);
            }
        }
        Some(models)
    }
}

impl ToJson for Models {
    fn write(&self, out: &mut String) {
        self.0.write(out);
    }
}

/// `claude-haiku-4-5` of `claude-haiku-4-5-20251001`.
fn alias(model: &str) -> Option<&str> {
    let (alias, date) = model.rsplit_once('-')?;
    (date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit())).then_some(alias)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Tools of types that all current models have, and betas that are over, or about the transport: passing them to a model
/// without the feature has no effect.
const COMMON_FEATURES: [&str; 14] = [
    "bash_20250124",
    "code_execution_20250825",
    "memory_20250818",
    "text_editor_20250728",
    "web_fetch_20250910",
    "web_search_20250305",
    "extended-cache-ttl-2025-04-11",
    "files-api-2025-04-14",
    "fine-grained-tool-streaming-2025-05-14",
    "interleaved-thinking-2025-05-14",
    "pdfs-2024-09-25",
    "prompt-caching-2024-07-31",
    "structured-outputs-2025-11-13",
    "token-efficient-tools-2025-02-19",
];
const LONG_CONTEXT_BETA: &str = "context-1m-2025-08-07";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Models {
        json::read(json).unwrap()
    }

    #[test]
    fn a_dated_id_finds_the_row_of_its_alias_and_nothing_else_does() {
        let models = Models::default();
        for (id, context) in [
            ("claude-haiku-4-5", Some(200_000)),
            ("claude-haiku-4-5-20251001", Some(200_000)),
            ("claude-sonnet-5-5", Some(1_000_000)),
            ("claude-haiku-4-5-2025100", None),
            ("claude-haiku-4-5-2025100x", None),
            ("claude-haiku-4", None),
            ("claude-haiku-4-5-latest", None),
            ("20251001", None),
            ("", None),
        ] {
            assert_eq!(models.get(id).map(|row| row.context_tokens), context, "{id}");
        }
    }

    #[test]
    fn the_built_in_rows_are_what_is_documented() {
        let models = Models::default();
        let row = |name: &str| {
            let row = models.get(name).unwrap();
            let thinking = [
                row.adaptive_thinking,
                row.enabled_thinking,
                row.disabled_thinking,
                row.between_tools_thinking,
                row.thinks_unasked,
            ];
            let rest = [row.effort, row.xhigh_effort, row.sampling, row.prefill, row.system_messages, row.forced_tools];
            (row.context_tokens, row.output_tokens, thinking.map(u8::from), rest.map(u8::from))
        };
        for (name, expected) in [
            ("claude-sonnet-5-5", (1_000_000, 128_000, [1, 0, 0, 1, 1], [1, 1, 0, 0, 1, 0])),
            ("claude-haiku-5-5", (1_000_000, 128_000, [1, 0, 1, 0, 1], [1, 1, 0, 0, 1, 1])),
            ("claude-opus-5-5", (1_000_000, 128_000, [1, 0, 0, 0, 1], [1, 1, 0, 0, 1, 0])),
            ("claude-sonnet-4-6", (1_000_000, 128_000, [1, 1, 1, 0, 0], [1, 0, 1, 0, 0, 1])),
            ("claude-haiku-4-5", (200_000, 64_000, [0, 1, 1, 0, 0], [0, 0, 1, 1, 0, 1])),
        ] {
            assert_eq!(row(name), expected, "{name}");
        }
        assert_eq!(models.iter().count(), 5);
        assert!(models.iter().all(|(_, row)| row.tools));
    }

    #[test]
    fn a_partial_row_over_a_built_in_name_keeps_its_other_values() {
        let models = read(r#"{"claude-haiku-4-5":{"output_tokens":9},"claude-haiku-4-5-20251001":{"prefill":false}}"#);
        let [alias, dated] = ["claude-haiku-4-5", "claude-haiku-4-5-20251001"].map(|id| models.get(id).unwrap());
        assert_eq!((alias.output_tokens, alias.context_tokens, alias.prefill), (9, 200_000, true));
        assert_eq!((dated.output_tokens, dated.context_tokens, dated.prefill), (64_000, 200_000, false));
        assert_eq!(models.get("claude-haiku-5-5"), Models::default().get("claude-haiku-5-5"));
    }

    #[test]
    fn a_row_of_ones_own_needs_its_limits_and_has_defaults_for_the_rest() {
        let models = read(r#"{"mine":{"context_tokens":8,"output_tokens":4,"adaptive_thinking":true}}"#);
        let expected =
            Abilities { context_tokens: 8, output_tokens: 4, adaptive_thinking: true, ..Abilities::default() };
        assert_eq!(models.get("mine"), Some(&expected));
        assert_eq!(read(r#"{"mine":{"context_tokens":8}}"#).get("mine").map(|row| row.output_tokens), Some(0));
    }

    #[test]
    fn features_are_added_to_those_that_are_known() {
        let models = read(r#"{"claude-haiku-4-5":{"features":["inference_geo","bash_20250124"]}}"#);
        let features = &models.get("claude-haiku-4-5").unwrap().features;
        assert_eq!(features.len(), COMMON_FEATURES.len() + 1);
        assert!(features.iter().any(|name| name == "inference_geo"));
    }

    #[test]
    fn what_is_wrong_with_a_row_is_named_with_its_place() {
        for (json, place, message) in [
            (r#"{"m":{"colour":1}}"#, "m.colour", "unknown"),
            (r#"{"m":{"effort":1}}"#, "m.effort", "true or false"),
            (r#"{"m":{},"m":{}}"#, "m", "duplicate"),
            (r#"{"m":7}"#, "m", "object"),
        ] {
            let Err(json::Unreadable::Unfit(faults)) = json::read::<Models>(json) else { panic!("{json}") };
            assert!(faults.iter().any(|fault| fault.place == place && fault.message.contains(message)), "{faults:?}");
        }
    }

    #[test]
    fn the_table_survives_its_json() {
        let models = read(r#"{"mine":{"context_tokens":8,"output_tokens":4}}"#);
        assert_eq!(read(&json::write(&models)), models);
    }
}
