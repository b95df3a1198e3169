//! What the machines do: no GPU with more on it than it is, no member twice, no two attempts of a job at once, nothing of a generation that was fenced,
//! nothing that runs on after its release.

use super::{Checked, Found};
use crate::node::Key;
use crate::truth::{Happening, Started};
use footplate_events::{Event, Recorded};
use footplate_types::{AttemptNumber, Epoch, MemberIndex, NodeName, RunId};
use std::collections::{BTreeMap, BTreeSet};

/// The trees that run now, and all that ever did.
#[derive(Default)]
pub(super) struct Ground {
    living: BTreeMap<Key, (NodeName, Started)>,
    /// Who uses how many thousandths of a GPU or a slot of a node.
    units: BTreeMap<(NodeName, String), BTreeMap<Key, u32>>,
    ever: BTreeSet<Key>,
    fences: BTreeMap<NodeName, Epoch>,
}

fn units<'a>(node: &'a NodeName, started: &'a Started) -> impl Iterator<Item = (NodeName, String)> + 'a {
    let slots = started.slots.iter().map(|slot| format!("slot {}", slot.0));
    started.gpus.iter().map(ToString::to_string).chain(slots).map(move |unit| (node.clone(), unit))
}

impl Ground {
    pub(super) fn started(&mut self, happening: &Happening, started: &Started) -> Checked {
        let (key, node) = (happening.key, &happening.node);
        if !self.ever.insert(key) {
            return Err(Found::new("once", format!("{key} starts a second time, on {node}"), &[&key.run, node]));
        }
        if let Some(epoch) = self.fences.get(node).filter(|epoch| **epoch > started.epoch) {
            let detail = format!("{key} of generation {} starts on {node} after the fence to {epoch}", started.epoch);
            return Err(Found::new("fence", detail, &[&key.run, node]));
        }
        let other = self.of_run(key.run).find(|(other, _)| other.attempt != key.attempt);
        if let Some((other, (elsewhere, _))) = other {
            let detail = format!("{key} starts on {node} while {other} trains on {elsewhere}");
            return Err(Found::new("two-attempts", detail, &[&key.run, node, elsewhere]));
        }
        for unit in units(node, started) {
            let on = self.units.entry(unit.clone()).or_default();
            on.insert(key, if started.share > 0 { started.share } else { 1_000 });
            if on.values().sum::<u32>() > 1_000 {
                let others: Vec<&Key> = on.keys().filter(|other| **other != key).collect();
                let detail = format!("{key} starts on {} of {node}, where {others:?} train", unit.1);
                return Err(Found::new("oversubscribed", detail, &[&key.run, node]));
            }
        }
        self.living.insert(key, (node.clone(), started.clone()));
        Ok(())
    }

    fn of_run(&self, run: RunId) -> impl Iterator<Item = (&Key, &(NodeName, Started))> {
        let end = |attempt, member| Key { run, attempt: AttemptNumber(attempt), member: MemberIndex(member) };
        self.living.range(end(0, 0)..=end(u32::MAX, u32::MAX))
    }

    pub(super) fn ended(&mut self, happening: &Happening) {
        if let Some((node, started)) = self.living.remove(&happening.key) {
            units(&node, &started).for_each(|unit| {
                if let Some(on) = self.units.get_mut(&unit) {
                    on.remove(&happening.key);
                }
            });
        }
    }

    /// A generation was fenced: nothing of it may run now, nor start later.
    pub(super) fn fenced(&mut self, node: &NodeName, epoch: Epoch) -> Checked {
        self.fences.insert(node.clone(), epoch);
        let alive = self.living.iter().find(|(_, (on, started))| on == node && started.epoch < epoch);
        match alive {
            Some((key, (_, started))) => {
                let detail = format!("{node} is fenced to {epoch} while {key} of generation {} trains there", started.epoch);
                Err(Found::new("fence", detail, &[&key.run, node]))
            }
            None => Ok(()),
        }
    }

    /// A member is released by the log: its tree must be gone.
    pub(super) fn released_by(&self, recorded: &Recorded) -> Checked {
        let Some(id) = recorded.envelope.subject.attempt_id() else { return Ok(()) };
        let (how, members): (_, Vec<MemberIndex>) = match &recorded.envelope.event {
            Event::AttemptExited(fact) => ("exited", fact.members.iter().map(|member| member.member).collect()),
            Event::AttemptLost(fact) => ("lost", fact.members.iter().map(|member| member.member).collect()),
            _ => return Ok(()),
        };
        for member in members {
            let key = Key { run: id.run, attempt: id.attempt, member };
            if let Some((node, _)) = self.living.get(&key) {
                let detail = format!("{key} is told as {how} while it trains on {node}");
                return Err(Found::new("released-alive", detail, &[&key.run, node]));
            }
        }
        Ok(())
    }

    pub(super) fn unrest(&self) -> Vec<super::Unrest> {
        let of = |(key, (node, _)): (&Key, &(NodeName, Started))| super::Unrest {
            what: format!("{key} trains on {node}"),
            words: vec![key.run.to_string(), node.to_string()],
        };
        self.living.iter().map(of).collect()
    }
}
