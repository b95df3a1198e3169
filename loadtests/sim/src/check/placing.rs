//! Placements in the book: whole, on real units that nobody claims, under the quota, on nodes that the decision had not seen closed; and
//! what may start of them.

use super::book::{AttemptBook, Book, JobBook, MemberBook};
use super::units::{ALL, is_asked, pieces};
use super::{Checked, Found};
use crate::node::Key;
use crate::truth::Started;
use footplate_events::facts::{JobPlaced, MemberPlacement, PerNode};
use footplate_types::{NodeName, RunId};
use std::collections::{BTreeMap, BTreeSet};

impl MemberBook {
    fn of(placement: &MemberPlacement, ask: &PerNode) -> Self {
        Self {
            node: placement.node.clone(),
            epoch: placement.epoch.0,
            gpus: placement.gpus.clone(),
            share: placement.gpu_share,
            pieces: pieces(placement, ask),
            slots: placement.slots.iter().map(|slot| slot.0).collect(),
            ready: false,
            released: false,
            succeeded: false,
        }
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
        let asked = job.members();
        let members = fact.members.iter().zip(&asked);
        let members: BTreeMap<u32, MemberBook> = members.map(|(member, (_, ask))| (member.member.0, MemberBook::of(member, ask))).collect();
        if !void {
            for ((node, unit), piece) in members.values().flat_map(|member| &member.pieces) {
                let gpus = self.nodes.get(node).into_iter().flat_map(|book| &book.shape.gpus);
                let memory = gpus.filter(|gpu| gpu.uuid.as_str() == unit).map(|gpu| gpu.memory_bytes).next().unwrap_or(0);
                if let Err(detail) = self.units.claim((node.clone(), unit.clone()), (run, fact.attempt.0), piece.clone(), memory) {
                    return wrong("oversubscribed", detail);
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
        for (member, (_, ask)) in fact.members.iter().zip(job.members()) {
            let Some(node) = self.nodes.get(&member.node) else { return Err(("closed", format!("{} is not known", member.node))) };
            let other_epoch = (node.epoch != member.epoch.0).then_some(node.registered_at);
            for since in [node.lost, node.drained, other_epoch].into_iter().flatten() {
                if since <= seen {
                    return Err(("closed", format!("{} was closed at {since}, seen up to {seen}", member.node)));
                }
                void = true;
            }
            let bad = member.gpus.iter().filter_map(|gpu| node.bad_since(gpu)).min();
            if let Some(since) = node.cordoned.into_iter().chain(bad).find(|since| *since <= seen) {
                return Err(("closed", format!("{} or its gpu was closed at {since}, seen up to {seen}", member.node)));
            }
            let minded = node.taints.iter().find(|(taint, since)| **since <= seen && !job.spec.placement.tolerates(taint));
            if let Some((taint, since)) = minded {
                return Err(("taint", format!("{} had the taint {taint} since {since}, seen up to {seen}", member.node)));
            }
            let is_there = |gpu: &footplate_types::GpuUuid| node.shape.gpus.iter().any(|known| known.uuid == *gpu && is_asked(known, ask));
            if ask.gpu_share > 0 && !node.shape.share_gpus {
                return Err(("units", format!("{} shares no GPU: {member:?}", member.node)));
            }
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

    /// What the jobs of a queue hold: thousandths of GPUs, and slots.
    pub(super) fn holds(&self, queue: &footplate_types::QueueName) -> (u64, u64) {
        self.units.held(|(run, _)| self.jobs.get(run).is_some_and(|job| job.spec.queue == *queue))
    }

    pub(super) fn would_exceed(&self, job: &JobBook) -> bool {
        let Some((_, settings)) = self.queue(&job.spec.queue) else { return false };
        let (held, asks) = (self.holds(&job.spec.queue), job.asks());
        let exceeds = |held: u64, asked: u64, quota: Option<u64>| asked > 0 && quota.is_some_and(|most| held + asked > most);
        let (gpus, slots) = (settings.quota.gpus.map(|gpus| u64::from(gpus) * ALL), settings.quota.slots.map(u64::from));
        exceeds(held.0, asks.0, gpus) || exceeds(held.1, asks.1, slots)
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
        if member.node != *node
            || member.gpus != started.gpus
            || member.share != started.share
            || member.slots != units
            || member.epoch != started.epoch.0
        {
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
        let memory = if each.gpu_share > 0 { each.gpu_memory_bytes } else { 0 };
        let parts = (member.gpu_share, &member.gpu_profile, member.gpu_memory_bytes) == (each.gpu_share, &each.gpu_profile, memory);
        parts && member.role.as_deref() == *role && member.gpus.len() == each.gpus as usize && member.slots.len() == each.slots as usize
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
