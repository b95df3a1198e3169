//! `nats streams`: makes the platform's streams, or brings them in line.

use super::{OperatorArg, write};
use crate::{
    args::ServiceArgs,
    context::Context,
    output::{Column, Exit, Failure, Row},
    platform::{self, broker, knobs},
};
use footplate_credentials::{Access, now_seconds};
use footplate_eventlog::StreamName;
use footplate_eventlog::jetstream::{JetStreamBroker, Permissions};

/// How long the credentials of this one command are good for.
const GOOD_FOR_SECONDS: i64 = 300;

const EXAMPLES: &str = "\
Examples:
  footplate nats streams --operator /etc/footplate/operator --nats nats://broker:4222
  footplate nats streams --operator /etc/footplate/operator --nats nats://a:4222 --set nats.replicas=3 --set nats.disk=200GiB

With credentials of its own a service makes a stream that is missing, and changes none. Run this when `nats.disk` or `nats.replicas` has
changed, or a newer Footplate wants its streams otherwise.";

/// Make the platform's streams, or bring them in line with the settings
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The operator's folder.
    #[command(flatten)]
    pub operator: OperatorArg,
    /// Settings.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Brings them in line.
///
/// # Errors
/// Settings or a folder that cannot be used, or a broker that does not do it.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let config = platform::load(&args.service, &[]).map_err(|error| Failure::usage(error.to_string()))?;
    let operator = args.operator.open()?;
    let permissions = Permissions::of_streams();
    let now = now_seconds();
    let access = Access::new(permissions.publish, permissions.subscribe);
    let creds = operator.platform_user("streams", &access, now, Some(now + GOOD_FOR_SECONDS));
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("streams.creds");
    write(&creds, &file)?;
    let mut jetstream =
        broker::jetstream(&config, None, "footplate nats streams", true).map_err(|error| Failure::usage(error.to_string()))?;
    broker::with_file(&mut jetstream, &file);
    let bytes = jetstream.bytes;
    JetStreamBroker::connect(jetstream).await.map_err(|error| Failure::new(Exit::Unavailable, error.to_string()))?;
    let rows = StreamName::ALL.into_iter().map(|stream| Row {
        id: stream.as_str().to_owned(),
        cells: vec![stream.as_str().to_owned(), footplate_types::ByteSize(bytes.of(stream)).to_string()],
        data: serde_json::json!({ "stream": stream.as_str(), "maxBytes": bytes.of(stream), "replicas": config.get(&knobs::NATS_REPLICAS) }),
    });
    ctx.output.list(&[Column::whole("STREAM"), Column::whole("AT MOST")], rows.collect())?;
    Ok(Exit::Done)
}
