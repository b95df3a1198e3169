//! The sweep file: what is searched, over which space, and the job of a trial.
//!
//! It is read here and checked whole by the sweep service, which names the same fields. Every fault of its form is told at once.

use crate::jobfile::{self, API_VERSION, Problem, Problems, Resolved};
use footplate_api::{types, v1};
use footplate_types::ProjectName;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::num::NonZeroU32;
use std::path::Path;

/// The keys of a sweep file.
const KEYS: &str = "apiVersion, kind, name, project, metric, direction, take, sampler, seed, trials, parallel, rungs, pruner, space, job";

/// What a sweep file says but for its space and its job.
#[derive(Clone, Debug)]
struct Head {
    name: String,
    project: Option<ProjectName>,
    metric: String,
    direction: String,
    take: String,
    sampler: String,
    seed: u64,
    /// 0: as the service has it.
    parallel: u32,
    trials: Option<u32>,
    rungs: Vec<i64>,
    pruner: PrunerSection,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PrunerSection {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    startup: Option<NonZeroU32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ParameterSection {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    low: Option<Value>,
    #[serde(default)]
    high: Option<Value>,
    #[serde(default)]
    step: Option<Value>,
    #[serde(default)]
    log: bool,
    #[serde(default)]
    choices: Option<Vec<Value>>,
    #[serde(default)]
    when: Map<String, Value>,
}

/// A sweep file, read.
#[derive(Clone, Debug)]
pub struct SweepFile {
    /// The tenant that it names.
    pub project: Option<ProjectName>,
    /// The job of a trial.
    pub job: Resolved,
    head: Head,
    space: Vec<v1::SweepParameter>,
}

impl SweepFile {
    /// What is asked, with the job as it is stored.
    pub fn spec(&self, job: types::JobSpec) -> v1::SweepSpec {
        let head = self.head.clone();
        v1::SweepSpec {
            name: head.name,
            space: self.space.clone(),
            metric: head.metric,
            direction: head.direction,
            take: head.take,
            sampler: head.sampler,
            pruner: head.pruner.kind,
            pruner_startup: head.pruner.startup.map_or(0, NonZeroU32::get),
            rungs: head.rungs,
            seed: head.seed,
            parallel: head.parallel,
            trials: head.trials,
            job: Some(job),
        }
    }
}

/// Reads a sweep file; `sets` change its job.
///
/// # Errors
/// Every fault of its form, each with its place.
pub fn load(path: &Path, sets: &[String]) -> Result<SweepFile, Problems> {
    let shown = path.display().to_string();
    let Value::Object(document) = jobfile::read_file(path)? else {
        return Err(Problem::new(shown, "is no sweep: it is not a mapping of keys to values").into());
    };
    read(document, path.parent().unwrap_or(Path::new("")), sets)
}

/// Takes keys out of a document one by one, so that each fault is told with its own place.
struct Keys {
    document: Map<String, Value>,
    problems: Problems,
}

impl Keys {
    fn optional<T: DeserializeOwned>(&mut self, key: &str) -> Option<T> {
        let value = self.document.shift_remove(key).filter(|value| !value.is_null())?;
        match serde_json::from_value(value.clone()) {
            Ok(read) => Some(read),
            Err(error) => {
                self.problems.add(key, format!("{value} is not allowed: {error}"));
                None
            }
        }
    }

    fn required<T: DeserializeOwned + Default>(&mut self, key: &str) -> T {
        if !self.document.contains_key(key) {
            self.problems.add(key, "is required");
        }
        self.optional(key).unwrap_or_default()
    }

    /// A key that says one thing only.
    fn fixed(&mut self, key: &str, word: &str) {
        match self.document.shift_remove(key) {
            Some(value) if value == word => {}
            Some(value) => self.problems.add(key, format!("{value} is not `{word}`")),
            None => self.problems.add(key, format!("is required; write `{key}: {word}`")),
        }
    }

    fn head(&mut self) -> Head {
        self.fixed("apiVersion", API_VERSION);
        self.fixed("kind", "Sweep");
        let head = Head {
            name: self.required("name"),
            project: self.optional("project"),
            metric: self.required("metric"),
            direction: self.required("direction"),
            take: self.optional("take").unwrap_or_default(),
            sampler: self.required("sampler"),
            seed: self.optional("seed").unwrap_or_default(),
            parallel: self.optional("parallel").map_or(0, NonZeroU32::get),
            trials: self.optional("trials"),
            rungs: self.optional("rungs").unwrap_or_default(),
            pruner: self.optional("pruner").unwrap_or_default(),
        };
        for key in self.document.keys() {
            self.problems.add(key, format!("no such key; known here: {KEYS}"));
        }
        head
    }
}

fn read(mut document: Map<String, Value>, folder: &Path, sets: &[String]) -> Result<SweepFile, Problems> {
    let space = document.shift_remove("space");
    let job = document.shift_remove("job");
    let mut keys = Keys { document, problems: Problems::default() };
    let head = keys.head();
    let mut problems = keys.problems;
    let mut parameters = Vec::new();
    match space {
        Some(Value::Object(space)) => {
            for (name, value) in space {
                match parameter(&name, value) {
                    Ok(parameter) => parameters.push(parameter),
                    Err(problem) => problems.0.push(problem),
                }
            }
        }
        _ => problems.add("space", "takes params by name, each with its values"),
    }
    let job = match job {
        Some(Value::String(file)) => jobfile::load(&folder.join(file), sets),
        Some(Value::Object(mut job)) => {
            for (key, value) in [("apiVersion", API_VERSION), ("kind", "Job"), ("name", head.name.as_str())] {
                job.entry(key).or_insert_with(|| Value::from(value));
            }
            jobfile::resolve(job, sets)
        }
        _ => Err(Problem::new("", "takes the job of a trial: the name of a job file, or its keys").into()),
    };
    let job = match job {
        Ok(job) if job.file.array.is_some() => {
            Err(Problem::new("array", "the trials of a sweep are no array; submit one with `footplate submit`").into())
        }
        other => other,
    };
    match job {
        Ok(job) if problems.0.is_empty() => {
            let project = head.project.clone().or_else(|| job.file.project.clone());
            Ok(SweepFile { project, job, head, space: parameters })
        }
        Ok(_) => Err(problems),
        Err(of_job) => {
            let within = |problem: Problem| {
                let place = if problem.place.is_empty() { "job".to_owned() } else { format!("job: {}", problem.place) };
                Problem::new(place, problem.message)
            };
            problems.0.extend(of_job.0.into_iter().map(within));
            Err(problems)
        }
    }
}

fn parameter(name: &str, value: Value) -> Result<v1::SweepParameter, Problem> {
    use v1::sweep_parameter::Domain;
    let place = format!("space.{name}");
    let section: ParameterSection = serde_json::from_value(value).map_err(|error| Problem::new(&place, error.to_string()))?;
    let kind = match (section.kind.as_deref(), &section.choices) {
        (None, Some(_)) => "categorical",
        (Some(kind), _) => kind,
        (None, None) => return Err(Problem::new(place, "takes `type: float` or `type: int` with `low` and `high`, or `choices`")),
    };
    let domain = match kind {
        "float" | "int" if section.choices.is_some() => return Err(Problem::new(place, format!("takes no `choices` with `type: {kind}`"))),
        "float" => Domain::Float(v1::FloatDomain {
            low: float(&place, "low", section.low.as_ref())?,
            high: float(&place, "high", section.high.as_ref())?,
            log: section.log,
            step: section.step.as_ref().map(|step| float(&place, "step", Some(step))).transpose()?,
        }),
        "int" => Domain::Int(v1::IntDomain {
            low: whole(&place, "low", section.low.as_ref())?,
            high: whole(&place, "high", section.high.as_ref())?,
            log: section.log,
            step: section.step.as_ref().map(|step| whole(&place, "step", Some(step))).transpose()?,
        }),
        "categorical" => {
            if section.low.is_some() || section.high.is_some() || section.step.is_some() || section.log {
                return Err(Problem::new(place, "takes `choices` alone: `low`, `high`, `step` and `log` are for numbers"));
            }
            let choices = section.choices.ok_or_else(|| Problem::new(&place, "takes `choices`"))?;
            Domain::Categorical(v1::CategoricalDomain { choices: choices.iter().map(ToString::to_string).collect() })
        }
        other => return Err(Problem::new(format!("{place}.type"), format!("{other:?} is not allowed; float, int or categorical"))),
    };
    let condition = |(parameter, one_of): (String, Value)| {
        let one_of = match one_of {
            Value::Array(values) => values,
            value => vec![value],
        };
        v1::SweepCondition { parameter, one_of: one_of.iter().map(ToString::to_string).collect() }
    };
    Ok(v1::SweepParameter { name: name.to_owned(), when: section.when.into_iter().map(condition).collect(), domain: Some(domain) })
}

fn float(place: &str, key: &str, value: Option<&Value>) -> Result<f64, Problem> {
    let number = value.and_then(Value::as_f64);
    number.ok_or_else(|| Problem::new(format!("{place}.{key}"), told(value, "a number")))
}

fn whole(place: &str, key: &str, value: Option<&Value>) -> Result<i64, Problem> {
    let number = value.and_then(Value::as_i64);
    number.ok_or_else(|| Problem::new(format!("{place}.{key}"), told(value, "a whole number")))
}

fn told(value: Option<&Value>, wanted: &str) -> String {
    value.map_or_else(|| format!("is missing; it takes {wanted}"), |value| format!("{value} is not allowed; it takes {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document(space: Value) -> Map<String, Value> {
        let document = json!({
            "apiVersion": "footplate/v1", "kind": "Sweep", "name": "digits", "metric": "val/loss", "direction": "minimize",
            "sampler": "random", "trials": 8, "space": space, "job": {"run": "python t.py"},
        });
        document.as_object().unwrap().clone()
    }

    #[test]
    fn a_space_is_read_in_its_order_with_its_conditions() {
        let space = json!({
            "opt.lr": {"type": "float", "low": 1e-4, "high": 1, "log": true},
            "layers": {"type": "int", "low": 1, "high": 9, "step": 2},
            "opt.name": {"choices": ["sgd", 3, true]},
            "momentum": {"type": "float", "low": 0, "high": 0.9, "when": {"opt.name": "sgd"}},
        });
        let file = read(document(space), Path::new(""), &["config.epochs=3".to_owned()]).unwrap();
        let spec = file.spec(types::JobSpec::default());
        let names: Vec<&str> = spec.space.iter().map(|parameter| parameter.name.as_str()).collect();
        assert_eq!(names, ["opt.lr", "layers", "opt.name", "momentum"]);
        assert_eq!(spec.space[3].when[0].one_of, ["\"sgd\""]);
        assert_eq!((spec.parallel, spec.trials, spec.pruner.as_str()), (0, Some(8), ""));
        assert_eq!((file.job.file.name.as_str(), &file.job.document["config"]["epochs"]), ("digits", &json!(3)));
    }

    #[test]
    fn every_fault_is_told_with_its_place() {
        let space = json!({
            "a": {"type": "float", "low": "x", "high": 1}, "b": {"type": "int", "low": 1.5, "high": 2}, "c": {}, "d": {"type": "words"},
            "e": {"choices": [1], "low": 2}, "f": {"choices": [1], "colour": 2},
        });
        let mut wrong = document(space);
        wrong.insert("kind".to_owned(), json!("Job"));
        wrong.insert("job".to_owned(), json!({"run": "", "colour": 1}));
        wrong.insert("parallel".to_owned(), json!(0));
        wrong.insert("pruner".to_owned(), json!({"type": "median", "startup": 0}));
        wrong.insert("rungs".to_owned(), json!("all"));
        wrong.insert("colour".to_owned(), json!(1));
        wrong.shift_remove("metric");
        let problems = read(wrong, Path::new(""), &[]).unwrap_err();
        let text = problems.to_string();
        for place in [
            "kind",
            "metric",
            "parallel",
            "pruner",
            "rungs",
            "colour",
            "space.a.low",
            "space.b.low",
            "space.c",
            "space.d.type",
            "space.e",
            "space.f",
            "job",
        ] {
            assert!(problems.0.iter().any(|problem| problem.place.starts_with(place)), "{place} in {text}");
        }
    }
}
