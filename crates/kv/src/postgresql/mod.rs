//! PostgreSQL: rows lie in one table, ordered by key; each commit has a row of its own, whose primary key is the fence.

mod address;
mod announcer;
mod link;
mod load;
mod messages;
mod own_connection;
mod presence;
mod schema;
mod statements;
mod tls;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use larix_store::TableSpec;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

pub(crate) use address::{Address, connection_name};
use announcer::Announcer;
use link::{Lease, Link, Pool};
use statements::ask;

use crate::changes;
use crate::engine::{
    Answer, COMMITS_LISTED_MAX, CommitListener, CommitPresence, Engine, EngineSnapshot, HeldLease, Holding,
    Limits, Load, MessageListener, NewCommits, OpenedSnapshot, Proposal, Question, Recipient, RemovedNode,
    Said, Session, Sizes, StoredCommit, commit_deadline,
};
use crate::error::{Fault, OpenError};
use crate::runtime::call;

/// Longest value in bytes: the engine takes a row of up to 1 GB, whole and in memory.
const VALUE_BYTES_MAX: usize = 256 << 20;
/// Most bytes of one commit, for the same reason.
const COMMIT_BYTES_MAX: usize = 512 << 20;

const END_LEASE_OF: &str = "\
UPDATE {s}.lease SET until = clock_timestamp(), kept_away = holder,
    kept_until = clock_timestamp() + $2::bigint * interval '1 millisecond'
WHERE node = $1 AND until > clock_timestamp()";

const END_CONNECTIONS: &str = "\
SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_catalog.pg_stat_activity
WHERE datname = current_database() AND application_name = $1 AND pid <> pg_backend_pid()";

/// A load that was stopped, or whose machine is gone, keeps its rows locked.
const END_OVERTAKEN: &str = "\
SELECT pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity AS session WHERE state = 'idle in transaction' AND pid IN (
    SELECT pid FROM pg_catalog.pg_locks WHERE relation = '{s}.rows'::regclass AND mode = 'RowExclusiveLock'
        AND database = session.datid
) AND datname = current_database() AND application_name LIKE 'larix %' AND pid <> pg_backend_pid()";

/// A schema of a database of PostgreSQL.
#[derive(Debug)]
pub(crate) struct PostgreSql {
    // First, so that it is gone before what it runs on.
    announcer: Announcer,
    pool: Pool,
}

impl PostgreSql {
    /// Looks at what is there, or makes it; gives the number of each table, too.
    pub(crate) fn open(
        address: Address,
        schema: &str,
        limits: Limits,
        tables: &[TableSpec],
        make: bool,
    ) -> Result<(Self, Vec<u8>), OpenError> {
        let pool = Pool::new(address, schema, limits)
            .map_err(|error| OpenError::Unavailable(format!("a thread could not be started: {error}")))?;
        let (own, handle, deadline) = pool.beside();
        call(&handle, deadline * 2, async move { own_connection::check(&own).await })
            .map_err(Fault::into_open)?;
        let numbers = schema::prepare(&pool, schema, tables, make)?;
        Ok((Self { announcer: Announcer::begin(&pool), pool }, numbers))
    }

    /// Rows of one statement.
    fn query<F>(&self, work: impl FnOnce(Arc<Link>) -> F) -> Result<Vec<Row>, Fault>
    where
        F: Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + Send,
    {
        rows(self.pool.lease()?, work)
    }

    /// The same of a question about the lease, which waits for nobody else's.
    fn query_reserved<F>(&self, work: impl FnOnce(Arc<Link>) -> F) -> Result<Vec<Row>, Fault>
    where
        F: Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + Send,
    {
        rows(self.pool.lease_reserved()?, work)
    }
}

fn rows<F>(mut lease: Lease<'_>, work: impl FnOnce(Arc<Link>) -> F) -> Result<Vec<Row>, Fault>
where
    F: Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + Send,
{
    lease.call(|link| {
        let work = work(link);
        async move { Ok(work.await?) }
    })
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        let tls = tls::fault_of(&error);
        Self::PostgreSql { error, tls }
    }
}

fn signed(number: u64) -> Result<i64, Fault> {
    i64::try_from(number).map_err(|_| Fault::Lie("a number above 2^63".to_owned()))
}

fn statement_timeout(time: Duration) -> String {
    format!("SET statement_timeout = {}", milliseconds(time).min(i64::from(i32::MAX)))
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// A transaction of the engine.
#[derive(Debug)]
struct Transaction<'p>(Lease<'p>);

impl EngineSnapshot for Transaction<'_> {
    fn ask(&mut self, questions: Vec<Question>) -> Result<Vec<Vec<Answer>>, Fault> {
        self.0.call(|link| async move {
            try_join_all(questions.into_iter().map(|question| ask(question, &link.client, &link.statements)))
                .await
        })
    }

    fn leave(self: Box<Self>) {
        self.0.leave();
    }
}

impl PostgreSql {
    fn begin_once(&self, known: u64, questions: Vec<Question>) -> Result<OpenedSnapshot<'_>, Fault> {
        let mut lease = self.pool.lease()?;
        let known = signed(known)?;
        lease.in_transaction();
        let (new_commits, answers) = lease.call(|link| async move {
            let begin = async {
                link.client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
                Ok(())
            };
            let newest =
                async { Ok::<_, Fault>(link.client.query(&link.statements.newest, &[&known]).await?) };
            let answers = try_join_all(
                questions.into_iter().map(|question| ask(question, &link.client, &link.statements)),
            );
            // Sent in this order, before the first answer is there.
            let ((), new_commits, answers) = tokio::try_join!(biased; begin, newest, answers)?;
            Ok((new_commits, answers))
        })?;
        let new_commits = list(&mut lease, known, &new_commits)?;
        Ok((Box::new(Transaction(lease)), new_commits, answers))
    }

    /// One statement, which needs no transaction.
    fn since_once(&self, known: u64) -> Result<NewCommits, Fault> {
        let mut lease = self.pool.lease()?;
        let known = signed(known)?;
        let rows = lease
            .call(|link| async move { Ok(link.client.query(&link.statements.newest, &[&known]).await?) })?;
        list(&mut lease, known, &rows)
    }
}

/// The commits that rows tell, from `known` on.
fn list(lease: &mut Lease<'_>, known: i64, rows: &[Row]) -> Result<NewCommits, Fault> {
    let mut new_commits = rows.iter().map(stored).collect::<Result<Vec<_>, _>>()?;
    if new_commits.len() as u64 <= COMMITS_LISTED_MAX {
        return Ok(NewCommits::Listed(new_commits));
    }
    let newest = new_commits.swap_remove(0);
    let row = lease.call(move |link| async move {
        Ok(link.client.query_opt(&link.statements.outcome, &[&known]).await?)
    })?;
    let known = row.map(|row| row.try_get(0)).transpose()?;
    Ok(NewCommits::TooMany { newest, known })
}

/// A commit as a row tells it.
fn stored(row: &Row) -> Result<StoredCommit, Fault> {
    let number = |at: usize| -> Result<u64, Fault> {
        u64::try_from(row.try_get::<_, i64>(at)?)
            .map_err(|_| Fault::Lie("a commit has a number below 0".to_owned()))
    };
    let version = number(0)?;
    let keys = match row.try_get::<_, Option<&[u8]>>(3)? {
        None => None,
        Some(list) => Some(
            changes::decode(list)
                .ok_or_else(|| Fault::Lie(format!("the list of keys of commit {version} cannot be read")))?,
        ),
    };
    Ok(StoredCommit { version, keys, epoch: number(1)?, attempt: row.try_get(2)? })
}

impl Engine for PostgreSql {
    fn trips(&self) -> u64 {
        self.pool.trips()
    }

    fn walks(&self) -> bool {
        true
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            value_bytes_max: VALUE_BYTES_MAX,
            commit_bytes_max: COMMIT_BYTES_MAX,
            why: format!("{} MB are the most that is stored in PostgreSQL", VALUE_BYTES_MAX >> 20),
        }
    }

    fn newest(&self) -> Result<StoredCommit, Fault> {
        let rows =
            self.query(|link| async move { link.client.query(&link.statements.outlook, &[]).await })?;
        stored(rows.first().ok_or_else(|| Fault::Lie("no commit has a row".to_owned()))?)
    }

    fn begin(&self, known: u64, questions: Vec<Question>) -> Result<OpenedSnapshot<'_>, Fault> {
        match self.begin_once(known, questions.clone()) {
            // A connection of the pool that had ended unnoticed. Nothing was read yet, so another one may begin.
            Err(Fault::PostgreSql { error, .. }) if error.is_closed() => self.begin_once(known, questions),
            result => result,
        }
    }

    fn since(&self, known: u64) -> Result<NewCommits, Fault> {
        match self.since_once(known) {
            Err(Fault::PostgreSql { error, .. }) if error.is_closed() => self.since_once(known),
            result => result,
        }
    }

    fn commit(&self, proposal: Proposal) -> Result<bool, Fault> {
        let batch = Batch::new(proposal)?;
        let usual = self.pool.deadline();
        let deadline = commit_deadline(usual, batch.rows(), batch.bytes());
        let mut lease = self.pool.lease()?;
        let _before = lease.was_cut_short();
        let is_made = match deadline == usual {
            true => lease.call(|link| batch.send(link)),
            // The engine is to give up first, so that it is known what became of it.
            false => lease.call_within(deadline + usual, |link| batch.send_within(link, deadline, usual)),
        }?;
        if is_made {
            self.announcer.announce();
            if lease.was_cut_short() {
                return Err(Fault::Unreplicated);
            }
        }
        Ok(is_made)
    }

    fn take_over(&self, attempt: &[u8]) -> Result<u64, Fault> {
        let attempt = attempt.to_vec();
        let rows = self
            .query(|link| async move { link.client.query(&link.statements.take_over, &[&attempt]).await })?;
        let epoch = rows.first().map(|row| row.try_get::<_, i64>(1)).transpose()?;
        // Nothing of theirs is let in any more. The engine may not let this user end sessions of another one's.
        let overtaken = END_OVERTAKEN.replace("{s}", self.pool.schema());
        let _ended = self.query(|link| async move { link.client.query(&overtaken, &[]).await });
        // The one that wrote until now is not to go on with what it remembers.
        self.announcer.announce();
        let lie = || Fault::Lie("no commit has a row".to_owned());
        epoch.and_then(|epoch| u64::try_from(epoch).ok()).ok_or_else(lie)
    }

    fn settle(&self, version: u64, attempt: &[u8], void: &[u8]) -> Result<bool, Fault> {
        let (number, void) = (signed(version)?, void.to_vec());
        let mut lease = self.pool.lease()?;
        lease.call(move |link| async move {
            // Waits for the commit if it is still being made.
            Ok(link.client.execute(&link.statements.settle, &[&(number - 1), &void]).await?)
        })?;
        let row = lease.call(move |link| async move {
            Ok(link.client.query_opt(&link.statements.outcome, &[&number]).await?)
        })?;
        match row {
            Some(row) if row.try_get::<_, &[u8]>(0)? == attempt => {
                // Its answer was lost, so nobody has told the other nodes.
                self.announcer.announce();
                // A backend that was ended while it waited for a standby left what the standby may lack. A write behind it is
                // acknowledged when both are there.
                let _before = lease.was_cut_short();
                lease.call(
                    |link| async move { Ok(link.client.execute(&link.statements.confirm, &[]).await?) },
                )?;
                if lease.was_cut_short() { Err(Fault::Unreplicated) } else { Ok(true) }
            }
            Some(_) => Ok(false),
            None => Err(Fault::Lie(format!("commit {version} has no row"))),
        }
    }

    fn holds(&self, version: u64, attempt: &[u8]) -> Result<CommitPresence, Fault> {
        let number = signed(version)?;
        let mut lease = self.pool.lease()?;
        let row = lease.call(move |link| async move {
            Ok(link.client.query_opt(&link.statements.outcome, &[&number]).await?)
        })?;
        let held = match row {
            Some(row) if row.try_get::<_, &[u8]>(0)? == attempt => CommitPresence::Present,
            Some(_) => CommitPresence::Replaced,
            None => {
                let rows = lease.call(|link| async move {
                    Ok(link.client.query(&link.statements.outlook, &[]).await?)
                })?;
                let newest = rows.first().map(stored).transpose()?;
                CommitPresence::Absent { newest: newest.map_or(0, |newest| newest.version) }
            }
        };
        if held != CommitPresence::Present && !held.is_too_old(version) {
            lease.leave();
        }
        Ok(held)
    }

    fn counts(&self) -> Result<Vec<(u8, u64)>, Fault> {
        let rows = self.query(|link| async move { link.client.query(&link.statements.counts, &[]).await })?;
        let read = |row: &Row| -> Result<(u8, u64), Fault> {
            let (table, count) = (row.try_get::<_, i16>(0)?, row.try_get::<_, i64>(1)?);
            Ok((u8::try_from(table).unwrap_or(u8::MAX), u64::try_from(count).unwrap_or(0)))
        };
        rows.iter().map(read).collect()
    }

    fn load(&self, epoch: u64, tables: &[u8]) -> Result<Option<Box<dyn Load + '_>>, Fault> {
        let telling = announcer::telling(&self.pool);
        let load = load::Loading::begin((self.pool.lease()?, telling), signed(epoch)?, tables)?;
        Ok(load.map(|load| Box::new(load) as Box<dyn Load + '_>))
    }

    fn lease(&self) -> Result<Option<HeldLease>, Fault> {
        let rows =
            self.query_reserved(|link| async move { link.client.query(&link.statements.lease, &[]).await })?;
        let Some(row) = rows.first() else { return Ok(None) };
        let left = Duration::from_millis(u64::try_from(row.try_get::<_, i64>(2)?).unwrap_or(0));
        Ok(Some(HeldLease { holder: row.try_get(0)?, node: row.try_get(1)?, left }))
    }

    fn hold_lease(&self, holder: &[u8], node: &str, time: Duration) -> Result<Holding, Fault> {
        let (holder, node, time) = (holder.to_vec(), node.to_owned(), milliseconds(time));
        let held = self.query_reserved(|link| async move {
            let values: [&(dyn ToSql + Sync); 3] = [&holder, &node, &time];
            link.client.query(&link.statements.hold_lease, &values).await
        })?;
        let Some(row) = held.first() else { return Ok(Holding::Others) };
        if !row.try_get::<_, bool>(2)? {
            return Err(Fault::NotDurable);
        }
        Ok(if row.try_get::<_, Option<bool>>(1)? == Some(true) { Holding::Still } else { Holding::Anew })
    }

    fn release_lease(&self, holder: &[u8]) -> Result<(), Fault> {
        let holder = holder.to_vec();
        self.query_reserved(|link| async move {
            link.client.query(&link.statements.release_lease, &[&holder]).await
        })
        .map(drop)
    }

    fn end_lease(&self, kept_away: Duration) -> Result<bool, Fault> {
        let time = milliseconds(kept_away);
        let mut lease = self.pool.lease()?;
        let ended = lease
            .call(|link| async move { Ok(link.client.execute(&link.statements.end_lease, &[&time]).await?) });
        Ok(ended? > 0)
    }

    fn remove(&self, node: &str, name: &str, kept_away: Duration) -> Result<RemovedNode, Fault> {
        let (node, name, time) = (node.to_owned(), connection_name(name), milliseconds(kept_away));
        let text = END_LEASE_OF.replace("{s}", self.pool.schema());
        let unsay = presence::UNSAY.replace("{s}", self.pool.schema());
        self.pool.bare(move |client| async move {
            let held = client.execute(&text, &[&node, &time]).await? > 0;
            let row = client.query_one(END_CONNECTIONS, &[&name]).await?;
            let connections = u64::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0);
            // A store of an earlier version has no such table.
            let _unsaid = client.execute(&unsay, &[&node]).await;
            Ok(RemovedNode { held_lease: held, connections })
        })
    }

    fn sessions(&self) -> Result<Vec<Session>, Fault> {
        let rows =
            self.query(|link| async move { link.client.query(&link.statements.sessions, &[]).await })?;
        let read = |row: &Row| -> Result<Session, Fault> {
            let connections: i64 = row.try_get(1)?;
            Ok(Session { name: row.try_get(0)?, connections: u64::try_from(connections).unwrap_or(0) })
        };
        rows.iter().map(read).collect()
    }

    fn say(&self, node: &str, words: &[u8]) -> Result<(), Fault> {
        self.announcer.say(presence::Word::Say { node: node.to_owned(), words: words.to_vec() });
        Ok(())
    }

    fn unsay(&self, node: &str) -> Result<(), Fault> {
        self.announcer.unsay(node.to_owned())
    }

    fn said(&self) -> Result<Vec<Said>, Fault> {
        self.all_said()
    }

    fn send(&self, own: &[u8], to: Recipient<'_>, number: u64, body: Vec<u8>) -> Result<(), Fault> {
        messages::send(&self.pool, own, to, number, body)
    }

    fn listen(&self) -> Result<Box<dyn MessageListener>, Fault> {
        Ok(Box::new(messages::Listener::begin(&self.pool)?))
    }

    fn listen_to_commits(&self) -> Result<Box<dyn CommitListener>, Fault> {
        Ok(Box::new(announcer::listen(&self.pool)?))
    }
}

/// Keys, each in the table of the number beside it.
#[derive(Default)]
struct Keys {
    tables: Vec<i16>,
    keys: Vec<Box<[u8]>>,
}

impl Keys {
    fn push(&mut self, table: u8, key: Box<[u8]>) {
        self.tables.push(i16::from(table));
        self.keys.push(key);
    }
}

/// A commit as it is sent.
struct Batch {
    version: i64,
    continues: Vec<u8>,
    epoch: i64,
    attempt: Vec<u8>,
    keys: Option<Vec<u8>>,
    deletes: Keys,
    puts: Keys,
    values: Vec<Arc<[u8]>>,
    trimmed: i64,
}

impl Batch {
    fn new(proposal: Proposal) -> Result<Self, Fault> {
        let (mut deletes, mut puts, mut values) = (Keys::default(), Keys::default(), Vec::new());
        proposal.deletes.into_iter().for_each(|(table, key)| deletes.push(table, key));
        for ((table, key), value) in proposal.puts {
            puts.push(table, key);
            values.push(value);
        }
        Ok(Self {
            version: signed(proposal.version)?,
            continues: proposal.continues.unwrap_or_default(),
            epoch: signed(proposal.epoch)?,
            attempt: proposal.attempt,
            keys: proposal.keys,
            deletes,
            puts,
            values,
            trimmed: signed(proposal.trimmed)?,
        })
    }

    fn rows(&self) -> usize {
        self.deletes.keys.len() + self.puts.keys.len()
    }

    fn bytes(&self) -> usize {
        self.values.iter().map(|value| value.len()).sum()
    }

    /// The same as [`Self::send`], for a large one: the engine takes longer for it than for one answer. From then on it takes the usual
    /// time.
    async fn send_within(self, link: Arc<Link>, deadline: Duration, usual: Duration) -> Result<bool, Fault> {
        let limit = |time: Duration| {
            let (link, text) = (Arc::clone(&link), statement_timeout(time));
            async move { Ok::<(), Fault>(link.client.batch_execute(&text).await?) }
        };
        let (made, is_as_before) =
            between(limit(deadline), self.send(Arc::clone(&link)), limit(usual)).await?;
        if !is_as_before {
            link.spend();
        }
        made
    }

    /// Whether it was let in.
    async fn send(self, link: Arc<Link>) -> Result<bool, Fault> {
        let deletes: Vec<&[u8]> = self.deletes.keys.iter().map(AsRef::as_ref).collect();
        let puts: Vec<&[u8]> = self.puts.keys.iter().map(AsRef::as_ref).collect();
        let values: Vec<&[u8]> = self.values.iter().map(AsRef::as_ref).collect();
        let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![
            &self.version,
            &self.epoch,
            &self.attempt,
            &self.keys,
            &self.puts.tables,
            &puts,
            &values,
            &self.continues,
        ];
        let (removes, trims) = (!deletes.is_empty(), self.trimmed > 0);
        if removes || trims {
            parameters.push(&self.deletes.tables);
            parameters.push(&deletes);
        }
        if trims {
            parameters.push(&self.trimmed);
        }
        let statement = match (removes, trims) {
            (_, true) => &link.statements.commit_and_trim,
            (true, false) => &link.statements.commit_and_remove,
            (false, false) => &link.statements.commit,
        };
        Ok(link.client.query_opt(statement, &parameters).await?.is_some())
    }
}

/// Carries out `work` between two steps: what came of it, and whether the last step succeeded. The last step says nothing about the
/// work: somebody may cancel it when the engine has committed already.
///
/// # Errors
/// The first step fails, and nothing was begun.
async fn between<T>(
    before: impl Future<Output = Result<(), Fault>>,
    work: impl Future<Output = Result<T, Fault>>,
    behind: impl Future<Output = Result<(), Fault>>,
) -> Result<(Result<T, Fault>, bool), Fault> {
    before.await?;
    let done = work.await;
    Ok((done, behind.await.is_ok()))
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[test]
    fn a_commit_is_what_the_engine_says_of_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a loop");
        // The outcome, and whether the connection is still of use; none: nothing was sent.
        for (before, work, behind, expected) in [
            (true, true, true, Some((true, true))),
            (true, true, false, Some((true, false))),
            (true, false, true, Some((false, true))),
            (true, false, false, Some((false, false))),
            (false, true, true, None),
        ] {
            let step = |succeeds: bool| ready(if succeeds { Ok(()) } else { Err(Fault::Ended) });
            let done = runtime.block_on(between(step(before), step(work), step(behind)));
            let found = done.ok().map(|(made, is_as_before)| (made.is_ok(), is_as_before));
            assert_eq!(found, expected, "{before} {work} {behind}");
        }
    }
}
