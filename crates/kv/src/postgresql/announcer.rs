//! Tells other nodes that there are commits. No commit waits for it: the notification goes out behind them, on a connection of its own,
//! one for all that were made meanwhile. Where it is lost, the others hear of the commits when they ask by themselves.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::Client;

use super::address::{Address, NewConnection, OWN_PATH};
use super::link::{self, Pool};
use crate::engine::CommitListener;
use crate::error::Fault;
use crate::runtime::AbortOnDrop;

/// The shortest time between two notifications.
const PAUSE: Duration = Duration::from_millis(5);
/// A connection may have ended unnoticed.
const TRIES: usize = 2;

/// Part of a transaction whose commit others are to hear of. The engine has commits with such a part wait for each other, so that it is for rare ones.
pub(super) fn telling(pool: &Pool) -> String {
    format!("SELECT pg_notify('{}', '{}')", channel(pool.schema()), pool.sign())
}

/// PostgreSQL takes a number of a transaction for it. Nothing is lost with it, so that is not waited for on the disk.
fn statement(pool: &Pool) -> String {
    format!("{}, set_config('synchronous_commit', 'off', true)", telling(pool))
}

fn channel(schema: &str) -> String {
    format!("larix_commits_{schema}")
}

/// The thread that talks to the engine has it as a task, which connects when the first commit is made.
#[derive(Debug)]
pub(super) struct Announcer {
    committed: Arc<Notify>,
    _task: AbortOnDrop,
}

impl Announcer {
    pub(super) fn begin(pool: &Pool) -> Self {
        let committed = Arc::new(Notify::new());
        let (address, handle, deadline) = pool.beside();
        let text = statement(pool);
        let notify = Arc::clone(&committed);
        let task = handle.spawn(async move {
            let mut connection = None;
            loop {
                notify.notified().await;
                for _ in 0..TRIES {
                    let telling = tell(&mut connection, &address, &text);
                    if let Ok(Ok(())) = tokio::time::timeout(deadline, telling).await {
                        break;
                    }
                    connection = None;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { committed, _task: AbortOnDrop(Some(task.abort_handle())) }
    }

    /// There is a new commit.
    pub(super) fn announce(&self) {
        self.committed.notify_one();
    }
}

async fn tell(
    connection: &mut Option<(Client, AbortOnDrop)>,
    address: &Address,
    text: &str,
) -> Result<(), Fault> {
    let client = match connection {
        Some((client, _)) if !client.is_closed() => client,
        _ => {
            let NewConnection { client, connection: own, .. } = address.connect().await?;
            let task = tokio::spawn(async move {
                // The next notification sees its end.
                let _end = own.await;
            });
            let task = AbortOnDrop(Some(task.abort_handle()));
            client.batch_execute(OWN_PATH).await?;
            let (client, _) = connection.insert((client, task));
            client
        }
    };
    Ok(client.batch_execute(text).await?)
}

/// Hears what the announcers of all other nodes tell.
pub(super) fn listen(pool: &Pool) -> Result<link::Listener, Fault> {
    pool.listen(&channel(pool.schema()))
}

impl CommitListener for link::Listener {
    fn wait(&self, time: Duration) -> Result<bool, Fault> {
        let is_notified = self.hear(time)?;
        if self.has_ended() { Err(Fault::Lost) } else { Ok(is_notified) }
    }

    fn wake(&self) {
        Self::wake(self);
    }

    fn check(&self) -> Result<(), Fault> {
        Self::check(self)
    }
}
