//! `job decisions`: what the scheduler has decided, and what it decides. With `-o json` one object a line.

use crate::{
    context::{Context, find_run_id},
    output::{Exit, Format, print, tell},
};
use footplate_api::{ApiError, Client, json, v1};
use std::time::Duration;

/// The most decisions that are listed before following begins.
const NEWEST_MAX: u32 = 1_000;
/// How often a broken stream is opened again without a decision having come.
const REOPENED_MAX: u32 = 5;
/// The pause before it is.
const REOPEN_AFTER: Duration = Duration::from_secs(1);
/// Characters of a run that tell it apart for people.
const SHORT: usize = 14;

const EXAMPLES: &str = "\
Examples:
  footplate job decisions -f
  footplate job decisions --run 0190f3a2 --from 1
  footplate job decisions --queue night -n 100 -o json | jq 'select(.kind == \"stop_requested\")'";

/// Print what the scheduler has decided about jobs, and follow it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Go on with what it decides, until Ctrl-C or until the one job has ended
    #[arg(short, long, visible_short_alias = 'w')]
    pub follow: bool,
    /// So many of the newest
    #[arg(short = 'n', long, default_value_t = 10, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(NEWEST_MAX)))]
    pub lines: u32,
    /// Everything from this ledger sequence on, instead of the newest
    #[arg(long, value_name = "SEQUENCE", conflicts_with = "lines", value_parser = clap::value_parser!(u64).range(1..))]
    pub from: Option<u64>,
    /// Only about this run's job
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Only about jobs of this queue
    #[arg(long, value_name = "QUEUE", default_value = "", hide_default_value = true)]
    pub queue: String,
    /// About the jobs of every project
    #[arg(short = 'A', long)]
    pub all_projects: bool,
}

/// Prints decisions.
///
/// # Errors
/// No such run, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let run_id = match &args.run {
        Some(named) => find_run_id(&client, named).await?,
        None => String::new(),
    };
    let asked = v1::WatchDecisionsRequest {
        project: if args.all_projects { String::new() } else { client.project().to_owned() },
        queue: args.queue,
        run_id,
        from_sequence: args.from.unwrap_or(0),
        follow: args.follow,
        newest: if args.from.is_some() { 0 } else { args.lines },
    };
    tokio::select! {
        read = read(&ctx, &client, asked) => read?,
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(Exit::Done)
}

/// Prints a stream to its end; one that breaks is opened again behind the last decision that came.
async fn read(ctx: &Context, client: &Client, mut asked: v1::WatchDecisionsRequest) -> anyhow::Result<()> {
    let mut reopened = 0;
    loop {
        let broke = match client.once(client.jobs().watch_decisions(asked.clone())).await {
            Ok(mut stream) => loop {
                match stream.message().await {
                    Ok(Some(decision)) => {
                        (asked.from_sequence, asked.newest, reopened) = (decision.sequence + 1, 0, 0);
                        show(ctx, &decision)?;
                    }
                    Ok(None) => return Ok(()),
                    Err(status) => break ApiError::from_status(&status, &ctx.addr),
                }
            },
            Err(error) => error,
        };
        reopened += 1;
        if reopened > REOPENED_MAX || !broke.is_worth_another_try() {
            return Err(broke.into());
        }
        tell(format!("the stream broke ({broke}); opening it again"));
        tokio::time::sleep(REOPEN_AFTER).await;
    }
}

fn show(ctx: &Context, decision: &v1::Decision) -> anyhow::Result<()> {
    if ctx.output.quiet {
        return Ok(print(&format!("{}\n", decision.sequence))?);
    }
    let text = match ctx.output.format {
        Format::Json => json::to_value(decision).to_string(),
        Format::Yaml => format!("---\n{}", serde_yaml_ng::to_string(&json::to_value(decision))?.trim_end()),
        Format::Table | Format::Dot => line(decision, SHORT),
        Format::Wide => line(decision, usize::MAX),
    };
    Ok(print(&format!("{text}\n"))?)
}

fn line(decision: &v1::Decision, most: usize) -> String {
    let run: String = decision.run_id.chars().take(most).collect();
    let v1::Decision { sequence, recorded_at, queue, kind, text, .. } = decision;
    format!("{sequence:>7}  {recorded_at}  {run}  {queue:<12}  {kind:<14}  {text}")
}
