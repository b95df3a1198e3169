//! A trace of jobs as a table: `submit_s,duration_s,num_gpus,vc`, one job a line below that header, as research publishes them (Philly: Jeon et al.,
//! USENIX ATC 2019).

use crate::cluster::Cluster;
use crate::scenario::Arrival;
use crate::workload::{Workload, plain};
use footplate_events::facts::JobSpec;
use footplate_types::{DisplayName, Invalid, QueueName};
use std::collections::BTreeMap;
use std::sync::Arc;

const HEADER: &str = "submit_s,duration_s,num_gpus,vc";

/// The jobs of a trace. One of more GPUs than a node of the cluster has takes whole nodes; its virtual cluster is its queue. `preemptible`: all of them may
/// be stopped for others, which a trace does not say.
///
/// # Errors
/// A line that is not of that form, by its number.
pub fn trace(text: &str, cluster: &Cluster, preemptible: bool) -> Result<Vec<Arrival>, Invalid> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    match lines.next() {
        Some((_, header)) if header.trim() == HEADER => {}
        other => return Err(Invalid::new("line 1 of the trace", other.map_or("", |(_, line)| line), format!("the header {HEADER}"))),
    }
    let per_node = cluster.gpus_of_a_node().max(1);
    let mut specs: BTreeMap<(String, u32), Arc<JobSpec>> = BTreeMap::new();
    let mut arrivals = Vec::new();
    for (at, line) in lines {
        let wrong = |allowed: &str| Invalid::new(format!("line {} of the trace", at + 1), line, allowed.to_owned());
        if arrivals.len() >= Workload::JOBS_MAX as usize {
            return Err(wrong(&format!("at most {} jobs", Workload::JOBS_MAX)));
        }
        let columns: Vec<&str> = line.split(',').map(str::trim).collect();
        let [submitted, takes, gpus, vc] = columns.as_slice() else { return Err(wrong(HEADER)) };
        let seconds = |text: &str| text.parse::<u64>().ok().and_then(|seconds| seconds.checked_mul(1_000));
        let (Some(at_ms), Some(takes_ms)) = (seconds(submitted), seconds(takes)) else { return Err(wrong("whole seconds")) };
        let gpus: u32 = gpus.parse().ok().filter(|gpus| *gpus > 0).ok_or_else(|| wrong("at least one GPU"))?;
        let spec = match specs.get(&((*vc).to_owned(), gpus)) {
            Some(spec) => spec.clone(),
            None => {
                let queue = QueueName::parse(vc).map_err(|invalid| wrong(&invalid.allowed))?;
                let mut spec = plain(DisplayName::parse(&format!("{vc} {gpus} gpus"))?, Some(queue));
                spec.resources.nodes = gpus.div_ceil(per_node);
                spec.resources.per_node.gpus = gpus.min(per_node);
                spec.preemptible = preemptible;
                spec.validate().map_err(|invalid| wrong(&invalid.to_string()))?;
                let spec = Arc::new(spec);
                specs.insert(((*vc).to_owned(), gpus), spec.clone());
                spec
            }
        };
        arrivals.push(Arrival { at_ms, takes_ms, spec });
    }
    if arrivals.is_empty() {
        return Err(Invalid::new("the trace", "no job", "at least one job below the header"));
    }
    arrivals.sort_by_key(|arrival| arrival.at_ms);
    Ok(arrivals)
}
