//! The places for HTTP connections: a bounded number, so that there is always room for the next client.
//!
//! A connection that comes when all places are taken gets that of one that lets us wait: of the address that has most
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
pub(crate) struct Places {
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

/// A place that is taken; its end frees it.
#[derive(Debug)]
pub(crate) struct Seat {
    places: Rc<Places>,
    place: Rc<ConnectionSlot>,
}

/// A stream whose client has so long to take an answer.
#[derive(Debug)]
pub(crate) struct Timed<S> {
    stream: S,
    place: Rc<ConnectionSlot>,
}

/// A request that is being answered, until this is dropped.
pub(crate) struct Answering<'p>(&'p ConnectionSlot);

impl Places {
    pub(crate) fn new(most: usize) -> Rc<Self> {
        Rc::new(Self { most, taken: RefCell::default() })
    }

    /// A place for a new client. `None`: all are taken, and no client with at least as many places makes room.
    pub(crate) fn take(self: &Rc<Self>, address: IpAddr) -> Option<Seat> {
        let address = told_apart(address);
        let mut taken = self.taken.borrow_mut();
        if taken.len() >= self.most {
            let at = who_makes_room(&taken, address)?;
            let task = taken.swap_remove(at).task.take();
            task.into_iter().for_each(|task| task.abort());
        }
        let place = Rc::new(ConnectionSlot {
            address,
            answering: Cell::new(false),
            since: Cell::new(Instant::now()),
            blocked: Cell::new(None),
            task: RefCell::default(),
        });
        taken.push(place.clone());
        drop(taken);
        Some(Seat { places: self.clone(), place })
    }
}

/// The place that is given to a client from `address`, by its number.
fn who_makes_room(taken: &[Rc<ConnectionSlot>], address: IpAddr) -> Option<usize> {
    let of = |address: IpAddr| taken.iter().filter(|place| place.address == address).count();
    let own = of(address);
    // What is being answered is cut off for those alone who have less.
    let may_go = |place: &ConnectionSlot| match of(place.address) {
        theirs if place.lets_wait() => theirs >= own,
        theirs => theirs > own + 1,
    };
    let (at, _) = taken
        .iter()
        .enumerate()
        .filter(|(_, place)| may_go(place))
        .min_by_key(|(_, place)| (Reverse(of(place.address)), !place.lets_wait(), place.since.get()))?;
    Some(at)
}

impl Seat {
    pub(crate) fn place(&self) -> &Rc<ConnectionSlot> {
        &self.place
    }

    /// Serves the client to its end, or until it has not taken an answer for so long.
    pub(crate) async fn serve(self, serving: impl Future<Output = ()>, patience: Duration) {
        let mut serving = std::pin::pin!(serving);
        while tokio::time::timeout(TICK, serving.as_mut()).await.is_err() {
            if self.place.blocked.get().is_some_and(|since| since.elapsed() >= patience) {
                return;
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.places.taken.borrow_mut().retain(|place| !Rc::ptr_eq(place, &self.place));
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
        Timed { stream, place: self.clone() }
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
        self.place.note_write(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.place.note_write(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        match flushed {
            // All of what there was to send is sent.
            Poll::Ready(Ok(())) => self.place.blocked.set(None),
            _ => self.place.note_write(&flushed),
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.place.note_write(&ended);
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
        // Addresses in the order in which they came, which of them are being answered, and whose place a newcomer gets.
        let check = |came: &[u8], answering: &[usize], newcomer: u8, gets: Option<usize>| {
            let places = Places::new(came.len());
            let seats: Vec<Seat> =
                came.iter().map(|last| places.take(address(*last)).expect("a place")).collect();
            let under_way: Vec<_> =
                answering.iter().filter_map(|at| Some(seats.get(*at)?.place().begin())).collect();
            let seat = places.take(address(newcomer));
            let gone = seats
                .iter()
                .position(|seat| !places.taken.borrow().iter().any(|place| Rc::ptr_eq(place, seat.place())));
            assert_eq!((gone, seat.is_some()), (gets, gets.is_some()), "{came:?} {answering:?} {newcomer}");
            assert_eq!(places.taken.borrow().len(), came.len());
            drop(under_way);
            drop(seats);
            assert_eq!(places.taken.borrow().len(), usize::from(gets.is_some()), "{came:?}");
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
            let places = Places::new(1);
            // What is taken too late, and in time.
            for taken in [false, true] {
                let seat = places.take(address(1)).expect("a place");
                let (near, mut far) = tokio::io::duplex(16);
                let mut stream = seat.place().time(near);
                let place = seat.place().clone();
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
                    assert_eq!(place.blocked.get(), None);
                } else {
                    serving.await;
                    assert!(place.blocked.get().is_some());
                }
                assert!(places.taken.borrow().is_empty());
            }
        });
    }
}
