//! What the service manager hears regularly where it asks for that (`WatchdogSec=` of systemd): that the event loops answer. A server
//! that is silent for that time is ended and started again.

use tokio::sync::oneshot;

use crate::hardening;
use crate::worker::WorkerHandle;

/// Runs in the event loop that accepts connections, until it is dropped.
pub(crate) async fn run(workers: Vec<WorkerHandle>) {
    let Some(limit) = hardening::watchdog() else { return };
    loop {
        // As sd_watchdog_enabled(3) recommends.
        tokio::time::sleep(limit / 2).await;
        all_answer(&workers).await;
        hardening::notify("WATCHDOG=1\n");
    }
}

/// Waits until each has had its turn; for ever where one does not come to it.
async fn all_answer(workers: &[WorkerHandle]) {
    // All are asked before the first one is waited for.
    let asked: Vec<_> = workers.iter().map(WorkerHandle::ask).collect();
    for answered in asked {
        wait(answered).await;
    }
}

async fn wait(answered: oneshot::Receiver<()>) {
    if answered.await.is_err() {
        // It has ended, and the connections that it had with it.
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    #[test]
    fn one_loop_that_does_not_answer_is_waited_for() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (one, mut orders) = WorkerHandle::of_nobody();
        let (other, mut silent) = WorkerHandle::of_nobody();
        runtime.block_on(async {
            let workers = [one, other];
            let mut all = pin!(all_answer(&workers));
            assert!(poll_fn(|context| Poll::Ready(all.as_mut().poll(context))).await.is_pending());
            orders.recv().await.unwrap().answer();
            assert!(poll_fn(|context| Poll::Ready(all.as_mut().poll(context))).await.is_pending());
            silent.recv().await.unwrap().answer();
            all.await;
            // A loop that has ended answers nothing any more.
            drop(silent);
            let mut all = pin!(all_answer(&workers));
            assert!(poll_fn(|context| Poll::Ready(all.as_mut().poll(context))).await.is_pending());
            orders.recv().await.unwrap().answer();
            assert!(poll_fn(|context| Poll::Ready(all.as_mut().poll(context))).await.is_pending());
        });
    }
}
