//! `user list`.

use crate::{
    call,
    context::Context,
    output::{Column, Exit, Row},
};
use footplate_api::{
    json,
    v1::{self, Principal},
};

const EXAMPLES: &str = "\
Examples:
  footplate user list";

/// List principals; who is no admin anywhere sees themselves
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {}

/// Prints the list.
///
/// # Errors
/// No answer.
pub async fn run(_: Args, ctx: Context) -> anyhow::Result<Exit> {
    let principals = call!(ctx.client()?, principals.list_principals(v1::ListPrincipalsRequest { at_least: 0 }))?.principals;
    let columns = [Column::whole("PRINCIPAL"), Column::whole("NAME"), Column::whole("EVERYWHERE"), Column::whole("STATE")];
    ctx.output.list(&columns, principals.iter().map(row).collect())?;
    Ok(Exit::Done)
}

fn row(principal: &Principal) -> Row {
    let state = match (principal.disabled, principal.reason.as_str()) {
        (false, _) => "in".to_owned(),
        (true, "") => "disabled".to_owned(),
        (true, reason) => format!("disabled: {reason}"),
    };
    let role = if principal.platform_role.is_empty() { "-" } else { &principal.platform_role };
    let cells = vec![principal.id.clone(), principal.name.clone(), role.to_owned(), state];
    Row { id: principal.id.clone(), cells, data: json::to_value(principal) }
}
