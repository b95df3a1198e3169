//! `event tail`: the newest events, then what comes. With `-o json` one object a line.

use super::{data, trace_id};
use crate::{
    call,
    context::{Context, find_run_id},
    output::{Exit, Format, print, tell},
};
use footplate_api::{Client, v1};

/// The most events that are listed before following begins.
const NEWEST_MAX: u32 = 1_000;
/// How often a broken stream is opened again without an event having come.
const REOPENED_MAX: u32 = 5;

const EXAMPLES: &str = "\
Examples:
  footplate event tail -f
  footplate event tail --run 0190f3a2 -n 100
  footplate event tail --aggregate job --type footplate.job.placed --from 1 -o json | jq -c .data";

/// Print the newest events, and follow them
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Go on with what comes, until Ctrl-C
    #[arg(short, long, visible_short_alias = 'w')]
    pub follow: bool,
    /// So many of the newest
    #[arg(short = 'n', long, default_value_t = 10, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(0..=i64::from(NEWEST_MAX)))]
    pub lines: u32,
    /// Everything from this ledger sequence on, instead of the newest
    #[arg(long, value_name = "SEQUENCE", conflicts_with = "lines", value_parser = clap::value_parser!(u64).range(1..))]
    pub from: Option<u64>,
    /// Only events of this run: its run, job, request and attempt events
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Only events of this kind of thing: run, job, attempt, queue, node, ...
    #[arg(long, value_name = "KIND", default_value = "", hide_default_value = true)]
    pub aggregate: String,
    /// Only events whose type begins with this, such as footplate.job
    #[arg(long = "type", value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub type_prefix: String,
    /// Events of every project and of the platform itself
    #[arg(short = 'A', long)]
    pub all_projects: bool,
}

/// Prints events.
///
/// # Errors
/// No such run, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let filter = v1::EventFilter {
        project: if args.all_projects { String::new() } else { client.project().to_owned() },
        run_id: match &args.run {
            Some(named) => find_run_id(&client, named).await?,
            None => String::new(),
        },
        aggregate: args.aggregate.clone(),
        type_prefix: args.type_prefix.clone(),
    };
    let next = match args.from {
        Some(from) => from_sequence(&ctx, &client, &filter, from).await?,
        None => newest(&ctx, &client, &filter, args.lines).await?,
    };
    if args.follow {
        tokio::select! {
            followed = follow(&ctx, &client, filter, next) => followed?,
            _ = tokio::signal::ctrl_c() => {}
        }
    }
    Ok(Exit::Done)
}

/// Prints the newest; the sequence to go on from.
async fn newest(ctx: &Context, client: &Client, filter: &v1::EventFilter, lines: u32) -> anyhow::Result<u64> {
    let asked = v1::ListEventsRequest { filter: Some(filter.clone()), from_sequence: 0, page_size: lines.max(1), newest_first: true };
    let page = call!(client, events.list_events(asked))?;
    let mut events = page.events;
    events.truncate(lines as usize);
    events.sort_by_key(|event| event.sequence);
    for event in &events {
        show(ctx, event)?;
    }
    Ok(page.end_sequence + 1)
}

/// Prints everything from a sequence on; the sequence to go on from.
async fn from_sequence(ctx: &Context, client: &Client, filter: &v1::EventFilter, from: u64) -> anyhow::Result<u64> {
    let mut at = from;
    loop {
        let asked = v1::ListEventsRequest { filter: Some(filter.clone()), from_sequence: at, page_size: NEWEST_MAX, newest_first: false };
        let page = call!(client, events.list_events(asked))?;
        for event in &page.events {
            show(ctx, event)?;
        }
        if page.next_sequence == 0 {
            return Ok(page.end_sequence.max(at) + 1);
        }
        at = page.next_sequence;
    }
}

async fn follow(ctx: &Context, client: &Client, filter: v1::EventFilter, from: u64) -> anyhow::Result<()> {
    let mut next = from;
    let mut reopened = 0;
    loop {
        let asked = v1::WatchEventsRequest { filter: Some(filter.clone()), from_sequence: next, until_sequence: 0 };
        let broke = match client.once(client.events().watch_events(asked)).await {
            Ok(mut stream) => loop {
                match stream.message().await {
                    Ok(Some(event)) => {
                        next = event.sequence + 1;
                        reopened = 0;
                        show(ctx, &event)?;
                    }
                    Ok(None) => return Ok(()),
                    Err(status) => break footplate_api::ApiError::from_status(&status, &ctx.addr),
                }
            },
            Err(error) => error,
        };
        reopened += 1;
        if reopened > REOPENED_MAX || !broke.is_worth_another_try() {
            return Err(broke.into());
        }
        tell(format!("the stream broke ({broke}); opening it again from {next}"));
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}

fn show(ctx: &Context, event: &v1::Event) -> anyhow::Result<()> {
    let data = data(event);
    if ctx.output.quiet {
        return Ok(print(&format!("{}\n", event.sequence))?);
    }
    let text = match ctx.output.format {
        Format::Json => data.to_string(),
        Format::Yaml => format!("---\n{}", serde_yaml_ng::to_string(&data)?.trim_end()),
        Format::Table | Format::Wide | Format::Dot => line(event, &data["data"], ctx),
    };
    Ok(print(&format!("{text}\n"))?)
}

fn line(event: &v1::Event, payload: &serde_json::Value, ctx: &Context) -> String {
    let name = event.r#type.strip_prefix("footplate.").unwrap_or(&event.r#type);
    let trace = trace_id(event);
    let trace = if trace.is_empty() { "-" } else { trace };
    let id: String =
        if ctx.output.format == Format::Wide { event.aggregate_id.clone() } else { event.aggregate_id.chars().take(14).collect() };
    let head = format!("{:>7}  {}  {name:<28} {id:<14}  {}  trace {trace}", event.sequence, event.time, event.actor);
    let shown = payload.to_string();
    let room = ctx.output.width.filter(|_| ctx.output.format != Format::Wide).map_or(usize::MAX, |width| width.saturating_sub(4).max(40));
    let cut: String = shown.chars().take(room).collect();
    format!("{head}\n    {}", ctx.output.style.faint(&if cut.len() < shown.len() { format!("{cut}…") } else { cut }))
}
