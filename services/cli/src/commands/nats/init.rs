//! `nats init`: the keys of a deployment's broker, and what its servers have to be told.

use super::of_folder;
use crate::{
    context::Context,
    output::{Exit, Failure},
};
use footplate_credentials::{Operator, ServerConfig, now_seconds};
use std::path::PathBuf;

/// The file with what servers have to be told, beside the keys.
const CONFIG: &str = "nats-accounts.conf";

const EXAMPLES: &str = "\
Examples:
  footplate nats init /etc/footplate/operator
  footplate nats init ./operator --accounts-dir /data/accounts

Then, in the configuration of each nats-server of the cluster:
  include \"nats-accounts.conf\"
  jetstream { store_dir: /data, sync_interval: always }

The folder is what everybody's credentials hang on: keep a copy, and let nobody read it. Servers need the .conf file alone.
Run again, it keeps the keys and writes the .conf file anew, with whoever was revoked since.";

/// Make the keys of a broker's operator, and the part of a nats-server's configuration that says who may connect
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Folder to make
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Folder of the server, on its own disk, for what it is told of accounts
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nats/accounts")]
    pub accounts_dir: PathBuf,
}

/// Makes the folder, or takes the one that is there, and writes the configuration.
///
/// # Errors
/// A folder that is not whole, or cannot be read or written.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let operator = Operator::open_or_create(&args.folder).map_err(of_folder)?;
    let config = ServerConfig::new(&operator, &args.accounts_dir, now_seconds()).map_err(of_folder)?;
    let file = args.folder.join(CONFIG);
    std::fs::write(&file, config.as_str())
        .map_err(|error| Failure::new(Exit::Failed, format!("{} cannot be written: {error}", file.display())))?;
    let shown = file.display().to_string();
    let data = serde_json::json!({
        "operator": args.folder.display().to_string(), "config": shown, "account": operator.platform_account(),
        "systemAccount": operator.system_account(),
    });
    let text = format!(
        "keys in {}; include {shown} in the configuration of every nats-server\nnext: footplate nats creds --operator {} --service tracker \
         --out tracker.creds\n",
        args.folder.display(),
        args.folder.display(),
    );
    ctx.output.one(&shown, &data, &text)?;
    Ok(Exit::Done)
}
