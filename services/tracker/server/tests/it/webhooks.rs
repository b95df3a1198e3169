//! Webhooks against a real HTTP receiver: what it gets, in which order, how often; and whom nobody reaches.

use crate::world::*;
use footplate_api::{ApiError, v1};
use footplate_testkit::eventually;
use footplate_tracker_server::{AllowedInside, Lookup, WebhookConfig, WebhookKey, WebhookRetry};
use footplate_types::Millis;
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One request that came.
#[derive(Clone, Debug)]
struct Got {
    headers: hyper::HeaderMap,
    body: Bytes,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn sequence(&self) -> u64 {
        self.header("footplate-sequence").parse().unwrap()
    }
}

/// What the receiver does with the request number n (from 0); `None` breaks the connection.
type Answers = dyn Fn(usize, &Got) -> Option<u16> + Send + Sync;

/// A receiver of webhooks.
struct Receiver {
    address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
}

impl Receiver {
    async fn start(answers: impl Fn(usize, &Got) -> Option<u16> + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, got) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let (kept, answers): (_, Arc<Answers>) = (got.clone(), Arc::new(answers));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (kept, answers) = (kept.clone(), answers.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    let (kept, answers) = (kept.clone(), answers.clone());
                    async move {
                        let headers = request.headers().clone();
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        let got = Got { headers, body };
                        let number = {
                            let mut kept = kept.lock().unwrap();
                            kept.push(got.clone());
                            kept.len() - 1
                        };
                        let status = answers(number, &got).ok_or_else(|| io::Error::other("the receiver broke the connection"))?;
                        let answer = Response::builder().status(status).header("location", "http://127.0.0.1:1/elsewhere");
                        Ok::<_, io::Error>(answer.body(Full::new(Bytes::from("x".repeat(100_000)))).unwrap())
                    }
                });
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, got }
    }

    async fn taking() -> Self {
        Self::start(|_, _| Some(204)).await
    }

    fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    fn sequences(&self) -> Vec<u64> {
        self.got().iter().map(Got::sequence).collect()
    }

    /// Waits for this many requests.
    async fn wait(&self, count: usize) -> Vec<Got> {
        eventually(SOON, "the receiver's requests", || async { Some(self.got()).filter(|got| got.len() >= count) }).await
    }

    /// Waits until an event was taken.
    async fn took(&self, sequence: u64) {
        eventually(SOON, "the event", || async { self.sequences().contains(&sequence).then_some(()) }).await;
    }
}

fn config(allowed: &str, give_up_ms: u64) -> WebhookConfig {
    WebhookConfig {
        key: WebhookKey::new("the platform's own"),
        allowed_inside: AllowedInside::parse(allowed).unwrap(),
        retry: WebhookRetry { first: Millis(20), most: Millis(100), give_up: Millis(give_up_ms) },
        within: Duration::from_secs(2),
        ..WebhookConfig::default()
    }
}

async fn world(webhooks: WebhookConfig) -> World {
    let mut world = World::new().await;
    world.config.webhooks = webhooks;
    world.restart().await;
    world
}

async fn local() -> World {
    world(config("127.0.0.0/8", 60_000)).await
}

impl World {
    async fn hook(&self, name: &str, url: &str, types: &[&str], from: u64) -> Result<v1::CreateWebhookResponse, ApiError> {
        let types = types.iter().map(|text| (*text).to_owned()).collect();
        let asked = v1::CreateWebhookRequest {
            project: PROJECT.into(),
            name: name.into(),
            url: url.into(),
            types,
            from_sequence: from,
            request_id: String::new(),
        };
        self.client().once(self.client().webhooks().create_webhook(asked)).await
    }

    async fn shown(&self, name: &str) -> v1::GetWebhookResponse {
        let at_least = self.ledger.end().await.unwrap();
        let asked = v1::GetWebhookRequest { project: PROJECT.into(), name: name.into(), at_least, deliveries: 0 };
        self.client().once(self.client().webhooks().get_webhook(asked)).await.unwrap()
    }

    async fn in_state(&self, name: &str, state: &str) -> v1::Webhook {
        let look = || async { self.shown(name).await.webhook.filter(|webhook| webhook.state == state) };
        eventually(SOON, &format!("{name} is {state}"), look).await
    }

    /// The sequences of the project's events of a type, from the ledger itself.
    async fn wanted(&self, type_prefix: &str, from: u64) -> Vec<u64> {
        let filter = v1::EventFilter { project: PROJECT.into(), type_prefix: type_prefix.into(), ..Default::default() };
        let asked = v1::ListEventsRequest { filter: Some(filter), from_sequence: from, page_size: 1_000, newest_first: false };
        let listed = self.client().once(self.client().events().list_events(asked)).await.unwrap();
        listed.events.iter().map(|event| event.sequence).collect()
    }

    async fn run_of(&self, project: &str) {
        let asked = v1::CreateRunRequest { project: project.into(), name: "r".into(), ..Default::default() };
        self.client().once(self.client().runs().create_run(asked)).await.unwrap();
    }
}

/// Checks a signature by the scheme that the guide tells, and not by the platform's own code.
fn is_signed(got: &Got, secret: &str) -> bool {
    let (time, mark) = got.header("footplate-signature").split_once(",v1=").unwrap();
    let text = [time.strip_prefix("t=").unwrap().as_bytes(), b".", &got.body].concat();
    let mark: Vec<u8> = (0..mark.len()).step_by(2).map(|at| u8::from_str_radix(&mark[at..at + 2], 16).unwrap()).collect();
    ring::hmac::verify(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes()), &text, &mark).is_ok()
}

#[tokio::test]
async fn the_projects_wanted_events_come_in_order_signed_as_they_stand_in_the_ledger_and_no_others() {
    let (world, receiver) = (local().await, Receiver::taking().await);
    world.create("before").await;
    let made = world.hook("ci", &receiver.url(), &["footplate.run.created", "footplate.run.finished"], 0).await.unwrap();
    let runs = [world.create("one").await, world.create("two").await];
    world.run_of("speech").await;
    world.finish(&runs[1], Vec::new()).await;
    world.finish(&runs[0], Vec::new()).await;
    world.create("last").await;
    let mut wanted = world.wanted("footplate.run.created", made.from_sequence).await;
    wanted.extend(world.wanted("footplate.run.finished", made.from_sequence).await);
    wanted.sort_unstable();
    assert_eq!(wanted.len(), 5);
    let got = receiver.wait(wanted.len()).await;
    assert_eq!(receiver.sequences(), wanted);
    for got in &got {
        assert!(is_signed(got, &made.secret), "{got:?}");
        assert!(!is_signed(&Got { body: "{}".into(), ..got.clone() }, &made.secret));
        let asked = v1::GetEventRequest { sequence: got.sequence(), project: PROJECT.into(), ..Default::default() };
        let event = world.client().once(world.client().events().get_event(asked)).await.unwrap();
        assert_eq!((event.id.as_str(), event.r#type.as_str()), (got.header("ce-id"), got.header("ce-type")));
        assert_eq!(event.data.as_bytes(), &got.body[..]);
        assert_eq!((got.header("ce-specversion"), got.header("content-type")), ("1.0", "application/json"));
        assert_eq!((got.header("footplate-attempt"), got.header("footplate-ledger-subject")), ("1", event.subject.as_str()));
    }
    let seen = eventually(SOON, "the log", || async { Some(world.shown("ci").await).filter(|shown| shown.deliveries.len() == 5) }).await;
    assert_eq!(seen.deliveries.iter().rev().map(|delivery| delivery.sequence).collect::<Vec<_>>(), wanted);
    assert!(seen.deliveries.iter().all(|delivery| delivery.status == 204 && delivery.error.is_empty()));
}

#[tokio::test]
async fn what_is_not_taken_is_tried_again_under_the_same_id_and_holds_up_nobody_else() {
    let world = local().await;
    let slow = Receiver::start(|number, _| [Some(500), None, Some(302), Some(204)].get(number).copied().unwrap_or(Some(204))).await;
    let other = Receiver::taking().await;
    let types = ["footplate.run.created"];
    let made = world.hook("slow", &slow.url(), &types, 0).await.unwrap();
    world.hook("other", &other.url(), &types, 0).await.unwrap();
    for name in ["one", "two"] {
        world.create(name).await;
    }
    let wanted = world.wanted(types[0], made.from_sequence).await;
    other.took(wanted[1]).await;
    let got = slow.wait(5).await;
    assert_eq!(slow.sequences(), [wanted[0], wanted[0], wanted[0], wanted[0], wanted[1]], "in order, one at a time");
    let ids: BTreeSet<&str> = got[..4].iter().map(|got| got.header("footplate-delivery")).collect();
    assert_eq!(ids.len(), 1);
    assert_ne!(got[4].header("footplate-delivery"), got[0].header("footplate-delivery"));
    assert_eq!(got.iter().map(|got| got.header("footplate-attempt")).collect::<Vec<_>>(), ["1", "2", "3", "4", "1"]);
    let shown = eventually(SOON, "the log", || async { Some(world.shown("slow").await).filter(|shown| shown.deliveries.len() == 5) }).await;
    let told: Vec<_> = shown.deliveries.iter().rev().map(|delivery| (delivery.status, delivery.error.as_str())).collect();
    assert_eq!(told[0], (500, "answered 500 Internal Server Error"));
    assert!(told[1].0 == 0 && told[1].1.contains("the connection broke"), "{told:?}");
    assert_eq!(told[2], (302, "answered 302 Found"), "a redirect is not followed");
    assert_eq!(told[3..], [(204, ""), (204, "")]);
}

#[tokio::test]
async fn after_a_restart_it_goes_on_and_nothing_is_lost() {
    let mut world = local().await;
    let refusing = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let refuses = refusing.clone();
    let receiver = Receiver::start(move |_, _| Some(if refuses.load(Ordering::SeqCst) { 503 } else { 200 })).await;
    let types = ["footplate.run.created"];
    let made = world.hook("ci", &receiver.url(), &types, 0).await.unwrap();
    for round in 0..3 {
        for n in 0..10 {
            world.create(&format!("{round} {n}")).await;
        }
        // In the middle of tries that fail, of deliveries, and when everything is delivered.
        match round {
            0 => receiver.took(world.wanted(types[0], made.from_sequence).await[3]).await,
            1 => {
                refusing.store(true, Ordering::SeqCst);
                world.create("refused").await;
                world.in_state("ci", "failing").await;
            }
            _ => receiver.took(*world.wanted(types[0], made.from_sequence).await.last().unwrap()).await,
        }
        world.restart().await;
        refusing.store(false, Ordering::SeqCst);
    }
    world.create("after").await;
    let wanted = world.wanted(types[0], made.from_sequence).await;
    receiver.took(*wanted.last().unwrap()).await;
    let firsts: Vec<u64> = {
        let mut seen = BTreeSet::new();
        receiver.sequences().into_iter().filter(|sequence| seen.insert(*sequence)).collect()
    };
    assert_eq!(firsts, wanted, "each at least once, the first of each in order");
}

/// The ledger was put back from a copy that ends earlier, and has grown on: what stands at the sequences that were delivered is something else.
#[tokio::test]
async fn a_journal_of_another_ledger_is_not_believed() {
    let mut world = local().await;
    let receiver = Receiver::taking().await;
    let types = ["footplate.run.created"];
    let made = world.hook("ci", &receiver.url(), &types, 0).await.unwrap();
    world.create("first").await;
    let wanted = world.wanted(types[0], made.from_sequence).await;
    receiver.took(wanted[0]).await;
    world.tracker.take().unwrap().stop().await;
    let file = world.folder.path().join(format!("objects/webhooks/{PROJECT}/ci.json"));
    let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let written = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut other = kept.clone();
        change(&mut other);
        std::fs::write(&file, other.to_string()).unwrap();
    };
    let times: [&dyn Fn(&mut serde_json::Value); 3] = [
        &|journal| journal["landmark"]["recorded"] = "2020-01-01T00:00:00.000000000Z".into(),
        &|journal| journal["landmark"]["ledger"] = "2020-01-01T00:00:00.000000000Z".into(),
        &|journal| journal["delivered"] = 1_000_000.into(),
    ];
    for (index, change) in times.into_iter().enumerate() {
        written(change);
        world.restart_after_stop().await;
        receiver.wait(2 + index).await;
        world.tracker.take().unwrap().stop().await;
    }
    written(&|_| ());
    world.restart_after_stop().await;
    world.create("second").await;
    receiver.took(*world.wanted(types[0], made.from_sequence).await.last().unwrap()).await;
    assert_eq!(receiver.sequences().iter().filter(|sequence| **sequence == wanted[0]).count(), 4, "one that fits is gone on with");
}

#[tokio::test]
async fn another_tracker_goes_on_where_the_leader_stopped_and_knows_what_came_meanwhile() {
    let mut world = local().await;
    let (receiver, deleted) = (Receiver::taking().await, Receiver::taking().await);
    let types = ["footplate.run.created"];
    let made = world.hook("ci", &receiver.url(), &types, 0).await.unwrap();
    world.hook("gone", &deleted.url(), &types, 0).await.unwrap();
    // A second one over the same ledger and objects, with a series store of its own.
    let folder = world.folder.path().join("second");
    let mut config = world.config.clone();
    (config.instance, config.folder) = ("test-2/1".to_owned(), Some(folder.join("view")));
    let series = footplate_tracker_server::open_series(&folder.join("series")).await.unwrap();
    let second = Tracker::start_over(series, &config, &world.ledger, world.folder.path()).await;
    for n in 0..5 {
        world.create(&format!("{n}")).await;
    }
    let before = world.wanted(types[0], made.from_sequence).await;
    receiver.took(before[4]).await;
    deleted.took(before[4]).await;
    // Written down, so that the stop finds nothing under way.
    eventually(SOON, "the log", || async { (world.shown("ci").await.deliveries.len() == 5).then_some(()) }).await;
    // Asked of the one that does not send: any instance answers.
    let asked = v1::DeleteWebhookRequest { project: PROJECT.into(), name: "gone".into(), ..Default::default() };
    second.client.once(second.client.webhooks().delete_webhook(asked)).await.unwrap();
    world.tracker.take().unwrap().stop().await;
    world.tracker = Some(second);
    for n in 5..10 {
        world.create(&format!("{n}")).await;
    }
    let wanted = world.wanted(types[0], made.from_sequence).await;
    receiver.took(wanted[9]).await;
    assert_eq!(receiver.sequences(), wanted, "a leader that stops writes down how far it came: each once");
    assert_eq!(deleted.sequences(), before);
}

#[tokio::test]
async fn a_replay_sends_again_from_a_sequence_and_a_deleted_webhook_sends_nothing() {
    let (mut world, receiver) = (local().await, Receiver::taking().await);
    let types = ["footplate.run.created"];
    for n in 0..4 {
        world.create(&format!("{n}")).await;
    }
    let wanted = world.wanted(types[0], 1).await;
    world.hook("ci", &receiver.url(), &types, wanted[2]).await.unwrap();
    receiver.took(wanted[3]).await;
    assert_eq!(receiver.sequences(), wanted[2..], "from the sequence on that was named");
    let first = receiver.got()[0].header("footplate-delivery").to_owned();
    let replay = |from_sequence, request_id: &str| v1::ReplayWebhookRequest {
        project: PROJECT.into(),
        name: "ci".into(),
        from_sequence,
        request_id: request_id.into(),
    };
    let client = world.client().clone();
    let sequence = client.once(client.webhooks().replay_webhook(replay(wanted[1], "again"))).await.unwrap().sequence;
    let repeat = client.once(client.webhooks().replay_webhook(replay(wanted[1], "again"))).await.unwrap().sequence;
    assert_eq!(sequence, repeat, "one key, one replay");
    let reused = client.once(client.webhooks().replay_webhook(replay(wanted[0], "again"))).await.unwrap_err();
    assert_eq!(reused.reason, "IDEMPOTENCY_KEY_REUSED");
    let got = receiver.wait(5).await;
    assert_eq!(receiver.sequences(), [&wanted[2..], &wanted[1..]].concat());
    assert_ne!(got[3].header("footplate-delivery"), first, "another delivery of the same event");
    assert_eq!(got[3].header("ce-id"), got[0].header("ce-id"), "which its id tells");
    let refused = client.once(client.webhooks().replay_webhook(replay(0, ""))).await.unwrap_err();
    assert_eq!((refused.reason.as_str(), refused.field.as_deref()), ("INVALID_FIELD", Some("from_sequence")));
    let beyond = world.ledger.end().await.unwrap() + 1_000;
    let refused = client.once(client.webhooks().replay_webhook(replay(beyond, ""))).await.unwrap_err();
    assert_eq!(
        (refused.reason.as_str(), refused.value),
        ("INVALID_FIELD", Some(beyond.to_string())),
        "what comes until there would never be sent"
    );
    let refused = world.hook("late", &receiver.url(), &types, beyond).await.unwrap_err();
    assert_eq!(refused.field.as_deref(), Some("from_sequence"));
    let deleted = v1::DeleteWebhookRequest { project: PROJECT.into(), name: "ci".into(), ..Default::default() };
    client.once(client.webhooks().delete_webhook(deleted.clone())).await.unwrap();
    assert_eq!(client.once(client.webhooks().delete_webhook(deleted)).await.unwrap_err().reason, "WEBHOOK_NOT_FOUND");
    let last = Receiver::taking().await;
    world.hook("last", &last.url(), &types, 0).await.unwrap();
    world.create("after").await;
    last.wait(1).await;
    assert_eq!(receiver.got().len(), 5, "what is deleted sends nothing");
    world.restart().await;
    world.create("after the restart").await;
    last.took(*world.wanted(types[0], 1).await.last().unwrap()).await;
    assert_eq!(receiver.got().len(), 5, "not even while a start reads that it was made");
}

#[tokio::test]
async fn what_is_not_taken_for_too_long_pauses_the_webhook_and_a_resume_goes_on_with_it() {
    let world = world(config("127.0.0.0/8", 300)).await;
    let takes = Arc::new(AtomicUsize::new(500));
    let answer = takes.clone();
    let receiver = Receiver::start(move |_, _| u16::try_from(answer.load(Ordering::SeqCst)).ok()).await;
    let types = ["footplate.run.created"];
    let made = world.hook("ci", &receiver.url(), &types, 0).await.unwrap();
    for name in ["one", "two"] {
        world.create(name).await;
    }
    let wanted = world.wanted(types[0], made.from_sequence).await;
    let paused = world.in_state("ci", "paused").await;
    assert_eq!(paused.failing_sequence, wanted[0]);
    assert!(paused.reason.contains("answered 500") && paused.reason.starts_with("not taken for "), "{}", paused.reason);
    let resume = || v1::ResumeWebhookRequest { project: PROJECT.into(), name: "ci".into(), ..Default::default() };
    let client = world.client();
    takes.store(410, Ordering::SeqCst);
    client.once(client.webhooks().resume_webhook(resume())).await.unwrap();
    let gone =
        eventually(SOON, "gone", || async { Some(world.in_state("ci", "paused").await).filter(|webhook| webhook.reason.contains("gone")) });
    assert_eq!(gone.await.failing_sequence, wanted[0], "who says 410 is asked no second time");
    takes.store(200, Ordering::SeqCst);
    client.once(client.webhooks().resume_webhook(resume())).await.unwrap();
    receiver.took(wanted[1]).await;
    world.in_state("ci", "sending").await;
    let sequences = receiver.sequences();
    assert_eq!(sequences[sequences.len() - 2..], wanted, "from the event on that was not taken");
    let pauses = world.wanted("footplate.webhook.paused", 1).await;
    assert_eq!(pauses.len(), 2);
    let verified = client.once(client.tracker_views().verify_views(v1::VerifyViewsRequest::default())).await.unwrap();
    let view = verified.views.iter().find(|view| view.view == "webhooks").unwrap();
    assert!(view.equal && view.events == 5, "{view:?}");
}

#[tokio::test]
async fn addresses_inside_are_refused_in_every_spelling() {
    let world = world(config("", 60_000)).await;
    for url in [
        "http://127.0.0.1/",
        "http://localhost:7450/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://0/",
        "http://10.0.0.1/x",
        "http://169.254.169.254/latest/meta-data",
        "https://192.168.1.1/",
        "http://100.64.0.1/",
        "http://[::1]/",
        "http://[::ffff:169.254.169.254]/",
        "http://[fd00:ec2::254]/",
        "http://[fe80::1]/",
        "http://[64:ff9b::7f00:1]/",
    ] {
        let refused = world.hook("ci", url, &[], 0).await.unwrap_err();
        assert_eq!((refused.reason.as_str(), refused.field.as_deref()), ("WEBHOOK_ADDRESS_DENIED", Some("url")), "{url}: {refused:?}");
    }
    for url in ["", "example.org", "ftp://1.1.1.1/", "file:///etc/passwd", "http://ada:secret@1.1.1.1/", "http://1.1.1.1/#x", "http://"] {
        let refused = world.hook("ci", url, &[], 0).await.unwrap_err();
        assert_eq!((refused.reason.as_str(), refused.field.as_deref()), ("INVALID_FIELD", Some("url")), "{url}: {refused:?}");
    }
    assert!(world.wanted("footplate.webhook.", 1).await.is_empty());
}

/// A name server that answers each question anew.
struct Names<F>(F);

impl<F: Fn(&str) -> Vec<&'static str> + Send + Sync + 'static> Lookup for Names<F> {
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let found = (self.0)(&host).into_iter().map(|address| address.parse().unwrap()).collect();
        std::future::ready(Ok(found)).boxed()
    }
}

#[tokio::test]
async fn a_name_that_leads_inside_the_second_time_is_not_followed_there() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let names = Names(move |_: &str| match count.fetch_add(1, Ordering::SeqCst) {
        0 => vec!["93.184.215.14"],
        1 => vec!["127.0.0.1"],
        // Of several addresses one is enough to be refused.
        _ => vec!["93.184.215.14", "127.0.0.1"],
    });
    let world = world(WebhookConfig { lookup: Some(Arc::new(names)), ..config("", 60_000) }).await;
    let receiver = Receiver::taking().await;
    let url = format!("http://rebind.example:{}/", receiver.address.port());
    world.hook("ci", &url, &["footplate.run.created"], 0).await.unwrap();
    world.create("one").await;
    let tried = eventually(SOON, "tries", || async { Some(world.shown("ci").await).filter(|shown| shown.deliveries.len() >= 2) }).await;
    for delivery in &tried.deliveries {
        assert!(delivery.error.contains("127.0.0.1") && delivery.error.contains("inside"), "{delivery:?}");
        assert_eq!(delivery.status, 0);
    }
    assert_eq!(tried.webhook.unwrap().state, "failing");
    assert!(receiver.got().is_empty(), "nobody was reached");
    let asked = v1::TestWebhookRequest { project: PROJECT.into(), name: "ci".into() };
    let tested = world.client().once(world.client().webhooks().test_webhook(asked)).await.unwrap();
    assert!(!tested.delivered && tested.error.contains("inside"), "{tested:?}");
}

#[tokio::test]
async fn what_was_looked_at_is_what_is_dialled() {
    let receiver = Receiver::taking().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let names = Names(move |host: &str| {
        assert_eq!(host, "hooks.example");
        count.fetch_add(1, Ordering::SeqCst);
        vec!["127.0.0.1"]
    });
    let world = world(WebhookConfig { lookup: Some(Arc::new(names)), ..config("127.0.0.1/32", 60_000) }).await;
    let url = format!("http://hooks.example:{}/", receiver.address.port());
    world.hook("ci", &url, &["footplate.run.created"], 0).await.unwrap();
    let asked_for = v1::TestWebhookRequest { project: PROJECT.into(), name: "ci".into() };
    let tested = world.client().once(world.client().webhooks().test_webhook(asked_for)).await.unwrap();
    assert!(tested.delivered && tested.status == 204, "{tested:?}");
    let got = receiver.wait(1).await;
    assert_eq!(got[0].header("host"), format!("hooks.example:{}", receiver.address.port()));
    assert_eq!((got[0].header("ce-type"), got[0].header("ce-id")), ("footplate.webhook.tested.v1", tested.id.as_str()));
    assert_eq!(asked.load(Ordering::SeqCst), 2, "once when it was made, once when it was dialled");
}

#[tokio::test]
async fn a_repeated_request_is_one_webhook_with_one_secret_and_another_key_signs_nothing() {
    let (mut world, receiver) = (local().await, Receiver::taking().await);
    let asked = |url: String, request_id: &str| v1::CreateWebhookRequest {
        project: PROJECT.into(),
        name: "ci".into(),
        url,
        types: vec!["footplate.run.created".into()],
        from_sequence: 0,
        request_id: request_id.into(),
    };
    let create = async |world: &World, asked: v1::CreateWebhookRequest| {
        let client = world.client().clone();
        client.once(client.webhooks().create_webhook(asked)).await
    };
    let first = create(&world, asked(receiver.url(), "k")).await.unwrap();
    world.create("between").await;
    assert_eq!(create(&world, asked(receiver.url(), "k")).await.unwrap(), first);
    let other = create(&world, asked(format!("{}/other", receiver.url()), "k")).await.unwrap_err();
    assert_eq!(other.reason, "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(create(&world, asked(receiver.url(), "l")).await.unwrap_err().reason, "ID_TAKEN");
    let wrong = world.hook("two", &receiver.url(), &["run."], 0).await.unwrap_err();
    assert_eq!((wrong.reason.as_str(), wrong.field.as_deref()), ("INVALID_FIELD", Some("types")));
    receiver.wait(1).await;
    let ledger = world.wanted("footplate.webhook.", 1).await;
    assert_eq!(ledger.len(), 1);
    world.config.webhooks.key = WebhookKey::new("another");
    world.restart().await;
    world.create("after").await;
    let failing = world.in_state("ci", "failing").await;
    assert!(failing.reason.contains("webhooks.key"), "{}", failing.reason);
    assert_eq!(receiver.got().len(), 1, "nothing is sent that the receiver could not tell from a forgery");
}
