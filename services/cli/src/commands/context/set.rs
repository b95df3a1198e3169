//! `context set`.

use crate::{
    context::{Context, ContextFile},
    output::{Exit, Failure},
};
use footplate_types::ProjectName;

const EXAMPLES: &str = "\
Examples:
  footplate context set lab --default-project vision
  footplate context set local --default-project default";

/// Change the project of a context
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Its name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The project to work in where none is named
    #[arg(long, value_name = "PROJECT", value_parser = ProjectName::parse)]
    pub default_project: ProjectName,
}

/// Writes it down.
///
/// # Errors
/// No such context, or a file that cannot be written.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let path = super::file()?;
    let mut file = ContextFile::read(&path)?;
    let known = file.choose(Some(&args.name))?;
    let project = args.default_project.to_string();
    let changed = crate::context::NamedContext { project: Some(project.clone()), ..known };
    file.contexts.insert(args.name.clone(), changed).ok_or_else(|| Failure::not_found(format!("no context called {:?}", args.name)))?;
    file.write(&path)?;
    ctx.output.one(
        &args.name,
        &serde_json::json!({"name": args.name, "project": project}),
        &format!("{} works in {project}\n", args.name),
    )?;
    Ok(Exit::Done)
}
