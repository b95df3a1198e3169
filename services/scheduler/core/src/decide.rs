//! Decisions: from a state and the facts of the moment to events. Pure, and level-triggered: it asks what the state needs now, never what
//! has just happened, so a leader that has lost its memory decides the same.
//!
//! One look says at most one thing about a job (answers to requests apart); the rest follows at the next look, which comes as soon as the
//! events are folded. The order of the steps is part of the rules: first attempts whose every member is released get their verdict, then
//! clients' requests are answered, then living attempts are watched (loss, drain, failure, limits, launch), then jobs end whose turn can never
//! come, then pending jobs are placed.

mod after;
mod board;
mod pass;
mod place;
mod preempt;
mod requests;
mod shares;
mod verdict;
mod waiting;
mod watch;

pub(crate) use board::{Board, When};
pub(crate) use shares::Shares;
pub(crate) use waiting::{Lack, closed_and_free, lack, never, too_few_open};

use crate::facts::{Facts, Settled};
use crate::state::State;
use footplate_es::Decision;
use footplate_types::Millis;
use pass::Pass;

/// What a look led to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ruling {
    /// Events to be appended together, in this order; any head of the list is consistent by itself.
    pub decisions: Vec<Decision>,
    /// When to look again though nothing changes: the next limit that runs out.
    pub wake_in: Option<Millis>,
    /// What the next look of the term may be told.
    pub settled: Option<Settled>,
}

/// Decides. Call again once the decisions are folded, until there are none.
pub fn decide(state: &State, facts: &Facts<'_>) -> Ruling {
    let mut pass = Pass::new(state, facts);
    verdict::close_released(&mut pass);
    requests::answer(&mut pass);
    watch::watch(&mut pass);
    after::end_hopeless(&mut pass);
    look_at_pending(&mut pass);
    after::tell(&mut pass);
    pass.ruling()
}

/// Looks at every pending job, unless the last look has shown that nothing can be placed and that still holds.
fn look_at_pending(pass: &mut Pass<'_>) {
    let (revision, now) = (pass.state.revision(), pass.facts.elapsed);
    let holds = |settled: &Settled| settled.revision == revision && settled.until.is_none_or(|until| now < until);
    if let Some(settled) = pass.facts.settled.filter(|settled| pass.is_empty() && holds(settled)) {
        return pass.settle(settled);
    }
    let before = pass.take_wake();
    place::expire(pass);
    place::place(pass);
    let until = pass.take_wake();
    if pass.is_empty() {
        pass.settle(Settled { revision, until: until.map(|left| Millis(now.0.saturating_add(left))) });
    }
    pass.wake_in(before);
    pass.wake_in(until);
}
