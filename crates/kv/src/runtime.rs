//! Who talks to an engine: a thread of the store, or, over a connection that nobody else uses meanwhile, the thread that waits for the
//! answer. No caller waits longer than the deadline.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
#[cfg(feature = "postgresql")]
use std::pin::Pin;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
#[cfg(feature = "postgresql")]
use std::sync::{Mutex, MutexGuard, PoisonError};
#[cfg(feature = "postgresql")]
use std::task::Poll;
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

/// The addresses of a host, looked up on a thread of its own: those that an event loop has for that panic where the system has no thread
/// to give. Inside: what became of the look-up.
///
/// # Errors
/// No thread to be had.
pub(crate) async fn look_up(host: &str, port: u16) -> io::Result<io::Result<Vec<SocketAddr>>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(Ok(vec![SocketAddr::new(address, port)]));
    }
    let (done, found) = oneshot::channel();
    let host = host.to_owned();
    thread::Builder::new().name("larix-kv-names".to_owned()).spawn(move || {
        let addresses = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        // Who asked may have given up.
        let _gone = done.send(addresses);
    })?;
    Ok(found.await.unwrap_or_else(|_| Err(io::Error::other("the look-up ended by a panic"))))
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

/// An event loop without a thread: the thread that waits for something in it runs it, so that no other thread has to be woken to send a question, nor
/// this one when the answer is there. Between two questions nothing in it moves.
#[cfg(feature = "postgresql")]
#[derive(Debug)]
pub(crate) struct OwnLoop {
    runtime: Option<tokio::runtime::Runtime>,
    /// The end of the last call. It is kept: to put it off takes no system call, while a new one wakes the loop.
    timer: Mutex<Option<Pin<Box<tokio::time::Sleep>>>>,
}

#[cfg(feature = "postgresql")]
impl OwnLoop {
    pub(crate) fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime: Some(runtime), timer: Mutex::default() })
    }

    /// Carries out `work` on this thread, up to `deadline`.
    pub(crate) fn call<T: Send>(
        &self,
        deadline: Duration,
        work: impl Future<Output = Result<T, Fault>> + Send,
    ) -> Result<T, Fault> {
        self.run(async move {
            let until = tokio::time::Instant::now() + deadline;
            let kept = self.timer().take();
            let mut timer = match kept {
                Some(mut timer) => {
                    timer.as_mut().reset(until);
                    timer
                }
                None => Box::pin(tokio::time::sleep_until(until)),
            };
            let mut work = std::pin::pin!(work);
            let result = std::future::poll_fn(|context| match work.as_mut().poll(context) {
                Poll::Pending => timer.as_mut().poll(context).map(|()| Err(Fault::Late(deadline))),
                ready @ Poll::Ready(_) => ready,
            })
            .await;
            *self.timer() = Some(timer);
            result
        })
    }

    fn timer(&self) -> MutexGuard<'_, Option<Pin<Box<tokio::time::Sleep>>>> {
        // It is there or not at every step.
        self.timer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what `work` has to send, and does not wait for the answer.
    pub(crate) fn begin(&self, work: impl Future + Send) -> Result<(), Fault> {
        self.run(async move {
            let mut work = std::pin::pin!(work);
            std::future::poll_fn(|context| {
                let _answer_of_nobody = work.as_mut().poll(context).is_ready();
                Poll::Ready(())
            })
            .await;
            tokio::task::yield_now().await;
            Ok(())
        })
    }

    /// Looks at what has come in since the last call.
    pub(crate) fn look(&self) -> Result<(), Fault> {
        self.run(async {
            // The first one hears of it, with the second one the connection takes it.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            Ok(())
        })
    }

    fn run<T: Send>(&self, work: impl Future<Output = Result<T, Fault>> + Send) -> Result<T, Fault> {
        let runtime = self.runtime.as_ref().ok_or(Fault::Ended)?;
        if Handle::try_current().is_err() {
            return runtime.block_on(work);
        }
        // A thread that is in an event loop cannot enter another one.
        thread::scope(|scope| {
            let begun = thread::Builder::new().spawn_scoped(scope, || runtime.block_on(work));
            begun.map_err(Fault::NoLoop)?.join().unwrap_or(Err(Fault::Ended))
        })
    }
}

#[cfg(feature = "postgresql")]
impl Drop for OwnLoop {
    fn drop(&mut self) {
        // This thread may be in an event loop, and must not wait for a name that is being looked up.
        self.runtime.take().into_iter().for_each(tokio::runtime::Runtime::shutdown_background);
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

#[cfg(all(test, feature = "postgresql"))]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_looked_up() {
        let own = OwnLoop::new().expect("a loop");
        let found = |host: &'static str| {
            let looked = own.call(Duration::from_secs(60), async move { Ok(look_up(host, 7).await) });
            looked.expect("an answer").expect("a thread")
        };
        for (host, address) in [("192.0.2.1", "192.0.2.1:7"), ("2001:db8::1", "[2001:db8::1]:7")] {
            let address: SocketAddr = address.parse().expect("an address");
            assert_eq!(found(host).expect("an address"), [address]);
        }
        let local = found("localhost").expect("addresses");
        assert!(!local.is_empty() && local.iter().all(|address| address.ip().is_loopback()), "{local:?}");
        assert!(found("no host\0").is_err());
    }

    #[test]
    fn the_thread_that_waits_runs_a_loop_of_its_own() {
        let deadline = Duration::from_secs(60);
        let own = OwnLoop::new().expect("a loop");
        let on = || async { Ok(thread::current().id()) };
        assert_eq!(own.call(deadline, on()).expect("an answer"), thread::current().id());
        // From within another event loop as well, where it is another thread.
        let other = Builder::new_current_thread().build().expect("a loop");
        let ran = other.block_on(async { own.call(deadline, on()) }).expect("an answer");
        assert_ne!(ran, thread::current().id());
        let late = own.call(Duration::ZERO, std::future::pending::<Result<(), Fault>>());
        assert!(matches!(late, Err(Fault::Late(_))), "{late:?}");
        // The end of that call is not the next one's.
        assert_eq!(own.call(deadline, on()).expect("an answer"), thread::current().id());
        let pause = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok(())
        };
        own.call(deadline, pause).expect("an answer behind a pause");
        let late = own.call(Duration::from_millis(5), std::future::pending::<Result<(), Fault>>());
        assert!(matches!(late, Err(Fault::Late(_))), "earlier than the end of the call before: {late:?}");
        // What others wait for in it moves while somebody runs it, and is begun without waiting for its end.
        let (sender, mut receiver) = oneshot::channel();
        own.begin(async {
            tokio::spawn(async move {
                let _gone = sender.send(7);
                std::future::pending::<()>().await;
            })
            .await
        })
        .expect("begun");
        own.look().expect("looked");
        assert_eq!(receiver.try_recv(), Ok(7));
        other.block_on(async { drop(own) });
    }
}
