//! The typed client: one lazy connection, who calls and for which project, deadlines by default, retries only where they are safe.
//!
//! It prints nothing and exits nothing: [`ApiError`] carries what a command line needs for both.

mod error;
mod identity;
mod target;
mod tls;

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::v1;

pub use error::ApiError;
pub use identity::Identity;
pub use target::{DEFAULT_ADDRESS, Target};

/// What every generated client stands on.
pub type Connection = InterceptedService<Channel, Identity>;

/// How long a unary call waits when its request does not say.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(30);
/// The largest answer that is taken.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// How often a safe call is tried in all.
const TRIES: u32 = 4;
/// The pause before the second try; doubled before each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// A connection to the platform; cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    connection: Connection,
    target: Target,
}

macro_rules! services {
    ($($name:ident: $module:ident :: $client:ident;)*) => {
        impl Client {$(
            #[doc = concat!("A client of `", stringify!($client), "`.")]
            pub fn $name(&self) -> v1::$module::$client<Connection> {
                v1::$module::$client::new(self.connection.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
            }
        )*}
    };
}

services! {
    artifacts: artifact_service_client::ArtifactServiceClient;
    attempts: attempt_service_client::AttemptServiceClient;
    blobs: blob_service_client::BlobServiceClient;
    events: event_service_client::EventServiceClient;
    executor_views: executor_view_service_client::ExecutorViewServiceClient;
    experiments: experiment_service_client::ExperimentServiceClient;
    inventory_views: inventory_view_service_client::InventoryViewServiceClient;
    jobs: job_service_client::JobServiceClient;
    logs: log_service_client::LogServiceClient;
    metrics: metric_service_client::MetricServiceClient;
    nodes: node_service_client::NodeServiceClient;
    principals: principal_service_client::PrincipalServiceClient;
    projects: project_service_client::ProjectServiceClient;
    queues: queue_service_client::QueueServiceClient;
    registry: registry_service_client::RegistryServiceClient;
    registry_views: registry_view_service_client::RegistryViewServiceClient;
    runs: run_service_client::RunServiceClient;
    scheduler_views: scheduler_view_service_client::SchedulerViewServiceClient;
    subscriptions: subscription_service_client::SubscriptionServiceClient;
    sweep_views: sweep_view_service_client::SweepViewServiceClient;
    sweeps: sweep_service_client::SweepServiceClient;
    tokens: token_service_client::TokenServiceClient;
    tracker_views: tracker_view_service_client::TrackerViewServiceClient;
    webhooks: webhook_service_client::WebhookServiceClient;
}

impl Client {
    /// A client of `target`. It connects at the first call, and again after a break. Call it inside a runtime.
    ///
    /// # Errors
    /// When the address, token, project or file of authorities cannot be used.
    pub fn connect(target: Target) -> Result<Self, ApiError> {
        let endpoint = target.endpoint()?;
        let channel = if target.speaks_tls() { tls::connect(&endpoint, target.ca.as_deref())? } else { endpoint.connect_lazy() };
        let identity = Identity::of(&target)?;
        Ok(Self { connection: InterceptedService::new(channel, identity), target })
    }

    /// What it was made for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The project that calls are for; `default` when none was named.
    pub fn project(&self) -> &str {
        self.target.project.as_deref().unwrap_or("default")
    }

    /// One call, once.
    ///
    /// # Errors
    /// What the service refused, or why it could not be asked.
    pub async fn once<T>(&self, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, ApiError> {
        call.await.map(Response::into_inner).map_err(|status| ApiError::from_status(&status, &self.target.address))
    }

    /// A call that may be repeated (a read, or a write with a request id), tried a few times while the platform cannot be reached: all tries
    /// within [`DEFAULT_DEADLINE`].
    ///
    /// # Errors
    /// What the service refused, or why it could not be asked, the last time.
    pub async fn safely<T, C>(&self, call: impl FnMut() -> C) -> Result<T, ApiError>
    where
        C: Future<Output = Result<Response<T>, Status>>,
    {
        self.safely_within(DEFAULT_DEADLINE, call).await
    }

    /// [`Client::safely`] with a deadline for all tries together.
    ///
    /// # Errors
    /// What the service refused, or why it could not be asked, the last time that this was learnt in time.
    pub async fn safely_within<T, C>(&self, within: Duration, mut call: impl FnMut() -> C) -> Result<T, ApiError>
    where
        C: Future<Output = Result<Response<T>, Status>>,
    {
        let deadline = Instant::now() + within;
        let mut pause = FIRST_PAUSE;
        let mut known = None;
        for attempt in 1..=TRIES {
            let answered = match timeout_at(deadline, self.once(call())).await {
                Ok(answered) => answered,
                // What an earlier try was told says more than that the time is over.
                Err(_) => return Err(known.unwrap_or_else(|| error::late(&self.target.address))),
            };
            match answered {
                Err(error) if error.is_worth_another_try() && attempt < TRIES => {
                    tracing::debug!(%error, pause_ms = pause.as_millis() as u64, "trying again");
                    known = Some(error);
                }
                answered => return answered,
            }
            sleep(pause).await;
            pause *= 2;
        }
        Err(known.unwrap_or_else(|| error::late(&self.target.address)))
    }
}
