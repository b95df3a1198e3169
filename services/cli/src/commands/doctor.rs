//! `doctor`: looks whether everything that the platform needs is there and set as it should be, and says what to do where it is not.

use crate::{
    args::ServiceArgs,
    call,
    context::Context,
    output::{Column, Exit, Failure, Row},
    platform::{self, broker, data, knobs, nats_server, objects},
};
use footplate_api::{ApiError, Client, v1};
use footplate_blobs::{BlobError, Blobs};
use footplate_eventlog::jetstream::{JetStreamBroker, Probe, SyncProbe};
use footplate_series::{
    SeriesError,
    scylla::{Address, Scylla},
};
use footplate_service::config::Config;
use std::path::{Path, PathBuf};

/// Free disk below which a data folder is not fit.
const DISK_LEAST_BYTES: u64 = 1 << 30;

const EXAMPLES: &str = "\
Examples:
  footplate doctor
  footplate doctor --nats nats://broker:4222 -o json

Exit codes: 0 nothing to mend, 1 something is not as it must be.";

/// Look whether everything that the platform needs is there and set as it should be
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Settings.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// One thing that was looked at.
struct Finding {
    what: &'static str,
    verdict: Verdict,
    found: String,
    next: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    /// Works, and may not for long.
    Odd,
    Bad,
    /// Could not be looked at.
    Unknown,
}

impl Verdict {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Odd => "odd",
            Self::Bad => "BAD",
            Self::Unknown => "unknown",
        }
    }
}

impl Finding {
    fn new(what: &'static str, verdict: Verdict, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self { what, verdict, found: found.into(), next: next.into() }
    }

    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self::new(what, Verdict::Good, found, "")
    }
}

/// Looks at everything, and prints one row for each thing.
///
/// # Errors
/// Settings that cannot be used.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let config = platform::load(&args.service, &[]).map_err(|error| Failure::usage(error.to_string()))?;
    let folder = match &ctx.data {
        Some(known) if config.get(&knobs::DATA).is_empty() => PathBuf::from(known),
        _ => knobs::data_folder(&config).map_err(|error| Failure::usage(error.to_string()))?,
    };
    let mut findings = Vec::new();
    findings.extend(look_at_platform(&ctx).await);
    findings.push(look_at_program(&config, &folder));
    findings.extend(look_at_broker(&config, &folder).await);
    findings.push(look_at_series(&config).await);
    findings.push(look_at_objects(&config, &folder).await);
    findings.push(look_at_disk(&folder));
    let columns = [Column::whole("CHECK"), Column::whole("STATE"), Column::cut("FOUND"), Column::cut("WHAT TO DO")];
    let rows = findings.iter().map(|finding| Row {
        id: finding.what.to_owned(),
        cells: vec![
            finding.what.to_owned(),
            finding.verdict.as_str().to_owned(),
            cut(&finding.found, CELL_CHARACTERS),
            finding.next.clone(),
        ],
        data: serde_json::json!({
            "check": finding.what, "state": finding.verdict.as_str().to_lowercase(), "found": finding.found, "next": finding.next,
        }),
    });
    ctx.output.list(&columns, rows.collect())?;
    Ok(if findings.iter().any(|finding| finding.verdict == Verdict::Bad) { Exit::Failed } else { Exit::Done })
}

async fn look_at_platform(ctx: &Context) -> Vec<Finding> {
    let client = match ctx.client() {
        Ok(client) => client,
        Err(error) => return vec![Finding::new("address", Verdict::Bad, error.to_string(), "set FOOTPLATE_ADDR, or start `footplate up`")],
    };
    let mut findings = vec![look_at_nodes(&client).await];
    if findings[0].verdict == Verdict::Bad {
        return findings;
    }
    let project = client.project().to_owned();
    let runs = v1::ListRunsRequest { project: project.clone(), page_size: 1, ..v1::ListRunsRequest::default() };
    findings.push(answered("tracker", call!(client, runs.list_runs(runs)).map(|_| ())));
    findings.push(answered("scheduler", call!(client, queues.list_queues(v1::ListQueuesRequest::default())).map(|_| ())));
    // A run that is not there is an answer, too.
    let nobody = v1::ListAttemptsRequest { project, run_id: "0".repeat(32), at_least: 0 };
    let attempts = call!(client, attempts.list_attempts(nobody)).map(|_| ());
    findings.push(answered("executor", attempts.or_else(|error| if error.exit() == Exit::NotFound { Ok(()) } else { Err(error) })));
    findings
}

fn answered(what: &'static str, answer: Result<(), ApiError>) -> Finding {
    match answer {
        Ok(()) => Finding::good(what, "answers"),
        Err(error) => Finding::new(what, Verdict::Bad, error.to_string(), error.advice.unwrap_or_default()),
    }
}

async fn look_at_nodes(client: &Client) -> Finding {
    let what = "platform";
    match call!(client, nodes.list_nodes(v1::ListNodesRequest::default())) {
        Ok(answer) => {
            let ready = answer.nodes.iter().filter(|node| node.state == "ready").count();
            let others: Vec<String> =
                answer.nodes.iter().filter(|node| node.state != "ready").map(|node| format!("{} {}", node.name, node.state)).collect();
            let found = format!("answers at {}; {ready} of {} nodes ready", client.target().address, answer.nodes.len());
            if ready == 0 {
                return Finding::new(what, Verdict::Odd, found, "no job can start: run `footplate agent` on a node");
            }
            if others.is_empty() {
                return Finding::good(what, found);
            }
            Finding::new(what, Verdict::Odd, format!("{found} ({})", others.join(", ")), "see `footplate node list`")
        }
        Err(error) => Finding::new(what, Verdict::Bad, error.to_string(), error.advice.unwrap_or_default()),
    }
}

/// The program of the `up` that runs over the data folder, whatever this shell's settings name; else the one that the next `up` would start.
fn look_at_program(config: &Config, folder: &Path) -> Finding {
    let named = config.get(&knobs::NATS_PROGRAM);
    let named = (!named.is_empty()).then(|| PathBuf::from(&named));
    let running = data::is_held(folder).then(|| nats_server::started(folder)).flatten();
    let (program, whose) = match running {
        Some(program) => (Some(program), ", which `up` runs here"),
        None => (named, ""),
    };
    let found = nats_server::find(program.as_deref(), folder).and_then(|program| Ok((nats_server::version(&program)?, program)));
    match found {
        Ok((version, program)) => Finding::good("nats-server", format!("{version} at {}{whose}", program.display())),
        Err(error) if config.get(&knobs::NATS_URL).is_empty() => {
            Finding::new("nats-server", Verdict::Odd, error.to_string(), "needed by `footplate up` alone")
        }
        Err(_) => Finding::good("nats-server", "none here, and none is needed: the broker is named"),
    }
}

async fn look_at_broker(config: &Config, folder: &Path) -> Vec<Finding> {
    let what = "broker";
    let jetstream = match broker::jetstream(config, None, "footplate doctor", false) {
        Ok(jetstream) => jetstream,
        Err(_) => match own_broker(config, folder) {
            Some(own) => own,
            None => {
                let next = "name it with --nats, or give the data folder of `footplate up` with --data";
                return vec![Finding::new(what, Verdict::Unknown, "no broker is named, and there is none in the data folder", next)];
            }
        },
    };
    let connected = match JetStreamBroker::connect(jetstream).await {
        Ok(connected) => connected,
        Err(error) => return vec![Finding::new(what, Verdict::Bad, error.to_string(), "start it, or mend its address and credentials")],
    };
    match connected.probe().await {
        Ok(probe) => probed(&probe),
        Err(error) => vec![Finding::new(what, Verdict::Bad, error.to_string(), "see the broker's log")],
    }
}

/// The broker that `up` has started over this data folder, by the file it was started with.
fn own_broker(config: &Config, folder: &Path) -> Option<footplate_eventlog::jetstream::JetStreamConfig> {
    let text = std::fs::read_to_string(folder.join("nats/nats.conf")).ok()?;
    let quoted_after = |key: &str| text.split_once(key)?.1.split('"').nth(1).map(str::to_owned);
    let mut own =
        footplate_eventlog::jetstream::JetStreamConfig::single(format!("nats://{}", quoted_after("listen:")?), "footplate doctor");
    broker::with_file(&mut own, &nats_server::credentials(folder));
    own.monitor = quoted_after("http:");
    own.manage_streams = false;
    own.bytes = footplate_eventlog::jetstream::StreamBytes::of_disk(config.get(&knobs::NATS_DISK).0);
    own.connect_within = std::time::Duration::from_secs(2);
    Some(own)
}

/// The bucket that the settings name; a folder needs no look of its own, it shares the data folder's disk unless it is set.
async fn look_at_objects(config: &Config, folder: &Path) -> Finding {
    let what = "object store";
    let place = objects::place(config, folder);
    if config.get(&knobs::BLOBS).is_empty() {
        return Finding::good(what, format!("the folder {place}, unless the platform was started with a bucket"));
    }
    let options = match objects::bucket(config) {
        Ok(options) => options,
        Err(invalid) => return Finding::new(what, Verdict::Bad, invalid.to_string(), "mend the setting"),
    };
    let looked = match options.map(|options| Blobs::s3(&options)) {
        Some(Ok(blobs)) => blobs.check().await,
        Some(Err(error)) => Err(error),
        None => Ok(()),
    };
    match looked {
        Ok(()) => Finding::good(what, format!("{place} answers")),
        Err(BlobError::Bucket { fault, .. }) => Finding::new(what, Verdict::Bad, format!("{place}: {fault}"), fault.advice()),
        Err(error) => Finding::new(what, Verdict::Bad, format!("{place}: {error}"), "mend the `blobs` settings"),
    }
}

fn probed(probe: &Probe) -> Vec<Finding> {
    let mut findings = vec![Finding::good("broker", format!("nats-server {}", probe.server_version))];
    findings.push(match &probe.sync {
        SyncProbe::Always => Finding::good("durability", "every acknowledged message is on the disk (sync_interval: always)"),
        SyncProbe::Interval { seconds } => Finding::new(
            "durability",
            Verdict::Bad,
            format!("what is acknowledged within {seconds} s may be lost with the power"),
            "set `sync_interval: always` in the broker's jetstream section",
        ),
        SyncProbe::Untold { reason } => {
            Finding::new("durability", Verdict::Unknown, reason.clone(), "name the broker's monitoring with --set nats.monitor=HOST:PORT")
        }
    });
    for stream in &probe.streams {
        let share = stream.bytes * 100 / stream.bytes_max.max(1);
        let found = format!("{share} % of {} MiB", stream.bytes_max >> 20);
        let differences: Vec<&str> = stream.differences.iter().map(String::as_str).filter(|told| must_hold(told)).collect();
        findings.push(if !differences.is_empty() {
            Finding::new(
                stream.stream.as_str(),
                Verdict::Bad,
                briefly(&differences),
                "start a service, which brings its streams in line; where each has credentials of its own: `footplate nats streams`",
            )
        } else if share >= 80 {
            Finding::new(stream.stream.as_str(), Verdict::Odd, found, "give the streams more disk: --set nats.disk=")
        } else {
            Finding::good(stream.stream.as_str(), found)
        });
    }
    findings
}

/// Whether a difference matters: how many bytes a stream may take is its platform's setting, and no fault when it is not this shell's.
fn must_hold(difference: &str) -> bool {
    !difference.starts_with("max_bytes:")
}

/// The most differences of one stream that are told.
const DIFFERENCES_TOLD: usize = 2;
/// The most characters of one.
const DIFFERENCE_CHARACTERS: usize = 80;

/// The most characters of a cell of the table; `-o json` has them all.
const CELL_CHARACTERS: usize = 160;

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn briefly(differences: &[&str]) -> String {
    let told = differences.iter().take(DIFFERENCES_TOLD).map(|told| cut(told, DIFFERENCE_CHARACTERS)).collect::<Vec<_>>().join("; ");
    let more = differences.len().saturating_sub(DIFFERENCES_TOLD);
    if more > 0 { format!("{told}; and {more} more") } else { told }
}

/// The series store of the settings. It is looked at as it is: nothing is made or brought in line.
async fn look_at_series(config: &Config) -> Finding {
    let what = "series";
    let set = config.get(&knobs::SERIES);
    if set.is_empty() {
        return Finding::good(what, "kept in the data folder, for one tracker");
    }
    let address = match Address::parse(&set) {
        Ok(address) => Address { migrate: false, ..address },
        Err(invalid) => return Finding::new(what, Verdict::Bad, invalid.to_string(), "mend --set series="),
    };
    let told = match Scylla::connect(&address, "doctor").await {
        Ok(store) => store.told().await.map(|told| (told, store.acknowledges_early().map(str::to_owned))),
        Err(error) => Err(error),
    };
    match told {
        Ok((told, None)) => Finding::good(what, told),
        Ok((told, Some(early))) => Finding::new(what, Verdict::Odd, format!("{told}; it {early}"), "see deploy/scylla/README.md"),
        Err(SeriesError::Schema { found, needed, .. }) if found < needed => {
            let found = format!("{address} has schema {found}; this program works with {needed}");
            Finding::new(what, Verdict::Odd, found, "start a tracker, which brings it in line")
        }
        Err(error @ SeriesError::Schema { .. }) => Finding::new(what, Verdict::Bad, error.to_string(), "upgrade this program"),
        Err(error) if error.is_transient() => {
            Finding::new(what, Verdict::Bad, error.to_string(), "start its servers; until then metrics wait in METRICS")
        }
        Err(error) => Finding::new(what, Verdict::Bad, error.to_string(), "mend its address, credentials or permissions"),
    }
}

fn look_at_disk(folder: &Path) -> Finding {
    let there = folder.ancestors().find(|part| part.exists()).unwrap_or(folder);
    match rustix::fs::statvfs(there) {
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let found = format!("{} free at {}", footplate_types::ByteSize(free), there.display());
            if free < DISK_LEAST_BYTES {
                Finding::new("disk", Verdict::Bad, found, "free some, or move the data folder with --data")
            } else {
                Finding::good("disk", found)
            }
        }
        Err(error) => {
            Finding::new("disk", Verdict::Unknown, format!("{}: {error}", there.display()), "look whether the folder may be read")
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_program_of_a_running_platform_is_shown_whatever_this_shells_settings_name() {
        let folder = tempfile::tempdir().unwrap();
        let program = |name: &str, version: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\necho 'nats-server: v{version}'\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let (used, named) = (program("used", "2.15.1"), program("named", "2.14.7"));
        let data = folder.path().join("data");
        std::fs::create_dir_all(data.join("nats")).unwrap();
        std::fs::write(data.join("nats/program"), used.as_os_str().as_encoded_bytes()).unwrap();
        let nothing = ServiceArgs { config: None, settings: Vec::new(), nats: None, blobs: None, data: None };
        let config = platform::load(&nothing, &[("nats.program", named.display().to_string())]).unwrap();
        let held = data::DataFolder::take(&data).unwrap();
        let running = look_at_program(&config, &data);
        assert!(running.found.contains("2.15.1") && running.found.contains(&*used.to_string_lossy()), "{}", running.found);
        drop(held);
        let next = look_at_program(&config, &data);
        assert!(next.found.contains("2.14.7") && next.found.contains(&*named.to_string_lossy()), "{}", next.found);
    }

    #[test]
    fn a_streams_size_is_its_own_and_a_long_list_of_differences_is_cut() {
        assert!(!must_hold("max_bytes: is 1, must be 2") && must_hold("discard: is \"old\", must be \"new\""));
        let long = "x".repeat(200);
        let told = briefly(&["a: is 1, must be 2", &long, "b", "c"]);
        assert!(told.starts_with("a: is 1, must be 2; xxx") && told.ends_with("...; and 2 more") && told.len() < 130, "{told}");
    }
}
