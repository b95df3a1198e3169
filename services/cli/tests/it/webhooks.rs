//! Webhooks of a real platform: the guide, typed, with the receiver that it shows; addresses inside; a kill in the middle.

use crate::guide::shell_words;
use crate::up::{Up, free_port};
use footplate_api::{Client, Target, v1};
use footplate_testkit::{Process, eventually, repository_root};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
const INSIDE: &str = "webhooks.allow-inside";

fn guide() -> String {
    std::fs::read_to_string(repository_root().join("docs/guides/webhooks.md")).unwrap()
}

/// The receiver of the guide, as a process of its own.
fn receiver(up: &Up, name: &str, port: u16, secret: &str) -> Process {
    let guide = guide();
    let code = guide.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let file = up.folder.path().join(format!("{name}.py"));
    std::fs::write(&file, code).unwrap();
    let mut command = Command::new("python3");
    command.arg(file).env("PORT", port.to_string()).env("WEBHOOK_SECRET", secret);
    Process::start(name, command, up.folder.path()).unwrap()
}

/// What the receiver believed: sequence and type.
fn believed(receiver: &Process) -> Vec<(u64, String)> {
    let read = |line: &str| {
        let (sequence, rest) = line.split_once(' ')?;
        Some((sequence.parse().ok()?, rest.split_once(' ')?.0.to_owned()))
    };
    receiver.stdout().lines().filter_map(read).collect()
}

fn client(up: &Up) -> Client {
    let token = std::fs::read_to_string(up.folder.path().join("data/token")).unwrap();
    Client::connect(Target::new(up.addr.clone()).token(token.trim()).project("default")).unwrap()
}

async fn open_run(client: &Client, project: &str) {
    let asked = v1::CreateRunRequest { project: project.to_owned(), name: "r".to_owned(), ..Default::default() };
    client.once(client.runs().create_run(asked)).await.unwrap();
}

async fn created(client: &Client) -> Vec<u64> {
    let filter = v1::EventFilter { project: "default".into(), type_prefix: "footplate.run.created".into(), ..Default::default() };
    let asked = v1::ListEventsRequest { filter: Some(filter), page_size: 1_000, ..Default::default() };
    client.once(client.events().list_events(asked)).await.unwrap().events.iter().map(|event| event.sequence).collect()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn the_guide_on_webhooks_does_what_it_says_and_its_receiver_believes_nobody_else() {
    let up = Up::start(&[(INSIDE, "127.0.0.0/8".to_owned())]);
    let guide = guide();
    let lines: Vec<&str> = guide.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert!(lines.len() >= 7, "{lines:?}");
    let (runtime, port) = (runtime(), free_port());
    let url = format!("http://127.0.0.1:{port}/footplate");
    let mut process = None;
    for line in lines {
        let line = line.replace("https://hooks.example.org/footplate", &url);
        let words = shell_words(&line);
        let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let out = up.done(&args);
        match args[1] {
            "create" => {
                let secret = out.trim();
                assert!(secret.starts_with("fpwh_"), "{out}");
                let told = up.done(&["event", "tail", "-p", "default", "-n", "100", "-o", "json"]);
                assert!(told.contains("footplate.webhook.created.v1") && !told.contains(secret), "the ledger has no secret:\n{told}");
                let started = receiver(&up, "receiver", port, secret);
                let listens = || async { std::net::TcpStream::connect(("127.0.0.1", port)).ok() };
                runtime.block_on(eventually(SOON, "the receiver", listens));
                process = Some(started);
            }
            "test" => {
                assert!(out.contains("taken: 204"), "{out}");
                runtime.block_on(async {
                    let client = client(&up);
                    open_run(&client, "default").await;
                    up.done(&["project", "create", "speech"]);
                    open_run(&client, "speech").await;
                    open_run(&client, "default").await;
                    let wanted: Vec<u64> = created(&client).await;
                    let came = || async {
                        let came = believed(process.as_ref().unwrap());
                        (came.len() > wanted.len()).then_some(came)
                    };
                    let came = eventually(SOON, "the events", came).await;
                    assert_eq!(came[0], (0, "footplate.webhook.tested.v1".to_owned()));
                    assert_eq!(came[1..].iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(), wanted);
                });
            }
            "list" => assert!(out.contains("models") && out.contains("sending"), "{out}"),
            _ => {}
        }
    }
    // Nobody without the secret is believed, and the platform says what it was told.
    let wrong = free_port();
    up.done(&["webhook", "create", "wrong", &format!("http://127.0.0.1:{wrong}/")]);
    let _stranger = receiver(&up, "stranger", wrong, "fpwh_another");
    runtime.block_on(eventually(SOON, "the stranger", || async { std::net::TcpStream::connect(("127.0.0.1", wrong)).ok() }));
    let refused = up.run(&["webhook", "test", "wrong"]);
    let told = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(refused.status.code() == Some(1) && told.contains("not taken: answered 401"), "{told}");
}

#[test]
fn an_address_inside_is_refused_unless_it_is_allowed() {
    let (code, told) = Up::refused(&[(INSIDE, "10.0.0.0".to_owned())]);
    assert!(code == Some(2) && told.contains(INSIDE) && told.contains("10.1.0.0/16"), "{code:?} {told}");
    let up = Up::start(&[]);
    for url in ["http://127.0.0.1:7450/", "http://localhost/", "http://169.254.169.254/latest/meta-data", "http://[::1]/"] {
        let refused = up.run(&["webhook", "create", "ci", url]);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(4), "{url}: {told}");
        assert!(told.contains("WEBHOOK_ADDRESS_DENIED") && told.contains(INSIDE), "{url}: {told}");
    }
    assert_eq!(up.done(&["webhook", "list", "-q"]), "");
}

#[test]
fn a_kill_in_the_middle_loses_no_event() {
    let mut up = Up::start(&[(INSIDE, "127.0.0.0/8".to_owned())]);
    let (runtime, port) = (runtime(), free_port());
    let url = format!("http://127.0.0.1:{port}/");
    let secret = up.done(&["webhook", "create", "ci", &url, "--type", "footplate.run.created"]);
    let receiver = receiver(&up, "receiver", port, secret.trim());
    runtime.block_on(async {
        let client = client(&up);
        let opened = async {
            for _ in 0..150 {
                open_run(&client, "default").await;
            }
        };
        let halfway = eventually(SOON, "a part of the events", || async { (believed(&receiver).len() >= 40).then_some(()) });
        tokio::join!(opened, halfway);
        up.process.kill9().await.unwrap();
    });
    up.restart(&[(INSIDE, "127.0.0.0/8".to_owned())]);
    runtime.block_on(async {
        let client = client(&up);
        open_run(&client, "default").await;
        let wanted: BTreeSet<u64> = created(&client).await.into_iter().collect();
        assert_eq!(wanted.len(), 151);
        let whole =
            || async { (believed(&receiver).iter().map(|(sequence, _)| *sequence).collect::<BTreeSet<_>>() == wanted).then_some(()) };
        eventually(SOON, "every event", whole).await;
    });
}
