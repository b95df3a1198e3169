//! `submit` from end to end, against a platform that stands in.

use crate::platform::{Platform, footplate, stderr, stdout};
use footplate_api::types::{Outcome, RunState};
use footplate_events::messages::{LaunchDocument, RunCommand, SEALED_PREFIX, SealedDocument};
use footplate_service::Exit;
use serde_json::{Value, json};
use std::{fs, path::Path, process::Output};
use tonic::Status;

const JOB: &str = "apiVersion: footplate/v1\nkind: Job\nname: digits\nrun: python train.py\nresources: {slots: 2}\n";

fn folder(job: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("job.yaml"), job).unwrap();
    fs::write(folder.path().join("train.py"), "print('hello')\n").unwrap();
    fs::write(folder.path().join(".footplateignore"), ".home-of-the-test/\n").unwrap();
    folder
}

fn ends(output: &Output, exit: Exit) {
    assert_eq!(output.status.code(), Some(exit.code().into()), "{}{}", stdout(output), stderr(output));
}

fn everything_recorded(platform: &Platform, but: Option<&str>) -> String {
    let state = platform.state();
    let documents =
        state.blobs.iter().filter(|(digest, _)| Some(digest.as_str()) != but).map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned());
    format!("{:?}{}", state.submitted, documents.collect::<String>())
}

fn document<T: serde::de::DeserializeOwned>(platform: &Platform, digest: &str) -> T {
    serde_json::from_slice(&platform.state().blobs[digest]).unwrap()
}

#[test]
fn a_job_file_is_captured_stored_and_submitted_and_the_second_time_sends_no_content() {
    let (platform, folder) = (Platform::start(), folder(JOB));
    let first = platform.run(folder.path(), &["submit", "-q", "job.yaml"]);
    ends(&first, Exit::Done);
    assert_eq!(stdout(&first).trim().len(), 32);
    assert_eq!(platform.state().uploads, 1);
    ends(&platform.run(folder.path(), &["submit", "job.yaml"]), Exit::Done);
    assert_eq!(platform.state().uploads, 1, "the unchanged code was sent again");
    let spec = platform.state().submitted[0].spec.clone().unwrap();
    assert_eq!((spec.name.as_str(), spec.experiment.as_str(), spec.resources.unwrap().per_node.unwrap().slots), ("digits", "default", 2));
    let source = spec.source.unwrap();
    assert!(platform.state().blobs.contains_key(&source.archive.unwrap().digest));
    let launch: LaunchDocument = document(&platform, &spec.launch.unwrap().digest);
    assert_eq!(launch.run, RunCommand::Shell("python train.py".to_owned()));
    assert_eq!(source.tree.len(), 64);
    let resolved: Value = document(&platform, &spec.document.unwrap().digest);
    assert_eq!(resolved["resources"], json!({"slots": 2}));
}

#[test]
fn an_answer_lost_on_the_way_and_a_key_given_twice_name_one_run() {
    let (platform, folder) = (Platform::start(), folder(JOB));
    platform.state().lost_answers = 2;
    ends(&platform.run(folder.path(), &["submit", "-q", "job.yaml"]), Exit::Done);
    let ids: Vec<String> = platform.state().submitted.iter().map(|request| format!("{} {}", request.run_id, request.request_id)).collect();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let keyed = |_| stdout(&platform.run(folder.path(), &["submit", "-q", "--request-id", "nightly-7", "job.yaml"]));
    let runs: Vec<String> = (0..2).map(keyed).collect();
    assert_eq!(runs[0], runs[1]);
    let elsewhere = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.yaml");
    platform.run(elsewhere.path(), &["submit", "-q", "--request-id", "nightly-7", file.to_str().unwrap()]);
    let submitted = platform.state().submitted.clone();
    assert_eq!(submitted[3], submitted[5], "the same submission from another folder is another body");
}

#[test]
fn secrets_reach_the_sealed_document_alone_and_what_was_masked_is_told() {
    let config = "config: {api_key: k-123, db: 'postgres://u:pw-9@h/x', use_cls_token: true, num_memory_tokens: 4}\n";
    let job = format!("{}{config}", JOB.replace("python train.py", "python train.py --token=tok-77"));
    let (platform, folder) = (Platform::start(), folder(&job));
    fs::remove_file(folder.path().join("job.yaml")).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("job.yaml"), format!("{job}source: {{path: {:?}}}\n", folder.path())).unwrap();
    let output = platform.run(elsewhere.path(), &["submit", "job.yaml", "--set", "config.password=hunter2"]);
    ends(&output, Exit::Done);
    assert!(stderr(&output).contains("config.api_key") && stderr(&output).contains("run"), "{}", stderr(&output));
    let spec = platform.state().submitted[0].spec.clone().unwrap();
    assert_eq!(spec.masked, ["config.api_key", "config.db", "config.password", "run"]);
    let launch: LaunchDocument = document(&platform, &spec.launch.unwrap().digest);
    let sealed_at = launch.sealed.unwrap().digest.to_string();
    let recorded = everything_recorded(&platform, Some(&sealed_at));
    for secret in ["k-123", "pw-9", "tok-77", "hunter2"] {
        assert!(!recorded.contains(secret), "{secret} was recorded");
        assert!(!stdout(&output).contains(secret) && !stderr(&output).contains(secret), "{secret} was printed");
    }
    assert!(recorded.contains("num_memory_tokens") && recorded.contains("use_cls_token"));
    let stored = platform.state().blobs[&sealed_at].clone();
    let sealed: SealedDocument = serde_json::from_slice(stored.strip_prefix(SEALED_PREFIX).unwrap()).unwrap();
    let real: Value = serde_json::from_str(&sealed.config.clone().unwrap()).unwrap();
    assert_eq!((&real["api_key"], &real["password"], &real["num_memory_tokens"]), (&json!("k-123"), &json!("hunter2"), &json!(4)));
    assert_eq!(sealed.run, Some(RunCommand::Shell("python train.py --token=tok-77".to_owned())));
}

#[test]
fn faults_of_the_file_are_told_and_nothing_is_sent() {
    let platform = Platform::start();
    for (text, told) in [
        ("apiVersion: footplate/v1\nkind: Job\nname: x\nrun: y\nresuorces: {gpus: 1}\n", "did you mean `resources`"),
        ("apiVersion: footplate/v1\nkind: Job\nname: x\nrun: y\nresources: {nodes: 0}\n", "resources.nodes"),
        ("apiVersion: footplate/v1\n\tkind: Job\n", "line 2"),
        ("python train.py\n", "is no job file"),
    ] {
        let folder = folder(text);
        let output = platform.run(folder.path(), &["submit", "job.yaml"]);
        ends(&output, Exit::Usage);
        assert!(stderr(&output).contains(told), "{}", stderr(&output));
    }
    ends(&platform.run(Path::new("/"), &["submit", "/nonexistent.yaml"]), Exit::Usage);
    assert!(platform.state().blobs.is_empty() && platform.state().submitted.is_empty());
}

#[test]
fn a_snapshot_that_may_not_leave_is_refused_before_anything_is_sent_also_as_a_dry_run() {
    let (platform, folder) = (Platform::start(), folder(JOB));
    fs::write(folder.path().join(".env"), "TOKEN=abc").unwrap();
    for arguments in [&["submit", "job.yaml"][..], &["submit", "--dry-run", "job.yaml"]] {
        let output = platform.run(folder.path(), arguments);
        ends(&output, Exit::Refused);
        assert!(stderr(&output).contains(".env") && !stderr(&output).contains("abc"), "{}", stderr(&output));
    }
    fs::remove_file(folder.path().join(".env")).unwrap();
    fs::File::create(folder.path().join("big.bin")).unwrap().set_len(60 << 20).unwrap();
    let output = platform.run(folder.path(), &["submit", "job.yaml"]);
    ends(&output, Exit::Refused);
    assert!(stderr(&output).contains("max_untracked"), "{}", stderr(&output));
    assert!(platform.state().blobs.is_empty());
}

#[test]
fn a_dry_run_prints_the_resolved_job_and_stores_nothing() {
    let (platform, folder) = (Platform::start(), folder(JOB));
    let output = platform.run(folder.path(), &["submit", "--dry-run", "-o", "json", "--set", "config.lr=1e-4", "job.yaml"]);
    ends(&output, Exit::Done);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&shown["document"]["config"]["lr"], &shown["captured"]["files"], &shown["remark"]),
        (&json!(1e-4), &json!(3), &json!("it would wait for a slot"))
    );
    assert!(platform.state().blobs.is_empty() && platform.state().submitted.is_empty());
}

#[test]
fn a_platform_that_is_away_is_told_with_what_to_do() {
    let folder = folder(JOB);
    let output = footplate(folder.path(), &["--addr", "127.0.0.1:1", "submit", "job.yaml"]);
    ends(&output, Exit::Unavailable);
    assert!(stderr(&output).contains("footplate up") && stderr(&output).contains("127.0.0.1:1"), "{}", stderr(&output));
    ends(&footplate(folder.path(), &["--addr", "127.0.0.1:1", "submit", "--dry-run", "job.yaml"]), Exit::Done);
}

#[test]
fn a_refusal_of_the_scheduler_ends_with_its_own_code() {
    let (platform, folder) = (Platform::start(), folder(JOB));
    for (status, exit) in [
        (Status::failed_precondition("the queue takes no jobs"), Exit::Refused),
        (Status::permission_denied("not yours"), Exit::Refused),
        (Status::not_found("no queue called x"), Exit::NotFound),
        (Status::resource_exhausted("never: the largest node has 1 slot"), Exit::Refused),
    ] {
        let message = status.message().to_owned();
        platform.state().refuse_jobs = Some(status);
        let output = platform.run(folder.path(), &["submit", "job.yaml"]);
        ends(&output, exit);
        assert!(stderr(&output).contains(&message), "{}", stderr(&output));
    }
}

#[test]
fn waiting_ends_as_the_run_did() {
    let (platform, folder) = (Platform::start(), folder(JOB));
    let run_id = stdout(&platform.run(folder.path(), &["submit", "-q", "--request-id", "k", "job.yaml"])).trim().to_owned();
    for (outcome, exit) in [(Outcome::Succeeded, Exit::Done), (Outcome::Failed, Exit::WorkFailed), (Outcome::Cancelled, Exit::Cancelled)] {
        platform.with_run(&run_id, outcome);
        ends(&platform.run(folder.path(), &["submit", "--wait", "--request-id", "k", "job.yaml"]), exit);
        ends(&platform.run(folder.path(), &["run", "wait", &run_id[..8]]), exit);
        let quiet = platform.run(folder.path(), &["submit", "-q", "--wait", "--request-id", "k", "job.yaml"]);
        assert_eq!((stdout(&quiet).trim(), stderr(&quiet).as_str()), (run_id.as_str(), ""), "quiet means quiet");
    }
    platform.state().runs.get_mut(&run_id).unwrap().set_state(RunState::Running);
    let output = platform.run(folder.path(), &["run", "wait", "--timeout", "100ms", &run_id]);
    ends(&output, Exit::TimedOut);
}

#[test]
fn the_project_is_that_of_flags_before_the_file_and_the_token_goes_along() {
    let (platform, folder) = (Platform::start(), folder(&format!("{JOB}project: vision\n")));
    ends(&platform.run(folder.path(), &["--token", "t-1", "submit", "job.yaml"]), Exit::Done);
    ends(&platform.run(folder.path(), &["-p", "speech", "submit", "job.yaml"]), Exit::Done);
    ends(&platform.run(folder.path(), &["-p", "a.b", "submit", "job.yaml"]), Exit::Usage);
    let state = platform.state();
    assert_eq!(state.submitted.iter().map(|request| request.project.as_str()).collect::<Vec<_>>(), ["vision", "speech"]);
    assert_eq!(state.tokens, ["Bearer t-1", ""]);
}

#[test]
fn a_rerun_keeps_code_and_config_and_changes_what_is_set() {
    let (platform, folder) = (Platform::start(), folder(&format!("{JOB}config: {{lr: 0.1, width: 8}}\n")));
    let run_id = stdout(&platform.run(folder.path(), &["submit", "-q", "job.yaml"])).trim().to_owned();
    platform.with_run(&run_id, Outcome::Failed);
    ends(&platform.run(folder.path(), &["run", "rerun", &run_id]), Exit::Done);
    ends(&platform.run(folder.path(), &["run", "rerun", &run_id, "--set", "config.lr=0.2"]), Exit::Done);
    let submitted = platform.state().submitted.clone();
    let specs: Vec<_> = submitted.into_iter().map(|request| request.spec.unwrap()).collect();
    assert!(specs[1..].iter().all(|spec| spec.rerun_of == run_id && spec.source == specs[0].source));
    assert_eq!(specs[1].config, specs[0].config);
    let config: Value = document(&platform, &specs[2].config.clone().unwrap().digest);
    assert_eq!(config, json!({"lr": 0.2, "width": 8}));
    ends(&platform.run(folder.path(), &["run", "rerun", &run_id, "--set", "confg.lr=0.2"]), Exit::Usage);
}
