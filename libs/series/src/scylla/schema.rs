//! The tables: numbered migrations, applied by whichever instance comes first, and the version that this program works with.

use super::{
    address::Address,
    db::{again, applied},
};
use crate::SeriesError;
use scylla::{
    client::session::Session,
    serialize::row::SerializeRow,
    statement::{Consistency, unprepared::Statement},
};
use std::time::Duration;

/// The migrations in their order; the number of the last is the version. One that was released never changes: a new one follows it.
const MIGRATIONS: &[&str] = &[include_str!("../../../../deploy/scylla/0001_series.cql")];

/// The version that this program works with.
pub const SCHEMA_VERSION: i32 = MIGRATIONS.len() as i32;

/// How long one instance may take over a migration before another one takes it up.
const GUARD_SECONDS: i32 = 60;

/// The wait between two looks at a guard that another instance holds.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// The most looks at a keyspace or a table that is just being made.
const MADE_LOOKS_MAX: usize = 120;

/// What both servers say of such a one.
const NOT_MADE_YET: [&str; 2] = ["does not exist", "unconfigured table"];

/// The most looks: somewhat longer than a guard lasts.
const LOOKS_MAX: i32 = 4 * GUARD_SECONDS + 40;

const VERSION_TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_version (part tinyint PRIMARY KEY, version int, holder text)";

/// Makes the keyspace and the tables, or brings them to this program's version; refuses a newer one. Ends with the keyspace in use.
pub(super) async fn bring_in_line(session: &Session, address: &Address, shown: &str, holder: &str) -> Result<(), SeriesError> {
    let schema = Schema { session, address, shown, holder };
    if !schema.has_keyspace().await? {
        if !address.migrate {
            return Err(schema.too_old(0));
        }
        schema.make_keyspace().await?;
    }
    once_made(|| schema.use_keyspace()).await?;
    schema.bring_tables_in_line().await
}

/// Asks until what another instance is just making can be used: the system's own tables name it a moment before.
async fn once_made<T, F>(ask: impl Fn() -> F) -> Result<T, SeriesError>
where
    F: Future<Output = Result<T, SeriesError>>,
{
    for _ in 0..MADE_LOOKS_MAX {
        match ask().await {
            Err(error) if NOT_MADE_YET.iter().any(|words| error.to_string().contains(words)) => tokio::time::sleep(LOOK_AGAIN).await,
            answer => return answer,
        }
    }
    ask().await
}

struct Schema<'s> {
    session: &'s Session,
    address: &'s Address,
    shown: &'s str,
    holder: &'s str,
}

impl Schema<'_> {
    async fn use_keyspace(&self) -> Result<(), SeriesError> {
        let used = self.session.use_keyspace(&self.address.keyspace, false).await;
        used.map_err(|error| SeriesError::Away { address: self.shown.to_owned(), what: error.to_string() })
    }

    async fn has_keyspace(&self) -> Result<bool, SeriesError> {
        let asked = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?";
        self.has_rows(asked, (&self.address.keyspace,)).await
    }

    async fn has_version_table(&self) -> Result<bool, SeriesError> {
        let asked = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ? AND table_name = 'schema_version'";
        self.has_rows(asked, (&self.address.keyspace,)).await
    }

    async fn has_rows(&self, asked: &str, values: impl SerializeRow) -> Result<bool, SeriesError> {
        let mut asked = Statement::new(asked);
        asked.set_consistency(Consistency::One);
        let result = again(self.shown, || self.session.query_unpaged(asked.clone(), &values)).await?;
        Ok(result.into_rows_result().is_ok_and(|rows| rows.rows_num() > 0))
    }

    async fn make_keyspace(&self) -> Result<(), SeriesError> {
        let nodes = self.session.get_cluster_state().get_nodes_info().len();
        let replicas = self.address.replication.unwrap_or(if nodes >= 3 { 3 } else { 1 });
        tracing::info!(store = self.shown, replicas, "making the keyspace of the series store");
        // The class takes the factor for every datacenter, on both servers.
        let made = format!(
            "CREATE KEYSPACE IF NOT EXISTS {} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': {replicas}}}",
            self.address.keyspace
        );
        self.change(&made).await
    }

    async fn bring_tables_in_line(&self) -> Result<(), SeriesError> {
        let found = if self.has_version_table().await? { once_made(|| self.version()).await? } else { 0 };
        self.refuse_newer(found)?;
        if found == SCHEMA_VERSION {
            return Ok(());
        }
        if !self.address.migrate {
            return Err(self.too_old(found));
        }
        self.change(VERSION_TABLE).await?;
        for _ in 0..LOOKS_MAX {
            let found = self.version().await?;
            self.refuse_newer(found)?;
            if found == SCHEMA_VERSION {
                return Ok(());
            }
            if self.take_guard().await? && self.migrate().await? {
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        let what = "another instance is at the migration of its tables and does not come to an end".to_owned();
        Err(SeriesError::Away { address: self.shown.to_owned(), what })
    }

    /// Applies what is missing, under the guard; `false` when another instance has it by now.
    async fn migrate(&self) -> Result<bool, SeriesError> {
        let found = self.version().await?;
        for (number, migration) in (1..).zip(MIGRATIONS).filter(|(number, _)| *number > found) {
            tracing::info!(store = self.shown, number, "bringing the tables of the series store in line");
            for statement in statements_of(migration) {
                // Held anew for each, so that it lasts as long as the work does.
                if !self.take_guard().await? {
                    return Ok(false);
                }
                self.change(&statement).await?;
            }
            self.conditional("UPDATE schema_version SET version = ? WHERE part = 0 IF holder = ?", (number, self.holder)).await?;
        }
        self.conditional("UPDATE schema_version SET holder = null WHERE part = 0 IF holder = ?", (self.holder,)).await?;
        Ok(self.version().await? == SCHEMA_VERSION)
    }

    /// Takes the guard, or holds it anew.
    async fn take_guard(&self) -> Result<bool, SeriesError> {
        let taken = format!("UPDATE schema_version USING TTL {GUARD_SECONDS} SET holder = ? WHERE part = 0 IF holder = null");
        Ok(self.conditional(&taken, (self.holder,)).await?
            || self.conditional(&taken.replace("= null", "= ?"), (self.holder, self.holder)).await?)
    }

    async fn version(&self) -> Result<i32, SeriesError> {
        let mut asked = Statement::new("SELECT version FROM schema_version WHERE part = 0");
        // Settles a compare-and-set under way.
        asked.set_consistency(Consistency::Serial);
        let result = again(self.shown, || self.session.query_unpaged(asked.clone(), ())).await?;
        let row = result.into_rows_result().ok().and_then(|rows| rows.maybe_first_row::<(Option<i32>,)>().ok().flatten());
        Ok(row.and_then(|(version,)| version).unwrap_or(0))
    }

    async fn conditional(&self, statement: &str, values: impl SerializeRow) -> Result<bool, SeriesError> {
        applied(self.shown, again(self.shown, || self.session.query_unpaged(statement, &values)).await?)
    }

    /// Runs a change of the schema, which says IF NOT EXISTS, and waits until all nodes have it.
    async fn change(&self, statement: &str) -> Result<(), SeriesError> {
        again(self.shown, || self.session.query_unpaged(statement, ())).await.map(|_| ())
    }

    fn refuse_newer(&self, found: i32) -> Result<(), SeriesError> {
        if found <= SCHEMA_VERSION {
            return Ok(());
        }
        let next = "a newer tracker has changed it; start that version, or one after it".to_owned();
        Err(SeriesError::Schema { address: self.shown.to_owned(), found, needed: SCHEMA_VERSION, next })
    }

    fn too_old(&self, found: i32) -> SeriesError {
        let next = format!(
            "its address says migrate=no, so apply deploy/scylla/ from number {} on and note the version in schema_version, or take migrate=no away",
            found + 1
        );
        SeriesError::Schema { address: self.shown.to_owned(), found, needed: SCHEMA_VERSION, next }
    }
}

/// The statements of a migration: comments are whole lines, statements end with a semicolon.
fn statements_of(migration: &str) -> Vec<String> {
    let code: Vec<&str> = migration.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    code.join("\n").split(';').map(str::trim).filter(|statement| !statement.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_can_be_repeated_and_names_nothing_that_one_server_alone_knows() {
        for migration in MIGRATIONS {
            let statements = statements_of(migration);
            assert!(!statements.is_empty());
            for statement in statements {
                assert!(statement.starts_with("CREATE TABLE IF NOT EXISTS "), "{statement}");
                for word in ["tablets", "compaction", "caching", "cdc", "per partition", "bypass", "counter"] {
                    assert!(!statement.to_lowercase().contains(word), "{word}: {statement}");
                }
            }
        }
    }
}
