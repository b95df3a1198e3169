//! `project list`.

use crate::{
    call,
    context::Context,
    output::{Column, Exit, Row},
};
use footplate_api::{
    json,
    v1::{self, Project},
};

const EXAMPLES: &str = "\
Examples:
  footplate project list";

/// List the projects in which you have a role
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {}

/// Prints the list.
///
/// # Errors
/// No answer.
pub async fn run(_: Args, ctx: Context) -> anyhow::Result<Exit> {
    let projects = call!(ctx.client()?, projects.list_projects(v1::ListProjectsRequest { at_least: 0 }))?.projects;
    let columns = [Column::whole("PROJECT"), Column::whole("YOUR ROLE"), Column::whole("SINCE"), Column::whole("DESCRIPTION")];
    ctx.output.list(&columns, projects.iter().map(row).collect())?;
    Ok(Exit::Done)
}

fn row(project: &Project) -> Row {
    let description =
        if project.name == "_" { "the platform's own: roles here hold everywhere".to_owned() } else { project.description.clone() };
    let since = project.created_at.get(..10).unwrap_or("-").to_owned();
    let cells = vec![project.name.clone(), project.role.clone(), since, description];
    Row { id: project.name.clone(), cells, data: json::to_value(project) }
}
