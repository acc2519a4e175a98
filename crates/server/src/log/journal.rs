//! journald by its own protocol: one datagram a line, of fields (systemd.journal-fields(7)).

use std::io::Write as _;

use super::Severity;
use super::datagram::{Datagrams, PATIENCE};

const SOCKET: &str = "/run/systemd/journal/socket";
/// Longer messages are cut: what does not fit a datagram would need a file to be handed over.
const MESSAGE_BYTES_MAX: usize = 48 * 1024;

#[derive(Debug)]
pub(super) struct Journal {
    datagrams: Datagrams,
    /// Fields that every line has.
    common: Vec<u8>,
}

impl Journal {
    /// Connects to the machine's journal; `None` where there is none.
    pub(super) fn connect(program: &str, facility: u32) -> Option<Self> {
        Self::connect_to(SOCKET, program, facility)
    }

    pub(super) fn connect_to(path: &str, program: &str, facility: u32) -> Option<Self> {
        let datagrams = Datagrams::connect(path.as_ref(), PATIENCE)?;
        let common = format!("SYSLOG_IDENTIFIER={program}\nSYSLOG_FACILITY={facility}\n").into_bytes();
        Some(Self { datagrams, common })
    }

    /// Sends a line, and answers whether it was taken.
    pub(super) fn send(&mut self, severity: Severity, text: &str) -> bool {
        let datagram = self.datagram(severity, text);
        self.datagrams.send(&datagram)
    }

    fn datagram(&self, severity: Severity, text: &str) -> Vec<u8> {
        let message = text.get(..text.floor_char_boundary(MESSAGE_BYTES_MAX)).unwrap_or(text);
        let mut out = Vec::with_capacity(self.common.len() + message.len() + 96);
        out.extend_from_slice(&self.common);
        // Writing to a Vec cannot fail.
        let _ = writeln!(out, "PRIORITY={}", severity as u8);
        for (field, value) in numbers(message) {
            let _ = writeln!(out, "{field}={value}");
        }
        field(&mut out, "MESSAGE", message);
        out
    }
}

/// A value with a line break in it is preceded by its length.
fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        out.push(b'\n');
        out.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        out.push(b'=');
    }
    out.extend_from_slice(value.as_bytes());
    out.push(b'\n');
}

/// Connection and operation, which OpenLDAP's lines begin with.
fn numbers(text: &str) -> impl Iterator<Item = (&'static str, u64)> {
    let names = [("conn=", "LARIX_CONNECTION"), ("op=", "LARIX_OPERATION")];
    text.split(' ')
        .zip(names)
        .map_while(|(word, (prefix, field))| Some((field, word.strip_prefix(prefix)?.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn a_line_becomes_fields() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let socket = UnixDatagram::bind(&path).unwrap();
        let mut journal = Journal::connect_to(path.to_str().unwrap(), "slapd", 20).unwrap();
        let mut check = |severity, text: &str, expected: &[u8]| {
            assert!(journal.send(severity, text));
            let mut buffer = [0; 1024];
            let count = socket.recv(&mut buffer).unwrap();
            let head = b"SYSLOG_IDENTIFIER=slapd\nSYSLOG_FACILITY=20\n";
            assert_eq!(buffer[..count].strip_prefix(head).unwrap(), expected, "{text}");
        };
        check(
            Severity::Info,
            "conn=7 op=2 UNBIND",
            b"PRIORITY=6\nLARIX_CONNECTION=7\nLARIX_OPERATION=2\nMESSAGE=conn=7 op=2 UNBIND\n",
        );
        check(
            Severity::Info,
            "conn=7 fd=9 closed",
            b"PRIORITY=6\nLARIX_CONNECTION=7\nMESSAGE=conn=7 fd=9 closed\n",
        );
        check(Severity::Warning, "a\nb", b"PRIORITY=4\nMESSAGE\n\x03\0\0\0\0\0\0\0a\nb\n");
    }
}
