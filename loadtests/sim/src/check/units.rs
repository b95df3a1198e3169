//! Who has what of which GPU or slot, added up: of no GPU more than its thousand thousandths and its memory.

use footplate_events::facts::{MemberPlacement, PerNode};
use footplate_types::{Gpu, NodeName, RunId};
use std::collections::BTreeMap;

/// The parts that a GPU, a slice or a slot has.
pub(super) const ALL: u64 = 1_000;

/// A unit of a node.
pub(super) type Unit = (NodeName, String);

/// What somebody has of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Of the unit: all of it where nobody may stand beside.
    pub(super) parts: u64,
    /// Of a GPU's memory, in bytes.
    pub(super) memory: u64,
    /// How much it counts under quotas: thousandths of a GPU; 0 of a slot.
    pub(super) counts: u64,
}

/// What an ask counts of a GPU under quotas, for each that it names: a slice the compute slices before the `g` of its profile, of seven.
pub(super) fn counts(ask: &PerNode) -> u64 {
    match &ask.gpu_profile {
        Some(profile) => profile.as_str().split('g').next().and_then(|slices| slices.parse().ok()).unwrap_or(7) * ALL / 7,
        None if ask.gpu_share > 0 => ask.gpu_share.into(),
        None => ALL,
    }
}

/// Whether a GPU is of the asked sort.
pub(super) fn is_asked(gpu: &Gpu, ask: &PerNode) -> bool {
    let is_slice = ask.gpu_profile.as_ref().map(ToString::to_string);
    let of_model = ask.gpu_models.is_empty() || ask.gpu_models.contains(&gpu.model);
    of_model && gpu.mig_profile == is_slice && gpu.memory_bytes >= ask.gpu_memory_bytes
}

/// What a member has of each of its units.
pub(super) fn pieces(member: &MemberPlacement, ask: &PerNode) -> Vec<(Unit, Piece)> {
    let parts = if member.gpu_share > 0 { member.gpu_share.into() } else { ALL };
    let of_gpu = Piece { parts, memory: member.gpu_memory_bytes, counts: counts(ask) };
    let of_slot = Piece { parts: ALL, memory: 0, counts: 0 };
    let gpus = member.gpus.iter().map(|gpu| (gpu.to_string(), of_gpu.clone()));
    let slots = member.slots.iter().map(|slot| (format!("slot {}", slot.0), of_slot.clone()));
    gpus.chain(slots).map(|(unit, piece)| ((member.node.clone(), unit), piece)).collect()
}

/// All pieces that are held, by unit and by who holds them.
#[derive(Default)]
pub(super) struct Units(BTreeMap<Unit, BTreeMap<(RunId, u32), Piece>>);

impl Units {
    /// A piece is claimed; who stands there too where that is too much, `memory` being what there is of it.
    pub(super) fn claim(&mut self, unit: Unit, holder: (RunId, u32), piece: Piece, memory: u64) -> Result<(), String> {
        let on = self.0.entry(unit.clone()).or_default();
        on.insert(holder, piece);
        let sum = |of: fn(&Piece) -> u64| on.values().map(of).sum::<u64>();
        if sum(|piece| piece.parts) <= ALL && sum(|piece| piece.memory) <= memory {
            return Ok(());
        }
        let others: Vec<String> = on.keys().map(|(run, attempt)| format!("{run}/{attempt}")).collect();
        Err(format!("{} of {} is claimed by {}", unit.1, unit.0, others.join(" and ")))
    }

    pub(super) fn release(&mut self, unit: &Unit, holder: (RunId, u32)) {
        if let Some(on) = self.0.get_mut(unit) {
            on.remove(&holder);
        }
    }

    /// What is claimed of a unit: parts and memory.
    pub(super) fn taken(&self, unit: &Unit) -> (u64, u64) {
        let on = self.0.get(unit).into_iter().flat_map(BTreeMap::values);
        on.fold((0, 0), |(parts, memory), piece| (parts + piece.parts, memory + piece.memory))
    }

    /// What some hold: thousandths of GPUs, and slots.
    pub(super) fn held(&self, by: impl Fn(&(RunId, u32)) -> bool) -> (u64, u64) {
        let all = self.0.values().flatten().filter(|(holder, _)| by(holder));
        all.fold((0, 0), |(gpus, slots), (_, piece)| (gpus + piece.counts, slots + u64::from(piece.counts == 0)))
    }
}
