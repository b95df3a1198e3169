//! GPUs through NVML. The library is looked for at run time; a machine without it has no GPUs, and that is no error.

use footplate_types::{Gpu, GpuModel, GpuUuid, NvlinkIsland};
use nvml_wrapper::{
    Device, Nvml,
    enum_wrappers::device::{TemperatureSensor, TopologyLevel},
    error::NvmlError,
};
use std::{collections::BTreeMap, sync::OnceLock};

/// Links of one GPU that are asked after.
const LINKS_MOST: u32 = 36;
/// What NVML says of a GPU that is split (`NVML_DEVICE_MIG_ENABLE`).
const MIG_ENABLED: u32 = 1;
/// Label that holds how each pair of GPUs is joined over PCIe, as `0-1:switch,0-2:numa,...` in the order of PCI addresses.
const TOPOLOGY_LABEL: &str = "pcie-topology";

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) labels: BTreeMap<String, String>,
}

/// One look at one GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GpuSample {
    pub(crate) uuid: String,
    /// Name and value; what the driver does not tell is not there.
    pub(crate) values: Vec<(&'static str, f64)>,
    /// The driver has lost it.
    pub(crate) lost: bool,
}

fn nvml() -> Option<&'static Nvml> {
    static LOADED: OnceLock<Option<Nvml>> = OnceLock::new();
    let load = || match Nvml::init() {
        Ok(nvml) => Some(nvml),
        Err(error) => {
            tracing::info!(%error, "no NVML: this node offers CPU slots");
            None
        }
    };
    LOADED.get_or_init(load).as_ref()
}

fn devices(nvml: &Nvml) -> Vec<Device<'_>> {
    let count = nvml.device_count().unwrap_or(0);
    let mut devices: Vec<(String, Device<'_>)> =
        (0..count).filter_map(|at| nvml.device_by_index(at).ok()).map(|device| (bus_id(&device).unwrap_or_default(), device)).collect();
    devices.sort_by(|left, right| left.0.cmp(&right.0));
    devices.into_iter().map(|(_, device)| device).collect()
}

fn bus_id(device: &Device<'_>) -> Option<String> {
    device.pci_info().ok().map(|pci| pci.bus_id.to_ascii_lowercase())
}

/// Every whole GPU with its NVLink island, and each MIG slice of those that are split, which are listed by these alone.
pub(crate) fn detect() -> Found {
    let Some(nvml) = nvml() else { return Found::default() };
    let devices = devices(nvml);
    let islands = islands(&links(&devices));
    let gpus = devices.iter().zip(islands).flat_map(|(device, island)| describe(device, island)).collect();
    let mut labels = BTreeMap::new();
    if devices.len() > 1 {
        labels.insert(TOPOLOGY_LABEL.to_owned(), topology(nvml, &devices));
    }
    Found { gpus, labels }
}

fn describe(device: &Device<'_>, island: Option<NvlinkIsland>) -> Vec<Gpu> {
    let pci = bus_id(device);
    let numa = device.numa_node_id().ok();
    // A slice is of the model of its GPU: its own name has the profile at its end.
    let model = GpuModel::parse(device.name().unwrap_or_default().trim()).or_else(|_| GpuModel::parse("unknown")).ok();
    let parent = device.uuid().ok().and_then(|uuid| GpuUuid::parse(&uuid).ok());
    let gpu = |device: &Device<'_>, island: Option<NvlinkIsland>, mig_profile: Option<String>| {
        Some(Gpu {
            uuid: GpuUuid::parse(&device.uuid().ok()?).ok()?,
            model: model.clone()?,
            memory_bytes: device.memory_info().map_or(0, |memory| memory.total),
            island,
            numa,
            pci: pci.clone(),
            parent: parent.clone().filter(|_| mig_profile.is_some()),
            mig_profile,
        })
    };
    // Slices have no NVLink and never work together, so that none is in an island.
    let slices: Vec<Gpu> = (0..device.mig_device_count().unwrap_or(0))
        .filter_map(|at| device.mig_device_by_index(at).ok())
        .filter_map(|slice| gpu(&slice, None, Some(profile(&slice.name().unwrap_or_default()))))
        .collect();
    let is_split = device.mig_mode().is_ok_and(|mode| mode.current == MIG_ENABLED);
    listed(is_split, slices, || gpu(device, island, None))
}

/// What is listed of a GPU: its slices once it is split, though there be none; nobody can use all of it then.
fn listed(is_split: bool, slices: Vec<Gpu>, whole: impl FnOnce() -> Option<Gpu>) -> Vec<Gpu> {
    if is_split || !slices.is_empty() { slices } else { whole().into_iter().collect() }
}

/// `1g.10gb` out of `NVIDIA H100 80GB HBM3 MIG 1g.10gb`.
fn profile(name: &str) -> String {
    name.rsplit_once("MIG ").map_or_else(|| name.to_owned(), |(_, profile)| profile.trim().to_owned())
}

/// For each GPU: the others it is linked with directly, and whether it is linked to a switch.
fn links(devices: &[Device<'_>]) -> Vec<(Vec<usize>, bool)> {
    let buses: Vec<Option<String>> = devices.iter().map(bus_id).collect();
    let of = |device: &Device<'_>| {
        let mut peers = Vec::new();
        let mut switched = false;
        for link in (0..LINKS_MOST).map(|number| device.link_wrapper_for(number)).filter(|link| link.is_active().unwrap_or(false)) {
            let remote = link.remote_pci_info().ok().map(|pci| pci.bus_id.to_ascii_lowercase());
            match remote.and_then(|remote| buses.iter().position(|bus| bus.as_ref() == Some(&remote))) {
                Some(peer) => peers.push(peer),
                // No GPU at the other end: an NVSwitch.
                None => switched = true,
            }
        }
        (peers, switched)
    };
    devices.iter().map(of).collect()
}

/// Numbers the connected parts of the NVLink graph; a GPU without links is in none. All switches of a machine are one fabric.
fn islands(links: &[(Vec<usize>, bool)]) -> Vec<Option<NvlinkIsland>> {
    let mut part: Vec<usize> = (0..links.len()).collect();
    let mut join = |left: usize, right: usize| {
        let (from, to) = (part[left].max(part[right]), part[left].min(part[right]));
        part.iter_mut().filter(|known| **known == from).for_each(|known| *known = to);
    };
    let first_switched = links.iter().position(|(_, switched)| *switched);
    for (at, (peers, switched)) in links.iter().enumerate() {
        peers.iter().for_each(|peer| join(at, *peer));
        if let (true, Some(first)) = (*switched, first_switched) {
            join(at, first);
        }
    }
    let mut numbers = BTreeMap::new();
    let island = |(at, (peers, switched)): (usize, &(Vec<usize>, bool))| {
        if peers.is_empty() && !switched {
            return None;
        }
        let next = numbers.len() as u32;
        Some(NvlinkIsland(*numbers.entry(part[at]).or_insert(next)))
    };
    links.iter().enumerate().map(island).collect()
}

fn topology(nvml: &Nvml, devices: &[Device<'_>]) -> String {
    let again = |device: &Device<'_>| nvml.device_by_pci_bus_id(bus_id(device).unwrap_or_default());
    let mut pairs = Vec::new();
    for (at, left) in devices.iter().enumerate() {
        for (beyond, right) in devices.iter().enumerate().skip(at + 1) {
            let level = match again(right).and_then(|right| left.topology_common_ancestor(right)) {
                Ok(TopologyLevel::Internal) => "board",
                Ok(TopologyLevel::Single) => "switch",
                Ok(TopologyLevel::Multiple) => "switches",
                Ok(TopologyLevel::HostBridge) => "bridge",
                Ok(TopologyLevel::Node) => "numa",
                Ok(TopologyLevel::System) => "system",
                Err(_) => "unknown",
            };
            pairs.push(format!("{at}-{beyond}:{level}"));
        }
    }
    pairs.join(",")
}

/// One look at every GPU.
pub(crate) fn sample() -> Vec<GpuSample> {
    let Some(nvml) = nvml() else { return Vec::new() };
    devices(nvml).iter().filter_map(sample_one).collect()
}

fn sample_one(device: &Device<'_>) -> Option<GpuSample> {
    let uuid = device.uuid().ok()?;
    let utilization = device.utilization_rates();
    let lost = matches!(utilization, Err(NvmlError::GpuLost));
    let mut values = Vec::new();
    if let Ok(rates) = utilization {
        values.push(("utilization_percent", f64::from(rates.gpu)));
        values.push(("memory_busy_percent", f64::from(rates.memory)));
    }
    if let Ok(memory) = device.memory_info() {
        values.push(("memory_used_bytes", memory.used as f64));
    }
    if let Ok(milliwatts) = device.power_usage() {
        values.push(("power_watts", f64::from(milliwatts) / 1_000.0));
    }
    if let Ok(celsius) = device.temperature(TemperatureSensor::Gpu) {
        values.push(("temperature_celsius", f64::from(celsius)));
    }
    Some(GpuSample { uuid, values, lost })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(links: &[(Vec<usize>, bool)]) -> Vec<Option<u32>> {
        islands(links).into_iter().map(|island| island.map(|NvlinkIsland(number)| number)).collect()
    }

    #[test]
    fn linked_gpus_are_one_island_and_single_ones_none() {
        let pairs = [(vec![1], false), (vec![0], false), (vec![3], false), (vec![2], false), (vec![], false)];
        assert_eq!(numbers(&pairs), [Some(0), Some(0), Some(1), Some(1), None]);
        let chain = [(vec![1], false), (vec![0, 2], false), (vec![1], false)];
        assert_eq!(numbers(&chain), [Some(0); 3]);
        assert_eq!(numbers(&[(vec![], true), (vec![], false), (vec![], true)]), [Some(0), None, Some(0)]);
        assert_eq!(numbers(&[]), []);
    }

    #[test]
    fn a_slice_is_named_by_its_profile() {
        assert_eq!(profile("NVIDIA H100 80GB HBM3 MIG 1g.10gb"), "1g.10gb");
    }

    #[test]
    fn a_gpu_that_is_split_is_never_listed_as_a_whole() {
        let one = |uuid: &str| Gpu {
            uuid: GpuUuid::parse(uuid).unwrap_or_else(|error| panic!("{error}")),
            model: GpuModel::parse("H100").unwrap_or_else(|error| panic!("{error}")),
            memory_bytes: 1,
            island: None,
            numa: None,
            pci: None,
            mig_profile: None,
            parent: None,
        };
        let uuids = |is_split, slices: &[&str]| {
            let listed = listed(is_split, slices.iter().map(|uuid| one(uuid)).collect(), || Some(one("GPU-0")));
            listed.iter().map(|gpu| gpu.uuid.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(uuids(false, &[]), ["GPU-0"]);
        assert_eq!(uuids(true, &["MIG-0", "MIG-1"]), ["MIG-0", "MIG-1"]);
        assert!(uuids(true, &[]).is_empty());
    }

    #[test]
    fn a_machine_without_the_library_has_no_gpus_and_no_error() {
        let found = detect();
        assert_eq!(found.gpus.len(), sample().len());
    }
}
