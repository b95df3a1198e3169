//! The admin listener: whether the process lives, is ready, its metrics, its configuration. Loopback by default; it shows no secret and
//! changes nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::{Metrics, Readiness, Shutdown};

/// A page of a component's own: made anew at each look.
pub type AdminPage = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = String> + Send>> + Send + Sync>;

/// What the admin listener shows.
#[derive(Clone)]
pub struct Admin {
    /// `/readyz`.
    pub readiness: Readiness,
    /// `/metrics`.
    pub metrics: Metrics,
    /// `/readyz` says no while the process drains.
    pub shutdown: Shutdown,
    /// `/configz`: the effective configuration, secrets masked.
    pub config: String,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

impl Admin {
    /// The routes: `/livez`, `/readyz`, `/metrics`, `/configz`, and the given pages (path, page).
    pub fn routes(self, pages: Vec<(String, AdminPage)>) -> Router {
        let Admin { readiness, metrics, shutdown, config } = self;
        let mut routes = Router::new()
            .route("/livez", get(|| async { "ok\n" }))
            .route("/readyz", get(move || async move { ready(&readiness, &shutdown) }))
            .route("/metrics", get(move || async move { openmetrics(&metrics) }))
            .route("/configz", get(move || async move { config }));
        for (path, page) in pages {
            routes = routes.route(&path, get(move || async move { page().await }));
        }
        routes
    }

    /// Serves the pages until the drain is over, so that the drain itself can be watched.
    ///
    /// # Errors
    /// When the listener breaks.
    pub async fn serve(self, listener: TcpListener, pages: Vec<(String, AdminPage)>) -> std::io::Result<()> {
        let shutdown = self.shutdown.clone();
        let routes = self.routes(pages);
        tokio::select! {
            ended = axum::serve(listener, routes) => ended,
            () = shutdown.over() => Ok(()),
        }
    }
}

fn ready(readiness: &Readiness, shutdown: &Shutdown) -> impl IntoResponse + use<> {
    if shutdown.is_requested() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned());
    }
    let pending: String = readiness.pending().into_iter().map(|latch| format!("{}: {}\n", latch.name, latch.why)).collect();
    if pending.is_empty() { (StatusCode::OK, "ok\n".to_owned()) } else { (StatusCode::SERVICE_UNAVAILABLE, pending) }
}

fn openmetrics(metrics: &Metrics) -> impl IntoResponse + use<> {
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], metrics.show())
}
