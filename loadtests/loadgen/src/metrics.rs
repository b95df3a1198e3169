//! `footplate-load metrics`: points over gRPC from several clients, until the platform has acknowledged them (they are durable in METRICS) and until
//! the series store holds them, on each engine, beside the bare broker with the very same messages.

use crate::cpu::{self, Cpu};
use crate::figures::{Against, Figures, quantile};
use crate::platform::Platform;
use crate::raw::{Raw, Ready};
use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use footplate_api::metrics::{Batch, Block};
use footplate_api::{Client, v1};
use footplate_eventlog::jetstream::{JetStreamBroker, JetStreamConfig};
use footplate_series::{Point, codec};
use footplate_testkit::{CassandraServer, nats, try_eventually};
use footplate_types::RunId;
use futures::{StreamExt, TryStreamExt, future::try_join_all, stream};
use prost::Message as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc};

/// Batches of one client that wait for their acknowledgement at a time.
const WINDOW: usize = 64;
/// Runs that are opened at a time.
const OPENED_AT_ONCE: usize = 16;
/// How long a client may wait for its last acknowledgement, and the store for its last point.
const WITHIN: Duration = Duration::from_secs(300);
/// The time of the first point, in milliseconds since 1970; each step is a second later.
const FIRST_MS: i64 = 1_760_000_000_000;

/// Sizes of the run.
#[derive(Args)]
pub(crate) struct Options {
    /// Runs that log at the same time
    #[arg(long, default_value_t = 1_000)]
    runs: usize,
    /// Series of each run
    #[arg(long, default_value_t = 100)]
    series: usize,
    /// Points of a batch, spread over the run's series
    #[arg(long, default_value_t = 1_000)]
    batch: usize,
    /// Batches of each run
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Clients, each with a connection and a stream of its own
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// Single points, one after the other, each waiting for its acknowledgement
    #[arg(long, default_value_t = 1_000)]
    singles: usize,
    /// Where the points are kept
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Engine::Embedded, Engine::Scylla])]
    engines: Vec<Engine>,
    /// The program to start (default: `footplate` beside this one)
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
    /// In the data folder
    Embedded,
    /// In ScyllaDB's protocol, on a Cassandra of one node that syncs each write
    Scylla,
}

impl Engine {
    const fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Scylla => "scylla",
        }
    }
}

/// Measures the bare broker, then each engine.
pub(crate) async fn run(options: &Options) -> Result<Figures> {
    ensure!(options.batch >= options.series && options.series > 0, "--batch: at least one point for each of the {} series", options.series);
    ensure!(options.runs >= options.clients && options.clients > 0, "--runs: at least one for each of the {} clients", options.clients);
    let mut figures = Figures::of("metrics");
    figures.count("points", points(options));
    let raw = bare(options, &mut figures).await?;
    for engine in &options.engines {
        on(*engine, options, &raw, &mut figures).await?;
    }
    Ok(figures)
}

fn points(options: &Options) -> u64 {
    (options.runs * options.rounds * points_a_batch(options)) as u64
}

/// Every series has as many.
fn points_a_batch(options: &Options) -> usize {
    options.batch / options.series * options.series
}

/// What the bare broker does with the same messages.
struct Bare {
    points_per_s: f64,
    single_p50_ms: f64,
    single_p99_ms: f64,
}

async fn bare(options: &Options, figures: &mut Figures) -> Result<Bare> {
    let server = nats().try_start().await?;
    // Makes the streams.
    JetStreamBroker::connect(JetStreamConfig::single(server.url(), "footplate-load")).await?;
    let raw = Raw::connect(&server.url()).await?;
    let message = |run: usize, n: usize| {
        let run = RunId::from_bytes(id(run));
        let payload = packed(&request(options, "default", run, n)).encode_to_vec();
        Ok(Ready::plain(format!("fp.metrics.{}.load", run.shard()), payload.into()))
    };
    let ready: Vec<Ready> = all(options).map(|(run, n)| message(run, n)).collect::<Result<_>>()?;
    let bytes: usize = ready.iter().map(Ready::bytes).sum();
    figures.plain("bytes_per_point", bytes as f64 / points(options) as f64);
    let began = Instant::now();
    raw.window(ready.into_iter().map(Ok)).await?;
    let points_per_s = points(options) as f64 / began.elapsed().as_secs_f64();
    let mut singles = Vec::new();
    for n in 0..options.singles {
        let payload = packed(&single("default", RunId::from_bytes(id(0)), n)).encode_to_vec();
        let began = Instant::now();
        raw.publish(Ready::plain("fp.metrics.0.load".to_owned(), payload.into())).await?;
        singles.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Bare { points_per_s, single_p50_ms: quantile(&singles, 0.5), single_p99_ms: quantile(&singles, 0.99) })
}

async fn on(engine: Engine, options: &Options, raw: &Bare, figures: &mut Figures) -> Result<()> {
    let name = engine.name();
    let cassandra = match engine {
        Engine::Embedded => None,
        Engine::Scylla => Some(CassandraServer::start().await),
    };
    let more: Vec<String> =
        cassandra.iter().flat_map(|server| ["--series".to_owned(), format!("scylla://{}/load", server.node())]).collect();
    let platform = Platform::start_with(options.binary.as_deref(), 1, &more).await?;
    let project = platform.client.project().to_owned();
    let runs = open_runs(&platform.client, options.runs).await?;
    let clients: Vec<Client> = (0..options.clients).map(|_| platform.connect()).collect::<Result<_>>()?;
    let before = Cpu::of(platform.pid());
    let began = Instant::now();
    let sent = clients.iter().enumerate().map(|(number, client)| {
        let mine: Vec<(RunId, usize)> =
            all(options).filter(|(run, _)| run % options.clients == number).map(|(run, n)| (runs[run], n)).collect();
        let (client, project) = (client.clone(), project.clone());
        async move { tokio::time::timeout(WITHIN, send(&client, options, &project, mine)).await.context("acknowledgements in time")? }
    });
    try_join_all(sent).await?;
    let acknowledged = began.elapsed();
    stored(&platform, points(options)).await?;
    let took = began.elapsed();
    let used = Cpu::of(platform.pid()).since(&before);
    let rate = |took: Duration| points(options) as f64 / took.as_secs_f64();
    let what = format!("{name}: points acknowledged and stored");
    figures.ratio(&format!("{name}_points"), &what, rate(took), raw.points_per_s, Against::Nothing);
    figures.ratio(&format!("{name}_acked"), "  acknowledged alone", rate(acknowledged), raw.points_per_s, Against::Nothing);
    cpu::tell(name, &used, took, figures);
    let singles = singles(&platform.client, &project, runs[0], options).await?;
    let key = if engine == Engine::Embedded { "single_point".to_owned() } else { format!("{name}_single_point") };
    figures.millis(&format!("{key}_p50_ms"), "  one point, acknowledged, median", quantile(&singles, 0.5), Against::Nothing);
    figures.millis(&format!("{key}_p99_ms"), "    99 of 100", quantile(&singles, 0.99), Against::Nothing);
    figures.millis(&format!("{key}_raw_p50_ms"), "    the bare broker's median", raw.single_p50_ms, Against::Nothing);
    figures.millis(&format!("{key}_raw_p99_ms"), "    the bare broker's 99 of 100", raw.single_p99_ms, Against::Nothing);
    platform.stop().await
}

/// Every run's first batch, then every run's second one, and so on: as a fleet logs.
fn all(options: &Options) -> impl Iterator<Item = (usize, usize)> + use<> {
    let (runs, rounds) = (options.runs, options.rounds);
    (1..=rounds).flat_map(move |n| (0..runs).map(move |run| (run, n)))
}

async fn open_runs(client: &Client, count: usize) -> Result<Vec<RunId>> {
    let open = |number: usize| async move {
        let asked = v1::CreateRunRequest {
            project: client.project().to_owned(),
            name: format!("load-{number}"),
            request_id: format!("load-{number}"),
            ..v1::CreateRunRequest::default()
        };
        anyhow::Ok(RunId::parse(&client.once(client.runs().create_run(asked)).await?.run_id)?)
    };
    stream::iter(0..count).map(open).buffered(OPENED_AT_ONCE).try_collect().await
}

/// Sends batches over one stream, at most [`WINDOW`] without an acknowledgement; ends when all are acknowledged.
async fn send(client: &Client, options: &Options, project: &str, mine: Vec<(RunId, usize)>) -> Result<()> {
    let count = mine.len();
    let (to, from) = mpsc::channel(WINDOW);
    let room = Arc::new(Semaphore::new(WINDOW));
    let requests = stream::unfold(from, |mut from| async move { from.recv().await.map(|request| (request, from)) });
    let sending = async {
        for (run, n) in mine {
            room.acquire().await?.forget();
            to.send(request(options, project, run, n)).await.context("the stream has ended")?;
        }
        drop(to);
        anyhow::Ok(())
    };
    let receiving = async {
        let mut answers = client.metrics().ingest(requests).await?.into_inner();
        let mut answered = 0;
        while answered < count {
            let answer = answers.message().await?.context("the answers have ended")?;
            ensure!(answer.acked > 0, "an answer that acknowledges nothing");
            answered += 1;
            room.add_permits(1);
        }
        anyhow::Ok(())
    };
    tokio::try_join!(sending, receiving).map(|_| ())
}

async fn singles(client: &Client, project: &str, run: RunId, options: &Options) -> Result<Vec<f64>> {
    let mut took = Vec::new();
    for n in 0..options.singles {
        let asked = single(project, run, n);
        let began = Instant::now();
        client.once(client.metrics().log_batch(asked)).await?;
        took.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(took)
}

/// Waits until the tracker says that so many points are in its store.
async fn stored(platform: &Platform, points: u64) -> Result<()> {
    let look = || async {
        let stored = platform.figure("points_stored").await.ok()?;
        (stored >= points as f64).then_some(())
    };
    Ok(try_eventually(WITHIN, "every point is stored", look).await?)
}

fn id(number: usize) -> [u8; 16] {
    let mut bytes = [7; 16];
    bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
    bytes
}

/// The `n`-th batch of a run. A loss that falls and is noisy in its last digits, as real ones are.
fn request(options: &Options, project: &str, run: RunId, n: usize) -> v1::IngestRequest {
    let steps = options.batch / options.series;
    let point = |series: usize, step: i64| {
        let noise = (step as u64 ^ (series as u64) << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        v1::Point { step, time_ms: FIRST_MS + step * 1_000, value: 1.0 / (1.0 + step as f64) + noise as f64 * 1e-9 }
    };
    let series = |number: usize| v1::SeriesPoints {
        name: format!("train/metric-{number:03}"),
        points: ((n - 1) * steps..n * steps).map(|step| point(number, step as i64)).collect(),
    };
    v1::IngestRequest {
        project: project.to_owned(),
        run_id: run.to_string(),
        session: run.to_string(),
        n: n as u64,
        series: (0..options.series).map(series).collect(),
        ..v1::IngestRequest::default()
    }
}

/// One point of a session of its own.
fn single(project: &str, run: RunId, n: usize) -> v1::IngestRequest {
    let point = v1::Point { step: n as i64, time_ms: FIRST_MS + n as i64 * 1_000, value: 0.5 };
    v1::IngestRequest {
        project: project.to_owned(),
        run_id: run.to_string(),
        session: "5".repeat(32),
        n: n as u64 + 1,
        series: vec![v1::SeriesPoints { name: "train/loss".to_owned(), points: vec![point] }],
        ..v1::IngestRequest::default()
    }
}

/// The message of METRICS that a tracker makes of a request.
fn packed(request: &v1::IngestRequest) -> Batch {
    let point = |point: &v1::Point| Point { step: point.step, time_ms: point.time_ms, value: point.value };
    let block = |series: &v1::SeriesPoints| Block {
        name: series.name.clone(),
        points: codec::encode(&series.points.iter().map(point).collect::<Vec<_>>()),
    };
    Batch {
        project: request.project.clone(),
        run: request.run_id.clone(),
        attempt: request.attempt,
        rank: request.rank,
        session: request.session.clone(),
        n: request.n,
        series: request.series.iter().map(block).collect(),
    }
}
