//! The leader keeps the ledger's archive: it is the one of all services that holds the object store and reads every event anyway.

use super::leads;
use crate::figures::Figures;
use footplate_eventlog::Archiver;
use footplate_eventlog::archive::{Archive, ArchiveConfig, ArchiveError, Progress};
use footplate_eventlog::leader::Standing;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Archives while this instance leads, until shut down. A deposed leader that still writes does no harm: segments are made once.
pub(crate) async fn keep(
    archive: Archive,
    config: ArchiveConfig,
    figures: Figures,
    mut standing: watch::Receiver<Standing>,
    shutdown: CancellationToken,
) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            begun = standing.wait_for(|standing| matches!(standing, Standing::Leads { .. })) => if begun.is_err() { return },
        }
        let stint = shutdown.child_token();
        let archiver = Archiver::new(archive.clone(), config.clone());
        let running = archiver.run(|done| tell(&figures, done), stint.clone());
        tokio::pin!(running);
        loop {
            tokio::select! {
                () = &mut running => return,
                moved = standing.changed() => if moved.is_err() { return },
            }
            if !leads(&standing) {
                stint.cancel();
                (&mut running).await;
                break;
            }
        }
    }
}

fn tell(figures: &Figures, done: Result<Progress, &ArchiveError>) {
    let shown = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    match done {
        Ok(progress) => {
            figures.archived_position.set(shown(progress.archived));
            figures.archived_segments.set(shown(progress.segments));
            figures.archived_bytes.set(shown(progress.bytes));
            figures.gone_aggregates.set(shown(progress.gone_aggregates));
            figures.gone_events.set(shown(progress.gone_events));
        }
        Err(_) => {
            figures.archive_failures.inc();
        }
    }
}
