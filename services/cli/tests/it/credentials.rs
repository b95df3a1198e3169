//! Who may connect to the broker of `up`, and that what an older one has stored is not lost to the new accounts.

use crate::cluster::{ANY_PORT, Cluster, PATIENCE, SERVICES, alone, binary};
use crate::up::Up;
use base64::Engine as _;
use footplate_api::{types::Outcome, v1};
use footplate_credentials::{MirrorLimits, Operator, ensure_project_mirror, now_seconds};
use footplate_eventlog::jetstream::{ConnectError, Credentials, JetStreamBroker, JetStreamConfig, SHARED_INBOX_PREFIX};
use footplate_eventlog::{Broker as _, StreamName};
use footplate_testkit::{Signal, eventually, nats};
use footplate_types::ProjectName;
use std::path::{Path, PathBuf};

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

/// What a user of a credentials file reads of the ledger of its account.
async fn ledger(url: &str, creds: &Path, filter: &str, inbox_prefix: Option<&str>) -> Vec<(u64, String, bytes::Bytes)> {
    let mut config = taken_as_is(url.to_owned());
    config.credentials = Credentials::File(creds.to_owned());
    config.inbox_prefix = inbox_prefix.map(str::to_owned);
    let broker = JetStreamBroker::connect(config).await.unwrap();
    let page = broker.read(StreamName::Ledger, filter, 1, 10_000).await.unwrap();
    page.messages.into_iter().map(|stored| (stored.sequence, stored.subject, stored.payload)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_of_a_project_sees_its_part_of_the_ledger_of_up_and_still_does_after_a_restart() {
    let mut up = Up::start(&[]);
    let project = ProjectName::parse("default").unwrap();
    let operator = Operator::open(&data(&up).join("operator")).unwrap();
    ensure_project_mirror(&address(&up), &operator, &project, &MirrorLimits::default(), now_seconds()).await.unwrap();
    let team = up.folder.path().join("team.creds");
    operator.project(&project).subscriber("team", now_seconds(), None).write(&team).unwrap();
    up.done(&["submit", "-q", "--wait", "--", "true"]);
    for restarted in [false, true] {
        if restarted {
            stop(&up).await;
            up.restart(&[]);
            up.done(&["submit", "-q", "--wait", "--", "true"]);
        }
        let url = address(&up);
        let own = data(&up).join("nats/up.creds");
        let whole = ledger(&url, &own, "fp.ledger.default.>", Some(SHARED_INBOX_PREFIX)).await;
        let follows = || async { (ledger(&url, &team, "fp.ledger.>", None).await.len() >= whole.len()).then_some(()) };
        eventually(PATIENCE, "the mirror has what the ledger has", follows).await;
        let mirrored = ledger(&url, &team, "fp.ledger.>", None).await;
        assert!(whole.len() > 5 && mirrored[..whole.len()] == whole[..], "{} and {}", whole.len(), mirrored.len());
        assert!(mirrored.iter().all(|(_, subject, _)| subject.starts_with("fp.ledger.default.")), "nothing of the platform's own");
    }
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

/// Runs a verb that must succeed; gives its JSON.
fn done(home: &Path, words: &[&str]) -> serde_json::Value {
    let output = binary(home).args(words).args(["-o", "json"]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_works_when_everybody_has_credentials_of_their_own_and_who_is_revoked_is_out() {
    let _alone = alone().await;
    let home = tempfile::tempdir().unwrap();
    let (operator, creds) = (home.path().join("operator"), home.path().join("creds"));
    std::fs::create_dir_all(&creds).unwrap();
    let (folder, accounts) = (operator.display().to_string(), home.path().join("accounts").display().to_string());
    let made = done(home.path(), &["nats", "init", &folder, "--accounts-dir", &accounts]);
    let again = done(home.path(), &["nats", "init", &folder, "--accounts-dir", &accounts]);
    assert_eq!(made, again, "the keys are kept");
    let config = std::fs::read_to_string(made["config"].as_str().unwrap()).unwrap();
    let mut users = std::collections::BTreeMap::new();
    for (kind, name) in SERVICES.iter().map(|name| ("--service", *name)).chain([("--node", "n1"), ("--node", "n2")]) {
        let out = creds.join(format!("{name}.creds")).display().to_string();
        let made = done(home.path(), &["nats", "creds", "--operator", &folder, kind, name, "--out", &out]);
        users.insert(name, made["user"].as_str().unwrap().to_owned());
    }
    let nats = nats().config(&config).start().await;
    let url = nats.url();
    let cluster = Cluster::start_as(nats, Some(creds.clone()), &["n1", "n2"], &[]).await;
    let run = cluster.submit(home.path(), &["--", "true"]).await;
    assert_eq!(cluster.sealed(&run).await.outcome(), Outcome::Succeeded);
    let listed = done(home.path(), &["nats", "streams", "--operator", &folder, "--nats", &url, "--set", "nats.disk=2GiB"]);
    assert_eq!(listed.as_array().unwrap().len(), StreamName::ALL.len());

    // Its credentials are good for nobody else, and voided they are good for nothing.
    let other = creds.join("n2.creds").display().to_string();
    done(home.path(), &["nats", "revoke", "--operator", &folder, "--nats", &url, "--creds", &other]);
    let node = || async {
        let listed = cluster.client.nodes().list_nodes(v1::ListNodesRequest::default()).await.ok()?.into_inner();
        listed.nodes.into_iter().find(|node| node.name == "n2" && node.state == "lost")
    };
    eventually(PATIENCE, "the node whose credentials are void falls silent and is given up", node).await;
    let run = cluster.submit(home.path(), &["--", "true"]).await;
    assert_eq!(cluster.sealed(&run).await.outcome(), Outcome::Succeeded, "the others work on");
    cluster.assert_rebuild_equal().await;
    // With other settings than its streams have, a service says who can change them.
    let elsewhere = home.path().join("elsewhere").display().to_string();
    let tracker = format!("nats.credentials={}", creds.join("tracker.creds").display());
    let words = ["serve", "tracker", "--nats", &url, "--data", &elsewhere, "--listen", ANY_PORT, "--admin", ANY_PORT, "--set", &tracker];
    let output = binary(home.path()).args(words).args(["--set", "nats.disk=3GiB"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(5) && told.contains("footplate nats streams"), "{told}");
}

#[test]
fn an_operators_folder_that_is_not_there_or_not_whole_is_told_of() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("operator").display().to_string();
    let told = |words: &[&str]| {
        let output = binary(home.path()).args(words).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let creds = ["nats", "creds", "--operator", &folder, "--node", "n1"];
    let (code, absent) = told(&creds);
    assert!(code == Some(3) && absent.contains("footplate nats init"), "{absent}");
    done(home.path(), &["nats", "init", &folder]);
    let output = binary(home.path()).args(creds).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("BEGIN USER NKEY SEED"));
    std::fs::remove_file(home.path().join("operator/operator.seed")).unwrap();
    let (code, broken) = told(&creds);
    assert!(code == Some(4) && broken.contains("operator.seed"), "{broken}");
    let (code, both) = told(&["nats", "creds", "--operator", &folder, "--node", "n1", "--service", "tracker"]);
    assert_eq!(code, Some(2), "{both}");
}

#[test]
fn only_a_tracker_that_is_to_let_runs_go_may_remove_from_the_ledger() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("operator").display().to_string();
    done(home.path(), &["nats", "init", &folder]);
    let may = |more: &[&str]| {
        let out = home.path().join("made.creds");
        done(home.path(), &[&["nats", "creds", "--operator", &folder, "--out", &out.display().to_string()], more].concat());
        let text = std::fs::read_to_string(out).unwrap();
        let claims = text.lines().nth(1).unwrap().split('.').nth(1).unwrap().to_owned();
        let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).unwrap();
        String::from_utf8(claims).unwrap().contains("$JS.API.STREAM.PURGE.LEDGER")
    };
    assert!(may(&["--service", "tracker", "--lets-go"]));
    assert!(!may(&["--service", "tracker"]));
    for who in [["--service", "scheduler"], ["--node", "n1"]] {
        let words = [&["nats", "creds", "--operator", &folder], who.as_slice(), &["--lets-go"]].concat();
        assert_eq!(binary(home.path()).args(words).output().unwrap().status.code(), Some(2), "{who:?}");
    }
}
