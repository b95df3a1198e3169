//! `sweep list`: sweeps, newest first.

use super::{tally, value};
use crate::{
    call,
    context::Context,
    output::{Column, Exit, Row},
    view,
};
use footplate_api::{json, v1};

const EXAMPLES: &str = "\
Examples:
  footplate sweep list
  footplate sweep list -o json";

/// List sweeps.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// At most this many, the newest
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub limit: u32,
}

/// Prints the list.
///
/// # Errors
/// No answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let asked = v1::ListSweepsRequest { project: client.project().to_owned(), page_size: args.limit, ..v1::ListSweepsRequest::default() };
    let sweeps = call!(client, sweeps.list_sweeps(asked))?.sweeps;
    let letters = view::id_letters(sweeps.iter().map(|sweep| sweep.sweep_id.as_str()));
    let columns = [Column::whole("SWEEP"), Column::cut("NAME"), Column::whole("STATE"), Column::whole("BEST"), Column::cut("TRIALS")];
    let row = |sweep: &v1::Sweep| {
        let cells = vec![
            view::short(&sweep.sweep_id, letters),
            sweep.name.clone(),
            sweep.state.clone(),
            sweep.best.as_ref().map(value).unwrap_or_default(),
            tally(sweep),
        ];
        Row { id: sweep.sweep_id.clone(), cells, data: json::to_value(sweep) }
    };
    ctx.output.list(&columns, sweeps.iter().map(row).collect())?;
    Ok(Exit::Done)
}
