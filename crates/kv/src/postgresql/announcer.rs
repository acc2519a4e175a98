//! Tells other nodes that there are commits. No commit waits for it: the notification goes out behind them, on a connection of its own,
//! one for all that were made meanwhile. Where it is lost, the others hear of the commits when they ask by themselves. What the node says
//! of itself goes over the same connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_postgres::Client;

use super::address::{Address, NewConnection, OWN_PATH};
use super::link::{self, Pool};
use super::presence::Word;
use crate::engine::CommitListener;
use crate::error::Fault;
use crate::runtime::{AbortOnDrop, call};

/// The shortest time between two notifications.
const PAUSE: Duration = Duration::from_millis(5);
/// A connection may have ended unnoticed.
const TRIES: usize = 2;
/// Words that wait to be said. What does not find room is said again by itself.
const WORDS_MAX: usize = 4;

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

/// The thread that talks to the engine has it as a task, which connects when there is something to tell.
#[derive(Debug)]
pub(super) struct Announcer {
    committed: Arc<Notify>,
    words: mpsc::Sender<Word>,
    handle: Handle,
    deadline: Duration,
    _task: AbortOnDrop,
}

impl Announcer {
    pub(super) fn begin(pool: &Pool) -> Self {
        let committed = Arc::new(Notify::new());
        let (words, mut waiting) = mpsc::channel(WORDS_MAX);
        let (address, handle, deadline) = pool.beside();
        let (text, schema) = (statement(pool), pool.schema().to_owned());
        let notify = Arc::clone(&committed);
        let task = handle.spawn(async move {
            let mut connection = Connection { address, deadline, open: None };
            loop {
                match next(&notify, &mut waiting).await {
                    Next::Commits => {
                        // Where that fails, the others ask by themselves.
                        let _told = connection.tell(Announcement::Commits(&text)).await;
                        tokio::time::sleep(PAUSE).await;
                    }
                    Next::Word(word) => {
                        let said = connection.tell(Announcement::Word(&word, &schema)).await;
                        word.done(said);
                    }
                }
            }
        });
        Self { committed, words, handle, deadline, _task: AbortOnDrop(Some(task.abort_handle())) }
    }

    /// There is a new commit.
    pub(super) fn announce(&self) {
        self.committed.notify_one();
    }

    /// Has this said soon. Nobody waits for that, so that it holds up nobody who has a lease to renew.
    pub(super) fn say(&self, word: Word) {
        // What finds no room is said again by itself.
        let _full = self.words.try_send(word);
    }

    /// Has the node say nothing any more, behind all that it has said, and waits for that.
    pub(super) fn unsay(&self, node: String) -> Result<(), Fault> {
        let (done, answer) = oneshot::channel();
        let words = self.words.clone();
        call(&self.handle, self.deadline, async move {
            words.send(Word::Unsay { node, done }).await.map_err(|_| Fault::Ended)?;
            answer.await.unwrap_or(Err(Fault::Ended))
        })
    }
}

/// What there is to tell.
enum Next {
    /// That there are commits.
    Commits,
    Word(Word),
}

/// Waits for something to tell. Neither kind keeps the other away for long: a node that commits all the time says what it is, too.
async fn next(committed: &Notify, words: &mut mpsc::Receiver<Word>) -> Next {
    tokio::select! {
        () = committed.notified() => Next::Commits,
        Some(word) = words.recv() => Next::Word(word),
    }
}

/// What the engine is told.
#[derive(Clone, Copy)]
enum Announcement<'t> {
    /// That there are commits: the statement.
    Commits(&'t str),
    /// What the node says of itself, in the store of this schema.
    Word(&'t Word, &'t str),
}

impl Announcement<'_> {
    async fn over(self, client: &Client) -> Result<(), Fault> {
        match self {
            Self::Commits(text) => Ok(client.batch_execute(text).await?),
            Self::Word(word, schema) => word.over(client, schema).await,
        }
    }
}

/// A connection that is made when it is needed.
struct Connection {
    address: Address,
    deadline: Duration,
    open: Option<(Client, AbortOnDrop)>,
}

impl Connection {
    /// Tells the engine something, a second time over a new connection where the first one is of no use.
    async fn tell(&mut self, told: Announcement<'_>) -> Result<(), Fault> {
        let deadline = self.deadline;
        let mut result = Err(Fault::Ended);
        for _ in 0..TRIES {
            let telling = async { told.over(self.client().await?).await };
            result = tokio::time::timeout(deadline, telling).await.unwrap_or(Err(Fault::Late(deadline)));
            match &result {
                Err(fault) if fault.ends_connection() => self.open = None,
                _ => break,
            }
        }
        result
    }

    async fn client(&mut self) -> Result<&Client, Fault> {
        let (client, _) = match self.open.take() {
            Some((client, task)) if !client.is_closed() => self.open.insert((client, task)),
            _ => {
                let NewConnection { client, connection, .. } = self.address.connect().await?;
                let task = tokio::spawn(async move {
                    // What is told next sees its end.
                    let _end = connection.await;
                });
                let task = AbortOnDrop(Some(task.abort_handle()));
                client.batch_execute(OWN_PATH).await?;
                self.open.insert((client, task))
            }
        };
        Ok(client)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_kind_keeps_the_other_away() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let committed = Notify::new();
            let (words, mut waiting) = mpsc::channel(WORDS_MAX);
            let (mut commits, mut said) = (0, 0);
            for _ in 0..1_000 {
                // There is always something of both.
                committed.notify_one();
                let _full = words.try_send(Word::Say { node: String::new(), words: Vec::new() });
                match next(&committed, &mut waiting).await {
                    Next::Commits => commits += 1,
                    Next::Word(_) => said += 1,
                }
            }
            assert!(commits > 100 && said > 100, "{commits} {said}");
        });
    }
}
