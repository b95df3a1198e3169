//! `queue capacity`: what is asked of the nodes, which lie idle, and how many more of which kind would serve what waits.

use crate::{
    call,
    context::Context,
    output::{Column, Exit, ago, render},
};
use footplate_api::{json, types, v1};
use footplate_types::{ByteSize, GpuMilli, Timestamp};

const EXAMPLES: &str = "\
Examples:
  footplate queue capacity
  footplate queue capacity -A -o json | jq '.demands[].more'";

/// Show what is asked, what lies idle, and which nodes would help what waits
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The placed jobs of every project, instead of one's
    #[arg(short = 'A', long)]
    pub all_projects: bool,
}

/// Prints the account.
///
/// # Errors
/// No answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let project = if args.all_projects { String::new() } else { client.project().to_owned() };
    let told = call!(client, queues.get_capacity(v1::GetCapacityRequest { project: project.clone(), at_least: 0 }))?;
    ctx.output.one(&told.view_sequence.to_string(), &json::to_value(&told), &text(&told, &ctx))?;
    Ok(Exit::Done)
}

fn text(told: &v1::GetCapacityResponse, ctx: &Context) -> String {
    let table = |columns: &[Column], rows: Vec<Vec<String>>| render(columns, &rows, false, ctx.output.width, ctx.output.style);
    let mut parts = vec![table(&QUEUES, told.queues.iter().map(queue).collect())];
    if !told.jobs.is_empty() {
        let more = told.placed_jobs.saturating_sub(told.jobs.len() as u64);
        parts.push(with_rest(table(&JOBS, told.jobs.iter().map(job).collect()), more, "placed jobs"));
    }
    if !told.idle.is_empty() {
        let more = told.idle_nodes.saturating_sub(told.idle.len() as u64);
        parts.push(with_rest(table(&IDLE, told.idle.iter().map(idle).collect()), more, "idle nodes"));
    }
    let waits = match told.demands.as_slice() {
        [] => "nothing waits for nodes\n".to_owned(),
        demands => demands.iter().map(|demand| format!("{}\n", waiting(demand, &told.kinds))).collect(),
    };
    parts.push(with_rest(waits, told.demands_beyond, "sorts of jobs that wait"));
    parts.join("\n")
}

fn with_rest(text: String, more: u64, what: &str) -> String {
    if more == 0 { text } else { format!("{text}and {more} more {what}\n") }
}

const QUEUES: [Column; 7] = [
    Column::whole("QUEUE"),
    Column::whole("PLACED"),
    Column::whole("ON GPUS"),
    Column::whole("ON SLOTS"),
    Column::whole("PENDING"),
    Column::whole("FOR GPUS"),
    Column::whole("FOR SLOTS"),
];

fn queue(asked: &v1::QueueAsk) -> Vec<String> {
    let side = |jobs: u64, milli: u64, slots: u64| [jobs.to_string(), GpuMilli(milli).to_string(), slots.to_string()];
    let placed = side(asked.placed_jobs, asked.placed_gpu_milli, asked.placed_slots);
    let pending = side(asked.pending_jobs, asked.pending_gpu_milli, asked.pending_slots);
    [asked.queue.clone()].into_iter().chain(placed).chain(pending).collect()
}

const JOBS: [Column; 5] =
    [Column::whole("RUN"), Column::cut("NAME"), Column::whole("QUEUE"), Column::whole("ASKS"), Column::whole("PLACED")];

fn since(time: &str) -> String {
    Timestamp::parse(time).map_or_else(|_| "-".to_owned(), |then| ago(then, footplate_clock::now()))
}

fn job(job: &v1::PlacedAsk) -> Vec<String> {
    let asks = if job.gpu_milli > 0 { gpus(job.gpu_milli) } else { units(job.slots, "slot") };
    vec![job.run_id.clone(), job.name.clone(), job.queue.clone(), asks, since(&job.placed_at)]
}

const IDLE: [Column; 5] =
    [Column::whole("IDLE NODE"), Column::whole("POOL"), Column::whole("GPUS"), Column::whole("SLOTS"), Column::whole("FOR")];

fn idle(node: &v1::IdleNode) -> Vec<String> {
    let pool = if node.pool.is_empty() { "-" } else { &node.pool };
    vec![node.node.clone(), pool.to_owned(), node.gpus.to_string(), node.slots.to_string(), since(&node.idle_since)]
}

fn gpus(milli: u64) -> String {
    format!("{} gpu{}", GpuMilli(milli), if milli == GpuMilli::WHOLE.0 { "" } else { "s" })
}

fn units(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A demand and what would serve it, in one sentence.
fn waiting(demand: &v1::Demand, kinds: &[v1::NodeKind]) -> String {
    let resources = demand.resources.clone().unwrap_or_default();
    let jobs = units(demand.jobs, "job");
    let verb = if demand.jobs == 1 { "waits" } else { "wait" };
    let nodes = units(resources.nodes.into(), "node");
    let asked = format!("{jobs} {verb} for {nodes} with {}", asked(&resources.per_node.unwrap_or_default()));
    let pool = if demand.pool.is_empty() { String::new() } else { format!(" in pool {}", demand.pool) };
    let room = format!("{} of the open ones {} room", demand.nodes_with_room, if demand.nodes_with_room == 1 { "has" } else { "have" });
    let help = |more: &v1::MoreNodes| {
        let kind = kinds.get(more.kind as usize).map_or_else(String::new, |kind| format!(" ({})", kind_words(kind)));
        format!("{} more would serve the first, {} all{kind}", more.for_one, more.for_all)
    };
    let more: Vec<String> = demand.more.iter().map(help).collect();
    let served = match (more.is_empty(), demand.only_named_nodes) {
        (false, _) => more.join("; or "),
        (true, true) => "they may stand on named nodes alone".to_owned(),
        (true, false) => "no kind of node that is there could take them".to_owned(),
    };
    format!("{asked}{pool}, {room}: {served}")
}

fn asked(ask: &types::PerNode) -> String {
    let mut parts = vec![match (ask.gpus, ask.gpu_profile.as_str(), ask.gpu_share) {
        (0, _, _) => units(ask.slots.into(), "slot"),
        (_, "", share) if share > 0 => format!("{} of a gpu", GpuMilli(share.into())),
        (gpus, "", _) => units(gpus.into(), "gpu"),
        (slices, profile, _) => format!("{} of {profile}", units(slices.into(), "slice")),
    }];
    if !ask.gpu_models.is_empty() {
        parts.push(ask.gpu_models.join(" or "));
    }
    for (bytes, what) in [(ask.gpu_memory_bytes, "of GPU memory"), (ask.memory_bytes, "of memory"), (ask.disk_bytes, "of disk")] {
        if bytes > 0 {
            parts.push(format!("{} {what}", ByteSize(bytes)));
        }
    }
    if ask.cpus > 0 {
        parts.push(units(ask.cpus.into(), "cpu"));
    }
    parts.join(", ")
}

fn kind_words(kind: &v1::NodeKind) -> String {
    let slice = |gpus: &v1::GpusOfKind| if gpus.mig_profile.is_empty() { String::new() } else { format!(" {}", gpus.mig_profile) };
    let mut parts: Vec<String> = kind.gpus.iter().map(|gpus| format!("{} x {}{}", gpus.count, gpus.model, slice(gpus))).collect();
    if kind.share_gpus {
        parts.push("shared".to_owned());
    }
    if kind.slots > 0 {
        parts.push(units(kind.slots.into(), "slot"));
    }
    parts.push(units(kind.cpus.into(), "cpu"));
    parts.push(ByteSize(kind.memory_bytes).to_string());
    if !kind.pool.is_empty() {
        parts.push(format!("pool {}", kind.pool));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand() -> v1::Demand {
        let per_node = types::PerNode { gpus: 8, gpu_models: vec!["H200".to_owned()], memory_bytes: 1 << 30, ..types::PerNode::default() };
        let resources = Some(types::ResourceAsk { nodes: 2, per_node: Some(per_node) });
        v1::Demand { jobs: 3, resources, nodes_with_room: 1, ..v1::Demand::default() }
    }

    #[test]
    fn a_demand_is_one_sentence_with_what_would_serve_it() {
        let kinds = [v1::NodeKind {
            gpus: vec![v1::GpusOfKind { model: "H200".to_owned(), memory_bytes: 1 << 37, count: 8, ..v1::GpusOfKind::default() }],
            cpus: 96,
            memory_bytes: 1 << 40,
            pool: "train".to_owned(),
            ..v1::NodeKind::default()
        }];
        let served = v1::Demand { more: vec![v1::MoreNodes { kind: 0, for_one: 1, for_all: 5 }], ..demand() };
        let told = "3 jobs wait for 2 nodes with 8 gpus, H200, 1GiB of memory, 1 of the open ones has room: \
                    1 more would serve the first, 5 all (8 x H200, 96 cpus, 1TiB, pool train)";
        assert_eq!(waiting(&served, &kinds), told);
        assert!(waiting(&demand(), &kinds).ends_with("no kind of node that is there could take them"));
        let of = |per_node| asked(&per_node);
        let slices = types::PerNode { gpus: 2, gpu_profile: "1g.10gb".to_owned(), ..types::PerNode::default() };
        let share = types::PerNode { gpus: 1, gpu_share: 250, gpu_memory_bytes: 1 << 30, ..types::PerNode::default() };
        assert_eq!((of(slices), of(share)), ("2 slices of 1g.10gb".to_owned(), "0.25 of a gpu, 1GiB of GPU memory".to_owned()));
        let named = v1::Demand { only_named_nodes: true, jobs: 1, ..demand() };
        assert!(waiting(&named, &kinds).starts_with("1 job waits") && waiting(&named, &kinds).ends_with("named nodes alone"));
    }
}
