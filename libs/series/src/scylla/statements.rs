//! Every statement, prepared once. All may be repeated: a write names its timestamp, a compare-and-set its condition.

use scylla::{
    client::session::Session,
    errors::PrepareError,
    statement::{Consistency, prepared::PreparedStatement},
};

/// Chunks that one page of a read holds: a few hundred points each.
const CHUNKS_PER_PAGE: i32 = 32;

/// Other rows that one page of a read holds.
const ROWS_PER_PAGE: i32 = 1_000;

macro_rules! statements {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal;)+) => {
        /// The prepared statements.
        pub(super) struct Statements {
            $($(#[doc = $doc])+ pub(super) $name: PreparedStatement,)+
        }

        impl Statements {
            /// Prepares them all.
            pub(super) async fn prepare(session: &Session) -> Result<Self, PrepareError> {
                let mut all = Self { $($name: prepare(session, $text).await?,)+ };
                all.settled_progress.set_consistency(Consistency::Serial);
                for pages in [&mut all.chunks_from, &mut all.chunk_headers] {
                    pages.set_page_size(CHUNKS_PER_PAGE);
                }
                Ok(all)
            }
        }
    };
}

async fn prepare(session: &Session, text: &str) -> Result<PreparedStatement, PrepareError> {
    let mut statement = session.prepare(text).await?;
    statement.set_is_idempotent(true);
    statement.set_page_size(ROWS_PER_PAGE);
    Ok(statement)
}

statements! {
    /// Who writes and how far.
    progress = "SELECT epoch, writer, floors, feed_created, feed_base FROM progress WHERE part = 0";
    /// The same, after what is under way is settled.
    settled_progress = "SELECT epoch, writer, floors, feed_created, feed_base FROM progress WHERE part = 0";
    /// Makes a writer the next one.
    claim = "UPDATE progress SET epoch = ?, writer = ? WHERE part = 0 IF epoch = ?";
    /// Raises floors under a writer, from the floors that it knows: one that lands late finds others, and changes nothing.
    raise_floors = "UPDATE progress SET floors = ? WHERE part = 0 IF epoch = ? AND floors = ?";
    /// Notes the feed under a writer.
    note_feed = "UPDATE progress SET feed_created = ?, feed_base = ? WHERE part = 0 IF epoch = ?";
    /// The floors at which writers took over, beyond a known one.
    epochs_beyond = "SELECT epoch, floors FROM epochs WHERE part = 0 AND epoch > ?";
    /// Notes the floors at which a writer took over.
    note_epoch = "INSERT INTO epochs (part, epoch, floors, writer) VALUES (0, ?, ?, ?)";
    /// Forgets a writer under which no floor was raised.
    drop_epoch = "DELETE FROM epochs WHERE part = 0 AND epoch = ?";
    /// One series.
    one_series = "SELECT epoch, as_of, figures, before_as_of, before FROM series \
                  WHERE source = ? AND attempt = ? AND rank = ? AND name = ?";
    /// The series of a source.
    all_series = "SELECT attempt, rank, name, epoch, as_of, figures, before_as_of, before FROM series WHERE source = ?";
    /// Stores the figures of a series.
    put_series = "INSERT INTO series (source, attempt, rank, name, epoch, as_of, figures, before_as_of, before) \
                  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
    /// Takes the series of a source away.
    drop_series = "DELETE FROM series USING TIMESTAMP ? WHERE source = ?";
    /// One session.
    one_session = "SELECT epoch, as_of, progress, before_as_of, before FROM sessions \
                   WHERE source = ? AND attempt = ? AND rank = ? AND session = ?";
    /// The sessions of a source.
    all_sessions = "SELECT attempt, rank, session, epoch, as_of, progress, before_as_of, before FROM sessions WHERE source = ?";
    /// Stores the progress of a session.
    put_session = "INSERT INTO sessions (source, attempt, rank, session, epoch, as_of, progress, before_as_of, before) \
                   VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
    /// The chunks of a bucket from a place on.
    chunks_from = "SELECT sequence, start, epoch, last_sequence, places, header, body FROM chunks \
                   WHERE source = ? AND attempt = ? AND rank = ? AND name = ? AND born = ? AND bucket = ? \
                   AND (sequence, start) >= (?, ?)";
    /// What the chunks of a bucket hold, without their points.
    chunk_headers = "SELECT sequence, start, header FROM chunks \
                     WHERE source = ? AND attempt = ? AND rank = ? AND name = ? AND born = ? AND bucket = ?";
    /// One chunk.
    one_chunk = "SELECT sequence, start, epoch, last_sequence, places, header, body FROM chunks \
                 WHERE source = ? AND attempt = ? AND rank = ? AND name = ? AND born = ? AND bucket = ? AND sequence = ? AND start = ?";
    /// Stores a chunk.
    put_chunk = "INSERT INTO chunks (source, attempt, rank, name, born, bucket, sequence, start, epoch, last_sequence, places, header, body) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
    /// Removes the chunks of a bucket.
    drop_bucket = "DELETE FROM chunks USING TIMESTAMP ? \
                   WHERE source = ? AND attempt = ? AND rank = ? AND name = ? AND born = ? AND bucket = ?";
    /// With which chunks the buckets of a series begin.
    buckets = "SELECT bucket, epoch, sequence, start FROM buckets \
               WHERE source = ? AND attempt = ? AND rank = ? AND name = ? AND born = ?";
    /// Notes with which chunk a bucket begins.
    put_bucket = "INSERT INTO buckets (source, attempt, rank, name, born, bucket, epoch, sequence, start) \
                  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
    /// Removes where the buckets of a series begin.
    drop_buckets = "DELETE FROM buckets USING TIMESTAMP ? WHERE source = ? AND attempt = ? AND rank = ? AND name = ? AND born = ?";
    /// Series whose chunks are to go.
    all_doomed = "SELECT source, attempt, rank, name, born, buckets FROM doomed WHERE part = 0";
    /// Notes a series whose chunks are to go.
    put_doomed = "INSERT INTO doomed (part, source, attempt, rank, name, born, buckets) VALUES (0, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
    /// Forgets a series whose chunks are gone.
    drop_doomed = "DELETE FROM doomed USING TIMESTAMP ? \
                   WHERE part = 0 AND source = ? AND attempt = ? AND rank = ? AND name = ? AND born = ?";
}
