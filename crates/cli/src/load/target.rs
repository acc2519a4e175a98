//! The flags that every measurement has: whom to drive, how hard, what to watch.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use larix_load::drive::{
    Address, Identity, LagOptions, Options, Security, Server, Trust, listening_process, resolve,
};
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_sasl::scram::Hash;

/// Where Debian and others keep the certificates of all known authorities.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

#[derive(Args, Debug)]
pub(super) struct TargetArgs {
    /// The server: HOST:PORT, or ldap://HOST:PORT, ldaps://HOST:PORT, ldapi://%2Fpath%2Fof%2Fsocket
    #[arg(long, short = 'H')]
    server: String,
    /// StartTLS before the bind
    #[arg(long, short = 'Z')]
    start_tls: bool,
    /// Certificates of the authorities that the server's certificate must come from, in PEM
    #[arg(long, default_value = AUTHORITIES)]
    ca: PathBuf,
    /// Take whatever certificate the server shows
    #[arg(long)]
    insecure: bool,
    /// Who binds on each connection
    #[arg(long, short = 'D')]
    pub(super) bind_dn: Option<String>,
    /// Its password [default: that of generated directories]
    #[arg(long, short = 'w', conflicts_with = "password_file")]
    password: Option<String>,
    /// A file with the password
    #[arg(long, short = 'y')]
    password_file: Option<PathBuf>,
    /// A SASL bind instead; all but EXTERNAL take --user and the password
    #[arg(long, value_enum, conflicts_with = "bind_dn")]
    sasl: Option<Mechanism>,
    /// The user of the SASL bind
    #[arg(long, short = 'U', requires = "sasl")]
    user: Option<String>,
    /// Requests in flight on each connection
    #[arg(long, default_value_t = 1)]
    in_flight: usize,
    /// Requests per second of all connections together, sent when they are due, whatever the server does; latency
    /// counts from then [default: as fast as answers come]
    #[arg(long)]
    rate: Option<f64>,
    /// Threads of the driver
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Seconds that are measured
    #[arg(long, default_value = "10", value_parser = seconds)]
    seconds: Duration,
    /// Seconds before the measurement
    #[arg(long, default_value = "2", value_parser = seconds)]
    warm_up: Duration,
    /// Seconds between two points of the rate over time; 0 takes none
    #[arg(long, default_value = "1", value_parser = seconds)]
    sample: Duration,
    /// The server's process id, for its CPU time and memory [default: found by the port, on this machine]
    #[arg(long)]
    process: Option<u32>,
    /// A file or directory whose size on the disk is watched; may be given again
    #[arg(long)]
    disk: Vec<PathBuf>,
    /// A replica whose lag is watched, by contextCSN
    #[arg(long, requires = "lag_base")]
    lag: Option<String>,
    /// The naming context that carries the contextCSN
    #[arg(long)]
    lag_base: Option<String>,
    /// The same seed gives the same requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mechanism {
    Plain,
    #[value(name = "scram-sha-1")]
    ScramSha1,
    #[value(name = "scram-sha-256")]
    ScramSha256,
    #[value(name = "scram-sha-512")]
    ScramSha512,
    External,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
    Duration::try_from_secs_f64(number).map_err(|error| format!("{text} seconds: {error}"))
}

impl TargetArgs {
    /// The options, but for the number of connections. `usual` binds when no other identity is given.
    pub(super) fn options(&self, usual: Option<(String, String)>) -> anyhow::Result<Options> {
        let server = self.server(&self.server)?;
        let lag = match (&self.lag, &self.lag_base) {
            (Some(consumer), Some(base)) => Some(LagOptions {
                consumer: self.server(consumer)?,
                base: base.clone(),
                every: Duration::from_millis(50),
            }),
            _ => None,
        };
        Ok(Options {
            identity: self.identity(usual)?,
            in_flight: self.in_flight,
            rate: self.rate,
            threads: self.threads,
            duration: self.seconds,
            warm_up: self.warm_up,
            sample_every: self.sample,
            process: self.process.or_else(|| own_process(&server)),
            disk: self.disk.clone(),
            lag,
            seed: self.seed,
            ..Options::new(server)
        })
    }

    fn identity(&self, usual: Option<(String, String)>) -> anyhow::Result<Identity> {
        let user = || self.user.clone().context("this SASL mechanism needs --user");
        let scram = |hash| anyhow::Ok(Identity::Scram { hash, user: user()?, password: self.password()? });
        match (&self.bind_dn, self.sasl) {
            (_, Some(Mechanism::External)) => Ok(Identity::External),
            (_, Some(Mechanism::Plain)) => Ok(Identity::Plain { user: user()?, password: self.password()? }),
            (_, Some(Mechanism::ScramSha1)) => scram(Hash::Sha1),
            (_, Some(Mechanism::ScramSha256)) => scram(Hash::Sha256),
            (_, Some(Mechanism::ScramSha512)) => scram(Hash::Sha512),
            (Some(dn), None) => Ok((dn.clone(), self.password()?).into()),
            (None, None) => Ok(usual.map_or(Identity::Anonymous, Identity::from)),
        }
    }

    /// The password, by default that of generated directories.
    pub(super) fn password(&self) -> anyhow::Result<String> {
        let Some(path) = &self.password_file else {
            let usual = || larix_load::generate::ROOT_PASSWORD.to_owned();
            return Ok(self.password.clone().unwrap_or_else(usual));
        };
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }

    /// What a URL, or HOST:PORT, stands for.
    fn server(&self, text: &str) -> anyhow::Result<Server> {
        if !text.contains("://") {
            let (host, port) = text.rsplit_once(':').with_context(|| format!("{text:?} is not HOST:PORT"))?;
            let port = port.parse().with_context(|| format!("{text:?}: {port:?} is no port"))?;
            let host = host.trim_start_matches('[').trim_end_matches(']');
            return self.tcp(host, port, self.start_tls.then_some(false));
        }
        let url = LdapUrl::parse(text).map_err(|error| anyhow::anyhow!("{text}: {error}"))?;
        let host = url.effective_host();
        match url.scheme {
            UrlScheme::Ldap => self.tcp(host, url.port.unwrap_or(389), self.start_tls.then_some(false)),
            UrlScheme::Ldaps if self.start_tls => bail!("{text}: StartTLS is for ldap://"),
            UrlScheme::Ldaps => self.tcp(host, url.port.unwrap_or(636), Some(true)),
            UrlScheme::Ldapi if self.start_tls => bail!("{text}: StartTLS is for ldap://"),
            UrlScheme::Ldapi => {
                Ok(Server { address: Address::Unix(url.socket_path().into()), security: Security::None })
            }
            _ => bail!("{text}: ldap://, ldaps:// and ldapi:// can be driven"),
        }
    }

    /// `secure`: none, StartTLS (false) or TLS from the first byte (true).
    fn tcp(&self, host: &str, port: u16, secure: Option<bool>) -> anyhow::Result<Server> {
        let trust =
            || Trust { name: host.to_owned(), authorities: (!self.insecure).then(|| self.ca.clone()) };
        let security = match secure {
            None => Security::None,
            Some(true) => Security::Tls(trust()),
            Some(false) => Security::StartTls(trust()),
        };
        Ok(Server { address: Address::Tcp(resolve(host, port)?), security })
    }
}

/// The process behind an address of this machine.
fn own_process(server: &Server) -> Option<u32> {
    match &server.address {
        Address::Tcp(address) if !address.ip().is_loopback() => None,
        address => listening_process(address),
    }
}
