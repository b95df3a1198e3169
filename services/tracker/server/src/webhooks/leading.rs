//! Of all trackers the leader sends: a sender for each webhook that is not paused, begun anew when the webhook changes.
//!
//! Two leaders at once, for a moment, send twice; none of them skips.

use super::courier::{Courier, Office};
use footplate_eventlog::leader::Standing;
use footplate_tracker_core::Webhook;
use footplate_types::{ProjectName, WebhookName};
use std::collections::BTreeMap;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A sender that runs.
struct Running {
    /// The webhook's last event when it began.
    sequence: u64,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

type Key = (ProjectName, WebhookName);

/// Sends while this instance leads, until shut down.
pub(super) async fn lead(office: Office, mut standing: watch::Receiver<Standing>, shutdown: CancellationToken) {
    loop {
        let begins = standing.wait_for(|standing| matches!(standing, Standing::Leads { .. }));
        tokio::select! {
            () = shutdown.cancelled() => return,
            begun = begins => if begun.is_err() { return },
        }
        let stint = shutdown.child_token();
        let senders = {
            let ended = standing.wait_for(|standing| !matches!(standing, Standing::Leads { .. }));
            let mut senders = BTreeMap::new();
            tokio::select! {
                () = shutdown.cancelled() => {}
                _ = ended => {}
                () = keep(&office, &stint, &mut senders) => {}
            }
            senders
        };
        stint.cancel();
        office.figures.webhooks_sending.set(0);
        for (_, running) in senders {
            // What it has delivered is written down before the process goes. It ends by itself: each of its waits is for the stop too.
            let _ = running.task.await;
        }
    }
}

/// Keeps a sender for each webhook that is to send, from the moment on that the view has read what stands in the ledger. Ends with the view.
async fn keep(office: &Office, stint: &CancellationToken, senders: &mut BTreeMap<Key, Running>) {
    let live = &office.shell.live;
    // A view that is still being read knows webhooks that were deleted, paused or replayed since: what those would send is not to be sent.
    let waits = |why: String| tracing::debug!(why, "webhooks wait for their view");
    if !live.caught_up(&office.ledger, waits, stint).await {
        return;
    }
    let mut positions = live.changes();
    let mut looked = None;
    loop {
        let facts = live.counts().facts;
        if looked != Some(facts) {
            looked = Some(facts);
            settle(office, stint, senders);
        }
        // The view's position moves with every event of the ledger, and few of them are about webhooks.
        if positions.changed().await.is_err() {
            return;
        }
    }
}

fn settle(office: &Office, stint: &CancellationToken, senders: &mut BTreeMap<Key, Running>) {
    let wanted: BTreeMap<Key, Webhook> = {
        let state = office.shell.live.read();
        let sending = state.all().filter(|(_, _, webhook)| webhook.paused.is_none());
        sending.map(|(project, name, webhook)| ((project.clone(), name.clone()), webhook.clone())).collect()
    };
    let is_current = |key: &Key, running: &Running| {
        wanted.get(key).is_some_and(|webhook| webhook.sequence == running.sequence && !running.task.is_finished())
    };
    let mut former: BTreeMap<Key, JoinHandle<()>> = BTreeMap::new();
    let over: Vec<Key> = senders.iter().filter(|(key, running)| !is_current(key, running)).map(|(key, _)| key.clone()).collect();
    for key in over {
        if let Some(running) = senders.remove(&key) {
            running.stop.cancel();
            former.insert(key, running.task);
        }
    }
    for (key, webhook) in wanted {
        if senders.contains_key(&key) {
            continue;
        }
        let (stop, sequence, before) = (stint.child_token(), webhook.sequence, former.remove(&key));
        let ((project, name), office, token) = (key.clone(), office.clone(), stop.clone());
        let task = tokio::spawn(async move {
            // The former one writes down how far it came before this one reads it.
            if let Some(before) = before {
                let _ = before.await;
            }
            Courier::run(office, project, name, webhook, token).await;
        });
        senders.insert(key, Running { sequence, stop, task });
    }
    office.figures.webhooks_sending.set(i64::try_from(senders.len()).unwrap_or(i64::MAX));
}
