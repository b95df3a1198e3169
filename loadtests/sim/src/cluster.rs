//! The machines of a run: few and small, so that work contends for them.

use crate::dice::Dice;
use footplate_types::{Gpu, GpuModel, GpuUuid, NodeName, NodeShape, NvlinkIsland};

/// The models of GPUs there are.
pub(crate) const MODELS: [&str; 2] = ["A", "B"];

fn gpus(node: &str, count: usize, model: &str) -> Vec<Gpu> {
    let gpu = |at: usize| Gpu {
        uuid: GpuUuid::parse(&format!("GPU-{node}-{at}")).expect("short and printable"),
        model: GpuModel::parse(model).expect("short and printable"),
        memory_bytes: 80 << 30,
        island: (count > 2).then_some(NvlinkIsland((at / 2) as u32)),
        numa: None,
        pci: None,
        mig_profile: None,
        parent: None,
    };
    (0..count).map(gpu).collect()
}

/// The profile of the slices there are.
pub(crate) const PROFILE: &str = "1g.10gb";

/// Splits the last GPU of some machines, and lets some share theirs. With dice of its own, so that the rest stays as it was.
fn part(dice: &mut Dice, name: &str, shape: &mut NodeShape) {
    shape.share_gpus = dice.chance(600);
    if shape.gpus.is_empty() || !dice.chance(400) {
        return;
    }
    let Some(split) = shape.gpus.pop() else { return };
    let slice = |at: u64| Gpu {
        uuid: GpuUuid::parse(&format!("MIG-{name}-{at}")).expect("short and printable"),
        memory_bytes: 10 << 30,
        island: None,
        mig_profile: Some(PROFILE.to_owned()),
        parent: Some(split.uuid.clone()),
        ..split.clone()
    };
    shape.gpus.extend((0..dice.between(1, 3)).map(slice));
}

/// Between three and six machines with their names.
pub(crate) fn machines(dice: &mut Dice, parts: &mut Dice) -> Vec<(NodeName, NodeShape)> {
    let count = dice.between(3, 6) as usize;
    let mut all = Vec::with_capacity(count);
    for at in 0..count {
        let name = format!("n{at}");
        let mut shape = NodeShape { cpus: 64, memory_bytes: 1 << 40, disk_bytes: 1 << 40, ..NodeShape::default() };
        if at + 1 == count && dice.chance(500) {
            shape.slots = 4;
        } else {
            let (many, model) = (if dice.chance(500) { 4 } else { 2 }, MODELS[usize::from(dice.chance(250))]);
            shape.gpus = gpus(&name, many, model);
        }
        part(parts, &name, &mut shape);
        all.push((NodeName::parse(&name).expect("a slug"), shape));
    }
    all
}
