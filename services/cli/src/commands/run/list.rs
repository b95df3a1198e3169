//! `run list`: runs by a filter.

use crate::{
    call,
    context::Context,
    output::{Column, Exit, Row, tell},
    view,
};
use footplate_api::{Client, json, types::Run, v1};
use std::collections::BTreeSet;

/// The most runs of one page.
const PAGE: u32 = 500;

const EXAMPLES: &str = "\
Examples:
  footplate run list
  footplate run list --filter 'state = running and params.lr < 0.1' --order-by 'metrics.`val/acc` desc'
  footplate run list -q --filter 'tags.team = vision' | xargs footplate run compare";

/// List runs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only runs that this holds for, such as: state = failed and duration > 1h; a state is any that the list shows
    #[arg(long, value_name = "FILTER", default_value = "", hide_default_value = true)]
    pub filter: String,
    /// Sorted by this, such as: metrics.`val/acc` desc, created_at (default: newest first)
    #[arg(long, value_name = "KEYS", default_value = "", hide_default_value = true)]
    pub order_by: String,
    /// Only runs of this experiment
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub experiment: String,
    /// Show a column with a metric; may be given many times
    #[arg(long = "metric", value_name = "NAME")]
    pub metrics: Vec<String>,
    /// At most this many
    #[arg(short = 'n', long, default_value_t = 50, value_name = "COUNT")]
    pub limit: u32,
}

/// Prints the list.
///
/// # Errors
/// No answer, or a filter that cannot be understood.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let runs = fetch(&client, &args).await?;
    let letters = view::id_letters(runs.iter().map(|run| run.run_id.as_str()));
    let now = footplate_clock::now();
    let mut columns = vec![
        Column::whole("RUN"),
        Column::cut("NAME"),
        Column::cut("EXPERIMENT"),
        Column::whole("STATE"),
        Column::whole("AGE"),
        Column::whole("DURATION"),
        Column::cut("REASON"),
        Column::cut("NODES").wide(),
        Column::cut("BY").wide(),
        Column::whole("QUEUE").wide(),
        Column::whole("ATTEMPTS").wide(),
        Column::whole("POINTS").wide(),
        Column::whole("COMMIT").wide(),
    ];
    columns.extend(args.metrics.iter().map(|_| Column::whole("METRIC")));
    let rows = runs.iter().map(|run| row(run, letters, now, &args.metrics)).collect();
    ctx.output.list(&columns, rows)?;
    Ok(Exit::Done)
}

async fn fetch(client: &Client, args: &Args) -> anyhow::Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    let mut told = BTreeSet::new();
    let mut page_token = String::new();
    while runs.len() < args.limit as usize {
        let asked = v1::ListRunsRequest {
            project: client.project().to_owned(),
            filter: args.filter.clone(),
            order_by: args.order_by.clone(),
            page_size: (args.limit - runs.len() as u32).min(PAGE),
            page_token,
            experiment: args.experiment.clone(),
            at_least: 0,
        };
        let page = call!(client, runs.list_runs(asked))?;
        for note in page.notes.into_iter().filter(|note| told.insert(note.clone())) {
            tell(format!("note: {note}"));
        }
        runs.extend(page.runs);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    Ok(runs)
}

/// The nodes of its newest attempt.
fn nodes(run: &Run) -> String {
    let members = run.attempts.last().map(|attempt| attempt.members.iter().map(|member| member.node.as_str()).collect::<Vec<_>>());
    members.unwrap_or_default().join(", ")
}

fn row(run: &Run, letters: usize, now: footplate_types::Timestamp, metrics: &[String]) -> Row {
    let mut cells = vec![
        view::short(&run.run_id, letters),
        run.name.clone(),
        run.experiment.clone(),
        view::standing(run).to_owned(),
        view::since(&run.created_at, now),
        view::lasted(run.duration_ms),
        view::reason(run),
        nodes(run),
        run.created_by.clone(),
        run.queue.clone(),
        run.attempts.len().to_string(),
        run.points.to_string(),
        view::short(&run.source_commit, 12),
    ];
    cells.extend(metrics.iter().map(|name| {
        let latest = run.latest.iter().find(|value| value.name == *name && value.rank == 0);
        latest.map_or_else(|| "-".to_owned(), |value| format!("{name}={}", view::number(value.value)))
    }));
    Row { id: run.run_id.clone(), cells, data: json::to_value(run) }
}
