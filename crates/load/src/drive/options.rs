//! Whom to drive, how hard, and what to watch meanwhile.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The most connections of one driver.
pub const CONNECTIONS_MAX: usize = 20_000;
/// The most requests in flight on one connection; servers refuse more from a client.
pub const IN_FLIGHT_MAX: usize = 100;
/// The most threads of one driver.
pub const THREADS_MAX: usize = 64;
/// The highest rate of an open loop: one request a microsecond.
pub const RATE_MAX: f64 = 1e6;

/// Where a server listens and how the bytes on the way are protected.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Server {
    pub address: Address,
    pub security: Security,
}

/// Where a server listens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Address {
    Tcp(SocketAddr),
    /// The path of a socket (`ldapi://`).
    Unix(PathBuf),
}

/// How the bytes on the way are protected.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Security {
    #[default]
    None,
    /// TLS from the first byte (`ldaps://`).
    Tls(Trust),
    /// The StartTLS operation (RFC 4511 section 4.14) before the bind.
    StartTls(Trust),
}

/// Which certificates of a server are taken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Trust {
    /// The name that the certificate must carry.
    pub name: String,
    /// PEM certificates of the authorities; none accepts whatever the server shows.
    pub authorities: Option<PathBuf>,
}

/// Who each connection is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Identity {
    #[default]
    Anonymous,
    Simple {
        dn: String,
        password: String,
    },
    /// SASL PLAIN (RFC 4616).
    Plain {
        user: String,
        password: String,
    },
    /// SASL SCRAM (RFC 5802, RFC 7677), without a channel binding.
    Scram {
        hash: larix_sasl::scram::Hash,
        user: String,
        password: String,
    },
    /// SASL EXTERNAL (RFC 4422 appendix A): the user of the process on `ldapi://`.
    External,
}

/// What to drive and how hard. [`Options::new`] gives the defaults.
#[derive(Clone, Debug)]
pub struct Options {
    pub server: Server,
    pub identity: Identity,
    /// 1 to [`CONNECTIONS_MAX`].
    pub connections: usize,
    /// Requests kept in flight on each connection, 1 to [`IN_FLIGHT_MAX`].
    pub in_flight: usize,
    /// Requests per second of all connections together, sent on time whether answers come or not as long as one of the
    /// `connections * in_flight` places is free; latency counts from the intended start. None: as fast as answers come.
    pub rate: Option<f64>,
    /// Threads of the driver; the connections are divided among them.
    pub threads: usize,
    /// How long is measured.
    pub duration: Duration,
    /// How long is driven before the measurement starts.
    pub warm_up: Duration,
    /// How often [`Report::samples`](super::Report::samples) grows; zero takes none.
    pub sample_every: Duration,
    /// The server's process, for its CPU time and resident memory.
    pub process: Option<u32>,
    /// Files and directories whose disk usage is watched.
    pub disk: Vec<PathBuf>,
    /// A replica whose lag is watched.
    pub lag: Option<LagOptions>,
    pub seed: u64,
}

/// Which second server is compared by contextCSN with the driven one.
#[derive(Clone, Debug)]
pub struct LagOptions {
    pub consumer: Server,
    /// The entry that carries the contextCSN: the naming context.
    pub base: String,
    /// How often both are asked.
    pub every: Duration,
}

impl Options {
    /// 16 connections with one request in flight each, as fast as answers come, 10 seconds after 2 of warming up.
    pub const fn new(server: Server) -> Self {
        Self {
            server,
            identity: Identity::Anonymous,
            connections: 16,
            in_flight: 1,
            rate: None,
            threads: 1,
            duration: Duration::from_secs(10),
            warm_up: Duration::from_secs(2),
            sample_every: Duration::from_secs(1),
            process: None,
            disk: Vec::new(),
            lag: None,
            seed: 1,
        }
    }

    /// Whether this can be driven.
    ///
    /// # Errors
    /// The number that is out of its range, by name.
    pub fn check(&self) -> Result<(), OptionsError> {
        let within = |what, value: usize, max| match value {
            1.. if value <= max => Ok(()),
            _ => Err(OptionsError::Range { what, value, max }),
        };
        within("connections", self.connections, CONNECTIONS_MAX)?;
        within("requests in flight", self.in_flight, IN_FLIGHT_MAX)?;
        within("threads", self.threads, THREADS_MAX)?;
        if self.threads > self.connections {
            return Err(OptionsError::Idle { threads: self.threads, connections: self.connections });
        }
        match self.rate {
            Some(rate) if !(rate > 0.0 && rate <= RATE_MAX) => Err(OptionsError::Rate(rate)),
            _ => Ok(()),
        }
    }
}

impl From<SocketAddr> for Server {
    fn from(address: SocketAddr) -> Self {
        Self { address: Address::Tcp(address), security: Security::None }
    }
}

impl From<(String, String)> for Identity {
    fn from((dn, password): (String, String)) -> Self {
        Self::Simple { dn, password }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Tcp(address) => {
                let scheme = if matches!(self.security, Security::Tls(_)) { "ldaps" } else { "ldap" };
                write!(f, "{scheme}://{address}")
            }
            Address::Unix(path) => write!(f, "ldapi://{}", path.display()),
        }
    }
}

/// An option that cannot be driven.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OptionsError {
    Range { what: &'static str, value: usize, max: usize },
    Idle { threads: usize, connections: usize },
    Rate(f64),
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { what, value, max } => write!(f, "{value} {what}: 1 to {max} can be driven"),
            Self::Idle { threads, connections } => {
                write!(f, "{threads} threads for {connections} connections: each thread needs one")
            }
            Self::Rate(rate) => {
                write!(f, "a rate of {rate} requests per second: more than 0, at most {RATE_MAX}")
            }
        }
    }
}

impl std::error::Error for OptionsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_driven_is_named() {
        let check = |change: fn(&mut Options), expected: &str| {
            let mut options = Options::new("127.0.0.1:389".parse::<SocketAddr>().unwrap().into());
            change(&mut options);
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(|options| options.connections = 0, "0 connections: 1 to 20000");
        check(|options| options.connections = 20_001, "20001 connections");
        check(|options| options.in_flight = 101, "101 requests in flight: 1 to 100");
        check(|options| options.threads = 0, "0 threads");
        check(|options| options.threads = 17, "17 threads for 16 connections");
        check(|options| options.rate = Some(0.0), "a rate of 0 ");
        check(|options| options.rate = Some(-1.0), "a rate of -1 ");
        check(|options| options.rate = Some(f64::NAN), "a rate of NaN ");
        check(|options| options.rate = Some(2e6), "a rate of 2000000 ");
    }
}
