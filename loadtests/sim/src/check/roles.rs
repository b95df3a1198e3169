//! Gangs of roles, in the book: what each member asks, and whether all of them could stand beside each other, by trying every way.

use super::book::{Book, JobBook, NodeBook};
use footplate_events::facts::PerNode;
use footplate_types::{Gpu, NodeName};
use std::collections::BTreeMap;

/// What a node would give members, as far as the simulation's jobs ask for it.
struct Room<'b> {
    name: &'b NodeName,
    gpus: Vec<&'b Gpu>,
    slots: u32,
    /// What stands there in the trial.
    takes: Vec<&'b PerNode>,
}

impl Room<'_> {
    /// Whether all that stands there and one more would have what they ask: who asks for a model takes of that, the others of the rest.
    fn holds(&self, more: &PerNode) -> bool {
        let all = || self.takes.iter().copied().chain([more]);
        let mut of_model: BTreeMap<&str, u32> = BTreeMap::new();
        for ask in all() {
            if let Some(model) = ask.gpu_models.first() {
                *of_model.entry(model.as_str()).or_default() += ask.gpus;
            }
        }
        let there = |model: &str| self.gpus.iter().filter(|gpu| gpu.model.as_str() == model).count() as u32;
        of_model.into_iter().all(|(model, asked)| asked <= there(model))
            && all().map(|ask| ask.gpus).sum::<u32>() as usize <= self.gpus.len()
            && all().map(|ask| ask.slots).sum::<u32>() <= self.slots
    }
}

impl JobBook {
    /// What each member asks, in their order, and its role.
    pub(super) fn members(&self) -> Vec<(Option<&str>, &PerNode)> {
        if self.spec.roles.is_empty() {
            return (0..self.spec.resources.nodes).map(|_| (None, &self.spec.resources.per_node)).collect();
        }
        self.spec.roles.iter().flat_map(|role| (0..role.nodes).map(|_| (Some(role.name.as_str()), &role.per_node))).collect()
    }
}

impl Book {
    /// Whether every member finds room now, each of a role on a node of its own.
    pub(super) fn could_seat(&self, job: &JobBook) -> bool {
        if job.spec.roles.is_empty() {
            let there = self.nodes.iter().filter(|(name, node)| self.has_room(name, node, job)).count();
            return there >= job.spec.resources.nodes as usize;
        }
        let ask = &job.spec.placement;
        let welcome = |node: &NodeBook| node.taints.keys().all(|taint| ask.tolerates(taint));
        let may = |name: &NodeName, node: &NodeBook| {
            node.is_open() && welcome(node) && (ask.nodes.is_empty() || ask.nodes.contains(name)) && !ask.exclude.contains(name)
        };
        let room = |(name, node): (&'_ NodeName, &'_ NodeBook)| -> (NodeName, Vec<Gpu>, u32) {
            let is_free = |unit: String| self.units.taken(&(name.clone(), unit)).0 == 0;
            // Roles ask whole GPUs alone.
            let well = node.shape.gpus.iter().filter(|gpu| gpu.mig_profile.is_none() && node.bad_since(&gpu.uuid).is_none());
            let gpus = well.filter(|gpu| is_free(gpu.uuid.to_string())).cloned().collect();
            let slots = (0..node.shape.slots).filter(|slot| is_free(format!("slot {slot}"))).count() as u32;
            (name.clone(), gpus, slots)
        };
        let there: Vec<(NodeName, Vec<Gpu>, u32)> = self.nodes.iter().filter(|(name, node)| may(name, node)).map(room).collect();
        let mut rooms: Vec<Room<'_>> =
            there.iter().map(|(name, gpus, slots)| Room { name, gpus: gpus.iter().collect(), slots: *slots, takes: Vec::new() }).collect();
        seat(&mut rooms, &job.members(), 0)
    }
}

/// Tries every way: members of one role come to nodes in the order of the nodes. `from`: the first node that the next one may take.
fn seat<'b>(rooms: &mut Vec<Room<'b>>, members: &[(Option<&'b str>, &'b PerNode)], from: usize) -> bool {
    let Some(((role, ask), rest)) = members.split_first() else { return true };
    for at in from..rooms.len() {
        if rooms[at].holds(ask) {
            rooms[at].takes.push(ask);
            let next = if rest.first().is_some_and(|(other, _)| other == role) { at + 1 } else { 0 };
            let seated = seat(rooms, rest, next);
            rooms[at].takes.pop();
            if seated {
                return true;
            }
        }
    }
    debug_assert!(rooms.iter().is_sorted_by_key(|room| room.name));
    false
}
