//! Sockets: reading and writing what there is.

use std::io::{self, Read, Write};

use rustix::event::epoll::{self, EventFlags};
use socket2::Socket;

/// A socket that the poll knows.
#[derive(Debug)]
pub(crate) struct Polled {
    pub(crate) socket: Socket,
    token: u64,
    /// Reading, writing.
    interest: (bool, bool),
}

impl Polled {
    /// Adds a socket to the poll.
    ///
    /// # Errors
    /// The poll takes no more.
    pub(crate) fn new(
        poll: &impl std::os::fd::AsFd,
        socket: Socket,
        token: u64,
        reads: bool,
        writes: bool,
    ) -> io::Result<Self> {
        epoll::add(poll, &socket, epoll::EventData::new_u64(token), flags(reads, writes))?;
        Ok(Self { socket, token, interest: (reads, writes) })
    }

    pub(crate) fn set_interest(&mut self, poll: &impl std::os::fd::AsFd, reads: bool, writes: bool) {
        if self.interest != (reads, writes) {
            self.interest = (reads, writes);
            // It fails for a socket that the poll does not know; all are added when they are made.
            let _ = epoll::modify(
                poll,
                &self.socket,
                epoll::EventData::new_u64(self.token),
                flags(reads, writes),
            );
        }
    }

    /// Gives it another token.
    pub(crate) fn set_token(&mut self, poll: &impl std::os::fd::AsFd, token: u64) {
        self.token = token;
        let (reads, writes) = self.interest;
        let _ = epoll::modify(poll, &self.socket, epoll::EventData::new_u64(token), flags(reads, writes));
    }

    /// Reads once; none: nothing is there. 0 is the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        none_if_blocked(self.socket.read(buffer))
    }

    /// Writes once; none: nothing is taken now.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        none_if_blocked(self.socket.write(bytes))
    }
}

fn none_if_blocked(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn flags(reads: bool, writes: bool) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, reads);
    flags.set(EventFlags::OUT, writes);
    flags
}
