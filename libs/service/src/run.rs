//! A process from its start to its end.

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use crate::{Admin, AdminPage, Exit, ListenError, Metrics, Readiness, Shutdown, StopError, Supervisor, listen};

/// What a component is handed. A cheap handle.
#[derive(Clone, Debug)]
pub struct Context {
    /// When to stop.
    pub shutdown: Shutdown,
    /// Where tasks are started.
    pub supervisor: Supervisor,
    /// Where latches are made.
    pub readiness: Readiness,
    /// Where metrics are registered.
    pub metrics: Metrics,
}

impl Context {
    /// A context outside [`run`]: for tests and short-lived programs.
    pub fn new(grace: Duration) -> Self {
        let shutdown = Shutdown::new(grace);
        Self { supervisor: Supervisor::new(shutdown.clone()), shutdown, readiness: Readiness::default(), metrics: Metrics::default() }
    }

    /// The part of a component, when several share a process: its latches and metrics carry its name; it stops with the whole.
    #[must_use]
    pub fn within(&self, component: &str) -> Self {
        Self { readiness: self.readiness.within(component), metrics: self.metrics.within(component), ..self.clone() }
    }
}

/// How a process is to run.
pub struct RunOptions {
    /// How long a drain may take.
    pub grace: Duration,
    /// Where the admin pages are served; nowhere when absent.
    pub admin: Option<SocketAddr>,
    /// The effective configuration as the admin pages show it.
    pub config: String,
    /// More admin pages: path and page.
    pub pages: Vec<(String, AdminPage)>,
}

impl std::fmt::Debug for RunOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunOptions").field("grace", &self.grace).field("admin", &self.admin).finish_non_exhaustive()
    }
}

/// Why a process did not end in good order.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E: Display> {
    /// The admin pages have no port.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The system does not let the process watch signals.
    #[error("cannot watch signals: {0}")]
    Signals(std::io::Error),
    /// It could not start.
    #[error("{0}")]
    Start(E),
    /// It started, and did not stop in good order.
    #[error(transparent)]
    Stop(#[from] StopError),
}

impl<E: Display> RunError<E> {
    /// The code to end with.
    pub fn exit(&self) -> Exit {
        match self {
            RunError::Listen(_) => Exit::Refused,
            RunError::Stop(StopError::CutOff { .. }) => Exit::TimedOut,
            RunError::Signals(_) | RunError::Start(_) | RunError::Stop(_) => Exit::Failed,
        }
    }
}

/// Runs a process: binds the admin port before anything else, follows signals, calls `start`, and waits for the stop and the drain.
///
/// `start` builds the components and starts their tasks through the context; a signal while it does so ends it.
///
/// # Errors
/// When it cannot start, a task fails, or the drain takes too long.
pub async fn run<E: Display>(options: RunOptions, start: impl AsyncFnOnce(Context) -> Result<(), E>) -> Result<(), RunError<E>> {
    let context = Context::new(options.grace);
    context.shutdown.on_signals().map_err(RunError::Signals)?;
    if let Some(address) = options.admin {
        let listener = listen("the admin pages", address, "admin.listen").await?;
        let Context { shutdown, readiness, metrics, .. } = context.clone();
        let admin = Admin { readiness, metrics, shutdown, config: options.config };
        // Not under the supervisor: the pages outlive the tasks, so that a drain can be watched.
        tokio::spawn(admin.serve(listener, options.pages));
    }
    let starting = context.readiness.latch("start");
    let started = context.shutdown.or(start(context.clone())).await;
    starting.ready();
    match started {
        Some(Err(error)) => {
            context.shutdown.request();
            if let Err(stop) = context.supervisor.stopped().await {
                tracing::warn!(error = %stop, "what had started did not stop in good order");
            }
            Err(RunError::Start(error))
        }
        Some(Ok(())) | None => Ok(context.supervisor.stopped().await?),
    }
}
