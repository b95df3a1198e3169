//! `token list`.

use crate::{
    call,
    context::Context,
    output::{Column, Exit, Row},
};
use footplate_api::{
    json,
    v1::{self, Token},
};
use footplate_types::PrincipalId;

const EXAMPLES: &str = "\
Examples:
  footplate token list
  footplate token list --for service:vision:ci --all";

/// List your tokens, and those of whomever you may make tokens for
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only those of this principal
    #[arg(long = "for", value_name = "PRINCIPAL", value_parser = PrincipalId::parse)]
    pub principal: Option<PrincipalId>,
    /// Those that are revoked or over as well
    #[arg(long)]
    pub all: bool,
}

/// Prints the list.
///
/// # Errors
/// No answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let principal = args.principal.map(|principal| principal.to_string()).unwrap_or_default();
    let tokens = call!(ctx.client()?, tokens.list_tokens(v1::ListTokensRequest { principal, all: args.all, at_least: 0 }))?.tokens;
    let columns = [
        Column::whole("TOKEN"),
        Column::whole("PRINCIPAL"),
        Column::whole("PROJECT"),
        Column::whole("ROLE"),
        Column::whole("ENDS"),
        Column::whole("STATE"),
        Column::whole("LABEL"),
    ];
    ctx.output.list(&columns, tokens.iter().map(row).collect())?;
    Ok(Exit::Done)
}

fn row(token: &Token) -> Row {
    let or = |text: &str, other: &str| if text.is_empty() { other.to_owned() } else { text.to_owned() };
    let state = if token.revoked_at.is_empty() { "good".to_owned() } else { format!("revoked by {}", token.revoked_by) };
    let cells = vec![
        token.id[..8.min(token.id.len())].to_owned(),
        token.principal.clone(),
        or(&token.project, "all"),
        or(&token.role, "its principal's"),
        or(&token.expires_at, "never"),
        state,
        token.label.clone(),
    ];
    Row { id: token.id.clone(), cells, data: json::to_value(token) }
}
