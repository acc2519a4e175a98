//! `client-limits`: bounds on clients that OpenLDAP has no keyword for.

use std::fmt;
use std::net::IpAddr;

/// Seconds that the rest of a request may take to arrive from an anonymous client, unless the configuration says
/// otherwise. Generous: the slowest line sends 256 KB in that time.
const REQUEST_SECONDS: u32 = 120;
const NANOS_A_SECOND: u64 = 1_000_000_000;

/// What clients may do together and by address. 0 and `None` are: no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientLimits {
    /// `connections=`: open at once, all together. What the limit of open files leaves room for holds in any case.
    pub connections: u32,
    /// `connections.address=`: open at once from one address.
    pub connections_per_address: u32,
    /// `connects.address=`: new connections from one address.
    pub connects: Option<Rate>,
    /// `operations.anonymous=`: operations of all anonymous clients at one address.
    pub anonymous_operations: Option<Rate>,
    /// `failures.address=`: binds from one address that fail with wrong credentials.
    pub failures: Option<Rate>,
    /// `request.time=`: seconds that the rest of a request may take to arrive from an anonymous client.
    pub request_seconds: u32,
    /// `except=`: addresses that the limits by address are not for.
    pub except: Vec<Network>,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connections: 0,
            connections_per_address: 0,
            connects: None,
            anonymous_operations: None,
            failures: None,
            request_seconds: REQUEST_SECONDS,
            except: Vec::new(),
        }
    }
}

/// So many in so many seconds; as many at once when there were none before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub count: u32,
    pub seconds: u32,
}

impl Rate {
    /// Nanoseconds until one more is allowed, and until all of `count` are.
    pub fn nanos(self) -> (u64, u64) {
        let each = u64::from(self.seconds) * NANOS_A_SECOND / u64::from(self.count.max(1));
        (each, each * u64::from(self.count))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seconds {
            1 => write!(f, "{} a second", self.count),
            60 => write!(f, "{} a minute", self.count),
            3600 => write!(f, "{} an hour", self.count),
            seconds => write!(f, "{} in {seconds} seconds", self.count),
        }
    }
}

/// An address, or all that begin as it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

impl ClientLimits {
    /// Whether any limit is by address.
    pub fn ask_for_address(&self) -> bool {
        self.connections_per_address > 0
            || [self.connects, self.anonymous_operations, self.failures].iter().any(Option::is_some)
    }

    /// The words, for messages.
    pub(crate) const WORDS: &'static str = "connections=, connections.address=, connects.address=, operations.anonymous=, \
         failures.address=, request.time=, except=";

    /// One word of the line.
    ///
    /// # Errors
    /// Names the word and what it may be.
    pub fn apply_word(&mut self, word: &str) -> Result<(), String> {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}` has no value"))?;
        match name.to_ascii_lowercase().as_str() {
            "connections" => self.connections = number(value)?,
            "connections.address" => self.connections_per_address = number(value)?,
            "connects.address" => self.connects = Rate::parse(value)?,
            "operations.anonymous" => self.anonymous_operations = Rate::parse(value)?,
            "failures.address" => self.failures = Rate::parse(value)?,
            "request.time" => self.request_seconds = number(value)?,
            "except" => self.except.push(Network::parse(value)?),
            _ => return Err(format!("no limit `{name}`")),
        }
        Ok(())
    }
}

impl Rate {
    /// `20`, `20/s`, `20/m` or `20/h`; `unlimited`, `none` and 0 are no limit.
    fn parse(text: &str) -> Result<Option<Self>, String> {
        let (count, unit) = text.split_once('/').unwrap_or((text, "s"));
        let seconds = match unit.to_ascii_lowercase().as_str() {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return Err(format!("`{unit}` is not a unit of time; say s, m or h")),
        };
        Ok(Some(number(count)?).filter(|count| *count > 0).map(|count| Self { count, seconds }))
    }
}

impl Network {
    /// `192.0.2.1`, `192.0.2.0/24`, `2001:db8::/32`.
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not an address, or an address and the bits that count");
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if bits > most { Err(wrong()) } else { Ok(Self { address, bits }) }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(mine), IpAddr::V4(other)) => {
                (u32::from(mine) ^ u32::from(other)).checked_shr(32 - self.bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(mine), IpAddr::V6(other)) => {
                (u128::from(mine) ^ u128::from(other)).checked_shr(128 - self.bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

fn number(text: &str) -> Result<u32, String> {
    match text {
        "unlimited" | "none" => Ok(0),
        _ => text.parse().map_err(|_| format!("`{text}` is not a limit; say a number or unlimited")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_their_mistakes_are_named() {
        let mut limits = ClientLimits::default();
        for word in [
            "connections=1000",
            "Connections.Address=20",
            "connects.address=5",
            "failures.address=30/m",
            "operations.anonymous=unlimited",
            "request.time=0",
            "except=192.0.2.0/24",
        ] {
            limits.apply_word(word).unwrap();
        }
        assert_eq!(limits.connects, Some(Rate { count: 5, seconds: 1 }));
        assert_eq!(limits.failures, Some(Rate { count: 30, seconds: 60 }));
        assert_eq!((limits.connections, limits.connections_per_address), (1000, 20));
        assert_eq!((limits.anonymous_operations, limits.request_seconds), (None, 0));
        for (word, expected) in [
            ("connections", "has no value"),
            ("connections=many", "`many` is not a limit"),
            ("connects.address=5/y", "`y` is not a unit of time"),
            ("speed=5", "no limit `speed`"),
            ("except=host.example.com", "not an address"),
            ("except=192.0.2.0/33", "not an address"),
        ] {
            let error = limits.apply_word(word).unwrap_err();
            assert!(error.contains(expected), "{word}: {error}");
        }
    }

    #[test]
    fn a_network_has_the_addresses_of_its_prefix() {
        for (network, address, expected) in [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.0/24", "192.0.2.255", true),
            ("192.0.2.0/24", "192.0.3.0", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("0.0.0.0/0", "::1", false),
        ] {
            let network = Network::parse(network).unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), expected, "{network:?} {address}");
        }
    }
}
