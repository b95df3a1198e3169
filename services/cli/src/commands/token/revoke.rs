//! `token revoke`.

use crate::{call, context::Context, output::Exit};
use footplate_api::v1;

const EXAMPLES: &str = "\
Examples:
  footplate token revoke 0190f3a2 --reason 'it stood in a log'";

/// Take tokens back: what is open under them ends at once
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Ids of tokens, or unique prefixes of them
    #[arg(required = true, value_name = "TOKEN")]
    pub tokens: Vec<String>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// Revokes each in turn.
///
/// # Errors
/// No such token, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    for id in &args.tokens {
        let request_id = footplate_clock::request_id().to_string();
        let asked = v1::RevokeTokenRequest { id: id.clone(), reason: args.reason.clone(), request_id };
        let answer = call!(client, tokens.revoke_token(asked))?;
        let data = serde_json::json!({"id": id, "sequence": answer.sequence});
        ctx.output.one(id, &data, &format!("{id} revoked\n"))?;
    }
    Ok(Exit::Done)
}
