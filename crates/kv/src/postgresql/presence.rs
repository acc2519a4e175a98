//! What nodes say of themselves: a row for each, in a table whose rows an engine that crashes loses. Stores that an earlier version made get the
//! table when a server of this one opens them.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use super::PostgreSql;
use crate::engine::Said;
use crate::error::Fault;

/// Who says something holds the lease: a table that somebody has locked must not cost the node the right to write.
const SAY_DEADLINE: Duration = Duration::from_millis(300);

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

impl PostgreSql {
    pub(super) fn say_of(&self, node: &str, words: &[u8]) -> Result<(), Fault> {
        let (text, node, words) = (SAY.replace("{s}", self.pool.schema()), node.to_owned(), words.to_vec());
        let mut link = self.pool.lease_reserved()?;
        let said = link.call_within(SAY_DEADLINE, |link| async move {
            let values: [(&(dyn ToSql + Sync), Type); 2] = [(&node, Type::TEXT), (&words, Type::BYTEA)];
            Ok(link.client.query_typed(&text, &values).await?)
        });
        said.map(drop)
    }

    pub(super) fn unsay_of(&self, node: &str) -> Result<(), Fault> {
        let (text, node) = (UNSAY.replace("{s}", self.pool.schema()), node.to_owned());
        let gone = self.query_reserved(|link| async move {
            link.client.query_typed(&text, &[(&node, Type::TEXT)]).await
        });
        gone.map(drop)
    }

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
