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
use larix_server::extended::generate_password;

/// Where the newcomer's server listens: this machine alone, a port that needs no privilege.
pub(super) const DEFAULT_URL: &str = "ldap://127.0.0.1:3890";
const DEFAULT_DATA: &str = "larix-data";
/// The administrator's password, hashed, in the data directory.
const PASSWORD_FILE: &str = "admin.password";

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
}

/// A quick start, prepared: directories exist, the password is hashed.
#[derive(Debug)]
pub(super) struct Prepared {
    suffix: String,
    data: PathBuf,
    hash: Vec<u8>,
    /// In clear, the one time that it is known.
    generated: Option<String>,
}

impl QuickStartArgs {
    /// `None` without `--suffix`.
    pub(super) fn prepare(&self) -> anyhow::Result<Option<Prepared>> {
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
        Ok(Some(Prepared { suffix: suffix.clone(), data, hash, generated }))
    }
}

fn store_password(file: &Path, password: &[u8]) -> anyhow::Result<Vec<u8>> {
    let hash = Hasher::new(Scheme::Argon2).hash(password, &SystemRandom)?.to_vec();
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(true).mode(0o600);
    open.open(file)
        .and_then(|mut opened| opened.write_all(&hash))
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(hash)
}

impl Prepared {
    pub(super) fn config(&self) -> anyhow::Result<Config> {
        let start = QuickStart {
            suffix: self.suffix.clone(),
            directory: self.data.clone(),
            root_dn: None,
            root_password: Some(self.hash.clone()),
        };
        Ok(Config::quick_start(&start)?)
    }

    /// What to do now, with commands to copy.
    pub(super) fn print_next_steps(&self, urls: &[String]) {
        let url = urls.first().map_or(DEFAULT_URL, String::as_str);
        let suffix = &self.suffix;
        let admin = if suffix.is_empty() { "cn=admin".to_owned() } else { format!("cn=admin,{suffix}") };
        println!("Larix serves \"{suffix}\" from {} at {url}", self.data.display());
        println!("  administrator  {admin}");
        match &self.generated {
            Some(password) => println!("  password       {password}   (shown once; only its hash is kept)"),
            None => println!(
                "  password       as set before (its hash is in {}/{PASSWORD_FILE})",
                self.data.display()
            ),
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
