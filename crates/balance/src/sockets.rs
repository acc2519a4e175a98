//! Sockets: reading and writing what there is.

use std::io::{self, Read, Write};

use rustix::event::epoll::{self, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, getrlimit, setrlimit};
use socket2::Socket;

/// Descriptors for what is no connection: listeners, logs, the poll.
const OTHER_DESCRIPTORS: usize = 32;

/// Lets the process have as many open files as it may; how many that is.
pub(crate) fn raise_descriptor_limit() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Refused only where the hard limit changed meanwhile: then the soft one stays.
    let _ = setrlimit(Resource::Nofile, limit);
    let current = getrlimit(Resource::Nofile).current;
    current.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX)
}

/// Connections of clients that there is room for beside so many to servers.
pub(crate) fn clients_max(descriptors: usize, to_servers: usize) -> usize {
    descriptors - to_servers.saturating_add(OTHER_DESCRIPTORS).min(descriptors / 2)
}

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

    /// Whether the other end has closed: for a socket that is not read now, where reading would show it.
    pub(crate) fn is_left(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_room_for_servers() {
        for (descriptors, to_servers, expected) in
            [(1024, 36, 956), (64, 36, 32), (1, 36, 1), (usize::MAX, usize::MAX, usize::MAX / 2 + 1)]
        {
            assert_eq!(clients_max(descriptors, to_servers), expected, "{descriptors} {to_servers}");
        }
    }
}
