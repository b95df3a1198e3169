//! What a gate asks, as the command line says it: each condition belongs to the `--metric` before it; with one metric the order is free.

use super::verdict::{Side, Wanted};
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, ValueEnum, value_parser};
use footplate_api::{ApiError, Refusal, refusal::reason};
use footplate_registry_server::{ModelUri, Reference};
use footplate_types::{Invalid, MetricName};
use std::fmt;

/// The heading of these flags in the help.
const HEADING: &str = "Conditions, of the --metric before them";

/// Which value of a series counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Of {
    /// The last one.
    Last,
    /// The best one of all attempts, by --direction.
    Best,
}

impl Of {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Best => "best",
        }
    }
}

/// Which values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    /// Higher ones.
    Maximize,
    /// Lower ones.
    Minimize,
}

impl Direction {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Maximize => "maximize",
            Self::Minimize => "minimize",
        }
    }

    fn side(self) -> Side {
        match self {
            Self::Maximize => Side::AtLeast,
            Self::Minimize => Side::AtMost,
        }
    }
}

/// What a run is compared with: another run, or the run of a model's version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// A run by its id or a unique prefix of it.
    Run(String),
    /// A version of a model.
    Model(ModelUri),
}

impl Baseline {
    fn parse(text: &str) -> Result<Self, Invalid> {
        const ALLOWED: &str = "a run's id or a unique prefix of it, models:/MODEL@ALIAS, models:/MODEL/NUMBER, models:/MODEL/STAGE";
        if Reference::is_meant_by(text) {
            return match Reference::parse(text)? {
                Reference::Model(uri) => Ok(Self::Model(uri)),
                Reference::Run(_) => Err(Invalid::new("--baseline", text, ALLOWED)),
            };
        }
        let bare = text.strip_prefix("run:").unwrap_or(text);
        let is_id = (1..=32).contains(&bare.len()) && bare.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_id { Ok(Self::Run(bare.to_ascii_lowercase())) } else { Err(Invalid::new("--baseline", text, ALLOWED)) }
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(id) => f.write_str(id),
            Self::Model(uri) => uri.fmt(f),
        }
    }
}

fn finite(text: &str) -> Result<f64, Invalid> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| Invalid::new("number", text, "a finite number, such as 0.93 or 1e-3"))
}

/// One flag with its value.
#[derive(Clone, Debug, PartialEq)]
enum Word {
    Metric(MetricName),
    Min(f64),
    Max(f64),
    Baseline(Baseline),
    Margin(f64),
    Direction(Direction),
    Of(Of),
}

/// Every condition of the command line, in the order given.
#[derive(Clone, Debug)]
pub struct Conditions {
    words: Vec<Word>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The metric.
    pub metric: MetricName,
    /// Which of its values.
    pub of: Of,
    /// Which values are better, where that was said.
    pub direction: Option<Direction>,
    /// What is wanted.
    pub bound: Bound,
}

/// What is wanted of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Bound {
    /// A number, known already.
    Number(Wanted),
    /// What a baseline has, give or take a margin.
    Baseline {
        /// Which.
        baseline: Baseline,
        /// On which side of it.
        side: Side,
        /// How much worse it may be.
        margin: f64,
    },
}

impl clap::Args for Conditions {
    fn augment_args(command: Command) -> Command {
        let flag = |name: &'static str, value: &'static str, help: &'static str| {
            Arg::new(name).long(name).value_name(value).help(help).help_heading(HEADING).action(ArgAction::Append)
        };
        let number = |name, help| flag(name, "NUMBER", help).allow_hyphen_values(true).value_parser(finite);
        command.args([
            flag("metric", "NAME", "Metric; may be given many times").help_heading(None).required(true).value_parser(MetricName::parse),
            number("min", "It is at least this"),
            number("max", "It is at most this"),
            flag("baseline", "RUN", "It is not worse than that of this run, or of the run of models:/MODEL@ALIAS; may be given many times")
                .value_parser(Baseline::parse),
            number("margin", "How much worse than the baseline's it may be; below 0: how much better it has to be [default: 0]"),
            flag("direction", "DIRECTION", "Which values are better; needed with --baseline and --of best")
                .value_parser(value_parser!(Direction)),
            flag("of", "WHICH", "Which value counts, of the run and of its baselines [default: last]").value_parser(value_parser!(Of)),
        ])
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Conditions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut placed = Vec::new();
        place(matches, "metric", Word::Metric, &mut placed);
        place(matches, "min", Word::Min, &mut placed);
        place(matches, "max", Word::Max, &mut placed);
        place(matches, "baseline", Word::Baseline, &mut placed);
        place(matches, "margin", Word::Margin, &mut placed);
        place(matches, "direction", Word::Direction, &mut placed);
        place(matches, "of", Word::Of, &mut placed);
        placed.sort_by_key(|(at, _)| *at);
        Ok(Self { words: placed.into_iter().map(|(_, word)| word).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Adds the values of one flag, each with its place on the command line.
fn place<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, flag: &str, word: fn(T) -> Word, placed: &mut Vec<(usize, Word)>) {
    let places = matches.indices_of(flag).into_iter().flatten();
    let values = matches.get_many::<T>(flag).into_iter().flatten().cloned();
    placed.extend(places.zip(values.map(word)));
}

/// What was said of one metric.
#[derive(Debug, Default)]
struct Said {
    min: Option<f64>,
    max: Option<f64>,
    baselines: Vec<Baseline>,
    margin: Option<f64>,
    direction: Option<Direction>,
    of: Option<Of>,
}

impl Said {
    fn take(&mut self, word: Word) -> Result<(), ApiError> {
        match word {
            Word::Metric(_) => Ok(()),
            Word::Min(number) => once("--min", &mut self.min, number, number),
            Word::Max(number) => once("--max", &mut self.max, number, number),
            Word::Margin(number) => once("--margin", &mut self.margin, number, number),
            Word::Direction(direction) => once("--direction", &mut self.direction, direction, direction.word()),
            Word::Of(of) => once("--of", &mut self.of, of, of.word()),
            Word::Baseline(baseline) => {
                self.baselines.push(baseline);
                Ok(())
            }
        }
    }

    fn conditions(self, metric: &MetricName) -> Result<Vec<Condition>, ApiError> {
        let of = self.of.unwrap_or(Of::Last);
        if let (Some(margin), true) = (self.margin, self.baselines.is_empty()) {
            return Err(wrong("--margin", margin, "together with a --baseline of the same metric"));
        }
        if self.direction.is_none() && (of == Of::Best || !self.baselines.is_empty()) {
            let message = format!("--direction: it was not said which values of {metric} are better; allowed: maximize, minimize");
            return Err(missing("--direction", message, "maximize, minimize", "give --direction maximize where higher values are better"));
        }
        let number = |side, limit| Bound::Number(Wanted { side, limit, margin: 0.0 });
        let mut bounds = Vec::new();
        bounds.extend(self.min.map(|limit| number(Side::AtLeast, limit)));
        bounds.extend(self.max.map(|limit| number(Side::AtMost, limit)));
        if let Some(direction) = self.direction {
            let margin = self.margin.unwrap_or_default();
            bounds.extend(self.baselines.into_iter().map(|baseline| Bound::Baseline { baseline, side: direction.side(), margin }));
        }
        if bounds.is_empty() {
            let message = format!("--metric: {:?} has no condition; allowed: --min, --max or --baseline with it", metric.as_str());
            return Err(missing("--metric", message, "--min, --max, --baseline", "say what is wanted of it, such as --min 0.93"));
        }
        Ok(bounds.into_iter().map(|bound| Condition { metric: metric.clone(), of, direction: self.direction, bound }).collect())
    }
}

fn once<T>(flag: &str, place: &mut Option<T>, value: T, shown: impl fmt::Display) -> Result<(), ApiError> {
    if place.replace(value).is_some() {
        return Err(wrong(flag, shown, "once for each --metric"));
    }
    Ok(())
}

fn wrong(flag: &str, value: impl fmt::Display, allowed: &str) -> ApiError {
    let invalid = Invalid::new(flag, value, allowed);
    Refusal::new(&reason::INVALID_FIELD, invalid.to_string()).field(flag).value(&invalid.value).allowed(allowed).into()
}

fn missing(flag: &str, message: String, allowed: &str, next: &str) -> ApiError {
    Refusal::new(&reason::MISSING_FIELD, message).field(flag).value("").allowed(allowed).next(next).into()
}

impl Conditions {
    /// Every condition by itself.
    ///
    /// # Errors
    /// What was said does not fit together.
    pub fn each(self) -> Result<Vec<Condition>, ApiError> {
        let metrics = self.words.iter().filter(|word| matches!(word, Word::Metric(_))).count();
        let mut said: Vec<(MetricName, Said)> = Vec::new();
        let mut early = Said::default();
        for word in self.words {
            match (word, said.last_mut()) {
                (Word::Metric(metric), None) => said.push((metric, std::mem::take(&mut early))),
                (Word::Metric(metric), Some(_)) => said.push((metric, Said::default())),
                (word, None) if metrics <= 1 => early.take(word)?,
                (word, None) => {
                    return Err(wrong(word.flag(), word.value(), "after the --metric that it belongs to, where there are several"));
                }
                (word, Some((_, said))) => said.take(word)?,
            }
        }
        let mut conditions = Vec::new();
        for (metric, said) in said {
            conditions.extend(said.conditions(&metric)?);
        }
        Ok(conditions)
    }
}

impl Word {
    fn flag(&self) -> &'static str {
        match self {
            Self::Metric(_) => "--metric",
            Self::Min(_) => "--min",
            Self::Max(_) => "--max",
            Self::Baseline(_) => "--baseline",
            Self::Margin(_) => "--margin",
            Self::Direction(_) => "--direction",
            Self::Of(_) => "--of",
        }
    }

    fn value(&self) -> String {
        match self {
            Self::Metric(name) => name.to_string(),
            Self::Min(number) | Self::Max(number) | Self::Margin(number) => number.to_string(),
            Self::Baseline(baseline) => baseline.to_string(),
            Self::Direction(direction) => direction.word().to_owned(),
            Self::Of(of) => of.word().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args as _;

    fn conditions(line: &str) -> Result<Vec<Condition>, ApiError> {
        let command = Conditions::augment_args(Command::new("gate"));
        let matches = command.try_get_matches_from(std::iter::once("gate").chain(line.split_whitespace())).unwrap();
        Conditions::from_arg_matches(&matches).unwrap().each()
    }

    fn shown(line: &str) -> Vec<String> {
        let show = |condition: Condition| match condition.bound {
            Bound::Number(wanted) => format!("{} {} {wanted}", condition.of.word(), condition.metric),
            Bound::Baseline { baseline, side, margin } => {
                format!("{} {} {side:?} {baseline} {margin}", condition.of.word(), condition.metric)
            }
        };
        conditions(line).unwrap().into_iter().map(show).collect()
    }

    #[test]
    fn each_condition_belongs_to_the_metric_before_it_and_with_one_metric_the_order_is_free() {
        assert_eq!(shown("--min 0.9 --metric acc --max 1"), ["last acc >= 0.9", "last acc <= 1"]);
        // As Python prints them.
        assert_eq!(shown("--metric acc --min -2.5e-05 --max -.5e-6"), ["last acc >= -0.000025", "last acc <= -0.0000005"]);
        let line = "--metric acc --baseline models:/m@champion --baseline AB12 --direction maximize --margin -0.01 --metric loss --of best --max 3e-1 --direction minimize";
        assert_eq!(shown(line), ["last acc AtLeast models:/m@champion -0.01", "last acc AtLeast ab12 -0.01", "best loss <= 0.3"]);
    }

    #[test]
    fn what_does_not_fit_together_is_refused_with_field_value_and_what_is_allowed() {
        for (line, reason, field, value) in [
            ("--metric acc", "MISSING_FIELD", "--metric", ""),
            ("--metric acc --baseline ab", "MISSING_FIELD", "--direction", ""),
            ("--metric acc --min 1 --of best", "MISSING_FIELD", "--direction", ""),
            ("--metric acc --min 1 --min 2", "INVALID_FIELD", "--min", "2"),
            ("--metric acc --min 1 --margin 0.1", "INVALID_FIELD", "--margin", "0.1"),
            ("--min 1 --metric acc --metric loss --max 2", "INVALID_FIELD", "--min", "1"),
        ] {
            let error = conditions(line).unwrap_err();
            assert_eq!(
                (error.reason.as_str(), error.field.as_deref(), error.value.as_deref()),
                (reason, Some(field), Some(value)),
                "{line}"
            );
            assert!(error.allowed.is_some() && error.advice.is_some(), "{line}");
            assert_eq!(error.exit(), footplate_service::Exit::Usage);
        }
    }

    #[test]
    fn what_is_no_number_no_run_and_no_version_is_refused() {
        for text in ["nan", "inf", "x", ""] {
            assert!(finite(text).is_err(), "{text}");
        }
        for text in ["", "xyz", "runs:/ab/model.bin", "models:/m", "0123456789abcdef0123456789abcdef0"] {
            assert!(Baseline::parse(text).is_err(), "{text}");
        }
        assert_eq!(Baseline::parse("run:AB").unwrap(), Baseline::Run("ab".to_owned()));
    }
}
