//! `slaptest`: checks a configuration, and converts slapd.conf to slapd.d.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use larix_configuration::values::BackupSchedule;
use larix_configuration::{Config, ConfigError, Origin};
use larix_engine::time::Clock as _;
use larix_server::clock::SystemClock;
use larix_server::tls::TlsState;

use super::flags::{self, ConfigArgs};

/// Check a configuration; with -f and -F, convert a slapd.conf to a slapd.d
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Examples:
  larix test -v -f /etc/ldap/slapd.conf
  larix test -f slapd.conf -F slapd.d")]
pub(super) struct TestArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Check this database alone, by its number; 0 is the configuration
    #[arg(short = 'n', value_name = "NUMBER")]
    number: Option<usize>,
    /// Say nothing: only the exit status tells
    #[arg(short = 'Q')]
    quiet: bool,
    /// Dry run: directories, certificates and keys need not be there; with -f and -F nothing is converted
    #[arg(short = 'u')]
    dry_run: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(super) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: TestArgs = flags::parse(name, arguments);
    let read = args.config.load(args.dry_run);
    if let Ok(config) = &read
        && !args.quiet
        && args.config.verbose == 0
    {
        // With -v they are among the notes.
        config.notes.iter().filter(|note| note.is_warning).for_each(|note| eprintln!("{note}"));
    }
    let found = read.map_err(ConfigError::into_all).and_then(|config| check(&args, &config));
    match found {
        Ok(()) => {
            if !args.quiet {
                eprintln!("config file testing succeeded");
            }
            ExitCode::SUCCESS
        }
        Err(errors) => {
            if !args.quiet {
                errors.iter().for_each(|error| eprintln!("{name}: {error}"));
                eprintln!(
                    "{name}: bad configuration {}!",
                    if args.config.file.is_some() { "file" } else { "directory" }
                );
            }
            ExitCode::FAILURE
        }
    }
}

/// What the server would stumble over when it starts.
fn check(args: &TestArgs, config: &Config) -> Result<(), Vec<ConfigError>> {
    if let Some(number) = args.number
        && number >= config.databases.len()
    {
        let message =
            format!("there is no database {number}: the last one is {}", config.databases.len() - 1);
        return Err(vec![ConfigError::new(Origin::BuiltIn, message)]);
    }
    let mut found = config.refusals();
    if found.is_empty() {
        let stored = config.databases.iter().filter(|database| database.kind.is_stored());
        found.extend(stored.filter_map(|database| config.engine_settings(database).err()));
    }
    if args.dry_run || args.number == Some(0) {
        return if found.is_empty() { Ok(()) } else { Err(found) };
    }
    found.extend(config.check_directories().err());
    found.extend(config.check_root_dse_files().err());
    found.extend(config.unusable_targets());
    let tls = TlsState::load(&config.global.tls, SystemClock.now());
    if !args.quiet
        && let Some(Err(why)) = config.global.backup_schedule.as_ref().map(BackupSchedule::check_directory)
    {
        eprintln!("warning: {why}");
    }
    if !args.quiet {
        larix_server::unusable_later(config).iter().for_each(|why| eprintln!("warning: {why}"));
    }
    match tls {
        Ok(loaded) if !args.quiet => {
            let lists = loaded.state.map(|state| state.lists_over(SystemClock.now())).unwrap_or_default();
            loaded.notes.iter().chain(&lists).for_each(|note| eprintln!("warning: {note}"));
        }
        Ok(_) => {}
        Err(error) => found.push(ConfigError::new(Origin::BuiltIn, error.to_string())),
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}
