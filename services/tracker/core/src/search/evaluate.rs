//! Whether a run matches a filter: true, false, or not to be said (something is absent), which matches nothing.

use super::like::like;
use super::literal::{Literal, Value};
use super::parser::OUTCOMES;
use super::{Comparison, Field, Figure, Filter, Own};
use crate::Run;
use crate::run::{Status, command::outcome_text};
use footplate_events::facts::{Cause, ParamValue};
use footplate_types::Timestamp;
use std::cmp::Ordering;

/// What a filter can look at.
pub trait Row {
    /// A field's value; none when it is absent.
    fn value(&self, field: &Field) -> Option<Value>;
    /// Whether anything stands there, also a list or a section.
    fn is_present(&self, field: &Field) -> bool {
        self.value(field).is_some()
    }
    /// The instant of the question.
    fn now(&self) -> Timestamp;
}

/// A metric's figures, as far as searching needs them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricFigures {
    /// The newest value.
    pub last: f64,
    /// The least finite value.
    pub min: Option<f64>,
    /// The greatest finite value.
    pub max: Option<f64>,
    /// How many points.
    pub count: u64,
}

/// Where figures of metrics come from; called only for filters that name one.
pub trait Metrics {
    /// The figures of a run's metric, rank 0, over its newest attempt that has it.
    fn figures(&self, run: &Run, name: &str) -> Option<MetricFigures>;
    /// When the run last logged a metric, by the store's clock.
    fn last_metric_at(&self, run: &Run) -> Option<Timestamp>;
}

/// A run as a row.
pub struct RunRow<'a, M> {
    /// The run.
    pub run: &'a Run,
    /// The run it belongs under.
    pub parent: Option<&'a Run>,
    /// Its metrics.
    pub metrics: &'a M,
    /// The instant of the question.
    pub now: Timestamp,
}

impl<M: Metrics> Row for RunRow<'_, M> {
    fn value(&self, field: &Field) -> Option<Value> {
        match field {
            Field::Own(own) => self.own(*own),
            Field::Param(path) => self.param(path).and_then(Value::of_param),
            Field::Tag(key) => self.run.tags.iter().find(|(known, _)| known.as_str() == key).map(|(_, value)| Value::Text(value.clone())),
            Field::Metric(figure, name) => {
                let figures = self.metrics.figures(self.run, name)?;
                match figure {
                    Figure::Last => Some(Value::Float(figures.last)),
                    Figure::Min => figures.min.map(Value::Float),
                    Figure::Max => figures.max.map(Value::Float),
                    Figure::Count => Some(Value::Int(i64::try_from(figures.count).unwrap_or(i64::MAX))),
                }
            }
            Field::Parent(inner) => {
                let parent = RunRow { run: self.parent?, parent: None, metrics: self.metrics, now: self.now };
                parent.value(inner)
            }
        }
    }

    fn is_present(&self, field: &Field) -> bool {
        match field {
            Field::Param(path) => self.param(path).is_some_and(|value| !matches!(value, ParamValue::Null(()))),
            field => self.value(field).is_some(),
        }
    }

    fn now(&self) -> Timestamp {
        self.now
    }
}

impl<M: Metrics> RunRow<'_, M> {
    fn param(&self, path: &[String]) -> Option<&ParamValue> {
        let (key, rest) = path.split_first()?;
        let (_, param) = self.run.params.iter().find(|(known, _)| known.as_str() == key)?;
        rest.iter().try_fold(&param.value, |value, step| match value {
            ParamValue::Map(values) => values.get(step),
            ParamValue::List(values) => values.get(step.parse::<usize>().ok()?),
            _ => None,
        })
    }

    fn own(&self, own: Own) -> Option<Value> {
        let run = self.run;
        let text = |text: &str| (!text.is_empty()).then(|| Value::Text(text.to_owned()));
        let count = |count: usize| Some(Value::Int(i64::try_from(count).unwrap_or(i64::MAX)));
        match own {
            Own::Id => text(&run.id.to_string()),
            Own::Name => run.name.as_ref().and_then(|name| text(name.as_str())),
            Own::Experiment => run.experiment_name.as_ref().and_then(|name| text(name.as_str())),
            Own::State => text(run.status.as_str()),
            Own::Outcome => run.ended.as_ref().and_then(|ended| text(outcome_text(ended.outcome))),
            Own::Cause => run.ended.as_ref().and_then(|ended| ended.cause).and_then(|cause| text(cause_text(cause))),
            Own::Created => Some(Value::Time(run.created_at)),
            Own::Started => run.started_at.map(Value::Time),
            Own::Ended => run.ended.as_ref().map(|ended| Value::Time(ended.at)),
            Own::Sealed => run.seal.as_ref().map(|seal| Value::Time(seal.at)),
            Own::Duration => run.started_at.map(|_| Value::Span(run.duration_ms(self.now))),
            Own::Silent => {
                let since = run.running_since.filter(|_| matches!(run.status, Status::Running | Status::Stopping))?;
                let last = self.metrics.last_metric_at(run).map_or(since, |last| last.max(since));
                Some(Value::Span(self.now.millis_since(last)))
            }
            Own::Attempts => count(run.attempts.len()),
            Own::Artifacts => count(run.artifacts.len()),
            Own::Queue => run.queue.as_ref().and_then(|queue| text(queue.as_str())),
            Own::Priority => run.has_job().then(|| Value::Int(run.priority.into())),
            Own::User => text(&run.created_by),
            Own::Waiting => text(&run.waiting),
            Own::Message => run.ended.as_ref().and_then(|ended| text(&ended.message)),
            Own::Hypothesis => text(&run.hypothesis),
            Own::Conclusion => text(&run.conclusion),
            Own::Note => text(&run.note),
            Own::Commit => run.source.as_ref().and_then(|source| text(&source.commit)),
            Own::Branch => run.source.as_ref().and_then(|source| text(&source.branch)),
            Own::Dirty => run.source.as_ref().map(|source| Value::Bool(source.dirty)),
            Own::Tree => run.source.as_ref().and_then(|source| text(&source.tree.to_string())),
            Own::Complete => run.seal.as_ref().map(|seal| Value::Bool(seal.fact.complete)),
            Own::Late => run.seal.as_ref().map(|_| Value::Int(i64::try_from(run.late).unwrap_or(i64::MAX))),
            Own::RerunOf => run.rerun_of.and_then(|run| text(&run.to_string())),
            Own::HasJob => Some(Value::Bool(run.has_job())),
        }
    }
}

/// The word of a cause.
pub const fn cause_text(cause: Cause) -> &'static str {
    match cause {
        Cause::Success => "success",
        Cause::UserCode => "user_code",
        Cause::Retryable => "retryable",
        Cause::OutOfMemory => "out_of_memory",
        Cause::Cancelled => "cancelled",
        Cause::Preempted => "preempted",
        Cause::Drained => "drained",
        Cause::Lost => "lost",
        Cause::Infrastructure => "infrastructure",
        Cause::TimedOut => "timed_out",
        Cause::PendingTooLong => "pending_too_long",
        Cause::Void => "void",
        Cause::Dependency => "dependency",
        Cause::DeadlineMissed => "deadline_missed",
    }
}

/// Whether a row matches: what cannot be said is no match.
pub fn matches(filter: &Filter, row: &impl Row) -> bool {
    evaluate(filter, row) == Some(true)
}

fn evaluate(filter: &Filter, row: &impl Row) -> Option<bool> {
    match filter {
        Filter::All => Some(true),
        Filter::Compare(field, comparison, literal) => {
            let value = compared(field, literal, row)?;
            Some(holds(*comparison, order(field, &value, literal, row.now())))
        }
        Filter::In(field, literals) => {
            row.value(field)?;
            let is = |literal| {
                compared(field, literal, row).is_some_and(|value| order(field, &value, literal, row.now()) == Some(Ordering::Equal))
            };
            Some(literals.iter().any(is))
        }
        Filter::Like { field, pattern, any_case } => match row.value(field)? {
            Value::Text(text) => Some(like(&text, pattern, *any_case)),
            _ => Some(false),
        },
        Filter::IsNull(field) => Some(!row.is_present(field)),
        Filter::Not(inner) => evaluate(inner, row).map(|is| !is),
        Filter::And(parts) => all(parts, row),
        Filter::Or(parts) => any(parts, row),
    }
}

/// What a literal is compared with: the field's value, except that a state compared with the word of an outcome is how the run ended, which
/// is what people are shown as its state.
fn compared(field: &Field, literal: &Literal, row: &impl Row) -> Option<Value> {
    let value = row.value(field)?;
    let ended = if OUTCOMES.contains(&literal.text()) { field.outcome_of_state().and_then(|outcome| row.value(&outcome)) } else { None };
    Some(ended.unwrap_or(value))
}

fn all(parts: &[Filter], row: &impl Row) -> Option<bool> {
    let mut unsaid = false;
    for part in parts {
        match evaluate(part, row) {
            Some(false) => return Some(false),
            Some(true) => {}
            None => unsaid = true,
        }
    }
    if unsaid { None } else { Some(true) }
}

fn any(parts: &[Filter], row: &impl Row) -> Option<bool> {
    let mut unsaid = false;
    for part in parts {
        match evaluate(part, row) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => unsaid = true,
        }
    }
    if unsaid { None } else { Some(false) }
}

fn order(field: &Field, value: &Value, literal: &Literal, now: Timestamp) -> Option<Ordering> {
    let is_param = matches!(field, Field::Param(_)) || matches!(field, Field::Parent(inner) if matches!(**inner, Field::Param(_)));
    if is_param { value.compare_param(literal, now) } else { value.compare(literal, now) }
}

/// Values of different types are unequal and have no order.
fn holds(comparison: Comparison, order: Option<Ordering>) -> bool {
    match (comparison, order) {
        (Comparison::Ne, None) => true,
        (_, None) => false,
        (Comparison::Eq, Some(order)) => order.is_eq(),
        (Comparison::Ne, Some(order)) => order.is_ne(),
        (Comparison::Lt, Some(order)) => order.is_lt(),
        (Comparison::Le, Some(order)) => order.is_le(),
        (Comparison::Gt, Some(order)) => order.is_gt(),
        (Comparison::Ge, Some(order)) => order.is_ge(),
    }
}
