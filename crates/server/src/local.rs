//! A server without sockets: request bytes in, answer bytes out, on the thread that calls. Benchmarks count what a
//! request costs between the two reads of a real worker, and tests count what it allocates.

use std::sync::Arc;

use larix_configuration::Config;
use larix_engine::writer;
use larix_store::lmdb;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::clock::SystemClock;
use crate::connection::{Connection, Turn};
use crate::databases::Databases;
use crate::dispatch::ConnectionEvent;
use crate::dispatch::Dispatcher;
use crate::log::{self, Log, LogCall, LogSettings, LogThread};
use crate::server::Server;
use crate::services::Services;
use crate::session::Peer;
use crate::startup::ServeError;
use crate::statistics::{ConnectionRecord, ListenerInfo};

const NAME: &str = "PATH=local";

/// The databases of a configuration, open.
#[derive(Debug)]
pub struct LocalServer {
    server: Arc<Server>,
    listener: Arc<ListenerInfo>,
    /// Ends with the server; nothing is logged but to a log file.
    _log: LogThread,
}

impl LocalServer {
    /// Opens the databases.
    ///
    /// # Errors
    /// As [`crate::run`], but for what is about sockets and the process.
    pub fn open(config: Config) -> Result<Self, ServeError> {
        Self::open_with(config, |_| ())
    }

    /// The same, where something is done with the databases before they are served.
    pub(crate) fn open_with(
        config: Config,
        prepare: impl FnOnce(&mut Databases),
    ) -> Result<Self, ServeError> {
        let clock = Arc::new(SystemClock);
        let settings = LogSettings::open(&config.global.log_directives()).map_err(ServeError::LogFile)?;
        let call = LogCall { no_syslog: true, ..LogCall::default() };
        let (log, thread) = Log::start(settings, call)
            .map_err(|source| ServeError::Start { what: "the log's thread", source })?;
        let config = Arc::new(config);
        let listener = Arc::new(ListenerInfo { url: "ldapi:///".to_owned(), name: NAME.to_owned() });
        let services = Arc::new(Services::new(&config, log, clock, vec![listener.clone()], 1));
        let mut databases = Databases::open(&config, &services)?;
        prepare(&mut databases);
        let server = Arc::new(Server::new(databases, services));
        Ok(Self { server, listener, _log: thread })
    }

    #[cfg(test)]
    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// A client's connection.
    pub fn connect(&self) -> LocalConnection {
        let server = &self.server;
        // As a worker does.
        server.log.gather();
        let number = server.statistics.next_connection();
        let (name, listener) = (NAME.to_owned(), self.listener.clone());
        let record = ConnectionRecord::new(number, 0, listener, name.clone(), server.both_clocks());
        let (sender, events) = unbounded_channel();
        let peer = Peer { name, credentials: None };
        let counters = server.statistics.worker(0);
        let dispatcher = Dispatcher::new(server.clone(), counters, Arc::new(record), peer, sender);
        LocalConnection { connection: Connection::new(dispatcher), events }
    }
}

/// One connection, as a worker has it beside the socket.
#[derive(Debug)]
pub struct LocalConnection {
    connection: Connection<Dispatcher>,
    events: UnboundedReceiver<ConnectionEvent>,
}

impl LocalConnection {
    /// For tests that make the connection's turns themselves.
    #[cfg(test)]
    pub(crate) fn parts(&mut self) -> (&mut Connection<Dispatcher>, &mut UnboundedReceiver<ConnectionEvent>) {
        (&mut self.connection, &mut self.events)
    }

    /// Hands over whole requests and appends what is answered to `out`, when all of them are answered.
    pub fn request(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        // As a worker does that serves a single client: it carries out changes itself, and the next request takes up the read
        // transaction unless something was committed.
        lmdb::keep_snapshots();
        writer::may_defer(true);
        self.connection.service_mut().bytes_arrived();
        let mut turn = self.connection.receive(bytes);
        loop {
            let answer = self.connection.output();
            out.extend_from_slice(answer);
            let sent = answer.len();
            self.connection.sent(sent);
            turn = match turn {
                Turn::More => {
                    writer::hand_over_deferred();
                    writer::may_defer(false);
                    if self.connection.has_large_next() {
                        self.connection.start_large();
                    }
                    self.connection.resume()
                }
                Turn::Close => {
                    writer::hand_over_deferred();
                    break;
                }
                Turn::Idle if self.connection.pending() == 0 => break,
                Turn::Idle => {
                    if writer::has_deferred() {
                        lmdb::release_snapshots();
                        writer::carry_out_deferred();
                    }
                    match self.events.blocking_recv() {
                        Some(ConnectionEvent::Completed(serial, done)) => {
                            self.connection.complete(serial, *done)
                        }
                        Some(ConnectionEvent::Returned(serial, back)) => {
                            self.connection.returned(serial, *back)
                        }
                        Some(ConnectionEvent::Woken(serial)) => self.connection.wake(serial),
                        Some(ConnectionEvent::Message(message)) => self.connection.add_message(&message),
                        _ => break,
                    }
                }
            };
        }
        writer::may_defer(false);
        lmdb::rest_snapshots();
        log::hand_over();
    }
}

impl Drop for LocalConnection {
    fn drop(&mut self) {
        // A worker does this when it has had nothing to do for a while.
        lmdb::release_snapshots();
    }
}
