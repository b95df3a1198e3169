//! `user enable`.

use crate::{call, context::Context, output::Exit};
use footplate_api::v1;
use footplate_types::PrincipalId;

const EXAMPLES: &str = "\
Examples:
  footplate user enable user:ada --reason 'came back'";

/// Let principals in again
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Who
    #[arg(required = true, value_name = "PRINCIPAL", value_parser = PrincipalId::parse)]
    pub principals: Vec<PrincipalId>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// Asks for each in turn.
///
/// # Errors
/// No such principal, a refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    for principal in &args.principals {
        let request_id = footplate_clock::request_id().to_string();
        let asked = v1::EnablePrincipalRequest { principal: principal.to_string(), reason: args.reason.clone(), request_id };
        let answer = call!(client, principals.enable_principal(asked))?;
        let data = serde_json::json!({"id": principal, "sequence": answer.sequence});
        ctx.output.one(principal.as_str(), &data, &format!("{principal} is in again\n"))?;
    }
    Ok(Exit::Done)
}
