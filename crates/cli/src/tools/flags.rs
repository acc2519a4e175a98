//! Flags that the offline tools share: which configuration, which database, which LDIF.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser};
use larix_configuration::slapd_d::{self, Stamp};
use larix_configuration::{Config, ConfigError, Location, Source};
use larix_engine::csn::SERVER_ID_MAX;
use larix_server::clock::{SystemClock, SystemRandom};
use larix_server::log::LogLevel;

use super::Tool;
use crate::terminal;

/// Where `larix serve --suffix` keeps its configuration.
const QUICK_START: &str = "larix-data/slapd.d";

/// Which configuration; the flags are slapd's.
#[derive(Args, Clone, Debug)]
pub(crate) struct ConfigArgs {
    /// Read this slapd.conf [without -f and -F: /etc/ldap/slapd.d, else /etc/ldap/slapd.conf]
    #[arg(short = 'f', value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Read this slapd.d directory, such as larix-data/slapd.d
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

/// Parses a tool's own flags; `--help` and mistakes end the process as clap does.
pub(crate) fn parse<P: Parser>(name: &str, arguments: &[OsString]) -> P {
    let words = std::iter::once(OsString::from(name)).chain(arguments.iter().cloned());
    // A tool of slapd's ends with 1 whatever was wrong.
    let mistake = if is_called_as_slapd() { 1 } else { terminal::MISTAKE };
    P::try_parse_from(words).unwrap_or_else(|mut error| {
        name_flag_of_path(&mut error, &P::command());
        terminal::end_parsing(&error, mistake)
    })
}

/// Adds the flag to the report of a path that stands without one.
fn name_flag_of_path(error: &mut clap::Error, command: &clap::Command) {
    if error.kind() != ErrorKind::UnknownArgument {
        return;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return };
    let Some((flag, path)) = flag_of_path(Path::new(word)) else { return };
    if command.get_arguments().any(|argument| argument.get_short() == Some(flag)) {
        let tip = format!("a flag names it: -{flag} {}", path.display());
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
}

/// What of an existing path may be meant: a slapd.d, the one in a data directory, a slapd.conf or LDIF.
fn flag_of_path(path: &Path) -> Option<(char, PathBuf)> {
    let is_slapd_d = |path: &Path| path.join("cn=config.ldif").is_file();
    let within = path.join("slapd.d");
    let ending = path.extension().and_then(OsStr::to_str).filter(|_| path.is_file());
    match ending {
        Some("conf") => Some(('f', path.to_owned())),
        Some("ldif") => Some(('l', path.to_owned())),
        _ if is_slapd_d(path) => Some(('F', path.to_owned())),
        _ if is_slapd_d(&within) => Some(('F', within)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
