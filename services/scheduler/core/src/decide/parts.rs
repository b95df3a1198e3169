//! What is left of the GPUs of a node once shares of them are claimed.
//!
//! A GPU on which nothing stands has a thousand thousandths left, and all its memory. A share takes its own of both, a job that has the GPU alone all
//! thousandths, so that the two never stand beside each other. Which of several GPUs a share is put on is best fit (the fullest that still holds it), so that
//! whole ones stay whole; that strands the least among the simple rules (Weng et al., "Beware of Fragmentation", ATC 2023, table of BestFit).

use crate::state::{Claim, Node};
use footplate_events::facts::PerNode;
use footplate_types::GpuMilli;

/// All thousandths of a GPU.
const WHOLE: i64 = GpuMilli::WHOLE.0 as i64;
/// What is left of a GPU that is not healthy: nothing, whoever leaves it.
const NEVER: i64 = i64::MIN / 4;

/// What is left of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    milli: i64,
    memory: i64,
}

fn bytes(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Part {
    /// Of the GPU at a position that has been looked at as a whole until now: free, or claimed by somebody who has it alone.
    pub(super) fn of(node: &Node, at: usize, is_free: bool) -> Self {
        let Some(gpu) = node.shape.gpus.get(at).filter(|gpu| node.is_well(gpu)) else { return Self { milli: NEVER, memory: 0 } };
        Self { milli: if is_free { WHOLE } else { 0 }, memory: bytes(gpu.memory_bytes) }
    }

    /// A claim on it is made, or given up.
    pub(super) fn shift(&mut self, claim: &Claim, free: bool) {
        let sign = if free { 1 } else { -1 };
        let milli = if claim.gpu_share > 0 { claim.gpu_share.into() } else { WHOLE };
        self.milli = self.milli.saturating_add(sign * milli);
        self.memory = self.memory.saturating_add(sign * bytes(claim.gpu_memory_bytes));
    }

    /// Nothing stands on it.
    pub(super) fn is_whole(&self) -> bool {
        self.milli == WHOLE
    }

    pub(super) fn holds(&self, ask: &PerNode) -> bool {
        i64::from(ask.gpu_share) <= self.milli && bytes(ask.gpu_memory_bytes) <= self.memory
    }

    /// Thousandths that are to be had; 0 when it is over-full.
    pub(super) fn left(&self) -> u32 {
        u32::try_from(self.milli.clamp(0, WHOLE)).unwrap_or(0)
    }

    /// No more than another.
    pub(super) fn limit_to(&mut self, other: &Self) {
        self.milli = self.milli.min(other.milli);
        self.memory = self.memory.min(other.memory);
    }
}
