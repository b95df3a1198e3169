//! `run wait`: until runs are sealed; the exit code says how they ended.

use crate::{
    arrays::jobs_of,
    context::{Context, find_run_id},
    output::Exit,
    view,
    waiting::{Wait, wait},
};
use footplate_api::json;
use footplate_types::Millis;

const EXAMPLES: &str = "\
Examples:
  footplate run wait 0190f3a2
  footplate run wait --timeout 2h $(footplate submit -q job.yaml)
  footplate run wait --array $(footplate submit -q --array 0-99 job.yaml)

Exit codes: 0 every run succeeded, 7 one failed, 8 none failed and one was cancelled, 6 the time-out came first, 5 the platform went away:
the runs go on, and may be waited for again.";

/// Wait until runs are sealed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Ids of runs, or unique prefixes of them
    #[arg(required_unless_present = "array", value_name = "RUN")]
    pub runs: Vec<String>,
    /// Every run of this array: its id, or that of any run of it
    #[arg(long, value_name = "RUN", conflicts_with = "runs")]
    pub array: Option<String>,
    /// Give up after this long, such as 90s or 2h
    #[arg(long, value_name = "DURATION", value_parser = Millis::parse)]
    pub timeout: Option<Millis>,
    /// The end is enough; do not wait until everything is stored
    #[arg(long)]
    pub ended: bool,
}

/// Waits for each in turn.
///
/// # Errors
/// No such run, no answer, or the time-out.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let began = std::time::Instant::now();
    let mut worst = Exit::Done;
    let mut runs = Vec::with_capacity(args.runs.len());
    if let Some(array) = &args.array {
        runs.extend(jobs_of(&client, array).await?.into_iter().map(|job| job.run_id));
    }
    for named in &args.runs {
        runs.push(find_run_id(&client, named).await?);
    }
    for run_id in runs {
        let timeout = args.timeout.map(|timeout| timeout.duration().saturating_sub(began.elapsed()));
        let ended = wait(&ctx, &client, &run_id, Wait { ended_is_enough: args.ended, timeout }).await?;
        let reason = view::reason(&ended);
        let told = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        ctx.output.one(&run_id, &json::to_value(&ended), &format!("{run_id} {}{told}\n", view::standing_with_seal(&ended)))?;
        worst = view::worse(worst, view::exit_of(&ended));
    }
    Ok(worst)
}
