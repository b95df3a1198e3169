//! The session: statements that are tried again, pages of rows, and what the servers' errors mean to a caller.

use super::{address::Address, durable, schema, statements::Statements};
use crate::SeriesError;
use scylla::{
    client::{execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder},
    deserialize::row::DeserializeRow,
    errors::{DbError, ExecutionError, NewSessionError, RequestAttemptError},
    response::{PagingState, query_result::QueryResult},
    serialize::row::SerializeRow,
    statement::{Consistency, SerialConsistency, prepared::PreparedStatement},
    value::{CqlValue, Row},
};
use std::{ops::ControlFlow, path::PathBuf, time::Duration};
use tokio::sync::Semaphore;

/// How long connecting may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// How long one try of a statement may take.
const TRY_WITHIN: Duration = Duration::from_secs(4);

/// How often a statement is tried: with the waits between, an outage of a second and a half is bridged.
const TRIES: u32 = 6;

/// Statements under way at once: more than this on one connection only adds to what each waits.
const IN_FLIGHT_MAX: usize = 128;

/// The wait before the second try; it doubles from try to try.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// A connected cluster with its prepared statements.
pub(super) struct Db {
    session: Session,
    in_flight: Semaphore,
    pub(super) statements: Statements,
    pub(super) address: String,
    /// How they acknowledge before their disks have it, when a server says so.
    pub(super) early: Option<String>,
}

impl Db {
    /// Connects, brings the schema in line and prepares the statements.
    pub(super) async fn connect(address: &Address, writer: &str) -> Result<Self, SeriesError> {
        let shown = address.to_string();
        let session = session(address, &shown).await?;
        schema::bring_in_line(&session, address, &shown, writer).await?;
        let statements = Statements::prepare(&session).await.map_err(|error| told(&shown, &error.into()))?;
        let early = durable::early(&session).await;
        if let Some(what) = &early {
            tracing::warn!(store = shown, "the series store {what}");
        }
        Ok(Self { session, in_flight: Semaphore::new(IN_FLIGHT_MAX), statements, address: shown, early })
    }

    /// Runs a statement, which must have the same effect when run twice, until it is acknowledged or the tries are spent.
    pub(super) async fn run(&self, statement: &PreparedStatement, values: impl SerializeRow) -> Result<QueryResult, SeriesError> {
        let _permit = self.in_flight.acquire().await.map_err(|_| SeriesError::Closed)?;
        again(&self.address, || self.session.execute_unpaged(statement, &values)).await
    }

    /// Runs a compare-and-set; whether it was applied. One that was applied by a try whose answer was lost is seen as applied when its
    /// condition still holds afterwards, else the caller looks.
    pub(super) async fn run_conditional(&self, statement: &PreparedStatement, values: impl SerializeRow) -> Result<bool, SeriesError> {
        applied(&self.address, self.run(statement, values).await?)
    }

    /// Gives the rows of a statement, page by page, to `take` until it has enough.
    pub(super) async fn rows<R>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        mut take: impl FnMut(R) -> Result<ControlFlow<()>, SeriesError>,
    ) -> Result<(), SeriesError>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
    {
        let mut at = PagingState::start();
        loop {
            let _permit = self.in_flight.acquire().await.map_err(|_| SeriesError::Closed)?;
            let (result, next) = again(&self.address, || self.session.execute_single_page(statement, &values, at.clone())).await?;
            let page = result.into_rows_result().map_err(|error| self.unreadable(&error))?;
            for row in page.rows::<R>().map_err(|error| self.unreadable(&error))? {
                if take(row.map_err(|error| self.unreadable(&error))?)?.is_break() {
                    return Ok(());
                }
            }
            match next.into_paging_control_flow() {
                ControlFlow::Break(()) => return Ok(()),
                ControlFlow::Continue(state) => at = state,
            }
        }
    }

    /// The one row of a statement.
    pub(super) async fn row<R>(&self, statement: &PreparedStatement, values: impl SerializeRow) -> Result<Option<R>, SeriesError>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
    {
        let mut found = None;
        self.rows(statement, values, |row| {
            found = Some(row);
            Ok(ControlFlow::Break(()))
        })
        .await?;
        Ok(found)
    }

    pub(super) fn damaged(&self, what: impl Into<String>) -> SeriesError {
        SeriesError::Corrupted { path: PathBuf::from(&self.address), what: what.into() }
    }

    fn unreadable(&self, error: &dyn std::fmt::Display) -> SeriesError {
        self.damaged(format!("a table has not the form that this program knows: {error}"))
    }
}

async fn session(address: &Address, shown: &str) -> Result<Session, SeriesError> {
    // Of all replicas, not of one datacenter's: what is acknowledged must be seen from another one.
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::Quorum)
        .serial_consistency(Some(SerialConsistency::Serial))
        .request_timeout(Some(TRY_WITHIN))
        .build();
    let mut builder = SessionBuilder::new()
        .known_nodes(&address.nodes)
        .connection_timeout(CONNECT_WITHIN)
        .default_execution_profile_handle(profile.into_handle());
    if let Some(datacenter) = &address.datacenter {
        builder = builder.prefer_datacenter(datacenter.clone());
    }
    if let (Some(user), Some(file)) = (&address.user, &address.password_file) {
        let refused = |error: std::io::Error| SeriesError::Refused {
            address: shown.to_owned(),
            what: format!("the password file {} cannot be read: {error}", file.display()),
        };
        let text = tokio::fs::read_to_string(file).await.map_err(refused)?;
        builder = builder.user(user, text.lines().next().unwrap_or_default());
    }
    let away = |what: String| SeriesError::Away { address: shown.to_owned(), what };
    match tokio::time::timeout(CONNECT_WITHIN * 2, builder.build()).await {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(error)) => Err(not_connected(shown, &error)),
        Err(_) => Err(away(format!(
            "no connection within {} s; look whether it runs and whether the address is right",
            2 * CONNECT_WITHIN.as_secs()
        ))),
    }
}

fn not_connected(shown: &str, error: &NewSessionError) -> SeriesError {
    let (address, what) = (shown.to_owned(), error.to_string());
    if format!("{error:?}").contains("AuthenticationError") || format!("{error:?}").contains("MissingAuthentication") {
        return SeriesError::Refused { address, what: format!("{what}; look at user and password_file in its address") };
    }
    SeriesError::Away { address, what: format!("{what}; look whether it runs and whether the address is right") }
}

/// Asks until there is an answer, for as many tries as there are.
pub(super) async fn again<T, F>(address: &str, ask: impl Fn() -> F) -> Result<T, SeriesError>
where
    F: Future<Output = Result<T, ExecutionError>>,
{
    let mut wait = FIRST_WAIT;
    for attempt in 1.. {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if attempt >= TRIES || is_definite(&error) => return Err(told(address, &error)),
            Err(error) => tracing::debug!(%error, attempt, "the series store did not answer; trying again"),
        }
        tokio::time::sleep(wait).await;
        wait *= 2;
    }
    Err(SeriesError::Closed)
}

/// Whether a compare-and-set was applied.
pub(super) fn applied(address: &str, result: QueryResult) -> Result<bool, SeriesError> {
    let unreadable =
        |what: String| SeriesError::Corrupted { path: PathBuf::from(address), what: format!("a compare-and-set gave no answer: {what}") };
    let rows = result.into_rows_result().map_err(|error| unreadable(error.to_string()))?;
    let row = rows.first_row::<Row>().map_err(|error| unreadable(error.to_string()))?;
    Ok(matches!(row.columns.first(), Some(Some(CqlValue::Boolean(true)))))
}

/// Whether the servers have said no, and will say it again.
fn is_definite(error: &ExecutionError) -> bool {
    match error {
        ExecutionError::BadQuery(_) | ExecutionError::UseKeyspaceError(_) => true,
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _)) => matches!(
            error,
            DbError::SyntaxError
                | DbError::Invalid
                | DbError::ConfigError
                | DbError::AuthenticationError
                | DbError::Unauthorized
                | DbError::AlreadyExists { .. }
                | DbError::ProtocolError
        ),
        _ => false,
    }
}

pub(super) fn told(address: &str, error: &ExecutionError) -> SeriesError {
    let (address, what) = (address.to_owned(), error.to_string());
    if is_definite(error) || format!("{error:?}").contains("Unauthorized") {
        SeriesError::Refused { address, what }
    } else {
        SeriesError::Away { address, what }
    }
}
