//! A thread of low priority for work that no client of the directory waits for.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{SendError, SyncSender, sync_channel};

use crate::processor_time::{LOWEST, give_way};

/// Things to be done that wait.
const QUEUE_LIMIT: usize = 64;

type Work = Box<dyn FnOnce() + Send>;

/// The thread ends with this.
pub(crate) struct LowPriority {
    work: SyncSender<Work>,
}

impl LowPriority {
    /// # Errors
    /// No thread to be had.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let (sender, receiver) = sync_channel::<Work>(QUEUE_LIMIT);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            give_way(LOWEST);
            while let Ok(work) = receiver.recv() {
                work();
            }
        })?;
        Ok(Self { work: sender })
    }

    /// Has something computed there, and waits for it. Threads that it starts have the low priority, too.
    pub(crate) fn run<T: Send + 'static>(&self, compute: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, done) = sync_channel::<Result<T, Box<dyn Any + Send>>>(1);
        let work: Work = Box::new(move || {
            // The receiver waits.
            let _ = sender.send(catch_unwind(AssertUnwindSafe(compute)));
        });
        if let Err(SendError(work)) = self.work.send(work) {
            work();
        }
        match done.recv() {
            Ok(Ok(value)) => value,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => resume_unwind(Box::new("a thread of low priority has ended")),
        }
    }

    /// Has something freed there.
    pub(crate) fn free<T: Send + 'static>(&self, value: T) {
        // If there is no thread to run it, the closure is freed here.
        let _ = self.work.try_send(Box::new(move || drop(value)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_computes_at_its_priority_and_survives_a_panic() {
        // No nicer than it is: how nice that is.
        let nice = || rustix::process::nice(0).unwrap();
        let own = nice();
        let low = LowPriority::start("low").unwrap();
        assert_eq!(low.run(|| 6 * 7), 42);
        assert_eq!(low.run(nice), LOWEST.max(own));
        assert_eq!(nice(), own);
        let panicked = catch_unwind(AssertUnwindSafe(|| low.run(|| panic!("a bug"))));
        assert!(panicked.is_err());
        let (sender, freed) = sync_channel::<()>(0);
        low.free(sender);
        assert!(freed.recv().is_err(), "nobody has freed it");
        assert_eq!(low.run(|| 1), 1);
    }
}
