//! Structured tasks: each has a name, none is forgotten, and one that fails stops the service and is named.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::{AbortHandle, JoinError};
use tokio_util::task::TaskTracker;

use crate::Shutdown;

/// Why the tasks did not end in good order.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// A task gave an error before or during the stop.
    #[error("{task} failed: {why}")]
    Failed {
        /// The task's name.
        task: String,
        /// What it said, with its sources.
        why: String,
    },
    /// A task panicked.
    #[error("{task} panicked: {why}")]
    Panicked {
        /// The task's name.
        task: String,
        /// The panic's message.
        why: String,
    },
    /// The drain's time was up; these were cut off.
    #[error("not drained in time, cut off: {}", .tasks.join(", "))]
    CutOff {
        /// The names of the tasks that still ran.
        tasks: Vec<String>,
    },
}

/// Starts tasks and answers for them. A cheap handle: clones start tasks of the same service.
#[derive(Clone, Debug)]
pub struct Supervisor {
    shutdown: Shutdown,
    tracker: TaskTracker,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    running: BTreeMap<u64, (String, AbortHandle)>,
    failure: Option<StopError>,
}

impl Supervisor {
    /// A supervisor whose tasks stop with `shutdown`, and which asks for that stop when one of them fails.
    pub fn new(shutdown: Shutdown) -> Self {
        Self { shutdown, tracker: TaskTracker::new(), state: Arc::default() }
    }

    /// Starts a task. It is to watch the shutdown and return in time; returning `Ok` earlier is fine, an error or a panic stops the
    /// service.
    pub fn spawn<E: Display + Send + 'static>(&self, name: impl Into<String>, work: impl Future<Output = Result<(), E>> + Send + 'static) {
        let name = name.into();
        // The inner task takes the panic; the outer one, which never panics, is what the tracker waits for.
        let inner = tokio::spawn(work);
        let id = {
            let mut state = self.lock();
            let id = state.next;
            state.next += 1;
            state.running.insert(id, (name.clone(), inner.abort_handle()));
            id
        };
        let supervisor = self.clone();
        self.tracker.spawn(async move {
            let ended = inner.await;
            supervisor.lock().running.remove(&id);
            match ended {
                Ok(Ok(())) => tracing::debug!(task = name, "task ended"),
                Ok(Err(error)) => supervisor.fail(StopError::Failed { task: name, why: error.to_string() }),
                Err(error) if error.is_cancelled() => {}
                Err(error) => supervisor.fail(StopError::Panicked { task: name, why: panic_message(error) }),
            }
        });
    }

    /// Starts a task that cannot fail.
    pub fn spawn_infallible(&self, name: impl Into<String>, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn(name, async move {
            work.await;
            Ok::<(), std::convert::Infallible>(())
        });
    }

    /// The names of the tasks that run now, in the order of their start.
    pub fn running(&self) -> Vec<String> {
        self.lock().running.values().map(|(name, _)| name.clone()).collect()
    }

    /// Waits until a stop is asked for and every task has ended, or the time for that is over and the rest is cut off.
    ///
    /// # Errors
    /// The first failure of a task, whenever it was; else which tasks had to be cut off.
    pub async fn stopped(&self) -> Result<(), StopError> {
        self.shutdown.requested().await;
        self.tracker.close();
        let drained = tokio::select! {
            () = self.tracker.wait() => true,
            () = self.shutdown.over() => false,
        };
        let cut_off = if drained { Vec::new() } else { self.cut_off() };
        match self.lock().failure.take() {
            Some(failure) => Err(failure),
            None if cut_off.is_empty() => Ok(()),
            None => Err(StopError::CutOff { tasks: cut_off }),
        }
    }

    fn cut_off(&self) -> Vec<String> {
        let state = self.lock();
        state.running.values().for_each(|(_, handle)| handle.abort());
        state.running.values().map(|(name, _)| name.clone()).collect()
    }

    fn fail(&self, failure: StopError) {
        tracing::error!(error = %failure, "a task failed; the service stops");
        self.lock().failure.get_or_insert(failure);
        self.shutdown.request();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn panic_message(error: JoinError) -> String {
    let Ok(payload) = error.try_into_panic() else { return "no message".to_owned() };
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn supervisor() -> (Shutdown, Supervisor) {
        let shutdown = Shutdown::new(Duration::from_secs(5));
        (shutdown.clone(), Supervisor::new(shutdown))
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_task_stops_the_service_and_is_named() {
        let (shutdown, supervisor) = supervisor();
        let waiting = shutdown.clone();
        supervisor.spawn_infallible("patient", async move { waiting.requested().await });
        supervisor.spawn("folder", async { Err("the disk is full") });
        let error = supervisor.stopped().await.unwrap_err();
        assert_eq!(error.to_string(), "folder failed: the disk is full");
        assert!(shutdown.is_requested() && supervisor.running().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_panicked_task_stops_the_service_and_is_named() {
        let (_, supervisor) = supervisor();
        supervisor.spawn_infallible("joker", async { panic!("ha {}", 1) });
        assert_eq!(supervisor.stopped().await.unwrap_err().to_string(), "joker panicked: ha 1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_may_end_early_without_ending_the_service() {
        let (shutdown, supervisor) = supervisor();
        supervisor.spawn_infallible("quick", async {});
        assert!(tokio::time::timeout(Duration::from_secs(60), supervisor.stopped()).await.is_err());
        shutdown.request();
        supervisor.stopped().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_drain_in_time_is_cut_off_and_named() {
        let (shutdown, supervisor) = supervisor();
        supervisor.spawn_infallible("stubborn", std::future::pending());
        shutdown.request();
        let start = tokio::time::Instant::now();
        assert_eq!(supervisor.stopped().await.unwrap_err().to_string(), "not drained in time, cut off: stubborn");
        assert_eq!(start.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clone_starts_tasks_of_the_same_service_even_while_it_drains() {
        let (shutdown, supervisor) = supervisor();
        let (clone, waiting) = (supervisor.clone(), shutdown.clone());
        supervisor.spawn_infallible("first", async move {
            waiting.requested().await;
            clone.spawn("last words", async { Err("too late") });
        });
        shutdown.request();
        assert_eq!(supervisor.stopped().await.unwrap_err().to_string(), "last words failed: too late");
    }
}
