//! What a request asks of a model, as data: small, taken from the body once, and kept with the job. Whether another model has
//! it is for [`fit`](super::fit) to say.

use crate::json;

/// What a request asks of a model. Small, and kept with the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demands {
    /// `max_tokens`. 0 in a record that was written before there were demands: nothing is known then, and nothing fits.
    pub max_tokens: u64,
    /// An upper estimate of the input, in tokens.
    pub input_tokens: u64,
    /// `thinking`.
    pub thinking: Thinking,
    /// `output_config.effort`.
    pub effort: Option<Effort>,
    /// Whether it sets `temperature`, `top_p` or `top_k`.
    pub sampling: bool,
    /// Whether the last message is the assistant's.
    pub prefill: bool,
    /// Whether the last message answers calls of tools.
    pub answers_tools: bool,
    /// Whether a message has the role `system`.
    pub system_messages: bool,
    /// Whether there are tools.
    pub tools: bool,
    /// Whether `tool_choice` forces one.
    pub forced_tool: bool,
    /// The types of those tools that the client did not define itself: `web_search_20250305`.
    pub typed_tools: Vec<String>,
    /// Betas, and members and blocks that not every model takes, by name.
    pub features: Vec<String>,
}

json::object!(default Demands {
    max_tokens,
    input_tokens,
    thinking,
    effort,
    sampling,
    prefill,
    answers_tools,
    system_messages,
    tools,
    forced_tool,
    typed_tools,
    features,
});

impl Demands {
    /// Notes a type of tool.
    pub fn add_typed_tool(&mut self, name: &str) {
        add(&mut self.typed_tools, name);
    }

    /// Notes something that not every model takes.
    pub fn add_feature(&mut self, name: &str) {
        add(&mut self.features, name);
    }
}

/// A list that is too long ends with a name that no model has.
fn add(list: &mut Vec<String>, name: &str) {
    if list.len() > MAX_NAMES || list.iter().any(|known| known == name) {
        return;
    }
    let fits = list.len() < MAX_NAMES && name.len() <= MAX_NAME_BYTES;
    list.push(if fits { name.to_owned() } else { TOO_MANY.to_owned() });
}

/// What `thinking` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thinking {
    /// Nothing.
    #[default]
    Unset,
    /// Not at all.
    Disabled,
    /// Only between calls of tools.
    BetweenTools,
    /// As much as the model finds right.
    Adaptive,
    /// Up to `budget_tokens`.
    Enabled {
        /// The budget; 0 if there is none, which the API refuses.
        budget_tokens: u64,
    },
    /// Something that we do not know.
    Other,
}

json::choice!(Thinking {
    "unset" => Unset,
    "disabled" => Disabled,
    "between_tools" => BetweenTools,
    "adaptive" => Adaptive,
    "enabled" => Enabled { budget_tokens },
    "other" => Other,
});

/// `output_config.effort`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much; most models' own choice.
    High,
    /// More.
    XHigh,
    /// All.
    Max,
    /// A level that we do not know.
    Other,
}

json::names!(Effort {
    Low => "low",
    Medium => "medium",
    High => "high",
    XHigh => "xhigh",
    Max => "max",
    Other => "other",
});

impl Effort {
    /// The level of this name.
    #[must_use]
    pub fn parse(name: &str) -> Self {
        let levels = [Self::Low, Self::Medium, Self::High, Self::XHigh, Self::Max];
        levels.into_iter().find(|level| level.name() == name).unwrap_or(Self::Other)
    }
}

const MAX_NAMES: usize = 16;
const MAX_NAME_BYTES: usize = 64;
const TOO_MANY: &str = "(more)";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_kept_once_and_a_list_that_is_too_long_ends_with_one_that_nobody_has() {
        let mut demands = Demands::default();
        for index in 0..1_000 {
            demands.add_feature("pdfs-2024-09-25");
            demands.add_typed_tool(&format!("tool_{}", index % 17));
        }
        assert_eq!((demands.features.len(), demands.typed_tools.len()), (1, 17));
        assert_eq!(demands.typed_tools.last().unwrap(), TOO_MANY);
        let mut long = Demands::default();
        long.add_feature(&"x".repeat(65));
        assert_eq!(long.features, [TOO_MANY]);
    }

    proptest! {
        #[test]
        fn demands_survive_their_json(numbers: (u64, u64, u64), flags: [bool; 6], kind in 0_usize..6, name in "[a-z]{1,9}") {
            let (max_tokens, input_tokens, budget_tokens) = numbers;
            let [sampling, prefill, answers_tools, system_messages, tools, forced_tool] = flags;
            let thinking = [
                Thinking::Unset,
                Thinking::Disabled,
                Thinking::BetweenTools,
                Thinking::Adaptive,
                Thinking::Enabled { budget_tokens },
                Thinking::Other,
            ][kind];
            let effort = sampling.then_some(Effort::XHigh);
            let lists = (vec![name.clone()], vec![name]);
            let demands = Demands {
                max_tokens, input_tokens, thinking, effort, sampling, prefill, answers_tools, system_messages, tools,
                forced_tool, typed_tools: lists.0, features: lists.1,
            };
            prop_assert_eq!(json::read::<Demands>(&json::write(&demands)).unwrap(), demands);
        }
    }
}
