//! The kind table (A6): what a kind of job allows when its model is overloaded.
//!
//! Short, closed tasks lose little on a smaller model; long writing and code do. The table decides, not the caller of the
//! moment, so that quality does not depend on who was on duty during the outage.

use crate::json::{self, Map};

/// What a kind allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Whether the fallback model may answer instead (A6).
    pub fallback: bool,
    /// What happens after the last attempt (A5, stage 3).
    pub when_exhausted: WhenExhausted,
    /// The model for jobs of this kind that name none; `None` means the deployment's `PRIMARY_MODEL`.
    pub primary_model: Option<String>,
    /// The smaller model for this kind; `None` means the deployment's `FALLBACK_MODEL`.
    pub fallback_model: Option<String>,
}

json::object!(only default Kind { fallback, when_exhausted, primary_model, fallback_model });

impl Default for Kind {
    fn default() -> Self {
        Self { fallback: false, when_exhausted: WhenExhausted::Ask, primary_model: None, fallback_model: None }
    }
}

/// What happens to a job whose attempts are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenExhausted {
    /// Ask whether it may wait.
    Ask,
    /// Wait for the next off-peak window.
    Defer,
    /// Fail.
    Fail,
}

json::names!(WhenExhausted {
    Ask => "ask",
    Defer => "defer",
    Fail => "fail",
});

/// The kinds that a deployment knows, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kinds(Map<String, Kind>);

impl Default for Kinds {
    fn default() -> Self {
        let row = |(name, fallback): (&str, bool)| (name.to_owned(), Kind { fallback, ..Kind::default() });
        Self(BUILT_IN.into_iter().map(row).collect())
    }
}

impl Kinds {
    /// The built-in table with `own` rows added or replaced.
    #[must_use]
    pub fn extended(own: &Map<String, Kind>) -> Self {
        let Self(mut table) = Self::default();
        for (name, kind) in own.iter() {
            table.insert(name.clone(), kind.clone());
        }
        Self(table)
    }

    /// The row of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Kind> {
        self.0.get(name)
    }

    /// Every name, for messages.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

/// Name and whether the fallback is allowed, from A6; `default` is ours.
const BUILT_IN: [(&str, bool); 7] = [
    ("default", false),
    ("short_summary", true),
    ("tagging", true),
    ("classification", true),
    ("structured_extract", true),
    ("long_form_writing", false),
    ("code_generation", false),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_articles_and_own_rows_extend_and_replace_it() {
        let own =
            [("tagging".to_owned(), Kind::default()), ("poem".to_owned(), Kind { fallback: true, ..Kind::default() })];
        let kinds = Kinds::extended(&own.into_iter().collect());
        let fallback = |name: &str| kinds.get(name).map(|kind| kind.fallback);
        assert_eq!(fallback("short_summary"), Some(true));
        assert_eq!(fallback("code_generation"), Some(false));
        assert_eq!(fallback("tagging"), Some(false));
        assert_eq!(fallback("poem"), Some(true));
        assert_eq!(fallback("novel"), None);
    }
}
