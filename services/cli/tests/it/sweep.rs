//! A sweep from a file on a real platform: trials run as jobs, the best one is found, the ledger gives the same views again.

use crate::up::Up;
use footplate_testkit::repository_root;
use std::process::Output;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

const TRAIN: &str = r#"
import json, os, footplate
config = json.load(open(os.environ["FOOTPLATE_CONFIG"]))
run = footplate.init()
for step in range(3):
    run.log({"loss": (config["x"] - 3) ** 2 + 2 - step}, step=step)
run.finish()
"#;

/// Ends when a file is there; the loss of x = 2 is no number.
const PATIENT: &str = r#"
import json, os, sys, time, footplate
x = json.load(open(os.environ["FOOTPLATE_CONFIG"]))["x"]
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.05)
footplate.report(float("nan") if x == 2 else x, step=0)
footplate.finish()
"#;

/// Reports once, and ends when it is given up; the first ends at once.
const HOPELESS: &str = r#"
import json, os, sys, time, footplate
x = json.load(open(os.environ["FOOTPLATE_CONFIG"]))["x"]
footplate.report(x, step=1)
while x > 1 and not footplate.should_prune():
    time.sleep(0.05)
print("given up" if x > 1 else "well")
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

/// Waits until `footplate sweep show` says something.
fn shows(up: &Up, id: &str, what: &str, look: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    let began = std::time::Instant::now();
    loop {
        let shown = up.json(&["sweep", "show", id]);
        if look(&shown) {
            return shown;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}: {shown:#}");
        std::thread::sleep(Duration::from_millis(200));
    }
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
    // The guide's own file is one that could begin.
    let guide = std::fs::read_to_string(repository_root().join("docs/guides/sweeps.md")).unwrap();
    write(&up, "guide.yaml", guide.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap());
    up.done(&["sweep", "run", "--no-source", "--dry-run", "guide.yaml"]);
    let refused = up.run(&["sweep", "stop", &id]);
    assert_eq!(code(&refused), Some(4), "a finished sweep: {}", String::from_utf8_lossy(&refused.stderr));
    assert!(up.done(&["replay", "--verify"]).contains("sweeps"));
}

#[test]
fn a_stopped_sweep_ends_its_trials_and_bad_files_are_told_by_their_fields() {
    let up = Up::start(&[]);
    write(&up, "sleep.yaml", &sweep("{type: int, low: 1, high: 9}", "sleep 600"));
    let id = up.done(&["sweep", "run", "-q", "--no-source", "sleep.yaml"]).trim().to_owned();
    up.done(&["sweep", "stop", &id, "--cancel", "--reason", "enough"]);
    let stopped = shows(&up, &id, "it is stopped", |shown| shown["state"] == "stopped");
    assert_eq!((&stopped["stopReason"], stopped["complete"].as_u64()), (&"enough".into(), None), "{stopped:#}");
    for (space, told) in [
        ("{type: float, low: 2, high: 1, step: 0.1}", "space.x.low"),
        ("{type: int, low: 1, high: 1000000000}", "1000000000 points"),
        ("{type: words}", "space.x.type"),
        ("{type: float, low: .nan, high: 1, step: 0.1}", "space.x.low"),
    ] {
        write(&up, "bad.yaml", &sweep(space, "'true'"));
        let output = up.run(&["sweep", "run", "--no-source", "bad.yaml"]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(code(&output) == Some(2) && text.contains(told), "{told}: {text}");
    }
    let empty = sweep("{}", "'true'").replace("space:\n  x: {}", "space: {}");
    write(&up, "bad.yaml", &empty);
    let output = up.run(&["sweep", "run", "--no-source", "bad.yaml"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(code(&output) == Some(2) && text.contains("space: \"0 params\" is not allowed"), "{text}");
    assert_eq!(code(&up.run(&["sweep", "show", &"ab".repeat(16)])), Some(3));
}

#[test]
fn a_stopped_sweep_goes_on_after_a_restart_with_the_points_that_were_to_come() {
    let mut up = Up::start(&[]);
    let go = up.work().join("go");
    write(&up, "train.py", PATIENT);
    let file = sweep("{type: int, low: 1, high: 4}", "[python3, train.py]").replace("metric: loss", "metric: val/loss");
    write(&up, "sweep.yaml", &file.replace("vars: {", &format!("vars: {{GO: {}, ", go.display())));
    let id = up.done(&["sweep", "run", "-q", "sweep.yaml"]).trim().to_owned();
    shows(&up, &id, "two trials are under way", |shown| shown["suggested"] == 2);
    up.done(&["sweep", "stop", &id]);
    std::fs::write(&go, "").unwrap();
    let stopped = shows(&up, &id, "it is stopped", |shown| shown["state"] == "stopped");
    assert_eq!((&stopped["suggested"], &stopped["complete"], &stopped["failed"]), (&2.into(), &1.into(), &1.into()), "{stopped:#}");
    assert_eq!(stopped["trialList"][1]["message"], "val/loss is not a finite number", "{stopped:#}");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(up.process.kill9()).unwrap();
    up.restart(&[]);
    up.done(&["sweep", "resume", &id]);
    let finished = shows(&up, &id, "it is finished", |shown| shown["state"] == "finished");
    let points: Vec<&str> = finished["trialList"].as_array().unwrap().iter().map(|trial| trial["values"]["x"].as_str().unwrap()).collect();
    assert_eq!((points, &finished["best"]["number"]), (vec!["1", "2", "3", "4"], &1.into()), "{finished:#}");
    up.done(&["replay", "--verify"]);
}

#[test]
fn a_trial_without_hope_is_told_so_and_gives_its_place_to_the_next() {
    let up = Up::start(&[]);
    write(&up, "train.py", HOPELESS);
    let file = sweep("{type: int, low: 1, high: 3}", "[python3, train.py]").replace("parallel: 2", "parallel: 1\nrungs: [1]");
    write(&up, "sweep.yaml", &file.replace("rungs: [1]", "rungs: [1]\npruner: {type: median, startup: 1}"));
    let id = up.done(&["sweep", "run", "-q", "--wait", "sweep.yaml"]).trim().to_owned();
    let shown = up.json(&["sweep", "show", &id]);
    assert_eq!((&shown["complete"], &shown["pruned"], &shown["best"]["number"]), (&1.into(), &2.into(), &1.into()), "{shown:#}");
    let pruned = &shown["trialList"][2];
    assert!(pruned["message"].as_str().unwrap().contains("rung 1"), "{pruned:#}");
    assert_eq!(up.done(&["run", "logs", pruned["runId"].as_str().unwrap()]).trim(), "given up");
    up.done(&["replay", "--verify"]);
}
