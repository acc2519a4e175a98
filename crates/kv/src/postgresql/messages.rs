//! Messages between nodes lie in a table. A notification says that there are any. An engine that crashes loses them.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};

use super::link::{self, Pool};
use crate::engine::{Message, MessageListener, OLDEST_MESSAGE, Recipient};
use crate::error::Fault;

/// Nothing is lost with it that a deadline does not mend, so the row is not waited for on the disk.
const SEND: &str = "\
WITH put AS (INSERT INTO {s}.messages (recipient, sender, number, body) VALUES ($1, $2, $3, $4))
SELECT pg_notify('{channel}', ''), set_config('synchronous_commit', 'off', true)";

const TAKE: &str = "\
WITH off AS (SELECT set_config('synchronous_commit', 'off', true)), taken AS (
    DELETE FROM {s}.messages
    WHERE recipient = $1 OR ($2 AND recipient = ''::bytea)
        OR made < clock_timestamp() - $3::bigint * interval '1 millisecond'
    RETURNING n, recipient, sender, number, body, made
)
SELECT recipient, sender, number, body FROM taken, off
WHERE (recipient = $1 OR recipient = ''::bytea) AND made >= clock_timestamp() - $3::bigint * interval '1 millisecond' ORDER BY n";

fn channel(schema: &str) -> String {
    format!("larix_{schema}")
}

fn with_names(text: &str, schema: &str) -> String {
    text.replace("{s}", schema).replace("{channel}", &channel(schema))
}

pub(super) fn send(
    pool: &Pool,
    own: &[u8],
    to: Recipient<'_>,
    number: u64,
    body: Vec<u8>,
) -> Result<(), Fault> {
    let text = with_names(SEND, pool.schema());
    let recipient = match to {
        Recipient::Leader => Vec::new(),
        Recipient::Node(node) => node.to_vec(),
    };
    let (sender, number) = (own.to_vec(), number.cast_signed());
    let mut link = pool.lease()?;
    let sent = link.call(|link| async move {
        let values: [(&(dyn ToSql + Sync), Type); 4] =
            [(&recipient, Type::BYTEA), (&sender, Type::BYTEA), (&number, Type::INT8), (&body, Type::BYTEA)];
        Ok(link.client.query_typed(&text, &values).await?)
    });
    sent.map(drop)
}

/// A connection that hears of messages.
#[derive(Debug)]
pub(super) struct Listener {
    connection: link::Listener,
    schema: String,
}

impl Listener {
    pub(super) fn begin(pool: &Pool) -> Result<Self, Fault> {
        let schema = pool.schema().to_owned();
        Ok(Self { connection: pool.listen(&channel(&schema))?, schema })
    }
}

impl MessageListener for Listener {
    fn wait(&self, time: Duration) -> Result<bool, Fault> {
        self.connection.hear(time)
    }

    fn wake(&self) {
        self.connection.wake();
    }

    fn take(&self, own: &[u8], leads: bool) -> Result<Vec<Message>, Fault> {
        let (text, own) = (with_names(TAKE, &self.schema), own.to_vec());
        let oldest = i64::try_from(OLDEST_MESSAGE.as_millis()).unwrap_or(i64::MAX);
        let client = Arc::clone(&self.connection.client);
        let rows = self.connection.ask(async move {
            let values: [(&(dyn ToSql + Sync), Type); 3] =
                [(&own, Type::BYTEA), (&leads, Type::BOOL), (&oldest, Type::INT8)];
            Ok(client.query_typed(&text, &values).await?)
        })?;
        let read = |row: &tokio_postgres::Row| -> Result<Message, Fault> {
            let recipient: &[u8] = row.try_get(0)?;
            let number: i64 = row.try_get(2)?;
            Ok(Message {
                to_leader: recipient.is_empty(),
                sender: row.try_get(1)?,
                number: number.cast_unsigned(),
                body: row.try_get(3)?,
            })
        };
        rows.iter().map(read).collect()
    }
}
