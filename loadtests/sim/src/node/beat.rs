//! A model of the agent's beats: the node's lease, its generation, and the beat that is found to be its own after all.

use super::agent::{Agent, Effect};
use crate::planted::Planted;
use crate::settings::{BEAT_MS, KILL_MS, LEASE_MS};
use footplate_events::messages::{Beat, BeatMessage, Fence};
use footplate_types::Epoch;

/// Pause after a look or a beat that found the broker away.
const RETRY_MS: u64 = 1_000;

/// How a beat's publication ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Acknowledged(u64),
    Conflict,
    Unknown,
    NotSent,
}

/// Where the beating stands; times are of the boot clock, in milliseconds.
#[derive(Debug, Default)]
pub(super) struct Beating {
    /// The last message known on the subject; absent: look first.
    previous: Option<u64>,
    number: u64,
    in_flight: Option<(u64, u64)>,
    unacknowledged: Option<(u64, u64)>,
    looking: bool,
    due: u64,
    /// Another one's last beat, and since when it stands still.
    foreign: Option<(u64, u64)>,
    lease_until: u64,
    earlier_boot: String,
    registered: Option<Epoch>,
}

impl Beating {
    pub(super) fn new(earlier_boot: &str, boot: &str, lease_until: Option<u64>) -> Self {
        let lease_until = lease_until.filter(|_| earlier_boot == boot).unwrap_or(0);
        Self { lease_until, earlier_boot: earlier_boot.to_owned(), ..Self::default() }
    }

    pub(super) fn lease_holds(&self, now: u64) -> bool {
        self.registered.is_some() && now < self.lease_until
    }

    /// The fenced generation is over: the next beat follows the fence.
    pub(super) fn begin_generation(&mut self, fence: u64) {
        self.previous = Some(fence);
        self.unacknowledged = None;
        self.registered = None;
        self.lease_until = 0;
        self.due = 0;
    }
}

impl Agent {
    /// Looks or beats when it is time.
    pub(super) fn drive_beat(&mut self, now: u64) {
        let beating = &mut self.beating;
        if self.fencing.is_some() || beating.in_flight.is_some() || beating.looking || now < beating.due {
            return;
        }
        let (Some(previous), Some(epoch)) = (beating.previous, self.saved.epoch) else {
            beating.looking = true;
            return self.effects.push(Effect::LookAtBeat);
        };
        beating.number += 1;
        beating.in_flight = Some((beating.number, now));
        beating.due = now + BEAT_MS;
        self.effects.push(Effect::SendBeat { number: beating.number, epoch, expect: previous });
    }

    pub(super) fn beat_done(&mut self, now: u64, number: u64, outcome: Outcome) {
        let Some((sent, sent_at)) = self.beating.in_flight.take_if(|(sent, _)| *sent == number) else { return };
        match outcome {
            Outcome::Acknowledged(sequence) => {
                self.beating.previous = Some(sequence);
                self.acknowledged(sent_at);
            }
            Outcome::NotSent => self.beating.due = self.beating.due.min(now + RETRY_MS),
            Outcome::Conflict | Outcome::Unknown => {
                self.beating.unacknowledged = Some((sent, sent_at));
                self.beating.previous = None;
                self.beating.due = if outcome == Outcome::Conflict { now } else { now + RETRY_MS };
            }
        }
    }

    /// The lease counts from when the beat was sent, never from when its answer came.
    fn acknowledged(&mut self, sent_at: u64) {
        let beating = &mut self.beating;
        beating.unacknowledged = None;
        beating.foreign = None;
        let until = sent_at + LEASE_MS;
        if until > beating.lease_until {
            beating.lease_until = until;
            self.effects.push(Effect::WriteLease { until });
        }
        if let Some(epoch) = self.saved.epoch.filter(|epoch| beating.registered != Some(*epoch)) {
            beating.registered = Some(epoch);
            self.effects.push(Effect::Register { epoch });
        }
    }

    pub(super) fn beat_looked(&mut self, now: u64, looked: Result<Option<(u64, BeatMessage)>, ()>) {
        self.beating.looking = false;
        match looked {
            Err(()) => self.beating.due = now + RETRY_MS,
            Ok(None) => self.follow_after(0, Epoch(1)),
            Ok(Some((sequence, BeatMessage::Fence(fence)))) => self.fenced(sequence, &fence),
            Ok(Some((sequence, BeatMessage::Beat(beat)))) => self.beat_found(now, sequence, &beat),
        }
    }

    fn follow_after(&mut self, sequence: u64, epoch: Epoch) {
        self.beating.foreign = None;
        self.beating.previous = Some(sequence);
        self.beating.due = 0;
        if self.saved.epoch.is_none_or(|known| known < epoch) {
            self.saved.epoch = Some(epoch);
            self.dirty = true;
        }
    }

    fn fenced(&mut self, sequence: u64, fence: &Fence) {
        if let (Some(Planted::Fencing), Some(epoch)) = (self.planted, self.saved.epoch) {
            return self.follow_after(sequence, epoch);
        }
        self.next_generation(sequence, fence.epoch);
    }

    /// A generation begins, because the one before was fenced or the machine was started anew: what was placed under the old one may be
    /// told as lost already, and must not start any more.
    fn next_generation(&mut self, sequence: u64, epoch: Epoch) {
        let is_over = self.saved.epoch.is_some_and(|known| known < epoch);
        if is_over && !self.is_idle() {
            self.fencing = Some((epoch, sequence));
            return;
        }
        if is_over {
            self.beating.begin_generation(sequence);
        }
        self.follow_after(sequence, epoch);
    }

    fn beat_found(&mut self, now: u64, sequence: u64, beat: &Beat) {
        let of_this_folder = beat.agent == self.saved.token;
        let of_this_boot = of_this_folder && beat.boot_id == self.boot;
        if let Some((number, sent_at)) = self.beating.unacknowledged
            && of_this_boot
            && beat.number == number
        {
            self.follow_after(sequence, beat.epoch);
            self.acknowledged(sent_at);
            self.beating.due = sent_at + BEAT_MS;
            return;
        }
        if (of_this_folder && self.is_own(beat, of_this_boot)) || self.stood_still(now, sequence) {
            self.beating.unacknowledged = None;
            if beat.boot_id == self.boot {
                self.follow_after(sequence, beat.epoch);
            } else {
                self.next_generation(sequence, Epoch(beat.epoch.0 + 1));
            }
        }
    }

    /// A beat of an earlier life of this folder, or of this process when nothing came in between.
    fn is_own(&self, beat: &Beat, of_this_boot: bool) -> bool {
        let lived_before = self.saved.epoch == Some(beat.epoch);
        match self.beating.number {
            0 => lived_before && (of_this_boot || beat.boot_id == self.beating.earlier_boot),
            number => lived_before && of_this_boot && beat.number < number,
        }
    }

    /// Another one was called as this node (a folder that is gone): its place is taken once it is seen to be dead.
    fn stood_still(&mut self, now: u64, sequence: u64) -> bool {
        self.beating.due = now + RETRY_MS;
        let since = self.beating.foreign.filter(|(known, _)| *known == sequence).map_or(now, |(_, since)| since);
        self.beating.foreign = Some((sequence, since));
        now - since > LEASE_MS + KILL_MS
    }
}
