//! Parts of a GPU: MIG slices by their profile, and shares in thousandths.

use crate::{Invalid, text_form::text_form};
use std::fmt;

/// An amount of GPUs in thousandths, so that parts of one add up exactly. Written as people count: `2`, `0.25`, `1.142`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuMilli(pub u64);

impl GpuMilli {
    /// One whole GPU.
    pub const WHOLE: Self = Self(1_000);

    /// So many whole GPUs.
    pub const fn of_whole(count: u64) -> Self {
        Self(count.saturating_mul(Self::WHOLE.0))
    }
}

impl fmt::Display for GpuMilli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / Self::WHOLE.0, self.0 % Self::WHOLE.0);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{rest:03}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

/// A MIG profile as the driver names it: compute slices and memory (`1g.10gb`), with what is said beside it (`1g.10gb+me`, `1c.3g.40gb`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MigProfile(String);

impl MigProfile {
    /// The compute slices of a GPU that is split: every generation that can be has seven (NVIDIA, Multi-Instance GPU User Guide).
    pub const SLICES: u64 = 7;
    const LENGTH_MAX: usize = 32;

    /// Reads and checks the text.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let profile = Self(text.to_owned());
        let plain = text.len() <= Self::LENGTH_MAX && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-".contains(&byte));
        if plain && profile.compute_slices().is_some() {
            return Ok(profile);
        }
        Err(Invalid::new("mig profile", text, "compute slices (1 to 7) and memory as the driver names them, such as 1g.10gb"))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number before `g`; behind it the memory (`10gb`), and then what is said beside it.
    fn compute_slices(&self) -> Option<u64> {
        // An instance of some of a slice's compute (`1c.3g.40gb`) takes memory and engines of the whole slice.
        let slice = match self.0.split_once('.') {
            Some((compute, slice)) if compute.strip_suffix('c').is_some_and(is_number) => slice,
            _ => self.0.as_str(),
        };
        let (slices, memory) = slice.split_once("g.")?;
        let (bytes, beside) = memory.split_once("gb")?;
        let ends_well = beside.is_empty() || (beside.len() > 1 && beside.starts_with(['+', '-']) && !beside.contains('.'));
        let count: u64 = slices.parse().ok().filter(|_| is_number(slices) && is_number(bytes) && ends_well)?;
        (1..=Self::SLICES).contains(&count).then_some(count)
    }

    /// How much of a GPU one counts where GPUs are counted: its compute slices of seven, rounded down, so that all slices of a GPU together never
    /// count more than it: a quota of one GPU is enough for all seven of `1g`.
    pub fn counts(&self) -> GpuMilli {
        GpuMilli(self.compute_slices().unwrap_or(Self::SLICES) * GpuMilli::WHOLE.0 / Self::SLICES)
    }
}

fn is_number(text: &str) -> bool {
    (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

impl fmt::Display for MigProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_form!(MigProfile, None);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_people_count() {
        for (milli, text) in [(0, "0"), (1_000, "1"), (250, "0.25"), (1_142, "1.142"), (999, "0.999"), (5, "0.005"), (12_500, "12.5")] {
            assert_eq!(GpuMilli(milli).to_string(), text);
        }
    }

    #[test]
    fn a_slice_counts_its_compute_slices_of_seven_rounded_down() {
        let counts = |text: &str| MigProfile::parse(text).map(|profile| profile.counts().0);
        for (text, milli) in [
            ("1g.10gb", 142),
            ("2g.20gb", 285),
            ("3g.40gb", 428),
            ("4g.40gb", 571),
            ("7g.80gb", 1_000),
            ("1g.10gb+me", 142),
            ("1c.3g.40gb", 428),
            ("1g.12gb-me", 142),
        ] {
            assert_eq!(counts(text), Ok(milli), "{text}");
        }
    }

    #[test]
    fn what_no_driver_says_is_no_profile() {
        for text in [
            "",
            "1g",
            "0g.10gb",
            "8g.80gb",
            "1g.10",
            "g.10gb",
            "1g.gb",
            "1g.10gb+",
            "1g.10gbx",
            "+1g.10gb",
            "1g.10gb é",
            "c.1g.5gb",
            "1g.00000gb",
        ] {
            assert!(MigProfile::parse(text).is_err(), "{text}");
        }
        assert!(MigProfile::parse(&format!("1g.10gb+{}", "m".repeat(40))).is_err());
    }
}
