//! Messages to the test harness that started the server: OpenLDAP's `mod_harness` and its lines of text.

use std::fmt;
use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use larix_configuration::HarnessSettings;

/// How long the harness may take to accept a connection, and to take a line.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to the harness; without one every call does nothing.
#[derive(Debug, Default)]
pub(crate) struct Harness(Option<TcpStream>);

/// The harness cannot be reached: it waits for a server that it will never hear of.
#[derive(Debug)]
pub struct HarnessError {
    host: String,
    port: u16,
    source: io::Error,
}

impl fmt::Display for HarnessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "backend harness: cannot reach {}:{}: {}", self.host, self.port, self.source)
    }
}

impl std::error::Error for HarnessError {}

impl Harness {
    /// Connects and says who runs and where it listens, URL and name of each listener.
    pub(crate) fn greet<'a>(
        settings: Option<&HarnessSettings>,
        listeners: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, HarnessError> {
        let Some(HarnessSettings { host, port, identifier }) = settings else { return Ok(Self(None)) };
        let mut text = format!("PID {} {identifier}\nLISTENERS\n", std::process::id());
        for (url, name) in listeners {
            text.push_str(&format!("URI={url} {name}\n"));
        }
        text.push_str("LISTENERS END\n");
        let greeted = connect(host, *port).and_then(|mut stream| {
            stream.set_write_timeout(Some(PATIENCE))?;
            stream.write_all(text.as_bytes())?;
            Ok(stream)
        });
        let stream = greeted.map_err(|source| HarnessError { host: host.clone(), port: *port, source })?;
        Ok(Self(Some(stream)))
    }

    pub(crate) fn ready(&mut self) {
        self.say("SLAPD READY\n");
    }

    pub(crate) fn stopped(&mut self) {
        self.say("SLAPD SHUTDOWN\n");
    }

    /// A harness that has gone is no reason to stop.
    fn say(&mut self, line: &str) {
        if let Self(Some(stream)) = self
            && stream.write_all(line.as_bytes()).is_err()
        {
            self.0 = None;
        }
    }
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_harness_hears_of_the_server() {
        let waiting = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = waiting.local_addr().unwrap().port();
        let settings = HarnessSettings { host: "127.0.0.1".to_owned(), port, identifier: "token".to_owned() };
        let mut harness = Harness::greet(Some(&settings), [("ldap://x", "IP=y")].into_iter()).unwrap();
        harness.ready();
        harness.stopped();
        drop(harness);
        let (stream, _) = waiting.accept().unwrap();
        let lines: Vec<String> = BufReader::new(stream).lines().map(Result::unwrap).collect();
        let pid = format!("PID {} token", std::process::id());
        let expected =
            [&pid, "LISTENERS", "URI=ldap://x IP=y", "LISTENERS END", "SLAPD READY", "SLAPD SHUTDOWN"];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_harness_that_is_not_there_is_named() {
        // A port that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = HarnessSettings { host: "127.0.0.1".to_owned(), port, identifier: String::new() };
        let error = Harness::greet(Some(&settings), std::iter::empty()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("backend harness: cannot reach 127.0.0.1:{port}: ")), "{error}");
        assert!(Harness::greet(None, std::iter::empty()).is_ok());
    }
}
