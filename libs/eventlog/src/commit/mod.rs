//! Group commit (rules 3 and 4): one writer takes all client-written appends of a process, sends them singly or as atomic batches,
//! whichever is quicker as measured, and answers only what is definite.
//!
//! An append is sent again, the same bytes, id and expectation, for as long as its outcome is unknown; a conflict is told only after
//! every later event of the aggregate has been looked through for the append's id. Nothing here ever decides anew.

mod cost;
mod send;

use crate::ledger::AppendError;
use crate::port::{BATCH_MAX, Broker, Message};
use cost::Cost;
use footplate_types::EventId;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

/// Appends that may wait on their way to the writer; callers wait beyond that.
const INBOX_MAX: usize = 1_024;
/// Appends that the writer itself keeps waiting.
const WAITING_MAX: usize = 4_096;
/// Payload bytes after which a batch takes no more.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// The first pause before an append is sent again; doubled up to [`AGAIN_MAX`].
const AGAIN: Duration = Duration::from_millis(20);
/// The longest pause before an append is sent again.
const AGAIN_MAX: Duration = Duration::from_secs(1);
/// Aggregates whose last acknowledged sequence is remembered, so that what is stale cannot spoil a batch.
const KNOWN_MAX: usize = 8_192;

/// One append on its way.
pub(crate) struct Append {
    /// The message's subject, shared with what the writer remembers by it.
    subject: Arc<str>,
    pub(crate) message: Message,
    pub(crate) id: EventId,
    pub(crate) expected: u64,
    deadline: Instant,
    answer: oneshot::Sender<Result<u64, AppendError>>,
    /// Whether a copy with an unknown outcome may be stored.
    unknown: bool,
    /// Whether it goes singly from now on, since it spoiled a batch.
    alone: bool,
    tries: u32,
    not_before: Instant,
}

impl Append {
    pub(crate) fn new(
        message: Message,
        id: EventId,
        expected: u64,
        deadline: Instant,
        answer: oneshot::Sender<Result<u64, AppendError>>,
    ) -> Self {
        let subject = Arc::from(message.subject.as_str());
        Self { subject, message, id, expected, deadline, answer, unknown: false, alone: false, tries: 0, not_before: Instant::now() }
    }
}

/// What became of an append that was sent.
enum Fate {
    Answer(Result<u64, AppendError>),
    Again { unknown: bool, alone: bool, why: String },
}

/// How a flight was sent, for the measurement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Single,
    Batch(usize),
    LookUp,
}

/// What a flight brought.
struct Landed {
    kind: Kind,
    sent: Instant,
    /// Whether everything was stored at the first try: only then does the time measure a commit.
    clean: bool,
    fates: Vec<(Append, Fate)>,
}

/// Starts the writer; it ends when every sender is gone and everything is answered.
pub(crate) fn start(broker: Arc<dyn Broker>) -> mpsc::Sender<Append> {
    let (sender, inbox) = mpsc::channel(INBOX_MAX);
    let writer = Writer {
        broker,
        waiting: VecDeque::new(),
        busy: HashSet::new(),
        flights: FuturesUnordered::new(),
        singles: 0,
        batches: 0,
        full: false,
        cost: Cost::new(Instant::now()),
        landed: Instant::now(),
        known: HashMap::new(),
    };
    tokio::spawn(writer.run(inbox));
    sender
}

struct Writer {
    broker: Arc<dyn Broker>,
    waiting: VecDeque<Append>,
    /// Aggregates with an append under way, or about to be: at most one each.
    busy: HashSet<Arc<str>>,
    flights: FuturesUnordered<BoxFuture<'static, Landed>>,
    singles: usize,
    batches: usize,
    /// Whether as many singles as may be were under way after the last look.
    full: bool,
    cost: Cost,
    landed: Instant,
    known: HashMap<Arc<str>, u64>,
}

impl Writer {
    async fn run(mut self, mut inbox: mpsc::Receiver<Append>) {
        let mut connections = self.broker.connections();
        let mut open = true;
        while open || !self.waiting.is_empty() || !self.flights.is_empty() {
            let wake_at = self.launch();
            tokio::select! {
                biased;
                Some(landed) = self.flights.next(), if !self.flights.is_empty() => {
                    self.land(landed);
                    // What has landed together is looked at together.
                    while let Some(Some(landed)) = self.flights.next().now_or_never() {
                        self.land(landed);
                    }
                }
                append = inbox.recv(), if open && self.waiting.len() < WAITING_MAX => match append {
                    Some(append) => {
                        self.waiting.push_back(append);
                        // What has arrived together is looked at together.
                        while self.waiting.len() < WAITING_MAX && let Ok(append) = inbox.try_recv() {
                            self.waiting.push_back(append);
                        }
                    }
                    None => open = false,
                },
                changed = connections.changed(), if !self.waiting.is_empty() => match changed {
                    Ok(()) => self.waiting.iter_mut().for_each(|append| append.not_before = Instant::now()),
                    Err(_) => sleep_until(wake_at).await,
                },
                () = sleep_until(wake_at), if !self.waiting.is_empty() => {}
            }
        }
    }

    /// Sends what may be sent now; answers what is overdue. Returns when to look again.
    fn launch(&mut self) -> Instant {
        let now = Instant::now();
        let mut wake_at = now + AGAIN_MAX;
        let together = self.cost.batch_is_quicker(self.waiting.len().min(BATCH_MAX), now);
        // The singles under way land first, then what waits goes together.
        if self.batches > 0 || (together && self.singles > 0) {
            return wake_at;
        }
        let room = if together { BATCH_MAX } else { self.cost.singles_at_once().saturating_sub(self.singles) };
        if room > 0 {
            let ready = self.ready(room, now, &mut wake_at);
            self.dispatch(ready, now);
        }
        self.full = self.singles >= self.cost.singles_at_once();
        wake_at
    }

    /// Takes at most `most` appends that may be sent now, of different aggregates, which are busy from here on. Looks no further than it must:
    /// whatever is sent makes the writer look again when it lands.
    fn ready(&mut self, most: usize, now: Instant, wake_at: &mut Instant) -> Vec<Append> {
        let mut bytes = 0;
        // Later appends to an aggregate keep their order behind one that is left.
        let mut kept_back: HashSet<Arc<str>> = HashSet::new();
        let mut ready: Vec<Append> = Vec::new();
        let mut left = Vec::new();
        while bytes < BATCH_BYTES_MAX && ready.len() < most {
            let Some(append) = self.waiting.pop_front() else { break };
            if now >= append.deadline {
                self.overdue(append);
            } else if append.not_before > now {
                *wake_at = append.not_before.min(*wake_at);
                kept_back.insert(append.subject.clone());
                left.push(append);
            } else if (!kept_back.is_empty() && kept_back.contains(&append.subject)) || !self.busy.insert(append.subject.clone()) {
                left.push(append);
            } else {
                bytes += append.message.payload.len();
                ready.push(append);
            }
        }
        self.wait_on(left);
        ready
    }

    fn overdue(&self, append: Append) {
        let why = if append.unknown {
            "no definite answer in time; the event may yet be stored"
        } else {
            "no answer in time; nothing was stored"
        };
        // A caller that has gone needs no answer.
        let _ = append.answer.send(Err(AppendError::Unavailable(why.to_owned())));
    }

    fn dispatch(&mut self, ready: Vec<Append>, now: Instant) {
        let (stale, ready): (Vec<_>, Vec<_>) =
            ready.into_iter().partition(|append| self.known.get(&append.subject).is_some_and(|last| *last > append.expected));
        for append in stale {
            self.fly(Kind::LookUp, vec![append]);
        }
        let (alone, mut together): (Vec<_>, Vec<_>) = ready.into_iter().partition(|append| append.alone);
        let mut singly = alone;
        if self.singles == 0 && self.cost.batch_is_quicker(together.len(), now) {
            together.sort_by_key(|append| append.expected);
            self.fly(Kind::Batch(together.len()), together);
        } else {
            singly.append(&mut together);
        }
        let room = self.cost.singles_at_once().saturating_sub(self.singles);
        let rest = singly.split_off(room.min(singly.len()));
        for append in &rest {
            self.busy.remove(&append.subject);
        }
        for append in singly {
            self.fly(Kind::Single, vec![append]);
        }
        self.wait_on(rest);
    }

    /// Puts appends back in front, in their order.
    fn wait_on(&mut self, appends: Vec<Append>) {
        for append in appends.into_iter().rev() {
            self.waiting.push_front(append);
        }
    }

    fn fly(&mut self, kind: Kind, appends: Vec<Append>) {
        match kind {
            Kind::Single => self.singles += 1,
            Kind::Batch(_) => self.batches += 1,
            Kind::LookUp => {}
        }
        let broker = self.broker.clone();
        let sent = Instant::now();
        self.flights.push(
            async move {
                let (fates, clean) = match kind {
                    Kind::Single => send::single(broker.as_ref(), appends).await,
                    Kind::Batch(_) => send::batch(broker.as_ref(), appends).await,
                    Kind::LookUp => (send::look_up(broker.as_ref(), appends).await, false),
                };
                Landed { kind, sent, clean, fates }
            }
            .boxed(),
        );
    }

    fn land(&mut self, landed: Landed) {
        let now = Instant::now();
        // A broker that commits one after the other serves each since the one before landed.
        let took = now.duration_since(landed.sent.max(self.landed));
        match landed.kind {
            Kind::Single => {
                let first = landed.sent >= self.landed;
                let lone = first && self.singles == 1;
                self.singles -= 1;
                self.landed = now;
                match (landed.clean, lone, first && !self.full) {
                    (false, ..) => self.cost.single_failed(),
                    (true, true, _) => self.cost.lone_single_took(took),
                    (true, false, false) => self.cost.single_took(took, now.duration_since(landed.sent), self.full),
                    // The first of a few tells the way there and back, not how fast they follow each other.
                    (true, false, true) => {}
                }
            }
            Kind::Batch(size) => {
                self.batches -= 1;
                self.landed = now;
                if landed.clean {
                    self.cost.batch_took(size, took);
                }
            }
            Kind::LookUp => {}
        }
        let mut again = Vec::new();
        for (append, fate) in landed.fates {
            self.busy.remove(&append.subject);
            match fate {
                Fate::Answer(outcome) => self.answer(append, outcome),
                Fate::Again { unknown, alone, why } => again.push(send_again(append, unknown, alone, &why, now)),
            }
        }
        self.wait_on(again);
    }

    fn answer(&mut self, append: Append, outcome: Result<u64, AppendError>) {
        if let Ok(sequence) = outcome {
            if self.known.len() >= KNOWN_MAX {
                self.known.clear();
            }
            let known = self.known.entry(append.subject).or_default();
            *known = sequence.max(*known);
        }
        // A caller that has gone needs no answer.
        let _ = append.answer.send(outcome);
    }
}

fn send_again(mut append: Append, unknown: bool, alone: bool, why: &str, now: Instant) -> Append {
    append.unknown |= unknown;
    append.alone |= alone;
    append.not_before = now + AGAIN.saturating_mul(1 << append.tries.min(10)).min(AGAIN_MAX);
    append.tries += 1;
    tracing::debug!(id = %append.id, subject = append.message.subject, tries = append.tries, unknown, why, "sending an append again");
    append
}
