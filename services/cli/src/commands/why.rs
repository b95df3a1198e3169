//! `why`: the one binding reason, and what would help.

use crate::{
    args::RunArg,
    call,
    context::{Context, find_run_id},
    output::Exit,
};
use footplate_api::{json, v1};
use footplate_types::Millis;

const EXAMPLES: &str = "\
Examples:
  footplate why 0190f3a2
  footplate why 0190f3a2 -o json";

/// Say why a job stands where it stands
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The run.
    #[command(flatten)]
    pub run: RunArg,
}

/// Prints the reason.
///
/// # Errors
/// No such run, a run without a job, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let run_id = find_run_id(&client, &args.run.run).await?;
    let asked = v1::GetJobRequest { project: client.project().to_owned(), run_id, at_least: 0 };
    let answer = call!(client, jobs.explain_job(asked))?;
    ctx.output.one(&answer.run_id, &json::to_value(&answer), &text(&answer))?;
    Ok(Exit::Done)
}

fn text(answer: &v1::ExplainJobResponse) -> String {
    let mut lines = vec![if answer.reason.is_empty() { answer.state.clone() } else { format!("{}: {}", answer.state, answer.reason) }];
    if answer.position > 0 {
        lines.push(format!("place in its queue: {}", answer.position));
    }
    if !answer.deadline.is_empty() {
        lines.push(format!("deadline: {}", answer.deadline));
    }
    if let Some(within) = answer.starts_within_ms {
        let told = if within == 0 { "as soon as the scheduler looks again".to_owned() } else { format!("within {}", Millis(within)) };
        lines.push(format!("expected to start: {told} (if what runs takes as long as it may and nothing new comes before it)"));
    } else if !answer.start_unknown.is_empty() {
        lines.push(format!("expected to start: nobody knows, {}", answer.start_unknown));
    }
    // One pool says no more than the reason.
    if answer.pools.len() > 1 {
        lines.push("by pool:".to_owned());
        lines.extend(
            answer.pools.iter().map(|room| format!("  {}: {}", if room.pool.is_empty() { "(no pool)" } else { &room.pool }, room.binds)),
        );
    }
    if !answer.would_help.is_empty() {
        lines.push("what would help:".to_owned());
        lines.extend(answer.would_help.iter().map(|help| format!("  - {help}")));
    }
    if !answer.history.is_empty() {
        lines.push("what has happened:".to_owned());
        lines.extend(answer.history.iter().map(|entry| format!("  {entry}")));
    }
    lines.join("\n") + "\n"
}
