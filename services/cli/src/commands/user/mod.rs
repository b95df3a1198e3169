//! Verbs of `user`: principals, people and programs.

pub mod create;
pub mod disable;
pub mod enable;
pub mod list;

use crate::{call, context::Context, output::Exit};
use footplate_api::v1;
use footplate_types::PrincipalId;

/// What is asked about principals that are there.
#[derive(Clone, Copy)]
enum Ask {
    Disable,
    Enable,
}

/// Asks it of each in turn.
async fn ask(ctx: &Context, principals: &[PrincipalId], reason: &str, what: Ask) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    for principal in principals {
        let (id, reason, request_id) = (principal.to_string(), reason.to_owned(), footplate_clock::request_id().to_string());
        let (answer, told) = match what {
            Ask::Disable => {
                let asked = v1::DisablePrincipalRequest { principal: id, reason, request_id };
                (call!(client, principals.disable_principal(asked))?, "shut out")
            }
            Ask::Enable => {
                let asked = v1::EnablePrincipalRequest { principal: id, reason, request_id };
                (call!(client, principals.enable_principal(asked))?, "in again")
            }
        };
        let data = serde_json::json!({"id": principal, "sequence": answer.sequence});
        ctx.output.one(principal.as_str(), &data, &format!("{principal} is {told}\n"))?;
    }
    Ok(Exit::Done)
}
