//! `model lineage`: from a version back to the run, its code, config, data and environment, and what was done with it by whom.

use crate::{
    call,
    commands::lineage::{REPLAY, dot, in_order, tree_of},
    context::Context,
    output::{Exit, Format, print},
};
use footplate_api::{json, v1};
use footplate_types::{ModelName, VersionNumber};
use std::collections::BTreeSet;

const EXAMPLES: &str = "\
Examples:
  footplate model lineage digits 3
  footplate model lineage digits 3 -o dot | dot -Tsvg > lineage.svg";

/// Show what a version stands on and what was done with it, rebuilt from the ledger
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the model
    #[arg(value_name = "MODEL", value_parser = ModelName::parse)]
    pub model: ModelName,
    /// Number of the version
    #[arg(value_name = "VERSION", value_parser = VersionNumber::parse)]
    pub version: VersionNumber,
}

/// Prints the lineage: the registry's part and, from the run on, the tracker's.
///
/// # Errors
/// No such version, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let (project, model) = (client.project().to_owned(), args.model.to_string());
    let asked = v1::GetModelLineageRequest { project: project.clone(), model: model.clone(), version: args.version.0 };
    let mut lineage = call!(client, within REPLAY, registry.get_model_lineage(asked))?;
    let runs: Vec<String> = lineage.nodes.iter().filter_map(|node| node.id.strip_prefix("run:")).map(str::to_owned).collect();
    for run_id in runs {
        let asked = v1::GetLineageRequest { project: project.clone(), run_id };
        join(&mut lineage, call!(client, within REPLAY, runs.get_lineage(asked))?);
    }
    in_order(&mut lineage);
    if ctx.output.format == Format::Dot {
        print(&dot(&lineage))?;
        return Ok(Exit::Done);
    }
    let root = format!("version:{model}/{}", args.version);
    let id = format!("models:/{model}/{}", args.version);
    ctx.output.one(&id, &json::to_value(&lineage), &tree_of(&lineage, &root))?;
    Ok(Exit::Done)
}

/// Joins two graphs: what both name is one thing, told by the second, which knows it from its beginning.
fn join(lineage: &mut v1::GetLineageResponse, more: v1::GetLineageResponse) {
    let known: BTreeSet<String> = more.nodes.iter().map(|node| node.id.clone()).collect();
    lineage.nodes.retain(|node| !known.contains(&node.id));
    lineage.nodes.extend(more.nodes);
    let told: BTreeSet<(String, String, String)> =
        lineage.edges.iter().map(|edge| (edge.from.clone(), edge.to.clone(), edge.relation.clone())).collect();
    let fresh = |edge: &v1::LineageEdge| !told.contains(&(edge.from.clone(), edge.to.clone(), edge.relation.clone()));
    lineage.edges.extend(more.edges.into_iter().filter(fresh));
    lineage.view_sequence = lineage.view_sequence.min(more.view_sequence);
}
