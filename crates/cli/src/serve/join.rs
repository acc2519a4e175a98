//! `larix serve --join postgresql://...`: one more node of a directory in a shared engine, whose configuration comes from there.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use larix_configuration::slapd_d::{self, Stamp};
use larix_configuration::{Config, convert};
use larix_engine::time::Clock as _;
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_server::clock::{SystemClock, SystemRandom};
use larix_server::cluster::{self, PublishedConfiguration};
use larix_server::tls::TlsState;

use super::quick_start::{CONFIGURATION, DEFAULT_DATA, Pair, data_directory, first_line, store};
use super::served;

/// The configuration in the form in which it comes, while the node makes its own of it.
const RECEIVED: &str = "joining.conf";

/// The flags of a node that joins.
#[derive(Args, Debug)]
pub(crate) struct JoinArgs {
    /// Serve the directory in this engine as one more of its nodes: postgresql://USER:PASSWORD@HOST/DATABASE or
    /// etcd://HOST/PREFIX. At the first start the configuration comes from there
    #[arg(long, value_name = "ENGINE", groups = ["made", "joins"], conflicts_with_all = ["file", "directory"], requires = "node")]
    join: Option<String>,
    /// As --join, with the address in the first line of this file, where other users of the machine cannot read its password
    #[arg(long, value_name = "FILE", groups = ["made", "joins"], conflicts_with_all = ["file", "directory"], requires = "node")]
    join_file: Option<PathBuf>,
    /// With --join: the URL under which clients reach this server, such as ldap://n2.example.com
    #[arg(long, value_name = "URL", requires = "joins")]
    node: Option<String>,
    /// With --join: the schema of the engine's database that holds the directory
    #[arg(long, value_name = "NAME", default_value = "larix", requires = "joins")]
    engine_schema: String,
}

/// A node that has joined: its configuration, and what is said about it.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) config: Config,
    pub(super) remark: Option<String>,
}

impl JoinArgs {
    /// Whether there is a `--join`.
    pub(super) fn is_wanted(&self) -> bool {
        self.join.is_some() || self.join_file.is_some()
    }

    /// Where it listens unless `-h` says: at the scheme and the port of its own URL, on all addresses.
    pub(super) fn listen(&self) -> Option<String> {
        let node = self.node.as_deref().filter(|_| self.is_wanted())?;
        let LdapUrl { scheme, port, .. } = LdapUrl::parse(node).ok()?;
        let (scheme, usual) = match scheme {
            UrlScheme::Ldap => ("ldap", 389),
            UrlScheme::Ldaps => ("ldaps", 636),
            _ => return None,
        };
        Some(format!("{scheme}://:{}/", port.unwrap_or(usual)))
    }

    fn engine(&self) -> anyhow::Result<Option<String>> {
        let Some(file) = &self.join_file else { return Ok(self.join.clone()) };
        let line = first_line(file)?;
        let text = std::str::from_utf8(&line).with_context(|| format!("{} is no text", file.display()))?;
        Ok(Some(text.trim().to_owned()))
    }

    /// The configuration: at the first start in this data directory that which the node that writes has published, with this node's
    /// own lines; later what is kept. `None` without `--join`.
    ///
    /// # Errors
    /// The engine refuses or holds no directory that can be joined; what is kept is another node's.
    pub(super) fn prepare(
        &self,
        data: Option<&Path>,
        certificate: Option<Pair>,
    ) -> anyhow::Result<Option<Joined>> {
        let (Some(engine), Some(node)) = (self.engine()?, &self.node) else { return Ok(None) };
        let node = node.trim_end_matches('/');
        cluster::check_node(node).map_err(|why| anyhow::anyhow!("--node {node}: {why}"))?;
        let data = data_directory(data.unwrap_or_else(|| Path::new(DEFAULT_DATA)))?;
        let config_dir = data.join(CONFIGURATION);
        if slapd_d::exists_in(&config_dir) {
            let config = served(Config::from_slapd_d(&config_dir)?)?;
            cluster::check_kept(&config, &engine, &self.engine_schema, node).map_err(|why| {
                anyhow::anyhow!(
                    "the configuration in {}: {why}; or name another directory with --data",
                    config_dir.display()
                )
            })?;
            return Ok(Some(Joined { config, remark: None }));
        }
        let published = cluster::published(&engine, &self.engine_schema, node).map_err(anyhow::Error::msg)?;
        let certificate = certificate.as_ref().map(|pair| (&*pair.certificate, &*pair.key));
        let text = cluster::configuration_of_node(&published, &engine, node, certificate);
        let received = data.join(RECEIVED);
        store(&received, text.as_bytes(), 0o600)?;
        let config = Config::from_slapd_conf(&received).map_err(anyhow::Error::from).and_then(served);
        let config = config.with_context(|| of_node(&published))?;
        cluster::check_joined(&config).map_err(|why| anyhow::anyhow!("{}: {why}", of_node(&published)))?;
        let clock = SystemClock;
        // What is kept is asked for at each start: a certificate that cannot be had is no part of it.
        TlsState::load(&config.global.tls, clock.now())?;
        convert(&config, &config_dir, &Stamp { clock: &clock, random: &SystemRandom })?;
        fs::remove_file(&received).with_context(|| format!("cannot remove {}", received.display()))?;
        let remark = format!("joined as {node}: {}", of_node(&published));
        Ok(Some(Joined { config: Config::from_slapd_d(&config_dir)?, remark: Some(remark) }))
    }
}

fn of_node(published: &PublishedConfiguration) -> String {
    let PublishedConfiguration { generation, version, node, .. } = published;
    format!("the configuration of {node} (Larix {version}), generation {generation}")
}
