//! Tools beside a running server: `slapadd`, `slapmodify`, `slapdelete` and `slapindex` find the database locked and hand
//! their work to the server that holds the lock, through a socket in the database's directory.
//!
//! **Who may.** The directory and the socket are the owner's (mode 0600), and the server asks the kernel who has connected:
//! its own user and root may do what they could do to the files. Other users get no answer, and no network is involved.
//!
//! **What it speaks.** LDAP, one request at a time, in the name of the database's root DN. Each answer means durable, as for
//! any client. Changes go through the database's writer, so that they are in the change log and reach replicas; entries of an
//! LDIF file are added as they stand ([`Import`](larix_engine::controls::Import)).

mod client;
mod dialogue;
mod place;
mod protocol;

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use larix_engine::{ServedDatabase, injected};
use larix_proto::{LdapResult, ResultCode, encode};
use larix_store::lmdb::LmdbStore;
use rustix::net::Shutdown;

use crate::generation::Generation;
use crate::panics;
use crate::server::Server;

pub use client::{ToolClient, ToolError};
pub use place::SOCKET_NAME;
pub use protocol::{IMPORT_ENTRIES_MAX, ImportRequest, MESSAGE_BYTES_MAX, NewEntry, ReindexRequest};

use dialogue::Dialogue;
use place::SocketPath;

/// Tools at work on one database at once; more are refused.
pub(crate) const TOOLS_MAX: usize = 8;
/// So long after a connection could not be taken the next one is tried.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The sockets of all databases.
#[derive(Debug, Default)]
pub(crate) struct ToolSockets {
    doors: Mutex<Vec<Door>>,
}

/// The socket of one database.
#[derive(Debug)]
struct Door {
    served: Weak<ServedDatabase<LmdbStore>>,
    socket: PathBuf,
    listener: Arc<UnixListener>,
    state: Arc<DoorState>,
    thread: Option<JoinHandle<()>>,
}

/// What a socket's threads share.
#[derive(Debug, Default)]
pub(super) struct DoorState {
    closing: AtomicBool,
    /// Tools that are connected, by a number each.
    open: Mutex<Vec<(u64, UnixStream)>>,
}

impl DoorState {
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Vec<(u64, UnixStream)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ToolSockets {
    /// Opens a socket for each database of the generation that has none, and closes those of databases that are gone. A
    /// socket that cannot be had is logged: the database is served without it.
    pub(crate) fn follow(&self, server: &Arc<Server>, generation: &Generation) {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted: Vec<(&Path, &Arc<ServedDatabase<LmdbStore>>)> = generation
            .config
            .databases
            .iter()
            .filter(|database| !database.disabled)
            .filter_map(|database| {
                let directory = database.kind.mdb()?.directory.as_path();
                Some((directory, generation.databases.served_in(directory)?))
            })
            .collect();
        let is_of = |door: &Door, served: &Arc<ServedDatabase<LmdbStore>>| {
            door.served.as_ptr() == Arc::as_ptr(served)
        };
        doors.retain(|door| wanted.iter().any(|(_, served)| is_of(door, served)));
        for (directory, served) in wanted {
            if doors.iter().any(|door| is_of(door, served)) {
                continue;
            }
            match Door::open(server, directory, served) {
                Ok(door) => doors.push(door),
                Err(error) => server.log.warning(format_args!(
                    "{}: {error}; slapadd and its kin cannot work while the server runs",
                    directory.join(SOCKET_NAME).display()
                )),
            }
        }
    }

    /// Closes all sockets: what is being done is finished and answered.
    pub(crate) fn finish(&self) {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Door {
    fn open(
        server: &Arc<Server>,
        directory: &Path,
        served: &Arc<ServedDatabase<LmdbStore>>,
    ) -> io::Result<Self> {
        let place = SocketPath::of(directory)?;
        // The database is locked by this process: what lies there was left by one that was killed.
        match fs::remove_file(place.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = Arc::new(UnixListener::bind(place.path())?);
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o600))?;
        let state = Arc::new(DoorState::default());
        let accepting = Accepting {
            listener: Arc::clone(&listener),
            state: Arc::clone(&state),
            server: Arc::downgrade(server),
            served: Arc::downgrade(served),
        };
        let thread = thread::Builder::new().name("tools".to_owned()).spawn(move || accepting.run())?;
        let socket = directory.join(SOCKET_NAME);
        Ok(Self { served: Arc::downgrade(served), socket, listener, state, thread: Some(thread) })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.state.closing.store(true, Ordering::Release);
        // Gone already: then no tool finds it either.
        let _ = fs::remove_file(&self.socket);
        let _ = rustix::net::shutdown(&*self.listener, Shutdown::Both);
        for (_, stream) in self.state.open().iter() {
            // What was read is still carried out and answered; nothing more comes.
            let _ = stream.shutdown(std::net::Shutdown::Read);
        }
        if let Some(thread) = self.thread.take() {
            // A panic was reported already.
            let _ = thread.join();
        }
    }
}

/// The thread that takes connections.
struct Accepting {
    listener: Arc<UnixListener>,
    state: Arc<DoorState>,
    server: Weak<Server>,
    served: Weak<ServedDatabase<LmdbStore>>,
}

impl Accepting {
    fn run(&self) {
        let mut number = 0;
        let mut working: Vec<JoinHandle<()>> = Vec::new();
        while !self.state.is_closing() {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) if self.state.is_closing() => break,
                // No descriptors or no memory: there may be some later, and nobody else answers tools that wait here.
                Err(_) => {
                    thread::park_timeout(ACCEPT_AGAIN);
                    continue;
                }
            };
            working.retain(|thread| !thread.is_finished());
            number += 1;
            match self.admit(&stream, working.len()) {
                Ok(()) => working.extend(self.begin(number, stream)),
                Err(refusal) => refuse(stream, &refusal),
            }
        }
        for thread in working {
            let _ = thread.join();
        }
    }

    /// # Errors
    /// A user that has no right to the socket, and a connection above the limit.
    fn admit(&self, stream: &UnixStream, working: usize) -> Result<(), LdapResult> {
        let refused = |code, text: &str| Err(LdapResult::with(code, text));
        let own = rustix::process::geteuid();
        let is_allowed = rustix::net::sockopt::socket_peercred(stream)
            .is_ok_and(|peer| peer.uid == own || peer.uid.is_root());
        if !is_allowed {
            let text = "only the server's own user and root may hand work to it: run the tool as that user";
            return refused(ResultCode::INSUFFICIENT_ACCESS_RIGHTS, text);
        }
        if working >= TOOLS_MAX {
            return refused(ResultCode::BUSY, "too many tools work on this database: try again later");
        }
        Ok(())
    }

    fn begin(&self, number: u64, stream: UnixStream) -> Option<JoinHandle<()>> {
        let (server, served) = (self.server.upgrade()?, self.served.clone());
        let kept = stream.try_clone().ok()?;
        self.state.open().push((number, kept));
        if self.state.is_closing() {
            let _ = stream.shutdown(std::net::Shutdown::Read);
        }
        let state = Arc::clone(&self.state);
        let begun = thread::Builder::new().name("tool".to_owned()).spawn(move || {
            let _ = panics::contained(|| {
                injected::panic_at("tool");
                Dialogue { server, served, state: &state }.run(stream);
            });
            state.open().retain(|(other, _)| *other != number);
        });
        begun.ok()
    }
}

/// Says why, and closes.
fn refuse(mut stream: UnixStream, refusal: &LdapResult) {
    let mut out = Vec::new();
    encode::notice_of_disconnection(&mut out, refusal);
    // The refused client may have gone.
    let _ = stream.write_all(&out);
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// A listener that does not wait fails whenever nobody is there, as any one does without descriptors.
    #[test]
    fn tools_are_answered_after_connections_could_not_be_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = Arc::new(UnixListener::bind(&path).unwrap());
        listener.set_nonblocking(true).unwrap();
        let state = Arc::new(DoorState::default());
        let accepting =
            Accepting { listener, state: Arc::clone(&state), server: Weak::new(), served: Weak::new() };
        let thread = thread::spawn(move || accepting.run());
        for _ in 0..10 {
            let mut tool = UnixStream::connect(&path).unwrap();
            tool.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            // The server that it asks is gone: its connection ends.
            assert_eq!(tool.read_to_end(&mut Vec::new()).unwrap(), 0);
        }
        state.closing.store(true, Ordering::Release);
        thread.join().unwrap();
    }
}
