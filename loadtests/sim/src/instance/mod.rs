//! One instance of a service: what it reads, whether it leads, and the loop that holds its core. The loop is the servers'
//! (`footplate_eventlog::lead`), step by step: every call to the broker is a step, so that anything may happen between two of them.

mod executor;
mod inbox;
mod inventory;
mod lease;
mod mind;
mod reign;
mod scheduler;

pub(crate) use mind::{Look, Mind};

use crate::broker::{Answer, Broker, Op, node_of};
use crate::clock::{Clock, Time};
use crate::dice::Dice;
use crate::planted::Planted;
use crate::wire::{Party, Step, Wire};
use footplate_events::messages::Settled;
use footplate_types::ServiceName;
use lease::Lease;
use reign::Role;

/// The three services whose cores are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Service {
    Scheduler,
    Executor,
    Inventory,
}

impl Service {
    pub(crate) const ALL: [Self; 3] = [Self::Scheduler, Self::Executor, Self::Inventory];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Executor => "executor",
            Self::Inventory => "gpu-inventory",
        }
    }

    /// Its name as a type.
    pub(crate) fn name(self) -> ServiceName {
        ServiceName::parse(self.as_str()).expect("the names of the services are slugs")
    }
}

/// A step of an instance's own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Input {
    /// It starts.
    Boot,
    /// Its readers catch up.
    Follow,
    /// A candidate looks at the lease again.
    Poll(u64),
    /// The holder renews its lease.
    Keep(u64),
    /// The leader goes on: looks, or tries again.
    Look(u64),
    /// The connection came back.
    Reconnected,
}

/// One instance.
pub(crate) struct Instance {
    pub(crate) index: usize,
    pub(crate) service: Service,
    pub(crate) name: String,
    pub(crate) life: u32,
    pub(crate) is_up: bool,
    pub(crate) paused_until: Time,
    pub(crate) clock: Clock,
    pub(crate) mind: Box<dyn Mind>,
    pub(crate) position: u64,
    planted: Option<Planted>,
    dice: Dice,
    beats_seen: u64,
    reports_read: usize,
    follow_due: bool,
    /// Whether anything was read since the last decision.
    news: bool,
    lease: Lease,
    role: Role,
    /// Tells timers of an earlier situation from those of this one.
    turn: u64,
    /// How long after the verdict the leader looks again, on its own clock.
    wake_in: u64,
    /// A decision that depended on what it must not depend on.
    pub(crate) odd: Option<String>,
}

pub(crate) fn mind_of(service: Service, planted: Option<Planted>) -> Box<dyn Mind> {
    match service {
        Service::Scheduler => Box::new(scheduler::Scheduling::new(planted)),
        Service::Executor => Box::new(executor::Executing::default()),
        Service::Inventory => Box::new(inventory::Keeping::default()),
    }
}

impl Instance {
    pub(crate) fn new(index: usize, service: Service, name: &str, seed: u64, planted: Option<Planted>) -> Self {
        let mut dice = Dice::new(seed, &format!("instance {service:?} {name}"));
        Self {
            index,
            service,
            name: name.to_owned(),
            life: 0,
            is_up: false,
            paused_until: 0,
            clock: Clock::start(0, &mut dice),
            mind: mind_of(service, planted),
            position: 0,
            planted,
            dice,
            beats_seen: 0,
            reports_read: 0,
            follow_due: false,
            news: false,
            lease: Lease::default(),
            role: Role::Down,
            turn: 0,
            wake_in: 0,
            odd: None,
        }
    }

    /// The process dies; what it knew is gone.
    pub(crate) fn crash(&mut self) {
        self.is_up = false;
        self.life += 1;
        self.role = Role::Down;
    }

    /// The process starts.
    pub(crate) fn start(&mut self, wire: &mut Wire, broker: &Broker) {
        self.is_up = true;
        self.paused_until = 0;
        self.mind = mind_of(self.service, self.planted);
        self.clock = Clock::start(wire.now, &mut self.dice);
        (self.position, self.beats_seen, self.reports_read) = (0, 0, 0);
        (self.follow_due, self.news, self.lease) = (false, false, Lease::default());
        for settled in self.settled_in(broker) {
            self.mind.covered(&settled, true);
        }
        let input = Input::Boot;
        wire.after(1, Step::Instance { index: self.index, life: self.life, input });
    }

    fn settled_in(&self, broker: &Broker) -> Vec<Settled> {
        let mine =
            |((service, _), settled): (&(ServiceName, _), &Settled)| (service.as_str() == self.service.as_str()).then(|| settled.clone());
        broker.settled.iter().filter_map(mine).collect()
    }

    /// Makes its readers catch up soon.
    pub(crate) fn something_came(&mut self, wire: &mut Wire) {
        if self.is_up && !self.follow_due {
            self.follow_due = true;
            let wait = wire.lag();
            self.later(wire, wait, Input::Follow);
        }
    }

    fn later(&self, wire: &mut Wire, wait: Time, input: Input) {
        wire.after(wait, Step::Instance { index: self.index, life: self.life, input });
    }

    fn call(&self, wire: &mut Wire, op: Op) {
        wire.call(Party::Instance(self.index), self.life, op);
    }

    fn elapsed(&self, wire: &Wire) -> u64 {
        self.clock.at(wire.now)
    }

    /// Does one step of its own.
    pub(crate) fn step(&mut self, wire: &mut Wire, broker: &Broker, input: Input) {
        match input {
            Input::Boot => {
                self.something_came(wire);
                self.catch_up(wire);
            }
            Input::Follow => self.follow(wire, broker),
            Input::Poll(turn) if turn == self.turn => self.stand(wire),
            Input::Keep(number) => self.keep(wire, number),
            Input::Look(turn) if turn == self.turn => self.go_on(wire),
            Input::Poll(_) | Input::Look(_) => {}
            Input::Reconnected => {
                let elapsed = self.elapsed(wire);
                self.mind.reconnected(elapsed);
                self.news = true;
                self.something_came(wire);
                self.woken(wire);
            }
        }
    }

    /// Takes in a call's answer.
    pub(crate) fn answered(&mut self, wire: &mut Wire, op: &Op, answer: &Answer) {
        match op {
            Op::ReadLease(_) | Op::WriteLease { .. } => self.lease_answered(wire, op, answer),
            _ => self.reign_answered(wire, op, answer),
        }
    }

    /// Its readers go on: perhaps not to the end, perhaps with some of it again.
    fn follow(&mut self, wire: &mut Wire, broker: &Broker) {
        self.follow_due = false;
        let cut = wire.cut_of(Party::Instance(self.index));
        if cut.back || wire.broker_down {
            return;
        }
        let end = broker.ledger.end();
        let stops_short = end > self.position + 1 && wire.mishap(150);
        let up_to = if stops_short { self.position + self.dice.between(1, end - self.position - 1) } else { end };
        if wire.mishap(20) {
            self.read_again(broker);
        }
        for recorded in broker.ledger.after(self.position).iter().take_while(|recorded| recorded.sequence <= up_to) {
            self.mind.fold(recorded);
            self.position = recorded.sequence;
            self.news = true;
        }
        self.read_beats(wire, broker);
        self.read_reports(broker);
        if stops_short {
            self.something_came(wire);
        }
        self.folded(wire);
    }

    /// What was delivered before comes again. The scheduler's state knows by itself; the others' views drop it by its sequence, as
    /// `footplate_eventlog::Live` does.
    fn read_again(&mut self, broker: &Broker) {
        if self.service == Service::Scheduler {
            let from = self.position.saturating_sub(self.dice.below(20));
            let again: Vec<_> =
                broker.ledger.after(from).iter().take_while(|recorded| recorded.sequence <= self.position).cloned().collect();
            again.iter().for_each(|recorded| self.mind.fold(recorded));
        }
    }

    fn read_beats(&mut self, wire: &Wire, broker: &Broker) {
        let elapsed = self.elapsed(wire);
        let mut newer: Vec<_> = broker.beats.values().filter(|(sequence, _)| *sequence > self.beats_seen).collect();
        newer.sort_by_key(|(sequence, _)| *sequence);
        for (sequence, message) in newer {
            self.mind.saw_beat(node_of(message), *sequence, message, elapsed);
            self.beats_seen = *sequence;
            self.news = true;
        }
    }

    fn read_reports(&mut self, broker: &Broker) {
        self.reports_read = self.reports_read.min(broker.reports.len());
        for report in &broker.reports[self.reports_read..] {
            if report.body.service() == self.service.as_str() {
                self.mind.reported(report, broker.ledger.end());
                self.news = true;
            }
        }
        self.reports_read = broker.reports.len();
        for settled in self.settled_in(broker) {
            self.mind.covered(&settled, false);
        }
    }
}
