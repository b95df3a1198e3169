//! `simulate`: the guide does what it says, the same files print the same bytes, and what is wrong is told by its place.

use crate::guide::shell_words;
use crate::up::{Up, clean};
use footplate_testkit::repository_root;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn footplate(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_footplate"));
    clean(&mut command);
    command.args(args).current_dir(folder).env("XDG_CONFIG_HOME", folder).output().unwrap()
}

fn done(folder: &Path, args: &[&str]) -> String {
    let output = footplate(folder, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The files of the guide, saved.
fn saved() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let guide = std::fs::read_to_string(repository_root().join("docs/guides/simulate.md")).unwrap();
    for block in guide.split("```yaml\n# ").skip(1) {
        let (name, text) = block.split_once('\n').unwrap();
        std::fs::write(folder.path().join(name), text.split("```").next().unwrap()).unwrap();
    }
    let trace = guide.split("```csv\n").nth(1).unwrap().split("```").next().unwrap();
    std::fs::write(folder.path().join("jobs.csv"), trace).unwrap();
    (folder, guide)
}

#[test]
fn the_guide_to_simulations_does_what_it_says() {
    let (folder, guide) = saved();
    let lines: Vec<&str> = guide.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    let outs: Vec<String> =
        lines.iter().map(|line| done(folder.path(), &shell_words(line)[1..].iter().map(String::as_str).collect::<Vec<_>>())).collect();
    let cells = |out: &str, line: usize| -> Vec<String> { out.lines().nth(line).unwrap().split_whitespace().map(str::to_owned).collect() };
    // 160 + 3 + 4 + 12 did what they should; the dream of eight nodes never starts on four.
    assert_eq!(cells(&outs[0], 1)[..4], ["default", "179", "0", "1"], "{}", outs[0]);
    assert!(outs[0].contains("dream") && outs[0].contains("it can never run here"), "{}", outs[0]);
    let policies = [cells(&outs[1], 1)[0].clone(), cells(&outs[1], 2)[0].clone()];
    assert_eq!(policies, ["default", "patience=4h,reservations_max=1"]);
    let page = std::fs::read_to_string(folder.path().join("week.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 4, "GPUs, slots, jobs that wait, waits");
    let told: Value = serde_json::from_str(&outs[2]).unwrap();
    let outcome = &told["outcomes"][0];
    assert_eq!((told["gpus"].as_u64(), outcome["succeeded"].as_u64()), (Some(32), Some(179)));
    assert!(outcome["gpusPercent"].as_f64().is_some_and(|percent| percent > 10.0 && percent <= 100.0), "{outcome}");
    assert!(outcome["preemptions"].as_u64().is_some_and(|stops| stops > 0), "vision asks its own back: {}", outcome["queues"]);
    assert_eq!(cells(&outs[3], 1)[..4], ["default", "3", "0", "0"], "{}", outs[3]);
    for line in 0..3 {
        let again = done(folder.path(), &shell_words(lines[line])[1..].iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(again, outs[line], "the same bytes");
    }
}

#[test]
fn what_is_wrong_with_a_file_or_a_policy_is_told_by_its_place() {
    let (folder, _) = saved();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("typo.yaml", "apiVersion: footplate/v1\nkind: Cluster\nnodes: [{name: n, gpu: 8}]\n");
    write("none.yaml", "apiVersion: footplate/v1\nkind: Cluster\nnodes: []\n");
    write("long.csv", "submit_s,duration_s,num_gpus,vc\n0,1,1,a\n0,1,x,a\n");
    for (args, told) in [
        (&["--cluster", "typo.yaml", "--workload", "week.yaml"][..], "typo.yaml: unknown field `gpu`"),
        (&["--cluster", "none.yaml", "--workload", "week.yaml"], "nodes (of all groups)"),
        (&["--cluster", "week.yaml", "--workload", "week.yaml"], "week.yaml: unknown field `jobs`"),
        (&["--cluster", "gone.yaml", "--workload", "week.yaml"], "gone.yaml: cannot be read"),
        (&["--cluster", "cluster.yaml", "--trace", "long.csv"], "line 3 of the trace"),
        (&["--cluster", "cluster.yaml", "--workload", "week.yaml", "--policy", "patients=1h"], "patience: how long"),
        (&["--cluster", "cluster.yaml", "--ledger", "long.csv"], "line 1 of the ledger"),
        (&["--cluster", "cluster.yaml", "--ledger", "long.csv", "--trace", "long.csv"], "cannot be used with"),
        (&["--cluster", "cluster.yaml"], "--workload"),
        (&["--cluster", "cluster.yaml", "--workload", "week.yaml", "--preemptible"], "--trace"),
    ] {
        let args: Vec<&str> = std::iter::once("simulate").chain(args.iter().copied()).collect();
        let output = footplate(folder.path(), &args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(told), "{args:?}: {said}");
    }
}

#[test]
fn what_a_platform_has_done_is_played_again_from_its_ledger() {
    let up = Up::start(&[]);
    for _ in 0..2 {
        up.done(&["submit", "--wait", "--", "sleep", "1"]);
    }
    up.done(&["queue", "set", "later", "--hold"]);
    up.done(&["submit", "--queue", "later", "--", "true"]);
    let told = up.done(&["event", "tail", "--from", "1", "--aggregate", "job", "-o", "json"]);
    std::fs::write(up.work().join("ledger.jsonl"), told).unwrap();
    let small = "apiVersion: footplate/v1\nkind: Cluster\nnodes: [{name: n, slots: 1}]\n";
    std::fs::write(up.work().join("small.yaml"), small).unwrap();
    let output = up.run(&["simulate", "--cluster", "small.yaml", "--ledger", "ledger.jsonl", "-o", "json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("1 jobs had not ended"), "{said}");
    let outcome = serde_json::from_slice::<Value>(&output.stdout).unwrap()["outcomes"][0].clone();
    assert_eq!((outcome["jobs"].as_u64(), outcome["succeeded"].as_u64()), (Some(2), Some(2)), "{outcome}");
    let longest = outcome["completion"]["maxS"].as_f64().unwrap();
    assert!((1.0..60.0).contains(&longest), "each ran a second and a little: {longest}");
}
