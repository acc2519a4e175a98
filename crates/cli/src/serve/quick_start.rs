//! `larix serve --suffix dc=example,dc=com`: a directory without a file to write first.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use larix_engine::password::{Hasher, Scheme};
use larix_server::clock::SystemRandom;
use larix_server::config::{Config, QuickStart};
use larix_server::password_modify::generate_password;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, date_time_ymd};

/// Where the newcomer's server listens: this machine alone, a port that needs no privilege.
pub(super) const DEFAULT_URL: &str = "ldap://127.0.0.1:3890";
const DEFAULT_DATA: &str = "larix-data";
/// The administrator's password, hashed, in the data directory.
const PASSWORD_FILE: &str = "admin.password";
/// A certificate that the server signed itself, and its key.
const CERTIFICATE_FILE: &str = "server.pem";
const KEY_FILE: &str = "server.key";

/// The flags of a server without a configuration file.
#[derive(Args, Debug)]
pub(crate) struct QuickStartArgs {
    /// Serve this naming context without any configuration file
    #[arg(long, value_name = "DN", conflicts_with_all = ["file", "directory"])]
    suffix: Option<String>,
    /// Where the directory lives [default: larix-data]
    #[arg(long, value_name = "DIRECTORY", requires = "suffix")]
    data: Option<PathBuf>,
    /// Take the administrator's password from this file's first line, instead of making one up
    #[arg(long, value_name = "FILE", requires = "suffix")]
    admin_password_file: Option<PathBuf>,
    /// TLS with this certificate (PEM, with its chain), for StartTLS and ldaps://
    #[arg(long, value_name = "FILE", requires = "suffix")]
    tls_cert: Option<PathBuf>,
    /// Its key, if that is not in the same file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

/// A quick start, prepared: directories exist, the password is hashed.
#[derive(Debug)]
pub(super) struct Prepared {
    suffix: String,
    data: PathBuf,
    hash: Vec<u8>,
    /// In clear, the one time that it is known.
    generated: Option<String>,
    tls: Option<Pair>,
    /// Nobody vouches for the certificate: clients have to be given it.
    self_signed: bool,
}

/// Files of a certificate and its key.
#[derive(Clone, Debug)]
struct Pair {
    certificate: PathBuf,
    key: PathBuf,
}

impl QuickStartArgs {
    /// `None` without `--suffix`. `listen`: where the server is to listen; with an ldaps:// there and no certificate given,
    /// one is made; so it is for the admin page over `https`.
    pub(super) fn prepare(&self, listen: Option<&str>, https: bool) -> anyhow::Result<Option<Prepared>> {
        let Some(suffix) = &self.suffix else { return Ok(None) };
        let data = self.data.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_DATA));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&data)
            .with_context(|| format!("cannot create the data directory {}", data.display()))?;
        let file = data.join(PASSWORD_FILE);
        let (hash, generated) = match (&self.admin_password_file, fs::read(&file)) {
            (Some(given), _) => {
                let text =
                    fs::read_to_string(given).with_context(|| format!("cannot read {}", given.display()))?;
                let password = text.lines().next().unwrap_or("");
                anyhow::ensure!(!password.is_empty(), "{} has an empty first line", given.display());
                (store_password(&file, password.as_bytes())?, None)
            }
            (None, Ok(hash)) => (hash.trim_ascii_end().to_vec(), None),
            (None, Err(error)) if error.kind() == ErrorKind::NotFound => {
                let password = generate_password(&SystemRandom);
                let text = String::from_utf8_lossy(&password).into_owned();
                (store_password(&file, &password)?, Some(text))
            }
            (None, Err(error)) => {
                return Err(error).with_context(|| format!("cannot read {}", file.display()));
            }
        };
        let asked = https || listen.is_some_and(|urls| urls.to_ascii_lowercase().contains("ldaps://"));
        let (tls, self_signed) = match &self.tls_cert {
            Some(certificate) => {
                let key = self.tls_key.clone().unwrap_or_else(|| certificate.clone());
                (Some(Pair { certificate: certificate.clone(), key }), false)
            }
            None if asked => (Some(self_signed(&data)?), true),
            None => (None, false),
        };
        Ok(Some(Prepared { suffix: suffix.clone(), data, hash, generated, tls, self_signed }))
    }
}

/// A certificate that the server signs itself, for this machine's name and loopback, made once.
fn self_signed(data: &Path) -> anyhow::Result<Pair> {
    let pair = Pair { certificate: data.join(CERTIFICATE_FILE), key: data.join(KEY_FILE) };
    if pair.certificate.exists() && pair.key.exists() {
        return Ok(pair);
    }
    let machine = rustix::system::uname();
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    names.extend(machine.nodename().to_str().ok().filter(|name| *name != "localhost").map(str::to_owned));
    let mut params = CertificateParams::new(names).context("cannot make a certificate")?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, machine.nodename().to_string_lossy().into_owned());
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2099, 1, 1));
    let key = KeyPair::generate().context("cannot make a key")?;
    let certificate = params.self_signed(&key).context("cannot make a certificate")?;
    store(&pair.key, key.serialize_pem().as_bytes(), 0o600)?;
    store(&pair.certificate, certificate.pem().as_bytes(), 0o644)?;
    Ok(pair)
}

fn store_password(file: &Path, password: &[u8]) -> anyhow::Result<Vec<u8>> {
    let hash = Hasher::new(Scheme::Argon2).hash(password, &SystemRandom)?.to_vec();
    store(file, &hash, 0o600)?;
    Ok(hash)
}

fn store(file: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(true).mode(mode);
    open.open(file)
        .and_then(|mut opened| opened.write_all(bytes))
        .with_context(|| format!("cannot write {}", file.display()))
}

impl Prepared {
    pub(super) fn config(&self) -> anyhow::Result<Config> {
        let start = QuickStart {
            suffix: self.suffix.clone(),
            directory: self.data.clone(),
            root_dn: None,
            root_password: Some(self.hash.clone()),
            tls_certificate: self.tls.as_ref().map(|pair| pair.certificate.clone()),
            tls_key: self.tls.as_ref().map(|pair| pair.key.clone()),
        };
        Ok(Config::quick_start(&start)?)
    }

    /// What to do now, with commands to copy.
    pub(super) fn print_next_steps(&self, urls: &[String], admin_urls: &[String]) {
        let url = urls.first().map_or(DEFAULT_URL, String::as_str);
        let suffix = &self.suffix;
        let admin = if suffix.is_empty() { "cn=admin".to_owned() } else { format!("cn=admin,{suffix}") };
        let all = if urls.is_empty() { url.to_owned() } else { urls.join(" ") };
        println!("Larix serves \"{suffix}\" from {} at {all}", self.data.display());
        println!("  administrator  {admin}");
        match &self.generated {
            Some(password) => println!("  password       {password}   (shown once; only its hash is kept)"),
            None => println!(
                "  password       as set before (its hash is in {}/{PASSWORD_FILE})",
                self.data.display()
            ),
        }
        match &self.tls {
            Some(pair) if self.self_signed => println!(
                "  TLS            a certificate that the server signed itself: give clients {} to trust it\n\
                 \x20                (LDAPTLS_CACERT), or one of your authority here (--tls-cert, --tls-key)",
                pair.certificate.display()
            ),
            Some(pair) => println!("  TLS            {}", pair.certificate.display()),
            None => {}
        }
        for url in admin_urls {
            println!("  admin page     {url}   (log in as admin)");
        }
        println!();
        // Without indentation: these lines are copied into a shell, and LDIF takes a leading space for a folded line.
        if let Some(entry) = base_entry(suffix) {
            println!("Next, in another terminal, the first entry (ldapadd does as well):\n");
            println!("larix modify -a -x -H {url} -D {admin} -W <<'END'");
            for line in entry {
                println!("{line}");
            }
            println!("END\n");
        }
        println!("And look at it:\n\nlarix search -x -H {url} -D {admin} -W -b \"{suffix}\"\n");
        println!("Stop it with Ctrl-C.");
    }
}

/// An entry for a suffix of a kind that is usual.
fn base_entry(suffix: &str) -> Option<Vec<String>> {
    let first = suffix.split(',').next()?;
    let (attribute, value) = first.split_once('=')?;
    let mut lines = vec![format!("dn: {suffix}")];
    match attribute.trim().to_ascii_lowercase().as_str() {
        "dc" => lines.extend([
            "objectClass: dcObject".to_owned(),
            "objectClass: organization".to_owned(),
            format!("o: {}", value.trim()),
        ]),
        "o" => lines.push("objectClass: organization".to_owned()),
        "ou" => lines.push("objectClass: organizationalUnit".to_owned()),
        "c" => lines.push("objectClass: country".to_owned()),
        _ => return None,
    }
    lines.push(format!("{}: {}", attribute.trim(), value.trim()));
    Some(lines)
}
