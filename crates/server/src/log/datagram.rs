//! Lines as datagrams to a local socket: how syslog and the journal take them.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a line waits for a program that has no room. Only the log's thread waits.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Datagrams {
    socket: UnixDatagram,
    path: PathBuf,
    /// It took no line in time, and is not waited for until it takes one.
    hangs: bool,
}

impl Datagrams {
    /// `None` where no program listens.
    pub(super) fn connect(path: &Path, patience: Duration) -> Option<Self> {
        let socket = UnixDatagram::unbound().ok()?;
        socket.connect(path).ok()?;
        socket.set_write_timeout(Some(patience)).ok()?;
        Some(Self { socket, path: path.to_owned(), hangs: false })
    }

    /// Sends a line, and answers whether it was taken. Few fit into a socket (`net.unix.max_dgram_qlen`), so that it
    /// waits for room, as syslog(3) does, but not for ever: a program that hangs must not hang the log.
    pub(super) fn send(&mut self, line: &[u8]) -> bool {
        let is_full = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        let mut sent = self.socket.send(line);
        if sent.as_ref().is_err_and(|error| !is_full(error)) {
            // A program that was started again listens at another socket of that name.
            sent = self.socket.connect(&self.path).and_then(|()| self.socket.send(line));
        }
        let hangs = sent.as_ref().is_err_and(is_full);
        if hangs != self.hangs && self.socket.set_nonblocking(hangs).is_ok() {
            self.hangs = hangs;
        }
        sent.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut line = [0; 64];
        let length = socket.recv(&mut line).unwrap();
        String::from_utf8_lossy(&line[..length]).into_owned()
    }

    #[test]
    fn a_program_that_hangs_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let program = UnixDatagram::bind(&path).unwrap();
        let mut datagrams = Datagrams::connect(&path, Duration::from_millis(1)).unwrap();
        // It takes nothing: more lines than any socket has room for.
        let most = 100_000;
        let fitted =
            (0..most).take_while(|number| datagrams.send(format!("line {number}").as_bytes())).count();
        assert!(datagrams.hangs && fitted < most, "{fitted}");
        assert!((0..100).all(|_| !datagrams.send(b"lost")));
        for number in 0..fitted {
            assert_eq!(received(&program), format!("line {number}"));
        }
        assert!(datagrams.send(b"there is room again") && !datagrams.hangs);
    }

    #[test]
    fn lines_wait_for_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let program = UnixDatagram::bind(&path).unwrap();
        let mut datagrams = Datagrams::connect(&path, Duration::from_secs(3_600)).unwrap();
        // It takes lines, slower than they come: none is lost.
        let taker = std::thread::spawn(move || {
            let mut count = 0;
            while received(&program) != "the end" {
                std::thread::yield_now();
                count += 1;
            }
            count
        });
        assert!((0..5_000).all(|number| datagrams.send(format!("line {number}").as_bytes())));
        assert!(datagrams.send(b"the end"));
        assert_eq!(taker.join().unwrap(), 5_000);
    }

    #[test]
    fn a_program_that_is_started_again_gets_lines_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let program = UnixDatagram::bind(&path).unwrap();
        let mut datagrams = Datagrams::connect(&path, PATIENCE).unwrap();
        assert!(datagrams.send(b"one"));
        drop(program);
        assert!(!datagrams.send(b"two"));
        std::fs::remove_file(&path).unwrap();
        assert!(!datagrams.send(b"three"));
        let program = UnixDatagram::bind(&path).unwrap();
        assert!(datagrams.send(b"four"));
        assert_eq!(received(&program), "four");
    }
}
