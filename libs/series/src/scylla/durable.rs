//! Whether what the servers acknowledge is on their disks by then, as far as they tell.

use scylla::{
    client::session::Session,
    statement::{Consistency, unprepared::Statement},
};

/// What a server is set to; the table is Apache Cassandra's, from version 4 on.
const ASKED: &str = "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'";

/// The setting under which an acknowledgement does not wait for the disk.
const EARLY: &str = "periodic";

/// What the servers do when they acknowledge a write before it is on their disks. None where the one that was asked waits for its disk, and
/// where it does not tell: ScyllaDB has no such table, and a user may not be allowed to read it.
pub(super) async fn early(session: &Session) -> Option<String> {
    let mut asked = Statement::new(ASKED);
    asked.set_consistency(Consistency::One);
    let told = match session.query_unpaged(asked, ()).await {
        Ok(answer) => answer.into_rows_result().ok()?.maybe_first_row::<(Option<String>,)>().ok()??.0?,
        Err(error) => {
            tracing::debug!(%error, "the series store does not tell whether what it acknowledges is on disk");
            return None;
        }
    };
    (told == EARLY).then(|| {
        format!("acknowledges writes before they are on disk (commitlog_sync: {told}): points may be lost when a server loses power; set batch or group")
    })
}
