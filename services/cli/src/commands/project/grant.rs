//! `project grant`.

use crate::{call, context::Context, output::Exit};
use footplate_api::v1;
use footplate_types::{PrincipalId, ProjectName, Role};

const EXAMPLES: &str = "\
Examples:
  footplate project grant vision user:ada approver
  footplate project grant _ user:root admin";

/// Give someone a role in a project, in place of the one they have; in `_` it holds everywhere
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The project
    #[arg(value_name = "PROJECT", value_parser = ProjectName::parse)]
    pub place: ProjectName,
    /// Who: user:NAME, service:NAME or service:PROJECT:NAME
    #[arg(value_name = "PRINCIPAL", value_parser = PrincipalId::parse)]
    pub principal: PrincipalId,
    /// viewer, member, approver or admin
    #[arg(value_name = "ROLE", value_parser = Role::parse)]
    pub role: Role,
}

/// Gives it.
///
/// # Errors
/// A refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let Args { place: project, principal, role } = args;
    let request_id = footplate_clock::request_id().to_string();
    let asked = v1::GiveRoleRequest { project: project.to_string(), principal: principal.to_string(), role: role.to_string(), request_id };
    let answer = call!(ctx.client()?, projects.give_role(asked))?;
    let data = serde_json::json!({"project": project, "principal": principal, "role": role, "sequence": answer.sequence});
    ctx.output.one(principal.as_str(), &data, &format!("{principal} is {role} in {project}\n"))?;
    Ok(Exit::Done)
}
