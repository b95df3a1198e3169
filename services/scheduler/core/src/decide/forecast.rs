//! When a waiting job starts, if everything that runs takes as long as it may and nothing new is submitted: the jobs before it are placed in the order of
//! their turns as room comes free, whoever fits overtaking who does not.
//!
//! It is an estimate for people and decides nothing. Work without a limit is taken to go on for ever, so nothing is promised that rests on its end.

use super::board::{Board, Shape, When};
use super::shares::Shares;
use crate::state::{ArrayKey, Claim, Job, Stage, State, Turn};
use footplate_types::{Digest, Millis, RunId, Timestamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// When a waiting job is expected to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forecast {
    /// In so long at the latest, as far as is known now.
    Within(Millis),
    /// Nobody knows, and why.
    Unknown(&'static str),
}

/// The most jobs before one that are looked at.
const AHEAD_MOST: usize = 256;
/// The most ends that are looked at.
const ENDS_MOST: usize = 1_024;
/// How often a place is looked for at most: each time is a walk over all nodes, and the view stands still meanwhile.
const LOOKS_MOST: usize = 1_000;

/// When something is over, and what it holds until then.
#[derive(Clone, Copy)]
enum Holder<'a> {
    Runs(&'a Job),
    /// It was placed by the forecast: which of its placements.
    Placed(usize),
}

/// Which job of each array has got in line last, of those that stood behind.
#[derive(Default)]
struct Followers(BTreeMap<ArrayKey, Turn>);

impl Followers {
    /// The job that gets in line when one of an array is over.
    fn next<'a>(&mut self, state: &'a State, ended: &Job) -> Option<&'a Job> {
        let key = ArrayKey::of(ended)?;
        let turn = *state.index().arrays.line(&key)?.next_behind(self.0.get(&key))?;
        self.0.insert(key, turn);
        state.jobs().get(&turn.2)
    }
}

/// How long an attempt may still take; none when it has no limit. By the broker's times: nobody's monotonic clock is at hand.
fn left(job: &Job, now: Timestamp) -> Option<u64> {
    let limit = job.spec.limits.max_duration.0;
    let attempt = job.attempt().filter(|_| limit > 0)?;
    if let Some(stop) = &attempt.stop {
        return Some(stop.grace.0.saturating_sub(now.millis_since(stop.stamp.at)));
    }
    let age = attempt.launched.as_ref().map_or(0, |launch| now.millis_since(launch.stamp.at));
    Some(limit.saturating_add(job.spec.stop.grace.0).saturating_sub(age))
}

/// The forecast for a pending job that nothing but room and quotas keeps waiting.
pub(crate) fn forecast(state: &State, run: &RunId, now: Timestamp) -> Forecast {
    let mut board = Board::of(state);
    let mut shares = Shares::new(state, &board);
    let index = state.index();
    let apart = index.apart.iter().chain(&index.first).filter_map(|turn| state.jobs().get(&turn.2)).filter(|job| !job.held);
    shares.queue_up(|_, _, _, _| true, apart);
    let mut ahead: Vec<&Job> = Vec::new();
    while ahead.last().is_none_or(|job| job.run != *run) {
        if ahead.len() >= AHEAD_MOST {
            return Forecast::Unknown("more jobs stand before it than are looked at");
        }
        let Some(head) = shares.pop() else { return Forecast::Unknown("it stands in no queue that starts anything") };
        shares.go_on(&head);
        ahead.push(head.job);
    }

    let mut ends: BinaryHeap<(Reverse<u64>, Reverse<usize>)> = BinaryHeap::new();
    let mut holders: Vec<Holder<'_>> = Vec::new();
    for (job, attempt) in state.active().filter(|(_, attempt)| !attempt.is_released()) {
        // What is being stopped counts as gone on the board already.
        if let Some(left) = left(job, now).filter(|_| attempt.stop.is_none()) {
            ends.push((Reverse(left), Reverse(holders.len())));
            holders.push(Holder::Runs(job));
        }
    }
    let mut placed: Vec<(&Job, Vec<(usize, Claim)>)> = Vec::new();
    let mut followers = Followers::default();
    let mut at = 0;
    let mut looks = 0;
    for _ in 0..ENDS_MOST {
        if looks > LOOKS_MOST {
            break;
        }
        let mut without: BTreeSet<Digest> = BTreeSet::new();
        let mut waiting = Vec::new();
        for job in std::mem::take(&mut ahead) {
            let shape = Shape::of(job);
            let rests =
                matches!(&job.stage, Stage::Pending { since, backoff, .. } if backoff.0 > now.millis_since(since.at).saturating_add(at));
            let lacks = rests || without.contains(&job.class) || shares.lacks(&job.spec, true).is_some();
            looks += usize::from(!lacks);
            let seats = if lacks { None } else { board.seat(shape, When::Coming) };
            let Some(seats) = seats else {
                if !lacks {
                    without.insert(job.class);
                }
                waiting.push(job);
                continue;
            };
            if job.run == *run {
                return Forecast::Within(Millis(at));
            }
            board.take(&seats);
            shares.keeps(job);
            if job.spec.limits.max_duration.0 > 0 {
                let over = at.saturating_add(job.spec.limits.max_duration.0).saturating_add(job.spec.stop.grace.0);
                ends.push((Reverse(over), Reverse(holders.len())));
                holders.push(Holder::Placed(placed.len()));
            }
            placed.push((job, seats));
        }
        ahead = waiting;
        let Some((Reverse(over), Reverse(which))) = ends.pop() else {
            return Forecast::Unknown("it waits for work that has no limits.max_duration");
        };
        at = at.max(over);
        let ended = match holders[which] {
            Holder::Runs(job) => job,
            Holder::Placed(which) => placed[which].0,
        };
        // Of another queue it may come before the job or not: what is promised is the later.
        let is_before =
            |other: &&Job| state.jobs().get(run).is_none_or(|job| other.spec.queue != job.spec.queue || other.turn() < job.turn());
        if let Some(next) = followers.next(state, ended).filter(is_before) {
            ahead.insert(0, next);
        }
        match holders[which] {
            Holder::Runs(job) => {
                let members = job.attempt().into_iter().flat_map(|attempt| &attempt.members).filter(|member| !member.is_released());
                for member in members {
                    shares.leaves(job, &member.placement, true);
                    if let Some(plot) = board.position(&member.placement.node) {
                        board.leaves(plot, &Claim::of(&member.placement), false);
                    }
                }
            }
            Holder::Placed(which) => {
                let (job, seats) = &placed[which];
                shares.gives(job);
                for (plot, claim) in seats {
                    board.leaves(*plot, claim, false);
                }
            }
        }
    }
    Forecast::Unknown("more has to end before it than is looked at")
}
