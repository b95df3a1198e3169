//! A declared inventory: nodes that exist on paper, for tests and simulation.
//!
//! ```toml
//! [[node]]
//! name = "gpu"          # with count: gpu-0, gpu-1, ...
//! count = 64
//! cpus = 128
//! memory = "2TiB"
//! rack = "r1"
//! pool = "train"
//! [[node.gpu]]
//! model = "H100"
//! memory = "80GB"
//! count = 8
//! island = 0
//! ```
//!
//! Slices of GPUs that are split have a profile, and may say of which one they are; whole GPUs may be shared:
//!
//! ```toml
//! [[node]]
//! name = "parts"
//! share_gpus = true
//! [[node.gpu]]
//! model = "H100"
//! memory = "80GB"
//! [[node.gpu]]
//! model = "H100"
//! mig = "1g.10gb"       # count counts slices
//! memory = "10GB"
//! count = 7
//! of = 1                # slices with one number are of one GPU
//! ```

use footplate_types::{ByteSize, Digest, Gpu, GpuModel, GpuUuid, Invalid, MigProfile, NodeName, NodeShape, NvlinkIsland, Taint};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The most nodes of one file.
const NODES_MOST: u32 = 10_000;
/// The most GPUs of one node.
const GPUS_MOST: u32 = 1_024;

/// Why a declared inventory was refused.
#[derive(Debug, thiserror::Error)]
pub enum DeclaredError {
    /// Not the form above.
    #[error("declared inventory: {0}")]
    Form(String),
    /// A value outside its limits.
    #[error("declared inventory: {0}")]
    Value(#[from] Invalid),
}

/// One node on paper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredNode {
    /// Its name.
    pub name: NodeName,
    /// What it offers.
    pub shape: NodeShape,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    node: Vec<NodeEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeEntry {
    name: String,
    count: Option<u32>,
    #[serde(default)]
    slots: u32,
    #[serde(default)]
    cpus: u32,
    memory: Option<String>,
    disk: Option<String>,
    rack: Option<String>,
    pool: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    taints: BTreeSet<Taint>,
    #[serde(default)]
    share_gpus: bool,
    #[serde(default)]
    gpu: Vec<GpuEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuEntry {
    model: String,
    memory: Option<String>,
    count: Option<u32>,
    island: Option<u32>,
    numa: Option<u32>,
    /// MIG profile; then `count` counts slices.
    mig: Option<String>,
    /// Of which split GPU of the node these are slices, by a number that the file gives it.
    of: Option<u32>,
}

/// Reads a declared inventory.
pub fn declared_nodes(text: &str) -> Result<Vec<DeclaredNode>, DeclaredError> {
    let file: File = toml::from_str(text).map_err(|error| DeclaredError::Form(error.to_string()))?;
    let mut nodes = Vec::new();
    for entry in &file.node {
        let count = within("node.count", entry.count.unwrap_or(1), NODES_MOST)?;
        for at in 0..count {
            let name = if entry.count.is_some() { format!("{}-{at}", entry.name) } else { entry.name.clone() };
            let name = NodeName::parse(&name)?;
            if nodes.iter().any(|node: &DeclaredNode| node.name == name) {
                return Err(Invalid::new("node.name", name, "each name once").into());
            }
            let shape = shape(entry, &name)?;
            nodes.push(DeclaredNode { name, shape });
        }
    }
    Ok(nodes)
}

fn within(field: &str, value: u32, most: u32) -> Result<u32, Invalid> {
    if (1..=most).contains(&value) { Ok(value) } else { Err(Invalid::new(field, value, format!("1 to {most}"))) }
}

fn bytes(field: &str, text: Option<&String>) -> Result<u64, Invalid> {
    text.map_or(Ok(0), |text| ByteSize::parse(text).map(|size| size.0).map_err(|error| error.of(field)))
}

fn shape(entry: &NodeEntry, name: &NodeName) -> Result<NodeShape, Invalid> {
    let mut gpus = Vec::new();
    for kind in &entry.gpu {
        let profile = kind.mig.as_deref().map(MigProfile::parse).transpose().map_err(|error| error.of("node.gpu.mig"))?;
        let of = kind
            .of
            .map(|number| if profile.is_some() { Ok(number) } else { Err(Invalid::new("node.gpu.of", number, "together with mig")) });
        let parent = of.transpose()?.map(|number| parent(name, number)).transpose()?;
        for _ in 0..within("node.gpu.count", kind.count.unwrap_or(1), GPUS_MOST)? {
            let number = gpus.len();
            gpus.push(Gpu {
                uuid: uuid(name, number, kind.mig.is_some())?,
                model: GpuModel::parse(&kind.model)?,
                memory_bytes: bytes("node.gpu.memory", kind.memory.as_ref())?,
                island: kind.island.map(NvlinkIsland),
                numa: kind.numa,
                pci: None,
                mig_profile: profile.as_ref().map(ToString::to_string),
                parent: parent.clone(),
            });
        }
    }
    Ok(NodeShape {
        gpus,
        share_gpus: entry.share_gpus,
        slots: entry.slots,
        cpus: entry.cpus,
        memory_bytes: bytes("node.memory", entry.memory.as_ref())?,
        disk_bytes: bytes("node.disk", entry.disk.as_ref())?,
        rack: entry.rack.clone(),
        pool: entry.pool.clone(),
        labels: entry.labels.clone(),
        taints: entry.taints.clone(),
    })
}

/// In the driver's form, and always the same for the same place.
fn uuid(name: &NodeName, number: usize, slice: bool) -> Result<GpuUuid, Invalid> {
    named(if slice { "MIG" } else { "GPU" }, &format!("{name}/{number}"))
}

/// The GPU of which slices are, which is listed by them alone.
fn parent(name: &NodeName, number: u32) -> Result<GpuUuid, Invalid> {
    named("GPU", &format!("{name}/split/{number}"))
}

fn named(kind: &str, place: &str) -> Result<GpuUuid, Invalid> {
    let hash = Digest::of(place.as_bytes()).to_string();
    GpuUuid::parse(&format!("{kind}-{}-{}-{}-{}-{}", &hash[..8], &hash[8..12], &hash[12..16], &hash[16..20], &hash[20..32]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sixty_four_nodes_stand_in_ten_lines_and_no_two_gpus_share_a_name() {
        let text = "[[node]]\nname = \"gpu\"\ncount = 64\ncpus = 128\nmemory = \"2TiB\"\nrack = \"r1\"\n\
                    [[node.gpu]]\nmodel = \"H100\"\nmemory = \"80GB\"\ncount = 8\nisland = 0\n[[node]]\nname = \"cpu\"\nslots = 4\n";
        let nodes = declared_nodes(text).unwrap();
        assert_eq!((nodes.len(), nodes[63].name.as_str(), nodes[64].shape.slots), (65, "gpu-63", 4));
        assert_eq!(nodes[0].shape.gpus[7].memory_bytes, 80_000_000_000);
        let mut uuids: Vec<_> = nodes.iter().flat_map(|node| &node.shape.gpus).map(|gpu| gpu.uuid.clone()).collect();
        uuids.sort();
        uuids.dedup();
        assert_eq!(uuids.len(), 64 * 8);
        assert_eq!(nodes, declared_nodes(text).unwrap());
    }

    #[test]
    fn slices_name_their_profile_and_of_which_gpu_they_are() {
        let text = "[[node]]\nname = \"a\"\nshare_gpus = true\n[[node.gpu]]\nmodel = \"H100\"\n\
                    [[node.gpu]]\nmodel = \"H100\"\nmig = \"1g.10gb\"\ncount = 2\nof = 1\n\
                    [[node.gpu]]\nmodel = \"H100\"\nmig = \"3g.40gb\"\nof = 1\n[[node.gpu]]\nmodel = \"H100\"\nmig = \"1g.10gb\"\n";
        let shape = declared_nodes(text).unwrap().remove(0).shape;
        let [whole, one, two, three, other] = &shape.gpus[..] else { panic!("{:?}", shape.gpus) };
        assert!(shape.share_gpus && whole.mig_profile.is_none() && whole.parent.is_none() && other.parent.is_none());
        assert!(one.parent.is_some() && one.parent == two.parent && one.parent == three.parent && one.parent.as_ref() != Some(&whole.uuid));
        assert_eq!((one.mig_profile.as_deref(), three.mig_profile.as_deref()), (Some("1g.10gb"), Some("3g.40gb")));
        assert!(one.uuid.as_str().starts_with("MIG-"));
    }

    #[test]
    fn unknown_keys_units_and_double_names_are_told() {
        for (text, told) in [
            ("[[node]]\nname = \"a\"\ngpus = 8\n", "gpus"),
            ("[[node]]\nname = \"a\"\nmemory = \"8\"\n", "node.memory"),
            ("[[node]]\nname = \"a\"\n[[node]]\nname = \"a\"\n", "each name once"),
            ("[[node]]\nname = \"A b\"\n", "node"),
            ("[[node]]\nname = \"a\"\n[[node.gpu]]\nmodel = \"H100\"\nmig = \"tenth\"\n", "node.gpu.mig"),
            ("[[node]]\nname = \"a\"\n[[node.gpu]]\nmodel = \"H100\"\nof = 1\n", "node.gpu.of"),
            ("[[node]]\nname = \"a\"\ncount = 100000\n", "1 to 10000"),
        ] {
            let error = declared_nodes(text).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
