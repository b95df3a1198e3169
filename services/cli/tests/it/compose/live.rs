//! The deployment, running: what a person, a pipeline and a curl do through the proxy; who serves what; what becomes of a service that goes away.

use super::stage::{Stage, ask, get};
use super::{routes, watched};
use crate::cluster::{PATIENCE, alone};
use bytes::Bytes;
use footplate_api::{Client, Target, v1};
use footplate_cli::platform::Service as Platform;
use footplate_eventlog::jetstream::{ConnectError, Credentials, JetStreamBroker, JetStreamConfig};
use footplate_eventlog::{Broker as _, Expect, Headers, Message, StreamName};
use footplate_service::Exit;
use footplate_testkit::{Process, eventually, repository_root};
use footplate_types::Digest;
use http_body_util::Full;
use hyper::Request;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

const PROJECT: &str = "default";
/// What is sent up and down whole: many times what the proxy holds of a stream.
const LARGE_BYTES: usize = 48 << 20;
const PIECE_BYTES: usize = 512 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn the_deployment_trains_streams_measures_and_outlives_a_service_behind_its_proxy() {
    let _alone = alone().await;
    let stage = Stage::start().await;
    let client = Client::connect(Target::new(stage.addr("proxy", 7450)).token(stage.token())).unwrap();
    let look = || async {
        let nodes = stage.cli(&["node", "list", "-o", "json"]).await;
        String::from_utf8_lossy(&nodes.stdout).contains("\"ready\"").then_some(())
    };
    eventually(PATIENCE, "node-1 is ready", look).await;
    routes_lead_to_who_serves(&stage).await;
    trains(&stage).await;
    a_stream_goes_both_ways(&client).await;
    bytes_of_any_size_pass(&client).await;
    cancelled(&stage).await;
    tls_as_the_file_has_it(&stage).await;
    everything_watched_is_exported(&stage).await;
    the_registry_gives_credentials_of_the_broker(&stage).await;
    a_service_that_is_away_is_told_and_comes_back(&stage, &client).await;
    follow_the_guide(&stage).await;
}

/// Each gRPC service is served by the one process that the proxy sends its calls to.
async fn routes_lead_to_who_serves(stage: &Stage) {
    let mut serving: BTreeMap<String, String> = BTreeMap::new();
    for platform in Platform::ALL {
        for service in routes::routes().keys() {
            let asked = json!({ "service": format!("footplate.api.v1.{service}") });
            let health = "grpc.health.v1.Health/Check";
            let answer = door(&stage.addr(platform.as_str(), 7450), health, &asked, None).await;
            if answer.1["status"] == "SERVING" {
                let other = serving.insert(service.clone(), platform.as_str().to_owned());
                assert_eq!(other, None, "{service} is served by two");
            }
        }
    }
    assert_eq!(serving, routes::routes());

    // Reflection and health through the proxy, whoever answers.
    let addr = stage.addr("proxy", 7450);
    let grpcurl = repository_root().join(".tools/grpc/bin/grpcurl");
    for _ in 0..Platform::ALL.len() {
        let output = Command::new(&grpcurl).args(["-plaintext", &addr, "list"]).output().unwrap();
        let listed = String::from_utf8(output.stdout).unwrap();
        for service in routes::routes().keys() {
            assert!(listed.contains(&format!("footplate.api.v1.{service}\n")), "{listed}");
        }
        assert_eq!(door(&addr, "grpc.health.v1.Health/Check", &json!({}), None).await, (200, json!({ "status": "SERVING" })));
    }
}

/// The example, as the guide has it: submitted, followed, waited for, looked at.
async fn trains(stage: &Stage) {
    // The proxy looks at the services once in a while: on a busy machine it may find one away for a moment. Whoever submits tries again then.
    let submit = || async {
        let output = stage.cli(&["submit", "-q", "job.yaml", "--set", "config.epochs=6"]).await;
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    };
    let run = eventually(PATIENCE, "the proxy has found the services, and a submit is taken", submit).await;
    let follow = stage.cli_command(&["run", "logs", "-f", &run]);
    let follow = Process::start("follow", follow, &stage.path().join("logs")).unwrap();
    let listed = stage.done(&["ps"]).await;
    assert!(listed.contains("digits"), "{listed}");
    stage.done(&["run", "wait", &run, "--timeout", "5m"]).await;
    let ended = eventually(PATIENCE, "the followed log ends", || async { follow.exit_status().unwrap() }).await;
    assert!(ended.success() && follow.stdout().contains("final_digest "), "{}{}", follow.stdout(), follow.stderr());

    let files = stage.json(&["artifact", "list", &run]).await.to_string();
    assert!(files.contains("model.npz"), "{files}");
    stage.done(&["artifact", "download", &format!("runs:/{run}/final_digest"), "--to", "downloaded"]).await;
    let addr = stage.addr("proxy", 7450);
    let asked = json!({ "project": PROJECT, "runId": run, "name": "val/acc" });
    let (status, history) = door(&addr, "footplate.api.v1.MetricService/GetHistory", &asked, Some(&stage.token())).await;
    assert_eq!(status, 200, "{history}");
    assert_eq!(history["points"].as_array().map(Vec::len), Some(6), "{history}");
    assert!(history["points"][5]["value"].as_f64().is_some_and(|accuracy| accuracy > 0.8), "{history}");
    // The door refuses in its own form, through the proxy too.
    let (status, refused) = door(&addr, "footplate.api.v1.MetricService/GetHistory", &asked, Some("fp_unknown")).await;
    assert_eq!((status, &refused["code"]), (401, &json!("unauthenticated")), "{refused}");
}

/// Downstream teams and nodes get credentials, since the registry has the operator's keys; what each process may not do it may not do here either.
async fn the_registry_gives_credentials_of_the_broker(stage: &Stage) {
    stage.done(&["subscription", "create", "team", "--from", "1", "--out", "team.creds"]).await;
    stage.done(&["node", "token", "node-2", "--api", "proxy:7450", "--nats", "nats://nats:4222", "--out", "node-2.join"]).await;
    let url = format!("nats://{}", stage.addr("nats", 4222));
    let connect = |credentials: Credentials| {
        let mut config = JetStreamConfig::single(url.clone(), "tests");
        config.inbox_prefix = matches!(credentials, Credentials::File(_)).then(|| "_INBOX_.scheduler".to_owned());
        (config.manage_streams, config.credentials) = (false, credentials);
        JetStreamBroker::connect(config)
    };
    let refused = connect(Credentials::None).await.unwrap_err();
    assert!(matches!(refused, ConnectError::NotPermitted { .. }), "{refused}");
    let scheduler = connect(Credentials::File(stage.path().join("secrets/scheduler/nats.creds"))).await.unwrap();
    let subject = format!("fp.ledger.default.run.{}", "0".repeat(32));
    let message = Message { subject: subject.clone(), headers: Headers::default(), payload: "{}".into() };
    let written = scheduler.publish(StreamName::Ledger, message, Expect::Any).await;
    // The broker says nothing to who may not ask.
    assert!(written.is_err(), "{written:?}");
    assert_eq!(scheduler.last(StreamName::Ledger, &subject).await.unwrap(), None);
    // Its project's events, and nothing of the platform's.
    let team = tokio::process::Command::new(repository_root().join(".tools/grpc/bin/nats"))
        .args(["--server", &url, "--creds", "team.creds", "consumer", "next", "LEDGER", "team", "--count", "1", "--ack", "--raw"])
        .current_dir(stage.work())
        .output()
        .await
        .unwrap();
    let told = String::from_utf8_lossy(&team.stdout).into_owned() + &String::from_utf8_lossy(&team.stderr);
    assert!(team.status.success() && told.contains('{'), "{told}");
}

/// What `docs/guides/deploy.md` says to type into the containers.
async fn follow_the_guide(stage: &Stage) {
    let guide = std::fs::read_to_string(repository_root().join("docs/guides/deploy.md")).unwrap();
    let lines: Vec<&str> = guide.lines().filter_map(|line| line.strip_prefix("$ docker compose ")).collect();
    assert!(lines.len() >= 7 && lines.last().unwrap().ends_with("replay --verify"), "{lines:?}");
    let mut run = String::new();
    for line in lines {
        let line = line.replace("RUN", &run).replace("TOKEN", &stage.token());
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["run", "--rm", "cli", words @ ..] => {
                let told = stage.done(words).await;
                if words.contains(&"-q") {
                    run = told.trim().to_owned();
                }
                assert_eq!(words.contains(&"logs"), told.contains("rank 0 of 2: starting"), "{told}");
            }
            ["exec", name, "/usr/local/bin/footplate", words @ ..] => {
                let told = stage.exec(name, words).await;
                assert!(told.contains("sync_interval: always") && !told.contains("BAD"), "{told}");
            }
            _ => panic!("not understood: {line}"),
        }
    }
}

/// A second batch goes up only after the first has been acknowledged: nothing is held back until an end.
async fn a_stream_goes_both_ways(client: &Client) {
    let asked = v1::CreateRunRequest { project: PROJECT.to_owned(), name: "streamed".to_owned(), ..v1::CreateRunRequest::default() };
    let run_id = client.once(client.runs().create_run(asked)).await.unwrap().run_id;
    let batch = |n: u64| v1::IngestRequest {
        project: PROJECT.to_owned(),
        run_id: run_id.clone(),
        session: "5e".repeat(16),
        n,
        series: vec![v1::SeriesPoints { name: "loss".to_owned(), points: vec![v1::Point { step: n as i64, time_ms: 0, value: 0.5 }] }],
        ..v1::IngestRequest::default()
    };
    let (batches, sent) = tokio::sync::mpsc::channel(1);
    batches.send(batch(1)).await.unwrap();
    let mut metrics = client.metrics();
    let opening = metrics.ingest(tokio_stream::wrappers::ReceiverStream::new(sent));
    let mut acks = tokio::time::timeout(PATIENCE, opening).await.unwrap().unwrap().into_inner();
    for n in 1..=3 {
        let ack = tokio::time::timeout(PATIENCE, acks.message()).await.unwrap().unwrap().unwrap();
        assert_eq!(ack.acked, n);
        if n < 3 {
            batches.send(batch(n + 1)).await.unwrap();
        }
    }
    drop(batches);
    assert!(tokio::time::timeout(PATIENCE, acks.message()).await.unwrap().unwrap().is_none());
}

async fn bytes_of_any_size_pass(client: &Client) {
    let content: Vec<u8> = (0..LARGE_BYTES).map(|at| (at % 251) as u8).collect();
    let digest = Digest::of(&content).to_string();
    let first = v1::UploadRequest { project: PROJECT.to_owned(), digest: digest.clone(), data: Vec::new() };
    let pieces: Vec<_> =
        content.chunks(PIECE_BYTES).map(|data| v1::UploadRequest { data: data.to_vec(), ..v1::UploadRequest::default() }).collect();
    let stream = tokio_stream::iter(std::iter::once(first).chain(pieces));
    tokio::time::timeout(PATIENCE, client.blobs().upload(stream)).await.unwrap().unwrap();
    let asked = v1::DownloadRequest { project: PROJECT.to_owned(), digest, from: 0 };
    let mut pieces = client.blobs().download(asked).await.unwrap().into_inner();
    let mut back = Vec::new();
    while let Some(piece) = tokio::time::timeout(PATIENCE, pieces.message()).await.unwrap().unwrap() {
        back.extend(piece.data);
    }
    assert!(back == content);
}

/// A training that is cancelled: the scheduler counts the stop.
async fn cancelled(stage: &Stage) {
    let run = stage.done(&["submit", "-q", "--", "sleep", "600"]).await.trim().to_owned();
    let look = || async { stage.json(&["run", "show", &run]).await.to_string().to_lowercase().contains("running").then_some(()) };
    eventually(PATIENCE, "it runs", look).await;
    stage.done(&["run", "cancel", &run]).await;
    let waited = stage.cli(&["run", "wait", &run]).await;
    assert_eq!(waited.status.code(), Some(i32::from(Exit::Cancelled.code())));
}

/// The proxy's own example of TLS, with the mark before it taken away, and a certificate as the guide makes one.
async fn tls_as_the_file_has_it(stage: &Stage) {
    let folder = stage.path().join("tls");
    std::fs::create_dir(&folder).unwrap();
    let make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -days 30 \
                -subj /CN=localhost -addext subjectAltName=DNS:localhost && cat cert.pem key.pem > tls.pem";
    let made = Command::new("sh").args(["-c", make]).current_dir(&folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let text = routes::text();
    assert_eq!(text.matches("\n    # bind ").count(), 1);
    let text =
        text.replace("\n    # bind ", "\n    bind ").replace("/run/footplate/tls.pem", &folder.join("tls.pem").display().to_string());
    std::fs::write(folder.join("haproxy.cfg"), text).unwrap();
    // An address on which nothing of this test listens: that of a container that is not started.
    let mut proxy = stage.proxy(&folder.join("haproxy.cfg"));
    proxy.env("FOOTPLATE_PROXY_HOST", stage.addr("grafana", 0).trim_end_matches(":0"));
    let proxy = Process::start("tls", proxy, &stage.path().join("logs")).unwrap();
    let grpcurl = |words: &[&str]| {
        let mut command = Command::new(repository_root().join(".tools/grpc/bin/grpcurl"));
        command.args(["-cacert", "cert.pem", "-authority", "localhost"]).args(words).current_dir(&folder);
        command.output().unwrap()
    };
    let addr = stage.addr("grafana", 7443);
    let look = || async { grpcurl(&[&addr, "list"]).status.success().then_some(()) };
    assert!(proxy.is_running(), "{}", proxy.stderr());
    eventually(PATIENCE, "TLS is spoken", look).await;
    let token = format!("authorization: Bearer {}", stage.token());
    let listed = grpcurl(&["-H", &token, "-d", "{}", &addr, "footplate.api.v1.NodeService/ListNodes"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("node-1"), "{}", String::from_utf8_lossy(&listed.stderr));
    assert!(
        !Command::new(repository_root().join(".tools/grpc/bin/grpcurl"))
            .args(["-plaintext", &addr, "list"])
            .output()
            .unwrap()
            .status
            .success()
    );
}

/// Every metric of the board and the alerts is there on what Prometheus reads, by its very name.
async fn everything_watched_is_exported(stage: &Stage) {
    let mut exported: BTreeSet<String> = BTreeSet::from(["up".to_owned()]);
    let mut read = BTreeSet::new();
    for (job, target) in watched::targets() {
        let (status, text) = get(&format!("http://{}/metrics", stage.target(&target))).await.unwrap();
        assert_eq!(status, 200, "{target}");
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        exported.extend(samples.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned));
        read.insert(target.split(':').next().unwrap().to_owned());
        assert!(["footplate", "agents", "proxy"].contains(&job.as_str()), "the alerts and the board know no job {job}");
    }
    let all: BTreeSet<String> =
        Platform::ALL.map(|service| service.as_str().to_owned()).into_iter().chain(["agent".into(), "proxy".into()]).collect();
    assert_eq!(read, all);
    for (place, query) in watched::queries() {
        for metric in watched::metrics_of(&query) {
            // Of what did not happen nothing is counted yet; nobody waits, and there is no GPU.
            let never = ["requeues_total", "preemptions_total", "wait_longest_seconds", "gpus", "gpus_fragmented"];
            let never = metric.strip_prefix("footplate_scheduler_").is_some_and(|name| never.contains(&name));
            assert!(never || exported.contains(&metric), "{place}: nobody exports {metric}");
        }
    }
}

/// Killed, a service is said to be away, to gRPC and to the door alike, the others answer, and it answers again once it is back.
async fn a_service_that_is_away_is_told_and_comes_back(stage: &Stage, client: &Client) {
    let sweeps = || async {
        client.once(client.sweeps().list_sweeps(v1::ListSweepsRequest { project: PROJECT.to_owned(), ..Default::default() })).await
    };
    sweeps().await.unwrap();
    stage.process("sweep").kill9().await.unwrap();
    let refused = sweeps().await.unwrap_err();
    assert_eq!(refused.exit(), Exit::Unavailable, "{refused}");
    let addr = stage.addr("proxy", 7450);
    let door_says = || async {
        let (status, said) =
            door(&addr, "footplate.api.v1.SweepService/ListSweeps", &json!({ "project": PROJECT }), Some(&stage.token())).await;
        assert_eq!(status, 503, "{said}");
        (said["code"] == "unavailable").then_some(())
    };
    eventually(PATIENCE, "the proxy has seen that it is away", door_says).await;
    stage.done(&["ps"]).await;
    stage.spawn("sweep");
    stage.becomes_healthy("sweep").await;
    eventually(PATIENCE, "it answers through the proxy again", || async { sweeps().await.ok() }).await;
}

/// A unary method over HTTP/1.1 and JSON.
async fn door(addr: &str, method: &str, asked: &Value, token: Option<&str>) -> (u16, Value) {
    let mut request = Request::post(format!("http://{addr}/{method}")).header("content-type", "application/json");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let answer = ask(request.body(Full::new(Bytes::from(asked.to_string()))).unwrap());
    let (status, body) = tokio::time::timeout(Duration::from_secs(60), answer).await.unwrap().unwrap();
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}
