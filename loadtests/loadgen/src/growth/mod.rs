//! `footplate-load growth`: a ledger of many runs, written as the events that they would have left, and what it costs: the broker's memory, a start of
//! each service with and without its snapshot, reading all of it, and the broker's start after a kill.

mod history;
mod service;

use crate::figures::Figures;
use crate::raw::Raw;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use footplate_eventlog::archive::{Archive, ArchiveConfig, Archived, Archiver, SEGMENT_BYTES};
use footplate_eventlog::jetstream::{JetStreamBroker, JetStreamConfig, StreamBytes};
use footplate_eventlog::memory::MemorySegments;
use footplate_eventlog::{Ledger, LedgerItem, StreamName};
use footplate_testkit::{NatsServer, nats};
use futures::StreamExt;
use history::History;
use service::Installation;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a start from a snapshot may take, in seconds.
const COLD_START_S: f64 = 5.0;
/// The disk of the streams: the ledger alone has a third of it, and none of it is taken before it is written.
const DISK: u64 = 96 << 30;
/// The same for the server.
const SERVER_DISK: u64 = 100 << 30;
/// How long the broker may take to answer after a kill.
const BROKER_WITHIN: Duration = Duration::from_secs(1_800);
/// How long runs are let go.
const LET_GO_FOR: Duration = Duration::from_secs(120);
/// The services that are started.
const SERVICES: [&str; 6] = ["tracker", "scheduler", "executor", "sweep", "gpu-inventory", "registry"];

/// Sizes of the run.
#[derive(Args)]
pub(crate) struct Options {
    /// Runs in the ledger, each of 20 events on 3 subjects
    #[arg(long, default_value_t = 200_000)]
    runs: u32,
    /// How often each service is started from its snapshot; the median counts
    #[arg(long, default_value_t = 3)]
    starts: usize,
    /// The program to start (default: `footplate` beside this one)
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Writes the ledger and measures.
pub(crate) async fn run(options: &Options) -> Result<Figures> {
    ensure!(options.runs > 0 && options.starts > 0, "--runs, --starts: at least 1");
    let mut figures = Figures::of("growth");
    let folder = tempfile::Builder::new().prefix("footplate-load-").tempdir()?;
    let server = nats().store(folder.path().join("nats")).max_disk_bytes(SERVER_DISK).sync_always(false).try_start().await?;
    let ledger = open(&server).await?;
    let events = write(&server, options.runs, &mut figures).await?;
    figures.count("runs", options.runs.into());
    figures.count("events", events);
    figures.count("ledger_bytes", ledger.broker().bounds(StreamName::Ledger).await?.bytes);
    kill(&server, &ledger, events, &mut figures).await?;
    replay(&ledger, events, "replay", "reading every event", &mut figures).await?;
    memory(&server, "broker_rss_after_replay_bytes", &mut figures)?;
    let (archive, config) = archive(&ledger, events, &mut figures).await?;
    starts(&server, folder.path(), options, &mut figures).await?;
    let_go(&ledger, archive.clone(), config, &mut figures).await?;
    memory(&server, "broker_rss_after_gone_bytes", &mut figures)?;
    // The services that were started have written their terms.
    let events = ledger.end().await?;
    let whole = Ledger::new(Arc::new(Archived::new(archive)));
    replay(&whole, events, "replay_after_gone", "reading every event, segments first", &mut figures).await?;
    Ok(figures)
}

async fn open(server: &NatsServer) -> Result<Ledger> {
    let mut config = JetStreamConfig::single(server.url(), "footplate-load");
    config.bytes = StreamBytes::of_disk(DISK);
    Ok(Ledger::new(Arc::new(JetStreamBroker::connect(config).await?)))
}

/// Writes the events of all runs as fast as the broker takes them; how many there are.
async fn write(server: &NatsServer, runs: u32, figures: &mut Figures) -> Result<u64> {
    let raw = Raw::connect(&server.url()).await?;
    let history = History::new()?;
    let mut events = 0;
    let began = Instant::now();
    raw.window(history.platform().inspect(|_| events += 1)).await?;
    raw.window(history.runs(runs).inspect(|_| events += 1)).await?;
    figures.plain("write_s", began.elapsed().as_secs_f64());
    Ok(events)
}

fn memory(server: &NatsServer, key: &str, figures: &mut Figures) -> Result<()> {
    let pid = server.pid().context("the broker does not run")?;
    figures.bytes(key, "broker's memory", resident(pid)?);
    Ok(())
}

/// The resident memory of a process.
pub(super) fn resident(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.split_whitespace().next().context("an empty VmRSS")?.parse()?;
    Ok(kib * 1_024)
}

/// Kills the broker, and starts it again: without a clean stop it reads the whole stream.
async fn kill(server: &NatsServer, ledger: &Ledger, events: u64, figures: &mut Figures) -> Result<()> {
    server.kill9().await?;
    let began = Instant::now();
    server.restart().await?;
    loop {
        match ledger.end().await {
            Ok(end) if end == events => break,
            Ok(end) => bail!("the broker came back with {end} events of {events}"),
            Err(error) if began.elapsed() > BROKER_WITHIN => return Err(error).context("the broker did not come back"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    figures.seconds("broker_start_after_kill_s", "broker's start after kill -9", began.elapsed(), None);
    memory(server, "broker_rss_bytes", figures)
}

/// Reads and decodes every event, each in its place.
async fn replay(ledger: &Ledger, events: u64, key: &str, what: &str, figures: &mut Figures) -> Result<()> {
    let began = Instant::now();
    let mut items = ledger.tail(Vec::new(), 1);
    let mut seen = 0;
    while seen < events {
        match items.next().await.context("the tail ended")? {
            LedgerItem::Fact(recorded) if recorded.sequence == seen + 1 => seen += 1,
            LedgerItem::Position(_) => {}
            other => bail!("after event {seen} came {other:?}"),
        }
    }
    let took = began.elapsed();
    figures.seconds(&format!("{key}_s"), what, took, None);
    figures.plain(&format!("{key}_events_per_s"), events as f64 / took.as_secs_f64());
    Ok(())
}

/// Writes all of the ledger that fills segments, and reads the chain back. Segments are kept in memory: what is measured is reading the broker, compressing
/// and verifying, not a disk.
async fn archive(ledger: &Ledger, events: u64, figures: &mut Figures) -> Result<(Archive, ArchiveConfig)> {
    let archive = Archive::new(ledger.broker().clone(), Arc::new(MemorySegments::new()));
    let config = ArchiveConfig { keep_events: 0, segment_bytes: SEGMENT_BYTES.min(events as usize * 100), ..ArchiveConfig::default() };
    let began = Instant::now();
    let written = Archiver::new(archive.clone(), config.clone()).step().await?;
    figures.seconds("archive_s", "writing the archive", began.elapsed(), None);
    figures.count("archived_events", written.archived);
    figures.count("archived_segments", written.segments);
    figures.bytes("archived_bytes", "its segments", written.bytes);
    let began = Instant::now();
    archive.verify().await?;
    figures.seconds("archive_verify_s", "reading it back, verified", began.elapsed(), None);
    Ok((archive, config))
}

/// Lets runs leave the broker for a while: finding them, comparing them with their segments, removing them.
async fn let_go(ledger: &Ledger, archive: Archive, config: ArchiveConfig, figures: &mut Figures) -> Result<()> {
    let messages = async || anyhow::Ok(ledger.broker().bounds(StreamName::Ledger).await?.messages);
    let before = messages().await?;
    let config = ArchiveConfig { keep_ended: Some(Duration::ZERO), announced_for: Duration::ZERO, ..config };
    let mut archiver = Archiver::new(archive, config);
    let began = Instant::now();
    // One list a step. Cut off wherever it is: it goes on from there, or does not.
    let mut last = None;
    while let Ok(done) = tokio::time::timeout(LET_GO_FOR.saturating_sub(began.elapsed()), archiver.step()).await {
        if last.replace(done?.gone_events) == last {
            break;
        }
    }
    let gone = before - messages().await?;
    figures.count("gone_events", gone);
    figures.plain("gone_events_per_s", gone as f64 / began.elapsed().as_secs_f64());
    Ok(())
}

/// Starts each service without its snapshot, stops it, and starts it again from that.
async fn starts(server: &NatsServer, folder: &Path, options: &Options, figures: &mut Figures) -> Result<()> {
    let installation = Installation::new(options.binary.as_deref(), server, folder, DISK)?;
    let (mut slowest, mut slowest_without) = (Duration::ZERO, Duration::ZERO);
    for service in SERVICES {
        let key = service.replace('-', "_");
        let first = installation.start(service).await?;
        figures.seconds(&format!("{key}_start_without_s"), &format!("{service}: from the ledger alone"), first.took, None);
        figures.bytes(&format!("{key}_rss_bytes"), &format!("{service}: memory"), first.resident()?);
        slowest_without = slowest_without.max(first.took);
        first.stop().await?;
        let mut took = Vec::new();
        for _ in 0..options.starts {
            let again = installation.start(service).await?;
            took.push(again.took);
            again.stop().await?;
        }
        took.sort_unstable();
        let median = took[took.len() / 2];
        figures.seconds(&format!("{key}_start_s"), &format!("{service}: from its snapshot"), median, Some(COLD_START_S));
        slowest = slowest.max(median);
    }
    figures.count("snapshots_bytes", installation.snapshots_bytes()?);
    figures.seconds("cold_start_without_s", "the slowest from the ledger alone", slowest_without, None);
    figures.seconds("cold_start_s", "the slowest from its snapshot", slowest, Some(COLD_START_S));
    Ok(())
}
