//! Messages between the nodes of a store: one asks the node that writes, which answers. They lie in a table of the engine, so that nobody
//! can send one who could not write the store itself. A notification says that there are any. An engine that crashes loses them: who asks
//! waits no longer than a deadline of its own.

use std::sync::Arc;
use std::time::Duration;

use larix_store::ReadError;
use tokio_postgres::types::Type;

use crate::error::Fault;
use crate::link::Listener;
use crate::store::KvStore;

/// Messages older than this are dropped: nobody waits for them any more.
const OLDEST_MILLISECONDS: i64 = 10_000;

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

/// Whom a message is for.
#[derive(Clone, Copy, Debug)]
pub enum Recipient<'a> {
    /// The node that writes, whichever it is.
    Leader,
    /// The sender of a message.
    Node(&'a [u8]),
}

/// A message that has come.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// Whether it is for the node that writes; else it answers a message of this node's.
    pub to_leader: bool,
    pub sender: Vec<u8>,
    /// What the sender knows it by; of an answer the number of the message that it answers.
    pub number: u64,
    pub body: Vec<u8>,
}

/// Its body stays out of logs.
impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message").field("number", &self.number).finish_non_exhaustive()
    }
}

/// A connection to the engine that hears of messages.
#[derive(Debug)]
pub struct Mailbox(Listener);

impl Mailbox {
    /// Ends a [wait](KvStore::wait_for_messages) at once.
    pub fn wake(&self) {
        self.0.wake();
    }
}

impl KvStore {
    /// Sends a message. That it was sent does not say that anybody takes it.
    ///
    /// # Errors
    /// The engine cannot be asked.
    pub fn send_message(&self, to: Recipient<'_>, number: u64, body: Vec<u8>) -> Result<(), ReadError> {
        let text = self.with_names(SEND);
        let recipient = match to {
            Recipient::Leader => Vec::new(),
            Recipient::Node(node) => node.to_vec(),
        };
        let (sender, number) = (self.handle().to_vec(), number.cast_signed());
        let mut link = self.pool.lease().map_err(Fault::into_read)?;
        let sent = link.call(|link| async move {
            let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 4] = [
                (&recipient, Type::BYTEA),
                (&sender, Type::BYTEA),
                (&number, Type::INT8),
                (&body, Type::BYTEA),
            ];
            Ok(link.client.query_typed(&text, &values).await?)
        });
        sent.map(|_| ()).map_err(Fault::into_read)
    }

    /// Begins to hear of messages.
    ///
    /// # Errors
    /// The engine cannot be asked.
    pub fn mailbox(&self) -> Result<Mailbox, ReadError> {
        self.pool.listen(&self.channel()).map(Mailbox).map_err(Fault::into_read)
    }

    /// Waits until something was sent to any node, up to `time`; whether it was, as far as is known.
    ///
    /// # Errors
    /// The thread that talks to the engine has ended.
    pub fn wait_for_messages(&self, mailbox: &Mailbox, time: Duration) -> Result<bool, ReadError> {
        self.pool.hear(&mailbox.0, time).map_err(Fault::into_read)
    }

    /// Takes the messages to this node, and those to the node that writes if it `leads`, in the order of their sending.
    ///
    /// # Errors
    /// The engine cannot be asked: the mailbox is of no use any more.
    pub fn take_messages(&self, mailbox: &Mailbox, leads: bool) -> Result<Vec<Message>, ReadError> {
        let (text, own) = (self.with_names(TAKE), self.handle().to_vec());
        let client = Arc::clone(&mailbox.0.client);
        let rows = self.pool.ask(async move {
            let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
                [(&own, Type::BYTEA), (&leads, Type::BOOL), (&OLDEST_MILLISECONDS, Type::INT8)];
            Ok(client.query_typed(&text, &values).await?)
        });
        let rows = rows.map_err(Fault::into_read)?;
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
        rows.iter().map(|row| read(row).map_err(Fault::into_read)).collect()
    }

    fn channel(&self) -> String {
        format!("larix_{}", self.pool.schema())
    }

    fn with_names(&self, text: &str) -> String {
        text.replace("{s}", self.pool.schema()).replace("{channel}", &self.channel())
    }
}
