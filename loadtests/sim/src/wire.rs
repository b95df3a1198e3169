//! The steps that are to come, and the network between everybody and the broker: calls are delayed, lost, answered in vain, and may arrive
//! after their sender has given them up.

use crate::broker::{Answer, Op, Trouble};
use crate::clients::Plan;
use crate::clock::Time;
use crate::dice::Dice;
use crate::faults::Fault;
use crate::instance;
use crate::node;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    Instance(usize),
    Agent(usize),
    Client,
}

/// What may come next.
#[derive(Debug)]
pub(crate) enum Step {
    /// A call reaches the broker; `answer_in` is absent when its sender will not hear of it.
    Arrive {
        from: Party,
        life: u32,
        op: Box<Op>,
        answer_in: Option<Time>,
    },
    Answer {
        to: Party,
        life: u32,
        op: Box<Op>,
        answer: Answer,
    },
    Instance {
        index: usize,
        life: u32,
        input: instance::Input,
    },
    /// An agent's own step; of a life of that agent.
    Agent {
        index: usize,
        life: u32,
        input: node::Input,
    },
    /// A step of the machine, whoever runs on it; of one boot.
    Machine {
        index: usize,
        boot: u32,
        input: node::MachineInput,
    },
    Client(Plan),
    Fault(Fault),
}

#[derive(Debug)]
struct Entry {
    at: Time,
    number: u64,
    step: Step,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The earliest is the greatest: the heap gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// Which ways are cut between a party and the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) out: bool,
    pub(crate) back: bool,
}

/// The steps to come and the network.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) now: Time,
    heap: BinaryHeap<Entry>,
    count: u64,
    dice: Dice,
    cuts: BTreeMap<Party, Cut>,
    /// Whether the network misbehaves at all.
    pub(crate) storm: bool,
    /// How many calls in a thousand meet trouble of each sort.
    pub(crate) trouble: u64,
    pub(crate) broker_down: bool,
}

impl Wire {
    pub(crate) fn new(dice: Dice, trouble: u64) -> Self {
        let cuts = BTreeMap::new();
        Self { now: 0, heap: BinaryHeap::new(), count: 0, dice, cuts, storm: true, trouble, broker_down: false }
    }

    /// Something happens in so many milliseconds of true time.
    pub(crate) fn after(&mut self, wait: Time, step: Step) {
        self.count += 1;
        self.heap.push(Entry { at: self.now + wait, number: self.count, step });
    }

    /// The next step; moves the time.
    pub(crate) fn next(&mut self) -> Option<Step> {
        let entry = self.heap.pop()?;
        self.now = entry.at;
        Some(entry.step)
    }

    pub(crate) fn cut_of(&self, party: Party) -> Cut {
        self.cuts.get(&party).copied().unwrap_or_default()
    }

    pub(crate) fn cut(&mut self, party: Party, cut: Cut) {
        self.cuts.insert(party, cut);
    }

    /// A way through the network.
    pub(crate) fn delay(&mut self) -> Time {
        if self.storm { self.dice.spread(1, 3_000) } else { self.dice.between(1, 5) }
    }

    /// How long a reader lags.
    pub(crate) fn lag(&mut self) -> Time {
        if self.storm { self.dice.spread(1, 1_500) } else { self.dice.between(1, 5) }
    }

    /// Whether something in a thousand happens, in bad weather.
    pub(crate) fn mishap(&mut self, per_mille: u64) -> bool {
        self.storm && self.dice.chance(per_mille)
    }

    /// Sends a call. Exactly one answer comes, if the caller lives to hear it.
    pub(crate) fn call(&mut self, from: Party, life: u32, op: Op) {
        let op = Box::new(op);
        let timeout = self.dice.between(2_000, 6_000);
        let trouble = self.trouble;
        if self.cut_of(from).out {
            let (wait, answer) = if self.dice.chance(500) { (20, Trouble::Unavailable) } else { (timeout, Trouble::Unknown) };
            return self.after(wait, Step::Answer { to: from, life, op, answer: Err(answer) });
        }
        if self.mishap(trouble) {
            return self.after(timeout, Step::Answer { to: from, life, op, answer: Err(Trouble::Unknown) });
        }
        let is_late = self.mishap(trouble);
        if is_late || self.mishap(trouble) {
            let wait = if is_late { timeout + self.dice.below(4_000) } else { self.delay().min(timeout) };
            self.after(wait, Step::Arrive { from, life, op: op.clone(), answer_in: None });
            return self.after(timeout, Step::Answer { to: from, life, op, answer: Err(Trouble::Unknown) });
        }
        let (go, back) = (self.delay(), self.delay());
        self.after(go, Step::Arrive { from, life, op, answer_in: Some(back) });
    }

    /// The answer to a call that has arrived, or the silence.
    pub(crate) fn answer(&mut self, to: Party, life: u32, op: Box<Op>, answer: Answer, answer_in: Option<Time>) {
        let Some(wait) = answer_in else { return };
        let (wait, answer) = if self.cut_of(to).back { (4_000, Err(Trouble::Unknown)) } else { (wait, answer) };
        self.after(wait, Step::Answer { to, life, op, answer });
    }
}
