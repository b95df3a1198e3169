//! `nats revoke`: voids what somebody holds, and ends their connections.

use super::{OperatorArg, of_folder, of_resolver};
use crate::{
    context::Context,
    output::{Exit, Failure},
};
use footplate_credentials::{Resolver, Revocation, now_seconds, user_of};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  footplate nats revoke --operator /etc/footplate/operator --nats nats://broker:4222 --creds n17.creds
  footplate nats revoke --operator ./operator --nats nats://b:4222 --user UBCXCMGAZQZN55X5TTTWMB5CZNZIKJHEDZJOJ3TV63NKPJ6FRXSR2ZO4

It is written down before the server is told: after a failure run it again. New credentials of the same name are good.";

/// Void the credentials of a service or a node, and end its connections
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("whose").required(true))]
pub struct Args {
    /// The operator's folder.
    #[command(flatten)]
    pub operator: OperatorArg,
    /// Address of the broker
    #[arg(long, env = "FOOTPLATE_NATS", value_name = "URL", hide_env_values = true)]
    pub nats: String,
    /// The credentials file
    #[arg(long, value_name = "FILE", group = "whose")]
    pub creds: Option<PathBuf>,
    /// The user's public key, as `nats creds` told it
    #[arg(long, value_name = "KEY", group = "whose")]
    pub user: Option<String>,
}

/// Writes it down, and tells the server.
///
/// # Errors
/// A key that is none, a folder that cannot be written, a server that cannot be told.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let operator = args.operator.open()?;
    let account = operator.platform_account().to_owned();
    let user = match (&args.creds, args.user) {
        (Some(path), _) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::new(Exit::NotFound, format!("{} cannot be read: {error}", path.display())))?;
            let known = user_of(&text).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
            if known.account != account {
                return Err(Failure::new(Exit::Refused, format!("{} is of another account than this operator's", path.display())).into());
            }
            known.user
        }
        (None, Some(user)) => user,
        (None, None) => return Err(Failure::usage("name --creds or --user").into()),
    };
    let revocation = Revocation { account, user: user.clone(), at: now_seconds() };
    operator.revoke(&revocation).map_err(of_folder)?;
    let token = operator.platform_token(now_seconds()).map_err(of_folder)?;
    let resolver = Resolver::connect(&args.nats, &operator, now_seconds()).await.map_err(of_resolver)?;
    resolver.push(&token).await.map_err(of_resolver)?;
    ctx.output.one(&user, &serde_json::json!({ "user": user, "revoked": true }), &format!("{user} is revoked\n"))?;
    Ok(Exit::Done)
}
