//! Webhooks: a project's events posted to an address, signed, in order, at least once.
//!
//! Which there are stands in the ledger; how far each has come and what came of its newest deliveries lies in the object store. Nothing about a
//! delivery is an event, and nothing here reaches an address inside that nobody has allowed.

mod address;
mod courier;
mod desk;
mod dial;
mod journal;
mod leading;
mod sign;

pub use address::AllowedInside;
pub(crate) use desk::Desk;
pub use dial::Lookup;
pub use sign::WebhookKey;

use crate::figures::Figures;
use courier::Office;
use dial::{Dialer, SystemLookup};
use footplate_blobs::Blobs;
use footplate_clock::{SharedClock, entropy};
use footplate_eventlog::leader::Standing;
use footplate_eventlog::{Ledger, Live, follow};
use footplate_events::{Aggregate, Subject};
use footplate_service::Context;
use footplate_shell::Shell;
use footplate_tracker_core::{RetryPolicy, Webhooks};
use footplate_types::{Digest, Millis};
use journal::Journals;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How webhooks are sent.
#[derive(Clone)]
pub struct WebhookConfig {
    /// What secrets are derived from: the same for all trackers of a platform, and from start to start.
    pub key: WebhookKey,
    /// What may be reached although it is inside.
    pub allowed_inside: AllowedInside,
    /// When a delivery that failed is tried again.
    pub retry: RetryPolicy,
    /// How long one delivery may take.
    pub within: Duration,
    /// What finds the addresses of a host; the system's own way when absent.
    pub lookup: Option<Arc<dyn Lookup>>,
}

impl fmt::Debug for WebhookConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookConfig").field("allowed_inside", &self.allowed_inside).field("retry", &self.retry).finish_non_exhaustive()
    }
}

impl Default for WebhookConfig {
    /// A key of its own that nobody knows: what is signed with it is good until the next start.
    fn default() -> Self {
        Self {
            key: WebhookKey::new(&Digest::from_bytes(entropy()).to_string()),
            allowed_inside: AllowedInside::default(),
            retry: RetryPolicy { first: Millis::from_secs(1), most: Millis::from_secs(15 * 60), give_up: Millis::from_secs(24 * 3_600) },
            within: dial::WITHIN,
            lookup: None,
        }
    }
}

/// The filters of the ledger that the view of webhooks folds.
pub(crate) fn filters() -> Vec<String> {
    vec![Subject::filter(None, Some(Aggregate::Webhook))]
}

/// Starts the view of webhooks and the sending, under `context`; what answers clients, and the view.
///
/// # Errors
/// When there is no way to post.
pub(crate) fn start(
    config: &crate::Config,
    ledger: &Ledger,
    blobs: &Blobs,
    clock: &SharedClock,
    (figures, stands): (&Figures, watch::Receiver<Standing>),
    context: &Context,
) -> Result<(Desk, Live<Webhooks>), String> {
    let webhooks = &config.webhooks;
    let lookup = webhooks.lookup.clone().unwrap_or_else(|| Arc::new(SystemLookup));
    let dialer = Dialer::new(lookup, webhooks.allowed_inside.clone(), webhooks.within, clock.clone())?;
    // There are few of these events, so that the view is folded anew at each start.
    let live = Live::new(Webhooks::default(), 0);
    let token = context.shutdown.token();
    context.supervisor.spawn_infallible("webhooks view", follow(ledger.clone(), filters(), live.clone(), token.clone()));
    let latch = context.readiness.latch("webhooks view");
    let (read, behind, until) = (live.clone(), ledger.clone(), token.clone());
    context.supervisor.spawn_infallible("webhooks start", async move {
        if read.caught_up(&behind, |why| latch.pending(why), &until).await {
            latch.ready();
        }
    });
    let office = Office {
        shell: Shell::new("tracker", &config.instance, ledger.clone(), live.clone(), clock.clone(), config.wait),
        ledger: ledger.clone(),
        dialer,
        journals: Journals::new(blobs.object_store().clone()),
        key: webhooks.key.clone(),
        retry: webhooks.retry,
        clock: clock.clone(),
        figures: figures.clone(),
    };
    context.supervisor.spawn_infallible("webhooks", leading::lead(office.clone(), stands, token));
    Ok((Desk::new(office), live))
}
