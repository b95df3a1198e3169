//! What a node has and a job asks: GPUs, slots, cores, bytes; and the quantities with units that people write.

use crate::{GpuMilli, Invalid, MigProfile, Taint, text_form::text_form};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// A size in bytes. Written with an explicit unit: `KiB`, `MiB`, `GiB`, `TiB`, `KB`, `MB`, `GB`, `TB` or `B`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

impl ByteSize {
    /// Reads a whole number with a unit (`800GiB`); a bare number is refused, since nobody knows what it means.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let refused = || Invalid::new("size", text, "a whole number with a unit: B, KiB, MiB, GiB, TiB, KB, MB, GB or TB (such as 800GiB)");
        let text = text.trim();
        let (unit, factor) = UNITS.iter().find(|(unit, _)| text.ends_with(unit)).ok_or_else(refused)?;
        let number = text[..text.len() - unit.len()].trim_end();
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(refused());
        }
        let count: u64 = number.parse().map_err(|_| refused())?;
        count.checked_mul(*factor).map(Self).ok_or_else(refused)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fit = UNITS[..4].iter().rev().find(|(_, factor)| self.0 >= *factor);
        match fit {
            Some((unit, factor)) if self.0.is_multiple_of(*factor) => write!(f, "{}{unit}", self.0 / factor),
            Some((unit, factor)) => write!(f, "{:.1}{unit}", self.0 as f64 / *factor as f64),
            None => write!(f, "{}B", self.0),
        }
    }
}

/// A length of time in milliseconds. Written with a unit: `ms`, `s`, `m`, `h`, `d`, also joined (`1h30m`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// This many seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * 1_000)
    }

    /// As a standard duration.
    pub const fn duration(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }

    /// Reads `90s`, `10m`, `1h30m`, `250ms`, `2d`; a bare number is refused.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let refused = || Invalid::new("duration", text, "whole numbers with units ms, s, m, h or d (such as 90s or 1h30m)");
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(refused());
        }
        let mut total = 0u64;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let count: u64 = rest[..digits].parse().map_err(|_| refused())?;
            rest = &rest[digits..];
            let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
            let factor = match &rest[..letters] {
                "ms" => 1,
                "s" => 1_000,
                "m" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return Err(refused()),
            };
            rest = &rest[letters..];
            total = count.checked_mul(factor).and_then(|part| total.checked_add(part)).ok_or_else(refused)?;
        }
        Ok(Self(total))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (unit, factor) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
            if rest >= factor {
                write!(f, "{}{unit}", rest / factor)?;
                rest %= factor;
            }
        }
        Ok(())
    }
}

macro_rules! label {
    ($(#[$doc:meta])* $name:ident, $field:literal, $most:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Reads and checks the text.
            pub fn parse(text: &str) -> Result<Self, Invalid> {
                let well_formed = (1..=$most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
                if well_formed && text.trim() == text {
                    return Ok(Self(text.to_owned()));
                }
                Err(Invalid::new($field, text, concat!("1 to ", stringify!($most), " printable ASCII characters")))
            }

            /// As text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        text_form!($name, None);
    };
}

label! {
    /// A GPU as the driver names it (`GPU-8932f937-...` or `MIG-...`): claims are by this, never by index.
    GpuUuid, "gpu", 96
}
label! {
    /// A kind of GPU (`H100`, `NVIDIA H200`).
    GpuModel, "gpu model", 96
}

/// Which GPUs of a node are joined by NVLink; equal numbers on one node are one island.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct NvlinkIsland(pub u32);

/// A CPU slot of a node that offers slots instead of GPUs, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct SlotIndex(pub u32);

/// One GPU (or one MIG instance) of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gpu {
    /// The driver's name for it.
    pub uuid: GpuUuid,
    /// Its kind.
    pub model: GpuModel,
    /// Its memory, in bytes.
    pub memory_bytes: u64,
    /// The NVLink island it is part of; absent when it has no NVLink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub island: Option<NvlinkIsland>,
    /// The NUMA node it hangs on; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<u32>,
    /// The PCI address, such as `0000:3b:00.0`; absent for declared inventories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<String>,
    /// The MIG profile (`1g.10gb`) when this is a slice; absent for a whole GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig_profile: Option<String>,
    /// The GPU of which this is a slice: what ails that ails this. Absent for a whole GPU, and where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<GpuUuid>,
}

impl Gpu {
    /// How much of a GPU it counts where GPUs are counted: a slice its compute slices of seven, and nothing when its profile is none, since nobody can ask it.
    pub fn counts(&self) -> GpuMilli {
        match &self.mig_profile {
            None => GpuMilli::WHOLE,
            Some(profile) => MigProfile::parse(profile).map_or(GpuMilli(0), |profile| profile.counts()),
        }
    }

    /// Whether this GPU, or the one of which it is a slice, has that name.
    pub fn is_of(&self, uuid: &GpuUuid) -> bool {
        self.uuid == *uuid || self.parent.as_ref() == Some(uuid)
    }
}

/// What a node offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeShape {
    /// Its GPUs, in the order of their PCI addresses. Empty on a node of CPU slots.
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    /// Whether several jobs that ask shares may stand on one of its whole GPUs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub share_gpus: bool,
    /// How many CPU slots it offers. 0 on a GPU node.
    #[serde(default)]
    pub slots: u32,
    /// Logical CPUs.
    pub cpus: u32,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Free disk of the work folder when the agent started, in bytes.
    #[serde(default)]
    pub disk_bytes: u64,
    /// The rack it stands in; absent when undeclared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// The pool it belongs to (nodes of one kind).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Labels set by whoever runs the node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What keeps off it jobs that do not tolerate it, as whoever runs the node declares it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taints: BTreeSet<Taint>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_need_a_unit_and_do_not_overflow() {
        assert_eq!(ByteSize::parse("800GiB"), Ok(ByteSize(800 << 30)));
        assert_eq!(ByteSize::parse("1 TB"), Ok(ByteSize(1_000_000_000_000)));
        for text in ["", "12", "1.5GiB", "-1GiB", "GiB", "99999999999TiB", "1gib"] {
            assert!(ByteSize::parse(text).is_err(), "{text}");
        }
        assert_eq!(ByteSize(3 << 30).to_string(), "3GiB");
    }

    #[test]
    fn durations_need_units_and_read_back() {
        for (text, millis) in [("90s", 90_000), ("1h30m", 5_400_000), ("250ms", 250), ("2d", 172_800_000)] {
            assert_eq!(Millis::parse(text), Ok(Millis(millis)), "{text}");
            assert_eq!(Millis::parse(&Millis(millis).to_string()), Ok(Millis(millis)));
        }
        for text in ["", "10", "1.5h", "5 minutes", "h", "-1s", "999999999999999999999d"] {
            assert!(Millis::parse(text).is_err(), "{text}");
        }
    }
}
