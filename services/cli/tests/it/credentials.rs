//! Who may connect to the broker of `up`, and that what an older one has stored is not lost to the new accounts.

use crate::up::Up;
use footplate_eventlog::jetstream::{ConnectError, JetStreamBroker, JetStreamConfig};
use footplate_eventlog::{Broker as _, StreamName};
use footplate_testkit::{Signal, nats};
use std::path::{Path, PathBuf};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

fn data(up: &Up) -> PathBuf {
    up.folder.path().join("data")
}

/// Where the broker of this folder listens.
fn address(up: &Up) -> String {
    let config = std::fs::read_to_string(data(up).join("nats/nats.conf")).unwrap();
    let listen = config.lines().find_map(|line| line.strip_prefix("listen: ")).unwrap();
    format!("nats://{}", listen.trim_matches('"'))
}

async fn stop(up: &Up) {
    up.process.signal(Signal::INT).unwrap();
    let status = up.process.wait(PATIENCE).await.unwrap();
    assert!(status.success(), "{status}\n{}", up.process.stderr());
}

/// The one account with streams.
fn account(store: &Path) -> PathBuf {
    let accounts = std::fs::read_dir(store.join("jetstream")).unwrap().map(|entry| entry.unwrap().path());
    let mut with_streams = accounts.filter(|account| account.join("streams/LEDGER").is_dir());
    let found = with_streams.next().unwrap();
    assert!(with_streams.next().is_none(), "two accounts have a ledger");
    found
}

fn taken_as_is(url: String) -> JetStreamConfig {
    let mut config = JetStreamConfig::single(url, "tests");
    config.manage_streams = false;
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_connects_without_credentials_and_an_older_ledger_is_taken_over_whole() {
    let mut up = Up::start(&[]);
    let refused = JetStreamBroker::connect(taken_as_is(address(&up))).await.unwrap_err();
    assert!(matches!(refused, ConnectError::NotPermitted { .. }), "{refused}");
    let looked = up.done(&["doctor", "--data", &data(&up).display().to_string(), "-o", "json"]);
    assert!(looked.contains("LEDGER") && !looked.contains("\"bad\""), "{looked}");
    let submitted = up.done(&["submit", "-q", "--wait", "--", "true"]);
    let run = submitted.lines().next().unwrap().to_owned();
    stop(&up).await;

    // As an older Footplate left it: no keys, and everything under the one account of a server without accounts.
    let store = data(&up).join("nats/store");
    std::fs::rename(account(&store), store.join("jetstream/$G")).unwrap();
    std::fs::remove_dir_all(data(&up).join("operator")).unwrap();
    std::fs::remove_dir_all(data(&up).join("nats/accounts")).unwrap();
    let old = nats().store(&store).start().await;
    let broker = JetStreamBroker::connect(taken_as_is(old.url())).await.unwrap();
    let before = broker.bounds(StreamName::Ledger).await.unwrap();
    assert!(before.last > 10, "{before:?}");
    // What the older one writes at its end is there, too.
    let settled = footplate_eventlog::Message {
        subject: "fp.settled.old.executor".to_owned(),
        headers: footplate_eventlog::Headers::default(),
        payload: "{}".into(),
    };
    broker.publish(StreamName::Settled, settled, footplate_eventlog::Expect::Any).await.unwrap();
    let settled = broker.bounds(StreamName::Settled).await.unwrap();
    drop(broker);
    old.stop().await.unwrap();

    up.restart(&[]);
    assert!(!store.join("jetstream/$G").exists() && account(&store).file_name().unwrap().to_string_lossy().starts_with('A'));
    assert!(up.done(&["run", "list", "-o", "json"]).contains(&run));
    up.done(&["replay", "--verify"]);
    stop(&up).await;
    let again = nats().store(&store).start().await;
    drop(again);

    // The keys are part of the data: without them nothing is begun anew beside what is there.
    std::fs::rename(account(&store), store.join("jetstream/$G")).unwrap();
    let old = nats().store(&store).start().await;
    let broker = JetStreamBroker::connect(taken_as_is(old.url())).await.unwrap();
    assert!(broker.bounds(StreamName::Ledger).await.unwrap().last > before.last, "the new one wrote on");
    assert!(broker.bounds(StreamName::Settled).await.unwrap().last >= settled.last);
}

#[test]
fn streams_whose_keys_are_gone_are_refused_and_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let ledger = home.path().join("data/nats/store/jetstream/AXYZ/streams/LEDGER");
    std::fs::create_dir_all(&ledger).unwrap();
    let program = footplate_testkit::nats_server_program().unwrap().display().to_string();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_footplate"));
    crate::up::clean(&mut command);
    let listen = format!("127.0.0.1:{}", crate::up::free_port());
    command.args(["up", "--listen", &listen, "--data"]).arg(home.path().join("data"));
    for (key, value) in [("nats.program", program), ("nats.port", crate::up::free_port().to_string())] {
        command.arg("--set").arg(format!("{key}={value}"));
    }
    let output = command.env("XDG_CONFIG_HOME", home.path()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{told}");
    assert!(told.contains("AXYZ") && told.contains("operator") && told.contains("--data"), "{told}");
    assert!(ledger.is_dir() && !home.path().join("data/operator").exists());
}
