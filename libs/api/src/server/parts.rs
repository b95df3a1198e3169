//! What a server is put together from: each service of the process adds its part.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::response::IntoResponse;
use footplate_service::{Metrics, Readiness};
use footplate_types::PrincipalId;
use http::Request;
use prost_reflect::DescriptorPool;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::{Routes, RoutesBuilder};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::Service;

use super::front::Front;
use super::gate::{Gate, Open};
use super::measure::Measure;
use crate::descriptors;
use crate::refusal::Refusal;

/// The parts of a server: gRPC services, pages, who may call, and when it is ready.
pub struct ServerParts {
    routes: RoutesBuilder,
    served: BTreeSet<&'static str>,
    pages: Router,
    gate: Option<Arc<dyn Gate>>,
    readiness: Readiness,
    measure: Measure,
}

impl Default for ServerParts {
    fn default() -> Self {
        Self {
            routes: RoutesBuilder::default(),
            served: BTreeSet::new(),
            pages: Router::new(),
            gate: None,
            readiness: Readiness::default(),
            measure: Measure::default(),
        }
    }
}

impl std::fmt::Debug for ServerParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerParts").field("served", &self.served).finish_non_exhaustive()
    }
}

impl ServerParts {
    /// No part yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a generated gRPC server; its unary methods answer JSON as well.
    #[must_use]
    pub fn service<S>(mut self, service: S) -> Self
    where
        S: Service<Request<Body>, Error = Infallible> + NamedService + Clone + Send + Sync + 'static,
        S::Response: IntoResponse,
        S::Future: Send + 'static,
    {
        self.routes.add_service(service);
        self.served.insert(S::NAME);
        self
    }

    /// Adds plain HTTP pages; they must not lie under a gRPC service's name.
    #[must_use]
    pub fn pages(mut self, pages: Router) -> Self {
        self.pages = self.pages.merge(pages);
        self
    }

    /// Who may call, and what. Health and reflection answer everyone; without a gate nobody may anything else.
    #[must_use]
    pub fn gate(mut self, gate: Arc<dyn Gate>) -> Self {
        self.gate = Some(gate);
        self
    }

    /// A gate behind which everybody who is told apart may everything: for tests, and for servers with one caller.
    #[must_use]
    pub fn authenticator(self, tell: impl Fn(Option<&str>) -> Result<PrincipalId, Refusal> + Send + Sync + 'static) -> Self {
        self.gate(Arc::new(Open(tell)))
    }

    /// Health says SERVING while this is ready.
    #[must_use]
    pub fn readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }

    /// Counts and times calls among the process's metrics.
    #[must_use]
    pub fn metrics(self, metrics: &Metrics) -> Self {
        self.measure.register(metrics);
        self
    }

    /// The whole server as one handler, and its health to be kept in step by [`Health::follow`].
    pub(crate) fn build(mut self) -> (Front, Health) {
        let (reporter, health) = tonic_health::server::health_reporter();
        self.routes.add_service(health);
        self.routes.add_service(reflection().build_v1().expect("the descriptors are made together with the code"));
        self.routes.add_service(reflection().build_v1alpha().expect("the descriptors are made together with the code"));
        let routes: Routes = self.routes.routes();
        let served = self.served.clone();
        let front = Front::new(routes.into_axum_router(), self.pages, served, self.gate, door_pool(), self.measure);
        (front, Health { reporter, served: self.served, readiness: self.readiness })
    }
}

/// The API's descriptors and those of health, so that the door opens for both.
fn door_pool() -> DescriptorPool {
    let mut pool = descriptors::pool().clone();
    pool.decode_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET).expect("health's descriptors stand alone");
    pool
}

fn reflection<'b>() -> tonic_reflection::server::Builder<'b> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(descriptors::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// Keeps the health service in step with the process's readiness.
pub(crate) struct Health {
    reporter: HealthReporter,
    served: BTreeSet<&'static str>,
    readiness: Readiness,
}

impl Health {
    /// Never returns: it is dropped with the server.
    pub(crate) async fn follow(self) {
        loop {
            self.set(ServingStatus::NotServing).await;
            self.readiness.until(true).await;
            self.set(ServingStatus::Serving).await;
            self.readiness.until(false).await;
        }
    }

    async fn set(&self, status: ServingStatus) {
        self.reporter.set_service_status("", status).await;
        for service in &self.served {
            self.reporter.set_service_status(*service, status).await;
        }
    }
}
