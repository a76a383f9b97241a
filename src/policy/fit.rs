//! Whether a request fits another model, and what has to be different in it there.
//!
//! What the caller gets must stay the same but for the model. What cannot be kept is refused, and the job waits for the
//! model that it asked for; a request that is sent and answered with a 400 would end it. So in doubt: not sent.
//!
//! | demand | on a model that does not have it |
//! | --- | --- |
//! | `max_tokens` | refused: an answer would be cut that the caller wanted whole |
//! | input and `max_tokens` together in the context | refused |
//! | prefill, `system` messages, tools, forced tools, typed tools, betas, members that only some models have | refused |
//! | `thinking` `adaptive` | `enabled` with a budget where that is what the model has, else dropped: the model may always have decided not to think |
//! | `enabled` | `adaptive` where the model has that, else dropped |
//! | `disabled`, `between_tools` | each other, or dropped where the model does not think unasked; refused where it always thinks: that uses up `max_tokens` |
//! | no `thinking`, and the model asked for does not think then | the same as `disabled`, kept as it is where the model always thinks |
//! | effort | dropped; `xhigh` becomes `high` where it is unknown, `xhigh` and `max` also where thinking is off, which refuses them |
//! | `temperature`, `top_p`, `top_k` | dropped: models without them have no such thing to keep |
//!
//! A budget is 1,024, 4,096, 8,192 or 16,384 tokens for an effort of low, medium, high or none, and above; never more than
//! half of `max_tokens`, so that there is room for the answer, and none below 1,024, which the API refuses. `adaptive` and
//! `enabled` cannot stand with a forced tool, so they are dropped there. `enabled` also not with a prefill; nor when tool
//! results are being answered, since the turn that called the tools would have to begin with a thinking block that the
//! model can read. Where `enabled` is put in, `temperature` and its like are taken out, as it takes their defaults only.

use super::demands::{Demands, Effort, Thinking};
use super::models::Abilities;
use crate::json;

/// Why a request cannot be sent to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The model has no row.
    ModelUnknown,
    /// The job's record does not say what it asks.
    RequestUnknown,
    /// The answer may become longer than the model's.
    MaxTokensTooLarge,
    /// Input and answer may not fit.
    ContextTooSmall,
    /// The assistant's last message would not be continued.
    PrefillNotSupported,
    /// Messages with the role `system`.
    SystemMessagesNotSupported,
    /// Tools, or a type of tool.
    ToolsNotSupported,
    /// A `tool_choice` of `any` or `tool`.
    ForcedToolNotSupported,
    /// A beta, or a member or block that not every model takes.
    FeatureNotSupported,
    /// Thinking could not be turned off.
    ThinkingNotSupported,
}

json::names!(Misfit {
    ModelUnknown => "model_unknown",
    RequestUnknown => "request_unknown",
    MaxTokensTooLarge => "max_tokens_too_large",
    ContextTooSmall => "context_too_small",
    PrefillNotSupported => "prefill_not_supported",
    SystemMessagesNotSupported => "system_messages_not_supported",
    ToolsNotSupported => "tools_not_supported",
    ForcedToolNotSupported => "forced_tool_not_supported",
    FeatureNotSupported => "feature_not_supported",
    ThinkingNotSupported => "thinking_not_supported",
});

/// What becomes of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit<T> {
    /// It stays as it is, also if it is not there.
    Keep,
    /// It is taken out.
    Drop,
    /// It becomes this.
    Set(T),
}

/// What has to be different in a request for another model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// `thinking`: never `Unset` or `Other`.
    pub thinking: Edit<Thinking>,
    /// `output_config.effort`.
    pub effort: Edit<Effort>,
    /// Whether `temperature`, `top_p` and `top_k` are taken out.
    pub drop_sampling: bool,
}

/// Whether a request can be sent to a model, perhaps rewritten.
///
/// # Errors
/// Why not.
pub fn fits(demands: &Demands, abilities: Option<&Abilities>) -> Result<(), Misfit> {
    let to = abilities.ok_or(Misfit::ModelUnknown)?;
    let has = |names: &[String]| names.iter().all(|name| to.features.contains(name));
    let checks = [
        (demands.max_tokens > 0, Misfit::RequestUnknown),
        (demands.max_tokens <= to.output_tokens, Misfit::MaxTokensTooLarge),
        (demands.input_tokens.saturating_add(demands.max_tokens) <= to.context_tokens, Misfit::ContextTooSmall),
        (to.prefill || !demands.prefill, Misfit::PrefillNotSupported),
        (to.system_messages || !demands.system_messages, Misfit::SystemMessagesNotSupported),
        ((to.tools || !demands.tools) && has(&demands.typed_tools), Misfit::ToolsNotSupported),
        (to.forced_tools || !demands.forced_tool, Misfit::ForcedToolNotSupported),
        (has(&demands.features), Misfit::FeatureNotSupported),
    ];
    if let Some((_, misfit)) = checks.into_iter().find(|(holds, _)| !holds) {
        return Err(misfit);
    }
    thinking_on(demands, None, to).map(drop)
}

/// What has to be different in a request that was written for a model with the abilities `asked`, if they are known, and is
/// sent to one with those of `to`. Nothing, if it does not fit.
#[must_use]
pub fn plan(demands: &Demands, asked: Option<&Abilities>, to: &Abilities) -> Plan {
    let thinking = thinking_on(demands, asked, to).unwrap_or(Edit::Keep);
    let is_off = match thinking {
        Edit::Keep => matches!(demands.thinking, Thinking::Disabled | Thinking::BetweenTools),
        Edit::Drop => false,
        Edit::Set(thinking) => matches!(thinking, Thinking::Disabled | Thinking::BetweenTools),
    };
    let effort = match demands.effort {
        None => Edit::Keep,
        Some(_) if !to.effort => Edit::Drop,
        Some(Effort::XHigh) if is_off || !to.xhigh_effort => Edit::Set(Effort::High),
        Some(Effort::Max) if is_off => Edit::Set(Effort::High),
        Some(_) => Edit::Keep,
    };
    let budget_is_new = matches!(thinking, Edit::Set(Thinking::Enabled { .. }));
    Plan { thinking, effort, drop_sampling: demands.sampling && (budget_is_new || !to.sampling) }
}

fn thinking_on(demands: &Demands, asked: Option<&Abilities>, to: &Abilities) -> Result<Edit<Thinking>, Misfit> {
    let with_budget = to.enabled_thinking && !demands.answers_tools && !demands.prefill;
    let budget = || match budget(demands) {
        Some(budget_tokens) => Edit::Set(Thinking::Enabled { budget_tokens }),
        None => Edit::Drop,
    };
    match demands.thinking {
        Thinking::Unset => {
            // A forced call comes without thinking anyway.
            let begins_to_think = to.thinks_unasked && asked.is_some_and(|asked| !asked.thinks_unasked);
            Ok(if begins_to_think && !demands.forced_tool { off(to).unwrap_or(Edit::Keep) } else { Edit::Keep })
        }
        Thinking::Disabled if to.disabled_thinking => Ok(Edit::Keep),
        Thinking::BetweenTools if to.between_tools_thinking => Ok(Edit::Keep),
        Thinking::Disabled | Thinking::BetweenTools => off(to).ok_or(Misfit::ThinkingNotSupported),
        Thinking::Adaptive | Thinking::Enabled { .. } if demands.forced_tool => Ok(Edit::Drop),
        Thinking::Adaptive if to.adaptive_thinking => Ok(Edit::Keep),
        Thinking::Adaptive if with_budget => Ok(budget()),
        Thinking::Enabled { budget_tokens } if with_budget => {
            let stays = (MIN_BUDGET..demands.max_tokens).contains(&budget_tokens);
            Ok(if stays { Edit::Keep } else { budget() })
        }
        Thinking::Enabled { .. } if to.adaptive_thinking => Ok(Edit::Set(Thinking::Adaptive)),
        Thinking::Adaptive | Thinking::Enabled { .. } => Ok(Edit::Drop),
        Thinking::Other => Err(Misfit::ThinkingNotSupported),
    }
}

/// How a model is told not to think, if it can be.
fn off(to: &Abilities) -> Option<Edit<Thinking>> {
    if to.disabled_thinking {
        Some(Edit::Set(Thinking::Disabled))
    } else if to.between_tools_thinking {
        Some(Edit::Set(Thinking::BetweenTools))
    } else {
        (!to.thinks_unasked).then_some(Edit::Drop)
    }
}

fn budget(demands: &Demands) -> Option<u64> {
    let wanted: u64 = match demands.effort {
        Some(Effort::Low) => MIN_BUDGET,
        Some(Effort::Medium) => 4_096,
        Some(Effort::High | Effort::Other) | None => 8_192,
        Some(Effort::XHigh | Effort::Max) => 16_384,
    };
    Some(wanted.min(demands.max_tokens / 2)).filter(|budget| *budget >= MIN_BUDGET)
}

/// The smallest budget that the API takes.
const MIN_BUDGET: u64 = 1_024;

#[cfg(test)]
mod tests {
    use super::super::models::Models;
    use super::*;

    /// A request that fits everything that thinks, with one change.
    fn with(change: impl FnOnce(&mut Demands)) -> Demands {
        let mut demands = Demands { max_tokens: 10_000, input_tokens: 1_000, tools: true, ..Demands::default() };
        change(&mut demands);
        demands
    }

    fn fit(demands: &Demands, model: &str) -> Option<&'static str> {
        fits(demands, Models::default().get(model)).err().map(Misfit::name)
    }

    const SONNET: &str = "claude-sonnet-5-5";
    const HAIKU: &str = "claude-haiku-5-5";
    const OPUS: &str = "claude-opus-5-5";
    const OLD_SONNET: &str = "claude-sonnet-4-6";
    const OLD_HAIKU: &str = "claude-haiku-4-5";

    #[test]
    fn what_cannot_be_rewritten_is_refused_by_name() {
        let typed = |name: &'static str| with(|demands| demands.add_typed_tool(name));
        let feature = |name: &'static str| with(|demands| demands.add_feature(name));
        for (demands, model, misfit) in [
            (with(|_| ()), "gpt", Some("model_unknown")),
            (Demands::default(), HAIKU, Some("request_unknown")),
            (with(|demands| demands.max_tokens = 64_000), OLD_HAIKU, None),
            (with(|demands| demands.max_tokens = 64_001), OLD_HAIKU, Some("max_tokens_too_large")),
            (with(|demands| demands.input_tokens = 190_000), OLD_HAIKU, None),
            (with(|demands| demands.input_tokens = 190_001), OLD_HAIKU, Some("context_too_small")),
            (with(|demands| demands.input_tokens = u64::MAX), HAIKU, Some("context_too_small")),
            (with(|demands| demands.prefill = true), OLD_HAIKU, None),
            (with(|demands| demands.prefill = true), HAIKU, Some("prefill_not_supported")),
            (with(|demands| demands.system_messages = true), HAIKU, None),
            (with(|demands| demands.system_messages = true), OLD_HAIKU, Some("system_messages_not_supported")),
            (with(|demands| demands.forced_tool = true), HAIKU, None),
            (with(|demands| demands.forced_tool = true), SONNET, Some("forced_tool_not_supported")),
            (typed("web_search_20250305"), OLD_HAIKU, None),
            (typed("web_search_20260209"), OLD_HAIKU, Some("tools_not_supported")),
            (feature("interleaved-thinking-2025-05-14"), OLD_HAIKU, None),
            (feature("context-1m-2025-08-07"), HAIKU, None),
            (feature("context-1m-2025-08-07"), OLD_HAIKU, Some("feature_not_supported")),
            (feature("inference_geo"), HAIKU, Some("feature_not_supported")),
            (with(|demands| demands.thinking = Thinking::Disabled), OPUS, Some("thinking_not_supported")),
            (with(|demands| demands.thinking = Thinking::Other), HAIKU, Some("thinking_not_supported")),
        ] {
            assert_eq!(fit(&demands, model), misfit, "{demands:?} on {model}");
        }
        let without_tools = Abilities { tools: false, ..Models::default().get(HAIKU).unwrap().clone() };
        assert_eq!(fits(&with(|_| ()), Some(&without_tools)), Err(Misfit::ToolsNotSupported));
        assert_eq!(fits(&with(|demands| demands.tools = false), Some(&without_tools)), Ok(()));
    }

    #[test]
    fn thinking_becomes_what_the_model_has() {
        use Edit::{Keep, Set};
        use Thinking::{Adaptive, BetweenTools, Disabled, Enabled, Unset};
        let enabled = |budget_tokens| Enabled { budget_tokens };
        let models = Models::default();
        for (asked, thinking, to, expected) in [
            (SONNET, Unset, HAIKU, Keep),
            (SONNET, Unset, OLD_HAIKU, Keep),
            (OLD_SONNET, Unset, HAIKU, Set(Disabled)),
            (OLD_SONNET, Unset, SONNET, Set(BetweenTools)),
            (OLD_SONNET, Unset, OPUS, Keep),
            ("unknown", Unset, HAIKU, Keep),
            (SONNET, BetweenTools, HAIKU, Set(Disabled)),
            (SONNET, BetweenTools, OLD_HAIKU, Set(Disabled)),
            (HAIKU, Disabled, SONNET, Set(BetweenTools)),
            (HAIKU, Disabled, OLD_HAIKU, Keep),
            (SONNET, Adaptive, HAIKU, Keep),
            (SONNET, Adaptive, OLD_HAIKU, Set(enabled(5_000))),
            (OLD_SONNET, enabled(2_000), OLD_HAIKU, Keep),
            (OLD_SONNET, enabled(1_024), OLD_HAIKU, Keep),
            (OLD_SONNET, enabled(1_023), OLD_HAIKU, Set(enabled(5_000))),
            (OLD_SONNET, enabled(10_000), OLD_HAIKU, Set(enabled(5_000))),
            (OLD_SONNET, enabled(2_000), HAIKU, Set(Adaptive)),
        ] {
            let demands = with(|demands| demands.thinking = thinking);
            let plan = plan(&demands, models.get(asked), models.get(to).unwrap());
            assert_eq!(plan.thinking, expected, "{thinking:?} from {asked} to {to}");
        }
        let both = Abilities { disabled_thinking: true, ..models.get(SONNET).unwrap().clone() };
        for thinking in [Disabled, BetweenTools] {
            let demands = with(|demands| demands.thinking = thinking);
            assert_eq!(plan(&demands, None, &both).thinking, Keep, "{thinking:?} where there is either");
        }
    }

    #[test]
    fn a_budget_follows_the_effort_and_leaves_half_for_the_answer() {
        for (effort, max_tokens, budget) in [
            (Some(Effort::Low), 64_000, Some(1_024)),
            (Some(Effort::Medium), 64_000, Some(4_096)),
            (Some(Effort::High), 64_000, Some(8_192)),
            (None, 64_000, Some(8_192)),
            (Some(Effort::Max), 64_000, Some(16_384)),
            (Some(Effort::Max), 10_000, Some(5_000)),
            (None, 2_048, Some(1_024)),
            (None, 2_047, None),
            (None, 1, None),
        ] {
            let demands = Demands { thinking: Thinking::Adaptive, max_tokens, effort, ..Demands::default() };
            let expected = budget.map_or(Edit::Drop, |budget_tokens| Edit::Set(Thinking::Enabled { budget_tokens }));
            let plan = plan(&demands, None, Models::default().get(OLD_HAIKU).unwrap());
            assert_eq!((plan.thinking, plan.drop_sampling), (expected, false), "{effort:?} {max_tokens}");
        }
    }

    #[test]
    fn thinking_that_cannot_stand_with_the_rest_of_the_request_is_dropped() {
        let adaptive = |change: fn(&mut Demands)| {
            with(|demands| {
                demands.thinking = Thinking::Adaptive;
                change(demands);
            })
        };
        let forced = adaptive(|demands| demands.forced_tool = true);
        let answering = adaptive(|demands| demands.answers_tools = true);
        let prefilled = adaptive(|demands| demands.prefill = true);
        for (demands, model, expected) in [
            (&forced, OLD_HAIKU, Edit::Drop),
            (&forced, HAIKU, Edit::Drop),
            (&answering, OLD_HAIKU, Edit::Drop),
            (&answering, HAIKU, Edit::Keep),
            (&prefilled, OLD_HAIKU, Edit::Drop),
        ] {
            let plan = plan(demands, None, Models::default().get(model).unwrap());
            assert_eq!(plan.thinking, expected, "{demands:?} on {model}");
        }
        let enabled = Demands { thinking: Thinking::Enabled { budget_tokens: 2_000 }, ..answering };
        assert_eq!(
            plan(&enabled, None, Models::default().get(OLD_SONNET).unwrap()).thinking,
            Edit::Set(Thinking::Adaptive)
        );
    }

    #[test]
    fn effort_is_lowered_or_dropped() {
        for (effort, thinking, model, expected) in [
            (Effort::Low, Thinking::Unset, OLD_HAIKU, Edit::Drop),
            (Effort::Low, Thinking::Unset, HAIKU, Edit::Keep),
            (Effort::Other, Thinking::Unset, HAIKU, Edit::Keep),
            (Effort::XHigh, Thinking::Unset, HAIKU, Edit::Keep),
            (Effort::XHigh, Thinking::Unset, OLD_SONNET, Edit::Set(Effort::High)),
            (Effort::Max, Thinking::Unset, OLD_SONNET, Edit::Keep),
            (Effort::Max, Thinking::Disabled, HAIKU, Edit::Set(Effort::High)),
            (Effort::Max, Thinking::Enabled { budget_tokens: 2_000 }, HAIKU, Edit::Keep),
            (Effort::XHigh, Thinking::Disabled, SONNET, Edit::Set(Effort::High)),
            (Effort::Medium, Thinking::Disabled, HAIKU, Edit::Keep),
        ] {
            let demands = with(|demands| (demands.effort, demands.thinking) = (Some(effort), thinking));
            assert_eq!(plan(&demands, None, Models::default().get(model).unwrap()).effort, expected, "{demands:?}");
        }
    }

    #[test]
    fn sampling_is_dropped_where_the_model_has_none_and_where_a_budget_is_new() {
        for (thinking, model, expected) in [
            (Thinking::Unset, HAIKU, true),
            (Thinking::Unset, OLD_HAIKU, false),
            (Thinking::Adaptive, OLD_HAIKU, true),
            (Thinking::Enabled { budget_tokens: 2_000 }, OLD_HAIKU, false),
        ] {
            let demands = with(|demands| (demands.sampling, demands.thinking) = (true, thinking));
            let plan = plan(&demands, None, Models::default().get(model).unwrap());
            assert_eq!(plan.drop_sampling, expected, "{thinking:?} on {model}");
        }
    }

    #[test]
    fn a_record_without_demands_has_those_that_fit_nothing() {
        let demands: Demands = json::read("{}").unwrap();
        assert_eq!(fit(&demands, HAIKU), Some("request_unknown"));
    }
}
