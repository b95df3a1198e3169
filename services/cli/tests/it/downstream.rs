//! Who follows a project's events with clients that no one here wrote, and a node that joins with one file.

use crate::guide::shell_words;
use crate::up::{Up, clean, free_port};
use footplate_testkit::{Process, repository_root};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// A program of the clients that guides are tested with.
fn client(name: &str) -> PathBuf {
    let program = repository_root().join(".tools/grpc/bin").join(name);
    assert!(program.is_file(), "{} is missing; get it with: make setup-grpc", program.display());
    program
}

/// Runs a foreign program where the guide's files lie.
fn foreign(up: &Up, program: &str, args: &[&str], broker: &str) -> Output {
    let mut command = Command::new(client(program));
    clean(&mut command);
    command
        .args(args)
        .current_dir(up.work())
        .env("NATS_URL", broker)
        .env("XDG_CONFIG_HOME", up.folder.path().join("config"))
        .output()
        .unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Waits until a command says what it should.
fn until(what: &str, mut look: impl FnMut() -> Result<(), String>) {
    let began = Instant::now();
    loop {
        match look() {
            Ok(()) => return,
            Err(why) => assert!(began.elapsed() < PATIENCE, "{what}: {why}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_team_follows_a_project_with_clients_of_its_own_as_the_guide_says() {
    let up = Up::start(&[]);
    let guide = std::fs::read_to_string(repository_root().join("docs/guides/downstream.md")).unwrap();
    let python = guide.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    std::fs::write(up.work().join("follow.py"), python).unwrap();
    let lines: Vec<&str> = guide.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert!(lines.len() >= 9, "{lines:?}");
    let (mut broker, mut heard, mut followed) = (String::new(), String::new(), false);
    for line in lines {
        let words = shell_words(line);
        let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        match words[0].as_str() {
            "footplate" => {
                if args.contains(&"delete") {
                    // Before it is taken back: Python hears what the command line has left.
                    up.done(&["project", "revoke", "vision", "user:rosa"]);
                    until("Python hears it", || {
                        let output = foreign(&up, "python", &["follow.py"], &broker);
                        let text = told(&output);
                        if output.status.success() && text.contains("footplate.project.role-taken.v1") { Ok(()) } else { Err(text) }
                    });
                    followed = true;
                }
                let out = up.done(&args);
                if let Some(line) = out.lines().find(|line| line.starts_with("broker ")) {
                    broker = line.split_whitespace().nth(1).unwrap().to_owned();
                }
            }
            "nats" => until(line, || {
                let output = foreign(&up, "nats", &args, &broker);
                let text = told(&output);
                heard.push_str(&text);
                if output.status.success() { Ok(()) } else { Err(text) }
            }),
            other => panic!("not understood: {other}"),
        }
    }
    assert!(followed);
    for word in ["footplate.project.created.v1", "footplate.project.role-given.v1", "ce-actor", "user:rosa"] {
        assert!(heard.contains(word), "{word} is missing in:\n{heard}");
    }
    let refused = foreign(&up, "nats", &["--creds", "audit.creds", "--timeout", "3s", "stream", "info", "LEDGER"], &broker);
    assert!(!refused.status.success(), "what was taken back is void: {}", told(&refused));
    // Taken back, it may be made again under its name.
    up.done(&["-p", "vision", "subscription", "create", "audit", "--out", "again.creds"]);
    let out = up.run(&["-p", "vision", "subscription", "create", "audit", "--out", "twice.creds"]);
    assert_eq!(out.status.code(), Some(4), "{}", told(&out));
    assert!(told(&out).contains("delete it and make it again"), "{}", told(&out));
    let out = up.run(&["-p", "vision", "subscription", "create", "other", "--aggregate", "modle", "--out", "other.creds"]);
    assert_eq!(out.status.code(), Some(2), "{}", told(&out));
    assert!(told(&out).contains("model-version"), "what is allowed is named: {}", told(&out));
    let out = up.run(&["-p", "vision", "subscription", "delete", "nobody"]);
    assert_eq!(out.status.code(), Some(3), "{}", told(&out));
}

#[test]
fn a_subscriber_sees_its_own_project_and_no_other() {
    let up = Up::start(&[("subscriptions.bytes", "32MiB".to_owned())]);
    for project in ["vision", "speech"] {
        up.done(&["project", "create", project]);
        let out = up.json(&["-p", project, "subscription", "create", "all", "--from", "1", "--out", &format!("{project}.creds")]);
        assert_eq!(out["stream"], "LEDGER", "{out}");
    }
    // Of its disk the broker keeps what it needs itself.
    let mut told_of_no_room = false;
    for n in 0..20 {
        let project = format!("p{n}");
        up.done(&["project", "create", &project]);
        let out = up.run(&["-p", &project, "subscription", "create", "all", "--out", &format!("{project}.creds")]);
        if !out.status.success() {
            assert_eq!(out.status.code(), Some(4), "{}", told(&out));
            assert!(told(&out).contains("no room") && told(&out).contains("subscriptions.bytes"), "{}", told(&out));
            told_of_no_room = true;
            break;
        }
    }
    assert!(told_of_no_room, "the disk has an end");
    let broker = up.json(&["-p", "vision", "subscription", "list"])[0]["brokerAddress"].as_str().unwrap().to_owned();
    let mut heard = String::new();
    until("vision's own", || {
        let output =
            foreign(&up, "nats", &["--creds", "vision.creds", "consumer", "next", "LEDGER", "all", "--count", "2", "--ack"], &broker);
        heard.push_str(&told(&output));
        if heard.contains("footplate.subscription.created.v1") { Ok(()) } else { Err(heard.clone()) }
    });
    assert!(heard.contains("fp.ledger.vision.project.vision") && !heard.contains("speech"), "{heard}");
    for args in [
        &["--creds", "vision.creds", "--timeout", "2s", "pub", "fp.ledger.vision.project.vision", "forged"][..],
        &["--creds", "vision.creds", "--timeout", "2s", "stream", "purge", "LEDGER", "--force"],
        &["--creds", "vision.creds", "--timeout", "2s", "stream", "rm", "LEDGER", "--force"],
        &["--creds", "vision.creds", "--timeout", "2s", "stream", "info", "METRICS"],
    ] {
        let output = foreign(&up, "nats", args, &broker);
        let text = told(&output);
        assert!(!output.status.success() || text.to_lowercase().contains("violation"), "{args:?}: {text}");
    }
}

#[test]
fn a_node_joins_with_one_file_and_is_shut_out_with_its_token() {
    let up = Up::start(&[]);
    up.done(&["node", "token", "gpu-1", "--out", "gpu-1.join", "--expires", "1d"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_footplate"));
    clean(&mut command);
    command.args(["agent", "--join", "gpu-1.join", "--slots", "1", "--set"]).arg(format!("admin.listen=127.0.0.1:{}", free_port()));
    command.arg("--data").arg(up.folder.path().join("gpu-1")).current_dir(up.work());
    let agent = Process::start("gpu-1", command, up.folder.path()).unwrap();
    let state = || {
        let nodes = up.json(&["node", "list"]);
        let node = nodes.as_array().unwrap().iter().find(|node| node["name"] == "gpu-1").cloned();
        node.map(|node| node["state"].as_str().unwrap().to_owned())
    };
    until(
        "gpu-1 is ready",
        || if state().as_deref() == Some("ready") { Ok(()) } else { Err(format!("{:?}\n{}", state(), agent.stderr())) },
    );
    let run = up.done(&["submit", "-q", "--nodes", "2", "--slots", "1", "--", "sh", "-c", "echo hello from $RANK"]);
    let run = run.lines().next().unwrap();
    up.done(&["run", "wait", run]);
    let token = up.json(&["token", "list", "--for", "node:gpu-1"])[0]["id"].as_str().unwrap().to_owned();
    up.done(&["token", "revoke", &token, "--reason", "sold"]);
    until("the broker has shut it out", || {
        let said = agent.stderr();
        if said.to_lowercase().contains("authorization") || said.to_lowercase().contains("permitted") { Ok(()) } else { Err(said) }
    });
}
