//! Leaders: one at a time, harmless when deposed, never sending again what may be stored.

use crate::facts::{Seen, health, inventory};
use footplate_es::Decision;
use footplate_eventlog::memory::MemoryBroker;
use footplate_eventlog::{Decider, LeadError, LeaseConfig, Ledger, Live, Look, Standing, StreamName, Verdict, follow, lead_watched};
use footplate_events::facts::ExperimentNoted;
use footplate_testkit::eventually;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_millis(300);

/// What one decider has done, as its test sees it.
#[derive(Clone, Default)]
pub(crate) struct Record {
    pub(crate) terms: Arc<Mutex<Vec<u64>>>,
    /// At each act: the view, and the number of events folded.
    pub(crate) acts: Arc<Mutex<Vec<(u64, usize)>>>,
    pub(crate) decided_at: Arc<Mutex<Vec<(u64, usize)>>>,
}

/// Decides what its test sends it, batch by batch, each batch until it is seen in the state.
pub(crate) struct Told {
    orders: mpsc::UnboundedReceiver<Vec<Decision>>,
    open: Vec<Decision>,
    record: Record,
}

impl Decider for Told {
    type State = Seen;

    fn term_began(&mut self, look: &Look) {
        self.record.terms.lock().unwrap().push(look.term);
    }

    fn decide(&mut self, state: &Seen, look: &Look) -> Verdict {
        self.record.decided_at.lock().unwrap().push((look.view, state.events.len()));
        while let Ok(order) = self.orders.try_recv() {
            self.open.extend(order);
        }
        let known = |decision: &Decision| {
            let footplate_events::Event::NodeHealthChanged(fact) = &decision.event else { return false };
            state.events.iter().any(|(_, _, text)| *text == fact.reason)
        };
        self.open.retain(|decision| !known(decision));
        Verdict { decisions: self.open.clone(), wake_in: None }
    }

    fn act<'a>(&'a mut self, live: &'a Live<Seen>, look: &'a Look) -> BoxFuture<'a, Result<(), String>> {
        let folded = live.read().events.len();
        self.record.acts.lock().unwrap().push((look.view, folded));
        async { Ok(()) }.boxed()
    }
}

/// One instance of the service, with its own view.
pub(crate) struct Instance {
    orders: mpsc::UnboundedSender<Vec<Decision>>,
    wake: Arc<Notify>,
    pub(crate) live: Live<Seen>,
    pub(crate) record: Record,
    standing: watch::Receiver<Standing>,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), LeadError>>,
}

impl Instance {
    pub(crate) fn start(ledger: &Ledger, name: &str, lease: Duration) -> Self {
        Self::start_with(ledger, name, lease, |ledger, live| follow(ledger, Vec::new(), live, CancellationToken::new()))
    }

    fn start_with<F: Future<Output = ()> + Send + 'static>(
        ledger: &Ledger,
        name: &str,
        lease: Duration,
        following: impl FnOnce(Ledger, Live<Seen>) -> F,
    ) -> Self {
        let (orders, receiver) = mpsc::unbounded_channel();
        let wake = Arc::new(Notify::new());
        let live = Live::new(Seen::default(), 0);
        let record = Record::default();
        let shutdown = CancellationToken::new();
        tokio::spawn(following(ledger.clone(), live.clone()));
        let config = LeaseConfig { service: inventory(), instance: name.to_owned(), lease };
        let decider = Told { orders: receiver, open: Vec::new(), record: record.clone() };
        let (sender, standing) = watch::channel(Standing::Candidate);
        let task = tokio::spawn(lead_watched(ledger.clone(), config, live.clone(), decider, wake.clone(), sender, shutdown.clone()));
        Self { orders, wake, live, record, standing, shutdown, task }
    }

    pub(crate) fn tell(&self, decisions: Vec<Decision>) {
        self.orders.send(decisions).unwrap();
        self.wake.notify_one();
    }

    pub(crate) fn terms(&self) -> Vec<u64> {
        self.record.terms.lock().unwrap().clone()
    }

    pub(crate) async fn leads(&self) -> u64 {
        let terms = || async { self.terms().last().copied() };
        eventually(SOON, "the instance leads", terms).await
    }

    pub(crate) async fn sees(&self, text: &str) {
        let seen = || async { self.live.read().texts().contains(&text).then_some(()) };
        eventually(SOON, "the event is folded", seen).await;
    }

    pub(crate) async fn stop(self) -> Result<(), LeadError> {
        self.shutdown.cancel();
        tokio::time::timeout(SOON, self.task).await.expect("it ends in time").unwrap()
    }

    async fn ends(self) -> Result<(), LeadError> {
        tokio::time::timeout(SOON, self.task).await.expect("it ends in time").unwrap()
    }
}

fn ledger() -> (MemoryBroker, Ledger) {
    let broker = MemoryBroker::new();
    (broker.clone(), Ledger::new(Arc::new(broker)))
}

#[tokio::test]
async fn a_lone_instance_leads_decides_and_acts() {
    let (_broker, ledger) = ledger();
    let one = Instance::start(&ledger, "one", LEASE);
    assert_eq!(one.leads().await, 1);
    one.tell(vec![health("n1", "a", None)]);
    one.sees("a").await;
    one.tell(vec![health("n1", "b", None), health("n2", "c", None)]);
    one.sees("c").await;
    assert_eq!(one.live.read().texts(), ["a", "b", "c"]);
    assert_eq!(one.stop().await, Ok(()));
}

/// Rule 1: a decision about another service's aggregate never becomes an event, and takes nothing with it.
#[tokio::test]
async fn a_leader_writes_nothing_about_what_another_service_owns() {
    let (_broker, ledger) = ledger();
    let one = Instance::start(&ledger, "one", LEASE);
    one.leads().await;
    let foreign = Decision::new(crate::facts::experiment("digits"), ExperimentNoted { note: "foreign".to_owned() }, None);
    one.tell(vec![foreign, health("n1", "own", None)]);
    one.sees("own").await;
    one.tell(vec![health("n1", "after", None)]);
    one.sees("after").await;
    assert_eq!(one.live.read().texts(), ["own", "after"]);
    one.stop().await.unwrap();
}

#[tokio::test]
async fn a_released_lease_is_taken_over_at_once() {
    let (_broker, ledger) = ledger();
    let one = Instance::start(&ledger, "one", Duration::from_secs(600));
    one.leads().await;
    let two = Instance::start(&ledger, "two", Duration::from_secs(600));
    assert!(two.terms().is_empty());
    one.stop().await.unwrap();
    two.leads().await;
    two.stop().await.unwrap();
}

/// Rule 2: what makes a deposed leader harmless is the term, for a single append and for a batch.
async fn a_stalled_leader_is_refused(decisions: Vec<Decision>) {
    let (broker, ledger) = ledger();
    let one = Instance::start(&ledger, "one", LEASE);
    let first = one.leads().await;
    let size = decisions.len();
    let mut append = broker.faults().stall_next(move |stream, messages| {
        stream == StreamName::Ledger && messages.len() == size && messages[0].0.subject.contains(".node.")
    });
    one.tell(decisions);
    tokio::time::timeout(SOON, append.reached()).await.unwrap();
    // The old leader stands in the middle of its append; it goes on renewing its lease, so take that from it as well.
    let mut renewals = Vec::new();
    renewals.push(
        broker.faults().stall_next(|stream, messages| {
            stream == StreamName::Beats && String::from_utf8_lossy(&messages[0].0.payload).contains("\"one\"")
        }),
    );
    let two = Instance::start(&ledger, "two", LEASE);
    let second = two.leads().await;
    assert!(second > first);
    two.tell(vec![health("n1", "by the new leader", None)]);
    two.sees("by the new leader").await;
    append.release();
    drop(renewals);
    // The old one finds out, and stands again as a candidate; nothing of its append is there.
    two.tell(vec![health("n1", "later", None)]);
    two.sees("later").await;
    one.sees("later").await;
    assert_eq!(two.live.read().texts(), ["by the new leader", "later"]);
    assert_eq!(one.terms(), [first]);
    one.stop().await.unwrap();
    two.stop().await.unwrap();
}

#[tokio::test]
async fn a_deposed_leaders_single_append_is_refused() {
    a_stalled_leader_is_refused(vec![health("n1", "too late", None)]).await;
}

#[tokio::test]
async fn a_deposed_leaders_batch_is_refused() {
    a_stalled_leader_is_refused(vec![health("n1", "too late", None), health("n2", "too late as well", None)]).await;
}

/// Rule 4: a leader never sends again; it begins a new term, reads up to it, and decides anew.
#[tokio::test]
async fn an_append_of_a_leader_whose_answer_was_lost_is_there_once() {
    for (batch, lost_request) in [(1, false), (3, false), (1, true), (3, true)] {
        let (broker, ledger) = ledger();
        let one = Instance::start(&ledger, "one", LEASE);
        let first = one.leads().await;
        let stream = StreamName::Ledger;
        if lost_request {
            broker.faults().lose_next_request(stream)
        } else {
            broker.faults().lose_next_ack(stream)
        }
        one.tell((0..batch).map(|n| health("n1", &format!("m{n}"), None)).collect());
        one.sees(&format!("m{}", batch - 1)).await;
        one.tell(vec![health("n1", "after", None)]);
        one.sees("after").await;
        let wanted: Vec<String> = (0..batch).map(|n| format!("m{n}")).chain(["after".to_owned()]).collect();
        assert_eq!(one.live.read().texts(), wanted, "batch {batch}, lost request {lost_request}");
        assert_eq!(one.terms().len(), 2, "a new term began");
        assert!(one.terms()[1] > first);
        one.stop().await.unwrap();
    }
}

/// Rule 10: a leader acts, and decides again, only when its view holds what it appended.
#[tokio::test]
async fn a_leader_acts_only_upon_what_is_folded() {
    let (broker, ledger) = ledger();
    let one = Instance::start(&ledger, "one", LEASE);
    one.leads().await;
    broker.faults().delay(Duration::from_millis(5));
    for n in 0..10 {
        one.tell(vec![health("n1", &n.to_string(), None)]);
        one.sees(&n.to_string()).await;
    }
    let reached = || async { one.record.acts.lock().unwrap().iter().any(|(_, folded)| *folded == 10).then_some(()) };
    eventually(SOON, "acts upon the last event", reached).await;
    let decided = one.record.decided_at.lock().unwrap().clone();
    // The term event is folded as well but is nothing that the view counts: n events are never seen at a view below n + 1.
    assert!(decided.iter().all(|(view, folded)| *view > *folded as u64), "{decided:?}");
    let state_ids: std::collections::BTreeSet<_> = one.live.read().events.iter().map(|(_, id, _)| *id).collect();
    assert_eq!(state_ids.len(), 10, "nothing was decided twice");
    one.stop().await.unwrap();
}

/// Rule 10: however often it is woken, a leader does not look again before its view holds what it appended.
#[tokio::test]
async fn a_leader_whose_view_lags_decides_nothing_twice() {
    let (_broker, ledger) = ledger();
    let (gate, open) = watch::channel(true);
    let one = Instance::start_with(&ledger, "one", LEASE, |ledger, live| follow_through(ledger, live, open));
    one.leads().await;
    gate.send_replace(false);
    one.tell(vec![health("n1", "once", None)]);
    let appended = || async { (ledger.end().await == Ok(2)).then_some(()) };
    eventually(SOON, "the event is appended", appended).await;
    let before = (one.record.decided_at.lock().unwrap().len(), one.record.acts.lock().unwrap().len());
    for _ in 0..50 {
        one.wake.notify_one();
        tokio::task::yield_now().await;
    }
    let after = (one.record.decided_at.lock().unwrap().len(), one.record.acts.lock().unwrap().len());
    assert_eq!(after, before);
    gate.send_replace(true);
    one.sees("once").await;
    one.tell(vec![health("n1", "after", None)]);
    one.sees("after").await;
    assert_eq!(one.live.read().texts(), ["once", "after"]);
    one.stop().await.unwrap();
}

/// Follows the ledger while a gate is open.
async fn follow_through(ledger: Ledger, live: Live<Seen>, mut open: watch::Receiver<bool>) {
    let mut items = ledger.tail(Vec::new(), 1);
    while let Some(item) = items.next().await {
        if open.wait_for(|open| *open).await.is_err() {
            return;
        }
        live.fold(&item);
    }
}

/// Rule 11: an owner that meets what it cannot understand among its own aggregates does not lead.
#[tokio::test]
async fn an_owner_does_not_lead_over_events_it_cannot_understand() {
    for (event_type, payload) in [("footplate.node.flown.v7", "{}"), ("footplate.node.lost.v1", "{")] {
        let (broker, ledger) = ledger();
        crate::appending::raw(&broker, "fp.ledger._.node.n1", event_type, payload).await;
        let one = Instance::start(&ledger, "one", LEASE);
        let end = one.ends().await.unwrap_err();
        assert!(matches!(&end, LeadError::NotUnderstood { sequence: 1, .. }), "{end:?}");
        // Another service's aggregate is none of its business.
        let (broker, ledger) = self::ledger();
        crate::appending::raw(&broker, "fp.ledger.vision.job.00000000000000000000000000000001", event_type, payload).await;
        let two = Instance::start(&ledger, "two", LEASE);
        two.leads().await;
        assert_eq!(two.live.counts().unknown + two.live.counts().poison, 1);
        two.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_leader_steps_down_when_it_meets_what_it_cannot_understand() {
    let (broker, ledger) = ledger();
    let one = Instance::start(&ledger, "one", LEASE);
    one.leads().await;
    crate::appending::raw(&broker, "fp.ledger._.node.n1", "footplate.node.flown.v7", "{}").await;
    one.wake.notify_one();
    assert!(matches!(one.ends().await, Err(LeadError::NotUnderstood { .. })));
}

#[tokio::test]
async fn a_leader_survives_an_outage_and_decides_what_waited() {
    let (broker, ledger) = ledger();
    let one = Instance::start(&ledger, "one", LEASE);
    one.leads().await;
    broker.faults().unavailable(true);
    one.tell(vec![health("n1", "during the outage", None)]);
    // Long enough that the leader has to give itself up.
    let stepped_down = || async { (*one.standing.borrow() == Standing::Candidate).then_some(()) };
    eventually(SOON, "the leader steps down", stepped_down).await;
    broker.faults().unavailable(false);
    one.sees("during the outage").await;
    assert_eq!(one.live.read().texts(), ["during the outage"]);
    one.stop().await.unwrap();
}

/// Rule 7: what stands outside the ledger is compared again whenever the broker comes back, though no event says so.
#[tokio::test]
async fn a_leader_looks_again_at_each_reconnect() {
    let (broker, ledger) = ledger();
    let one = Instance::start(&ledger, "one", Duration::from_secs(600));
    one.leads().await;
    let acts = || one.record.acts.lock().unwrap().len();
    eventually(SOON, "it acts at the start of its term", || async { (acts() == 1).then_some(()) }).await;
    broker.faults().unavailable(true);
    broker.faults().unavailable(false);
    eventually(SOON, "it acts again", || async { (acts() == 2).then_some(()) }).await;
    one.stop().await.unwrap();
}

#[tokio::test]
async fn a_full_ledger_stops_nothing_for_good() {
    let (broker, ledger) = ledger();
    let one = Instance::start(&ledger, "one", LEASE);
    one.leads().await;
    broker.faults().full_stream(StreamName::Ledger, true);
    let before = one.record.decided_at.lock().unwrap().len();
    one.tell(vec![health("n1", "when there was no room", None)]);
    let decided = || async { (one.record.decided_at.lock().unwrap().len() > before + 1).then_some(()) };
    eventually(SOON, "it decides again after a refusal", decided).await;
    assert!(one.live.read().texts().is_empty());
    broker.faults().full_stream(StreamName::Ledger, false);
    one.sees("when there was no room").await;
    one.stop().await.unwrap();
}
