//! `larix serve --suffix dc=example,dc=com`: a directory without a file to write first.

mod entries;
mod existing;
mod replicas;

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use clap::Args;
use larix_configuration::slapd_d::{self, Stamp};
use larix_configuration::{Config, QuickStart, convert};
use larix_engine::password::{Hasher, Scheme};
use larix_engine::time::Clock as _;
use larix_proto::dn::Dn;
use larix_server::BoundServer;
use larix_server::clock::{SystemClock, SystemRandom};
use larix_server::generated_password::generate_password;
use larix_server::tls::TlsState;
use larix_store::lmdb;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, date_time_ymd};
use zeroize::Zeroizing;

use self::replicas::{ReplicaArgs, Replicas};
use crate::terminal::{self, say};

/// Where the newcomer's server listens: this machine alone, a port that needs no privilege.
pub(crate) const DEFAULT_URL: &str = "ldap://127.0.0.1:3890";
pub(super) const DEFAULT_DATA: &str = "larix-data";
/// The configuration, in the data directory.
pub(super) const CONFIGURATION: &str = "slapd.d";
/// Where releases that kept no configuration had the administrator's password, hashed.
const EARLIER_PASSWORD_FILE: &str = "admin.password";
/// A certificate that the server signed itself, and its key.
const CERTIFICATE_FILE: &str = "server.pem";
const KEY_FILE: &str = "server.key";

/// The process that a container starts: what runs the container ends it.
const IN_A_CONTAINER: u32 = 1;

/// The flags of a server without a configuration file.
#[derive(Args, Debug)]
pub(crate) struct QuickStartArgs {
    /// Serve this naming context without any configuration file
    #[arg(long, value_name = "DN", group = "made", conflicts_with_all = ["file", "directory"])]
    suffix: Option<String>,
    /// Where the directory lives [default: larix-data]
    #[arg(long, value_name = "DIRECTORY", requires = "made")]
    data: Option<PathBuf>,
    /// Take the administrator's password from this file's first line, instead of making one up (at the first start)
    #[arg(long, value_name = "FILE", requires = "suffix")]
    admin_password_file: Option<PathBuf>,
    /// Load these entries at the first start
    #[arg(long, value_name = "FILE", requires = "suffix")]
    ldif: Option<PathBuf>,
    /// Load a few people and groups at the first start, to look around with
    #[arg(long, requires = "suffix", conflicts_with = "ldif")]
    sample: bool,
    /// Make the entry of the suffix at the first start
    #[arg(long, requires = "suffix", conflicts_with_all = ["ldif", "sample"])]
    base_entry: bool,
    /// At the first start, take these lines of slapd.conf for the database, too: `schema`, `overlay`, `index`, `access` and
    /// others. May be given several times
    #[arg(long, value_name = "FILE", requires = "suffix")]
    include: Vec<PathBuf>,
    /// TLS with this certificate (PEM, with its chain), for StartTLS and ldaps://
    #[arg(long, value_name = "FILE", requires = "made")]
    tls_cert: Option<PathBuf>,
    /// Its key, if that is not in the same file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

/// A quick start, prepared: directories exist, and the configuration is where it is kept from now on.
#[derive(Debug)]
pub(super) struct Prepared {
    suffix: String,
    data: PathBuf,
    pub(super) config: Config,
    /// In clear, the one time that it is known.
    generated: Option<String>,
    /// The file that a first start took the administrator's password from.
    password_file: Option<PathBuf>,
    /// That of the sample's people, likewise.
    sample_password: Option<String>,
    /// Whether this start made the configuration and loaded nothing: there are no entries then.
    first: bool,
    /// Of a self-signed certificate: the administrator has to give it to clients.
    self_signed: Option<PathBuf>,
    /// What the administrator should know of this start.
    remarks: Vec<String>,
    /// Whether the password was.
    shown: AtomicBool,
}

/// Where it serves, for people on this machine.
#[derive(Debug)]
pub(super) struct Shown {
    urls: Vec<String>,
    admin_urls: Vec<String>,
    /// Whether the URLs of loopback stand for every address.
    everywhere: bool,
}

impl Shown {
    pub(super) fn of(bound: &BoundServer) -> Self {
        let urls = bound.reachable_urls();
        Self { everywhere: urls != bound.urls(), admin_urls: bound.admin_urls(), urls }
    }
}

/// Files of a certificate and its key.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// The data directory, which is there from now on, by its absolute path: the configuration names it, and the next start may be from
/// another folder.
pub(super) fn data_directory(data: &Path) -> anyhow::Result<PathBuf> {
    anyhow::ensure!(
        !data.exists() || data.is_dir(),
        "the data directory {} is a file: name a directory with --data",
        data.display()
    );
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data)
        .and_then(|()| fs::canonicalize(data))
        .with_context(|| {
            format!(
                "cannot create the data directory {}: name another with --data, or start as a user who may write there",
                data.display()
            )
        })
}

/// A directory that another user has for itself looks as if nothing were in it.
fn demand_readable(data: &Path) -> anyhow::Result<()> {
    let Err(error) = fs::read_dir(data) else { return Ok(()) };
    let owner = fs::metadata(data).map_or_else(
        |_| String::new(),
        |found| format!(", which belongs to the user {}: start as that one", found.uid()),
    );
    Err(error).with_context(|| {
        format!("cannot read the data directory {}{owner}, or name another with --data", data.display())
    })
}

/// Of two first starts at once, the second one waits, and takes the configuration that the first one made: its own password would be shown,
/// and would not be the one that holds. A file system without locks has to do without.
fn alone(data: &Path) -> Option<File> {
    let directory = File::open(data).ok()?;
    match directory.try_lock() {
        Ok(()) => Some(directory),
        Err(TryLockError::WouldBlock) => {
            let path = data.display();
            // Without a reader it waits all the same.
            let _ = writeln!(
                io::stderr(),
                "larix: {path} is locked, as by another start that makes its configuration: waiting (`fuser {path}` says for which)"
            );
            directory.lock().ok().map(|()| directory)
        }
        Err(TryLockError::Error(_)) => None,
    }
}

impl QuickStartArgs {
    /// Whether there is a `--suffix`.
    pub(super) fn is_wanted(&self) -> bool {
        self.suffix.is_some()
    }

    /// The data directory, if the flags name one.
    pub(super) fn data_given(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    /// The data directory.
    fn data(&self) -> &Path {
        self.data.as_deref().unwrap_or_else(|| Path::new(DEFAULT_DATA))
    }

    /// # Errors
    /// Another server serves the data directory: before that one's port is found taken, which says less.
    pub(super) fn refuse_served(&self) -> anyhow::Result<()> {
        let config_dir = self.data().join(CONFIGURATION);
        let Some(server) = slapd_d::server_of(&config_dir).filter(|_| self.is_wanted()) else {
            return Ok(());
        };
        let kill = server.process.map_or_else(String::new, |process| format!(" (kill {process})"));
        anyhow::bail!(
            "{} is served already, by {}, at {}: use that server, stop it{kill}, or name another directory with --data \
             and another address with -h",
            self.data().display(),
            server.process(),
            server.urls.join(" ")
        )
    }

    /// `None` without `--suffix`. The first start in a data directory writes the configuration there; later ones take that,
    /// with all that was changed of it since, and refuse flags that say otherwise. `listen`: where the server is to listen;
    /// with an ldaps:// there and no certificate, one is made; so it is for the admin page over `https`.
    pub(super) fn prepare(&self, listen: Option<&str>, https: bool) -> anyhow::Result<Option<Prepared>> {
        let Some(suffix) = &self.suffix else { return Ok(None) };
        check_suffix(suffix)?;
        let data = data_directory(self.data())?;
        demand_readable(&data)?;
        let _alone = alone(&data);
        let secure = https || listen.is_some_and(|urls| urls.to_ascii_lowercase().contains("ldaps://"));
        let replicas = self.replicas.replicas()?;
        let start = Start { arguments: self, suffix, data: &data, secure, replicas: replicas.as_ref() };
        let config_dir = data.join(CONFIGURATION);
        let mut prepared = if slapd_d::exists_in(&config_dir) {
            entries::end_loading(&data);
            existing::again(&start, &config_dir)?
        } else {
            start.first(&config_dir)?
        };
        // What cannot be used ends the start later, with its reason.
        if let Ok(loaded) = TlsState::load(&prepared.config.global.tls, SystemClock.now()) {
            prepared.remarks.extend(loaded.notes);
        }
        Ok(Some(prepared))
    }

    /// The certificate that the flags name, absolute.
    pub(super) fn certificate(&self) -> anyhow::Result<Option<Pair>> {
        let Some(certificate) = &self.tls_cert else { return Ok(None) };
        let key = self.tls_key.as_ref().unwrap_or(certificate);
        let absolute = |path: &PathBuf| {
            std::path::absolute(path).with_context(|| format!("cannot find out where {} is", path.display()))
        };
        Ok(Some(Pair { certificate: absolute(certificate)?, key: absolute(key)? }))
    }

    /// The password in the file that the flags name.
    fn password(&self) -> anyhow::Result<Option<Zeroizing<Vec<u8>>>> {
        self.admin_password_file.as_deref().map(first_line).transpose()
    }
}

/// The secret in the first line of a file.
pub(super) fn first_line(file: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let text = Zeroizing::new(fs::read(file).with_context(|| format!("cannot read {}", file.display()))?);
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
    let secret = line.strip_suffix(b"\r").unwrap_or(line);
    anyhow::ensure!(!secret.is_empty(), "{} has an empty first line", file.display());
    Ok(Zeroizing::new(secret.to_vec()))
}

/// A DNS name is what newcomers type.
fn check_suffix(suffix: &str) -> anyhow::Result<()> {
    let Err(error) = Dn::parse(suffix) else { return Ok(()) };
    let is_label = |label: &str| {
        !label.is_empty() && label.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-')
    };
    anyhow::ensure!(
        !suffix.split('.').all(is_label),
        "--suffix {suffix} is not a DN: a domain is written --suffix dc={}",
        suffix.replace('.', ",dc=")
    );
    anyhow::bail!("--suffix {suffix}: {error}: it has to be a DN, such as dc=example,dc=com")
}

/// What a start is asked for.
struct Start<'a> {
    arguments: &'a QuickStartArgs,
    suffix: &'a str,
    /// Absolute; it is there.
    data: &'a Path,
    /// TLS is needed, whether a certificate was named or not.
    secure: bool,
    /// This server is one of several.
    replicas: Option<&'a Replicas>,
}

impl Start<'_> {
    /// Writes the configuration that is kept from now on.
    fn first(&self, config_dir: &Path) -> anyhow::Result<Prepared> {
        let Self { arguments, suffix, data, secure, replicas } = *self;
        let (hash, generated) = self.first_password()?;
        let named_pair = arguments.certificate()?;
        let self_signed_pair = if named_pair.is_none() && secure { Some(self_signed(data)?) } else { None };
        let tls = named_pair.as_ref().or(self_signed_pair.as_ref());
        let config = Config::quick_start(&QuickStart {
            suffix: suffix.to_owned(),
            directory: data.to_owned(),
            root_dn: None,
            root_password: Some(hash),
            tls_certificate: tls.map(|pair| pair.certificate.clone()),
            tls_key: tls.map(|pair| pair.key.clone()),
            replicas: replicas.map(|replicas| replicas.configured(suffix)).transpose()?,
            includes: arguments.include.clone(),
        })?;
        // What is kept is asked for at each start: a certificate that cannot be had is no part of it.
        let clock = SystemClock;
        TlsState::load(&config.global.tls, clock.now())?;
        // Before the configuration: where the entries are refused, the next start is a first one again.
        let had_database = lmdb::is_there(data).unwrap_or(true);
        // The load was whole where it is there, and only the configuration is missing.
        let is_loaded = had_database && entries::is_loading(data);
        let loaded = if is_loaded {
            entries::Loaded::default()
        } else {
            if !had_database {
                entries::begin_loading(data)?;
            }
            entries::load(self, &config, &clock).inspect_err(|_| {
                // One whose last steps failed may be there all the same: the next start takes it.
                if had_database || !lmdb::is_there(data).unwrap_or(true) {
                    entries::end_loading(data);
                }
            })?
        };
        let news = match loaded.entries {
            0 if is_loaded => Some(entries::loaded_earlier(arguments.sample)),
            0 => replicas.map(|_| "the entries come from the other servers".to_owned()),
            1 => Some("an entry was loaded".to_owned()),
            more => Some(format!("{more} entries were loaded")),
        };
        let converted = convert(&config, config_dir, &Stamp { clock: &clock, random: &SystemRandom });
        if converted.is_err() && loaded.entries > 0 && !had_database {
            entries::take_back(data);
        }
        converted?;
        entries::end_loading(data);
        Ok(Prepared {
            suffix: suffix.to_owned(),
            data: data.to_owned(),
            config: Config::from_slapd_d(config_dir)?,
            generated,
            password_file: arguments.admin_password_file.clone(),
            sample_password: loaded.sample_password,
            first: loaded.entries == 0 && !is_loaded && replicas.is_none(),
            self_signed: self_signed_pair.map(|pair| pair.certificate),
            remarks: entries::doubt(suffix, data).into_iter().chain(news).collect(),
            shown: AtomicBool::new(false),
        })
    }

    /// Hashed; and in clear if it was made up here.
    fn first_password(&self) -> anyhow::Result<(Vec<u8>, Option<String>)> {
        let hash = |password: &[u8]| -> anyhow::Result<Vec<u8>> {
            Ok(Hasher::new(Scheme::Argon2).hash(password, &SystemRandom)?.to_vec())
        };
        if let Some(password) = self.arguments.password()? {
            return Ok((hash(&password)?, None));
        }
        let file = self.data.join(EARLIER_PASSWORD_FILE);
        match fs::read(&file) {
            Ok(earlier) => Ok((earlier.trim_ascii_end().to_vec(), None)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let password = generate_password(&SystemRandom);
                let text = String::from_utf8_lossy(&password).into_owned();
                Ok((hash(&password)?, Some(text)))
            }
            Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
        }
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

/// Writes a file. It is there whole or not at all: a disk that is full leaves no half of it for the next start.
pub(super) fn store(file: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    let part = file.with_extension("part");
    // What a start left that was killed has the mode of its own file, which may be one that all may read.
    let _ = fs::remove_file(&part);
    let mut open = OpenOptions::new();
    open.write(true).create_new(true).mode(mode);
    let stored = open
        .open(&part)
        .and_then(|mut opened| opened.write_all(bytes).and_then(|()| opened.sync_all()))
        .and_then(|()| fs::rename(&part, file));
    stored
        .inspect_err(|_| drop(fs::remove_file(&part)))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Shows a line that is never shown again: on standard error where standard output takes none, as on a full disk.
fn show_once(line: std::fmt::Arguments<'_>) {
    if writeln!(io::stdout().lock(), "{line}").is_err() {
        // The server goes on all the same; another password can be set.
        let _ = writeln!(io::stderr(), "{line}");
    }
}

impl Prepared {
    /// What a start that came to nothing leaves behind: the password that was made up for it, unless it was shown.
    pub(super) fn print_password_unserved(&self) {
        if self.shown.load(Ordering::Relaxed) || (self.generated.is_none() && self.sample_password.is_none())
        {
            return;
        }
        say!("The configuration is made, in {}/{CONFIGURATION}.", self.data.display());
        if let Some(password) = &self.generated {
            say!("  administrator  {}", self.administrator());
            show_once(format_args!("  password       {password}   (shown once; only its hash is kept)"));
        }
        self.print_sample_password();
    }

    fn print_sample_password(&self) {
        if let Some(password) = &self.sample_password {
            show_once(format_args!(
                "  sample         ann, bilal and the others log in with {password}   (shown once; only hashes are kept)"
            ));
        }
    }

    /// What to do now, with commands to copy.
    pub(super) fn print_next_steps(&self, at: &Shown) {
        self.shown.store(true, Ordering::Relaxed);
        let url = at.urls.first().map_or(DEFAULT_URL, String::as_str);
        let suffix = &self.suffix;
        let admin = self.administrator();
        let all = if at.urls.is_empty() { url.to_owned() } else { at.urls.join(" ") };
        let elsewhere = if at.everywhere { ", and at this machine's other addresses" } else { "" };
        say!("Larix serves \"{suffix}\" from {} at {all}{elsewhere}", self.data.display());
        say!("  administrator  {admin}");
        match (&self.generated, &self.password_file) {
            (Some(password), _) => {
                show_once(format_args!("  password       {password}   (shown once; only its hash is kept)"));
            }
            (None, Some(file)) => say!("  password       the first line of {}", file.display()),
            (None, None) => say!("  password       as set before"),
        }
        self.print_sample_password();
        if let Some(certificate) = &self.self_signed {
            say!(
                "  TLS            a certificate that the server signed itself: give clients {} to trust it\n\
                 \x20                (LDAPTLS_CACERT), or one of your authority here (--tls-cert, --tls-key)",
                certificate.display()
            );
        } else if let Some(certificate) = configured(&self.config, "olcTLSCertificateFile") {
            say!("  TLS            {certificate}");
        }
        say!("  configuration  kept in {}/{CONFIGURATION}, changed as cn=config", self.data.display());
        for remark in &self.remarks {
            say!("  note           {remark}");
        }
        for url in &at.admin_urls {
            say!("  admin page     {url}   (log in as admin)");
        }
        say!("");
        // Without indentation: these lines are copied into a shell, and LDIF takes a leading space for a folded line.
        let [server, name, base] = [url, admin.as_str(), suffix.as_str()].map(terminal::shell_word);
        // At a second start there are entries already.
        if let Some(entry) = entries::base_entry(suffix).filter(|_| self.first) {
            say!("Next, in another terminal, the first entry (ldapadd does as well):\n");
            say!("larix modify -a -x -H {server} -D {name} -W <<'END'");
            for line in entry {
                say!("{line}");
            }
            say!("END\n");
        }
        say!(
            "{}:\n\nlarix search -x -H {server} -D {name} -W -b {base}\n",
            if self.first { "And look at it" } else { "Look at it" }
        );
        if terminal::interrupts_this_process() {
            say!("Stop it with Ctrl-C.");
        } else if std::process::id() != IN_A_CONTAINER {
            say!("Stop it with: kill {}", std::process::id());
        }
    }
}

impl Prepared {
    fn administrator(&self) -> String {
        let mut databases = self.config.databases.iter().filter(|it| it.kind.is_in_lmdb());
        databases
            .find_map(|database| database.root_dn.as_ref())
            .map_or_else(String::new, |dn| dn.text.clone())
    }
}

/// The only value of a global setting.
fn configured(config: &Config, attribute: &str) -> Option<String> {
    config.global.settings.get(attribute).first().map(|value| String::from_utf8_lossy(value).into_owned())
}
