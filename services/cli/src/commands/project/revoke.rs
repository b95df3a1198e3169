//! `project revoke`.

use crate::{call, context::Context, output::Exit};
use footplate_api::v1;
use footplate_types::{PrincipalId, ProjectName};

const EXAMPLES: &str = "\
Examples:
  footplate project revoke vision user:ada";

/// Take someone's role in a project
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The project
    #[arg(value_name = "PROJECT", value_parser = ProjectName::parse)]
    pub place: ProjectName,
    /// Who
    #[arg(value_name = "PRINCIPAL", value_parser = PrincipalId::parse)]
    pub principal: PrincipalId,
}

/// Takes it.
///
/// # Errors
/// A refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let Args { place: project, principal } = args;
    let request_id = footplate_clock::request_id().to_string();
    let asked = v1::TakeRoleRequest { project: project.to_string(), principal: principal.to_string(), request_id };
    let answer = call!(ctx.client()?, projects.take_role(asked))?;
    let data = serde_json::json!({"project": project, "principal": principal, "sequence": answer.sequence});
    ctx.output.one(principal.as_str(), &data, &format!("{principal} has no role in {project} any more\n"))?;
    Ok(Exit::Done)
}
