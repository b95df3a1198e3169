//! Beats: the node's lease, its generation, and who else may claim to be this node.

use super::{Core, Effect, Now, Phase};
use footplate_events::messages::{Beat, BeatMessage, Fence};
use footplate_types::Epoch;

const MILLI: u64 = 1_000_000;
/// Pause after a look or a beat that found the broker away.
const RETRY_NS: u64 = 1_000 * MILLI;

/// How a beat's publish ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BeatOutcome {
    /// Stored under this sequence.
    Acknowledged(u64),
    /// Another message was there.
    Conflict,
    /// Nobody knows.
    Unknown,
    /// It was not stored, and nothing else is known.
    NotSent,
}

/// Where the beating stands.
pub(super) struct Beating {
    /// Sequence of the last message known on the subject; absent: look first.
    previous: Option<u64>,
    /// Beats of this process.
    number: u64,
    /// The beat that is being published.
    in_flight: Option<(u64, u64)>,
    /// A beat whose outcome is unknown: number and the time it was sent.
    unacknowledged: Option<(u64, u64)>,
    looking: bool,
    /// Nothing is sent or looked at before.
    due_ns: u64,
    /// Another machine's last beat and when it was first seen to stand still.
    foreign: Option<(u64, u64)>,
    /// Until when the lease holds; `u64::MAX` = no end. 0: it does not.
    lease_until: u64,
    /// The boot in which this folder was last used; empty for a fresh one.
    earlier_boot: String,
    /// The generation that was registered by this process.
    registered: Option<Epoch>,
}

impl Beating {
    pub(super) fn new(earlier_boot: &str, boot: &str, lease_until: Option<u64>) -> Self {
        // A lease of another boot means nothing.
        let lease_until = lease_until.filter(|_| earlier_boot == boot).unwrap_or(0);
        Self {
            previous: None,
            number: 0,
            in_flight: None,
            unacknowledged: None,
            looking: false,
            due_ns: 0,
            foreign: None,
            lease_until,
            earlier_boot: earlier_boot.to_owned(),
            registered: None,
        }
    }

    pub(super) fn lease_holds(&self, now: Now) -> bool {
        self.registered.is_some() && now.boot_ns < self.lease_until
    }

    /// The fenced generation is over: the next beat follows the fence.
    pub(super) fn begin_generation(&mut self, fence: u64) {
        self.previous = Some(fence);
        self.unacknowledged = None;
        self.registered = None;
        self.lease_until = 0;
        self.due_ns = 0;
    }
}

impl Core {
    /// Looks or beats when it is time.
    pub(super) fn drive_beat(&mut self, now: Now) {
        let beating = &mut self.beating;
        if self.fencing.is_some() || beating.in_flight.is_some() || beating.looking || now.boot_ns < beating.due_ns {
            return;
        }
        let (Some(previous), Some(epoch)) = (beating.previous, self.state.epoch) else {
            beating.looking = true;
            self.effects.push(Effect::LookAtBeat);
            return;
        };
        beating.number += 1;
        beating.in_flight = Some((beating.number, now.boot_ns));
        beating.due_ns = now.boot_ns + self.fixed.beat_every_ms * MILLI;
        let alive = |held: &super::Held| held.phase != Phase::Ended;
        let held = self.state.members.iter().filter(|(_, held)| alive(held)).map(|(key, _)| (key.run, key.attempt)).collect();
        let beat = Beat {
            node: self.fixed.node.clone(),
            epoch,
            boot_id: self.fixed.boot_id.clone(),
            number: beating.number,
            lease_ms: self.fixed.lease_ms,
            kill_ms: self.fixed.kill_ms,
            as_of: self.state.as_of,
            held,
            sent_at: now.wall,
            agent: self.state.token.clone(),
        };
        self.effects.push(Effect::SendBeat { beat, expect: previous });
    }

    pub(super) fn beat_done(&mut self, now: Now, number: u64, outcome: BeatOutcome) {
        let Some((sent, sent_ns)) = self.beating.in_flight.take_if(|(sent, _)| *sent == number) else { return };
        match outcome {
            BeatOutcome::Acknowledged(sequence) => {
                self.beating.previous = Some(sequence);
                self.acknowledged(sent_ns);
            }
            BeatOutcome::NotSent => self.beating.due_ns = self.beating.due_ns.min(now.boot_ns + RETRY_NS),
            // Whatever stands there now decides: our own beat, a fence, or another who is called as we are.
            BeatOutcome::Conflict | BeatOutcome::Unknown => {
                self.beating.unacknowledged = Some((sent, sent_ns));
                self.beating.previous = None;
                self.beating.due_ns = if outcome == BeatOutcome::Conflict { now.boot_ns } else { now.boot_ns + RETRY_NS };
            }
        }
    }

    /// The lease counts from when the beat was sent, never from when its answer came.
    fn acknowledged(&mut self, sent_ns: u64) {
        let beating = &mut self.beating;
        beating.unacknowledged = None;
        beating.foreign = None;
        let endless = self.fixed.lease_ms == 0;
        let until = if endless { u64::MAX } else { sent_ns.saturating_add(self.fixed.lease_ms * MILLI) };
        if until > beating.lease_until {
            beating.lease_until = until;
            self.effects.push(Effect::WriteLease { until_boot_ns: (!endless).then_some(until) });
        }
        if let Some(epoch) = self.state.epoch.filter(|epoch| beating.registered != Some(*epoch)) {
            beating.registered = Some(epoch);
            self.effects.push(Effect::Register { epoch });
        }
    }

    pub(super) fn beat_looked(&mut self, now: Now, looked: Result<Option<(u64, BeatMessage)>, ()>) {
        self.beating.looking = false;
        match looked {
            Err(()) => self.beating.due_ns = now.boot_ns + RETRY_NS,
            Ok(None) => self.follow_after(0, Epoch(1)),
            Ok(Some((sequence, BeatMessage::Fence(fence)))) => self.fenced(sequence, &fence),
            Ok(Some((sequence, BeatMessage::Beat(beat)))) => self.beat_found(now, sequence, &beat),
        }
    }

    fn follow_after(&mut self, sequence: u64, epoch: Epoch) {
        self.beating.foreign = None;
        self.beating.previous = Some(sequence);
        self.beating.due_ns = 0;
        if self.state.epoch.is_none_or(|known| known < epoch) {
            self.state.epoch = Some(epoch);
            self.dirty = true;
        }
    }

    fn fenced(&mut self, sequence: u64, fence: &Fence) {
        if self.is_over(fence.epoch) && !self.is_idle() {
            tracing::error!(node = %self.fixed.node, epoch = %fence.epoch, reason = %fence.reason, "fenced: everything held here is killed");
        }
        self.next_generation(sequence, fence.epoch);
    }

    /// Whether our generation is before this one.
    fn is_over(&self, epoch: Epoch) -> bool {
        self.state.epoch.is_some_and(|known| known < epoch)
    }

    /// Follows the message at `sequence` under `epoch`; what is held under an earlier generation ends first.
    fn next_generation(&mut self, sequence: u64, epoch: Epoch) {
        if self.is_over(epoch) {
            if !self.is_idle() {
                self.fencing = Some((epoch, sequence));
                return;
            }
            self.beating.begin_generation(sequence);
        }
        self.follow_after(sequence, epoch);
    }

    fn beat_found(&mut self, now: Now, sequence: u64, beat: &Beat) {
        // Containers of one machine share its boot id: only the folder's token tells their agents apart.
        let ours_by_token = beat.agent.is_empty() || beat.agent == self.state.token;
        let ours_by_boot = ours_by_token && beat.boot_id == self.fixed.boot_id;
        if let Some((number, sent_ns)) = self.beating.unacknowledged
            && ours_by_boot
            && beat.number == number
        {
            // It was stored after all.
            self.follow_after(sequence, beat.epoch);
            self.acknowledged(sent_ns);
            self.beating.due_ns = sent_ns + self.fixed.beat_every_ms * MILLI;
            return;
        }
        if (ours_by_token && self.is_own(beat, ours_by_boot)) || self.stood_still(now, sequence, beat) {
            self.beating.unacknowledged = None;
            if beat.boot_id == self.fixed.boot_id {
                self.follow_after(sequence, beat.epoch);
            } else {
                // Another boot is another generation. Registered, it tells the executor that all placed before is lost; under the old
                // generation this agent would prepare and start some of that, placed or made ready before, which is being placed anew.
                self.next_generation(sequence, Epoch(beat.epoch.0 + 1));
            }
        }
    }

    /// A beat of an earlier life of this very folder, or of this process when nothing came in between.
    fn is_own(&self, beat: &Beat, ours_by_boot: bool) -> bool {
        let lived_before = self.state.epoch == Some(beat.epoch);
        match self.beating.number {
            0 => lived_before && (ours_by_boot || beat.boot_id == self.beating.earlier_boot),
            number => lived_before && ours_by_boot && beat.number < number,
        }
    }

    /// Another one is called as this node. Its place may be taken only once it is seen to be dead: after its lease and the time its shims
    /// need to kill; a lease without end is one machine's, whose folder was moved or removed, and there two of our own beats are waited. One
    /// that beats on is alive: then two share a name, and this one gives way.
    fn stood_still(&mut self, now: Now, sequence: u64, beat: &Beat) -> bool {
        let endless = beat.lease_ms == 0;
        let patience = if endless { 2 * self.fixed.beat_every_ms.max(beat.kill_ms / 2) } else { beat.lease_ms + beat.kill_ms } * MILLI;
        self.beating.due_ns = now.boot_ns + RETRY_NS;
        let since = match self.beating.foreign {
            Some((known, since)) if known == sequence => since,
            Some(_) => {
                tracing::error!(node = %self.fixed.node, boot = %beat.boot_id, agent = %beat.agent, "another agent beats under this name and lives");
                self.name_taken = Some(beat.boot_id.clone());
                return false;
            }
            None => {
                tracing::warn!(node = %self.fixed.node, boot = %beat.boot_id, "another agent beats under this name; waiting for its lease to run out");
                self.beating.foreign = Some((sequence, now.boot_ns));
                now.boot_ns
            }
        };
        now.boot_ns.saturating_sub(since) > patience
    }
}
