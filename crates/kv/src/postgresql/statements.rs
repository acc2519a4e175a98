//! What is asked of the engine, in its words. Everything about rows is half-open ranges of keys in one table.

use std::time::Duration;

use futures_util::future::try_join_all;
use tokio_postgres::{Client, Statement};

use super::address::OWN_PATH;
use crate::engine::{ANSWER_BYTES_MAX, Answer, COMMITS_LISTED_MAX, FIRSTS as RECORDS_FIRST, Question};
use crate::error::Fault;

/// A field of [`Statements`] for each statement, with its text.
macro_rules! statements {
    ($($field:ident: $text:expr),+ $(,)?) => {
        /// The statements of a connection.
        #[derive(Debug)]
        pub(crate) struct Statements {
            $(pub(crate) $field: Statement),+
        }

        impl Statements {
            /// The texts, in the order of the fields.
            fn texts(schema: &str) -> Vec<String> {
                vec![$(with_names($text.as_ref(), schema)),+]
            }

            /// The statements in that order; none where there are too few.
            fn of(prepared: Vec<Statement>) -> Option<Self> {
                let mut prepared = prepared.into_iter();
                Some(Self { $($field: prepared.next()?),+ })
            }
        }
    };
}

statements! {
    newest: NEWEST,
    outlook: OUTLOOK,
    commit: commit("", ""),
    commit_and_remove: commit(REMOVES, ""),
    commit_and_trim: commit(REMOVES, TRIMS),
    take_over: TAKE_OVER,
    settle: SETTLE,
    outcome: OUTCOME,
    confirm: CONFIRM,
    values: VALUES,
    forward: FORWARD,
    backward: BACKWARD,
    firsts: FIRSTS,
    lasts: LASTS,
    path: PATH,
    counts: COUNTS,
    clear: CLEAR,
    append: APPEND,
    loaded: LOADED,
    ends: ENDS,
    lease: LEASE,
    hold_lease: HOLD_LEASE,
    release_lease: RELEASE_LEASE,
    end_lease: END_LEASE,
    sessions: SESSIONS,
}

/// What is acknowledged is on the disk. Somebody may have turned that off for the whole engine since the connection was made, and other values
/// than `off` say which standbys are waited for, too.
const DURABLE: &str = "\
CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END";

/// The newest commits down to the known one, $1, the newest first.
const NEWEST: &str = "SELECT version, epoch, attempt, keys FROM {s}.commits WHERE version >= $1 ORDER BY version DESC LIMIT {told}";

const OUTLOOK: &str = "SELECT version, epoch, attempt, keys FROM {s}.commits ORDER BY version DESC LIMIT 1";

/// The fence and the changes in one: nothing of them happens unless the row behind version $1 is ours to write. The primary
/// key lets one writer in; rows of a later epoch keep those of earlier ones out. That row has to be the one that attempt $8 made: where
/// commits were lost, another writer may have come as far in an epoch of the same number. {removes}: [`REMOVES`] or nothing, as most
/// changes remove no row and the engine needs a tenth of its time for it all the same. {trims}: [`TRIMS`] or nothing.
const COMMIT: &str = "\
WITH fence AS (
    INSERT INTO {s}.commits (version, epoch, attempt, keys)
    SELECT version + 1, $2, $3, $4 FROM {s}.commits WHERE version = $1 AND epoch <= $2 AND attempt = $8
    RETURNING version
), put AS (
    INSERT INTO {s}.rows (t, k, v)
    SELECT t, k, v FROM unnest($5::smallint[], $6::bytea[], $7::bytea[]) AS p (t, k, v) WHERE EXISTS (SELECT 1 FROM fence)
    ON CONFLICT (t, k) DO UPDATE SET v = excluded.v
){removes}{trims}
SELECT version, {durable} FROM fence";

/// A commit that also removes rows: those of $9 and $10. Where the engine knows of next to no rows, `rows.t = d.t` is reason enough for it to go
/// through all of the key and look each of them up in the arrays, so that this is no equality.
const REMOVES: &str = "\
, gone AS (
    DELETE FROM {s}.rows USING unnest($9::smallint[], $10::bytea[]) AS d (t, k)
    WHERE rows.t = ANY (ARRAY[d.t]) AND rows.k = d.k AND EXISTS (SELECT 1 FROM fence)
)";

/// A commit that also removes old ones: those below $11.
const TRIMS: &str = "\
, trimmed AS (
    DELETE FROM {s}.commits WHERE version < $11 AND EXISTS (SELECT 1 FROM fence)
)";

const TAKE_OVER: &str = "\
INSERT INTO {s}.commits (version, epoch, attempt, keys)
SELECT version + 1, epoch + 1, $1, ''::bytea FROM {s}.commits ORDER BY version DESC LIMIT 1
RETURNING version, epoch, {durable}";

/// Takes the place that a commit without an answer wants, unless it is taken. Waits for one that is being made.
const SETTLE: &str = "\
INSERT INTO {s}.commits (version, epoch, attempt, keys)
SELECT version + 1, epoch, $2, ''::bytea FROM {s}.commits WHERE version = $1
ON CONFLICT (version) DO NOTHING
RETURNING {durable}";

const OUTCOME: &str = "SELECT attempt FROM {s}.commits WHERE version = $1";

/// Changes nothing, and is acknowledged as any commit is: with all that lies before it where standbys are waited for.
const CONFIRM: &str = "UPDATE {s}.store SET format = format RETURNING {durable}";

/// Not a join, as which the engine may look at all rows of the table $1 for each key where it thinks that there are few.
const VALUES: &str = "\
SELECT w.i, r.v FROM unnest($2::bytea[]) WITH ORDINALITY AS w (k, i) CROSS JOIN LATERAL (
    SELECT v FROM {s}.rows WHERE t = $1 AND rows.k = w.k LIMIT 1
) AS r";

const FORWARD: &str = "\
SELECT k, v FROM (
    SELECT k, v, sum(octet_length(v)) OVER (ORDER BY k) - octet_length(v) AS before FROM (
        SELECT k, v FROM {s}.rows WHERE t = $1 AND k >= $2 AND k < $3 ORDER BY k LIMIT $4
    ) AS few
) AS sized WHERE before < {bytes} ORDER BY k";

const BACKWARD: &str = "\
SELECT k, v FROM (
    SELECT k, v, sum(octet_length(v)) OVER (ORDER BY k DESC) - octet_length(v) AS before FROM (
        SELECT k, v FROM {s}.rows WHERE t = $1 AND k >= $2 AND k < $3 ORDER BY k DESC LIMIT $4
    ) AS few
) AS sized WHERE before < {bytes} ORDER BY k DESC";

/// For each key the first records from there on.
const FIRSTS: &str = "\
SELECT w.i, r.k, r.v FROM unnest($2::bytea[]) WITH ORDINALITY AS w (k, i) CROSS JOIN LATERAL (
    SELECT k, v FROM {s}.rows WHERE t = $1 AND rows.k >= w.k ORDER BY rows.k LIMIT {firsts}
) AS r";

/// For each key the last record before it.
const LASTS: &str = "\
SELECT w.i, r.k, r.v FROM unnest($2::bytea[]) WITH ORDINALITY AS w (k, i) CROSS JOIN LATERAL (
    SELECT k, v FROM {s}.rows WHERE t = $1 AND rows.k < w.k ORDER BY rows.k DESC LIMIT 1
) AS r";

/// Rows that lead from one to the next: the key of each is the id that the value before begins with, and the next step. Beside each
/// the record of its id in the table $2.
const PATH: &str = "\
WITH RECURSIVE way (i, id, v) AS (
    SELECT 0, $3::bytea, ''::bytea
    UNION ALL
    SELECT way.i + 1, substring(r.v FROM 1 FOR 8), r.v FROM way CROSS JOIN LATERAL (
        SELECT v FROM {s}.rows WHERE t = $1 AND k = way.id || ($4::bytea[])[way.i + 1] LIMIT 1
    ) AS r
)
SELECT way.i::bigint, way.v, entry.v FROM way LEFT JOIN LATERAL (
    SELECT v FROM {s}.rows WHERE t = $2 AND k = way.id LIMIT 1
) AS entry ON true WHERE way.i > 0";

const COUNTS: &str = "SELECT t, count(*) FROM {s}.rows GROUP BY t";

const CLEAR: &str = "DELETE FROM {s}.rows WHERE t = $1";

const APPEND: &str = "\
INSERT INTO {s}.rows (t, k, v) SELECT t, k, v FROM unnest($1::smallint[], $2::bytea[], $3::bytea[]) AS p (t, k, v)
ON CONFLICT (t, k) DO UPDATE SET v = excluded.v";

const LOADED: &str = "\
INSERT INTO {s}.commits (version, epoch, attempt, keys)
SELECT version + 1, $2, $3, NULL FROM {s}.commits WHERE version = $1 AND epoch <= $2
RETURNING version, {durable}";

/// Of each table its last key.
const ENDS: &str = "\
SELECT n.t, r.k FROM unnest($1::smallint[]) AS n (t) CROSS JOIN LATERAL (
    SELECT k FROM {s}.rows WHERE rows.t = n.t ORDER BY k DESC LIMIT 1
) AS r";

const LEASE: &str = "\
SELECT holder, node, greatest(0, (extract(epoch FROM until - clock_timestamp()) * 1000)::bigint) FROM {s}.lease";

/// A lost lease does no harm, so the row is not waited for on the disk. Says whether the holder is the one before, and whether the engine waits
/// for the disk at all.
const HOLD_LEASE: &str = "\
INSERT INTO {s}.lease AS l (holder, node, until)
VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 millisecond')
ON CONFLICT (one) DO UPDATE SET holder = excluded.holder, node = excluded.node, until = excluded.until
WHERE (l.holder = excluded.holder OR l.until < clock_timestamp())
    AND (l.kept_away IS DISTINCT FROM excluded.holder OR l.kept_until < clock_timestamp())
RETURNING set_config('synchronous_commit', 'off', true), (SELECT before.holder = $1 FROM {s}.lease AS before),
    current_setting('fsync') = 'on'";

const RELEASE_LEASE: &str = "UPDATE {s}.lease SET until = clock_timestamp() WHERE holder = $1";

const END_LEASE: &str = "\
UPDATE {s}.lease SET until = clock_timestamp(), kept_away = holder,
    kept_until = clock_timestamp() + $1::bigint * interval '1 millisecond'
WHERE until > clock_timestamp()";

const SESSIONS: &str = "\
SELECT application_name, count(*) FROM pg_catalog.pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'larix %' GROUP BY application_name ORDER BY application_name";

fn commit(removes: &str, trims: &str) -> String {
    COMMIT.replace("{removes}", removes).replace("{trims}", trims)
}

/// Each statement goes by primary keys to the rows that it names. The planner would choose by what it knew of the tables when they were
/// analyzed last, which may have been when they had a hundred rows, and keep that choice for all that come later. So it is left no
/// other way than the keys. It makes one plan of each statement, whatever the parameters: to make a plan takes as long as a small commit.
const GO_BY_KEYS: &str = "\
SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; \
SET enable_material = off; SET plan_cache_mode = force_generic_plan; SET jit = off";

fn with_names(text: &str, schema: &str) -> String {
    text.replace("{s}", schema)
        .replace("{durable}", DURABLE)
        .replace("{told}", &(COMMITS_LISTED_MAX + 1).to_string())
        .replace("{firsts}", &RECORDS_FIRST.to_string())
        .replace("{bytes}", &ANSWER_BYTES_MAX.to_string())
}

impl Statements {
    /// All in one round trip: who holds the right to write may need a new connection to keep it, while each answer is slow.
    pub(crate) async fn prepare(client: &Client, schema: &str, deadline: Duration) -> Result<Self, Fault> {
        let milliseconds = deadline.as_millis();
        let settings = format!(
            "{OWN_PATH}; SET statement_timeout = {milliseconds}; SET lock_timeout = {milliseconds}; \
             SET idle_in_transaction_session_timeout = '10min'; SET bytea_output = 'hex'; \
             SET client_min_messages = 'warning'; {GO_BY_KEYS}; \
             SELECT set_config('synchronous_commit', 'on', false) \
             WHERE current_setting('synchronous_commit') = 'off'"
        );
        let texts = Self::texts(schema);
        let prepared = try_join_all(texts.iter().map(|text| client.prepare(text)));
        // Sent in this order, before the first answer is there.
        let ((), prepared) = tokio::try_join!(biased; client.batch_execute(&settings), prepared)?;
        Self::of(prepared).ok_or_else(|| Fault::Lie("fewer statements than were sent".to_owned()))
    }
}

/// Answers a question about rows.
pub(crate) async fn ask(
    question: Question,
    client: &Client,
    statements: &Statements,
) -> Result<Vec<Answer>, Fault> {
    let rows = match &question {
        Question::Values { table, keys } => {
            client.query(&statements.values, &[&i16::from(*table), keys]).await?
        }
        Question::Forward { table, from, to, limit } => {
            client.query(&statements.forward, &[&i16::from(*table), from, to, &i64::from(*limit)]).await?
        }
        Question::Backward { table, from, to, limit } => {
            client.query(&statements.backward, &[&i16::from(*table), from, to, &i64::from(*limit)]).await?
        }
        Question::Firsts { table, ranges } => {
            let keys: Vec<&[u8]> = ranges.iter().map(|(from, _)| &**from).collect();
            client.query(&statements.firsts, &[&i16::from(*table), &keys]).await?
        }
        Question::Path { table, records, from, steps } => {
            let (table, records) = (i16::from(*table), i16::from(*records));
            client.query(&statements.path, &[&table, &records, from, steps]).await?
        }
        Question::Lasts { table, ranges } => {
            let keys: Vec<&[u8]> = ranges.iter().map(|(_, to)| &**to).collect();
            client.query(&statements.lasts, &[&i16::from(*table), &keys]).await?
        }
    };
    let mut answers = Vec::with_capacity(rows.len());
    for row in &rows {
        // The reader of the answer knows the keys of a path.
        let on_path = |place, value| Answer { place, key: Vec::new(), value };
        let place = |row: &tokio_postgres::Row| -> Result<usize, Fault> {
            usize::try_from(row.try_get::<_, i64>(0)? - 1)
                .map_err(|_| Fault::Lie("a place below 1".to_owned()))
        };
        let answer = match &question {
            Question::Values { keys, .. } => {
                let place = place(row)?;
                let key = keys
                    .get(place)
                    .cloned()
                    .ok_or_else(|| Fault::Lie("a key nobody asked for".to_owned()))?;
                Answer { place, key, value: row.try_get(1)? }
            }
            Question::Forward { .. } | Question::Backward { .. } => {
                Answer { place: 0, key: row.try_get(0)?, value: row.try_get(1)? }
            }
            Question::Path { steps, .. } => {
                let place = place(row)?;
                if let Some(record) = row.try_get(2)? {
                    answers.push(on_path(steps.len() + place, record));
                }
                on_path(place, row.try_get(1)?)
            }
            Question::Firsts { .. } | Question::Lasts { .. } => {
                Answer { place: place(row)?, key: row.try_get(1)?, value: row.try_get(2)? }
            }
        };
        answers.push(answer);
    }
    Ok(answers)
}
