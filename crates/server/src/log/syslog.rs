//! syslog, by its local socket.

use std::path::Path;

use super::datagram::{Datagrams, PATIENCE};

const SOCKET: &str = "/dev/log";
/// Severity "debug", which OpenLDAP's lines have.
const DEBUG: u32 = 7;

#[derive(Debug)]
pub(super) struct Syslog {
    datagrams: Datagrams,
    /// `<priority>program[process]: `, and the line that was sent last.
    line: String,
    head: usize,
}

impl Syslog {
    /// Connects to the machine's syslog; `None` where there is none.
    pub(super) fn connect(program: &str, facility: u32) -> Option<Self> {
        Self::connect_to(SOCKET.as_ref(), program, facility)
    }

    fn connect_to(path: &Path, program: &str, facility: u32) -> Option<Self> {
        let datagrams = Datagrams::connect(path, PATIENCE)?;
        let line = format!("<{}>{program}[{}]: ", facility * 8 + DEBUG, std::process::id());
        Some(Self { datagrams, head: line.len(), line })
    }

    /// Sends a line, and answers whether it was taken.
    pub(super) fn send(&mut self, text: &str) -> bool {
        self.line.truncate(self.head);
        self.line.push_str(text);
        self.datagrams.send(self.line.as_bytes())
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
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn a_line_has_priority_program_and_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let daemon = UnixDatagram::bind(&path).unwrap();
        let mut syslog = Syslog::connect_to(&path, "slapd", 16).unwrap();
        for text in ["a longer line", "line"] {
            assert!(syslog.send(text));
            let mut line = [0; 64];
            let length = daemon.recv(&mut line).unwrap();
            let line = String::from_utf8_lossy(&line[..length]).into_owned();
            assert_eq!(line, format!("<135>slapd[{}]: {text}", std::process::id()));
        }
    }
}
