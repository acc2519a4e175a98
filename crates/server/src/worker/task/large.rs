//! Large requests are started on threads of low priority: to decode, judge and prepare one takes as long as many small ones, and
//! small requests must not wait for that in a worker's loop, or for the processor. Those that look up identities in databases of other
//! machines are started on threads that may wait.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use larix_engine::writer;
use tokio::sync::oneshot;

use super::{Task, TaskEnd};
use crate::background_pool::Turns;
use crate::connection::{Connection, Turn};
use crate::dispatch::Dispatcher;
use crate::log;
use crate::panics;
use crate::server::Server;
use crate::waiting_thread::while_waiting;

/// A task's connection: there, but while a large request of it is started elsewhere.
pub(super) struct TaskConnection(Option<Connection<Dispatcher>>);

impl TaskConnection {
    pub(super) fn new(connection: Connection<Dispatcher>) -> Self {
        Self(Some(connection))
    }
}

/// Why a [`TaskConnection`] is never asked while it is empty.
const THERE: &str = "its task does nothing but wait while the connection is elsewhere";

impl Deref for TaskConnection {
    type Target = Connection<Dispatcher>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        self.0.as_ref().expect(THERE)
    }
}

impl DerefMut for TaskConnection {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.as_mut().expect(THERE)
    }
}

/// A connection on its way.
struct Large {
    server: Arc<Server>,
    /// For a thread that may wait for other machines.
    waits: bool,
    connection: Connection<Dispatcher>,
    back: oneshot::Sender<Connection<Dispatcher>>,
}

impl Turns for Large {
    fn turn(self: Box<Self>, thread: usize) -> Option<Box<dyn Turns>> {
        let Self { server, waits, mut connection, back } = *self;
        // Each set of counters has one thread that writes it; a connection that ends here counts here.
        let own = match waits {
            true => server.statistics.of_lookups(thread),
            false => server.statistics.aside(thread),
        };
        let counters = connection.service_mut().count_with(Arc::clone(&own));
        if back.is_closed() {
            return None;
        }
        // A panic has printed what happened; the connection ends with it, as it does on its worker.
        let started = panics::contained(move || {
            match waits {
                true => while_waiting(|| connection.start_large()),
                false => connection.start_large(),
            }
            connection
        });
        writer::hand_over_deferred();
        if let Ok(mut connection) = started {
            connection.service_mut().count_with(counters);
            if let Err(mut connection) = back.send(connection) {
                connection.service_mut().count_with(own);
            }
        }
        None
    }
}

impl Task<'_> {
    /// Has the request that is next started elsewhere. What comes meanwhile waits.
    pub(super) async fn start_large(&mut self) -> Result<Turn, TaskEnd> {
        self.lend();
        let server = &self.core.server;
        let waits = self.connection.has_lookup_next();
        let pool = if waits { &server.lookups } else { &server.long_searches };
        if !pool.has_thread() {
            self.connection.start_large();
            return Ok(Turn::More);
        }
        // Lines and changes come in the order of the requests.
        writer::hand_over_deferred();
        log::hand_over();
        let Some(connection) = self.connection.0.take() else { return Err(TaskEnd::Lost) };
        let (back, started) = oneshot::channel();
        pool.push(Box::new(Large { server: Arc::clone(server), waits, connection, back }));
        match started.await {
            Ok(connection) => {
                self.connection = TaskConnection::new(connection);
                Ok(Turn::More)
            }
            Err(_) => Err(TaskEnd::Because("internal error")),
        }
    }
}
