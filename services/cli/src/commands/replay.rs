//! `replay --verify`: every service rebuilds its ledger-derived views in a shadow copy, up to one stated sequence, and compares.

use crate::{
    call,
    context::Context,
    output::{Column, Exit, Row, length, tell},
};
use footplate_api::{
    Client, json,
    v1::{self, ViewDigest},
};
use std::time::Duration;

/// How long a rebuild may take.
const REBUILD: Duration = Duration::from_secs(1_800);

const EXAMPLES: &str = "\
Examples:
  footplate replay --verify
  footplate replay --verify -o json | jq '.[] | select(.equal | not)'

Exit codes: 0 every view is equal to its rebuild, 1 one is not.";

/// Rebuild views from the ledger
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Rebuild every view in a shadow copy at one sequence, and compare
    #[arg(long, required = true)]
    pub verify: bool,
}

/// Verifies, and prints one row a view.
///
/// # Errors
/// No answer of a service.
pub async fn run(_: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let mut progress = ctx.progress();
    progress.step("rebuilding every view from the ledger");
    let views = verify(&client).await?;
    progress.clear();
    let columns = [
        Column::whole("SERVICE"),
        Column::whole("VIEW"),
        Column::whole("SEQUENCE"),
        Column::whole("EVENTS"),
        Column::whole("TOOK"),
        Column::whole("EQUAL"),
        Column::cut("DIFFERENCE"),
        Column::cut("DIGEST").wide(),
    ];
    ctx.output.list(&columns, views.iter().map(row).collect())?;
    let unequal = views.iter().filter(|view| !view.equal).count();
    if unequal > 0 {
        tell(format!("{unequal} of {} views differ from what the ledger says", views.len()));
        return Ok(Exit::Failed);
    }
    Ok(Exit::Done)
}

/// Asks every service at one sequence: the ledger's end as it stands now.
async fn verify(client: &Client) -> anyhow::Result<Vec<ViewDigest>> {
    let asked = v1::ListEventsRequest { page_size: 1, newest_first: true, ..v1::ListEventsRequest::default() };
    let at_least = call!(client, events.list_events(asked))?.end_sequence;
    let asked = v1::VerifyViewsRequest { at_least };
    let (tracker, scheduler, executor, sweep, inventory, registry) = tokio::join!(
        async { call!(client, within REBUILD, tracker_views.verify_views(asked)) },
        async { call!(client, within REBUILD, scheduler_views.verify_views(asked)) },
        async { call!(client, within REBUILD, executor_views.verify_views(asked)) },
        async { call!(client, within REBUILD, sweep_views.verify_views(asked)) },
        async { call!(client, within REBUILD, inventory_views.verify_views(asked)) },
        async { call!(client, within REBUILD, registry_views.verify_views(asked)) },
    );
    let answers = [tracker?, scheduler?, executor?, sweep?, inventory?, registry?];
    let mut views: Vec<ViewDigest> = answers.into_iter().flat_map(|answer| answer.views).collect();
    views.sort_by(|one, other| (&one.service, &one.view).cmp(&(&other.service, &other.view)));
    Ok(views)
}

fn row(view: &ViewDigest) -> Row {
    let took = if view.rebuild_ms < 1_000 { format!("{}ms", view.rebuild_ms) } else { length(view.rebuild_ms / 1_000) };
    let cells = vec![
        view.service.clone(),
        view.view.clone(),
        view.sequence.to_string(),
        view.events.to_string(),
        took,
        if view.equal { "yes" } else { "NO" }.to_owned(),
        view.difference.clone(),
        view.living.clone(),
    ];
    Row { id: format!("{}/{}", view.service, view.view), cells, data: json::to_value(view) }
}
