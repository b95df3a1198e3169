//! One connection: a reader, one processor that takes in the ops in order, a writer.

use super::{
    Intake,
    desk::{Desk, Progress, Session, StandingStop},
    op::{self, Fault, Hello, Incoming, Op, Question},
    patiently,
    upload::{StagedAs, StagedOp, Upload},
};
use crate::{
    record::{self, Batch, MetricHeader, Origin, StoredReport},
    stage,
};
use footplate_events::{
    facts::{Outcome, ParamValue, RunFinished, RunNoted, RunParamsLogged, RunTagsSet},
    messages::{ReportBody, TrackerReport, metrics_subject},
};
use footplate_series::Point;
use footplate_types::{MetricName, ParamKey};
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixStream, unix::OwnedWriteHalf},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

/// Bytes of a line, its end included.
const LINE_MOST: usize = 1 << 20;
/// Ops read ahead.
const OPS_MOST: usize = 256;
/// Answers that wait to be written.
const ANSWERS_MOST: usize = 1_024;
/// Questions that one connection may have open.
const QUESTIONS_MOST: usize = 64;
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// Points of one metric batch.
const BATCH_POINTS: usize = 4_000;
/// Bytes of the params of one report.
const PARAMS_BYTES: usize = 160 << 10;

type Answers = mpsc::Sender<String>;

fn error_line(fault: &Fault) -> String {
    json!({"error": {"code": fault.code, "message": fault.message}}).to_string()
}

fn stop_value(stop: &StandingStop) -> Value {
    json!({"cause": stop.cause_name(), "grace_ms": stop.grace_left_ms()})
}

/// Serves one connection to its end.
pub(super) async fn serve(intake: Arc<Intake>, stream: UnixStream, shutdown: CancellationToken) {
    let (read, write) = stream.into_split();
    let mut reader = BufReader::new(read);
    let (answers, queue) = mpsc::channel(ANSWERS_MOST);
    let writer = tokio::spawn(write_answers(write, queue));
    match greet(&intake, &mut reader).await {
        Ok((hello, desk)) => {
            let talk = converse(intake, desk.clone(), hello, reader, answers, shutdown);
            desk.connections.track_future(talk).await;
        }
        Err(Some(fault)) => {
            let _ = answers.send(error_line(&fault)).await;
            drop(answers);
        }
        Err(None) => drop(answers),
    }
    let _ = writer.await;
}

async fn write_answers(mut write: OwnedWriteHalf, mut queue: mpsc::Receiver<String>) {
    let mut ready = Vec::new();
    while queue.recv_many(&mut ready, ANSWERS_MOST).await > 0 {
        let mut bytes = Vec::new();
        for line in ready.drain(..) {
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
        }
        // A client that is gone reads nothing; what it sent is still taken in.
        let _ = write.write_all(&bytes).await;
    }
    let _ = write.shutdown().await;
}

async fn greet<R: AsyncBufRead + Unpin>(intake: &Intake, reader: &mut R) -> Result<(Hello, Arc<Desk>), Option<Fault>> {
    let line = tokio::time::timeout(HELLO_PATIENCE, read_line(reader)).await.map_err(|_| None)?;
    let line = match line {
        Line::Whole(line) => line,
        Line::TooLong => return Err(Some(Fault::new("MALFORMED", "the first line is not a hello"))),
        Line::End => return Err(None),
    };
    let hello = op::hello(&line).map_err(Some)?;
    let desk = intake.admit(&hello).map_err(Some)?;
    Ok((hello, desk))
}

enum Line {
    Whole(Vec<u8>),
    TooLong,
    End,
}

/// Reads one line of at most [`LINE_MOST`] bytes. A last line without an end is no line.
async fn read_line<R: AsyncBufRead + Unpin>(reader: &mut R) -> Line {
    let mut line = Vec::new();
    loop {
        let Ok(available) = reader.fill_buf().await else { return Line::End };
        if available.is_empty() {
            return Line::End;
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(available.len(), |at| at + 1);
        if line.len() + taken > LINE_MOST {
            return Line::TooLong;
        }
        line.extend_from_slice(&available[..taken]);
        reader.consume(taken);
        if end.is_some() {
            line.pop();
            return Line::Whole(line);
        }
    }
}

async fn converse<R: AsyncBufRead + Unpin>(
    intake: Arc<Intake>,
    desk: Arc<Desk>,
    hello: Hello,
    mut reader: R,
    answers: Answers,
    shutdown: CancellationToken,
) {
    let session = desk.session(hello.session, hello.rank);
    session.take_over(shutdown.clone());
    // The older connection has taken in what it had in its hands once this lock is ours.
    let progress = session.progress.lock().await;
    if answers.send(json!({"ok": true, "v": op::VERSION, "acked": progress.acked}).to_string()).await.is_err() {
        return;
    }
    let (ops, queue) = mpsc::channel(OPS_MOST);
    let processor = Processor {
        intake: intake.clone(),
        desk: desk.clone(),
        session: session.clone(),
        hello,
        answers: answers.clone(),
        ending: shutdown.clone(),
    };
    let stops = tokio::spawn(push_stops(desk.clone(), answers.clone(), shutdown.clone()));
    let process = processor.run(progress, queue);
    let read = read_lines(&intake, &desk, &mut reader, ops, &answers, &shutdown);
    tokio::join!(process, read);
    stops.abort();
}

async fn push_stops(desk: Arc<Desk>, answers: Answers, ending: CancellationToken) {
    let mut stop = desk.stop();
    loop {
        let line = stop.borrow_and_update().as_ref().map(|stop| json!({"stop": stop_value(stop)}).to_string());
        if let Some(line) = line
            && answers.send(line).await.is_err()
        {
            return;
        }
        tokio::select! {
            () = ending.cancelled() => return,
            changed = stop.changed() => if changed.is_err() { return },
        }
    }
}

/// Reads until the end, a fault or the end of the connection; then no more ops come.
async fn read_lines<R: AsyncBufRead + Unpin>(
    intake: &Arc<Intake>,
    desk: &Arc<Desk>,
    reader: &mut R,
    ops: mpsc::Sender<(u64, Result<Op, Fault>)>,
    answers: &Answers,
    ending: &CancellationToken,
) {
    let questions = Arc::new(tokio::sync::Semaphore::new(QUESTIONS_MOST));
    loop {
        let line = tokio::select! {
            () = ending.cancelled() => return,
            line = read_line(reader) => line,
        };
        let fault = match line {
            Line::End => return,
            Line::TooLong => Fault::new("LINE_TOO_LONG", format!("a line is at most {LINE_MOST} bytes")),
            Line::Whole(line) => match op::incoming(&line) {
                Incoming::Op { n, op } => {
                    tokio::select! {
                        () = ending.cancelled() => return,
                        sent = ops.send((n, op)) => if sent.is_err() { return },
                    }
                    continue;
                }
                Incoming::Question { id, question } => {
                    let Ok(permit) = questions.clone().acquire_owned().await else { return };
                    let (asked, desk, answers) = (intake.clone(), desk.clone(), answers.clone());
                    intake.spawn(async move {
                        let _ = answers.send(answer(&asked, &desk, id, question).await).await;
                        drop(permit);
                    });
                    continue;
                }
                Incoming::Malformed(message) => Fault::new("MALFORMED", message),
            },
        };
        let _ = answers.send(error_line(&fault)).await;
        ending.cancel();
        return;
    }
}

async fn answer(intake: &Intake, desk: &Desk, id: i64, question: Question) -> String {
    let answered = match question {
        Question::Stop => json!({"id": id, "stop": desk.stop().borrow().as_ref().map(stop_value)}),
        Question::LatestCheckpoint => match intake.latest_checkpoint(desk).await {
            Ok(None) => json!({"id": id, "checkpoint": null}),
            Ok(Some(found)) => {
                let metadata: Value = serde_json::from_str(&found.metadata).unwrap_or_else(|_| json!({}));
                let checkpoint = json!({"step": found.step, "path": found.path, "digest": found.digest, "metadata": metadata});
                json!({"id": id, "checkpoint": checkpoint})
            }
            Err(fault) => json!({"id": id, "error": {"code": fault.code, "message": fault.message}}),
        },
        Question::Unknown(name) => {
            let message = format!("this agent does not know the question {name:?}");
            json!({"id": id, "error": {"code": "UNKNOWN_OP", "message": message}})
        }
    };
    answered.to_string()
}

/// Takes in the ops of one session in order; each is durable before its answer, and before the next one of another kind.
struct Processor {
    intake: Arc<Intake>,
    desk: Arc<Desk>,
    session: Arc<Session>,
    hello: Hello,
    answers: Answers,
    ending: CancellationToken,
}

/// Metric points that wait to be written together, and the op that they reach up to.
#[derive(Default)]
struct Gathered {
    points: Vec<(MetricName, Point)>,
    up_to: u64,
}

impl Processor {
    async fn run(&self, mut progress: tokio::sync::MutexGuard<'_, Progress>, mut queue: mpsc::Receiver<(u64, Result<Op, Fault>)>) {
        let mut ready = Vec::new();
        while queue.recv_many(&mut ready, OPS_MOST).await > 0 {
            if self.take_in(&mut progress, std::mem::take(&mut ready)).await.is_none() {
                break;
            }
            // What follows belongs to the connection that took the session over.
            if self.ending.is_cancelled() {
                break;
            }
        }
        self.ending.cancel();
    }

    /// `None` ends the connection.
    async fn take_in(&self, progress: &mut Progress, ops: Vec<(u64, Result<Op, Fault>)>) -> Option<()> {
        let mut gathered = Gathered::default();
        for (n, op) in ops {
            let highest = gathered.up_to.max(progress.acked);
            if n <= highest {
                self.flush(progress, &mut gathered).await?;
                self.say(json!({"ack": progress.acked})).await;
                continue;
            }
            if n != highest + 1 {
                self.flush(progress, &mut gathered).await?;
                let fault = Fault::new("OUT_OF_ORDER", format!("op {n} came where {} was expected", highest + 1));
                let _ = self.answers.send(error_line(&fault)).await;
                return None;
            }
            if let Ok(Op::Metrics(points)) = op {
                gathered.points.extend(points);
                gathered.up_to = n;
                if gathered.points.len() >= BATCH_POINTS {
                    self.flush(progress, &mut gathered).await?;
                }
                continue;
            }
            self.flush(progress, &mut gathered).await?;
            match op {
                Ok(op) => self.record(progress, n, op).await?,
                Err(fault) => self.refuse(progress, n, &fault).await?,
            }
        }
        self.flush(progress, &mut gathered).await
    }

    async fn say(&self, line: Value) {
        let _ = self.answers.send(line.to_string()).await;
    }

    fn advance(&self, progress: &mut Progress, n: u64) {
        progress.acked = n;
        self.session.note(*progress);
    }

    async fn flush(&self, progress: &mut Progress, gathered: &mut Gathered) -> Option<()> {
        if gathered.points.is_empty() {
            return Some(());
        }
        let of = &self.desk.config.of;
        let batch = Batch {
            project: of.project.to_string(),
            run: of.run.to_string(),
            attempt: of.attempt.0,
            rank: self.hello.rank.0,
            session: self.hello.session.to_string(),
            n: progress.batches + 1,
            series: Vec::new(),
        };
        let header = MetricHeader {
            subject: metrics_subject(of.run, self.intake.node.as_str()),
            of: Some(of.clone()),
            rank: self.hello.rank,
            session: self.hello.session,
            batch: progress.batches + 1,
            op: gathered.up_to,
        };
        let entry = record::pack(&header, &record::encode_batch(batch, &gathered.points));
        patiently(|| self.intake.spools.metrics.append(entry.clone())).await?;
        progress.batches += 1;
        self.advance(progress, gathered.up_to);
        *gathered = Gathered::default();
        self.say(json!({"ack": progress.acked})).await;
        Some(())
    }

    /// A refusal is as durable as an ack: after a restart the op is not asked for again.
    async fn refuse(&self, progress: &mut Progress, n: u64, fault: &Fault) -> Option<()> {
        self.advance(progress, n);
        let desk = self.desk.clone();
        patiently(|| {
            let desk = desk.clone();
            async move {
                let written = tokio::task::spawn_blocking(move || desk.write_sessions()).await;
                let written = written.map_err(|_| crate::spool::SpoolError::Closed)?;
                written.map_err(|error| crate::spool::SpoolError::Disk { doing: "write sessions", message: error.to_string() })
            }
        })
        .await?;
        self.say(json!({"error": {"n": n, "code": fault.code, "message": fault.message}})).await;
        Some(())
    }

    async fn record(&self, progress: &mut Progress, n: u64, op: Op) -> Option<()> {
        let of = self.desk.config.of.clone();
        let (rank, attempt) = (self.hello.rank, of.attempt);
        let reports = match op {
            Op::Metrics(_) => Vec::new(),
            Op::Params(params) => split(params)
                .into_iter()
                .map(|params| TrackerReport::Params { of: of.clone(), params: RunParamsLogged { attempt, rank, params } })
                .collect(),
            Op::Tags(set) => vec![TrackerReport::Tags { of, tags: RunTagsSet { set, removed: Vec::new() } }],
            Op::Note(note) => vec![TrackerReport::Noted { of, noted: RunNoted { note: Some(note), hypothesis: None, conclusion: None } }],
            Op::Conclusion(text) => {
                vec![TrackerReport::Noted { of, noted: RunNoted { conclusion: Some(text), hypothesis: None, note: None } }]
            }
            Op::Finish { finished } => {
                let outcome = if finished { Outcome::Succeeded } else { Outcome::Failed };
                vec![TrackerReport::Finished {
                    of,
                    finished: RunFinished { outcome, attempt, message: String::new(), sessions: Vec::new() },
                }]
            }
            Op::Artifact { path, name } => return self.stage(progress, n, path, StagedAs::Artifact { name }).await,
            Op::Checkpoint { path, step, metadata } => {
                return self.stage(progress, n, path, StagedAs::Checkpoint { step, metadata }).await;
            }
        };
        let stored = |report| StoredReport {
            epoch: self.intake.epoch(),
            body: ReportBody::Tracker(report),
            traceparent: self.desk.config.traceparent.clone(),
            origin: Some(Origin { of: self.desk.config.of.clone(), rank, session: self.hello.session, n }),
        };
        let entries: Vec<_> = reports.into_iter().map(|report| stored(report).to_bytes()).collect();
        patiently(|| self.intake.spools.tracker.append_all(entries.clone())).await?;
        self.advance(progress, n);
        self.say(json!({"ack": n})).await;
        Some(())
    }

    async fn stage(&self, progress: &mut Progress, n: u64, source: PathBuf, what: StagedAs) -> Option<()> {
        let dir = self.desk.staged().join(format!("{}-{n}", self.hello.session));
        let most = self.intake.limits.staged_bytes_most;
        let (rank, session) = (self.hello.rank, self.hello.session);
        let taken = patiently(|| {
            let (desk, dir, source, what) = (self.desk.clone(), dir.clone(), source.clone(), what.clone());
            async move {
                let taking = move || -> std::io::Result<Result<StagedOp, Fault>> {
                    let _ = std::fs::remove_dir_all(&dir);
                    std::fs::create_dir_all(&dir)?;
                    let manifest = match stage::take(&source, &dir, most)? {
                        Ok(manifest) => manifest,
                        Err(fault) => {
                            let _ = std::fs::remove_dir_all(&dir);
                            return Ok(Err(fault));
                        }
                    };
                    crate::durable::sync_dir(dir.parent().unwrap_or(&dir))?;
                    let op = StagedOp { rank, session, n, manifest, what };
                    desk.uploads.add(Upload { dir: dir.clone(), op: op.clone() }, || {
                        if let StagedAs::Checkpoint { step, metadata } = &op.what {
                            desk.set_latest(*step, &op.manifest, &dir, metadata);
                        }
                    })?;
                    Ok(Ok(op))
                };
                let taken = tokio::task::spawn_blocking(taking).await.map_err(|_| crate::spool::SpoolError::Closed)?;
                taken.map_err(|error| crate::spool::SpoolError::Disk { doing: "stage", message: error.to_string() })
            }
        })
        .await?;
        let op = match taken {
            Ok(op) => op,
            Err(fault) => return self.refuse(progress, n, &fault).await,
        };
        let digest = format!("sha256:{}", op.manifest.digest());
        self.advance(progress, n);
        self.say(json!({"ack": n, "digest": digest})).await;
        Some(())
    }
}

/// Splits params so that each report stays small.
fn split(params: BTreeMap<ParamKey, ParamValue>) -> Vec<BTreeMap<ParamKey, ParamValue>> {
    let mut parts = vec![BTreeMap::new()];
    let mut bytes = 0;
    for (key, value) in params {
        let size = key.as_str().len() + serde_json::to_string(&value).map_or(0, |text| text.len()) + 8;
        if bytes > 0 && bytes + size > PARAMS_BYTES {
            parts.push(BTreeMap::new());
            bytes = 0;
        }
        bytes += size;
        if let Some(part) = parts.last_mut() {
            part.insert(key, value);
        }
    }
    parts
}
