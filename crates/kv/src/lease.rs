//! Who tries to be the writer: one row with a time by the engine's clock. It decides nothing but who tries: the fence in each
//! commit keeps everybody else out, whatever this row says.

use std::sync::atomic::Ordering;
use std::time::Duration;

use larix_store::ReadError;

use crate::address::connection_name;
use crate::error::Fault;
use crate::store::{KvStore, RESIGNED};
use crate::view::View;

/// Longest URL of a node, in bytes.
pub const NODE_BYTES_MAX: usize = 400;

/// What the engine says of the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The URL of the node that holds it; none where no node holds it now.
    pub leader: Option<String>,
    /// Whether this handle does.
    pub is_own: bool,
    /// How long it still lasts.
    pub left: Duration,
}

/// What a node lost when it was [removed](KvStore::remove).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    pub held_lease: bool,
    /// Connections to the engine.
    pub connections: u64,
}

const END_LEASE_OF: &str = "\
UPDATE {s}.lease SET until = clock_timestamp(), kept_away = holder,
    kept_until = clock_timestamp() + $2::bigint * interval '1 millisecond'
WHERE node = $1 AND until > clock_timestamp()";

const END_CONNECTIONS: &str = "\
SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_catalog.pg_stat_activity
WHERE datname = current_database() AND application_name = $1 AND pid <> pg_backend_pid()";

/// A node that is connected to the engine's database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// As its connections are named there.
    pub name: String,
    pub connections: u64,
}

impl KvStore {
    /// The lease as it is.
    ///
    /// # Errors
    /// The engine cannot be asked.
    pub fn lease(&self) -> Result<Lease, ReadError> {
        let mut link = self.pool.lease().map_err(Fault::into_read)?;
        let row = link
            .call(|link| async move { Ok(link.client.query_opt(&link.statements.lease, &[]).await?) })
            .map_err(Fault::into_read)?;
        let none = Lease { leader: None, is_own: false, left: Duration::ZERO };
        let Some(row) = row else { return Ok(none) };
        let read = || -> Result<Lease, Fault> {
            let holder: &[u8] = row.try_get(0)?;
            let milliseconds: i64 = row.try_get(2)?;
            let left = Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0));
            if left.is_zero() {
                return Ok(Lease { leader: None, is_own: false, left });
            }
            Ok(Lease { leader: Some(row.try_get(1)?), is_own: holder == self.holder(), left })
        };
        read().map_err(Fault::into_read)
    }

    /// Takes the lease for so long if nobody holds it, or makes its own last so long. Whether it is this handle's now.
    ///
    /// # Errors
    /// The engine cannot be asked. The lease may be this handle's all the same.
    pub fn hold_lease(&self, node: &str, time: Duration) -> Result<bool, ReadError> {
        let mut link = self.pool.lease().map_err(Fault::into_read)?;
        let (holder, node) = (self.holder(), node.to_owned());
        let milliseconds = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let held = link.call(|link| async move {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&holder, &node, &milliseconds];
            Ok(link.client.query_opt(&link.statements.hold_lease, &values).await?)
        });
        Ok(held.map_err(Fault::into_read)?.is_some())
    }

    /// Gives the lease up, if it is this handle's: another one need not wait for its end.
    ///
    /// # Errors
    /// The engine cannot be asked. The lease ends by itself then.
    pub fn release_lease(&self) -> Result<(), ReadError> {
        let mut link = self.pool.lease().map_err(Fault::into_read)?;
        let holder = self.holder();
        link.call(
            |link| async move { Ok(link.client.execute(&link.statements.release_lease, &[&holder]).await?) },
        )
        .map(|_| ())
        .map_err(Fault::into_read)
    }

    /// Ends the lease, whose ever it is, and keeps its holder from taking it for so long. Whether somebody held it.
    ///
    /// # Errors
    /// The engine cannot be asked.
    pub fn end_lease(&self, kept_away: Duration) -> Result<bool, ReadError> {
        let mut link = self.pool.lease().map_err(Fault::into_read)?;
        let milliseconds = i64::try_from(kept_away.as_millis()).unwrap_or(i64::MAX);
        let ended = link.call(|link| async move {
            Ok(link.client.execute(&link.statements.end_lease, &[&milliseconds]).await?)
        });
        Ok(ended.map_err(Fault::into_read)? > 0)
    }

    /// Takes a node out for now: ends its lease, keeps it from taking that for so long, and ends its connections to the engine.
    /// A server that still runs connects again. `name` is what [`crate::KvOptions::name`] was at the node.
    ///
    /// # Errors
    /// The engine cannot be asked, or does not let this user end connections of the other one's.
    pub fn remove(&self, node: &str, name: &str, kept_away: Duration) -> Result<Removed, ReadError> {
        let milliseconds = i64::try_from(kept_away.as_millis()).unwrap_or(i64::MAX);
        let (node, name) = (node.to_owned(), connection_name(name));
        let text = END_LEASE_OF.replace("{s}", self.pool.schema());
        let removed = self.pool.bare(move |client| async move {
            let held = client.execute(&text, &[&node, &milliseconds]).await? > 0;
            let row = client.query_one(END_CONNECTIONS, &[&name]).await?;
            let connections = u64::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0);
            Ok(Removed { held_lease: held, connections })
        });
        removed.map_err(Fault::into_read)
    }

    /// The servers that are connected to the engine's database, by the names of their connections.
    ///
    /// # Errors
    /// The engine cannot be asked.
    pub fn sessions(&self) -> Result<Vec<Session>, ReadError> {
        let mut link = self.pool.lease().map_err(Fault::into_read)?;
        let rows = link
            .call(|link| async move { Ok(link.client.query(&link.statements.sessions, &[]).await?) })
            .map_err(Fault::into_read)?;
        let read = |row: &tokio_postgres::Row| -> Result<Session, Fault> {
            let connections: i64 = row.try_get(1)?;
            Ok(Session { name: row.try_get(0)?, connections: u64::try_from(connections).unwrap_or(0) })
        };
        rows.iter().map(|row| read(row).map_err(Fault::into_read)).collect()
    }

    /// Has no right to commit any more, until it [takes over](KvStore::take_over) again.
    pub fn resign(&self) {
        self.forget_epoch();
    }

    /// Asks the engine which commits are new, so that reads here see them.
    ///
    /// # Errors
    /// The engine cannot be asked.
    pub fn hear(&self) -> Result<(), ReadError> {
        View::open(self, true).map(|view| view.end()).map_err(Fault::into_read)
    }

    /// Whether this handle may commit, as far as it knows.
    pub fn leads(&self) -> bool {
        self.epoch().is_ok()
    }

    /// Round trips so far that somebody has waited for.
    pub fn trips(&self) -> u64 {
        self.pool.trips()
    }

    fn holder(&self) -> Vec<u8> {
        self.handle().to_vec()
    }
}

impl KvStore {
    fn forget_epoch(&self) {
        let own = self.own_epoch();
        if own.load(Ordering::Acquire) != 0 {
            own.store(RESIGNED, Ordering::Release);
        }
        self.doubt();
    }
}
