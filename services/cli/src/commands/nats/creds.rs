//! `nats creds`: credentials of one service or one node.

use super::{OperatorArg, write};
use crate::{
    context::Context,
    output::{Exit, Failure, print, tell},
    platform::Service,
};
use footplate_credentials::{Access, now_seconds};
use footplate_eventlog::jetstream::Permissions;
use footplate_types::{Millis, NodeName};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  footplate nats creds --operator /etc/footplate/operator --service scheduler --out scheduler.creds
  footplate nats creds --operator /etc/footplate/operator --node n17 --expires-in 90d > n17.creds
  footplate nats creds --operator /etc/footplate/operator --service tracker --lets-go --out tracker.creds

Then: footplate serve scheduler --set nats.credentials=scheduler.creds, footplate agent --node n17 --set nats.credentials=n17.creds
No server need be told or running. Who has the file is that service or node: to void it, see `footplate nats revoke`.";

/// Make credentials for a service or a node, with what it may do at the broker
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("who").required(true))]
pub struct Args {
    /// The operator's folder.
    #[command(flatten)]
    pub operator: OperatorArg,
    /// A service: it reads everything and writes what it owns
    #[arg(long, value_name = "NAME", group = "who", value_parser = ["tracker", "scheduler", "executor", "sweep", "gpu-inventory", "registry"])]
    pub service: Option<String>,
    /// A node: its agent speaks and reads for itself alone
    #[arg(long, value_name = "NAME", group = "who", value_parser = NodeName::parse)]
    pub node: Option<NodeName>,
    /// For the tracker where `ledger.keep` is set: it may remove from the ledger what has ended and is archived
    #[arg(long)]
    pub lets_go: bool,
    /// File to write, for its owner's eyes alone; else standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// How long they are good for (default: until revoked)
    #[arg(long, value_name = "DURATION", value_parser = Millis::parse)]
    pub expires_in: Option<Millis>,
}

/// Makes them.
///
/// # Errors
/// An operator's folder that cannot be used, or a file that cannot be written.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let operator = args.operator.open()?;
    let service = args.service.as_deref().and_then(Service::parse).map(Service::name);
    if args.lets_go && service.as_ref().is_none_or(|service| service.as_str() != "tracker") {
        return Err(Failure::usage("--lets-go is for --service tracker alone, which archives the ledger").into());
    }
    let (name, permissions) = match (&service, &args.node) {
        (Some(service), _) if args.lets_go => (service.to_string(), Permissions::of_service(service).letting_go()),
        (Some(service), _) => (service.to_string(), Permissions::of_service(service)),
        (None, Some(node)) => (node.to_string(), Permissions::of_node(node)),
        (None, None) => return Err(Failure::usage("name a --service or a --node").into()),
    };
    let now = now_seconds();
    let expires_at = args.expires_in.map(|length| now.saturating_add((length.0 / 1_000) as i64));
    let creds = operator.platform_user(&name, &Access::new(permissions.publish, permissions.subscribe), now, expires_at);
    match &args.out {
        None => {
            print(&creds.to_text())?;
            tell(format!("credentials of {name}: user {}", creds.public()));
        }
        Some(path) => {
            write(&creds, path)?;
            let shown = path.display().to_string();
            let data = serde_json::json!({ "name": name, "user": creds.public(), "file": shown, "expiresAt": expires_at });
            ctx.output.one(creds.public(), &data, &format!("credentials of {name} in {shown}: user {}\n", creds.public()))?;
        }
    }
    Ok(Exit::Done)
}
