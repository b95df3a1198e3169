//! The gate of a process: who may do what, folded from the ledger, told to the front of its server.

use footplate_access::{Access, filters};
use footplate_api::server::{Changed, Gate};
use footplate_api::{Refusal, reason};
use footplate_clock::SharedClock;
use footplate_eventlog::{Ledger, Live, follow};
use footplate_service::Context;
use footplate_types::{Bearer, Digest, ProjectName, Role, Timestamp};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The longest sleep towards a token's end: a clock that was set is noticed after it.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Who may do what, as far as the ledger was read. Cheap to clone; one a process. It takes no token before it has read the whole ledger, since a
/// token that was revoked must not be taken in between; from then on it goes by what it has, also while the broker is away.
#[derive(Clone)]
pub struct AccessGate {
    live: Live<Access>,
    clock: SharedClock,
    is_read: Arc<AtomicBool>,
    changes: watch::Sender<u64>,
}

impl fmt::Debug for AccessGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessGate").field("position", &self.live.position()).finish_non_exhaustive()
    }
}

impl AccessGate {
    /// Starts to follow the ledger, under `context`; ready when the ledger is read.
    pub fn start(ledger: &Ledger, clock: &SharedClock, context: &Context) -> Self {
        let gate =
            Self { live: Live::new(Access::default(), 0), clock: clock.clone(), is_read: Arc::default(), changes: watch::Sender::new(0) };
        let token = context.shutdown.token();
        let follower = follow(ledger.clone(), filters(), gate.live.clone(), token.clone());
        context.supervisor.spawn_infallible("access view", follower);
        let latch = context.readiness.latch("access view");
        let (own, behind) = (gate.clone(), ledger.clone());
        context.supervisor.spawn_infallible("access start", async move {
            if !own.live.caught_up(&behind, |why| latch.pending(why), &token).await {
                return;
            }
            let told = own.live.counts().facts;
            own.is_read.store(true, Ordering::Release);
            latch.ready();
            tokio::select! {
                () = token.cancelled() => {}
                () = own.tell_changes(told) => {}
            }
        });
        gate
    }

    /// The view itself.
    pub const fn live(&self) -> &Live<Access> {
        &self.live
    }

    /// Tells every call that is open that there was a change of roles or tokens. The view's position moves with every event of the ledger, and
    /// this must not wake with each.
    async fn tell_changes(&self, mut told: u64) {
        let mut positions = self.live.changes();
        positions.mark_changed();
        loop {
            if positions.changed().await.is_err() {
                return;
            }
            let facts = self.live.counts().facts;
            if facts != told {
                told = facts;
                self.changes.send_replace(facts);
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whether the bearer's token is taken still.
    fn again(&self, bearer: &Bearer) -> Result<(), Refusal> {
        let digest = bearer.token.and_then(|id| self.live.read().token(&id).map(|token| token.fact.digest));
        let digest = digest.ok_or_else(|| Refusal::new(&reason::TOKEN_UNKNOWN, "the token is not known here"))?;
        self.of_digest(&digest).map(|_| ())
    }

    fn of_digest(&self, digest: &Digest) -> Result<Bearer, Refusal> {
        let known = self.live.read().bearer(digest, self.now());
        known.map_err(|why| Refusal::new(&reason::TOKEN_UNKNOWN, why.to_string()))
    }
}

impl Gate for AccessGate {
    fn bearer(&self, token: Option<&str>) -> Result<Bearer, Refusal> {
        let token = token.ok_or_else(|| Refusal::new(&reason::TOKEN_MISSING, "the call carries no token"))?;
        if !self.is_read.load(Ordering::Acquire) {
            return Err(Refusal::new(&reason::STARTING, "who may call is still being read from the ledger"));
        }
        self.of_digest(&Digest::of(token.as_bytes()))
    }

    fn role(&self, bearer: &Bearer, project: &ProjectName) -> Option<Role> {
        self.live.read().role(bearer, project)
    }

    fn changed(&self, bearer: &Bearer) -> Changed {
        let (gate, mut changes, bearer) = (self.clone(), self.changes.subscribe(), bearer.clone());
        Box::pin(async move {
            loop {
                gate.again(&bearer)?;
                let left = bearer.expires.map_or(u64::MAX, |end| end.millis_since(gate.now()));
                let sleep = LOOK_AGAIN.min(Duration::from_millis(left.saturating_add(1)));
                tokio::select! {
                    changed = changes.changed() => {
                        // The gate's own sender lives in `gate`.
                        debug_assert!(changed.is_ok(), "a gate outlives its calls");
                        return gate.again(&bearer);
                    }
                    () = tokio::time::sleep(sleep), if bearer.expires.is_some() => {}
                }
            }
        })
    }
}
