//! The thread that talks to an engine. No caller waits longer than the deadline.

use std::future::Future;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::error::Fault;

/// How much longer a caller waits for the thread that keeps the deadline, should it be late itself.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// A thread with its own event loop. Callers may stand in another event loop, which must not be entered twice.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) handle: Handle,
    /// Dropped to end the thread.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name("larix-kv".to_owned()).spawn(move || {
            // An error says that the sender is gone, which is the end as well.
            let _ended = runtime.block_on(ended);
        })?;
        Ok(Self { handle, end: Some(end), thread: Some(thread) })
    }

    /// Carries out `work` and waits for it, up to `deadline`.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        deadline: Duration,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        call(&self.handle, deadline, work)
    }
}

/// The same through the handle of a runtime.
pub(crate) fn call<T: Send + 'static>(
    handle: &Handle,
    deadline: Duration,
    work: impl Future<Output = Result<T, Fault>> + Send + 'static,
) -> Result<T, Fault> {
    let (answer, answered) = sync_channel(1);
    handle.spawn(async move {
        let result = tokio::time::timeout(deadline, work).await;
        // Who asked may have given up.
        let _gone = answer.send(result.unwrap_or(Err(Fault::Late(deadline))));
    });
    match answered.recv_timeout(deadline + GRACE) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Err(Fault::Late(deadline)),
        Err(RecvTimeoutError::Disconnected) => Err(Fault::Ended),
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // It holds nothing that could panic; there is nothing to say if it did.
            let _ended = thread.join();
        }
    }
}

#[derive(Debug)]
pub(crate) struct AbortOnDrop(pub(crate) Option<AbortHandle>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.abort();
        }
    }
}
