//! What is asked of one node, and which shapes are to be expected.

use std::collections::BTreeMap;

/// A whole GPU, in thousandths: the unit of everything that is said about parts of a GPU.
pub const WHOLE: u16 = 1_000;

/// How many classes are kept at most; what is asked most often stays.
pub const CLASSES_MOST: usize = 1_024;

/// The models of GPUs that will do, by their numbers in whoever's list of models it is (at most 64).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Models(u64);

impl Models {
    /// Any model will do.
    pub const ANY: Self = Self(u64::MAX);

    /// Only these models; numbers above 63 are left out, and none at all fits nowhere.
    pub fn only(models: impl IntoIterator<Item = u8>) -> Self {
        Self(models.into_iter().filter_map(|model| 1u64.checked_shl(model.into())).fold(0, |all, bit| all | bit))
    }

    /// Whether a node of this model will do.
    pub fn allow(self, model: u8) -> bool {
        self == Self::ANY || 1u64.checked_shl(model.into()).is_some_and(|bit| self.0 & bit != 0)
    }
}

/// What is asked of one node: a member of a gang, or a whole job of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Demand {
    /// Thousandths of a CPU.
    pub cpu_milli: u64,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// How many GPUs; with 0 the models and the part say nothing.
    pub gpus: u8,
    /// What is asked of each of them, in thousandths: [`WHOLE`] is a GPU of one's own, less is a share of one. 0 or more than [`WHOLE`] fits
    /// nowhere.
    pub gpu_milli: u16,
    /// Which models will do.
    pub models: Models,
}

impl Demand {
    /// All that is asked of GPUs, in thousandths.
    pub fn gpu_milli_whole(&self) -> u64 {
        u64::from(self.gpus) * u64::from(self.gpu_milli)
    }
}

/// A shape that is to be expected, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// What is asked.
    pub demand: Demand,
    /// How often, relative to the other classes.
    pub weight: u64,
}

/// The classes of recent requests, the most frequent first. All of them count, those of many GPUs too: without them nothing keeps whole
/// nodes whole.
pub fn classes(recent: impl IntoIterator<Item = Demand>) -> Vec<Class> {
    let mut counts: BTreeMap<Demand, u64> = BTreeMap::new();
    for demand in recent {
        *counts.entry(demand).or_default() += 1;
    }
    let mut classes: Vec<Class> = counts.into_iter().map(|(demand, weight)| Class { demand, weight }).collect();
    classes.sort_by_key(|class| (std::cmp::Reverse(class.weight), class.demand));
    classes.truncate(CLASSES_MOST);
    classes
}
