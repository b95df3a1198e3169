//! Whole GPUs, MIG slices and shares of a GPU: what may be asked together, and how much of a GPU each counts under quotas and in figures.

use super::{MemberPlacement, PerNode};
use footplate_types::{GpuMilli, Invalid, MigProfile};

/// Whether a number says nothing.
pub(crate) fn is_unsaid<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// How much of a GPU one counts: a slice by its profile, a share its thousandths.
fn counts(profile: Option<&MigProfile>, share: u32) -> GpuMilli {
    match profile {
        Some(profile) => profile.counts(),
        None if share > 0 => GpuMilli(share.into()),
        None => GpuMilli::WHOLE,
    }
}

impl PerNode {
    /// The largest share of a GPU, in thousandths: who wants all of it asks no share.
    pub const GPU_SHARE_MAX: u32 = 999;

    /// How much of a GPU each of the asked GPUs counts.
    pub fn gpu_counts(&self) -> GpuMilli {
        counts(self.gpu_profile.as_ref(), self.gpu_share)
    }

    /// How much all of them count that are asked of a node.
    pub fn gpu_milli(&self) -> GpuMilli {
        GpuMilli(u64::from(self.gpus).saturating_mul(self.gpu_counts().0))
    }

    /// Checks what is said of GPUs. The first fault is told.
    pub(super) fn validate_gpus(&self) -> Result<(), Invalid> {
        if self.gpus == 0 && (!self.gpu_models.is_empty() || self.gpu_memory_bytes > 0) {
            return Err(Invalid::new("resources.gpu", "a model or memory", "only together with gpus of at least 1"));
        }
        if let Some(profile) = self.gpu_profile.as_ref().filter(|_| self.gpus == 0) {
            return Err(Invalid::new("resources.gpu.mig", profile, "only together with gpus of at least 1"));
        }
        if self.gpu_share == 0 {
            return Ok(());
        }
        if self.gpu_share > Self::GPU_SHARE_MAX {
            let allowed = format!("1 to {} thousandths of a GPU; leave it out to ask for all of it", Self::GPU_SHARE_MAX);
            return Err(Invalid::new("resources.gpu.share", self.gpu_share, allowed));
        }
        if self.gpus != 1 || self.gpu_profile.is_some() {
            let beside = self.gpu_profile.as_ref().map_or_else(String::new, |profile| format!(" of {profile}"));
            let given = format!("{} of gpus: {}{beside}", self.gpu_share, self.gpus);
            return Err(Invalid::new("resources.gpu.share", given, "a share of gpus: 1, without resources.gpu.mig"));
        }
        Ok(())
    }
}

impl MemberPlacement {
    /// How much of a GPU each of its GPUs counts.
    pub fn gpu_counts(&self) -> GpuMilli {
        counts(self.gpu_profile.as_ref(), self.gpu_share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(gpus: u32, profile: Option<&str>, share: u32) -> PerNode {
        let gpu_profile = profile.map(|text| MigProfile::parse(text).unwrap_or_else(|error| panic!("{error}")));
        PerNode { gpus, gpu_profile, gpu_share: share, slots: u32::from(gpus == 0), ..PerNode::default() }
    }

    #[test]
    fn a_share_is_of_one_whole_gpu_and_less_than_all_of_it() {
        let fault = |ask: PerNode| ask.validate_gpus().err().map(|invalid| invalid.field);
        assert_eq!(fault(ask(1, None, 1)), None);
        assert_eq!(fault(ask(1, None, 999)), None);
        assert_eq!(fault(ask(4, Some("1g.10gb"), 0)), None);
        let share = Some("resources.gpu.share".to_owned());
        for bad in [ask(1, None, 1_000), ask(2, None, 500), ask(0, None, 500), ask(1, Some("1g.10gb"), 500), ask(1, None, u32::MAX)] {
            assert_eq!(fault(bad.clone()), share, "{bad:?}");
        }
        assert_eq!(fault(ask(0, Some("1g.10gb"), 0)).as_deref(), Some("resources.gpu.mig"));
    }

    #[test]
    fn whole_gpus_slices_and_shares_count_in_one_unit() {
        let milli = |ask: PerNode| ask.gpu_milli().0;
        let counted = (milli(ask(8, None, 0)), milli(ask(2, Some("3g.40gb"), 0)), milli(ask(1, None, 250)), milli(ask(0, None, 0)));
        assert_eq!(counted, (8_000, 856, 250, 0));
    }
}
