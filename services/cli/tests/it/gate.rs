//! `gate` and the codes of waiting, against a platform that stands in; aliases of models on a real one, in `ci.rs`.

use crate::platform::{Platform, footplate, stderr, stdout};
use footplate_api::types::{LatestValue, Outcome, RunState};
use footplate_service::Exit;
use serde_json::{Value, json};
use std::path::Path;

const RUN: &str = "0190aaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const BASE: &str = "0190bbbbbbbbbbbbbbbbbbbbbbbbbbbb";

fn latest(name: &str, value: f64, min: f64, max: f64) -> LatestValue {
    LatestValue { name: name.to_owned(), value, min, max, count: 3, ..LatestValue::default() }
}

/// Two sealed runs with an accuracy and a loss.
fn platform() -> Platform {
    let platform = Platform::start();
    for (run_id, acc, loss) in [(RUN, 0.94, 0.25), (BASE, 0.93, 0.2)] {
        platform.with_run(run_id, Outcome::Succeeded);
        platform.state().runs.get_mut(run_id).unwrap().latest =
            vec![latest("val/acc", acc, 0.1, 0.96), latest("val/loss", loss, 0.15, 2.0)];
    }
    platform
}

/// Runs the gate over a line of flags: its exit code, standard output and standard error.
fn gate(platform: &Platform, line: &str) -> (Option<Exit>, String, String) {
    let arguments: Vec<&str> = ["gate", RUN].into_iter().chain(line.split_whitespace()).collect();
    let output = platform.run(Path::new("/tmp"), &arguments);
    let code = output.status.code().and_then(|code| u8::try_from(code).ok()).and_then(Exit::from_code);
    (code, stdout(&output), stderr(&output))
}

#[test]
fn a_metric_is_held_against_numbers_and_against_another_run() {
    let platform = platform();
    for (line, exit) in [
        ("--metric val/acc --min 0.94", Exit::Done),
        ("--metric val/acc --min 0.9400001", Exit::FallsShort),
        ("--metric val/acc --min 0.9 --max 0.93", Exit::FallsShort),
        ("--metric val/acc --min 0.95 --of best --direction maximize", Exit::Done),
        ("--metric val/acc --min 0.9 --metric val/loss --max 0.3", Exit::Done),
        ("--metric val/acc --min 0.9 --metric val/loss --max 0.2", Exit::FallsShort),
        ("--metric val/acc --baseline 0190bb --direction maximize", Exit::Done),
        ("--metric val/acc --baseline 0190bb --direction minimize", Exit::FallsShort),
        ("--metric val/acc --baseline 0190bb --direction minimize --margin 0.01", Exit::Done),
        ("--metric val/loss --baseline 0190bb --direction minimize --margin 0.04", Exit::FallsShort),
        ("--metric val/loss --baseline 0190bb --direction minimize --of best", Exit::Done),
        ("--metric val/acc --baseline 0190bb --direction maximize --margin -0.02", Exit::FallsShort),
    ] {
        let (code, out, err) = gate(&platform, line);
        assert_eq!(code, Some(exit), "{line}\n{out}{err}");
    }
}

#[test]
fn every_condition_is_shown_to_people_and_to_programs() {
    let platform = platform();
    let line = "--metric val/acc --min 0.95 --baseline 0190bb --direction maximize --margin 0.005 --metric val/loss --max 0.3";
    let (code, table, _) = gate(&platform, line);
    let rows: Vec<Vec<&str>> = table.lines().map(|row| row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect();
    let compared = format!("0.93 of {BASE}");
    assert_eq!(rows[0], ["METRIC", "VALUE", "WANTED", "VERDICT", "BASELINE"]);
    assert_eq!(rows[1], ["val/acc", "0.94", ">= 0.95", "falls short"]);
    assert_eq!(rows[2], ["val/acc", "0.94", ">= 0.93 - 0.005", "passed", compared.as_str()]);
    assert_eq!(rows[3], ["val/loss", "0.25", "<= 0.3", "passed"]);
    assert_eq!((rows.len(), code), (4, Some(Exit::FallsShort)));

    let (_, data, _) = gate(&platform, &format!("{line} -o json"));
    let data: Value = serde_json::from_str(&data).unwrap();
    assert_eq!((&data["runId"], &data["verdict"]), (&json!(RUN), &json!("falls_short")));
    let compared = json!({"named": "0190bb", "runId": BASE, "model": null, "version": null, "value": 0.93});
    assert_eq!(
        data["conditions"][1],
        json!({
            "metric": "val/acc", "of": "last", "direction": "maximize", "value": 0.94, "verdict": "passed",
            "wanted": {"is": "at_least", "limit": 0.93, "margin": 0.005}, "baseline": compared, "refusal": null,
        })
    );
    assert_eq!(gate(&platform, &format!("{line} -q")).1, format!("{RUN}\n"));
}

#[test]
fn what_could_not_be_told_is_no_verdict_and_hides_nothing() {
    let platform = platform();
    platform.state().runs.get_mut(RUN).unwrap().latest.push(latest("grad", f64::NAN, f64::NAN, f64::NAN));
    let unknown_run = "f".repeat(32);
    for (line, exit, reason) in [
        ("--metric val/f1 --min 0.9", Exit::NotFound, "SERIES_NOT_FOUND"),
        ("--metric grad --max 1", Exit::Refused, "METRIC_NOT_FINITE"),
        ("--metric grad --max 1 --metric val/acc --min 0.99", Exit::Refused, "METRIC_NOT_FINITE"),
    ] {
        let (code, out, err) = gate(&platform, line);
        assert_eq!(code, Some(exit), "{line}\n{out}{err}");
        assert!(out.contains("unknown") && err.contains(reason) && err.contains("footplate run show"), "{out}{err}");
    }
    let line = format!("--metric val/acc --min 0.99 --baseline {unknown_run} --direction maximize -o json");
    let (code, out, err) = gate(&platform, &line);
    let data: Value = serde_json::from_str(&out).unwrap();
    let verdicts: Vec<&Value> = data["conditions"].as_array().unwrap().iter().map(|condition| &condition["verdict"]).collect();
    assert_eq!((code, verdicts), (Some(Exit::NotFound), vec![&json!("falls_short"), &json!("unknown")]));
    assert_eq!(data["conditions"][1]["value"], 0.94);
    assert!(data["conditions"][1]["refusal"]["message"].as_str().is_some_and(|message| message.contains(&unknown_run)), "{data}");
    assert!(err.contains(&unknown_run), "{err}");

    // The metric is missing in the baseline alone.
    platform.state().runs.get_mut(BASE).unwrap().latest.clear();
    let (code, _, err) = gate(&platform, "--metric val/acc --baseline 0190bb --direction maximize");
    assert_eq!(code, Some(Exit::NotFound));
    assert!(err.contains(BASE) && err.contains("logged no metric"), "{err}");
}

#[test]
fn only_sealed_whole_successes_are_judged() {
    let platform = platform();
    let line = "--metric val/acc --min 0.9 --baseline 0190bb --direction maximize";
    let change = |run_id: &str, state: RunState, outcome: Outcome, complete: bool| {
        let mut held = platform.state();
        let run = held.runs.get_mut(run_id).unwrap();
        run.set_state(state);
        run.set_outcome(outcome);
        run.seal_complete = complete;
    };
    for (state, outcome, complete, exit, reason, leave) in [
        (RunState::Running, Outcome::Unspecified, false, Exit::Refused, "RUN_NOT_SEALED", None),
        (RunState::Ending, Outcome::Failed, false, Exit::Refused, "RUN_NOT_SEALED", None),
        (RunState::Sealed, Outcome::Failed, true, Exit::WorkFailed, "RUN_NOT_SUCCEEDED", Some("--allow-failed")),
        (RunState::Sealed, Outcome::Cancelled, true, Exit::Cancelled, "RUN_NOT_SUCCEEDED", Some("--allow-failed")),
        (RunState::Sealed, Outcome::Succeeded, false, Exit::Refused, "RUN_INCOMPLETE", Some("--allow-incomplete")),
    ] {
        change(RUN, state, outcome, complete);
        let (code, out, err) = gate(&platform, line);
        assert_eq!((code, out.as_str()), (Some(exit), ""), "{err}");
        assert!(err.contains(reason), "{err}");
        if let Some(leave) = leave {
            assert_eq!(gate(&platform, &format!("{line} {leave}")).0, Some(Exit::Done));
        }
        // The same of the baseline is told with its condition; the run itself did not fail.
        change(RUN, RunState::Sealed, Outcome::Succeeded, true);
        change(BASE, state, outcome, complete);
        let (code, out, err) = gate(&platform, line);
        assert_eq!(code, Some(Exit::Refused), "{out}{err}");
        assert!(out.contains("passed") && out.contains("unknown") && err.contains(reason), "{out}{err}");
        change(BASE, RunState::Sealed, Outcome::Succeeded, true);
    }
    change(RUN, RunState::Running, Outcome::Unspecified, false);
    let (code, _, err) = gate(&platform, &format!("{line} --wait --timeout 100ms"));
    assert_eq!(code, Some(Exit::TimedOut), "{err}");
    change(RUN, RunState::Sealed, Outcome::Succeeded, true);
    assert_eq!(gate(&platform, &format!("{line} --wait --timeout 5s")).0, Some(Exit::Done));
}

#[test]
fn a_wrong_use_and_a_platform_that_is_away_are_no_verdicts() {
    let platform = platform();
    for line in [
        "",
        "--metric val/acc",
        "--min 0.9",
        "--metric val/acc --min high",
        "--metric val/acc --min nan",
        "--metric val/acc --baseline 0190bb",
        "--metric val/acc --baseline runs:/0190bb/model.bin --direction maximize",
        "--metric val/acc --baseline 0190 --direction maximise",
        "--metric val/acc --min 0.9 --timeout 5s",
    ] {
        let (code, out, err) = gate(&platform, line);
        assert_eq!((code, out.as_str()), (Some(Exit::Usage), ""), "{line}: {err}");
    }
    let (code, _, err) = gate(&platform, "--metric val/acc --min 1 --metric val/loss --max 1 --baseline 0190bb");
    assert_eq!(code, Some(Exit::Usage));
    assert!(err.contains("MISSING_FIELD") && err.contains("--direction") && err.contains("maximize, minimize"), "{err}");
    let away = format!("127.0.0.1:{}", crate::up::free_port());
    for words in [
        &["gate", RUN, "--metric", "val/acc", "--min", "0.9"][..],
        &["gate", "-w", RUN, "--metric", "a", "--min", "1"],
        &["run", "wait", RUN],
    ] {
        let output = footplate(Path::new("/tmp"), &[&["--addr", &away], words].concat());
        assert_eq!(output.status.code(), Some(Exit::Unavailable.code().into()), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("UNREACHABLE"), "{}", stderr(&output));
    }
}

#[test]
fn of_several_runs_the_worst_end_counts_whichever_came_first() {
    let platform = Platform::start();
    for (run_id, outcome) in [(RUN, Outcome::Cancelled), (BASE, Outcome::Failed)] {
        platform.with_run(run_id, outcome);
    }
    for order in [[RUN, BASE], [BASE, RUN]] {
        let output = platform.run(Path::new("/tmp"), &[&["run", "wait"], &order[..]].concat());
        assert_eq!(output.status.code(), Some(Exit::WorkFailed.code().into()), "{}", stderr(&output));
    }
}
