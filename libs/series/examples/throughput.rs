//! What the store costs: bytes a point of each codec on four kinds of metric, then points a second through the embedded back end.
//!
//! `cargo run --release -p footplate-series --example throughput -- [series] [steps] [steps per call]`

use footplate_series::{IngestBatch, Point, SeriesKey, SeriesSource, SeriesStore, codec, embedded::Embedded};
use footplate_types::{AttemptNumber, Invalid, MetricName, Rank, RunId, SessionId};
use std::{error::Error, time::Instant};

const KINDS: [&str; 4] = ["loss (f32 noise)", "lr (smooth f64)", "count (integers)", "accuracy (4 digits)"];

/// A number in 0..1 that looks drawn and depends on its arguments alone.
fn noise(series: usize, step: i64) -> f64 {
    let mut x = (series as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (step as u64).wrapping_mul(0xD1B5_4A32_D192_ED03);
    x ^= x >> 29;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^= x >> 32;
    (x >> 11) as f64 / (1u64 << 53) as f64
}

fn point(series: usize, step: i64) -> Point {
    let drawn = noise(series, step);
    let value = match series % 4 {
        0 => f64::from((2.5 / (1.0 + step as f64 / 300.0) + 0.1 * drawn) as f32),
        1 => 3e-4 * (1.0 + (step as f64 / 10_000.0 * std::f64::consts::PI).cos()) / 2.0,
        2 => (step * 64 + (drawn * 8.0) as i64) as f64,
        _ => ((0.5 + 0.4 * drawn) * 10_000.0).round() / 10_000.0,
    };
    Point { step, time_ms: 1_760_000_000_000 + step * 250 + (noise(series + 7, step) * 15.0) as i64, value }
}

fn argument(at: usize, default: i64) -> Result<i64, Box<dyn Error>> {
    std::env::args().nth(at).map_or(Ok(default), |text| Ok(text.parse()?))
}

fn batch(series: usize, call: i64, steps: i64) -> Result<IngestBatch, Invalid> {
    let points = |at: usize| (call * steps..(call + 1) * steps).map(|step| point(at, step)).collect();
    let named = (0..series).map(|at| Ok((MetricName::parse(&format!("metric/{at}"))?, points(at))));
    Ok(IngestBatch {
        sequence: call as u64 + 1,
        source: SeriesSource::Run(RunId::from_bytes([1; 16])),
        attempt: AttemptNumber(1),
        rank: Rank(0),
        session: SessionId::from_bytes([2; 16]),
        n: call as u64 + 1,
        series: named.collect::<Result<_, Invalid>>()?,
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (series, steps, per_call) = (argument(1, 100)? as usize, argument(2, 10_000)?, argument(3, 100)?);
    for (kind, name) in KINDS.iter().enumerate() {
        let points: Vec<Point> = (0..steps).map(|step| point(kind, step)).collect();
        let (mut open, mut sealed) = (0, 0);
        for chunk in points.chunks(512) {
            open += codec::encode(chunk).len();
            sealed += codec::seal(chunk).len();
        }
        println!("{name}: open {:.2}, sealed {:.2} bytes/point", open as f64 / steps as f64, sealed as f64 / steps as f64);
    }
    let folder = tempfile::tempdir()?;
    let store = Embedded::open(folder.path())?;
    let (mut stored, mut busy) = (0, 0.0);
    for call in 0..steps / per_call {
        let batch = batch(series, call, per_call)?;
        let begin = Instant::now();
        stored += store.ingest(&[batch]).await?.points;
        busy += begin.elapsed().as_secs_f64();
    }
    let bytes = std::fs::metadata(folder.path().join("series.redb"))?.len();
    println!(
        "ingest: {stored} points in {busy:.2} s, {:.0} points/s, {:.2} bytes/point on disk",
        stored as f64 / busy,
        bytes as f64 / stored as f64
    );
    let first = batch(1, 0, 1)?;
    let key = SeriesKey { source: first.source, attempt: first.attempt, rank: first.rank, name: MetricName::parse("metric/0")? };
    let begin = Instant::now();
    let read = store.points(&key).await?.len();
    println!("read: one series of {read} points in {:.2} ms", begin.elapsed().as_secs_f64() * 1e3);
    let mut late = batch(1, 0, steps)?;
    (late.sequence, late.n) = (steps as u64 + 1, steps as u64 + 1);
    late.series[0].1.iter_mut().for_each(|point| point.time_ms -= 1);
    late.series[0].1.reverse();
    let begin = Instant::now();
    let stored = store.ingest(&[late]).await?.points;
    println!("late points, last first: {stored} in {:.2} s, each looked up among those stored", begin.elapsed().as_secs_f64());
    Ok(())
}
