//! Finding runs: a small filter language, an order, and remarks on names that no run has.
//!
//! ```text
//! state = running and params.lr < 0.1 and tags."a b" = 'x' and metrics.`val/acc` > 0.9 and duration > 1h
//! ended > now-1m or (outcome in (failed, cancelled) and not name ilike 'test\_%')
//! params.model.type = cnn              -- the nested value {"model": {"type": ...}}
//! params.`model.type` = cnn            -- the flat key "model.type"
//! parent.params.set = A                -- of the run that this one belongs under
//! min(metrics.loss) < 0.5              -- also max, count
//! params.lr is null
//! ```
//!
//! One quoting rule, for names and for values: a word that is more than letters, digits, `_`, `-`, `/`, `:` and `+` stands in backticks,
//! single or double quotes; the quote itself is written twice inside. What is absent matches no comparison, not even under `not`, and
//! sorts last either way. Types are kept: the text `"3"` is not the number 3; tags are texts.

mod evaluate;
mod like;
mod literal;
mod nearest;
mod order;
mod parser;
mod scan;
#[cfg(test)]
mod tests;

use footplate_types::Invalid;

pub use evaluate::{MetricFigures, Metrics, Row, RunRow, cause_text, matches};
pub use literal::{Literal, Value};
pub use nearest::{Known, notes};
pub use order::{OrderBy, compare, parse_order};
pub use parser::parse_filter;

/// The most characters of a filter or an order.
pub const QUERY_MAX: usize = 10_000;

/// The deepest nesting of parentheses and `not`.
pub const DEPTH_MAX: u32 = 64;

/// A query that cannot be read: where, what stands there, what is allowed there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at character {position}: {found:?} is not understood here; allowed: {allowed}")]
pub struct QueryError {
    /// The character, from 1.
    pub position: usize,
    /// What stands there; empty at the end.
    pub found: String,
    /// What is allowed.
    pub allowed: String,
}

impl QueryError {
    /// The same as the refusal of a field.
    pub fn of_field(&self, field: &str) -> Invalid {
        Invalid::new(field, &self.found, format!("at character {}: {}", self.position, self.allowed))
    }
}

/// What a run is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// One of the run's own facts.
    Own(Own),
    /// A param: the first step is the key, the rest leads into its value.
    Param(Vec<String>),
    /// A tag.
    Tag(String),
    /// A metric's figure over rank 0.
    Metric(Figure, String),
    /// A field of the run that this one belongs under.
    Parent(Box<Field>),
}

impl Field {
    /// For the state of a run or of its parent: the same one's outcome.
    fn outcome_of_state(&self) -> Option<Self> {
        match self {
            Self::Own(Own::State) => Some(Self::Own(Own::Outcome)),
            Self::Parent(inner) => inner.outcome_of_state().map(|field| Self::Parent(Box::new(field))),
            Self::Own(_) | Self::Param(_) | Self::Tag(_) | Self::Metric(..) => None,
        }
    }
}

/// Which figure of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// The newest value.
    Last,
    /// The least finite value.
    Min,
    /// The greatest finite value.
    Max,
    /// How many points.
    Count,
}

macro_rules! own {
    ($($(#[$doc:meta])* $name:ident = $($word:literal)|+;)*) => {
        /// The run's own facts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Own {
            $($(#[$doc])* $name,)*
        }

        impl Own {
            /// All names, one a fact.
            pub const NAMES: &'static [&'static str] = &[$(first(&[$($word),+])),*];

            pub(crate) fn parse(word: &str) -> Option<Self> {
                match word {
                    $($($word)|+ => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

const fn first(words: &[&'static str]) -> &'static str {
    words[0]
}

own! {
    /// Its id.
    Id = "id" | "run_id";
    /// Its name.
    Name = "name";
    /// Its experiment's name.
    Experiment = "experiment";
    /// Where it stands.
    State = "state" | "status";
    /// How it ended.
    Outcome = "outcome";
    /// Why it ended.
    Cause = "cause";
    /// When it began.
    Created = "created" | "created_at";
    /// When its first worker began.
    Started = "started" | "started_at";
    /// When it ended.
    Ended = "ended" | "ended_at";
    /// When it was sealed.
    Sealed = "sealed" | "sealed_at";
    /// How long it has run, so far while it runs.
    Duration = "duration";
    /// How long it has logged no metric while it runs.
    Silent = "silent";
    /// How many attempts it has.
    Attempts = "attempts";
    /// How many artifacts stand.
    Artifacts = "artifacts";
    /// Its queue.
    Queue = "queue";
    /// Its priority.
    Priority = "priority";
    /// Who began it.
    User = "user" | "created_by";
    /// Why it waits.
    Waiting = "waiting";
    /// What was said of its end.
    Message = "message";
    /// Its hypothesis.
    Hypothesis = "hypothesis";
    /// Its conclusion.
    Conclusion = "conclusion";
    /// Its note.
    Note = "note";
    /// The commit of its code.
    Commit = "commit";
    /// The branch of its code.
    Branch = "branch";
    /// Whether its code differed from the commit.
    Dirty = "dirty";
    /// The digest of its code.
    Tree = "tree";
    /// Whether its seal is complete.
    Complete = "complete";
    /// How much came after the seal.
    Late = "late";
    /// The run it repeats.
    RerunOf = "rerun_of";
    /// Whether it has a job.
    HasJob = "has_job";
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
}

/// A condition on runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// Every run.
    All,
    /// A comparison with one value.
    Compare(Field, Comparison, literal::Literal),
    /// One of several values.
    In(Field, Vec<literal::Literal>),
    /// A pattern: `%` any text, `_` any one character, `\` takes the next as it is.
    Like {
        /// What is looked at.
        field: Field,
        /// The pattern.
        pattern: String,
        /// Whether case does not matter.
        any_case: bool,
    },
    /// Nothing is there.
    IsNull(Field),
    /// Not.
    Not(Box<Filter>),
    /// All of them.
    And(Vec<Filter>),
    /// One of them at least.
    Or(Vec<Filter>),
}

impl Filter {
    /// Every field that the filter names.
    pub fn fields(&self) -> Vec<&Field> {
        match self {
            Self::All => Vec::new(),
            Self::Compare(field, _, _) | Self::In(field, _) | Self::Like { field, .. } | Self::IsNull(field) => vec![field],
            Self::Not(inner) => inner.fields(),
            Self::And(parts) | Self::Or(parts) => parts.iter().flat_map(Filter::fields).collect(),
        }
    }
}

/// Whether any of the fields needs metrics.
pub fn needs_metrics<'a>(fields: impl IntoIterator<Item = &'a Field>) -> bool {
    fields.into_iter().any(|field| match field {
        Field::Metric(..) | Field::Own(Own::Silent) => true,
        Field::Parent(inner) => needs_metrics([inner.as_ref()]),
        Field::Own(_) | Field::Param(_) | Field::Tag(_) => false,
    })
}
