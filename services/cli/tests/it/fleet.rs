//! The guide for the fleet, typed against a real platform: a node joins, works, and is taken out.

use crate::guide::shell_words;
use crate::up::{Up, clean, free_port};
use footplate_testkit::{Process, demo_python, repository_root};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a node may take to be as it should.
const PATIENCE: Duration = Duration::from_secs(90);

#[test]
fn a_node_joins_works_and_is_taken_out_as_the_guide_says() {
    let up = Up::start(&[]);
    let guide = std::fs::read_to_string(repository_root().join("docs/guides/fleet.md")).unwrap();
    let script = guide.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    std::fs::write(up.work().join("log.py"), script).unwrap();
    let python = demo_python().unwrap().display().to_string();
    let lines: Vec<&str> = guide.lines().filter_map(|line| line.strip_prefix("$ footplate ")).collect();
    assert!(lines.len() >= 11, "{lines:?}");
    let (mut agent, mut run) = (None, String::new());
    for line in lines {
        let token = || up.json(&["token", "list", "--for", "node:gpu-1"])[0]["id"].as_str().unwrap().to_owned();
        let line = line.replace("RUN", &run).replace("python3", &python);
        let line = if line.contains("TOKEN") { line.replace("TOKEN", &token()) } else { line };
        let words = shell_words(&line);
        let args: Vec<&str> = words.iter().map(String::as_str).collect();
        match args[..] {
            ["agent", ..] => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_footplate"));
                clean(&mut command);
                command.args(&args).current_dir(up.work()).arg("--set").arg(format!("admin.listen=127.0.0.1:{}", free_port()));
                agent = Some(Process::start("gpu-1", command, up.folder.path()).unwrap());
                let began = Instant::now();
                while !up.done(&["node", "list"]).lines().any(|line| line.contains("gpu-1") && line.contains("ready")) {
                    assert!(began.elapsed() < PATIENCE, "not ready: {}", agent.as_ref().unwrap().stderr());
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
            ["submit", ..] => run = up.done(&args).lines().next().unwrap().to_owned(),
            ["run", "logs", ..] => {
                let out = up.done(&args);
                assert!(out.contains("rank 0 of 2") && out.contains("rank 1 of 2"), "{out}");
            }
            ["run", "show", ..] => assert!(up.done(&args).contains("loss"), "the metric is in the record"),
            _ => drop(up.done(&args)),
        }
    }
    let agent = agent.unwrap();
    let began = Instant::now();
    while !["authorization", "permitted"].iter().any(|word| agent.stderr().to_lowercase().contains(word)) {
        assert!(began.elapsed() < PATIENCE, "the broker lets it in still: {}", agent.stderr());
        std::thread::sleep(Duration::from_millis(100));
    }
}
