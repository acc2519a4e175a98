//! syslog, by its local socket.

use std::os::unix::net::UnixDatagram;

const SOCKET: &str = "/dev/log";
/// Severity "debug", which OpenLDAP's lines have.
const DEBUG: u32 = 7;

#[derive(Debug)]
pub(super) struct Syslog {
    socket: UnixDatagram,
    /// `<priority>program[process]: `.
    head: String,
}

impl Syslog {
    /// Connects to the machine's syslog; `None` where there is none.
    pub(super) fn connect(program: &str, facility: u32) -> Option<Self> {
        let socket = UnixDatagram::unbound().ok()?;
        socket.connect(SOCKET).ok()?;
        // A syslog that hangs must not hang us: what does not fit is lost, as with any datagram.
        socket.set_nonblocking(true).ok()?;
        let head = format!("<{}>{program}[{}]: ", facility * 8 + DEBUG, std::process::id());
        Some(Self { socket, head })
    }

    pub(super) fn send(&self, text: &str) {
        let line = format!("{}{text}", self.head);
        // A datagram to a syslog that is away or slow is lost by design.
        let _ = self.socket.send(line.as_bytes());
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
