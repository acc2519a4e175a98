//! What the engine holds: made where nothing is, and looked at before anything is believed.
//!
//! In a schema of its own there are seven tables. `store`: one row with the number of the format. `tables`: the number by which
//! rows name each table. `rows`: the records. `commits`: a row for each commit, which is also the fence. `lease`: which
//! node tries to be the writer. `messages`: what nodes ask each other; `nodes`: what each says of itself. These two have nothing to keep, and stores of
//! before get them when a server opens them.

use std::time::Duration;

use larix_store::TableSpec;
use tokio_postgres::Client;

use super::link::Pool;
use super::milliseconds;
use crate::error::{Fault, OpenError};
use crate::schema::{FORMAT, kind};

/// The oldest PostgreSQL that is used, as `server_version_num` has it.
const OLDEST: i32 = 140_000;
/// The process that makes the tables holds this advisory lock of the engine.
const MAKING_LOCK: i64 = 0x6c61_7269_785f_6b76;

const MAKE: &str = "\
CREATE SCHEMA IF NOT EXISTS {s};
CREATE TABLE {s}.store (one boolean PRIMARY KEY DEFAULT true CHECK (one), format bigint NOT NULL);
CREATE TABLE {s}.tables (name text PRIMARY KEY, t smallint NOT NULL UNIQUE CHECK (t BETWEEN 0 AND 255), kind text NOT NULL);
CREATE TABLE {s}.rows (t smallint NOT NULL, k bytea NOT NULL, v bytea NOT NULL, PRIMARY KEY (t, k));
CREATE TABLE {s}.commits (
    version bigint PRIMARY KEY, epoch bigint NOT NULL, attempt bytea NOT NULL, keys bytea,
    made timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE {s}.lease (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), holder bytea NOT NULL, node text NOT NULL, until timestamptz NOT NULL,
    kept_away bytea, kept_until timestamptz
);
INSERT INTO {s}.store (format) VALUES ({format});
INSERT INTO {s}.commits (version, epoch, attempt, keys) VALUES (0, 1, '', '');";

const MAKE_MESSAGES: &str = "\
CREATE UNLOGGED TABLE {s}.messages (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, recipient bytea NOT NULL, sender bytea NOT NULL, number bigint NOT NULL,
    body bytea NOT NULL, made timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX ON {s}.messages (recipient)";

const MAKE_NODES: &str = "\
CREATE UNLOGGED TABLE {s}.nodes (node text PRIMARY KEY, words bytea NOT NULL, said timestamptz NOT NULL)";

/// Looks at what is there. With `make` an empty schema becomes a store, and tables that are new get numbers.
pub(crate) fn prepare(
    pool: &Pool,
    schema: &str,
    tables: &[TableSpec],
    make: bool,
) -> Result<Vec<u8>, OpenError> {
    let (schema, tables, deadline) = (schema.to_owned(), tables.to_vec(), pool.deadline());
    let result = pool.bare(move |client| async move {
        let prepared = inspect(&client, &schema, &tables, make, deadline).await;
        Ok(prepared)
    });
    match result {
        Ok(Ok(numbers)) => Ok(numbers),
        Ok(Err(Refusal::Open(error))) => Err(error),
        Ok(Err(Refusal::Fault(fault))) | Err(fault) => Err(fault.into_open()),
    }
}

enum Refusal {
    Open(OpenError),
    Fault(Fault),
}

impl From<tokio_postgres::Error> for Refusal {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Fault(error.into())
    }
}

async fn inspect(
    client: &Client,
    schema: &str,
    tables: &[TableSpec],
    make: bool,
    deadline: Duration,
) -> Result<Vec<u8>, Refusal> {
    check_server(client).await?;
    // All who open the store wait for the lock: one that is frozen meanwhile is not to keep it.
    let idle = milliseconds(deadline).clamp(1, i64::from(i32::MAX));
    client
        .batch_execute(&format!(
            "BEGIN; SET LOCAL idle_in_transaction_session_timeout = {idle}; SELECT pg_advisory_xact_lock({MAKING_LOCK})"
        ))
        .await?;
    let row = client
        .query_one(
            "SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = ANY ($2)",
            &[&schema, &["store", "tables", "rows", "commits", "lease"].as_slice()],
        )
        .await?;
    match row.try_get::<_, i64>(0)? {
        0 if make => {
            let text = MAKE.replace("{s}", schema).replace("{format}", &FORMAT.to_string());
            client.batch_execute(&text).await?;
        }
        0 => return Err(Refusal::Open(OpenError::NotAStore { schema: schema.to_owned() })),
        5 => {}
        some => {
            let what = format!(
                "only {some} of the tables store, tables, rows, commits and lease are in the schema \"{schema}\""
            );
            return Err(Refusal::Open(OpenError::Damaged(what)));
        }
    }
    let formats = client.query(&format!("SELECT format FROM {schema}.store"), &[]).await?;
    match formats.as_slice() {
        [row] => match row.try_get::<_, i64>(0)? {
            FORMAT => {}
            found => return Err(Refusal::Open(OpenError::Format { found, supported: FORMAT })),
        },
        _ => return Err(Refusal::Open(OpenError::Damaged(format!("{schema}.store has no single row")))),
    }
    if make {
        if !has_table(client, schema, "messages").await? {
            client.batch_execute(&MAKE_MESSAGES.replace("{s}", schema)).await?;
        }
        // A server works without what nodes say. Its role may have been given the tables of before alone.
        let may_make = "SELECT has_schema_privilege($1, 'CREATE')";
        if !has_table(client, schema, "nodes").await?
            && client.query_one(may_make, &[&schema]).await?.try_get(0)?
        {
            client.batch_execute(&MAKE_NODES.replace("{s}", schema)).await?;
        }
    }
    let numbers = number(client, schema, tables, make).await?;
    client.batch_execute("COMMIT").await?;
    Ok(numbers)
}

/// Refuses a server that is too old, or whose commits are not durable.
async fn check_server(client: &Client) -> Result<(), Refusal> {
    let settings = client
        .query_one(
            "SELECT current_setting('server_version_num')::int, current_setting('server_version'), \
             current_setting('fsync') = 'on'",
            &[],
        )
        .await?;
    if settings.try_get::<_, i32>(0)? < OLDEST {
        return Err(Refusal::Open(OpenError::Old {
            found: settings.try_get(1)?,
            engine: "PostgreSQL",
            oldest: "14",
        }));
    }
    if !settings.try_get::<_, bool>(2)? {
        return Err(Refusal::Open(OpenError::NotDurable));
    }
    Ok(())
}

async fn has_table(client: &Client, schema: &str, name: &str) -> Result<bool, Refusal> {
    let there = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = $2";
    Ok(client.query_opt(there, &[&schema, &name]).await?.is_some())
}

async fn number(client: &Client, schema: &str, tables: &[TableSpec], make: bool) -> Result<Vec<u8>, Refusal> {
    let rows = client.query(&format!("SELECT name, t, kind FROM {schema}.tables ORDER BY t"), &[]).await?;
    let mut known: Vec<(String, u8, String)> = Vec::with_capacity(rows.len());
    for row in &rows {
        let number = u8::try_from(row.try_get::<_, i16>(1)?);
        let number = number.map_err(|_| {
            Refusal::Open(OpenError::Damaged(format!("{schema}.tables has a number above 255")))
        })?;
        known.push((row.try_get(0)?, number, row.try_get(2)?));
    }
    let mut numbers = Vec::new();
    for spec in tables {
        let kind = kind(spec.kind);
        let number = match known.iter().find(|(name, ..)| name == spec.name) {
            Some((_, number, found)) if found == kind => *number,
            Some(_) => return Err(Refusal::Open(OpenError::Kind { table: spec.name.to_owned() })),
            None if make => {
                let next = known.iter().map(|(_, number, _)| number.saturating_add(1)).max().unwrap_or(0);
                client
                    .execute(
                        &format!("INSERT INTO {schema}.tables (name, t, kind) VALUES ($1, $2, $3)"),
                        &[&spec.name, &i16::from(next), &kind],
                    )
                    .await?;
                known.push((spec.name.to_owned(), next, kind.to_owned()));
                next
            }
            None => {
                let what = format!("{schema}.tables does not list \"{}\"", spec.name);
                return Err(Refusal::Open(OpenError::Damaged(what)));
            }
        };
        numbers.push(number);
    }
    Ok(numbers)
}
