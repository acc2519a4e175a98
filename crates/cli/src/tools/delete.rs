//! `slapdelete`: entries deleted from a database, by DN or by filter; by the server where one runs on it.

use std::ffi::OsString;
use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use larix_configuration::Config;
use larix_engine::Database;
use larix_engine::controls::{ControlValues, RequestControls};
use larix_engine::write::WriteOperation;
use larix_proto::{LdapResult, ResultCode};
use larix_schema::{NearestSuffix, NormalDn};
use larix_server::{cluster, config_entries_matching};
use larix_store::Store;

use super::changing::{Changing, Writes};
use super::choice::Chosen;
use super::config_directory;
use super::flags::{self, ConfigArgs, DatabaseArgs};
use super::opening::{self, Access, Opened};
use super::selection::{Selection, each_record};
use crate::terminal;

/// Delete entries of a database by DN or by filter, also while a server runs on it
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Examples:
  larix offline-delete -F larix-data/slapd.d uid=ann,ou=people,dc=example,dc=com
  larix offline-delete -F larix-data/slapd.d -u -a '(employeeType=temporary)'")]
pub(super) struct DeleteArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    /// Delete every entry that matches this filter
    #[arg(short = 'a', value_name = "FILTER")]
    filter: Option<String>,
    /// Read DNs from this file, one a line; `-` is standard input
    #[arg(short = 'l', value_name = "FILE")]
    names: Option<PathBuf>,
    /// Delete what is below each entry, too
    #[arg(short = 'r')]
    recursive: bool,
    /// Go on after an entry that cannot be deleted
    #[arg(short = 'c')]
    go_on: bool,
    /// Only say what would be deleted
    #[arg(short = 'u')]
    dry_run: bool,
    /// DNs of entries to delete
    dns: Vec<String>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(super) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: DeleteArgs = flags::parse(name, arguments);
    terminal::end_counted(name, delete(name, &args), "entries were not deleted")
}

fn delete(name: &str, args: &DeleteArgs) -> anyhow::Result<u64> {
    let mut config = args.config.read()?;
    let mut dns = args.dns.clone();
    if let Some(path) = &args.names {
        for line in flags::open_input(Some(path))?.lines() {
            let line = line.with_context(|| format!("cannot read {}", path.display()))?;
            dns.extend(Some(line.trim().to_owned()).filter(|line| !line.is_empty()));
        }
    }
    let nothing = args.filter.is_none() && args.dns.is_empty() && args.names.is_none();
    if nothing {
        bail!("nothing to delete: give DNs, -l FILE or -a FILTER");
    }
    if args.database.is_configuration() {
        let _directory = config_directory::take_directory(&mut config)?;
        if let Some(filter) = &args.filter {
            dns.extend(matching_configuration(&config, filter, args.recursive)?);
        }
        return each(name, args, dns, |operation, controls| {
            Ok(config_directory::change_configuration(&mut config, operation, controls))
        });
    }
    let Chosen::Stored(databases) = args.database.choose_with_shared(&config)? else {
        bail!("cn=config has the number 0");
    };
    if args.dry_run {
        return look(name, args, &config, &databases, dns);
    }
    let writes = Writes { access: Access::Change, server_id: None };
    let mut changing = Changing::open(name, &config, &databases, writes, args.config.verbose > 0)?;
    if let Some(filter) = &args.filter {
        match &changing {
            Changing::Here(directory) => {
                for served in directory.databases() {
                    matching(&config, served.database(), filter, &mut dns)?;
                }
            }
            Changing::Shared { directory, .. } => {
                for served in directory.databases() {
                    matching(&config, served.database(), filter, &mut dns)?;
                }
                cluster::whole().map_err(anyhow::Error::msg)?;
            }
            Changing::Served(_) => {
                for section in &databases {
                    let database = opening::open(&config, section, Access::Read)?;
                    matching(&config, &database, filter, &mut dns)?;
                }
            }
        }
    }
    each(name, args, dns, |operation, controls| changing.change(&config, operation, controls))
}

/// Prints which entries would be deleted. No database is opened for a change. Answers how many entries are not there.
fn look(
    name: &str,
    args: &DeleteArgs,
    config: &Config,
    sections: &[&larix_configuration::Database],
    mut dns: Vec<String>,
) -> anyhow::Result<u64> {
    let mut opened = Vec::new();
    for section in sections {
        let database = Opened::open(config, section)?;
        if let Some(filter) = &args.filter {
            match &database {
                Opened::Stored(database) => matching(config, database, filter, &mut dns)?,
                Opened::Shared(database) => matching(config, database, filter, &mut dns)?,
            }
        }
        opened.push((*section, database));
    }
    let mut missing = 0;
    for entry in dns {
        let found = is_there(config, &opened, &entry)?;
        cluster::whole().map_err(anyhow::Error::msg)?;
        if found {
            println!("{entry}");
            continue;
        }
        let text = format!("{entry:?}: {}", ResultCode::NO_SUCH_OBJECT);
        if !args.go_on {
            bail!("{text}");
        }
        eprintln!("{name}: {text}");
        missing += 1;
    }
    Ok(missing)
}

fn is_there(
    config: &Config,
    opened: &[(&larix_configuration::Database, Opened)],
    entry: &str,
) -> anyhow::Result<bool> {
    let dn = config.schema.parse_dn(entry).map_err(|error| anyhow::anyhow!("DN {entry:?}: {error}"))?;
    let held = NearestSuffix::of(&dn).among(opened, |nearest, (section, _)| section.depth_of(nearest));
    match held {
        None => Ok(false),
        Some((_, (_, Opened::Stored(database)))) => holds(database, &dn),
        Some((_, (_, Opened::Shared(database)))) => holds(database, &dn),
    }
}

fn holds<S: Store>(database: &Database<S>, dn: &NormalDn) -> anyhow::Result<bool> {
    let fault = |fault| anyhow::anyhow!("{fault}");
    let snapshot = database.store().snapshot()?;
    let view = database.view(&snapshot).map_err(fault)?;
    Ok(view.resolve(dn).map_err(fault)?.is_some_and(|resolved| resolved.id.is_some()))
}

/// Hands each deletion to `apply`. Answers how many were refused.
fn each(
    name: &str,
    args: &DeleteArgs,
    dns: Vec<String>,
    mut apply: impl FnMut(WriteOperation, RequestControls) -> anyhow::Result<LdapResult>,
) -> anyhow::Result<u64> {
    let mut failed = 0;
    for entry in dns {
        if args.dry_run {
            println!("{entry}");
            continue;
        }
        let controls = RequestControls::from(ControlValues {
            manage_dsa_it: true,
            tree_delete: args.recursive,
            ..ControlValues::default()
        });
        let result = apply(WriteOperation::Delete { entry: entry.clone() }, controls)?;
        if result.code == ResultCode::SUCCESS {
            if args.config.verbose > 0 {
                eprintln!("{name}: {entry:?} deleted");
            }
            continue;
        }
        let text = format!("{entry:?}: {result}");
        if !args.go_on {
            bail!("{text}");
        }
        eprintln!("{name}: {text}");
        failed += 1;
    }
    Ok(failed)
}

/// The DNs of entries of cn=config that match, the last first: so that leaves go before what is above them, and nothing gets
/// another number before its turn. With `recursive` those below another one go with it.
fn matching_configuration(config: &Config, filter: &str, recursive: bool) -> anyhow::Result<Vec<String>> {
    let selection = Selection::matching(filter, config)?;
    let Some(matching) = selection.filter().map(|filter| config_entries_matching(config, filter)) else {
        return Ok(Vec::new());
    };
    let mut found: Vec<(NormalDn, String)> = Vec::new();
    for entry in config.entries().into_iter().filter(|entry| matching.contains(&entry.dn)) {
        let dn =
            config.schema.parse_dn(&entry.dn).map_err(|error| anyhow::anyhow!("{}: {error}", entry.dn))?;
        if !recursive || !found.iter().any(|(above, _)| dn.is_within(above)) {
            found.push((dn, entry.dn));
        }
    }
    Ok(found.into_iter().rev().map(|(_, dn)| dn).collect())
}

/// Collects the DNs of the entries that match, youngest first, so that leaves go before what is above them.
fn matching<S: Store>(
    config: &Config,
    database: &Database<S>,
    filter: &str,
    dns: &mut Vec<String>,
) -> anyhow::Result<()> {
    let selection = Selection::matching(filter, config)?;
    let mut found = Vec::new();
    each_record(database, |view, id, record| {
        selection.see(view, id, record, |seen, selected| {
            if selected {
                found.push(view.dn(&seen.reader.view).map_err(|fault| anyhow::anyhow!("{fault}"))?);
            }
            Ok(())
        })
    })?;
    dns.extend(found.into_iter().rev());
    Ok(())
}
