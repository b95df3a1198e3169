//! Placements in the book: whole, on real units that nobody claims, under the quota, on nodes that the decision had not seen closed; and
//! what may start of them.

use super::book::{AttemptBook, Book, JobBook, MemberBook};
use super::{Checked, Found};
use crate::node::Key;
use crate::truth::Started;
use footplate_events::facts::{JobPlaced, MemberPlacement, PerNode};
use footplate_types::{NodeName, RunId};
use std::collections::{BTreeMap, BTreeSet};

impl MemberBook {
    fn of(placement: &MemberPlacement) -> Self {
        Self {
            node: placement.node.clone(),
            epoch: placement.epoch.0,
            gpus: placement.gpus.clone(),
            slots: placement.slots.iter().map(|slot| slot.0).collect(),
            ready: false,
            released: false,
            succeeded: false,
        }
    }

    /// The GPUs and slots, each with its node.
    pub(super) fn units(&self) -> Vec<(NodeName, String)> {
        let slots = self.slots.iter().map(|slot| format!("slot {slot}"));
        self.gpus.iter().map(ToString::to_string).chain(slots).map(|unit| (self.node.clone(), unit)).collect()
    }
}

impl Book {
    pub(super) fn placed(&mut self, run: RunId, fact: &JobPlaced) -> Checked {
        let wrong = |rule, detail: String| Err(Found::new(rule, format!("{run}/{}: {detail}", fact.attempt), &[&run]));
        let Some(job) = self.jobs.get(&run) else { return Ok(()) };
        if !job.is_pending() {
            return wrong("two-attempts", "placed while an attempt is open".to_owned());
        }
        if fact.attempt.0 != job.attempts + 1 {
            return wrong("attempt-number", format!("follows {}", job.attempts));
        }
        if let Err((rule, detail)) = whole(job, fact) {
            return wrong(rule, detail);
        }
        if self.waits(run, job) {
            return wrong("dependency", format!("placed before its turn: {:?}", job.spec.after));
        }
        if let Some(placed) = self.crowd(run, job) {
            return wrong("array", format!("placed beside {placed} others: {:?}", job.spec.array));
        }
        if job.held {
            return wrong("held", "placed while it is held".to_owned());
        }
        let void = match self.void(job, fact) {
            Ok(void) => void,
            Err((rule, detail)) => return wrong(rule, detail),
        };
        let members: BTreeMap<u32, MemberBook> = fact.members.iter().map(|member| (member.member.0, MemberBook::of(member))).collect();
        if !void {
            for unit in members.values().flat_map(MemberBook::units) {
                if let Some((other, attempt)) = self.units.insert(unit.clone(), (run, fact.attempt.0)) {
                    return wrong("oversubscribed", format!("{} of {} is claimed by {other}/{attempt}", unit.1, unit.0));
                }
            }
        }
        let number = fact.attempt.0;
        if let Some(job) = self.jobs.get_mut(&run) {
            job.attempts = number;
            job.attempt = Some(AttemptBook { number, members, launched: false, stopped: false, void, closed: false });
        }
        Ok(())
    }

    /// Whether something that the decision had not seen makes the placement void; wrong when it had seen it.
    fn void(&self, job: &JobBook, fact: &JobPlaced) -> Result<bool, (&'static str, String)> {
        let seen = fact.view.sequence;
        let mut void = false;
        for member in &fact.members {
            let Some(node) = self.nodes.get(&member.node) else { return Err(("closed", format!("{} is not known", member.node))) };
            let other_epoch = (node.epoch != member.epoch.0).then_some(node.registered_at);
            for since in [node.lost, node.drained, other_epoch].into_iter().flatten() {
                if since <= seen {
                    return Err(("closed", format!("{} was closed at {since}, seen up to {seen}", member.node)));
                }
                void = true;
            }
            let bad = member.gpus.iter().filter_map(|gpu| node.bad_gpus.get(gpu).copied()).min();
            if let Some(since) = node.cordoned.into_iter().chain(bad).find(|since| *since <= seen) {
                return Err(("closed", format!("{} or its gpu was closed at {since}, seen up to {seen}", member.node)));
            }
            let is_there = |gpu: &footplate_types::GpuUuid| node.shape.gpus.iter().any(|known| known.uuid == *gpu);
            if !member.gpus.iter().all(is_there) || member.slots.iter().any(|slot| slot.0 >= node.shape.slots) {
                return Err(("units", format!("{} has no such units: {member:?}", member.node)));
            }
        }
        let Some((set_at, settings)) = self.queue(&job.spec.queue) else { return Err(("queue", "of a queue that nobody made".to_owned())) };
        let over = self.would_exceed(job);
        if settings.held || settings.closed || over {
            if set_at <= seen {
                let rule = if over { "quota" } else { "queue" };
                return Err((rule, format!("against {settings:?}, set at {set_at}, seen up to {seen}")));
            }
            void |= settings.held || over;
        }
        Ok(void)
    }

    /// What the jobs of a queue hold: GPUs and slots.
    pub(super) fn holds(&self, queue: &footplate_types::QueueName) -> (u64, u64) {
        let of_queue = |(run, _): &(RunId, u32)| self.jobs.get(run).is_some_and(|job| job.spec.queue == *queue);
        let mut sums = (0, 0);
        for ((_, unit), _) in self.units.iter().filter(|(_, holder)| of_queue(holder)) {
            if unit.starts_with("slot") { sums.1 += 1 } else { sums.0 += 1 }
        }
        sums
    }

    pub(super) fn would_exceed(&self, job: &JobBook) -> bool {
        let Some((_, settings)) = self.queue(&job.spec.queue) else { return false };
        let (held, asks) = (self.holds(&job.spec.queue), job.asks());
        let exceeds = |held: u64, asked: u64, quota: Option<u32>| asked > 0 && quota.is_some_and(|most| held + asked > u64::from(most));
        exceeds(held.0, asks.0, settings.quota.gpus) || exceeds(held.1, asks.1, settings.quota.slots)
    }

    /// A tree may start only of a launched gang that is placed just so, every member of which was ready.
    pub(super) fn may_start(&self, node: &NodeName, key: &Key, started: &Started) -> Checked {
        let wrong = |rule, detail: &str| Err(Found::new(rule, format!("{key} starts on {node}: {detail}"), &[&key.run, node]));
        let attempt = self.jobs.get(&key.run).and_then(|job| job.attempt.as_ref());
        let Some(attempt) = attempt.filter(|attempt| attempt.number == key.attempt.0) else {
            return wrong("stale", "another attempt is the last");
        };
        let Some(member) = attempt.members.get(&key.member.0) else { return wrong("gang", "it is no member") };
        if attempt.void {
            return wrong("void", "its placement is void");
        }
        if member.released || attempt.closed {
            return wrong("released-alive", "it was released");
        }
        if !attempt.launched {
            return wrong("gang", "the gang was not launched");
        }
        let units: Vec<u32> = started.slots.iter().map(|slot| slot.0).collect();
        if member.node != *node || member.gpus != started.gpus || member.slots != units || member.epoch != started.epoch.0 {
            return wrong("units", "not as it was placed");
        }
        Ok(())
    }
}

/// A gang is placed whole: as many members as asked, each on a node of its own with all that was asked of each.
fn whole(job: &JobBook, fact: &JobPlaced) -> Result<(), (&'static str, String)> {
    let (spec, asked) = (&job.spec, job.members());
    if fact.members.len() != asked.len() {
        return Err(("gang", format!("{} members placed, {} asked", fact.members.len(), asked.len())));
    }
    let nodes: BTreeSet<(&Option<String>, &NodeName)> = fact.members.iter().map(|member| (&member.role, &member.node)).collect();
    if nodes.len() != fact.members.len() {
        return Err(("gang", "two members of one role on one node".to_owned()));
    }
    let is_full = |(member, (role, each)): (&MemberPlacement, &(Option<&str>, &PerNode))| {
        member.role.as_deref() == *role && member.gpus.len() == each.gpus as usize && member.slots.len() == each.slots as usize
    };
    if !fact.members.iter().zip(&asked).all(is_full) {
        return Err(("gang", "a member has not what was asked".to_owned()));
    }
    let is_wrong = |member: &MemberPlacement| {
        let ask = &spec.placement;
        ask.exclude.contains(&member.node) || (!ask.nodes.is_empty() && !ask.nodes.contains(&member.node))
    };
    if fact.members.iter().any(is_wrong) { Err(("placement", "on a node that was not asked".to_owned())) } else { Ok(()) }
}
