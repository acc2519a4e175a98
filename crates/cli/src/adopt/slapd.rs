//! The slapd of this machine: what serves, from where, and what speaks against taking it over.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use larix_configuration::Config;
use serde::{Deserialize, Serialize};

use super::AdoptArgs;
use super::processes::{self, Process};
use super::service::Service;
use crate::terminal::{print_report, say};

/// The file with the entries of an mdb database, and that of hdb and bdb.
const DATA: &str = "data.mdb";
const BERKELEY_DATA: &str = "id2entry.bdb";
/// Room beside what the databases take, in bytes.
const SPARE_BYTES: u64 = 64 << 20;
/// Of what slapd's files take: two dumps, each about as large, and Larix's database.
const ROOM_FACTOR: u64 = 3;

/// slapd, as it was when it was found.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct FoundSlapd {
    pub(super) program: PathBuf,
    /// A slapd.conf, or a slapd.d.
    pub(super) configuration: PathBuf,
    /// What it listens on.
    pub(super) urls: String,
    pub(super) user: Option<String>,
    pub(super) group: Option<String>,
    /// Its arguments beside those.
    pub(super) options: Vec<String>,
    /// Whom it runs as, by number.
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) databases: Vec<StoredDatabase>,
    pub(super) service: Service,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct StoredDatabase {
    pub(super) suffix: String,
    /// slapd's.
    pub(super) directory: PathBuf,
}

/// What `/etc/default/slapd` sets.
#[derive(Debug, Default, PartialEq, Eq)]
struct Defaults {
    configuration: Option<String>,
    user: Option<String>,
    group: Option<String>,
    services: Option<String>,
    options: Option<String>,
}

impl Defaults {
    /// Assignments of the shell, quoted or not; nothing is carried out.
    fn parse(text: &str) -> Self {
        let mut defaults = Self::default();
        for line in text.lines() {
            let line = line.trim().trim_start_matches("export ");
            let Some((name, value)) = line.split_once('=') else { continue };
            let value = match value.chars().next() {
                Some(quote @ ('"' | '\'')) => value[1..].split(quote).next().unwrap_or_default(),
                _ => value.split_ascii_whitespace().next().unwrap_or_default(),
            };
            let value = Some(value.to_owned()).filter(|value| !value.is_empty());
            match name {
                "SLAPD_CONF" => defaults.configuration = value,
                "SLAPD_USER" => defaults.user = value,
                "SLAPD_GROUP" => defaults.group = value,
                "SLAPD_SERVICES" => defaults.services = value,
                "SLAPD_OPTIONS" => defaults.options = value,
                _ => {}
            }
        }
        defaults
    }
}

impl FoundSlapd {
    pub(super) fn is_directory(&self) -> bool {
        self.configuration.is_dir()
    }

    /// The flag of slapd and of all its tools that names the configuration.
    pub(super) fn flag(&self) -> &'static str {
        if self.is_directory() { "-F" } else { "-f" }
    }

    /// # Errors
    /// Standard output cannot be written.
    pub(super) fn print_steps(&self, place: &Path) -> anyhow::Result<()> {
        let place = place.display();
        let mut lines = vec![format!("slapd serves {} from {}", self.urls, self.configuration.display())];
        lines.extend(
            self.databases
                .iter()
                .map(|database| format!("  {:?} in {}", database.suffix, database.directory.display())),
        );
        lines.extend([
            "larix adopt would".to_owned(),
            format!("  1. write its configuration to {place}/larix/slapd.d"),
            format!("  2. copy the databases to {place}/larix while slapd serves"),
            format!("  3. stop slapd ({}): the pause begins", self.service.describe()),
            "  4. take over what was written since, and compare all entries by their values".to_owned(),
            format!("  5. start Larix on {}: the pause ends", self.urls),
            "slapd's configuration and databases stay as they are; larix adopt --back returns to them"
                .to_owned(),
        ]);
        print_report(&lines.join("\n"))
    }
}

/// Finds slapd and checks all that can be checked before anything is done.
///
/// # Errors
/// What speaks against the move, and the mend.
pub(super) fn find(arguments: &AdoptArgs) -> anyhow::Result<FoundSlapd> {
    let defaults = match fs::read_to_string(&arguments.defaults) {
        Ok(text) => Defaults::parse(&text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Defaults::default(),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", arguments.defaults.display()));
        }
    };
    ensure!(
        arguments.slapd.exists(),
        "there is no {}: --slapd names slapd's program, whose tools are needed",
        arguments.slapd.display()
    );
    ensure!(
        is_openldap(&arguments.slapd),
        "{} is not OpenLDAP's slapd: --slapd names slapd's program, whose tools are needed",
        arguments.slapd.display()
    );
    let configuration = configuration_of(arguments, &defaults)?;
    let config = readable(&configuration)?;
    let databases = stored_databases(&config)?;
    let server = the_server(&databases)?;
    check_process(&server, &configuration, &defaults)?;
    check_room(&arguments.place, &databases)?;
    let from_process = |flag| server.flag(flag).map(str::to_owned);
    let options = defaults.options.unwrap_or_default();
    let options = options.split_ascii_whitespace().map(str::to_owned).collect();
    Ok(FoundSlapd {
        program: arguments.slapd.clone(),
        configuration,
        urls: from_process("-h").or(defaults.services).unwrap_or_else(|| "ldap:///".to_owned()),
        user: from_process("-u"),
        group: from_process("-g"),
        options,
        uid: server.user,
        gid: server.group,
        databases,
        service: Service::choose(arguments.service, &arguments.units),
    })
}

/// Whether a program calls itself OpenLDAP's. Another one may end with success and have copied nothing.
fn is_openldap(program: &Path) -> bool {
    let output = Command::new(program).arg("-VV").stdin(Stdio::null()).output();
    output.is_ok_and(|output| {
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).contains("OpenLDAP")
    })
}

fn configuration_of(arguments: &AdoptArgs, defaults: &Defaults) -> anyhow::Result<PathBuf> {
    let named = arguments.directory.clone().or_else(|| arguments.file.clone());
    let named = named.or_else(|| defaults.configuration.as_ref().map(PathBuf::from));
    let usual =
        [larix_configuration::DEFAULT_DIRECTORY, larix_configuration::DEFAULT_FILE].map(PathBuf::from);
    let path = match named {
        Some(path) => path,
        None => usual.iter().find(|path| path.exists()).cloned().with_context(|| {
            format!(
                "no slapd was found: there is neither {} nor {}; -f or -F names its configuration",
                usual[0].display(),
                usual[1].display()
            )
        })?,
    };
    path.canonicalize().with_context(|| format!("cannot find slapd's configuration {}", path.display()))
}

/// The configuration, if Larix can do all that it says.
fn readable(path: &Path) -> anyhow::Result<Config> {
    let read = if path.is_dir() { Config::from_slapd_d(path) } else { Config::from_slapd_conf(path) };
    let mut faults = Vec::new();
    let config = match read {
        Ok(config) => {
            faults.extend(config.refusals());
            let stored = config.databases.iter().filter(|database| database.kind.is_stored());
            if faults.is_empty() {
                faults.extend(stored.filter_map(|database| config.engine_settings(database).err()));
            }
            Some(config)
        }
        Err(error) => {
            faults.extend(error.into_all());
            None
        }
    };
    let Some(config) = config.filter(|_| faults.is_empty()) else {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        bail!("Larix cannot do what {} says; nothing was changed\n{}", path.display(), faults.join("\n"));
    };
    config.notes.iter().for_each(|note| say!("note: {note}"));
    Ok(config)
}

fn stored_databases(config: &Config) -> anyhow::Result<Vec<StoredDatabase>> {
    let mut databases: Vec<StoredDatabase> = Vec::new();
    for database in config.databases.iter().filter(|database| database.kind.is_stored()) {
        let suffix = database.suffixes.first().map_or("", |suffix| suffix.text.as_str()).to_owned();
        let Some(mdb) = database.kind.mdb() else {
            bail!(
                "{}: the database of {suffix:?} is of the kind {}: adopt takes over mdb alone; the guide has the way by LDIF",
                database.origin,
                database.kind.name()
            );
        };
        let directory = mdb.directory.canonicalize().with_context(|| {
            format!("{}: cannot find the directory {}", database.origin, mdb.directory.display())
        })?;
        // Larix serves hdb and bdb as mdb. The way back exchanges the file of mdb.
        ensure!(
            !directory.join(BERKELEY_DATA).exists() || directory.join(DATA).exists(),
            "{}: the database of {suffix:?} is a Berkeley DB (hdb, bdb): adopt takes over mdb alone. Dump it with slapd's slapcat, and \
             load the dump with `larix add`: the guide has the steps under Moving from OpenLDAP",
            database.origin
        );
        databases.push(StoredDatabase { suffix, directory });
    }
    ensure!(
        !databases.is_empty(),
        "slapd's configuration has no database that stores entries: nothing is to be taken over"
    );
    Ok(databases)
}

/// Who has the databases open.
fn the_server(databases: &[StoredDatabase]) -> anyhow::Result<Process> {
    let mut servers: Vec<Process> =
        databases.iter().flat_map(|database| processes::with_files_in(&database.directory)).collect();
    servers.retain(Process::is_slapd);
    servers.sort_unstable_by_key(|process| process.id);
    servers.dedup_by_key(|process| process.id);
    let mut servers = servers.into_iter();
    let directories = || {
        let all = databases.iter().map(|database| database.directory.display().to_string());
        all.collect::<Vec<_>>().join(", ")
    };
    let Some(server) = servers.next() else {
        bail!("no slapd has {} open: start it, so that what it serves is what is taken over", directories());
    };
    if let Some(other) = servers.next() {
        bail!(
            "{} are open in {} and in {}: end one of them",
            directories(),
            server.describe(),
            other.describe()
        );
    }
    Ok(server)
}

/// The process is the one that the settings mean.
fn check_process(server: &Process, configuration: &Path, defaults: &Defaults) -> anyhow::Result<()> {
    if let Some(own) = server.flag("-F").or_else(|| server.flag("-f")) {
        let own = Path::new(own).canonicalize().unwrap_or_else(|_| own.into());
        ensure!(
            own == configuration,
            "{} runs with {}, not with {}: name the one that counts with -f or -F",
            server.describe(),
            own.display(),
            configuration.display()
        );
    }
    // What the flags say counts; the settings are for a process that was started without any.
    let has_flags = server.flag("-F").is_some() || server.flag("-f").is_some();
    let from_settings = defaults.user.as_deref().filter(|_| !has_flags);
    let Some(user) = server.flag("-u").or(from_settings) else { return Ok(()) };
    let uid = user_id(user).with_context(|| format!("there is no user {user:?}, whom slapd is to run as"))?;
    ensure!(
        uid == server.user,
        "{} runs as the user {}, not as {user:?} ({uid}): start it anew as it is configured",
        server.describe(),
        server.user
    );
    Ok(())
}

fn user_id(name: &str) -> Option<u32> {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let by_name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    by_name.or_else(|| name.parse().ok())
}

/// Bytes that the files of a database take on the disk: they have holes.
pub(super) fn taken_bytes(directory: &Path) -> u64 {
    let Ok(files) = fs::read_dir(directory) else { return 0 };
    let about = files.flatten().filter_map(|file| file.metadata().ok());
    about.filter(fs::Metadata::is_file).map(|about| about.blocks() * 512).sum()
}

fn check_room(place: &Path, databases: &[StoredDatabase]) -> anyhow::Result<()> {
    let bytes: u64 = databases.iter().map(|database| taken_bytes(&database.directory)).sum();
    demand_room(place, bytes * ROOM_FACTOR + SPARE_BYTES)
}

/// # Errors
/// The disk that the path is on, or will be on, has less room: says how much is needed.
pub(super) fn demand_room(path: &Path, needed: u64) -> anyhow::Result<()> {
    let there = path.ancestors().find(|path| path.exists()).unwrap_or(path);
    let disk = rustix::fs::statvfs(there)
        .with_context(|| format!("cannot ask for the room at {}", there.display()))?;
    let free = disk.f_bavail * disk.f_frsize;
    ensure!(
        free >= needed,
        "{} needs {} MB and has {} MB: make room, or name another directory with --place",
        path.display(),
        needed.div_ceil(1 << 20),
        free >> 20
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debians_settings_are_read_without_a_shell() {
        let defaults = Defaults::parse(
            "# SLAPD_CONF=/no\nSLAPD_CONF=\nSLAPD_USER=\"openldap\"\nSLAPD_GROUP='ldap' # x\nSLAPD_SERVICES=\"ldap:/// ldapi:///\"\n\
             SLAPD_OPTIONS=-4\nexport KRB5_KTNAME=/etc/x\n",
        );
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            defaults,
            Defaults {
                configuration: None,
                user: text("openldap"),
                group: text("ldap"),
                services: text("ldap:/// ldapi:///"),
                options: text("-4"),
            }
        );
    }

    #[test]
    fn databases_of_berkeley_are_left_to_slapd() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slapd.conf");
        let text = format!("schema core\ndatabase hdb\nsuffix cn=x\ndirectory {}\n", folder.path().display());
        fs::write(&file, text).unwrap();
        let config = Config::from_slapd_conf(&file).unwrap();
        fs::write(folder.path().join(BERKELEY_DATA), "").unwrap();
        let error = stored_databases(&config).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("\"cn=x\" is a Berkeley DB") && error.contains("`larix add`"), "{error}");
        // Moved to mdb long ago.
        fs::write(folder.path().join(DATA), "").unwrap();
        assert_eq!(stored_databases(&config).unwrap().len(), 1);
    }

    #[test]
    fn a_disk_without_room_is_told_with_figures() {
        let error = demand_room(Path::new("/no/such/place"), u64::MAX).unwrap_err().to_string();
        assert!(error.starts_with("/no/such/place needs 17592186044416 MB and has "), "{error}");
        demand_room(Path::new("/"), 0).unwrap();
    }
}
