//! Whose turn it is: a tree of queues, each with what it holds, what is its own and what it may hold at most.
//!
//! Hierarchical weighted dominant-resource fairness (Ghodsi et al., NSDI 2011; Bhattacharya et al., SoCC 2013): from the top down always the child that
//! would have the least, counted with the gang that it would start next. A queue within its guarantee comes before every one that borrows; among those
//! within theirs the one that has least of it, among those that borrow the one whose dominant share is least for its weight. Inside a queue a larger
//! priority goes first, then the older job. All of it is whole numbers, so that every build finds the same.
//!
//! What is lent can be taken back from work that is preemptible. So work that is not may only borrow what no guarantee could ask for.

use super::board::Board;
use super::ground::usable_of;
use super::line::{Head, Line};
use crate::state::{Claim, Group, GroupKey, Holding, Job, Queue, State, quota_lack, told};
use footplate_events::facts::{JobSpec, MemberPlacement, Quota};
use footplate_types::{GpuMilli, QueueName, RunId};
use std::collections::BTreeMap;

/// A resource: its name, and how much of it a holding has.
type Sort = (&'static str, fn(Holding) -> u64);
const GPUS: Sort = ("gpus", |held| held.gpu_milli);
const SLOTS: Sort = ("slots", |held| held.slots);

/// An amount of a resource as people count.
fn words(what: &str, count: u64) -> String {
    if what == GPUS.0 { GpuMilli(count).to_string() } else { count.to_string() }
}

/// The whole of a resource, in the parts that shares are counted in.
const WHOLE: u128 = 1 << 40;

/// What is looked at: what is held now, or what will be when everything that is being stopped has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Purse {
    pub(super) now: Holding,
    pub(super) coming: Holding,
    /// Of what is coming, on open nodes: by work that cannot be preempted.
    firm: Holding,
    /// What is asked by those who have waited their patience: under a quota others may have only what is beyond it.
    promised: Holding,
}

/// The rank of a queue's next gang among those of its siblings: the least goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    borrows: bool,
    share: u128,
    age: u64,
}

/// One queue of the tree.
struct Knot<'a> {
    name: &'a QueueName,
    queue: &'a Queue,
    parent: Option<usize>,
    below: Vec<usize>,
    purse: Purse,
    /// What is its own.
    own: Holding,
    /// What nobody else can have of it and all below it: what is its own, or what work that cannot be preempted holds there.
    kept: Holding,
    /// What those right below it have of either.
    below_firm: Holding,
    below_kept: Holding,
    /// The rank of its next job among its siblings', while that and what it holds are as they were.
    turn: Option<Turn>,
    /// Nothing of it starts.
    shut: bool,
    /// Its own pending jobs, in order.
    jobs: Line<'a>,
    /// Where the next job of it and all below it waits.
    next: Option<usize>,
}

/// Where a queue stands in the tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(usize);

/// The tree of one look.
pub(crate) struct Shares<'a> {
    state: &'a State,
    knots: Vec<Knot<'a>>,
    places: BTreeMap<&'a QueueName, usize>,
    tops: Vec<usize>,
    next: Option<usize>,
    /// What the open nodes have, in use or not.
    capacity: Holding,
    /// What is guaranteed to all queues, those below others too.
    own: Holding,
    /// Whom something is promised to, in the order of their turns.
    promised: Vec<Promise>,
}

/// What is kept for a job under the quotas above it. It binds those behind the job alone.
#[derive(Clone, Copy, Debug)]
struct Promise {
    run: RunId,
    at: Option<usize>,
    asked: Holding,
}

impl Knot<'_> {
    /// What nobody else can have of it, with `asked` more held at it by what cannot be preempted and so much kept of those below it.
    fn kept_with(&self, asked: Holding, below: Holding) -> Holding {
        let held = self.purse.firm.without(self.below_firm).with(asked).with(below);
        Holding { gpu_milli: held.gpu_milli.max(self.own.gpu_milli), slots: held.slots.max(self.own.slots) }
    }
}

/// What is a queue's own. A closed one needs nothing.
fn owned(queue: &Queue) -> Holding {
    let own = if queue.settings.closed { Quota::default() } else { queue.settings.guarantee };
    let (gpu_milli, slots) = Holding::limits(&own);
    Holding { gpu_milli: gpu_milli.unwrap_or(0), slots: slots.unwrap_or(0) }
}

/// Whether of everything that is asked no more is held than is its own.
fn within(held: Holding, own: Holding, asked: Holding) -> bool {
    (asked.gpu_milli == 0 || held.gpu_milli <= own.gpu_milli) && (asked.slots == 0 || held.slots <= own.slots)
}

fn is_over(quota: &Quota, held: Holding, asked: Holding) -> bool {
    let (gpu_milli, slots) = Holding::limits(quota);
    let over = |asked: u64, held: u64, quota: Option<u64>| asked > 0 && quota.is_some_and(|quota| held > quota);
    over(asked.gpu_milli, held.gpu_milli, gpu_milli) || over(asked.slots, held.slots, slots)
}

/// Why what is promised to others leaves no room under a quota, in words.
fn kept_lack(quota: &Quota, held: Holding, promised: Holding, asked: Holding) -> Option<String> {
    let lack = |(what, of): Sort, quota: Option<u64>| {
        let ([held, promised, asked], quota) = ([held, promised, asked].map(of), quota?);
        let over = promised > 0 && asked > 0 && held + promised + asked > quota;
        let [held, promised, asked, quota] = [held, promised, asked, quota].map(|count| words(what, count));
        over.then(|| format!("{what}: {held} of {quota} in use, {promised} kept for what has waited longer, {asked} asked"))
    };
    let (gpu_milli, slots) = Holding::limits(quota);
    lack(GPUS, gpu_milli).or_else(|| lack(SLOTS, slots))
}

fn share(held: Holding, of: Holding) -> u128 {
    let part = |held: u64, of: u64| u128::from(held) * WHOLE / u128::from(of.max(1));
    part(held.gpu_milli, of.gpu_milli).max(part(held.slots, of.slots))
}

impl<'a> Shares<'a> {
    /// The tree of a state. Its pending jobs are told by [`Shares::queue_up`], what leaves by [`Shares::leaves`].
    pub(crate) fn new(state: &'a State, board: &Board<'_>) -> Self {
        let mut shares = Self {
            state,
            knots: Vec::new(),
            places: BTreeMap::new(),
            tops: Vec::new(),
            next: None,
            capacity: board.ground.capacity,
            own: Holding::default(),
            promised: Vec::new(),
        };
        for (name, queue) in state.queues() {
            shares.places.insert(name, shares.knots.len());
            let knot = Knot {
                name,
                own: owned(queue),
                kept: Holding::default(),
                below_firm: Holding::default(),
                below_kept: Holding::default(),
                turn: None,
                queue,
                parent: None,
                below: Vec::new(),
                purse: Purse::default(),
                shut: state.is_shut(name),
                jobs: Line::default(),
                next: None,
            };
            shares.own = shares.own.with(knot.own);
            shares.knots.push(knot);
        }
        for at in 0..shares.knots.len() {
            match state.parent(shares.knots[at].name).and_then(|parent| shares.places.get(parent)).copied() {
                Some(parent) => {
                    shares.knots[at].parent = Some(parent);
                    shares.knots[parent].below.push(at);
                }
                None => shares.tops.push(at),
            }
        }
        for at in 0..shares.knots.len() {
            let holding = shares.knots[at].queue.holding;
            let standing = board.ground.standing.get(shares.knots[at].name).copied().unwrap_or_default();
            let coming = holding.without(standing.leaving);
            shares.each_above(Some(at), |purse| {
                purse.now = purse.now.with(holding);
                purse.coming = purse.coming.with(coming);
                purse.firm = purse.firm.with(standing.firm);
            });
        }
        for top in shares.tops.clone() {
            shares.keep_below(top);
        }
        shares
    }

    /// What is kept of a queue, from those below it up.
    fn keep_below(&mut self, at: usize) {
        let (mut firm, mut kept) = (Holding::default(), Holding::default());
        for below in self.knots[at].below.clone() {
            self.keep_below(below);
            firm = firm.with(self.knots[below].purse.firm);
            kept = kept.with(self.knots[below].kept);
        }
        let knot = &mut self.knots[at];
        (knot.below_firm, knot.below_kept) = (firm, kept);
        knot.kept = knot.kept_with(Holding::default(), knot.below_kept);
    }

    /// As [`Shares::keep_below`], after what cannot be preempted has changed at a queue.
    fn keep_above(&mut self, at: Option<usize>, before: &[Holding]) {
        let mut next = at;
        let mut before = before.iter();
        while let Some(at) = next {
            let knot = &mut self.knots[at];
            let kept = knot.kept_with(Holding::default(), knot.below_kept);
            let (kept_before, firm) = (std::mem::replace(&mut knot.kept, kept), knot.purse.firm);
            next = knot.parent;
            if let (Some(above), Some(firm_before)) = (next, before.next()) {
                let above = &mut self.knots[above];
                above.below_kept = above.below_kept.without(kept_before).with(kept);
                above.below_firm = above.below_firm.without(*firm_before).with(firm);
            }
        }
    }

    /// Changes what cannot be preempted at a queue and those above it.
    fn change_firm(&mut self, at: Option<usize>, change: impl Fn(&mut Holding)) {
        let mut before = Vec::with_capacity(crate::DEPTH_MAX);
        self.each_above(at, |purse| {
            before.push(purse.firm);
            change(&mut purse.firm);
        });
        self.keep_above(at, &before);
    }

    fn each_above(&mut self, at: Option<usize>, mut change: impl FnMut(&mut Purse)) {
        let mut next = at;
        while let Some(at) = next {
            change(&mut self.knots[at].purse);
            next = self.knots[at].parent;
        }
    }

    /// The queue itself and those above it.
    fn line(&self, name: &QueueName) -> impl Iterator<Item = &Knot<'a>> {
        std::iter::successors(self.places.get(name).map(|at| &self.knots[*at]), |knot| knot.parent.map(|above| &self.knots[above]))
    }

    /// Takes in the pending jobs: the groups that `wanted` wants of queues that start something, and `apart` those that are considered one by one.
    pub(super) fn queue_up(
        &mut self,
        mut wanted: impl FnMut(&Self, &GroupKey, &Group, Place) -> bool,
        apart: impl Iterator<Item = &'a Job>,
    ) {
        let state = self.state;
        for knot in &mut self.knots {
            knot.jobs = Line::default();
        }
        for (queue, groups) in &state.index().waiting {
            let Some(at) = self.places.get(queue).copied().filter(|at| !self.knots[*at].shut) else { continue };
            let groups = groups.iter().filter(|(key, group)| wanted(self, key, group, Place(at))).map(|(_, group)| group).collect();
            self.knots[at].jobs = Line::of(groups);
        }
        for job in apart {
            if let Some(at) = self.places.get(&job.spec.queue).copied() {
                self.knots[at].jobs.add(job);
            }
        }
        for knot in &mut self.knots {
            knot.jobs.settle(state);
        }
        // Those below first.
        for top in self.tops.clone() {
            self.find_below(top);
        }
        self.next = self.best(&self.tops);
    }

    fn find_below(&mut self, at: usize) {
        for below in self.knots[at].below.clone() {
            self.find_below(below);
        }
        self.find(at);
    }

    fn find(&mut self, at: usize) {
        let own = self.knots[at].jobs.front().map(|_| at);
        let next = own.or_else(|| self.best(&self.knots[at].below));
        let job = next.and_then(|next| self.knots[next].jobs.front());
        let turn = job.map(|job| self.turn(&self.knots[at], job));
        (self.knots[at].next, self.knots[at].turn) = (next, turn);
    }

    /// Where among some siblings the next job waits.
    fn best(&self, siblings: &[usize]) -> Option<usize> {
        let turns = siblings.iter().filter_map(|at| Some((self.knots[*at].turn?, self.knots[*at].next?)));
        turns.min().map(|(_, next)| next)
    }

    fn turn(&self, knot: &Knot<'_>, job: &Job) -> Turn {
        let (held, own) = (knot.purse.now.with(Holding::asked(&job.spec)), knot.own);
        let borrows = !within(held, own, Holding::asked(&job.spec));
        let share = if borrows { share(held, self.capacity) / u128::from(knot.queue.settings.weight.max(1)) } else { share(held, own) };
        Turn { borrows, share, age: job.submitted.sequence }
    }

    /// The job whose turn it is, taken out.
    pub(super) fn pop(&mut self) -> Option<Head<'a>> {
        let at = self.next?;
        let head = self.knots[at].jobs.pop(self.state);
        self.look_again(at);
        head
    }

    /// The next of a job's group may have its turn.
    pub(super) fn go_on(&mut self, head: &Head<'a>) {
        if let Some(at) = self.places.get(&head.job.spec.queue).copied() {
            self.knots[at].jobs.go_on(head, self.state);
            self.look_again(at);
        }
    }

    /// The order above a queue, after something of it changed.
    fn look_again(&mut self, at: usize) {
        let mut next = Some(at);
        while let Some(at) = next {
            self.find(at);
            next = self.knots[at].parent;
        }
        self.next = self.best(&self.tops);
    }

    /// A job starts.
    pub(super) fn starts(&mut self, job: &Job) {
        self.keeps(job);
        let (at, asked) = (self.places.get(&job.spec.queue).copied(), Holding::asked(&job.spec));
        self.each_above(at, |purse| purse.now = purse.now.with(asked));
    }

    /// What is coming is kept for a job.
    pub(super) fn keeps(&mut self, job: &Job) {
        let (at, asked, firm) = (self.places.get(&job.spec.queue).copied(), Holding::asked(&job.spec), !job.spec.preemptible);
        self.each_above(at, |purse| purse.coming = purse.coming.with(asked));
        if firm {
            self.change_firm(at, |firm| *firm = firm.with(asked));
        }
    }

    /// What was kept for a job is given up.
    pub(super) fn gives(&mut self, job: &Job) {
        let (at, asked) = (self.places.get(&job.spec.queue).copied(), Holding::asked(&job.spec));
        self.each_above(at, |purse| purse.coming = purse.coming.without(asked));
        if !job.spec.preemptible {
            self.change_firm(at, |firm| *firm = firm.without(asked));
        }
    }

    /// Keeps what a job asks under the quotas above it, so that those behind it do not use them up for ever. Nothing is kept of what no quota could ever
    /// give, nor for a job that may not borrow what it asks whoever ends.
    pub(super) fn promise(&mut self, job: &Job) {
        let asked = Holding::asked(&job.spec);
        let hopeless = self.state.quota_never(&job.spec.queue, asked).is_some();
        if !hopeless && self.unlendable(&job.spec).is_none() && self.promise_of(&job.run).is_none() {
            let promise = Promise { run: job.run, at: self.places.get(&job.spec.queue).copied(), asked };
            self.promised.push(promise);
            self.shift_promise(promise, false);
        }
    }

    fn promise_of(&self, run: &RunId) -> Option<usize> {
        self.promised.iter().position(|promise| promise.run == *run)
    }

    /// How many jobs something is promised to.
    pub(super) fn promises(&self) -> usize {
        self.promised.len()
    }

    /// A job's own promise does not bind it, nor do those to jobs behind it: or two would wait for each other for ever.
    pub(super) fn lift(&mut self, job: &Job, lifted: bool) {
        if let Some(from) = self.promise_of(&job.run) {
            for at in from..self.promised.len() {
                self.shift_promise(self.promised[at], lifted);
            }
        }
    }

    /// A promise whose job has got its place; it was lifted for that, with those behind it.
    pub(super) fn fulfil(&mut self, job: &Job) {
        if let Some(from) = self.promise_of(&job.run) {
            self.promised.remove(from);
            for at in from..self.promised.len() {
                self.shift_promise(self.promised[at], false);
            }
        }
    }

    fn shift_promise(&mut self, promise: Promise, lifted: bool) {
        let shift = |sum: Holding| if lifted { sum.without(promise.asked) } else { sum.with(promise.asked) };
        self.each_above(promise.at, |purse| purse.promised = shift(purse.promised));
    }

    /// What of the promises at a queue does not bind a job: its own and those to jobs behind it.
    fn unbinding(&self, run: &RunId, knot: usize) -> Holding {
        let from = self.promise_of(run).unwrap_or(self.promised.len());
        let stands_below = |promise: &&Promise| {
            let mut line = std::iter::successors(promise.at, |at| self.knots[*at].parent);
            line.any(|at| at == knot)
        };
        self.promised[from..].iter().filter(stands_below).fold(Holding::default(), |sum, promise| sum.with(promise.asked))
    }

    /// What a member of a job holds is being given up, or is not after all.
    pub(super) fn leaves(&mut self, job: &Job, member: &MemberPlacement, leaves: bool) {
        let at = self.places.get(&job.spec.queue).copied();
        let (held, open) = (Claim::of(member).held(), usable_of(self.state, member));
        let firm = if job.spec.preemptible { Holding::default() } else { open };
        let shift = |sum: &mut Holding, part: Holding| *sum = if leaves { sum.without(part) } else { sum.with(part) };
        self.each_above(at, |purse| shift(&mut purse.coming, held));
        if firm != Holding::default() {
            self.change_firm(at, |sum| shift(sum, firm));
        }
    }

    /// Why a job may not start beside what is held now (or, `coming`, beside what will be), by the quotas of its line.
    pub(crate) fn lacks(&self, spec: &JobSpec, coming: bool) -> Option<String> {
        self.over_quota(spec, coming).or_else(|| self.unlendable(spec))
    }

    /// Both: beside what is held now, and beside what will be.
    pub(super) fn lacks_both(&self, spec: &JobSpec) -> (Option<String>, Option<String>) {
        let (now, coming) = (self.over_quota(spec, false), self.over_quota(spec, true));
        let lent = if now.is_none() || coming.is_none() { self.unlendable(spec) } else { None };
        (now.or_else(|| lent.clone()), coming.or(lent))
    }

    /// Whether a group's jobs lack something by the quotas of their line or may not borrow: beside what is held now, and beside what will be.
    pub(super) fn group_lacks(&self, group: &Group, preemptible: bool, Place(at): Place) -> (bool, bool) {
        let first = group.first().map(|((_, _, run), _)| *run).filter(|run| self.promise_of(run).is_some());
        let over = |held: fn(&Purse) -> Holding| {
            let lacks = |at: usize| {
                let knot = &self.knots[at];
                let free = first.map_or_else(Holding::default, |run| self.unbinding(&run, at));
                let beside = held(&knot.purse).with(knot.purse.promised.without(free));
                is_over(&knot.queue.settings.quota, beside.with(group.asked), group.asked)
            };
            std::iter::successors(Some(at), |at| self.knots[*at].parent).any(lacks)
        };
        let lent = !preemptible && self.missing(Some(at), group.asked).is_some();
        (lent || over(|purse| purse.now), lent || over(|purse| purse.coming))
    }

    fn over_quota(&self, spec: &JobSpec, coming: bool) -> Option<String> {
        let asked = Holding::asked(spec);
        let lacks = |knot: &Knot<'_>| {
            let held = if coming { knot.purse.coming } else { knot.purse.now };
            let lack = quota_lack(&knot.queue.settings.quota, held, asked);
            told(&spec.queue, knot.name, lack.or_else(|| kept_lack(&knot.queue.settings.quota, held, knot.purse.promised, asked)))
        };
        self.line(&spec.queue).find_map(lacks)
    }

    /// Why work that cannot be preempted may not borrow what it asks: a guarantee might ask for it back. `None` when it may.
    pub(super) fn unlendable(&self, spec: &JobSpec) -> Option<String> {
        if spec.preemptible {
            return None;
        }
        let asked = Holding::asked(spec);
        let (what, asked, missing) = self.missing(self.places.get(&spec.queue).copied(), asked)?;
        let (asked, missing) = (words(what, asked), words(what, missing));
        Some(format!(
            "{what}: {asked} asked beyond the queue's guarantee, {missing} of them may be asked back by other queues; work that is preemptible may \
             borrow them"
        ))
    }

    /// What work that cannot be preempted may not borrow at a queue: of which resource, how much is asked, and how much of that is missing.
    fn missing(&self, at: Option<usize>, asked: Holding) -> Option<(&'static str, u64, u64)> {
        let mut line = std::iter::successors(at.map(|at| &self.knots[at]), |knot| knot.parent.map(|above| &self.knots[above]));
        if at.is_some() && line.all(|knot| within(knot.purse.firm.with(asked), knot.own, asked)) {
            return None;
        }
        let kept = self.kept_asking(at, asked);
        let missing = |(what, of): Sort| {
            let [asked, kept, own, there] = [asked, kept, self.own, self.capacity].map(of);
            let missing = kept.checked_sub(there).filter(|missing| *missing > 0 && asked > 0 && own > 0)?;
            Some((what, asked, missing))
        };
        missing(GPUS).or_else(|| missing(SLOTS))
    }

    /// What nobody else could have of all queues, if what cannot be preempted held `asked` more at one of them.
    fn kept_asking(&self, at: Option<usize>, asked: Holding) -> Holding {
        let all = self.tops.iter().fold(Holding::default(), |sum, top| sum.with(self.knots[*top].kept));
        // A queue that nobody has used yet stands in no tree.
        let Some(mut at) = at else { return all.with(asked) };
        let mut kept = self.knots[at].kept_with(asked, self.knots[at].below_kept);
        while let Some(above) = self.knots[at].parent {
            let knot = &self.knots[above];
            let below = knot.below_kept.without(self.knots[at].kept).with(kept);
            kept = knot.kept_with(Holding::default(), below);
            at = above;
        }
        all.without(self.knots[at].kept).with(kept)
    }

    /// Whether a quota may bind both queues: one that both stand under, or are.
    pub(super) fn share_a_quota(&self, one: &QueueName, other: &QueueName) -> bool {
        self.line(one).any(|above| self.line(other).any(|known| known.name == above.name))
    }

    /// Whether a side is within its guarantee with what is asked, at the queue or at one above it: only then anything is given back to it.
    pub(super) fn may_ask_back(&self, Place(at): Place, asked: Holding) -> bool {
        let mut line = std::iter::successors(Some(&self.knots[at]), |knot| knot.parent.map(|above| &self.knots[above]));
        line.any(|knot| within(knot.purse.coming.with(asked), knot.own, asked))
    }

    /// Where a queue stands, when it is known.
    pub(super) fn place(&self, queue: &QueueName) -> Option<Place> {
        self.places.get(queue).copied().map(Place)
    }

    pub(super) fn queue_at(&self, Place(at): Place) -> &'a QueueName {
        self.knots[at].name
    }

    /// Whether a job may have stopped what a job of another queue has borrowed.
    pub(super) fn may_reclaim(&self, job: &Job, victim: &Job) -> bool {
        let (asked, holds) = (Holding::asked(&job.spec), Holding::asked(&victim.spec));
        let lacks = (asked.gpu_milli > 0 && holds.gpu_milli == 0) || (asked.slots > 0 && holds.slots == 0);
        !lacks && self.may_reclaim_from(job, &victim.spec.queue)
    }

    /// Whether a job may have stopped what another queue has borrowed: below the queue that both stand under, its own side stays within its guarantee with
    /// it, and the other side is beyond its own, all the way down to who holds it. The resource is the one that the job asks for: what is held of another one
    /// is not lent to this side, which could be stopped for it in turn.
    pub(super) fn may_reclaim_from(&self, job: &Job, queue: &QueueName) -> bool {
        let asked = Holding::asked(&job.spec);
        let (mine, theirs): (Vec<_>, Vec<_>) = (self.line(&job.spec.queue).collect(), self.line(queue).collect());
        let common = mine.iter().rev().zip(theirs.iter().rev()).take_while(|(one, other)| one.name == other.name).count();
        let (Some(mine), Some(theirs)) = (mine.len().checked_sub(common + 1).map(|at| mine[at]), theirs.get(..theirs.len() - common))
        else {
            return false;
        };
        let lends = |knot: &&Knot<'_>| !within(knot.purse.coming, knot.own, asked);
        within(mine.purse.coming.with(asked), mine.own, asked) && !theirs.is_empty() && theirs.iter().all(lends)
    }
}
