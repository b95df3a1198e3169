//! The pipeline file: jobs by name that come after each other, and what they have in common.
//!
//! Each is a job of its own; the scheduler checks them together. Every fault of the file's form is told at once.

use crate::jobfile::{self, API_VERSION, Problem, Problems, Resolved};
use footplate_types::{DisplayName, ProjectName};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::path::Path;

/// The label (and so the run's tag) that names a run's pipeline, unless the file sets it.
pub const PIPELINE_LABEL: &str = "pipeline";
/// The keys of a pipeline file.
const KEYS: &str = "apiVersion, kind, name, project, job, jobs";

/// A pipeline file, read.
#[derive(Clone, Debug)]
pub struct PipelineFile {
    /// The tenant that it names.
    pub project: Option<ProjectName>,
    /// Its jobs, as they are written: what each is called, and what it is.
    pub jobs: Vec<(String, Resolved)>,
}

/// Reads a pipeline file; `sets` change it (`jobs.train.config.lr=0.1`).
///
/// # Errors
/// Every fault of its form, each with its place.
pub fn load(path: &Path, sets: &[String]) -> Result<PipelineFile, Problems> {
    let Value::Object(mut document) = jobfile::read_file(path)? else {
        return Err(Problem::new(path.display().to_string(), "is no pipeline: it is not a mapping of keys to values").into());
    };
    let faults: Vec<Problem> = sets.iter().filter_map(|set| jobfile::set(&mut document, set).err()).collect();
    if !faults.is_empty() {
        return Err(Problems(faults));
    }
    read(document, path.parent().unwrap_or(Path::new("")))
}

fn taken<T: DeserializeOwned>(document: &mut Map<String, Value>, key: &str, problems: &mut Problems) -> Option<T> {
    let value = document.shift_remove(key).filter(|value| !value.is_null())?;
    let read = serde_json::from_value(value.clone());
    read.map_err(|error| problems.add(key, format!("{value} is not allowed: {error}"))).ok()
}

fn read(mut document: Map<String, Value>, folder: &Path) -> Result<PipelineFile, Problems> {
    let mut problems = Problems::default();
    for (key, word) in [("apiVersion", API_VERSION), ("kind", "Pipeline")] {
        match document.shift_remove(key) {
            Some(value) if value == word => {}
            Some(value) if value == "Job" => problems.add(key, "a job file is for `footplate submit`"),
            Some(value) => problems.add(key, format!("{value} is not `{word}`")),
            None => problems.add(key, format!("is required; write `{key}: {word}`")),
        }
    }
    if !document.contains_key("name") {
        problems.add("name", "is required");
    }
    let name: Option<DisplayName> = taken(&mut document, "name", &mut problems);
    let project: Option<ProjectName> = taken(&mut document, "project", &mut problems);
    let common = document.shift_remove("job").filter(|value| !value.is_null());
    let common = common.map_or_else(|| Ok(Map::new()), |value| keys_of(value, folder)).unwrap_or_else(|problem| {
        problems.0.push(within("job", problem));
        Map::new()
    });
    let jobs = match document.shift_remove("jobs") {
        Some(Value::Object(jobs)) if !jobs.is_empty() => jobs,
        _ => {
            problems.add("jobs", "takes jobs by name, each the keys of a job file or the name of one");
            Map::new()
        }
    };
    for key in document.keys() {
        problems.add(key, format!("no such key; known here: {KEYS}"));
    }
    let pipeline = name.map(|name| name.to_string()).unwrap_or_default();
    let mut read = Vec::with_capacity(jobs.len());
    for (name, value) in jobs {
        let place = format!("jobs.{name}");
        match keys_of(value, folder).map_err(Problems::from).and_then(|own| job(&name, &pipeline, &common, own)) {
            Ok(job) if job.file.project.is_some() => {
                problems.add(format!("{place}.project"), "stands above the jobs: a pipeline is of one project");
            }
            Ok(job) if job.file.array.is_some() => {
                problems.add(format!("{place}.array"), "an array stands in no pipeline; submit it alone with `footplate submit`");
            }
            Ok(job) => read.push((name, job)),
            Err(faults) => problems.0.extend(faults.0.into_iter().map(|problem| within(&place, problem))),
        }
    }
    if problems.0.is_empty() { Ok(PipelineFile { project, jobs: read }) } else { Err(problems) }
}

/// The keys of a job, written out or in a file of their own, with what they extend.
fn keys_of(value: Value, folder: &Path) -> Result<Map<String, Value>, Problem> {
    match value {
        Value::String(file) => jobfile::document(&folder.join(file)),
        Value::Object(keys) => jobfile::extended(keys, folder),
        other => Err(Problem::new("", format!("{other} is neither the keys of a job file nor the name of one"))),
    }
}

fn within(place: &str, problem: Problem) -> Problem {
    let place = if problem.place.is_empty() { place.to_owned() } else { format!("{place}.{}", problem.place) };
    Problem::new(place, problem.message)
}

/// A job: its own keys over the common ones, named after its key and labelled with the pipeline where it says nothing else.
fn job(name: &str, pipeline: &str, common: &Map<String, Value>, own: Map<String, Value>) -> Result<Resolved, Problems> {
    let mut document = common.clone();
    jobfile::deep_merge(&mut document, own);
    for (key, value) in [("apiVersion", API_VERSION), ("kind", "Job"), ("name", name)] {
        document.entry(key).or_insert_with(|| Value::from(value));
    }
    let labels = document.entry("labels").or_insert(Value::Null);
    if labels.is_null() {
        *labels = Value::Object(Map::new());
    }
    if let Value::Object(labels) = labels {
        labels.entry(PIPELINE_LABEL).or_insert_with(|| Value::from(pipeline));
    }
    jobfile::resolve(document, &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobfile::{AfterEnd, Run};

    const FILE: &str = "
apiVersion: footplate/v1
kind: Pipeline
name: digits
job:
  resources: {slots: 1}
  config: {lr: 0.1}
jobs:
  prepare:
    run: python prepare.py
  train:
    after: prepare
    run: [python, train.py]
    config: {lr: 0.2}
  alarm:
    after: [{run: train, when: failure}, prepare:any]
    name: call somebody
    labels: {pipeline: other}
    run: ./alarm.sh
";

    fn load_text(text: &str, sets: &[&str]) -> Result<PipelineFile, Problems> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipeline.yaml");
        std::fs::write(folder.path().join("train.yaml"), "apiVersion: footplate/v1\nkind: Job\nname: trained\nrun: 'true'\n").unwrap();
        std::fs::write(&path, text).unwrap();
        load(&path, &sets.iter().map(|set| (*set).to_owned()).collect::<Vec<_>>())
    }

    fn faults(text: &str) -> Vec<String> {
        load_text(text, &[]).unwrap_err().0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn jobs_have_what_they_have_in_common_and_their_own_over_it() {
        let file = load_text(FILE, &["jobs.train.config.steps=3", "job.queue=night"]).unwrap();
        let names: Vec<&str> = file.jobs.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["prepare", "train", "alarm"]);
        let [prepare, train, alarm] = [0, 1, 2].map(|at| &file.jobs[at].1.file);
        assert_eq!((prepare.name.as_str(), prepare.labels["pipeline"].as_str(), prepare.after.len()), ("prepare", "digits", 0));
        assert_eq!(prepare.run, Run::Shell("python prepare.py".to_owned()));
        assert_eq!(train.config, serde_json::json!({"lr": 0.2, "steps": 3}).as_object().cloned());
        assert!(file.jobs.iter().all(|(_, job)| job.file.resources.slots == Some(1) && job.file.queue.name.as_str() == "night"));
        let after: Vec<(&str, AfterEnd)> = alarm.after.iter().map(|after| (after.run.as_str(), after.when)).collect();
        assert_eq!(after, [("train", AfterEnd::Failure), ("prepare", AfterEnd::Any)]);
        assert_eq!((alarm.name.as_str(), alarm.labels["pipeline"].as_str()), ("call somebody", "other"));
    }

    #[test]
    fn a_job_may_stand_in_a_file_of_its_own_and_extend_others() {
        let file = load_text(
            "apiVersion: footplate/v1\nkind: Pipeline\nname: p\njobs: {a: train.yaml, b: {extends: train.yaml, after: a}}\n",
            &[],
        );
        let jobs = file.unwrap().jobs;
        assert_eq!((jobs[0].1.file.name.as_str(), jobs[1].1.file.name.as_str(), jobs[1].1.file.after.len()), ("trained", "trained", 1));
    }

    #[test]
    fn every_fault_is_told_with_its_place() {
        let told = faults(
            "kind: Job\nstages: 1\njobs: {a: {run: 'true', after: 'b:late'}, b: {rum: x}, c: 3, d: {run: 'true', project: x}, e: {run: 'true', array: 0-9}}\n",
        );
        for expected in [
            "apiVersion: is required",
            "kind: a job file is for `footplate submit`",
            "name: is required",
            "stages: no such key; known here: apiVersion, kind",
            "jobs.a.after[0]: \"late\" is no end",
            "jobs.b.rum: no such key; did you mean `run`?",
            "jobs.c: 3 is neither",
            "jobs.d.project: stands above the jobs",
            "jobs.e.array: an array stands in no pipeline",
        ] {
            assert!(told.iter().any(|fault| fault.starts_with(expected)), "{expected} in {told:#?}");
        }
        assert!(faults("apiVersion: footplate/v1\nkind: Pipeline\nname: p\njobs: {}\n")[0].starts_with("jobs: takes jobs by name"));
        assert!(faults("[]").len() == 1);
    }
}
