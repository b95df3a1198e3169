//! What is published: the authors' own results, as they lie beside the traces.

use anyhow::{Context, Result};
use std::collections::BTreeMap;

/// Fragmented GPUs on the default trace under FGD when so many percent had been asked for, in percent of all GPUs: the mean of the authors'
/// ten runs.
pub const FGD_FRAGMENTED: [(u64, f64); 5] = [(50, 8.93), (80, 5.97), (90, 5.00), (100, 4.73), (130, 4.57)];

/// The policies of the table that are shown here, as they are called there.
pub const POLICIES: [(&str, &str); 3] = [("random", "01-Random"), ("bestfit", "05-BestFit"), ("fgd", "06-FGD")];

/// Allocated GPUs at 130 % arrived, in percent, by variant and policy.
#[derive(Clone, Debug, Default)]
pub struct Table(BTreeMap<(String, String), f64>);

impl Table {
    /// From the lines `variant,policy,mean at 100 %,its deviation,mean at 130 %,its deviation`, after a heading of three.
    pub fn parse(text: &str) -> Result<Self> {
        let mut table = BTreeMap::new();
        for line in text.lines().skip(3).filter(|line| !line.is_empty()) {
            let columns: Vec<&str> = line.split(',').collect();
            let [variant, policy, _, _, mean, _] = columns[..] else { anyhow::bail!("not six columns: {line}") };
            let mean = mean.parse().with_context(|| format!("not a number: {line}"))?;
            table.insert((variant.to_owned(), policy.to_owned()), mean);
        }
        Ok(Self(table))
    }

    /// The figure of a policy, by its short name, on a variant.
    pub fn allocated(&self, variant: &str, policy: &str) -> Option<f64> {
        let (_, called) = POLICIES.iter().find(|(name, _)| *name == policy)?;
        self.0.get(&(variant.to_owned(), (*called).to_owned())).copied()
    }

    /// The variants of the table.
    pub fn variants(&self) -> Vec<&str> {
        let mut variants: Vec<&str> = self.0.keys().map(|(variant, _)| variant.as_str()).collect();
        variants.dedup();
        variants
    }
}
