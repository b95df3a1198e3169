//! A platform that stands in: the real gRPC services with what they were asked kept, and answers that a test sets.

use footplate_api::{
    types::{DocumentRef, Outcome, Run, RunState},
    v1::{
        self, attempt_service_server, blob_service_server, event_service_server, job_service_server, log_service_server, run_service_server,
    },
};
use footplate_types::Digest;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::Path,
    process::{Command, Output},
    sync::{Arc, Mutex, MutexGuard},
};
use tokio_stream::StreamExt as _;
use tonic::{Request, Response, Status, Streaming};

type Answer<T> = Result<Response<T>, Status>;
type Pieces<T> = tokio_stream::Iter<std::vec::IntoIter<Result<T, Status>>>;

/// What a test sets and what it finds afterwards.
#[derive(Default)]
pub struct State {
    pub blobs: BTreeMap<String, Vec<u8>>,
    pub uploads: u32,
    pub submitted: Vec<v1::SubmitJobRequest>,
    pub pipelines: Vec<v1::SubmitPipelineRequest>,
    pub arrays: Vec<v1::SubmitArrayRequest>,
    /// Jobs that were asked for by their array.
    pub listed: Vec<v1::ListJobsRequest>,
    pub tokens: Vec<String>,
    /// Answers of SubmitJob, SubmitPipeline and SubmitArray that are lost before they reach the client.
    pub lost_answers: u32,
    pub runs: BTreeMap<String, Run>,
    pub refuse_jobs: Option<Status>,
    pub log: Vec<v1::ReadLogsResponse>,
    pub tags: Vec<v1::SetTagsRequest>,
    pub events: Vec<v1::Event>,
    pub decisions: Vec<v1::Decision>,
    /// Streams of decisions that break off after their first.
    pub broken_streams: u32,
    pub watched: Vec<v1::WatchDecisionsRequest>,
}

/// The platform, on a port of its own, for as long as the value lives.
pub struct Platform {
    state: Arc<Mutex<State>>,
    pub addr: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

#[derive(Clone)]
struct Services(Arc<Mutex<State>>);

impl Services {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl Platform {
    pub fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let addr = listener.local_addr().unwrap();
        let services = Services(state.clone());
        runtime.spawn(
            tonic::transport::Server::builder()
                .add_service(blob_service_server::BlobServiceServer::new(services.clone()).max_decoding_message_size(8 << 20))
                .add_service(job_service_server::JobServiceServer::new(services.clone()))
                .add_service(run_service_server::RunServiceServer::new(services.clone()))
                .add_service(attempt_service_server::AttemptServiceServer::new(services.clone()))
                .add_service(event_service_server::EventServiceServer::new(services.clone()))
                .add_service(log_service_server::LogServiceServer::new(services))
                .serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener)),
        );
        Self { state, addr, _runtime: runtime }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// A run that has ended like this, sealed.
    pub fn with_run(&self, run_id: &str, outcome: Outcome) {
        let run = Run {
            run_id: run_id.to_owned(),
            name: "digits".to_owned(),
            state: RunState::Sealed.into(),
            outcome: outcome.into(),
            seal_complete: true,
            has_job: true,
            ..Run::default()
        };
        self.state().runs.insert(run_id.to_owned(), run);
    }

    /// The binary with these arguments, in `folder`, against this platform.
    pub fn run(&self, folder: &Path, arguments: &[&str]) -> Output {
        footplate(folder, &[&["--addr", &self.addr.to_string()], arguments].concat())
    }
}

/// The binary with these arguments, in `folder`, without the user's own settings.
pub fn footplate(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_footplate"));
    for name in ["FOOTPLATE_ADDR", "FOOTPLATE_PROJECT", "FOOTPLATE_TOKEN", "FOOTPLATE_CONTEXT"] {
        command.env_remove(name);
    }
    let home = folder.join(".home-of-the-test");
    command.args(arguments).current_dir(folder).env("XDG_CONFIG_HOME", home).output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn not_here<T>() -> Answer<T> {
    Err(Status::unimplemented("this platform only stands in"))
}

#[tonic::async_trait]
impl blob_service_server::BlobService for Services {
    type DownloadStream = Pieces<v1::DownloadResponse>;

    async fn upload(&self, request: Request<Streaming<v1::UploadRequest>>) -> Answer<v1::UploadResponse> {
        let mut stream = request.into_inner();
        let mut expected = String::new();
        let mut bytes = Vec::new();
        while let Some(piece) = stream.next().await {
            let piece = piece?;
            if expected.is_empty() {
                expected = piece.digest;
            }
            bytes.extend(piece.data);
        }
        let digest = Digest::of(&bytes).to_string();
        if digest != expected {
            return Err(Status::invalid_argument("another digest"));
        }
        let mut state = self.state();
        state.uploads += 1;
        let blob = DocumentRef { digest: digest.clone(), bytes: bytes.len() as u64 };
        state.blobs.insert(digest, bytes);
        Ok(Response::new(v1::UploadResponse { blob: Some(blob) }))
    }

    async fn download(&self, _: Request<v1::DownloadRequest>) -> Answer<Self::DownloadStream> {
        not_here()
    }

    async fn stat(&self, request: Request<v1::StatRequest>) -> Answer<v1::StatResponse> {
        let state = self.state();
        let known = request.into_inner().digests.into_iter().filter_map(|digest| {
            let bytes = state.blobs.get(&digest)?.len() as u64;
            Some(DocumentRef { digest, bytes })
        });
        Ok(Response::new(v1::StatResponse { blobs: known.collect() }))
    }

    async fn put_blob(&self, request: Request<v1::PutBlobRequest>) -> Answer<v1::UploadResponse> {
        let data = request.into_inner().data;
        let blob = DocumentRef { digest: Digest::of(&data).to_string(), bytes: data.len() as u64 };
        self.state().blobs.insert(blob.digest.clone(), data);
        Ok(Response::new(v1::UploadResponse { blob: Some(blob) }))
    }

    async fn get_blob(&self, request: Request<v1::GetBlobRequest>) -> Answer<v1::GetBlobResponse> {
        let found = self.state().blobs.get(&request.into_inner().digest).cloned();
        found.map(|data| Response::new(v1::GetBlobResponse { data })).ok_or_else(|| Status::not_found("no such blob"))
    }
}

#[tonic::async_trait]
impl job_service_server::JobService for Services {
    type WatchDecisionsStream = Pieces<v1::Decision>;

    async fn watch_decisions(&self, request: Request<v1::WatchDecisionsRequest>) -> Answer<Self::WatchDecisionsStream> {
        let mut state = self.state();
        let from = request.get_ref().from_sequence;
        state.watched.push(request.into_inner());
        let mut pieces: Vec<_> = state.decisions.iter().filter(|decision| decision.sequence >= from).cloned().map(Ok).collect();
        if state.broken_streams > 0 {
            state.broken_streams -= 1;
            pieces.truncate(1);
            pieces.push(Err(Status::unavailable("the connection broke")));
        }
        Ok(Response::new(tokio_stream::iter(pieces)))
    }

    async fn submit_job(&self, request: Request<v1::SubmitJobRequest>) -> Answer<v1::SubmitJobResponse> {
        let mut state = self.state();
        let token = request.metadata().get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        state.tokens.push(token);
        if let Some(refusal) = &state.refuse_jobs {
            return Err(refusal.clone());
        }
        let request = request.into_inner();
        let keyed = || Digest::of(request.request_id.as_bytes()).to_string()[..32].to_owned();
        let run_id = if request.run_id.is_empty() { keyed() } else { request.run_id.clone() };
        if request.dry_run {
            return Ok(Response::new(v1::SubmitJobResponse {
                remark: "it would wait for a slot".to_owned(),
                ..v1::SubmitJobResponse::default()
            }));
        }
        state.submitted.push(request);
        if state.lost_answers > 0 {
            state.lost_answers -= 1;
            return Err(Status::unavailable("the connection broke"));
        }
        Ok(Response::new(v1::SubmitJobResponse { run_id, sequence: 7, remark: String::new() }))
    }

    async fn submit_pipeline(&self, request: Request<v1::SubmitPipelineRequest>) -> Answer<v1::SubmitPipelineResponse> {
        let mut state = self.state();
        let request = request.into_inner();
        let submitted = |job: &v1::PipelineJob| v1::SubmittedJob {
            name: job.name.clone(),
            run_id: Digest::of(format!("{}/{}", request.request_id, job.name).as_bytes()).to_string()[..32].to_owned(),
            sequence: 7,
            remark: "it could start now".to_owned(),
        };
        let jobs = request.jobs.iter().map(submitted).collect();
        state.pipelines.push(request);
        if state.lost_answers > 0 {
            state.lost_answers -= 1;
            return Err(Status::unavailable("the connection broke"));
        }
        Ok(Response::new(v1::SubmitPipelineResponse { jobs, sequence: 7 }))
    }

    async fn submit_array(&self, request: Request<v1::SubmitArrayRequest>) -> Answer<v1::SubmitArrayResponse> {
        let mut state = self.state();
        let request = request.into_inner();
        let run_id = |index: u32| Digest::of(format!("{}/{index}", request.request_id).as_bytes()).to_string()[..32].to_owned();
        let jobs: Vec<_> = (0..3).map(|index| v1::SubmittedArrayJob { index, run_id: run_id(index), sequence: 7 }).collect();
        let answer = v1::SubmitArrayResponse { array_id: run_id(0), jobs, sequence: 7, remark: "it could start now".to_owned() };
        state.arrays.push(request);
        if state.lost_answers > 0 {
            state.lost_answers -= 1;
            return Err(Status::unavailable("the connection broke"));
        }
        Ok(Response::new(answer))
    }

    async fn cancel_array(&self, request: Request<v1::JobRequest>) -> Answer<v1::CancelArrayResponse> {
        let array_id = request.into_inner().run_id;
        Ok(Response::new(v1::CancelArrayResponse { array_id, asked: 3, answered: 2, sequence: 9 }))
    }

    async fn get_job(&self, request: Request<v1::GetJobRequest>) -> Answer<v1::GetJobResponse> {
        let run_id = request.into_inner().run_id;
        let spec = self.state().submitted.first().and_then(|request| request.spec.clone());
        Ok(Response::new(v1::GetJobResponse { job: Some(v1::Job { run_id, spec, ..v1::Job::default() }), view_sequence: 7 }))
    }

    async fn list_jobs(&self, request: Request<v1::ListJobsRequest>) -> Answer<v1::ListJobsResponse> {
        let job = |run_id: &str, state: &str, reason: &str| v1::Job {
            run_id: run_id.to_owned(),
            name: "digits".to_owned(),
            queue: "default".to_owned(),
            state: state.to_owned(),
            reason: reason.to_owned(),
            nodes: 1,
            slots_per_node: 2,
            ..v1::Job::default()
        };
        let mut jobs = vec![job(&"a".repeat(32), "launched", ""), job(&"b".repeat(32), "pending", "slots: 2 of 2 in use")];
        let request = request.into_inner();
        if !request.array.is_empty() {
            self.state().listed.push(request.clone());
        }
        if request.states.contains(&"ended".to_owned()) {
            jobs.push(v1::Job { outcome: Outcome::Failed.into(), cause: "user_code".to_owned(), ..job(&"c".repeat(32), "ended", "") });
        }
        Ok(Response::new(v1::ListJobsResponse { jobs, ..v1::ListJobsResponse::default() }))
    }

    async fn cancel_job(&self, _: Request<v1::JobRequest>) -> Answer<v1::JobRequestResponse> {
        Ok(Response::new(v1::JobRequestResponse { sequence: 9, answered: true, refused: "the job has ended".to_owned() }))
    }

    async fn hold_job(&self, _: Request<v1::JobRequest>) -> Answer<v1::JobRequestResponse> {
        Ok(Response::new(v1::JobRequestResponse { sequence: 9, answered: true, refused: String::new() }))
    }

    async fn release_job(&self, _: Request<v1::JobRequest>) -> Answer<v1::JobRequestResponse> {
        not_here()
    }

    async fn reprioritize_job(&self, _: Request<v1::ReprioritizeJobRequest>) -> Answer<v1::JobRequestResponse> {
        not_here()
    }

    async fn explain_job(&self, request: Request<v1::GetJobRequest>) -> Answer<v1::ExplainJobResponse> {
        Ok(Response::new(v1::ExplainJobResponse {
            run_id: request.into_inner().run_id,
            state: "pending".to_owned(),
            reason: "slots: 2 of 2 in use".to_owned(),
            would_help: vec!["1 slot set free on n1".to_owned()],
            position: 1,
            ..v1::ExplainJobResponse::default()
        }))
    }
}

#[tonic::async_trait]
impl run_service_server::RunService for Services {
    async fn create_run(&self, _: Request<v1::CreateRunRequest>) -> Answer<v1::CreateRunResponse> {
        not_here()
    }

    async fn get_run(&self, request: Request<v1::GetRunRequest>) -> Answer<v1::GetRunResponse> {
        let named = request.into_inner().run_id;
        let state = self.state();
        let mut found = state.runs.values().filter(|run| run.run_id.starts_with(&named));
        let run = found.next().cloned().ok_or_else(|| Status::not_found(format!("no run {named}")))?;
        if found.next().is_some() {
            return Err(Status::invalid_argument(format!("{named} is the beginning of more than one run's id")));
        }
        Ok(Response::new(v1::GetRunResponse { run: Some(run), view_sequence: 7 }))
    }

    async fn list_runs(&self, request: Request<v1::ListRunsRequest>) -> Answer<v1::ListRunsResponse> {
        let filter = request.into_inner().filter;
        let notes = if filter.is_empty() { Vec::new() } else { vec!["no run has params.lrr; nearest: params.lr".to_owned()] };
        let runs = if filter.is_empty() { self.state().runs.values().cloned().collect() } else { Vec::new() };
        Ok(Response::new(v1::ListRunsResponse { runs, notes, ..v1::ListRunsResponse::default() }))
    }

    async fn wait_run(&self, request: Request<v1::WaitRunRequest>) -> Answer<v1::WaitRunResponse> {
        let request = request.into_inner();
        let run = self.state().runs.get(&request.run_id).cloned();
        match run {
            Some(run) => Ok(Response::new(v1::WaitRunResponse { done: run.state() == RunState::Sealed, run: Some(run) })),
            None => {
                // Known to the scheduler alone as yet.
                tokio::time::sleep(std::time::Duration::from_millis(request.timeout_ms.min(50))).await;
                Ok(Response::new(v1::WaitRunResponse { done: false, run: None }))
            }
        }
    }

    async fn log_params(&self, _: Request<v1::LogParamsRequest>) -> Answer<v1::WriteResponse> {
        not_here()
    }

    async fn set_tags(&self, request: Request<v1::SetTagsRequest>) -> Answer<v1::WriteResponse> {
        self.state().tags.push(request.into_inner());
        Ok(Response::new(v1::WriteResponse { sequence: 11 }))
    }

    async fn note_run(&self, _: Request<v1::NoteRunRequest>) -> Answer<v1::WriteResponse> {
        not_here()
    }

    async fn log_inputs(&self, _: Request<v1::LogInputsRequest>) -> Answer<v1::WriteResponse> {
        not_here()
    }

    async fn finish_run(&self, _: Request<v1::FinishRunRequest>) -> Answer<v1::WriteResponse> {
        not_here()
    }

    async fn get_lineage(&self, _: Request<v1::GetLineageRequest>) -> Answer<v1::GetLineageResponse> {
        not_here()
    }
}

#[tonic::async_trait]
impl attempt_service_server::AttemptService for Services {
    async fn list_attempts(&self, _: Request<v1::ListAttemptsRequest>) -> Answer<v1::ListAttemptsResponse> {
        Ok(Response::new(v1::ListAttemptsResponse::default()))
    }
}

#[tonic::async_trait]
impl event_service_server::EventService for Services {
    type WatchEventsStream = Pieces<v1::Event>;

    async fn watch_events(&self, request: Request<v1::WatchEventsRequest>) -> Answer<Self::WatchEventsStream> {
        let from = request.into_inner().from_sequence;
        let events: Vec<_> = self.state().events.iter().filter(|event| event.sequence >= from).cloned().map(Ok).collect();
        Ok(Response::new(tokio_stream::iter(events)))
    }

    async fn list_events(&self, request: Request<v1::ListEventsRequest>) -> Answer<v1::ListEventsResponse> {
        let request = request.into_inner();
        let state = self.state();
        let mut events = state.events.clone();
        if request.newest_first {
            events.reverse();
        }
        events.truncate(request.page_size as usize);
        let end_sequence = state.events.last().map_or(0, |event| event.sequence);
        Ok(Response::new(v1::ListEventsResponse { events, next_sequence: 0, end_sequence }))
    }

    async fn get_event(&self, request: Request<v1::GetEventRequest>) -> Answer<v1::Event> {
        let asked = request.into_inner().sequence;
        let found = self.state().events.iter().find(|event| event.sequence == asked).cloned();
        found.map(Response::new).ok_or_else(|| Status::not_found("no such event"))
    }
}

#[tonic::async_trait]
impl log_service_server::LogService for Services {
    type ReadLogsStream = Pieces<v1::ReadLogsResponse>;

    async fn read_logs(&self, _: Request<v1::ReadLogsRequest>) -> Answer<Self::ReadLogsStream> {
        let pieces: Vec<_> = self.state().log.iter().cloned().map(Ok).collect();
        Ok(Response::new(tokio_stream::iter(pieces)))
    }

    async fn get_log(&self, _: Request<v1::GetLogRequest>) -> Answer<v1::GetLogResponse> {
        not_here()
    }

    async fn list_logs(&self, _: Request<v1::ListLogsRequest>) -> Answer<v1::ListLogsResponse> {
        not_here()
    }
}
