//! `database dnssrv`: referrals to the servers that the DNS names for a domain (slapd-dnssrv(5)).

use std::net::{IpAddr, SocketAddr};

use super::super::builder::Builder;
use super::super::builder::call::{Call, Fault};
use super::super::builder::directive::{Directive, Form, Scope};
use super::{Descriptor, KindSettings, NOTHING};

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "dnssrv",
    settings: || Box::new(DnssrvSettings::default()),
    directives: TABLE,
    ..NOTHING
};

static TABLE: &[Directive] =
    &[Directive::new("nameserver", "olcLarixDnssrvServer", Scope::Kind("dnssrv"), Form::Each, servers)
        .many()];

/// Name servers that are asked, as in resolv.conf(5).
const SERVERS_MAX: usize = 3;
/// The port of name servers (RFC 1035 section 4.2).
const PORT: u16 = 53;

/// Settings of `database dnssrv`.
#[derive(Debug, Clone, Default)]
pub struct DnssrvSettings {
    /// The name servers that are asked; none: those of the machine.
    pub servers: Vec<SocketAddr>,
}

fn servers(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let servers = &mut builder.settings_of::<DnssrvSettings>()?.servers;
    for (number, word) in call.arguments.iter().enumerate() {
        let without_port = |ip: IpAddr| SocketAddr::new(ip, PORT);
        let server = word.parse().or_else(|_| word.parse().map(without_port)).map_err(|_| {
            let fault = Fault::argument(number, format!("`{word}` is no address of a name server"));
            fault.with_help("such as 192.0.2.53, 192.0.2.53:5353 or [2001:db8::53]:53")
        })?;
        if servers.len() >= SERVERS_MAX {
            let fault = Fault::argument(number, format!("more than {SERVERS_MAX} name servers"));
            return Err(fault.with_help("take some out: a name server that does not answer costs seconds"));
        }
        servers.push(server);
    }
    Ok(())
}

impl KindSettings for DnssrvSettings {}

#[cfg(test)]
mod tests {
    use super::super::super::model::Config;
    use super::DnssrvSettings;

    #[test]
    fn name_servers_are_addresses() {
        for (lines, expected) in [
            ("", Ok(&[][..])),
            ("nameserver 192.0.2.1\n", Ok(&["192.0.2.1:53"][..])),
            (
                "nameserver 192.0.2.1:5353 2001:db8::1\nnameserver [2001:db8::2]:54\n",
                Ok(&["192.0.2.1:5353", "[2001:db8::1]:53", "[2001:db8::2]:54"]),
            ),
            ("nameserver dns.example.com\n", Err("`dns.example.com` is no address")),
            ("nameserver 192.0.2.1:99999\n", Err("`192.0.2.1:99999` is no address")),
            ("nameserver 192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.4\n", Err("more than 3")),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("slapd.conf");
            std::fs::write(&file, format!("database dnssrv\nsuffix cn=x\n{lines}")).unwrap();
            let read = Config::from_slapd_conf(&file).map(|config| {
                let settings = config.databases.iter().find_map(|it| it.kind.settings::<DnssrvSettings>());
                settings.unwrap().servers.iter().map(ToString::to_string).collect::<Vec<_>>()
            });
            match (read, expected) {
                (Ok(servers), Ok(expected)) => assert_eq!(servers, expected, "{lines}"),
                (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
                (read, _) => panic!("{lines}: {read:?}"),
            }
        }
    }
}
