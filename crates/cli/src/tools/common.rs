//! What the offline tools share: their common flags, and the way from a configuration to an open database.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::{Args, Parser};
use larix_configuration::slapd_d::{self, InUse, Stamp};
use larix_configuration::{Config, ConfigChange, ConfigError, Location, Requester, Source, Storage};
use larix_engine::controls::RequestControls;
use larix_engine::csn::SERVER_ID_MAX;
use larix_engine::order::CommitOrder;
use larix_engine::tables::TABLES;
use larix_engine::write::{WriteOperation, WriterEnvironment};
use larix_engine::{Database, Directory, Frontend, ServedDatabase};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_server::clock::{SystemClock, SystemRandom};
use larix_server::cluster;
use larix_server::ldif_tree::{self, FileUse};
use larix_server::log::LogLevel;
use larix_store::Store;
use larix_store::lmdb::{LmdbOptions, LmdbStore};

use super::Tool;
use crate::terminal;

/// Where `larix serve --suffix` keeps its configuration.
const QUICK_START: &str = "larix-data/slapd.d";

/// Which configuration; the flags are slapd's.
#[derive(Args, Clone, Debug)]
pub(crate) struct ConfigArgs {
    /// Read this slapd.conf
    #[arg(short = 'f', value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Read this slapd.d directory
    #[arg(short = 'F', value_name = "DIRECTORY")]
    pub(crate) directory: Option<PathBuf>,
    /// Debug levels; without effect, the tools always say what they do
    #[arg(short = 'd', value_name = "LEVELS", allow_hyphen_values = true, value_parser = known_levels)]
    debug: Vec<String>,
    /// Say more
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Options, NAME or NAME=VALUE
    #[arg(short = 'o', value_name = "OPTION", value_parser = known_option)]
    pub(crate) options: Vec<String>,
}

/// What OpenLDAP's tools take behind `-o`, but for `remove-sids` of 2.7. `syslog` and its kin say where slapd's tools log; these
/// write to standard error.
const OPTIONS: [&str; 16] = [
    "authzDN",
    "domain",
    "ldif-wrap",
    "ldif_wrap",
    "peername",
    "sasl_ssf",
    "schema-check",
    "sockname",
    "sockurl",
    "ssf",
    "syslog",
    "syslog-level",
    "syslog-user",
    "tls_ssf",
    "transport_ssf",
    "value-check",
];

/// An option whose meaning a tool knows.
fn known_option(option: &str) -> Result<String, String> {
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    if OPTIONS.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return Ok(option.to_owned());
    }
    Err(format!("there is no option `{name}`; some of {}", OPTIONS.join(", ")))
}

/// Levels of `-d`, which slapd's tools take by name or number.
fn known_levels(levels: &str) -> Result<String, String> {
    let is_unknown = |level: &&str| !level.is_empty() && LogLevel::parse_word(level).is_none();
    match levels.split(',').find(is_unknown) {
        None => Ok(levels.to_owned()),
        Some(level) => {
            let names = LogLevel::NAMES.map(|(name, _)| name).join(", ");
            Err(format!("there is no level `{level}`; a number, or some of {names}"))
        }
    }
}

impl ConfigArgs {
    /// The value of an option; an empty string for one without a value.
    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find_map(|option| {
            let (known, value) = option.split_once('=').unwrap_or((option, ""));
            known.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// Whether an option with `yes`/`no` says yes; `default` when it is not given.
    pub(crate) fn switch(&self, name: &str, default: bool) -> anyhow::Result<bool> {
        match self.option(name).map(str::to_ascii_lowercase).as_deref() {
            None => Ok(default),
            Some("" | "yes" | "true" | "on" | "1") => Ok(true),
            Some("no" | "false" | "off" | "0") => Ok(false),
            Some(other) => bail!("-o {name}={other}: yes or no"),
        }
    }

    /// Reads the configuration: `-F` or `-f`, else what OpenLDAP's packages would read.
    pub(crate) fn read(&self) -> anyhow::Result<Config> {
        self.load(true).map_err(|error| anyhow::anyhow!("{error}"))
    }

    pub(crate) fn location(&self) -> Location {
        Location { file: self.file.clone(), directory: self.directory.clone() }
    }

    /// The same; with both flags and not `dry`, the file is written to the directory in slapd.d form.
    pub(crate) fn load(&self, dry: bool) -> Result<Config, ConfigError> {
        let location = self.location();
        let (clock, random) = (SystemClock, SystemRandom);
        let loaded = location.load(&Stamp { clock: &clock, random: &random }, dry);
        let config = loaded.map_err(|error| name_quick_start(&location, error))?;
        name_read(&location, &config);
        if self.verbose > 0 {
            config.notes.iter().for_each(|note| eprintln!("note: {note}"));
        }
        Ok(config)
    }
}

/// Whether no flag names a configuration; not under slapd's names.
fn is_unnamed(location: &Location) -> bool {
    location.file.is_none() && location.directory.is_none() && !is_called_as_slapd()
}

/// Says which configuration was read, if no flag names one.
pub(crate) fn name_read(location: &Location, config: &Config) {
    let (Source::Directory(path) | Source::File(path)) = &config.source else { return };
    if !is_unnamed(location) {
        return;
    }
    let near = if slapd_d::exists_in(Path::new(QUICK_START)) {
        format!(", as -F {QUICK_START} does here")
    } else {
        String::new()
    };
    eprintln!("larix: reads {}; -f FILE or -F DIRECTORY names another configuration{near}", path.display());
}

/// Who names no configuration in the folder of a quick start meant that one.
pub(crate) fn name_quick_start(location: &Location, error: ConfigError) -> ConfigError {
    if !is_unnamed(location) || !slapd_d::exists_in(Path::new(QUICK_START)) {
        return error;
    }
    let here = format!("-F {QUICK_START} names the configuration here");
    let help = match &error.help {
        Some(help) => format!("{here}; {help}"),
        None => here,
    };
    error.with_help(help)
}

/// Whether one of slapd's names was called: those read what OpenLDAP's packages configure, and say nothing of it.
fn is_called_as_slapd() -> bool {
    let program = std::env::args_os().next().unwrap_or_default();
    Path::new(&program).file_name().and_then(OsStr::to_str).is_some_and(|name| {
        let name = name.strip_prefix("lt-").unwrap_or(name);
        name == "slapd" || Tool::by_program_name(name).is_some()
    })
}

/// Which database.
#[derive(Args, Clone, Debug)]
pub(crate) struct DatabaseArgs {
    /// The database with this suffix
    #[arg(short = 'b', value_name = "SUFFIX", conflicts_with = "number")]
    pub(crate) suffix: Option<String>,
    /// The database with this number: 0 is cn=config, 1 the first one configured
    #[arg(short = 'n', value_name = "NUMBER")]
    pub(crate) number: Option<usize>,
    /// Only this database, not those glued below it
    #[arg(short = 'g')]
    pub(crate) no_glue: bool,
}

/// A server id as `-S` takes it: what is beyond would stand for another server's.
pub(crate) fn server_id(text: &str) -> Result<u16, String> {
    let id = text.parse::<u16>().ok().filter(|id| *id <= SERVER_ID_MAX);
    id.ok_or_else(|| format!("a server id is a number from 0 to {SERVER_ID_MAX}"))
}

/// The LDIF that a tool reads.
#[derive(Args, Clone, Debug)]
pub(crate) struct InputArgs {
    /// Read this file instead of standard input; `-` is standard input
    #[arg(short = 'l', value_name = "FILE")]
    pub(crate) ldif: Option<PathBuf>,
    /// Go on after a record that is refused; the others are taken
    #[arg(short = 'c')]
    pub(crate) go_on: bool,
    /// Skip records that start before this line
    #[arg(short = 'j', value_name = "LINE", default_value_t = 0)]
    pub(crate) from_line: u64,
    /// Only check; nothing is stored
    #[arg(short = 'u')]
    pub(crate) dry_run: bool,
}

impl InputArgs {
    pub(crate) fn open(&self) -> anyhow::Result<Box<dyn BufRead + Send>> {
        open_input(self.ldif.as_deref())
    }
}

/// Read at once: what is read is copied on while it is still near the processor.
const INPUT_BYTES: usize = 256 << 10;

/// A file, or standard input for none or `-`.
pub(crate) fn open_input(path: Option<&Path>) -> anyhow::Result<Box<dyn BufRead + Send>> {
    match path.filter(|path| *path != Path::new("-")) {
        None => Ok(Box::new(BufReader::new(io::stdin()))),
        Some(path) => Ok(Box::new(BufReader::with_capacity(INPUT_BYTES, open_file(path)?))),
    }
}

/// A file to be read.
///
/// # Errors
/// Names the file. A directory is one that can be opened, and not read.
pub(crate) fn open_file(path: &Path) -> anyhow::Result<File> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    if file.metadata().is_ok_and(|found| found.is_dir()) {
        bail!("cannot read {}: it is a directory", path.display());
    }
    Ok(file)
}

/// What [`DatabaseArgs`] chose.
#[derive(Debug)]
pub(crate) enum Chosen<'c> {
    /// cn=config itself.
    Configuration,
    /// A stored database, then those glued below it.
    Stored(Vec<&'c larix_configuration::Database>),
}

impl Chosen<'_> {
    /// The DN at the top: the first suffix of the database that was named; `None` if it has none.
    ///
    /// # Errors
    /// A schema without the attribute `cn`.
    pub(crate) fn top(&self, config: &Config) -> anyhow::Result<Option<NormalDn>> {
        match self {
            Self::Configuration => dn_of(config, CONFIGURATION_SUFFIX).map(Some),
            Self::Stored(databases) => {
                let suffix = databases.first().and_then(|database| database.suffixes.first());
                Ok(suffix.map(|suffix| suffix.normal.clone()))
            }
        }
    }
}

impl DatabaseArgs {
    /// Whether no database is named.
    pub(crate) fn is_unset(&self) -> bool {
        self.number.is_none() && self.suffix.is_none()
    }

    /// Whether `-n 0` or the suffix of cn=config is asked for, which needs no readable configuration yet.
    pub(crate) fn is_configuration(&self) -> bool {
        self.number == Some(0) || self.suffix.as_deref().is_some_and(|s| s.eq_ignore_ascii_case("cn=config"))
    }

    pub(crate) fn choose<'c>(&self, config: &'c Config) -> anyhow::Result<Chosen<'c>> {
        self.choose_among(config, |database| database.kind.is_stored())
    }

    /// The same for tools that work on databases in shared engines, too.
    pub(crate) fn choose_with_shared<'c>(&self, config: &'c Config) -> anyhow::Result<Chosen<'c>> {
        self.choose_among(config, |database| database.kind.keeps_entries())
    }

    /// As [`Self::choose_with_shared`] for a tool that reads below `base` alone: where no database is named, that DN names it, as for
    /// slapd's tools.
    ///
    /// # Errors
    /// Those of [`Self::choose_with_shared`]; a named database that has nothing below the DN.
    pub(crate) fn choose_to_read_below<'c>(
        &self,
        config: &'c Config,
        base: Option<&str>,
    ) -> anyhow::Result<Chosen<'c>> {
        let chosen = self.naming(config, base)?.choose_with_shared(config);
        chosen.and_then(|chosen| demand_reached(config, base, chosen))
    }

    /// What names a database: these flags, otherwise `base`.
    fn naming(&self, config: &Config, base: Option<&str>) -> anyhow::Result<Self> {
        let Some(base) = base.filter(|base| self.is_unset() && !base.is_empty()) else {
            return Ok(self.clone());
        };
        let number = dn_of(config, base)?.is_within(&dn_of(config, CONFIGURATION_SUFFIX)?).then_some(0);
        Ok(Self { suffix: Some(base.to_owned()).filter(|_| number.is_none()), number, ..self.clone() })
    }

    /// The same for tools that look at everything: every stored database if none is named, glued or not.
    pub(crate) fn choose_every<'c>(&self, config: &'c Config) -> anyhow::Result<Chosen<'c>> {
        if !self.is_unset() {
            return self.choose(config);
        }
        let all: Vec<_> = config.databases.iter().filter(|database| database.kind.is_stored()).collect();
        if all.is_empty() {
            return Err(nothing_stored(config));
        }
        Ok(Chosen::Stored(all))
    }

    fn choose_among<'c>(
        &self,
        config: &'c Config,
        is_meant: fn(&larix_configuration::Database) -> bool,
    ) -> anyhow::Result<Chosen<'c>> {
        if self.is_configuration() {
            return Ok(Chosen::Configuration);
        }
        let stored = |database: &&larix_configuration::Database| is_meant(database);
        let database = match (&self.suffix, self.number) {
            (Some(suffix), _) => {
                let dn = config
                    .schema
                    .parse_dn(suffix)
                    .map_err(|error| anyhow::anyhow!("-b {suffix}: {error}"))?;
                // A DN below a suffix names the database that serves it, by the nearest suffix.
                let depth = |database: &&larix_configuration::Database| {
                    let above = database.suffixes.iter().map(|suffix| &suffix.normal);
                    above.filter(|s| **s == dn || dn.is_descendant_of(s)).map(|s| s.depth()).max()
                };
                let serving =
                    config.databases.iter().filter(stored).filter(|database| depth(database).is_some());
                serving.max_by_key(depth).ok_or_else(|| {
                    let in_engine = why_in_engine(config, |database| depth(&database).is_some());
                    in_engine.unwrap_or_else(|| {
                        anyhow::anyhow!("no database serves {suffix:?}; there are {}", suffixes(config))
                    })
                })?
            }
            (None, Some(number)) => {
                // {0}config is the first, whether the configuration names it or not.
                let database = config.databases.get(number).with_context(|| {
                    format!("-n {number}: databases have the numbers 0 to {}", config.databases.len() - 1)
                })?;
                if !stored(&database) {
                    if let Some(why) = why_in_engine(config, |other| std::ptr::eq(other, database)) {
                        return Err(why);
                    }
                    bail!("-n {number} is a {} database, which stores no entries", database.kind.name());
                }
                database
            }
            (None, None) => first_stored(config, is_meant)?,
        };
        let mut chosen = vec![database];
        if !self.no_glue {
            let glued = config.databases.iter().filter(stored).filter(|other| {
                other.subordinate.is_some()
                    && other.suffixes.iter().any(|below| {
                        database.suffixes.iter().any(|above| below.normal.is_descendant_of(&above.normal))
                    })
            });
            chosen.extend(glued);
        }
        Ok(Chosen::Stored(chosen))
    }
}

const CONFIGURATION_SUFFIX: &str = "cn=config";

fn dn_of(config: &Config, text: &str) -> anyhow::Result<NormalDn> {
    config.schema.parse_dn(text).map_err(|error| anyhow::anyhow!("DN {text:?}: {error}"))
}

/// Nothing at all is read below a DN that is elsewhere, which must not pass for a database without entries.
fn demand_reached<'c>(config: &Config, base: Option<&str>, chosen: Chosen<'c>) -> anyhow::Result<Chosen<'c>> {
    let Some(text) = base.filter(|base| !base.is_empty()) else { return Ok(chosen) };
    let (base, own) = (dn_of(config, text)?, dn_of(config, CONFIGURATION_SUFFIX)?);
    let suffixes: Vec<&NormalDn> = match &chosen {
        Chosen::Configuration => vec![&own],
        Chosen::Stored(databases) => {
            databases.iter().flat_map(|database| &database.suffixes).map(|suffix| &suffix.normal).collect()
        }
    };
    if suffixes.iter().any(|suffix| base.is_within(suffix) || suffix.is_within(&base)) {
        return Ok(chosen);
    }
    let names: Vec<&str> = suffixes.iter().map(|suffix| suffix.as_str()).collect();
    bail!(
        "{text:?} is not in the database that -b or -n names ({}): name the one that has it",
        names.join(", ")
    )
}

/// Without `-b` and `-n`: the first stored database that is not glued below another.
fn first_stored(
    config: &Config,
    is_meant: fn(&larix_configuration::Database) -> bool,
) -> anyhow::Result<&larix_configuration::Database> {
    config
        .databases
        .iter()
        .find(|database| is_meant(database) && database.subordinate.is_none())
        .ok_or_else(|| nothing_stored(config))
}

/// Why a tool finds no database to work on.
pub(crate) fn nothing_stored(config: &Config) -> anyhow::Error {
    why_in_engine(config, |_| true).unwrap_or_else(|| {
        anyhow::anyhow!(
            "the configuration has no database that stores entries: add `database mdb` with a suffix"
        )
    })
}

/// Why a tool that works on files of this machine does not work on a database that is meant, if an engine has its entries.
pub(crate) fn why_in_engine(
    config: &Config,
    is_meant: impl Fn(&larix_configuration::Database) -> bool,
) -> Option<anyhow::Error> {
    let is_it =
        |database: &&larix_configuration::Database| database.kind.is_in_shared_engine() && is_meant(database);
    let suffixes = &config.databases.iter().find(is_it)?.suffixes;
    let suffix = suffixes.first().map(|suffix| suffix.text.as_str()).unwrap_or_default();
    Some(anyhow::anyhow!(
        "the entries of {suffix:?} are in an engine that servers share, and this tool works on files of this machine: \
         `larix cluster check` checks them there, `larix cat` writes them as LDIF, `slapadd`, `slapmodify` and `slapdelete` change them \
         while no node writes, and the engine's own tools make backups, as `pg_dump` or `etcdctl snapshot save`"
    ))
}

fn suffixes(config: &Config) -> String {
    let texts = config.databases.iter().flat_map(|database| &database.suffixes);
    texts.map(|suffix| format!("{:?}", suffix.text)).collect::<Vec<_>>().join(", ")
}

/// The database with the longest suffix above the DN, also where it stores no entries: its rules count there.
pub(crate) fn section_of<'c>(config: &'c Config, dn: &NormalDn) -> Option<&'c larix_configuration::Database> {
    config.nearest_database(dn, |_| true)
}

/// Whether a tool only reads, which it may do beside a running server, or writes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Access {
    Read,
    /// What is there: none is made, which would pass for one that has been emptied.
    Change,
    Write,
}

/// Opens the store and database of a section.
pub(crate) fn open(
    config: &Config,
    database: &larix_configuration::Database,
    access: Access,
) -> anyhow::Result<Database<LmdbStore>> {
    let settings = config.engine_settings(database).map_err(|error| anyhow::anyhow!("{error}"))?;
    let mdb = match (database.kind.storage(), database.kind.directory()) {
        (Storage::LdifFiles, Some(directory)) => {
            let file_use = match access {
                Access::Read => FileUse::Read,
                Access::Change | Access::Write => FileUse::Change,
            };
            let opened = ldif_tree::open(config, settings, directory, file_use)?;
            opened.warnings.iter().for_each(|warning| eprintln!("note: {warning}"));
            return Ok(opened.database);
        }
        _ => database
            .kind
            .mdb()
            .with_context(|| format!("a {} database stores no entries", database.kind.name()))?,
    };
    let options = match access {
        Access::Read => LmdbOptions::for_reading(),
        Access::Change | Access::Write => {
            let defaults = LmdbOptions::default();
            let file_mode = mdb.mode.unwrap_or(defaults.file_mode);
            LmdbOptions { file_mode, create: access == Access::Write, ..defaults }
        }
    };
    if !mdb.directory.try_exists().unwrap_or(true) {
        config.check_directory(database, &mdb.directory).map_err(|error| anyhow::anyhow!("{error}"))?;
    }
    let store = LmdbStore::open(&mdb.directory, &TABLES, &options)?;
    Database::open(store, Arc::clone(&config.schema), settings, &SystemRandom)
        .map_err(|error| anyhow::anyhow!("{}: {error}", mdb.directory.display()))
}

/// A database to be read, beside servers.
pub(crate) enum Opened {
    Stored(Box<Database<LmdbStore>>),
    /// Behind the reading, [`cluster::whole`] says whether everything could be read.
    Shared(Box<Database<cluster::ToolStore>>),
}

impl Opened {
    /// # Errors
    /// It cannot be opened, or its engine cannot be asked.
    pub(crate) fn open(config: &Config, section: &larix_configuration::Database) -> anyhow::Result<Self> {
        if section.kind.is_in_shared_engine() {
            let opened = cluster::open_to_read(config, section).map_err(anyhow::Error::msg);
            return opened.map(|database| Self::Shared(Box::new(database)));
        }
        open(config, section, Access::Read).map(|database| Self::Stored(Box::new(database)))
    }
}

/// Parses a tool's own flags; `--help` and mistakes end the process as clap does.
pub(crate) fn parse<P: Parser>(name: &str, arguments: &[OsString]) -> P {
    let words = std::iter::once(OsString::from(name)).chain(arguments.iter().cloned());
    // A tool of slapd's ends with 1 whatever was wrong.
    let mistake = if is_called_as_slapd() { 1 } else { terminal::MISTAKE };
    P::try_parse_from(words).unwrap_or_else(|error| terminal::end_parsing(&error, mistake))
}

/// Opens the chosen databases with their writers: changes go the way of the server's own. `access` is not [`Access::Read`]; `server_id`
/// takes the place of the configuration's.
pub(crate) fn open_directory(
    config: &Config,
    databases: &[&larix_configuration::Database],
    access: Access,
    server_id: Option<u16>,
) -> anyhow::Result<Directory<LmdbStore>> {
    let order = Arc::new(CommitOrder::new(server_id.unwrap_or_else(|| configured_server_id(config))));
    let opened =
        databases.iter().map(|database| Ok((Arc::new(open(config, database, access)?), order.clone())));
    start_writers(config, opened.collect::<anyhow::Result<_>>()?)
}

/// The server id of a configuration that is one for all listeners; tools have none.
pub(crate) fn configured_server_id(config: &Config) -> u16 {
    config.global.server_ids.iter().find(|id| id.url.is_none()).map_or(0, |id| id.number)
}

/// Opened databases with their writers, and what their changes are numbered by.
pub(crate) fn start_writers<S: Store>(
    config: &Config,
    databases: Vec<(Arc<Database<S>>, Arc<CommitOrder>)>,
) -> anyhow::Result<Directory<S>> {
    let clock = Arc::new(SystemClock);
    let mut served = Vec::new();
    for (database, order) in databases {
        let environment = WriterEnvironment {
            clock: clock.clone(),
            random: Arc::new(SystemRandom),
            order,
            default_referrals: Arc::from([]),
            auxiliary_needs_rule: false,
            index_watch: None,
        };
        let started =
            ServedDatabase::start(database, environment).map_err(|error| anyhow::anyhow!("{error}"))?;
        served.push(Arc::new(started));
    }
    let schema_dn = config.frontend.schema_dn.as_ref().map(|dn| dn.normal.clone());
    let subschema = match schema_dn {
        Some(dn) => dn,
        None => config.schema.parse_dn("cn=Subschema").map_err(|error| anyhow::anyhow!("{error}"))?,
    };
    let frontend = Frontend {
        schema: Arc::clone(&config.schema),
        subschema,
        default_search_base: None,
        referrals: Vec::new(),
    };
    Directory::new(frontend, served).map_err(|error| anyhow::anyhow!("{error:?}"))
}

/// Offline, cn=config is changed where it is stored, while no server runs with it and no other tool changes it.
///
/// # Errors
/// It is no slapd.d, or it is in use: says how it is changed then.
pub(crate) fn demand_directory(config: &Config) -> anyhow::Result<InUse> {
    match &config.source {
        Source::Directory(directory) => InUse::by_tool(directory).map_err(|error| anyhow::anyhow!("{error}")),
        _ => bail!("cn=config can be changed in a slapd.d alone (-F): edit the file"),
    }
}

/// As [`demand_directory`], for a tool that has read the configuration before it had the directory for itself: what another process
/// changed in between is in it then.
///
/// # Errors
/// As [`demand_directory`]; what cannot be read.
pub(crate) fn take_directory(config: &mut Config) -> anyhow::Result<InUse> {
    let in_use = demand_directory(config)?;
    if let Source::Directory(directory) = &config.source {
        let now = Config::from_slapd_d(directory);
        *config = now.map_err(|error| anyhow::anyhow!("{error}"))?;
    }
    Ok(in_use)
}

/// Carries out one change of cn=config: it is in the directory when this returns success.
pub(crate) fn change_configuration(
    config: &mut Config,
    operation: WriteOperation,
    controls: RequestControls,
) -> LdapResult {
    let (clock, random) = (SystemClock, SystemRandom);
    let stamp = Stamp { clock: &clock, random: &random };
    let change = ConfigChange { operation, controls, requester: Requester::Offline };
    let changed = match config.changed(&change, &stamp) {
        Ok(changed) => changed,
        Err(refusal) => return refusal.0,
    };
    match changed.commit() {
        Ok(()) => {
            *config = changed.config;
            LdapResult::success()
        }
        Err(error) => LdapResult::with(ResultCode::OTHER, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use larix_engine::write::{AttributeValues, Modification};
    use larix_proto::ModifyOperation;

    use super::*;

    fn add_rule(config: &mut Config, rule: &str) -> ResultCode {
        let attribute =
            AttributeValues { description: "olcAccess".to_owned(), values: vec![rule.as_bytes().to_vec()] };
        let changes = vec![Modification { operation: ModifyOperation::Add, attribute }];
        let object = "olcDatabase={-1}frontend,cn=config".to_owned();
        let operation = WriteOperation::Modify { object, changes };
        change_configuration(config, operation, RequestControls::default()).code
    }

    #[test]
    fn a_missing_directory_is_that_of_the_database() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slapd.conf");
        let database = |suffix: &str| format!("database mdb\nsuffix {suffix}\ndirectory /nowhere/{suffix}\n");
        std::fs::write(&file, database("cn=x") + &database("cn=y")).unwrap();
        let config = Config::from_slapd_conf(&file).unwrap();
        let Err(error) = open(&config, &config.databases[2], Access::Read) else { panic!("it opens") };
        let error = error.to_string();
        assert!(error.contains("the database directory `/nowhere/cn=y` does not exist"), "{error}");
    }

    #[test]
    fn the_database_that_has_what_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slapd.conf");
        let database = |suffix: &str| format!("database mdb\nsuffix {suffix}\ndirectory /nowhere/{suffix}\n");
        std::fs::write(&file, database("cn=x") + &database("cn=y")).unwrap();
        let config = Config::from_slapd_conf(&file).unwrap();
        let check = |suffix: Option<&str>, number: Option<usize>, base: Option<&str>, expected: &str| {
            let args = DatabaseArgs { suffix: suffix.map(str::to_owned), number, no_glue: false };
            let found = match args.choose_to_read_below(&config, base) {
                Ok(Chosen::Configuration) => CONFIGURATION_SUFFIX.to_owned(),
                Ok(Chosen::Stored(databases)) => databases[0].suffixes[0].text.clone(),
                Err(error) => error.to_string(),
            };
            assert!(found.contains(expected), "{suffix:?} {number:?} {base:?}: {found}");
        };
        check(None, None, None, "cn=x");
        check(None, None, Some(""), "cn=x");
        check(None, None, Some("cn=y"), "cn=y");
        check(None, None, Some("cn=a,cn=y"), "cn=y");
        check(None, None, Some("cn=z"), "no database serves \"cn=z\"");
        check(None, None, Some("cn=schema,cn=config"), CONFIGURATION_SUFFIX);
        check(Some("cn=y"), None, Some("cn=a,cn=y"), "cn=y");
        check(Some("cn=x"), None, Some("cn=a,cn=y"), "\"cn=a,cn=y\" is not in the database");
        check(None, Some(1), Some("cn=a,cn=y"), "\"cn=a,cn=y\" is not in the database");
        check(None, Some(0), Some("cn=y"), "\"cn=y\" is not in the database");
        check(None, Some(0), Some("cn=schema,cn=config"), CONFIGURATION_SUFFIX);
    }

    #[test]
    fn what_looks_at_everything_looks_at_glued_databases() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slapd.conf");
        let below = "database mdb\nsuffix cn=b,cn=x\ndirectory /nowhere/b\nsubordinate\n";
        std::fs::write(&file, format!("{below}database mdb\nsuffix cn=x\ndirectory /nowhere/x\n")).unwrap();
        let config = Config::from_slapd_conf(&file).unwrap();
        for (number, no_glue, expected) in [
            (None, false, &["cn=b,cn=x", "cn=x"][..]),
            (None, true, &["cn=b,cn=x", "cn=x"]),
            (Some(2), false, &["cn=x", "cn=b,cn=x"]),
            (Some(2), true, &["cn=x"]),
            (Some(1), true, &["cn=b,cn=x"]),
        ] {
            let args = DatabaseArgs { suffix: None, number, no_glue };
            let Chosen::Stored(databases) = args.choose_every(&config).unwrap() else {
                panic!("stored ones")
            };
            let found: Vec<_> = databases.iter().map(|database| &*database.suffixes[0].text).collect();
            assert_eq!(found, expected, "{number:?} {no_glue}");
        }
    }

    #[test]
    fn a_database_has_one_name_at_a_time() {
        for tool in ["add", "cat", "index", "schema", "check", "offline-modify"] {
            let command = crate::tools::command(Tool::by_subcommand(tool).unwrap());
            let refused = command.try_get_matches_from([tool, "-b", "cn=x", "-n", "1"]).unwrap_err();
            assert!(refused.to_string().contains("cannot be used with"), "{tool}: {refused}");
        }
    }

    #[test]
    fn server_ids() {
        for (text, expected) in
            [("0", Some(0)), ("4095", Some(4095)), ("4096", None), ("70000", None), ("-1", None), ("x", None)]
        {
            assert_eq!(server_id(text).ok(), expected, "{text}");
        }
        let command = |tool: &str| crate::tools::command(Tool::by_subcommand(tool).unwrap());
        for tool in ["add", "offline-modify"] {
            assert!(command(tool).try_get_matches_from([tool, "-S", "4095"]).is_ok(), "{tool}");
            let refused = command(tool).try_get_matches_from([tool, "-S", "4096"]).unwrap_err().to_string();
            assert!(refused.contains("'4096'") && refused.contains("0 to 4095"), "{refused}");
        }
    }

    /// A tool that read the configuration before another one changed it must not write what it had read.
    #[test]
    fn what_another_tool_changed_before_the_lock_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (file, directory) = (folder.path().join("slapd.conf"), folder.path().join("slapd.d"));
        std::fs::write(&file, "database null\nsuffix cn=x\n").unwrap();
        let location = Location { file: Some(file), directory: Some(directory.clone()) };
        let (clock, random) = (SystemClock, SystemRandom);
        let mut slow = location.load(&Stamp { clock: &clock, random: &random }, false).unwrap();
        {
            let mut quick = Config::from_slapd_d(&directory).unwrap();
            let _in_use = take_directory(&mut quick).unwrap();
            assert_eq!(add_rule(&mut quick, "to dn.base=\"cn=quick\" by * read"), ResultCode::SUCCESS);
        }
        let in_use = take_directory(&mut slow).unwrap();
        assert_eq!(add_rule(&mut slow, "to dn.base=\"cn=slow\" by * read"), ResultCode::SUCCESS);
        drop(in_use);
        let file = directory.join("cn=config/olcDatabase={-1}frontend.ldif");
        let frontend = std::fs::read_to_string(file).unwrap();
        for name in ["cn=quick", "cn=slow"] {
            assert!(frontend.contains(name), "{frontend}");
        }
    }
}
