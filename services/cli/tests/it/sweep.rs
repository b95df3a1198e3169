//! A sweep from a file on a real platform: trials run as jobs, the best one is found, the ledger gives the same views again.

use crate::up::Up;
use footplate_testkit::repository_root;
use std::process::Output;

const TRAIN: &str = r#"
import json, os, footplate
config = json.load(open(os.environ["FOOTPLATE_CONFIG"]))
run = footplate.init()
for step in range(3):
    run.log({"loss": (config["x"] - 3) ** 2 + 2 - step}, step=step)
run.finish()
"#;

fn write(up: &Up, name: &str, text: &str) {
    std::fs::write(up.work().join(name), text).unwrap();
}

fn sweep(space: &str, job: &str) -> String {
    format!(
        "apiVersion: footplate/v1\nkind: Sweep\nname: parabola\nmetric: loss\ndirection: minimize\nsampler: grid\nparallel: 2\n\
         space:\n  x: {space}\njob:\n  run: {job}\n  resources: {{nodes: 1, slots: 1}}\n  env: {{vars: {{PYTHONPATH: {}}}}}\n",
        repository_root().join("libs/python").display()
    )
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn a_grid_runs_every_point_as_a_job_and_finds_the_best() {
    let up = Up::start(&[]);
    write(&up, "train.py", TRAIN);
    write(&up, "sweep.yaml", &sweep("{type: int, low: 1, high: 4}", "[python3, train.py]"));
    let id = up.done(&["sweep", "run", "-q", "--wait", "sweep.yaml"]).trim().to_owned();
    let shown = up.json(&["sweep", "show", &id[..10]]);
    assert_eq!((&shown["state"], &shown["complete"], &shown["best"]["number"]), (&"finished".into(), &4.into(), &3.into()), "{shown:#}");
    assert_eq!(shown["best"]["value"], 0.0, "the last value, not the first: {shown:#}");
    let best = shown["best"]["runId"].as_str().unwrap();
    let run = up.json(&["run", "show", best]);
    assert_eq!(run["params"]["x"]["json"], "3", "{run:#}");
    assert_eq!(run["tags"]["footplate.sweep"], id.as_str(), "{run:#}");
    assert_eq!(up.json(&["sweep", "list"])[0]["sweepId"], id.as_str());
    let refused = up.run(&["sweep", "stop", &id]);
    assert_eq!(code(&refused), Some(4), "a finished sweep: {}", String::from_utf8_lossy(&refused.stderr));
    up.done(&["replay", "--verify"]);
}

#[test]
fn a_stopped_sweep_ends_its_trials_and_bad_files_are_told_by_their_fields() {
    let up = Up::start(&[]);
    write(&up, "sleep.yaml", &sweep("{type: int, low: 1, high: 9}", "sleep 600"));
    let id = up.done(&["sweep", "run", "-q", "--no-source", "sleep.yaml"]).trim().to_owned();
    up.done(&["sweep", "stop", &id, "--cancel", "--reason", "enough"]);
    let waited = std::time::Instant::now();
    loop {
        let shown = up.json(&["sweep", "show", &id]);
        if shown["state"] == "stopped" {
            break;
        }
        assert!(waited.elapsed().as_secs() < 120, "waited in vain: {shown:#}");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    for (space, told) in [
        ("{type: float, low: 2, high: 1, step: 0.1}", "space.x.low"),
        ("{type: int, low: 1, high: 1000000000}", "1000000000 points"),
        ("{type: words}", "space.x.type"),
    ] {
        write(&up, "bad.yaml", &sweep(space, "'true'"));
        let output = up.run(&["sweep", "run", "--no-source", "bad.yaml"]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(code(&output) == Some(2) && text.contains(told), "{told}: {text}");
    }
    assert_eq!(code(&up.run(&["sweep", "show", &"ab".repeat(16)])), Some(3));
}
