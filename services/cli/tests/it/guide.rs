//! What the documents tell a stranger to type, typed against a real platform: the quick start and the demo.

use crate::up::{Up, clean};
use footplate_testkit::repository_root;
use std::process::Command;

/// The `$` lines of a guide, and the YAML block that it says to save as `job.yaml`.
fn script(guide: &str) -> (Vec<String>, String) {
    let lines = guide.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect();
    let yaml = guide.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap().to_owned();
    (lines, yaml)
}

#[test]
fn the_quick_start_does_what_it_says() {
    follow_the_quick_start(&Up::start(&[]));
}

/// Types every line of the quick start.
pub fn follow_the_quick_start(up: &Up) {
    let guide = std::fs::read_to_string(repository_root().join("docs/guides/quick-start.md")).unwrap();
    let (lines, yaml) = script(&guide);
    assert!(lines.len() >= 10, "{lines:?}");
    std::fs::write(up.work().join("job.yaml"), yaml).unwrap();
    let mut run = String::new();
    for line in lines {
        let line = line.replace("RUN", &run);
        // The guide's lines are for a shell: quotes and variables in single quotes.
        let words = shell_words(&line);
        assert_eq!(words[0], "footplate", "{line}");
        let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let out = up.done(&args);
        if args.contains(&"-q") {
            run = out.lines().next().unwrap().to_owned();
        }
        if args.contains(&"logs") {
            assert!(out.contains("hello from rank 0 of 2") && out.contains("hello from rank 1 of 2"), "{out}");
        }
    }
}

#[test]
fn the_guide_to_queues_does_what_it_says() {
    let up = Up::start(&[]);
    let guide = std::fs::read_to_string(repository_root().join("docs/guides/queues.md")).unwrap();
    let lines: Vec<&str> = guide.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert!(lines.len() >= 6, "{lines:?}");
    for line in lines {
        let words = shell_words(line);
        let out = up.done(&words[1..].iter().map(String::as_str).collect::<Vec<_>>());
        if line.ends_with("queue list") {
            let shown: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
            let names: Vec<&str> = shown.iter().skip(1).map(|cells| cells[0]).collect();
            assert_eq!(names, ["default", "speech", "vision", "birds", "cars"], "{out}");
            assert!(out.contains("\n  birds") && out.contains("0 of 2") && out.contains("1 slots"), "{out}");
        }
    }
    // What was typed last, in detail: the one job's decisions are followed to its end.
    let run = up.json(&["run", "list"])[0]["runId"].as_str().unwrap().to_owned();
    let told = up.done(&["job", "decisions", "-f", "--run", &run, "--from", "1", "-o", "json"]);
    let told: Vec<serde_json::Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = told.iter().map(|decision| decision["kind"].as_str().unwrap()).filter(|kind| *kind != "waiting").collect();
    assert_eq!(kinds, ["placed", "launched", "ended"], "{told:?}");
    let placed = told.iter().find(|decision| decision["kind"] == "placed").unwrap();
    assert_eq!((&placed["queue"], &placed["runId"]), (&"cars".into(), &run.as_str().into()));
    let lines = up.done(&["job", "decisions", "-n", "1", "--queue", "cars"]);
    assert!(lines.lines().count() == 1 && lines.contains("ended") && lines.contains("succeeded"), "{lines}");
    assert_eq!(up.done(&["job", "decisions", "-q", "--queue", "speech"]), "");
    let capacity = up.json(&["queue", "capacity"]);
    assert_eq!(capacity["idleNodes"], "1", "{capacity}");
    assert!(capacity["idle"][0]["idleSince"].as_str().is_some_and(|since| since.starts_with("20")), "{capacity}");
    assert!(up.done(&["queue", "capacity", "-A"]).contains("nothing waits for nodes"));
    let refused = up.run(&["submit", "--queue", "vision", "--", "true"]);
    assert_eq!(refused.status.code(), Some(4), "{}", String::from_utf8_lossy(&refused.stderr));
}

#[test]
fn the_guide_to_pipelines_does_what_it_says() {
    let up = Up::start(&[]);
    let guide = std::fs::read_to_string(repository_root().join("docs/guides/pipelines.md")).unwrap();
    let (lines, yaml) = script(&guide);
    assert!(lines.len() >= 8, "{lines:?}");
    std::fs::write(up.work().join("pipeline.yaml"), yaml).unwrap();
    let (mut run, mut printed) = (String::new(), Vec::new());
    for line in lines {
        let words = shell_words(&line.replace("RUN", &run));
        let out = up.done(&words[1..].iter().map(String::as_str).collect::<Vec<_>>());
        if line.contains(" -q ") {
            run = out.lines().last().unwrap().to_owned();
            printed.push(out);
        } else if line.ends_with("--dry-run") {
            let jobs: Vec<&str> = out.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
            assert_eq!(jobs, ["prepare", "train", "alarm", "report"], "{out}");
            assert!(out.contains("prepare, train:any"), "{out}");
        } else if line.ends_with("ps -a") {
            let told = |name: &str| out.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("no {name} in {out}"));
            assert!(told("report").contains("succeeded") && told("alarm").contains("cancelled"), "{out}");
        } else if line.contains("run list") {
            assert_eq!(out.lines().count(), 1 + 4, "{out}");
        }
    }
    assert_eq!(printed.len(), 4, "{printed:?}");
    assert_eq!(printed[2], printed[3], "the same key gives the same runs");
    assert_eq!(printed[2].lines().count(), 4);
}

#[test]
fn the_guide_to_arrays_does_what_it_says() {
    let up = Up::start(&[]);
    let guide = std::fs::read_to_string(repository_root().join("docs/guides/arrays.md")).unwrap();
    let (lines, yaml) = script(&guide);
    assert!(lines.len() >= 9, "{lines:?}");
    std::fs::write(up.work().join("array.yaml"), yaml).unwrap();
    let (mut run, mut printed) = (String::new(), Vec::new());
    for line in lines {
        let words = shell_words(&line.replace("RUN", &run));
        let out = up.done(&words[1..].iter().map(String::as_str).collect::<Vec<_>>());
        if line.contains(" -q ") {
            run = out.trim().to_owned();
            printed.push(run.clone());
        } else if line.ends_with("--dry-run") {
            assert!(out.contains("# an array of 6 jobs, at most 2 at a time"), "{out}");
        } else if line.contains("ps -a") {
            assert!(out.contains("digits-0") && out.matches("succeeded").count() == 6, "{out}");
        } else if line.contains("run list") {
            assert_eq!(out.lines().count(), 1 + 6, "{out}");
        }
    }
    assert_eq!((printed.len(), &printed[0]), (3, &printed[1]), "the same key gives the same array");
    let logs = up.done(&["run", "logs", &printed[0]]);
    assert_eq!(logs.trim(), "part 0 of 6");
}

#[test]
fn the_guide_to_roles_does_what_it_says() {
    let up = Up::start(&[]);
    let guide = std::fs::read_to_string(repository_root().join("docs/guides/roles.md")).unwrap();
    let (lines, yaml) = script(&guide);
    assert!(lines.len() >= 4, "{lines:?}");
    std::fs::write(up.work().join("roles.yaml"), yaml).unwrap();
    let (mut run, mut logs) = (String::new(), String::new());
    for line in lines {
        let words = shell_words(&line.replace("RUN", &run));
        let out = up.done(&words[1..].iter().map(String::as_str).collect::<Vec<_>>());
        if line.contains(" -q ") {
            run = out.trim().to_owned();
        } else if line.contains("logs") {
            logs = out;
        } else if line.ends_with("ps -a") {
            assert!(out.contains("worker 1x1 slots + ps 1x1 slots"), "{out}");
        }
    }
    assert!(logs.contains("worker 0 of 1 is rank 0 of 2"), "{logs}");
    let line = logs.lines().find_map(|line| line.split_once("the cluster is ")).unwrap_or_else(|| panic!("{logs}")).1;
    let config: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(config["task"], serde_json::json!({"type": "ps", "index": 0}));
    let port = |role: &str| config["cluster"][role][0].as_str().and_then(|address| address.rsplit_once(':')?.1.parse::<u16>().ok());
    assert!(port("worker").is_some() && port("ps").is_some() && port("worker") != port("ps"), "each has a port of its own: {config}");
    let job = &up.json(&["ps", "-a"])[0];
    assert_eq!((&job["roles"][1]["name"], &job["nodes"]), (&"ps".into(), &2.into()), "{job}");
}

/// Splits as a shell does where only blanks and single quotes matter.
pub fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

#[test]
fn the_demo_resumes_promotes_rolls_back_and_rebuilds_equal() {
    demo("local");
}

#[test]
fn the_demo_does_the_same_on_a_real_cassandra_and_a_real_s3_server() {
    demo("real");
}

fn demo(engines: &str) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("demo.json");
    let mut command = Command::new("python3");
    clean(&mut command);
    command.arg(repository_root().join("deploy/demo.py")).env("FOOTPLATE_BINARY", env!("CARGO_BIN_EXE_footplate"));
    let ended = command.env("FOOTPLATE_DEMO_JSON", &out).env("ENGINES", engines).env_remove("KEEP").output().unwrap();
    assert!(ended.status.success(), "{}\n{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    let result: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(out).unwrap()).unwrap();
    for key in ["ok", "rebuild_equal", "resumed_equal", "promoted", "subscriber_saw"] {
        assert_eq!(result[key], true, "{result}");
    }
    assert_eq!(result["engines"], engines, "{result}");
    assert!(result["first_line_ms"].as_u64().is_some_and(|millis| millis > 0), "{result}");
    let best = &result["best_trial"];
    assert!(best["number"].as_u64().is_some_and(|number| (1..=8).contains(&number)), "{result}");
    assert!(best["value"].as_f64().is_some_and(|accuracy| (0.9..=1.0).contains(&accuracy)), "{result}");
    assert!(best["run"].as_str().is_some_and(|run| run.len() == 32), "{result}");
    assert!(result["steps"].as_array().is_some_and(|steps| steps.len() >= 8), "{result}");
}
