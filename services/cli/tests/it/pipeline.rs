//! Jobs that come after others, from the command line: pipeline files against a platform that stands in, and ends that come otherwise on a real one.

use crate::platform::{Platform, stderr, stdout};
use crate::up::Up;
use footplate_api::types::AfterWhen;
use std::fs;

const FILE: &str = "\
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
    run: python train.py
    source: {path: code}
  alarm:
    after: [train:failure, 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:any']
    run: ./alarm.sh
";

fn folder(file: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("code")).unwrap();
    for (name, text) in
        [("pipeline.yaml", file), ("prepare.py", "1\n"), ("code/train.py", "2\n"), (".footplateignore", ".home-of-the-test/\n")]
    {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn a_pipeline_file_is_one_call_with_each_source_captured_once() {
    let (platform, folder) = (Platform::start(), folder(FILE));
    // Its answer is lost on the way: the same is sent again.
    platform.state().lost_answers = 1;
    let done = platform.run(folder.path(), &["pipeline", "submit", "pipeline.yaml", "--set", "jobs.train.config.lr=0.2"]);
    assert!(done.status.success(), "{}", stderr(&done));
    let lines: Vec<String> = stdout(&done).lines().map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(lines, ["JOB AFTER", "prepare", "train prepare", "alarm train:failure, aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:any"]);
    let state = platform.state();
    assert_eq!((state.pipelines.len(), state.uploads), (2, 2));
    assert_eq!(state.pipelines[0], state.pipelines[1]);
    let asked = &state.pipelines[0];
    assert!(!asked.request_id.is_empty() && asked.jobs.iter().all(|job| job.run_id.len() == 32));
    let [prepare, train, alarm] = [0, 1, 2].map(|at| asked.jobs[at].clone());
    let spec = |job: &footplate_api::v1::PipelineJob| job.spec.clone().unwrap();
    let tree = |job: &footplate_api::v1::PipelineJob| spec(job).source.unwrap().tree;
    assert_eq!((tree(&prepare) == tree(&alarm), tree(&prepare) == tree(&train)), (true, false));
    assert_eq!(
        (prepare.name.as_str(), spec(&prepare).name.as_str(), spec(&prepare).labels["pipeline"].as_str()),
        ("prepare", "prepare", "digits")
    );
    assert_eq!((train.after[0].name.as_str(), train.after[0].when()), ("prepare", AfterWhen::Success));
    assert_eq!((alarm.after.len(), alarm.after[0].name.as_str(), alarm.after[0].when()), (1, "train", AfterWhen::Failure));
    let outside = &spec(&alarm).after[0];
    assert_eq!((outside.run_id.as_str(), outside.when()), ("a".repeat(32).as_str(), AfterWhen::Any));
    let config = String::from_utf8_lossy(&state.blobs[&spec(&train).config.unwrap().digest]).into_owned();
    assert_eq!(config, "{\"lr\":0.2}");
}

#[test]
fn under_a_key_the_same_call_is_the_same_bytes_and_a_dry_run_stores_nothing() {
    let (platform, folder) = (Platform::start(), folder(FILE));
    let submit = || platform.run(folder.path(), &["pipeline", "submit", "-q", "--request-id", "nightly-7", "pipeline.yaml"]);
    let (first, second) = (submit(), submit());
    assert!(first.status.success(), "{}", stderr(&first));
    assert_eq!((stdout(&first), stdout(&first).lines().count()), (stdout(&second), 3));
    let asked = platform.state().pipelines.clone();
    assert_eq!(asked[0], asked[1]);
    let blobs = platform.state().blobs.len();
    let dry = platform.run(folder.path(), &["pipeline", "submit", "pipeline.yaml", "--dry-run", "--set", "job.config.lr=9"]);
    assert!(stdout(&dry).contains("it could start now"), "{}{}", stdout(&dry), stderr(&dry));
    assert!(platform.state().pipelines[2].dry_run);
    assert_eq!(platform.state().blobs.len(), blobs);
}

#[test]
fn a_file_of_another_kind_is_sent_to_its_own_verb() {
    let (platform, folder) = (Platform::start(), folder(FILE));
    let wrong = platform.run(folder.path(), &["submit", "pipeline.yaml"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("footplate pipeline submit"), "{}", stderr(&wrong));
    fs::write(folder.path().join("job.yaml"), "apiVersion: footplate/v1\nkind: Job\nname: x\nrun: 'true'\n").unwrap();
    let wrong = platform.run(folder.path(), &["pipeline", "submit", "job.yaml"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("a job file is for `footplate submit`"), "{}", stderr(&wrong));
}

/// On a real platform: a failure goes down the pipeline, and whoever waits is told by the exit code; a run that is not there cannot be come after.
#[test]
fn a_failure_ends_what_waits_for_success_and_starts_what_waits_for_it() {
    let up = Up::start(&[]);
    let file = "apiVersion: footplate/v1\nkind: Pipeline\nname: broken\njobs:\n  train: {run: exit 3}\n  report: {after: train, run: echo report}\n  alarm: {after: 'train:failure', run: echo alarmed}\n";
    fs::write(up.work().join("pipeline.yaml"), file).unwrap();
    let ids = up.done(&["pipeline", "submit", "-q", "pipeline.yaml"]);
    let [train, report, alarm] = [0, 1, 2].map(|at| ids.lines().nth(at).unwrap());
    assert_eq!(up.run(&["run", "wait", train]).status.code(), Some(7));
    assert_eq!(up.run(&["run", "wait", report]).status.code(), Some(8));
    up.done(&["run", "wait", alarm]);
    assert!(up.done(&["run", "logs", alarm]).contains("alarmed"));
    let why = up.done(&["why", report]);
    assert!(why.contains(&format!("success of run {train} (train), which failed")), "{why}");
    // After what has ended already it is over, or starts, at once; the same again comes after nothing.
    let late = up.done(&["submit", "-q", "--after", &format!("{train}:any"), "--", "true"]);
    up.done(&["run", "wait", late.trim()]);
    let again = up.done(&["run", "rerun", "-q", report]);
    up.done(&["run", "wait", again.trim()]);
    let stranger = up.run(&["submit", "--after", &"17".repeat(16), "--", "true"]);
    assert_eq!(stranger.status.code(), Some(3), "{}", String::from_utf8_lossy(&stranger.stderr));
    fs::write(up.work().join("circle.yaml"), file.replace("train: {run", "train: {after: report, run")).unwrap();
    let circle = up.run(&["pipeline", "submit", "circle.yaml"]);
    let told = String::from_utf8_lossy(&circle.stderr).into_owned();
    assert!(circle.status.code() == Some(2) && told.contains("train after report after train"), "{told}");
}
