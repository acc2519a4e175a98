//! Where the admin page is served: `admin-listener https://0.0.0.0:9390/ ldap.example.com`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// An address of the admin page, and the names by which browsers may ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminAddress {
    pub address: SocketAddr,
    /// With the server's certificate. Always so where others than this machine can reach it.
    pub tls: bool,
    /// Names beside IP addresses, `localhost` and the machine's own name.
    pub names: Vec<String>,
}

impl AdminAddress {
    /// Reads `http://127.0.0.1:9390/`, `https://0.0.0.0:9390/` or an address and port alone, which mean `http` on loopback
    /// and `https` elsewhere. Port 0 is any free one.
    ///
    /// # Errors
    /// What is wrong with the text, or why it is not safe.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (Some(scheme), rest),
            None => (None, text),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let numeric = rest
            .strip_prefix("localhost:")
            .map_or_else(|| rest.to_owned(), |port| format!("127.0.0.1:{port}"));
        let address: SocketAddr = numeric
            .parse()
            .map_err(|_| format!("`{text}` is not a numeric address and a port, with http:// or https://"))?;
        let loopback = is_loopback(address.ip());
        let tls = match scheme {
            Some("https") => true,
            Some("http") if loopback => false,
            Some("http") => {
                return Err(format!(
                    "`{text}` would carry passwords in clear to other machines: https:// (with TLSCertificateFile), or a \
                     loopback address"
                ));
            }
            None => !loopback,
            Some(_) => return Err(format!("`{text}` starts neither with http:// nor with https://")),
        };
        Ok(Self { address, tls, names: Vec::new() })
    }

    /// The same at the port that was really bound.
    #[must_use]
    pub fn bound(&self, address: SocketAddr) -> Self {
        Self { address, ..self.clone() }
    }

    /// Whether a browser that asks for `host` (the Host header) means this server. Another name may be a page's that had
    /// its own name lead to this address (DNS rebinding).
    pub fn answers_to(&self, host: &str, machine: &str) -> bool {
        let name = host_name(host);
        if let Ok(address) = name.parse::<IpAddr>() {
            // No page has an address of ours as its name, but those that came from there.
            return self.tls || is_loopback(address);
        }
        let first = |text: &str| text.split('.').next().unwrap_or("").to_owned();
        name.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
            || (!machine.is_empty()
                && (name.eq_ignore_ascii_case(machine) || name.eq_ignore_ascii_case(&first(machine))))
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// `[::1]:9390` and `example.com:9390` without port and brackets.
fn host_name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/", if self.tls { "https" } else { "http" }, self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_urls_with_tls_off_loopback() {
        for (text, expected) in [
            ("127.0.0.1:9390", Ok("http://127.0.0.1:9390/")),
            ("http://127.0.0.1:9390/", Ok("http://127.0.0.1:9390/")),
            ("http://localhost:0", Ok("http://127.0.0.1:0/")),
            ("[::1]:9390", Ok("http://[::1]:9390/")),
            ("https://127.0.0.1:9390", Ok("https://127.0.0.1:9390/")),
            ("0.0.0.0:9390", Ok("https://0.0.0.0:9390/")),
            ("https://192.0.2.1:9390/", Ok("https://192.0.2.1:9390/")),
            ("http://0.0.0.0:9390/", Err("in clear")),
            ("http://192.0.2.1:80/", Err("in clear")),
            ("ldap://127.0.0.1:80/", Err("neither with")),
            ("127.0.0.1", Err("a port")),
            ("http://example.com:80/", Err("numeric address")),
            ("http://127.0.0.1:9390/path", Err("numeric address")),
        ] {
            let found = AdminAddress::parse(text).map(|address| address.to_string());
            match expected {
                Ok(url) => assert_eq!(found.as_deref(), Ok(url), "{text}"),
                Err(part) => assert!(found.as_ref().is_err_and(|e| e.contains(part)), "{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn only_names_of_this_server_are_its_hosts() {
        let mut plain = AdminAddress::parse("127.0.0.1:9390").expect("an address");
        plain.names.push("directory.example.com".to_owned());
        let tls = AdminAddress::parse("0.0.0.0:9390").expect("an address");
        for (host, to_plain, to_tls) in [
            ("127.0.0.1:9390", true, true),
            ("localhost:9390", true, true),
            ("LOCALHOST", true, true),
            ("[::1]:9390", true, true),
            ("192.0.2.1:9390", false, true),
            ("directory.example.com", true, false),
            ("box:9390", true, true),
            ("box.example.com:9390", true, true),
            ("evil.example:9390", false, false),
            ("127.0.0.1.evil.example", false, false),
            ("", false, false),
        ] {
            let found = (plain.answers_to(host, "box.example.com"), tls.answers_to(host, "box.example.com"));
            assert_eq!(found, (to_plain, to_tls), "{host}");
        }
    }
}
