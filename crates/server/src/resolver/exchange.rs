//! Asks name servers, over UDP, and over TCP where an answer does not fit a datagram. It waits: it is called on threads that may.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use larix_engine::time::{Clock, Monotonic, RandomSource};

use super::message::{self, Answer, Fault, Host};

/// The port of name servers (RFC 1035 section 4.2).
const PORT: u16 = 53;
/// Bytes of a datagram that is taken.
const DATAGRAM_BYTES_MAX: usize = 4096;
/// Datagrams that answer something else before a server is given up.
const STRAYS_MAX: usize = 100;
/// Name servers that are asked, as in resolv.conf(5).
const SERVERS_MAX: usize = 3;

/// Name servers, and how they are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NameServers {
    pub(super) addresses: Vec<SocketAddr>,
    /// How long each may take for an answer, in seconds.
    pub(super) timeout: u32,
    /// How often each is asked.
    pub(super) attempts: u32,
}

impl NameServers {
    pub(super) fn new(addresses: &[SocketAddr]) -> Self {
        Self { addresses: addresses.to_vec(), timeout: 3, attempts: 2 }
    }

    /// Those of the machine (resolv.conf(5)); without the file, or a server in it, one on the machine itself.
    pub(super) fn of_machine(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_default();
        // Lines that nobody understands are passed over, as by the system's own resolver.
        let (read, _) = resolv_conf::Config::parse_with_errors(&bytes);
        let addresses = read.nameservers.iter().map(|server| SocketAddr::new(server.into(), PORT));
        let mut addresses: Vec<SocketAddr> = addresses.take(SERVERS_MAX).collect();
        if addresses.is_empty() {
            addresses.push((Ipv4Addr::LOCALHOST, PORT).into());
        }
        Self { addresses, timeout: read.timeout.clamp(1, 5), attempts: read.attempts.clamp(1, 3) }
    }

    /// The hosts that the SRV records of a name have, and how long they are known: in seconds.
    ///
    /// # Errors
    /// Why no server has answered.
    pub(super) fn hosts(
        &self,
        name: &str,
        until: Monotonic,
        around: (&dyn Clock, &dyn RandomSource),
    ) -> Result<(Vec<Host>, u32), String> {
        let mut why = "no name server is known".to_owned();
        for server in std::iter::repeat_n(&self.addresses, self.attempts as usize).flatten() {
            let exchange = Exchange { server: *server, name, clock: around.0 };
            let own = around.0.monotonic().plus_seconds(self.timeout);
            match exchange.ask(own.min(until), around.1) {
                Ok(found) => return Ok(found),
                Err(fault) => why = format!("{server}: {fault}"),
            }
            if around.0.monotonic() >= until {
                break;
            }
        }
        Err(why)
    }
}

/// One question to one server.
struct Exchange<'a> {
    server: SocketAddr,
    name: &'a str,
    clock: &'a dyn Clock,
}

impl Exchange<'_> {
    fn ask(&self, until: Monotonic, random: &dyn RandomSource) -> Result<(Vec<Host>, u32), String> {
        let mut id = [0; 2];
        random.fill(&mut id);
        let id = u16::from_be_bytes(id);
        let Some(question) = message::question(id, self.name) else {
            return Err(format!("the name {} cannot be asked for", self.name));
        };
        match self.over_udp(&question, id, until)? {
            Answer::Hosts(hosts, ttl) => Ok((hosts, ttl)),
            Answer::Truncated => match self.over_tcp(&question, id, until)? {
                Answer::Hosts(hosts, ttl) => Ok((hosts, ttl)),
                Answer::Truncated => Err("an answer that is cut off over TCP, too".to_owned()),
            },
        }
    }

    fn over_udp(&self, question: &[u8], id: u16, until: Monotonic) -> Result<Answer, String> {
        let unspecified: IpAddr = match self.server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let failed = |error: io::Error| error.to_string();
        // A port that the system chooses: who does not see the question has to guess it, as well as the id.
        let socket = UdpSocket::bind((unspecified, 0)).map_err(failed)?;
        socket.connect(self.server).map_err(failed)?;
        socket.send(question).map_err(failed)?;
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        for _ in 0..STRAYS_MAX {
            socket.set_read_timeout(Some(self.left(until).map_err(failed)?)).map_err(failed)?;
            let length = socket.recv(&mut buffer).map_err(|error| failed(named(error)))?;
            match message::answer(buffer.get(..length).unwrap_or_default(), id, self.name) {
                Err(Fault::Stray) => {}
                answered => return answered.map_err(|fault| fault.to_string()),
            }
        }
        Err(format!("{STRAYS_MAX} answers to other questions"))
    }

    fn over_tcp(&self, question: &[u8], id: u16, until: Monotonic) -> Result<Answer, String> {
        let exchange = || -> io::Result<Vec<u8>> {
            let mut stream = TcpStream::connect_timeout(&self.server, self.left(until)?)?;
            stream.set_write_timeout(Some(self.left(until)?))?;
            let length = u16::try_from(question.len()).unwrap_or(u16::MAX);
            stream.write_all(&[&length.to_be_bytes(), question].concat())?;
            let mut length = [0; 2];
            self.fill(&mut stream, &mut length, until)?;
            let mut bytes = vec![0; u16::from_be_bytes(length).into()];
            self.fill(&mut stream, &mut bytes, until)?;
            Ok(bytes)
        };
        let bytes = exchange().map_err(|error| named(error).to_string())?;
        message::answer(&bytes, id, self.name).map_err(|fault| fault.to_string())
    }

    /// Reads so many bytes, however slowly they come, as long as there is time.
    fn fill(&self, stream: &mut TcpStream, mut rest: &mut [u8], until: Monotonic) -> io::Result<()> {
        while !rest.is_empty() {
            stream.set_read_timeout(Some(self.left(until)?))?;
            match stream.read(rest)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                length => rest = rest.get_mut(length..).unwrap_or_default(),
            }
        }
        Ok(())
    }

    /// # Errors
    /// No time is left.
    fn left(&self, until: Monotonic) -> io::Result<Duration> {
        let nanos = until.0.saturating_sub(self.clock.monotonic().0);
        match nanos {
            0 => Err(late()),
            nanos => Ok(Duration::from_nanos(nanos)),
        }
    }
}

fn late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "no answer in time")
}

/// A timeout of a socket by its own name.
fn named(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => late(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_of_a_machine() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        for (text, addresses, timeout, attempts) in [
            ("", vec![address("127.0.0.1:53")], 5, 2),
            (
                "nameserver 192.0.2.1\nnonsense\nnameserver 2001:db8::1\n",
                vec![address("192.0.2.1:53"), address("[2001:db8::1]:53")],
                5,
                2,
            ),
            ("nameserver 192.0.2.1\noptions timeout:30 attempts:9\n", vec![address("192.0.2.1:53")], 5, 3),
            ("nameserver 192.0.2.1\noptions timeout:2 attempts:1\n", vec![address("192.0.2.1:53")], 2, 1),
        ] {
            std::fs::write(&path, text).unwrap();
            let expected = NameServers { addresses, timeout, attempts };
            assert_eq!(NameServers::of_machine(&path), expected, "{text}");
        }
        let four: String = (1..5).map(|number| format!("nameserver 192.0.2.{number}\n")).collect();
        std::fs::write(&path, four).unwrap();
        assert_eq!(NameServers::of_machine(&path).addresses.len(), 3);
        assert_eq!(NameServers::of_machine(&folder.path().join("none")).addresses, [address("127.0.0.1:53")]);
    }
}
