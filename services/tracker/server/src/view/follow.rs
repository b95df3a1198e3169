//! Follows the ledger into memory and file.

use super::{View, filters};
use crate::figures::Figures;
use footplate_eventlog::LedgerItem;
use footplate_events::{Aggregate, Subject};
use footplate_types::ServiceName;
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

/// How far the position may run ahead of the file's while no row changes.
const POSITION_EVERY: u64 = 256;

/// Items folded and written in one transaction.
const CHUNK: usize = 512;

/// Follows the ledger until shut down. An own aggregate with an event that is not understood is closed for writes.
pub(crate) async fn follow(view: View, figures: Figures, shutdown: CancellationToken) {
    let mut filters = filters();
    let service = ServiceName::parse("tracker").expect("a literal that is valid");
    filters.push(Subject::term(&service).to_string());
    let mut items = view.ledger.tail(filters, view.live.position() + 1).ready_chunks(CHUNK);
    let mut filed = view.live.position();
    loop {
        let chunk = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            chunk = items.next() => chunk,
        };
        let Some(chunk) = chunk else { return };
        filed = fold(&view, &chunk, filed, &figures).await;
    }
}

/// Folds a chunk and writes what it changed. A file that cannot be written is told and tried again with the next chunk: the view goes on
/// in memory, and the file's position says honestly how old it is. Answers with the position of the file, which stands at `filed`.
pub(super) async fn fold(view: &View, chunk: &[LedgerItem], filed: u64, figures: &Figures) -> u64 {
    let _folding = view.folding.lock().await;
    let troubles = view.live.fold_all(chunk);
    let met_trouble = !troubles.is_empty();
    for trouble in troubles {
        let own = Subject::parse(&trouble.subject).map(|subject| matches!(subject.aggregate, Aggregate::Run | Aggregate::Experiment));
        if own.unwrap_or(true) {
            view.ledger.close(trouble);
        }
        figures.not_understood.inc();
    }
    figures.view_position.set(i64::try_from(view.live.position()).unwrap_or(i64::MAX));
    let taken = view.live.read().take_touched();
    let position = view.live.position();
    let nothing_new = matches!(&taken, Ok(changes) if changes.rows.is_empty());
    if nothing_new && !met_trouble && position < filed + POSITION_EVERY {
        return filed;
    }
    let file = view.file.clone();
    let written = tokio::task::spawn_blocking(move || {
        let changes = taken?;
        let write = || file.write(&changes.rows, position, changes.last.as_ref());
        write().or_else(|error| {
            tracing::warn!(%error, "the view's file was not written; trying once more");
            write()
        })
    });
    match written.await {
        Ok(Ok(())) => {
            if met_trouble {
                view.file.forget();
            }
            position
        }
        Ok(Err(error)) => {
            // What is not in the file is lost to it, so the next start must not believe its position.
            tracing::error!(%error, "the view's file falls behind; the next start builds it again");
            figures.file_failures.inc();
            view.file.forget();
            position
        }
        Err(error) => {
            tracing::error!(%error, "writing the view's file panicked");
            view.file.forget();
            position
        }
    }
}
