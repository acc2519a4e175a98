//! The slots for HTTP connections: a bounded number, so that there is always room for the next client.
//!
//! A connection that comes when all slots are taken gets that of one that lets us wait: of the address that has most
//! connections, the one that has waited longest. So an orchestrator is answered whatever others hold, and idle or slow
//! clients make room for each other.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::admission::told_apart;

/// How often connections that let us wait are looked for.
const TICK: Duration = Duration::from_secs(1);

/// The connections of one listener.
#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    most: usize,
    taken: RefCell<Vec<Rc<ConnectionSlot>>>,
}

/// What is known of one connection beside the task that serves it.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    /// The part of the address that identifies a client.
    address: IpAddr,
    /// A request has come and its answer is not ready: it is not the client that lets us wait.
    answering: Cell<bool>,
    /// When it was accepted, or its last answer was ready.
    since: Cell<Instant>,
    /// Since when the client has not taken all of an answer.
    blocked: Cell<Option<Instant>>,
    task: RefCell<Option<AbortHandle>>,
}

/// A slot that is taken; its end frees it.
#[derive(Debug)]
pub(crate) struct Seat {
    slots: Rc<ConnectionSlots>,
    slot: Rc<ConnectionSlot>,
}

/// A stream whose client has so long to take an answer.
#[derive(Debug)]
pub(crate) struct Timed<S> {
    stream: S,
    slot: Rc<ConnectionSlot>,
}

/// A request that is being answered, until this is dropped.
pub(crate) struct Answering<'p>(&'p ConnectionSlot);

impl ConnectionSlots {
    pub(crate) fn new(most: usize) -> Rc<Self> {
        Rc::new(Self { most, taken: RefCell::default() })
    }

    /// A slot for a new client. `None`: all are taken, and no client with at least as many slots makes room.
    pub(crate) fn take(self: &Rc<Self>, address: IpAddr) -> Option<Seat> {
        let address = told_apart(address);
        let mut taken = self.taken.borrow_mut();
        if taken.len() >= self.most {
            let at = who_makes_room(&taken, address)?;
            let task = taken.swap_remove(at).task.take();
            task.into_iter().for_each(|task| task.abort());
        }
        let slot = Rc::new(ConnectionSlot {
            address,
            answering: Cell::new(false),
            since: Cell::new(Instant::now()),
            blocked: Cell::new(None),
            task: RefCell::default(),
        });
        taken.push(slot.clone());
        drop(taken);
        Some(Seat { slots: self.clone(), slot })
    }
}

/// The slot that is given to a client from `address`, by its number.
fn who_makes_room(taken: &[Rc<ConnectionSlot>], address: IpAddr) -> Option<usize> {
    let of = |address: IpAddr| taken.iter().filter(|slot| slot.address == address).count();
    let own = of(address);
    // What is being answered is cut off for those alone who have less.
    let may_go = |slot: &ConnectionSlot| match of(slot.address) {
        theirs if slot.lets_wait() => theirs >= own,
        theirs => theirs > own + 1,
    };
    let (at, _) = taken
        .iter()
        .enumerate()
        .filter(|(_, slot)| may_go(slot))
        .min_by_key(|(_, slot)| (Reverse(of(slot.address)), !slot.lets_wait(), slot.since.get()))?;
    Some(at)
}

impl Seat {
    pub(crate) fn slot(&self) -> &Rc<ConnectionSlot> {
        &self.slot
    }

    /// Serves the client to its end, or until it has not taken an answer for so long.
    pub(crate) async fn serve(self, serving: impl Future<Output = ()>, patience: Duration) {
        let mut serving = std::pin::pin!(serving);
        while tokio::time::timeout(TICK, serving.as_mut()).await.is_err() {
            if self.slot.blocked.get().is_some_and(|since| since.elapsed() >= patience) {
                return;
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.slots.taken.borrow_mut().retain(|slot| !Rc::ptr_eq(slot, &self.slot));
    }
}

impl ConnectionSlot {
    /// Sets the task that may be ended to make room.
    pub(crate) fn set_task(&self, task: AbortHandle) {
        self.task.replace(Some(task));
    }

    /// A request has come.
    pub(crate) fn begin(&self) -> Answering<'_> {
        self.answering.set(true);
        Answering(self)
    }

    /// A stream that notes here what its client does not take.
    pub(crate) fn time<S>(self: &Rc<Self>, stream: S) -> Timed<S> {
        Timed { stream, slot: self.clone() }
    }

    fn lets_wait(&self) -> bool {
        !self.answering.get() || self.blocked.get().is_some()
    }

    fn note_write<T>(&self, written: &Poll<T>) {
        if written.is_pending() && self.blocked.get().is_none() {
            self.blocked.set(Some(Instant::now()));
        }
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.answering.set(false);
        self.0.since.set(Instant::now());
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.slot.note_write(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.slot.note_write(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        match flushed {
            // All of what there was to send is sent.
            Poll::Ready(Ok(())) => self.slot.blocked.set(None),
            _ => self.slot.note_write(&flushed),
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.slot.note_write(&ended);
        ended
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    #[test]
    fn who_has_most_makes_room() {
        // Addresses in the order in which they came, which of them are being answered, and whose slot a newcomer gets.
        let check = |came: &[u8], answering: &[usize], newcomer: u8, gets: Option<usize>| {
            let slots = ConnectionSlots::new(came.len());
            let seats: Vec<Seat> =
                came.iter().map(|last| slots.take(address(*last)).expect("a slot")).collect();
            let under_way: Vec<_> =
                answering.iter().filter_map(|at| Some(seats.get(*at)?.slot().begin())).collect();
            let seat = slots.take(address(newcomer));
            let gone = seats
                .iter()
                .position(|seat| !slots.taken.borrow().iter().any(|slot| Rc::ptr_eq(slot, seat.slot())));
            assert_eq!((gone, seat.is_some()), (gets, gets.is_some()), "{came:?} {answering:?} {newcomer}");
            assert_eq!(slots.taken.borrow().len(), came.len());
            drop(under_way);
            drop(seats);
            assert_eq!(slots.taken.borrow().len(), usize::from(gets.is_some()), "{came:?}");
        };
        check(&[1, 1, 1], &[], 1, Some(0));
        check(&[2, 1, 1], &[], 3, Some(1));
        check(&[2, 1, 1], &[1], 3, Some(2));
        check(&[2, 3, 4], &[0], 5, Some(1));
        // One request each is no surplus.
        check(&[2, 3, 4], &[0, 1, 2], 5, None);
        check(&[1, 1, 1], &[0, 1, 2], 1, None);
        check(&[1, 1, 1], &[0, 1, 2], 2, Some(0));
        check(&[1, 1, 2], &[0, 1], 2, Some(2));
        check(&[1, 1, 2], &[0, 1], 1, None);
    }

    #[test]
    fn an_answer_that_nobody_takes_ends_the_connection() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let slots = ConnectionSlots::new(1);
            // What is taken too late, and in time.
            for taken in [false, true] {
                let seat = slots.take(address(1)).expect("a slot");
                let (near, mut far) = tokio::io::duplex(16);
                let mut stream = seat.slot().time(near);
                let slot = seat.slot().clone();
                let serving = async move {
                    stream.write_all(&[0; 100]).await.unwrap();
                    stream.flush().await.unwrap();
                };
                let mut serving = std::pin::pin!(seat.serve(serving, Duration::ZERO));
                let mut bytes = [0; 100];
                if taken {
                    let reading = async {
                        far.read_exact(&mut bytes).await.unwrap();
                        std::future::pending::<()>().await;
                    };
                    tokio::select! { () = &mut serving => {}, () = reading => {} }
                    assert_eq!(slot.blocked.get(), None);
                } else {
                    serving.await;
                    assert!(slot.blocked.get().is_some());
                }
                assert!(slots.taken.borrow().is_empty());
            }
        });
    }
}
