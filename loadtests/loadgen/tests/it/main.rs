//! Each load program at a size of seconds: it ends well and its figures are there. What they are worth on a busy machine in a debug build is
//! not asserted.

#![allow(clippy::unwrap_used)]

use footplate_testkit::{nats_server_program, repository_root};
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::process::Command;

/// Runs one program that judges nothing and gives what it wrote.
fn figures(args: &[&str]) -> Map<String, Value> {
    figures_of(args, "wanted")
}

/// Runs one program, which prints `told`, and gives what it wrote.
fn figures_of(args: &[&str], told: &str) -> Map<String, Value> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_footplate-load"));
    command.args(args).arg("--json").arg(&file).env("FOOTPLATE_NATS_SERVER", nats_server_program().unwrap());
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{args:?} ended with {}:\n{out}{err}", output.status);
    assert!(out.contains(told), "no table: {out}");
    serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap()
}

fn number(figures: &Map<String, Value>, key: &str) -> f64 {
    let value = figures.get(key).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("{key} is no number: {figures:?}"))
}

/// Every one of `keys` is a number above zero.
fn all_positive(figures: &Map<String, Value>, keys: &[&str]) {
    for key in keys {
        assert!(number(figures, key) > 0.0, "{key}: {figures:?}");
    }
}

/// The command line's program, built when it is not there (a test of this crate alone does not build it).
fn footplate() -> PathBuf {
    let beside = PathBuf::from(env!("CARGO_BIN_EXE_footplate-load")).with_file_name("footplate");
    if !beside.is_file() {
        let mut cargo = Command::new(env!("CARGO"));
        let built = cargo.args(["build", "--quiet", "--package", "footplate-cli"]).current_dir(repository_root()).status().unwrap();
        assert!(built.success() && beside.is_file(), "{} could not be built", beside.display());
    }
    beside
}

#[test]
fn the_ledgers_figures_stand_beside_the_bare_brokers() {
    let sizes = ["ledger", "--events", "400", "--aggregate-events", "2000", "--repetitions", "1", "--writers", "200"];
    let figures = figures(&sizes);
    for name in ["append_single", "append_windowed", "append_batched", "append_term", "replay"] {
        let (ours, raw) = (number(&figures, &format!("{name}_per_s")), number(&figures, &format!("{name}_raw_per_s")));
        let ratio = number(&figures, &format!("{name}_ratio"));
        assert!(ours > 0.0 && raw > 0.0 && (ratio - ours / raw).abs() < 0.01, "{name}: {ours}, {raw}, {ratio}");
    }
    all_positive(&figures, &["aggregate_ms", "aggregate_raw_ms", "aggregate_first_ms", "cpus"]);
    assert_eq!(number(&figures, "aggregate_out_of"), 2_000.0);
}

#[test]
fn a_submits_steps_add_up_to_its_launch() {
    let binary = footplate();
    let figures = figures(&["submit", "--events", "1", "--warm-up", "0", "--binary", binary.to_str().unwrap()]);
    assert_eq!(number(&figures, "submits"), 1.0);
    all_positive(&figures, &["first_line_p50_ms", "first_line_p99_ms", "submit_answered_ms", "submit_to_submitted_ms"]);
    all_positive(&figures, &["submitted_to_placed_ms", "placed_to_ready_ms", "ready_to_launched_ms", "launched_to_first_line_ms"]);
    let steps = ["submit_to_submitted_ms", "submitted_to_placed_ms", "placed_to_ready_ms", "ready_to_launched_ms"];
    let sum: f64 = steps.iter().map(|step| number(&figures, step)).sum::<f64>() + number(&figures, "launched_to_first_line_ms");
    assert!((sum - number(&figures, "first_line_p50_ms")).abs() < 0.1, "{figures:?}");
}

#[test]
fn points_are_acknowledged_and_stored_beside_the_bare_brokers() {
    let binary = footplate();
    let sizes = ["--runs", "8", "--series", "5", "--batch", "20", "--rounds", "3", "--clients", "2", "--singles", "20"];
    let engine = ["--engines", "embedded", "--binary", binary.to_str().unwrap()];
    let figures = figures(&[&["metrics"], &sizes[..], &engine[..]].concat());
    assert_eq!(number(&figures, "points"), 480.0);
    all_positive(&figures, &["embedded_points_per_s", "embedded_points_raw_per_s", "embedded_acked_per_s", "bytes_per_point"]);
    all_positive(&figures, &["single_point_p50_ms", "single_point_p99_ms", "single_point_raw_p50_ms", "single_point_raw_p99_ms"]);
    assert!(number(&figures, "embedded_points_per_s") <= number(&figures, "embedded_acked_per_s"), "{figures:?}");
    let shares = ["platform", "broker", "load", "rest"].map(|part| number(&figures, &format!("embedded_cpu_{part}")));
    // Counted in ticks of 10 ms, over a tenth of a second here: nothing is counted twice.
    assert!(shares.iter().sum::<f64>() <= 1.5, "{figures:?}");
}

#[test]
fn a_gang_is_launched_and_its_time_is_parted() {
    let figures = figures(&["gang", "--members", "4", "--events", "1", "--warm-up", "0"]);
    assert_eq!(number(&figures, "gangs"), 1.0);
    all_positive(&figures, &["gang_4_ms", "gang_4_max_ms", "ready_events"]);
    let parts = ["placed_to_assigned_ms", "assigned_to_reported_ms", "reported_to_ready_ms", "ready_to_launched_ms"];
    let sum: f64 = parts.iter().map(|part| number(&figures, part)).sum();
    assert!((sum - number(&figures, "gang_4_ms")).abs() < 0.1, "{figures:?}");
}

#[test]
fn a_grown_ledger_is_read_and_each_service_starts_over_it() {
    let binary = footplate();
    let figures = figures(&["growth", "--runs", "100", "--starts", "1", "--binary", binary.to_str().unwrap()]);
    assert_eq!((number(&figures, "runs"), number(&figures, "events")), (100.0, 2_064.0));
    all_positive(&figures, &["ledger_bytes", "write_s", "broker_rss_bytes", "broker_rss_after_replay_bytes", "broker_start_after_kill_s"]);
    all_positive(
        &figures,
        &["replay_s", "replay_events_per_s", "archive_s", "archived_events", "archived_segments", "archived_bytes", "archive_verify_s"],
    );
    all_positive(&figures, &["gone_events", "gone_events_per_s", "broker_rss_after_gone_bytes", "replay_after_gone_s"]);
    all_positive(&figures, &["snapshots_bytes", "cold_start_s", "cold_start_without_s"]);
    for service in ["tracker", "scheduler", "executor", "sweep", "gpu_inventory", "registry"] {
        let keys = ["start_s", "start_without_s", "rss_bytes"].map(|what| format!("{service}_{what}"));
        all_positive(&figures, &keys.each_ref().map(String::as_str));
        assert!(number(&figures, "cold_start_s") >= number(&figures, &keys[0]), "{figures:?}");
    }
}

#[test]
fn decisions_are_measured_and_what_they_cost_once_they_are_durable() {
    let size = ["--nodes", "20", "--gpus", "160", "--pending", "300", "--steps", "20", "--batch", "10", "--growth", "20,40"];
    let durable = ["--durable-jobs", "200", "--age", "0", "--lives", "50", "--agents", "4"];
    let figures = figures_of(&[&["cycle"], &size[..], &durable[..]].concat(), "durable");
    let core =
        ["core_decisions_per_s", "full_cycle_placements_per_s", "batch_decisions_per_s", "incremental_p99_ms", "growth_over_n_log_n"];
    all_positive(&figures, &core);
    all_positive(&figures, &["durable_placements_per_s", "full_lives_per_s", "full_lives_raw_per_s", "full_life_ratio"]);
    // At the least: submitted, placed, assigned, ready, launched, started, exited, ended.
    assert!(number(&figures, "full_life_messages") > 8.0, "{figures:?}");
}

#[test]
fn seeds_are_run_and_planted_faults_found() {
    let figures = figures_of(&["sim", "--seeds", "20", "--planted", "gang,quota"], "found by");
    assert_eq!((number(&figures, "seeds"), number(&figures, "violations")), (20.0, 0.0));
    assert_eq!((number(&figures, "planted_faults"), number(&figures, "planted_faults_missed")), (2.0, 0.0));
}
