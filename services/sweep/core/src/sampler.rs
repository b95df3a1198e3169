//! How points are chosen. A sampler is a function of the sweep as the ledger tells it and of what this look has drafted already; another one
//! is another variant of [`Sampler`] and an arm here. The event of a trial is the same for all of them.

use crate::state::Sweep;
use crate::{draw, grid};
use footplate_events::facts::{Sampler, Values};
use footplate_types::TrialNumber;

/// What a sampler says.
#[derive(Clone, Debug, PartialEq)]
pub enum Suggestion {
    /// Try this.
    Point(Values),
    /// There is no point left.
    Exhausted,
}

/// The point of the trial after the last one that was suggested or drafted.
pub fn suggest(sweep: &Sweep, drafted: &[(TrialNumber, Values)]) -> Suggestion {
    let newest = drafted.last().map(|(number, values)| (*number, values)).or_else(|| {
        let (number, trial) = sweep.trials.last_key_value()?;
        Some((*number, &trial.values))
    });
    let number = newest.map_or(TrialNumber(1), |(number, _)| number.next());
    match sweep.fact.sampler {
        Sampler::Grid => {
            let next = grid::next_point(&sweep.fact.space, newest.map(|(_, values)| values));
            next.map_or(Suggestion::Exhausted, Suggestion::Point)
        }
        Sampler::Random => Suggestion::Point(draw::point(&sweep.fact.space, sweep.fact.seed, number)),
    }
}
