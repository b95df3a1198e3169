//! The verbs that ask and show, against a platform that stands in.

use crate::platform::{Platform, footplate, stderr, stdout};
use footplate_api::{
    types::{AttemptSummary, MemberSummary, Outcome, ParamValue},
    v1,
};
use footplate_service::Exit;
use serde_json::Value;
use std::path::Path;

const RUN_A: &str = "0190aaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const RUN_B: &str = "0190bbbbbbbbbbbbbbbbbbbbbbbbbbbb";

fn here() -> &'static Path {
    Path::new("/tmp")
}

fn code(output: &std::process::Output) -> Option<i32> {
    output.status.code()
}

fn piece(rank: u32, stream: &str, at: u64, data: &[u8]) -> v1::ReadLogsResponse {
    v1::ReadLogsResponse { attempt: 1, rank, stream: stream.to_owned(), at, data: data.to_vec(), ..v1::ReadLogsResponse::default() }
}

fn with_workers(platform: &Platform, run_id: &str, workers: u32) {
    platform.with_run(run_id, Outcome::Succeeded);
    let members = vec![MemberSummary { workers, ..MemberSummary::default() }];
    platform.state().runs.get_mut(run_id).unwrap().attempts = vec![AttemptSummary { attempt: 1, members, ..AttemptSummary::default() }];
}

#[test]
fn ps_shows_what_waits_and_why_in_every_form() {
    let platform = Platform::start();
    let table = stdout(&platform.run(here(), &["ps"]));
    assert!(table.contains("running") && table.contains("1x2 slots") && table.contains("slots: 2 of 2 in use"), "{table}");
    assert!(!table.contains("failed") && stdout(&platform.run(here(), &["ps", "-a"])).contains("failed"));
    assert_eq!(stdout(&platform.run(here(), &["ps", "-q"])), format!("{}\n{}\n", "a".repeat(32), "b".repeat(32)));
    let data: Value = serde_json::from_str(&stdout(&platform.run(here(), &["ps", "-o", "json"]))).unwrap();
    assert_eq!(data[1]["reason"], "slots: 2 of 2 in use");
    assert!(stdout(&platform.run(here(), &["ps", "-o", "yaml"])).starts_with("- "));
    assert_eq!(code(&platform.run(here(), &["ps", "-o", "dot"])), Some(Exit::Usage.code().into()));
}

#[test]
fn a_run_is_found_by_a_unique_prefix_and_by_no_other() {
    let platform = Platform::start();
    platform.with_run(RUN_A, Outcome::Succeeded);
    platform.with_run(RUN_B, Outcome::Failed);
    let shown = platform.run(here(), &["run", "show", "0190aa"]);
    assert!(stdout(&shown).contains(RUN_A) && stdout(&shown).contains("succeeded"), "{}", stdout(&shown));
    assert_eq!(code(&platform.run(here(), &["run", "show", "0190"])), Some(Exit::Usage.code().into()));
    for unknown in ["ffff", "../x", "推荐模型", ""] {
        let output = platform.run(here(), &["run", "show", unknown]);
        assert_eq!(code(&output), Some(Exit::NotFound.code().into()), "{unknown}: {}", stderr(&output));
    }
}

#[test]
fn list_passes_on_the_remarks_of_a_filter() {
    let platform = Platform::start();
    platform.with_run(RUN_A, Outcome::Succeeded);
    assert!(stdout(&platform.run(here(), &["run", "list"])).contains("digits"));
    let output = platform.run(here(), &["run", "list", "--filter", "params.lrr < 1"]);
    assert!(stderr(&output).contains("nearest: params.lr") && code(&output) == Some(0), "{}", stderr(&output));
}

#[test]
fn one_workers_log_is_bytes_as_they_were_written() {
    let platform = Platform::start();
    with_workers(&platform, RUN_A, 1);
    let bytes = b"step 1\r\xff\xfe\x00 no line end";
    platform.state().log = vec![piece(0, "stdout", 0, &bytes[..9]), piece(0, "stderr", 0, b"warned\n"), piece(0, "stdout", 9, &bytes[9..])];
    let output = platform.run(here(), &["run", "logs", RUN_A]);
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice(), code(&output)), (&bytes[..], &b"warned\n"[..], Some(0)));
}

#[test]
fn several_workers_lines_begin_with_their_rank_and_repeated_bytes_are_not_printed_twice() {
    let platform = Platform::start();
    with_workers(&platform, RUN_A, 2);
    platform.state().log = vec![piece(0, "stdout", 0, b"a\nb"), piece(1, "stdout", 0, b"x\n"), piece(0, "stdout", 0, b"a\nbc\nd")];
    assert_eq!(stdout(&platform.run(here(), &["run", "logs", RUN_A])), "[0] a\n[1] x\n[0] bc\n[0] d\n");
    assert_eq!(stdout(&platform.run(here(), &["run", "logs", "--rank", "0", RUN_A])), "a\nbx\nc\nd");
}

#[test]
fn following_a_log_ends_with_the_runs_own_code() {
    let platform = Platform::start();
    platform.with_run(RUN_A, Outcome::Failed);
    platform.state().log = vec![v1::ReadLogsResponse { remark: "pending: no slot".to_owned(), ..v1::ReadLogsResponse::default() }];
    let output = platform.run(here(), &["run", "logs", "-f", RUN_A]);
    assert_eq!((code(&output), stdout(&output).as_str()), (Some(Exit::WorkFailed.code().into()), ""));
    assert!(stderr(&output).contains("pending: no slot"));
    assert_eq!(code(&platform.run(here(), &["run", "logs", RUN_A])), Some(0));
}

#[test]
fn compare_shows_in_what_runs_differ() {
    let platform = Platform::start();
    for (run_id, lr) in [(RUN_A, "0.1"), (RUN_B, "0.2")] {
        platform.with_run(run_id, Outcome::Succeeded);
        let param = ParamValue { json: lr.to_owned(), ..ParamValue::default() };
        platform.state().runs.get_mut(run_id).unwrap().params.insert("lr".to_owned(), param);
    }
    let table = stdout(&platform.run(here(), &["run", "compare", RUN_A, RUN_B]));
    assert!(table.contains("params.lr") && table.contains("0.2") && !table.contains("name"), "{table}");
    let data: Value = serde_json::from_str(&stdout(&platform.run(here(), &["run", "compare", "-o", "json", RUN_A, RUN_B]))).unwrap();
    assert_eq!(data[0]["values"][RUN_B], "0.2");
}

#[test]
fn tags_are_set_and_removed_in_one_write() {
    let platform = Platform::start();
    platform.with_run(RUN_A, Outcome::Succeeded);
    assert_eq!(code(&platform.run(here(), &["run", "tag", RUN_A, "team=vision", "old-"])), Some(0));
    let state = platform.state();
    assert_eq!((state.tags[0].set["team"].as_str(), state.tags[0].removed.as_slice()), ("vision", &["old".to_owned()][..]));
}

#[test]
fn a_refused_request_is_told_with_the_reason() {
    let platform = Platform::start();
    let output = platform.run(here(), &["run", "cancel", RUN_A]);
    assert_eq!(code(&output), Some(Exit::Refused.code().into()));
    assert!(stderr(&output).contains("the job has ended"));
    assert_eq!(code(&platform.run(here(), &["job", "hold", RUN_A])), Some(0));
}

#[test]
fn why_says_the_reason_and_what_would_help() {
    let text = stdout(&Platform::start().run(here(), &["why", RUN_A]));
    assert!(text.starts_with("pending: slots: 2 of 2 in use") && text.contains("set free on n1"), "{text}");
}

#[test]
fn events_are_shown_decoded_with_their_trace() {
    let platform = Platform::start();
    let event = |sequence| v1::Event {
        sequence,
        r#type: "footplate.job.submitted.v1".to_owned(),
        actor: "alice".to_owned(),
        traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
        data: format!("{{\"n\": {sequence}}}"),
        ..v1::Event::default()
    };
    platform.state().events = (1..=30).map(event).collect();
    let tail = stdout(&platform.run(here(), &["event", "tail", "-n", "2"]));
    assert!(
        tail.contains("job.submitted.v1") && tail.contains("4bf92f3577b34da6a3ce929d0e0e4736") && tail.contains("{\"n\":30}"),
        "{tail}"
    );
    assert!(!tail.contains("{\"n\":28}"));
    let lines = stdout(&platform.run(here(), &["event", "tail", "--from", "1", "-o", "json"]));
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((events.len(), &events[29]["data"]["n"]), (30, &Value::from(30)));
    let shown: Value = serde_json::from_str(&stdout(&platform.run(here(), &["event", "show", "7", "-o", "json"]))).unwrap();
    assert_eq!((&shown["data"]["n"], &shown["traceId"]), (&Value::from(7), &Value::from("4bf92f3577b34da6a3ce929d0e0e4736")));
    assert_eq!(code(&platform.run(here(), &["event", "show", "77"])), Some(Exit::NotFound.code().into()));
}

#[test]
fn a_wrong_use_is_told_before_anything_is_asked() {
    for arguments in [
        &["nonsense"][..],
        &["run", "wait"],
        &["run", "wait", "--timeout", "5", RUN_A],
        &["queue", "set", "a.b"],
        &["node", "drain", ">"],
        &["submit"],
        &["--addr", "ftp://h", "ps"],
        &["--addr", "not an address", "ps"],
        &["event", "show", "x"],
        &["run", "note", RUN_A],
    ] {
        let output = footplate(here(), arguments);
        assert_eq!(code(&output), Some(Exit::Usage.code().into()), "{arguments:?}: {}", stderr(&output));
    }
    assert_eq!(code(&footplate(here(), &["--help"])), Some(0));
    assert!(stdout(&footplate(here(), &["completions", "bash"])).contains("_footplate"));
}

#[test]
fn a_context_file_names_the_platform_and_its_token_goes_nowhere_else() {
    let platform = Platform::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(".home-of-the-test/footplate/config.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let text = format!("current = \"local\"\n[contexts.local]\naddr = \"{}\"\ntoken = \"t-9\"\nproject = \"vision\"\n", platform.addr);
    std::fs::write(&file, text).unwrap();
    let submit = ["submit", "-q", "--no-source", "--", "true"];
    assert_eq!(code(&footplate(folder.path(), &submit)), Some(0));
    assert_eq!(code(&platform.run(folder.path(), &submit)), Some(0));
    let elsewhere = Platform::start();
    assert_eq!(code(&elsewhere.run(folder.path(), &submit)), Some(0));
    assert_eq!(platform.state().tokens, ["Bearer t-9", "Bearer t-9"]);
    assert_eq!(platform.state().submitted[0].project, "vision");
    assert_eq!(elsewhere.state().tokens, [""]);
}

#[test]
fn decisions_are_lines_or_objects_and_a_stream_that_breaks_goes_on_behind_the_last() {
    let platform = Platform::start();
    let decision = |sequence, kind: &str, text: &str| v1::Decision {
        sequence,
        recorded_at: "2026-01-02T03:04:05Z".to_owned(),
        run_id: RUN_A.to_owned(),
        queue: "night".to_owned(),
        kind: kind.to_owned(),
        text: text.to_owned(),
        ..v1::Decision::default()
    };
    platform.state().decisions = vec![decision(7, "placed", "attempt 1 placed on n1"), decision(9, "ended", "succeeded: success")];
    platform.state().broken_streams = 1;
    let output = platform.run(here(), &["job", "decisions", "--queue", "night", "-n", "5"]);
    let lines = stdout(&output);
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(lines.starts_with("      7  2026-01-02T03:04:05Z  0190aaaaaaaaaa  night"), "{lines}");
    assert!(lines.contains("placed          attempt 1 placed on n1") && stderr(&output).contains("opening it again"), "{lines}");
    let watched = platform.state().watched.clone();
    let asked: Vec<(u64, u32, &str, bool)> =
        watched.iter().map(|asked| (asked.from_sequence, asked.newest, asked.queue.as_str(), asked.follow)).collect();
    assert_eq!(asked, [(0, 5, "night", false), (8, 0, "night", false)]);
    let data = stdout(&platform.run(here(), &["job", "decisions", "--run", RUN_A, "--from", "8", "-f", "-o", "json"]));
    let data: Value = serde_json::from_str(&data).unwrap();
    assert_eq!((&data["sequence"], &data["kind"]), (&"9".into(), &"ended".into()), "one object a line");
    let last = platform.state().watched.last().cloned().unwrap();
    assert_eq!((last.run_id.as_str(), last.from_sequence, last.newest, last.follow), (RUN_A, 8, 0, true));
    assert_eq!(stdout(&platform.run(here(), &["job", "decisions", "-q"])), "7\n9\n");
    assert_eq!(code(&platform.run(here(), &["job", "decisions", "-n", "1", "--from", "1"])), Some(2));
}
