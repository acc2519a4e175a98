//! syslog, by its local socket.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

const SOCKET: &str = "/dev/log";
/// How long a line waits for a syslog that has no room. Only the log's thread waits.
const PATIENCE: Duration = Duration::from_secs(1);
/// Severity "debug", which OpenLDAP's lines have.
const DEBUG: u32 = 7;

#[derive(Debug)]
pub(super) struct Syslog {
    socket: UnixDatagram,
    /// `<priority>program[process]: `, and the line that was sent last.
    line: String,
    head: usize,
    /// It took no line in time, and is not waited for until it takes one.
    hangs: bool,
}

impl Syslog {
    /// Connects to the machine's syslog; `None` where there is none.
    pub(super) fn connect(program: &str, facility: u32) -> Option<Self> {
        Self::connect_to(SOCKET.as_ref(), program, facility, PATIENCE)
    }

    fn connect_to(path: &Path, program: &str, facility: u32, patience: Duration) -> Option<Self> {
        let socket = UnixDatagram::unbound().ok()?;
        socket.connect(path).ok()?;
        socket.set_write_timeout(Some(patience)).ok()?;
        let line = format!("<{}>{program}[{}]: ", facility * 8 + DEBUG, std::process::id());
        Some(Self { socket, head: line.len(), line, hangs: false })
    }

    /// Sends a line. Few fit into a socket (`net.unix.max_dgram_qlen`), so that it waits for room, as syslog(3) does, but not
    /// for ever: a syslog that hangs must not hang the log. Lines that it does not take then are lost, as are lines that no program receives.
    pub(super) fn send(&mut self, text: &str) {
        self.line.truncate(self.head);
        self.line.push_str(text);
        let sent = self.socket.send(self.line.as_bytes());
        let hangs = sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        if hangs != self.hangs && self.socket.set_nonblocking(hangs).is_ok() {
            self.hangs = hangs;
        }
    }
}

/// The number of a facility that `-l` names: `LOCAL4`, `DAEMON`, `USER`.
pub fn syslog_facility(name: &str) -> Option<u32> {
    let name = name.to_ascii_uppercase();
    let name = name.strip_prefix("LOG_").unwrap_or(&name);
    match name {
        "USER" => Some(1),
        "DAEMON" => Some(3),
        _ => name.strip_prefix("LOCAL")?.parse().ok().filter(|n| *n < 8).map(|n: u32| 16 + n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syslog_that_hangs_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let daemon = UnixDatagram::bind(&path).unwrap();
        let mut syslog = Syslog::connect_to(&path, "slapd", 16, Duration::from_millis(1)).unwrap();
        // It takes nothing: more lines than any socket has room for.
        let most = 100_000;
        let sent = (0..most).take_while(|number| {
            syslog.send(&format!("line {number}"));
            !syslog.hangs
        });
        let fitted = sent.count();
        assert!(syslog.hangs && fitted < most, "{fitted}");
        (0..100).for_each(|_| syslog.send("lost"));
        let mut line = [0; 64];
        for number in 0..fitted {
            let length = daemon.recv(&mut line).unwrap();
            let text = String::from_utf8_lossy(&line[..length]).into_owned();
            assert!(
                text.starts_with("<135>slapd[") && text.ends_with(&format!("]: line {number}")),
                "{text}"
            );
        }
        syslog.send("there is room again");
        assert!(!syslog.hangs);
    }

    #[test]
    fn lines_wait_for_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let daemon = UnixDatagram::bind(&path).unwrap();
        let mut syslog = Syslog::connect_to(&path, "slapd", 16, Duration::from_secs(3_600)).unwrap();
        // It takes lines, slower than they come: none is lost.
        let taker = std::thread::spawn(move || {
            let mut count = 0;
            let mut line = [0; 64];
            while !String::from_utf8_lossy(&line).contains("the end") {
                line.fill(0);
                daemon.recv(&mut line).unwrap();
                std::thread::yield_now();
                count += 1;
            }
            count
        });
        (0..5_000).for_each(|number| syslog.send(&format!("line {number}")));
        syslog.send("the end");
        assert_eq!(taker.join().unwrap(), 5_001);
    }
}
