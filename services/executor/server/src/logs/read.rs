//! `LogService`: what is archived, then what is packed, then what the stream still holds, each byte once.

use super::Archive;
use super::packs::{LogKey, Pack, unseen};
use crate::attempts::find_run;
use bytes::Bytes;
use footplate_api::v1::{
    GetLogRequest, GetLogResponse, ListLogsRequest, ListLogsResponse, LogFile, ReadLogsRequest, ReadLogsResponse,
    log_service_server::LogService,
};
use footplate_api::{Refusal, reason};
use footplate_eventlog::{Broker, Live, StreamName, TailItem};
use footplate_events::facts::LogStream;
use footplate_events::messages::LogHeader;
use footplate_executor_core::{AttemptState, Executor};
use footplate_types::{AttemptId, AttemptNumber, Invalid, NodeName, RunId};
use futures::{StreamExt, stream::BoxStream};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};

/// The most bytes of one answer.
const PIECE_MAX: usize = 256 << 10;
/// The most answers that wait for a slow reader.
const PIECES_WAITING: usize = 16;
/// The most bytes of one `GetLog`.
const GET_MAX: u32 = 4 << 20;

#[derive(Clone)]
pub(crate) struct Logs {
    live: Live<Executor>,
    broker: Arc<dyn Broker>,
    archive: Archive,
}

/// What is asked, checked.
#[derive(Clone)]
struct Asked {
    run: RunId,
    attempt: u32,
    rank: Option<u32>,
    streams: Vec<LogStream>,
    follow: bool,
    tail_bytes: u64,
}

impl Asked {
    fn wants(&self, key: &LogKey) -> bool {
        let attempt = self.attempt == 0 || key.attempt.attempt.0 == self.attempt;
        attempt && self.rank.is_none_or(|rank| key.rank.0 == rank) && (self.streams.is_empty() || self.streams.contains(&key.stream))
    }
}

type Piece = Result<ReadLogsResponse, Status>;

impl Logs {
    pub(crate) fn new(live: Live<Executor>, broker: Arc<dyn Broker>, archive: Archive) -> Self {
        Self { live, broker, archive }
    }

    fn check(&self, request: &ReadLogsRequest) -> Result<Asked, Status> {
        let run = {
            let state = self.live.read();
            let run = find_run(&state, &request.project, &request.run_id)?;
            may_be_there(&state, run, request)?;
            run
        };
        let mut streams = Vec::new();
        for stream in &request.streams {
            let allowed = || Refusal::from(Invalid::new("streams", stream, "stdout, stderr, setup or platform"));
            streams.push(LogStream::parse(stream).ok_or_else(allowed)?);
        }
        let tail_bytes = request.tail_bytes;
        Ok(Asked { run, attempt: request.attempt, rank: request.rank, streams, follow: request.follow, tail_bytes })
    }

    /// What stands in archives and packs: every log of the run that is asked for, with its bytes so far.
    async fn stored(&self, asked: &Asked) -> Result<Vec<(LogKey, NodeName, Option<(footplate_types::Digest, u64)>)>, Status> {
        let members: Vec<_> = {
            let state = self.live.read();
            state
                .attempts_of(asked.run)
                .filter(|(id, _)| asked.attempt == 0 || id.attempt.0 == asked.attempt)
                .flat_map(|(id, attempt)| attempt.members.iter().map(|(index, member)| (*id, *index, member.clone())).collect::<Vec<_>>())
                .collect()
        };
        let mut found = BTreeMap::new();
        for (attempt, index, member) in members {
            for log in member.archived.iter().flat_map(|archived| &archived.logs) {
                let key = LogKey { attempt, member: index, rank: log.rank, stream: log.stream };
                found.insert(key, (member.node.clone(), Some((log.digest, log.bytes))));
            }
            let packed = self.archive.packs.logs_of(attempt, index).await.map_err(|error| Refusal::new(&reason::STORE_AWAY, error))?;
            for key in packed {
                found.entry(key).or_insert((member.node.clone(), None));
            }
        }
        Ok(found.into_iter().filter(|(key, _)| asked.wants(key)).map(|(key, (node, archived))| (key, node, archived)).collect())
    }
}

/// Refuses an attempt or a rank that the run has not; whoever follows a run that lives may name an attempt that is still to come.
fn may_be_there(state: &Executor, run: RunId, request: &ReadLogsRequest) -> Result<(), Refusal> {
    let attempts: Vec<_> = state.attempts_of(run).map(|(id, attempt)| (id.attempt.0, attempt)).collect();
    let wanted = |number: u32| request.attempt == 0 || number == request.attempt;
    if attempts.iter().any(|(number, _)| wanted(*number)) {
        let workers = |(_, attempt): &(u32, &AttemptState)| attempt.members.values().map(|member| member.workers).sum::<u32>();
        let world = attempts.iter().filter(|(number, _)| wanted(*number)).map(workers).max().unwrap_or(0);
        return match request.rank {
            Some(rank) if rank >= world => {
                let message = format!("run {run} has no rank {rank}: its ranks are 0 to {}", world.saturating_sub(1));
                Err(Refusal::new(&reason::LOG_NOT_FOUND, message).field("rank").value(rank))
            }
            _ => Ok(()),
        };
    }
    if request.attempt == 0 || (request.follow && !state.has_ended(run)) {
        return Ok(());
    }
    let known: Vec<String> = attempts.iter().map(|(number, _)| number.to_string()).collect();
    let known = if known.is_empty() { "it has none yet".to_owned() } else { format!("it has {}", known.join(", ")) };
    let message = format!("run {run} has no attempt {}: {known}", request.attempt);
    Err(Refusal::new(&reason::ATTEMPT_NOT_FOUND, message).field("attempt").value(request.attempt))
}

/// One reader's way through the logs of a run.
struct Reader {
    logs: Logs,
    asked: Asked,
    cursors: BTreeMap<LogKey, u64>,
    out: mpsc::Sender<Piece>,
}

/// The reader has gone, or the call is over.
struct Gone;

impl Reader {
    async fn send(&self, piece: Piece) -> Result<(), Gone> {
        self.out.send(piece).await.map_err(|_| Gone)
    }

    async fn remark(&self, attempt: u32, remark: String) -> Result<(), Gone> {
        self.send(Ok(ReadLogsResponse { attempt, remark, ..ReadLogsResponse::default() })).await
    }

    /// Sends what is unseen of a piece of a log.
    async fn pass(&mut self, key: &LogKey, node: &NodeName, at: u64, bytes: &Bytes) -> Result<(), Gone> {
        let cursor = self.cursors.get(key).copied().unwrap_or(0);
        let Some((fresh, hole)) = unseen(cursor, at, bytes) else { return Ok(()) };
        if hole > 0 {
            self.remark(key.attempt.attempt.0, format!("{hole} bytes of rank {} {} are missing", key.rank, key.stream.as_str())).await?;
        }
        let mut at = at + (bytes.len() - fresh.len()) as u64;
        let mut rest = fresh;
        while !rest.is_empty() {
            let data = rest.split_to(rest.len().min(PIECE_MAX));
            let piece = ReadLogsResponse {
                attempt: key.attempt.attempt.0,
                rank: key.rank.0,
                stream: key.stream.as_str().to_owned(),
                node: node.to_string(),
                at,
                data: data.to_vec(),
                remark: String::new(),
            };
            at += data.len() as u64;
            self.send(Ok(piece)).await?;
        }
        self.cursors.insert(*key, at);
        Ok(())
    }

    /// Sends what archives and packs hold beyond what was sent.
    async fn pass_stored(&mut self) -> Result<(), Gone> {
        let stored = match self.logs.stored(&self.asked).await {
            Ok(stored) => stored,
            Err(status) => {
                self.send(Err(status)).await?;
                return Err(Gone);
            }
        };
        for (key, node, archived) in stored {
            let passed = match archived {
                Some((digest, size)) => self.pass_archived(&key, &node, digest, size).await,
                None => Ok(()),
            };
            match passed {
                Ok(()) => self.pass_packed(&key, &node).await?,
                Err(None) => return Err(Gone),
                Err(Some(error)) => return self.away(error).await,
            }
        }
        Ok(())
    }

    async fn pass_archived(
        &mut self,
        key: &LogKey,
        node: &NodeName,
        digest: footplate_types::Digest,
        size: u64,
    ) -> Result<(), Option<String>> {
        let begin = if self.asked.tail_bytes > 0 { size.saturating_sub(self.asked.tail_bytes) } else { 0 };
        let cursor = self.cursors.entry(*key).or_insert(begin);
        if *cursor >= size {
            return Ok(());
        }
        let mut stream = self.logs.archive.blobs.get(&digest).await.map_err(|error| Some(error.to_string()))?;
        let mut at = 0u64;
        while let Some(bytes) = stream.next().await {
            let bytes = bytes.map_err(|error| Some(error.to_string()))?;
            let length = bytes.len() as u64;
            self.pass(key, node, at, &bytes).await.map_err(|Gone| None)?;
            at += length;
        }
        Ok(())
    }

    async fn pass_packed(&mut self, key: &LogKey, node: &NodeName) -> Result<(), Gone> {
        let packs = self.packs_of(key).await?;
        let size = packs.iter().map(|pack| pack.at + pack.bytes).max().unwrap_or(0);
        let begin = if self.asked.tail_bytes > 0 { size.saturating_sub(self.asked.tail_bytes) } else { 0 };
        self.cursors.entry(*key).or_insert(begin);
        for pack in packs {
            let cursor = self.cursors.get(key).copied().unwrap_or(0);
            if pack.at + pack.bytes <= cursor {
                continue;
            }
            match self.logs.archive.packs.get(&pack).await {
                Ok(bytes) => self.pass(key, node, pack.at, &bytes).await?,
                Err(error) if self.packs_of(key).await?.contains(&pack) => return self.away(error).await,
                // A pack that is gone has just been archived; the next look finds it there.
                Err(_) => {}
            }
        }
        Ok(())
    }

    async fn packs_of(&self, key: &LogKey) -> Result<Vec<Pack>, Gone> {
        match self.logs.archive.packs.list(key).await {
            Ok(packs) => Ok(packs),
            Err(error) => self.away(error).await,
        }
    }

    /// A store that does not answer must not pass for a log that is shorter.
    async fn away<T>(&self, error: String) -> Result<T, Gone> {
        self.send(Err(Refusal::new(&reason::STORE_AWAY, error).into())).await?;
        Err(Gone)
    }

    /// Whether everything that will ever be there is archived.
    fn is_over(&self) -> bool {
        let state = self.logs.live.read();
        let archived = state
            .attempts_of(self.asked.run)
            .filter(|(id, _)| self.asked.attempt == 0 || id.attempt.0 == self.asked.attempt)
            .all(|(_, attempt)| attempt.members.values().all(|member| member.archived.is_some()));
        let one_attempt_is_over = self.asked.attempt != 0
            && state
                .attempt(&AttemptId { run: self.asked.run, attempt: AttemptNumber(self.asked.attempt) })
                .is_some_and(|attempt| attempt.is_released());
        archived && (state.has_ended(self.asked.run) || one_attempt_is_over)
    }

    fn state_remark(&self) -> Option<String> {
        let state = self.logs.live.read();
        let Some((id, attempt)) = state.attempts_of(self.asked.run).last() else {
            return Some(if state.has_ended(self.asked.run) {
                "the run has ended without an attempt: it has no log".to_owned()
            } else {
                "the run is pending: it has no log yet; `footplate why` tells what it waits for".to_owned()
            });
        };
        let is_archived = attempt.members.values().all(|member| member.archived.is_some());
        if attempt.is_released() && (is_archived || state.has_ended(self.asked.run)) {
            return Some(format!("attempt {} wrote nothing", id.attempt));
        }
        let phases: Vec<String> = attempt.members.values().map(|member| format!("{} {}", member.node, member.phase.as_str())).collect();
        Some(format!("attempt {}: {}; no log yet", id.attempt, phases.join(", ")))
    }

    async fn run(mut self) {
        let _ = self.read().await;
    }

    async fn read(&mut self) -> Result<(), Gone> {
        let over_before = self.is_over();
        let end = footplate_eventlog::inbox::stream_end(self.logs.broker.as_ref(), StreamName::Logs).await;
        self.pass_stored().await?;
        if !over_before {
            self.pass_live(end).await?;
        }
        if self.cursors.values().all(|cursor| *cursor == 0)
            && let Some(remark) = self.state_remark()
        {
            self.remark(0, remark).await?;
        }
        Ok(())
    }

    /// Sends what the stream holds beyond archives and packs: up to `end`, or with follow until all is archived.
    async fn pass_live(&mut self, end: u64) -> Result<(), Gone> {
        let filter = format!("fp.logs.*.{}", self.asked.run);
        let mut tail = self.logs.broker.tail(StreamName::Logs, vec![filter], 1);
        let mut changes = self.logs.live.changes();
        loop {
            tokio::select! {
                () = self.out.closed() => return Err(Gone),
                changed = changes.changed() => {
                    if changed.is_err() {
                        return Err(Gone);
                    }
                    if self.asked.follow && self.is_over() {
                        return self.pass_stored().await;
                    }
                }
                item = tail.next() => match item {
                    None => return Err(Gone),
                    Some(TailItem::Message(message)) => {
                        let node = message.subject.split('.').nth(2).and_then(|node| NodeName::parse(node).ok());
                        if let (Some(node), Some(header)) = (node, LogHeader::from_headers(&message.headers)) {
                            self.pass_chunk(&node, &header, &message.payload).await?;
                        }
                    }
                    Some(TailItem::Position(position)) => {
                        if !self.asked.follow && position >= end {
                            return Ok(());
                        }
                        if self.asked.follow && self.is_over() {
                            return self.pass_stored().await;
                        }
                    }
                },
            }
        }
    }

    async fn pass_chunk(&mut self, node: &NodeName, header: &LogHeader, payload: &Bytes) -> Result<(), Gone> {
        let attempt = AttemptId { run: header.run, attempt: header.attempt };
        let key = LogKey { attempt, member: header.member, rank: header.rank, stream: header.stream };
        let claimed = {
            let state = self.logs.live.read();
            state.attempt(&attempt).and_then(|attempt| attempt.members.get(&header.member)).is_none_or(|member| member.node == *node)
        };
        if claimed && self.asked.wants(&key) {
            self.pass(&key, node, header.at, payload).await?;
        }
        Ok(())
    }
}

#[tonic::async_trait]
impl LogService for Logs {
    type ReadLogsStream = BoxStream<'static, Piece>;

    async fn read_logs(&self, request: Request<ReadLogsRequest>) -> Result<Response<Self::ReadLogsStream>, Status> {
        let request = request.into_inner();
        let mut asked = self.check(&request)?;
        if asked.attempt == 0 && !asked.follow {
            asked.attempt = self.live.read().attempts_of(asked.run).last().map_or(0, |(id, _)| id.attempt.0);
        }
        let (out, pieces) = mpsc::channel(PIECES_WAITING);
        let reader = Reader { logs: self.clone(), asked, cursors: BTreeMap::new(), out };
        tokio::spawn(reader.run());
        Ok(Response::new(tokio_stream::wrappers::ReceiverStream::new(pieces).boxed()))
    }

    async fn get_log(&self, request: Request<GetLogRequest>) -> Result<Response<GetLogResponse>, Status> {
        let request = request.into_inner();
        if request.most > GET_MAX {
            return Err(Refusal::from(Invalid::new("most", request.most, format!("at most {GET_MAX} bytes"))).into());
        }
        let most = if request.most == 0 { 1 << 20 } else { request.most as usize };
        let read = ReadLogsRequest {
            project: request.project,
            run_id: request.run_id,
            attempt: request.attempt,
            rank: Some(request.rank),
            streams: vec![if request.stream.is_empty() { "stdout".to_owned() } else { request.stream }],
            ..ReadLogsRequest::default()
        };
        let complete = {
            let asked = self.check(&read)?;
            let (out, _pieces) = mpsc::channel(1);
            Reader { logs: self.clone(), asked, cursors: BTreeMap::new(), out }.is_over()
        };
        let mut pieces = self.read_logs(Request::new(read)).await?.into_inner();
        let mut answer = GetLogResponse { attempt: request.attempt, next: request.from, complete, ..GetLogResponse::default() };
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            answer.attempt = piece.attempt.max(answer.attempt);
            if let Some((fresh, _)) = unseen(answer.next, piece.at, &Bytes::from(piece.data)).filter(|(fresh, _)| !fresh.is_empty()) {
                let room = most - answer.data.len();
                answer.data.extend_from_slice(&fresh[..fresh.len().min(room)]);
                answer.next = request.from + answer.data.len() as u64;
                if answer.data.len() == most {
                    answer.complete = false;
                    break;
                }
            }
        }
        Ok(Response::new(answer))
    }

    async fn list_logs(&self, request: Request<ListLogsRequest>) -> Result<Response<ListLogsResponse>, Status> {
        let request = request.into_inner();
        let asked = self.check(&ReadLogsRequest { project: request.project, run_id: request.run_id, ..ReadLogsRequest::default() })?;
        let mut logs = Vec::new();
        for (key, node, archived) in self.stored(&asked).await? {
            let packs = self.archive.packs.list(&key).await.map_err(|error| Refusal::new(&reason::STORE_AWAY, error))?;
            let packed = packs.iter().map(|pack| pack.at + pack.bytes).max().unwrap_or(0);
            logs.push(LogFile {
                attempt: key.attempt.attempt.0,
                rank: key.rank.0,
                stream: key.stream.as_str().to_owned(),
                node: node.to_string(),
                bytes: archived.map_or(0, |(_, bytes)| bytes).max(packed),
                digest: archived.map(|(digest, _)| digest.to_string()).unwrap_or_default(),
            });
        }
        Ok(Response::new(ListLogsResponse { logs }))
    }
}
