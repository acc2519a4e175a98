//! Ending what a connection waits for, from another thread.

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use socket2::Socket;

/// Handed to a thread that connects, waits and sleeps, to be called off by another one. Clones are the same.
#[derive(Clone, Default)]
pub struct Stop(Arc<Inner>);

#[derive(Default)]
struct Inner {
    stopped: AtomicBool,
    /// The socket of the connection that is open or being opened.
    socket: Mutex<Option<Socket>>,
    changed: Condvar,
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stop").field(&self.is_stopped()).finish()
    }
}

impl Stop {
    /// Shuts the socket down and wakes all sleeping threads, for good.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::SeqCst);
        let socket = self.lock();
        if let Some(socket) = &*socket {
            // One that is not connected yet gives up connecting; one that is gone needs nothing.
            let _ = socket.shutdown(Shutdown::Both);
        }
        drop(socket);
        self.0.changed.notify_all();
    }

    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::SeqCst)
    }

    /// Sleeps so long or until it is stopped; says which: true for stopped.
    pub fn wait(&self, time: Duration) -> bool {
        let guard = self.lock();
        let waited = self.0.changed.wait_timeout_while(guard, time, |_| !self.is_stopped());
        drop(waited);
        self.is_stopped()
    }

    /// The socket that is used from now on.
    ///
    /// # Errors
    /// Stopped already, or no descriptor is left.
    pub(crate) fn watch(&self, socket: &Socket) -> io::Result<()> {
        let copy = socket.try_clone()?;
        let mut watched = self.lock();
        if self.is_stopped() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        *watched = Some(copy);
        Ok(())
    }

    /// The socket is closed.
    pub(crate) fn forget(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Socket>> {
        // One assignment at a time: a panic elsewhere leaves nothing half done.
        self.0.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
