//! What nodes say of themselves: a row for each, in a table whose rows an engine that crashes loses. Stores that an earlier version made get the
//! table when a server of this one opens them.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use super::PostgreSql;
use crate::engine::Said;
use crate::error::Fault;

/// Commits are announced over the same connection: a table that somebody has locked must not hold them up.
const LOCK_TIMEOUT: Duration = Duration::from_millis(300);

/// The row is not waited for on the disk. What was said more than a day ago goes.
const SAY: &str = "\
WITH off AS (SELECT set_config('synchronous_commit', 'off', true)), old AS (
    DELETE FROM {s}.nodes WHERE node <> $1 AND said < clock_timestamp() - interval '1 day'
)
INSERT INTO {s}.nodes (node, words, said) SELECT $1, $2, clock_timestamp() FROM off
ON CONFLICT (node) DO UPDATE SET words = excluded.words, said = excluded.said";

pub(super) const UNSAY: &str = "DELETE FROM {s}.nodes WHERE node = $1";

const SAID: &str = "\
SELECT node, words, greatest(0, (extract(epoch FROM clock_timestamp() - said) * 1000)::bigint) FROM {s}.nodes";

/// Something that a node says of itself, or that it says nothing any more.
#[derive(Debug)]
pub(super) enum Word {
    Say { node: String, words: Vec<u8> },
    Unsay { node: String, done: oneshot::Sender<Result<(), Fault>> },
}

impl Word {
    /// Says it over a connection, which is as it was before when that is done.
    pub(super) async fn over(&self, client: &Client, schema: &str) -> Result<(), Fault> {
        let lock_timeout = format!("SET lock_timeout = {}", LOCK_TIMEOUT.as_millis());
        let said = async {
            match self {
                Self::Say { node, words } => {
                    let values: [(&(dyn ToSql + Sync), Type); 2] = [(node, Type::TEXT), (words, Type::BYTEA)];
                    client.query_typed(&SAY.replace("{s}", schema), &values).await
                }
                Self::Unsay { node, .. } => {
                    client.query_typed(&UNSAY.replace("{s}", schema), &[(node, Type::TEXT)]).await
                }
            }
        };
        // Sent in this order, before the first answer is there.
        let (before, said, behind) = tokio::join!(
            biased;
            client.batch_execute(&lock_timeout),
            said,
            client.batch_execute("RESET lock_timeout")
        );
        before?;
        behind?;
        said?;
        Ok(())
    }

    /// Tells who waits for it what came of it.
    pub(super) fn done(self, said: Result<(), Fault>) {
        if let Self::Unsay { done, .. } = self {
            // Who asked may have given up.
            let _gone = done.send(said);
        }
    }
}

impl PostgreSql {
    pub(super) fn all_said(&self) -> Result<Vec<Said>, Fault> {
        let text = SAID.replace("{s}", self.pool.schema());
        let rows = match self.query(|link| async move { link.client.query_typed(&text, &[]).await }) {
            Ok(rows) => rows,
            // No server of this version has opened the store, or this role may not read it.
            Err(Fault::PostgreSql { error, .. })
                if error.code().is_some_and(|code| {
                    [&SqlState::UNDEFINED_TABLE, &SqlState::INSUFFICIENT_PRIVILEGE].contains(&code)
                }) =>
            {
                Vec::new()
            }
            Err(fault) => return Err(fault),
        };
        let read = |row: &tokio_postgres::Row| -> Result<Said, Fault> {
            let ago = Duration::from_millis(u64::try_from(row.try_get::<_, i64>(2)?).unwrap_or(0));
            Ok(Said { node: row.try_get(0)?, words: row.try_get(1)?, ago })
        };
        rows.iter().map(read).collect()
    }
}
