//! `whoami`: whom the token stands for.

use crate::{call, context::Context, output::Exit};
use footplate_api::{json, v1};

const EXAMPLES: &str = "\
Examples:
  footplate whoami
  footplate whoami -o json | jq -r .principal";

/// Say whom your token stands for, and what it may
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {}

/// Prints it.
///
/// # Errors
/// A token that is not taken, or no answer.
pub async fn run(_: Args, ctx: Context) -> anyhow::Result<Exit> {
    let who = call!(ctx.client()?, principals.who_am_i(v1::WhoAmIRequest {}))?;
    ctx.output.one(&who.principal, &json::to_value(&who), &text(&ctx.addr, &who))?;
    Ok(Exit::Done)
}

/// What a person reads.
pub(super) fn text(addr: &str, who: &v1::WhoAmIResponse) -> String {
    let mut text = format!("{} at {addr}\n", who.principal);
    if !who.platform_role.is_empty() {
        text.push_str(&format!("  everywhere  {}\n", who.platform_role));
    }
    for role in &who.roles {
        text.push_str(&format!("  {}  {}\n", role.project, role.role));
    }
    if who.platform_role.is_empty() && who.roles.is_empty() {
        text.push_str("  no role in any project; ask an admin of one: footplate project grant PROJECT PRINCIPAL ROLE\n");
    }
    for (what, limit) in [("good for project", &who.only_project), ("at most", &who.most_role), ("ends", &who.expires_at)] {
        if !limit.is_empty() {
            text.push_str(&format!("  this token: {what} {limit}\n"));
        }
    }
    text
}
