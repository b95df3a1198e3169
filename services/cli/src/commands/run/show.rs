//! `run show`: everything that is known of one run.

use crate::{
    args::RunArg,
    context::{Context, find_run},
    output::Exit,
    view,
};
use footplate_api::{
    json,
    types::{AttemptSummary, MemberSummary, Run},
};
use footplate_types::GpuMilli;
use std::collections::BTreeMap;

const EXAMPLES: &str = "\
Examples:
  footplate run show 0190f3a2
  footplate run show 0190f3a2 -o json | jq .latest";

/// Show a run.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The run.
    #[command(flatten)]
    pub run: RunArg,
}

/// Prints the run.
///
/// # Errors
/// No such run, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let found = find_run(&client, &args.run.run).await?;
    ctx.output.one(&found.run_id, &json::to_value(&found), &text(&found))?;
    Ok(Exit::Done)
}

fn text(run: &Run) -> String {
    let mut lines = Vec::new();
    let mut line = |key: &str, value: String| {
        if !value.is_empty() {
            lines.push(format!("{key:<12}{value}"));
        }
    };
    line("run", run.run_id.clone());
    line("name", run.name.clone());
    line("experiment", run.experiment.clone());
    line("project", run.project.clone());
    line("state", view::standing_with_seal(run));
    line("reason", view::reason(run));
    line("missing", run.seal_missing.join("; "));
    line("late", if run.late > 0 { format!("{} things were stored after the seal", run.late) } else { String::new() });
    line("by", run.created_by.clone());
    line("created", run.created_at.clone());
    line("started", run.started_at.clone());
    line("ended", run.ended_at.clone());
    line("sealed", run.sealed_at.clone());
    line("duration", if run.duration_ms > 0 { view::lasted(run.duration_ms) } else { String::new() });
    line("queue", if run.has_job { format!("{} (priority {})", run.queue, run.priority) } else { String::new() });
    line("commit", source(run));
    line("tree", run.source_tree.clone());
    line("rerun of", run.rerun_of.clone());
    line("hypothesis", run.hypothesis.clone());
    line("conclusion", run.conclusion.clone());
    line("note", run.note.clone());
    line("points", run.points.to_string());
    line("artifacts", run.artifact_count.to_string());
    section(&mut lines, "tags", run.tags.iter().map(|(key, value)| (key.clone(), value.clone())).collect());
    section(&mut lines, "params", run.params.iter().map(|(key, value)| (key.clone(), value.json.clone())).collect());
    let latest = run.latest.iter().filter(|value| value.rank == 0);
    section(
        &mut lines,
        "metrics",
        latest.map(|value| (value.name.clone(), format!("{} (step {})", view::number(value.value), value.step))).collect(),
    );
    for attempt in &run.attempts {
        lines.push(String::new());
        lines.push(attempt_text(attempt));
    }
    lines.join("\n") + "\n"
}

fn source(run: &Run) -> String {
    let branch = if run.source_branch.is_empty() { String::new() } else { format!(" on {}", run.source_branch) };
    let dirty = if run.source_dirty { ", with changes" } else { "" };
    if run.source_commit.is_empty() { String::new() } else { format!("{}{branch}{dirty}", run.source_commit) }
}

fn section(lines: &mut Vec<String>, heading: &str, entries: BTreeMap<String, String>) {
    if entries.is_empty() {
        return;
    }
    lines.push(String::new());
    lines.push(heading.to_owned());
    let width = entries.keys().map(|key| crate::output::columns_of(key)).max().unwrap_or(0).min(40);
    for (key, value) in entries {
        let pad = " ".repeat(width.saturating_sub(crate::output::columns_of(&key)));
        lines.push(format!("  {key}{pad}  {value}"));
    }
}

/// `GPU-0, GPU-1`, `0.25 of GPU-0`, `1g.10gb MIG-0`, or `2 slots`.
fn claim(member: &MemberSummary) -> String {
    let gpus = member.gpus.join(", ");
    match (member.gpus.is_empty(), member.gpu_share, member.gpu_profile.as_str()) {
        (true, _, _) => format!("{} slots", member.slots.len()),
        (false, 0, "") => gpus,
        (false, 0, profile) => format!("{profile} {gpus}"),
        (false, share, _) => format!("{} of {gpus}", GpuMilli(share.into())),
    }
}

fn attempt_text(attempt: &AttemptSummary) -> String {
    let mut text = format!("attempt {}", attempt.attempt);
    for (word, time) in [("placed", &attempt.placed_at), ("launched", &attempt.launched_at), ("ended", &attempt.ended_at)] {
        if !time.is_empty() {
            text.push_str(&format!(", {word} {time}"));
        }
    }
    for (word, value) in [("stopped", &attempt.stop_cause), ("cause", &attempt.cause)] {
        if !value.is_empty() {
            text.push_str(&format!(", {word}: {}", value.replace('_', " ")));
        }
    }
    if let Some(step) = attempt.checkpoint_step {
        text.push_str(&format!(", checkpoint at step {step}"));
    }
    for member in &attempt.members {
        let claim = claim(member);
        let last = member.first_rank + member.workers.saturating_sub(1);
        text.push_str(&format!("\n  {} ranks {}-{last} on {} ({claim})", member.state, member.first_rank, member.node));
        for exit in &member.exits {
            text.push_str(&format!("\n    {exit}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_member_claims_is_told_with_its_part() {
        let on = |gpus: &[&str], gpu_share, profile: &str| MemberSummary {
            gpus: gpus.iter().map(|gpu| (*gpu).to_owned()).collect(),
            gpu_share,
            gpu_profile: profile.to_owned(),
            slots: if gpus.is_empty() { vec![0, 1] } else { Vec::new() },
            ..MemberSummary::default()
        };
        let told = [on(&["GPU-0", "GPU-1"], 0, ""), on(&["GPU-0"], 250, ""), on(&["MIG-0"], 0, "1g.10gb"), on(&[], 0, "")];
        assert_eq!(told.map(|member| claim(&member)), ["GPU-0, GPU-1", "0.25 of GPU-0", "1g.10gb MIG-0", "2 slots"]);
    }
}
