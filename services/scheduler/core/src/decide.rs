//! Decisions: from a state and the facts of the moment to events. Pure, and level-triggered: it asks what the state needs now, never what
//! has just happened, so a leader that has lost its memory decides the same.
//!
//! One look says at most one thing about a job (answers to requests apart); the rest follows at the next look, which comes as soon as the
//! events are folded. The order of the steps is part of the rules: first attempts whose every member is released get their verdict, then
//! clients' requests are answered, then living attempts are watched (loss, drain, failure, limits, launch), then jobs end whose turn can never
//! come, then pending jobs are placed.

mod after;
mod alarms;
pub(crate) mod array;
mod board;
mod deadline;
mod fit;
mod forecast;
mod ground;
mod hold;
mod line;
mod parts;
mod pass;
mod place;
mod preempt;
mod requests;
mod roles;
mod room;
mod shares;
mod verdict;
mod waiting;
mod wanted;
mod watch;

pub(crate) use board::{Board, Shape, When};
pub use forecast::Forecast;
pub(crate) use forecast::forecast;
pub use ground::Memory;
pub(crate) use room::matches;
pub(crate) use shares::Shares;
pub(crate) use waiting::{Lack, closed_and_free, lack, never, tainted_and_free, too_few_open};

use crate::facts::{Facts, Settled};
use crate::state::State;
use footplate_es::Decision;
use footplate_types::Millis;
use ground::Nodes;
use pass::Pass;

/// What a look led to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ruling {
    /// Events to be appended together, in this order; any head of the list is consistent by itself.
    pub decisions: Vec<Decision>,
    /// When to look again though nothing changes: the next limit that runs out.
    pub wake_in: Option<Millis>,
}

/// Decides. Call again once the decisions are folded, until there are none. `memory` saves work and changes nothing: an empty one will do, and the one of
/// the last look of the same term on the same ledger is quicker.
pub fn decide(state: &State, facts: &Facts<'_>, memory: &mut Memory) -> Ruling {
    let mut pass = Pass::new(state, facts);
    let nodes = memory.ground.refresh(state);
    verdict::close_released(&mut pass);
    requests::answer(&mut pass);
    watch::watch(&mut pass, &mut memory.timed, &memory.ground, &nodes);
    after::end_hopeless(&mut pass);
    look_at_pending(&mut pass, memory, nodes);
    after::tell(&mut pass);
    let (ruling, settled) = pass.ruling();
    memory.settled = settled;
    ruling
}

/// Looks at every pending job, unless the last look has shown that nothing can be placed and that still holds.
fn look_at_pending<'a>(pass: &mut Pass<'a>, memory: &mut Memory, nodes: Nodes<'a>) {
    let (revision, now) = (pass.state.revision(), pass.facts.elapsed);
    let holds = |settled: &Settled| settled.revision == revision && settled.until.is_none_or(|until| now < until);
    if let Some(settled) = memory.settled.filter(|settled| pass.is_empty() && holds(settled)) {
        return pass.settle(settled);
    }
    let before = pass.take_wake();
    place::expire(pass, &mut memory.expiring);
    deadline::look(pass);
    if !pass.is_full() && !pass.state.index().pending.is_empty() {
        let board = Board::new(std::mem::take(&mut memory.ground), nodes);
        memory.ground = place::place(pass, board);
    }
    let until = pass.take_wake();
    if pass.is_empty() {
        pass.settle(Settled { revision, until: until.map(|left| Millis(now.0.saturating_add(left))) });
    }
    pass.wake_in(before);
    pass.wake_in(until);
}
