//! `project create`.

use crate::{call, context::Context, output::Exit};
use footplate_api::v1;
use footplate_types::ProjectName;

const EXAMPLES: &str = "\
Examples:
  footplate project create vision --description 'reads handwriting'";

/// Make a project; whoever makes it is its first admin
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Its name: a-z, 0-9 and -
    #[arg(value_name = "NAME", value_parser = ProjectName::parse)]
    pub name: ProjectName,
    /// What it is for
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub description: String,
}

/// Makes it.
///
/// # Errors
/// A refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let name = args.name.to_string();
    let request_id = footplate_clock::request_id().to_string();
    let asked = v1::CreateProjectRequest { project: name.clone(), description: args.description, request_id };
    let answer = call!(ctx.client()?, projects.create_project(asked))?;
    let text = format!("{name} is there; give others a role: footplate project grant {name} user:NAME member\n");
    ctx.output.one(&name, &serde_json::json!({"name": name, "sequence": answer.sequence}), &text)?;
    Ok(Exit::Done)
}
