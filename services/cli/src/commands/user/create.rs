//! `user create`.

use crate::{call, context::Context, output::Exit};
use footplate_api::v1;
use footplate_types::PrincipalId;

const EXAMPLES: &str = "\
Examples:
  footplate user create user:ada --name 'Ada L.'
  footplate user create service:vision:ci --name 'the pipeline of vision'";

/// Make a principal, a person or a program; it may nothing until it has a role
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// user:NAME, service:NAME, or service:PROJECT:NAME, which that project's admins look after
    #[arg(value_name = "PRINCIPAL", value_parser = PrincipalId::parse)]
    pub principal: PrincipalId,
    /// What people call it
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub name: String,
}

/// Makes it.
///
/// # Errors
/// A refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let principal = args.principal;
    let request_id = footplate_clock::request_id().to_string();
    let asked = v1::CreatePrincipalRequest { principal: principal.to_string(), name: args.name, request_id };
    let answer = call!(ctx.client()?, principals.create_principal(asked))?;
    let text = format!(
        "{principal} is there; next: footplate project grant PROJECT {principal} member, and footplate token create --for {principal}\n"
    );
    ctx.output.one(principal.as_str(), &serde_json::json!({"id": principal, "sequence": answer.sequence}), &text)?;
    Ok(Exit::Done)
}
