//! `project show`: who has which role.

use crate::{
    call,
    context::Context,
    output::{Exit, Failure},
};
use footplate_api::{json, v1};
use footplate_types::ProjectName;

const EXAMPLES: &str = "\
Examples:
  footplate project show vision
  footplate project show _";

/// Show a project and the roles in it; `_` is the platform's own, whose roles hold everywhere
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Its name
    #[arg(value_name = "NAME", value_parser = ProjectName::parse)]
    pub name: ProjectName,
}

/// Prints it.
///
/// # Errors
/// No such project, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let asked = v1::GetProjectRequest { project: args.name.to_string(), at_least: 0 };
    let project = call!(ctx.client()?, projects.get_project(asked))?.project;
    let project = project.ok_or_else(|| Failure::not_found(format!("no project {}", args.name)))?;
    let mut text = format!("project      {}\n", project.name);
    if !project.description.is_empty() {
        text.push_str(&format!("description  {}\n", project.description));
    }
    if !project.created_at.is_empty() {
        text.push_str(&format!("made         {} by {}\n", project.created_at, project.created_by));
    }
    let width = project.roles.iter().map(|role| role.principal.len()).max().unwrap_or(0);
    for role in &project.roles {
        let everywhere = if role.everywhere { "  (everywhere)" } else { "" };
        text.push_str(&format!("  {:<width$}  {}{everywhere}\n", role.principal, role.role));
    }
    ctx.output.one(&project.name, &json::to_value(&project), &text)?;
    Ok(Exit::Done)
}
