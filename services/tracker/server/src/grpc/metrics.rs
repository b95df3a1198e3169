//! MetricService.

use super::convert::latest_out;
use super::{project_of, stopping};
use crate::metrics::{Ingest, Reads, Wanted, newest};
use crate::view::View;
use footplate_api::v1::{self, metric_service_server::MetricService};
use footplate_api::{Refusal, reason};
use footplate_types::{AttemptNumber, MetricName, Rank};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

/// Batches of one stream that may be under way at once; a client that sends more waits.
const IN_FLIGHT: usize = 64;

/// The service.
#[derive(Clone)]
pub(crate) struct MetricDoor {
    view: View,
    ingest: Ingest,
    reads: Reads,
    shutdown: CancellationToken,
}

impl MetricDoor {
    /// The service over its parts.
    pub(crate) fn new(view: View, ingest: Ingest, reads: Reads, shutdown: CancellationToken) -> Self {
        Self { view, ingest, reads, shutdown }
    }
}

#[tonic::async_trait]
impl MetricService for MetricDoor {
    type IngestStream = BoxStream<'static, Result<v1::IngestResponse, Status>>;

    /// Answers come in the order of the requests; the first that is refused ends the stream.
    async fn ingest(&self, request: Request<Streaming<v1::IngestRequest>>) -> Result<Response<Self::IngestStream>, Status> {
        let ingest = self.ingest.clone();
        // A stream that its client keeps open must not hold up the end: what was taken is answered, then the client is sent elsewhere.
        let (ends, ended) = (self.shutdown.clone(), self.shutdown.clone());
        let told = futures::stream::once(async move { ended }).filter_map(async |ended| ended.is_cancelled().then(|| Err(stopping())));
        let batches = request.into_inner().take_until(ends.cancelled_owned()).chain(told);
        let taken = batches.map_ok(move |batch| {
            let ingest = ingest.clone();
            async move { ingest.take(batch).await.map_err(Status::from) }
        });
        // How far a session is durable is told when the answer's turn has come: batches become durable in any order.
        let ingest = self.ingest.clone();
        let answers = taken.try_buffered(IN_FLIGHT).and_then(move |taken| {
            let ingest = ingest.clone();
            async move { ingest.answer(&taken).await.map_err(Status::from) }
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn log_batch(&self, request: Request<v1::IngestRequest>) -> Result<Response<v1::IngestResponse>, Status> {
        let project = project_of(&request, &request.get_ref().project)?;
        let mut batch = request.into_inner();
        batch.project = project.to_string();
        let taken = self.ingest.take(batch).await?;
        Ok(Response::new(self.ingest.answer(&taken).await?))
    }

    async fn list_latest(&self, request: Request<v1::ListLatestRequest>) -> Result<Response<v1::ListLatestResponse>, Status> {
        let message = request.get_ref();
        let project = project_of(&request, &message.project)?;
        let run = self.view.resolve(&project, &message.run_id).await?;
        let latest = self.reads.latest(run.id).await?;
        let latest = newest(&latest, message.all_ranks).iter().map(|(key, stats)| latest_out(key, stats)).collect();
        Ok(Response::new(v1::ListLatestResponse { latest }))
    }

    async fn get_history(&self, request: Request<v1::GetHistoryRequest>) -> Result<Response<v1::GetHistoryResponse>, Status> {
        let message = request.get_ref();
        let project = project_of(&request, &message.project)?;
        let run = self.view.resolve(&project, &message.run_id).await?;
        let name = MetricName::parse(&message.name).map_err(|invalid| Refusal::from(invalid.of("name")))?;
        let (from_step, to_step) = (message.from_step.unwrap_or(i64::MIN), message.to_step.unwrap_or(i64::MAX));
        if from_step > to_step {
            let refusal = Refusal::new(&reason::INVALID_FIELD, format!("from_step: {from_step} is above to_step {to_step}"));
            return Err(refusal.field("from_step").value(from_step).allowed("at most to_step").into());
        }
        let wanted = Wanted {
            run: run.id,
            name,
            rank: Rank(message.rank),
            attempt: AttemptNumber(message.attempt),
            from_step,
            to_step,
            max_points: message.max_points as usize,
            page_size: message.page_size as usize,
            page_token: message.page_token.clone(),
        };
        let answer = self.reads.history(&wanted).await?;
        let point = |point: &footplate_series::Point| v1::Point { step: point.step, time_ms: point.time_ms, value: point.value };
        Ok(Response::new(v1::GetHistoryResponse {
            points: answer.points.iter().map(point).collect(),
            reduced: answer.reduced,
            count: answer.count,
            next_page_token: answer.next,
        }))
    }
}
