//! `slapschema`: whether the entries of a database follow the schema as it is now.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use larix_engine::entry::Entry;
use larix_engine::overlay::{Failure, Interests};
use larix_engine::search::entry::GuardedEntry;
use larix_engine::write::KnownSchema;
use larix_engine::write::change::NoLargeSets;
use larix_engine::write::schema_check::{CheckMode, check_entry};
use larix_engine::{Database, EntryId, View};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::Schema;
use larix_server::cluster;
use larix_store::{Snapshot, Store};

use super::choice::Chosen;
use super::flags::{self, ConfigArgs, DatabaseArgs};
use super::opening::Opened;
use super::selection::{Selection, SelectionArgs, each_record};
use crate::terminal;

/// Check the entries of a database against the schema
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Example:
  larix schema -F larix-data/slapd.d -b dc=example,dc=com")]
pub(super) struct SchemaArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Write what is found to this file instead of standard output
    #[arg(short = 'l', value_name = "FILE")]
    errors: Option<PathBuf>,
    /// Go on after an entry that cannot be read
    #[arg(short = 'c')]
    go_on: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(super) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: SchemaArgs = flags::parse(name, arguments);
    match run(&args) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => terminal::end_with(name, &error),
    }
}

/// Answers how many entries do not follow the schema.
fn run(args: &SchemaArgs) -> anyhow::Result<u64> {
    let config = args.config.read()?;
    let base = args.selection.base()?;
    let chosen = args.database.choose_to_read_below(&config, base.as_deref())?;
    let selection = Selection::new(&args.selection, &config, &chosen)?;
    let Chosen::Stored(databases) = chosen else {
        // The configuration was read, and reading it checks it.
        return Ok(0);
    };
    let out: Box<dyn Write> = match &args.errors {
        Some(path) => {
            Box::new(File::create(path).with_context(|| format!("cannot write {}", path.display()))?)
        }
        None => Box::new(io::stdout().lock()),
    };
    let mut check = Check {
        args,
        out,
        selection,
        known: KnownSchema::of(&config.schema).map_err(|error| anyhow::anyhow!("{error}"))?,
    };
    let mut found = 0;
    for section in databases {
        found += match Opened::open(&config, section)? {
            Opened::Stored(database) => check.database(&database)?,
            Opened::Shared(database) => {
                let found = check.database(&database)?;
                cluster::whole().map_err(anyhow::Error::msg)?;
                found
            }
        };
    }
    check.out.flush().context("cannot write what was found")?;
    Ok(found)
}

struct Check<'a> {
    args: &'a SchemaArgs,
    out: Box<dyn Write>,
    selection: Selection,
    known: KnownSchema,
}

impl Check<'_> {
    fn database<D: Store>(&mut self, database: &Database<D>) -> anyhow::Result<u64> {
        let mut found = 0;
        each_record(database, |view, id, record| {
            match self.row(view, id, record) {
                Ok(fits) => found += u64::from(!fits),
                // A full disk is no damaged entry.
                Err(error) if error.is::<io::Error>() => {
                    return Err(error.context("cannot write what was found"));
                }
                Err(error) if self.args.go_on => {
                    writeln!(self.out, "# no data for entry id={:08x}: {error:#}\n", id.0)?;
                    found += 1;
                }
                Err(error) => return Err(error.context(format!("entry {id} cannot be read; -c goes on"))),
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Whether the entry follows the schema or is not asked for.
    fn row<S: Snapshot>(&mut self, view: &View<'_, S>, id: EntryId, record: &[u8]) -> anyhow::Result<bool> {
        let fault = |fault| anyhow::anyhow!("{fault}");
        let Self { args, out, selection, known } = self;
        selection.see(view, id, record, |seen, selected| {
            if !selected {
                return Ok(true);
            }
            if args.config.verbose > 0 {
                writeln!(out, "# id={:08x}", id.0)?;
            }
            let dn = view.dn(&seen.reader.view).map_err(fault)?;
            let mut entry = seen.reader.to_owned(dn, true).map_err(fault)?;
            let found = match undefined(view, seen)? {
                Some(result) => Some(result),
                None => {
                    let dynamic_objects = view.settings.overlays.want(Interests::DYNAMIC_OBJECTS);
                    let mode = CheckMode { dynamic_objects, alone: true, ..CheckMode::default() };
                    violation(&view.schema, known, &mut entry, mode)?
                }
            };
            let Some(result) = found else { return Ok(true) };
            let colon = if result.diagnostic.is_empty() { "" } else { ": " };
            let text = result.code.to_string();
            // "Object class violation (65)" is printed as "(65) Object class violation".
            let name = text.split(" (").next().unwrap_or_default();
            writeln!(out, "# ({}) {name}{colon}{}\ndn: {}\n", result.code.0, result.diagnostic, entry.dn)?;
            Ok(false)
        })
    }
}

/// An attribute of an entry that the schema no longer defines.
fn undefined<S: Snapshot>(
    view: &View<'_, S>,
    seen: &GuardedEntry<'_, S>,
) -> anyhow::Result<Option<LdapResult>> {
    for attribute in seen.reader.view.attributes() {
        let (number, _) = attribute.map_err(|error| anyhow::anyhow!("{error}"))?;
        if let Some(row) = view.catalog.row(number)
            && row.description.is_none()
        {
            let diagnostic = format!("{}: attribute type undefined", row.text);
            return Ok(Some(LdapResult::with(ResultCode::UNDEFINED_ATTRIBUTE_TYPE, diagnostic)));
        }
    }
    Ok(None)
}

/// What the schema has against an entry: its classes, its name, its attributes, then the syntax of its values.
fn violation(
    schema: &Schema,
    known: &KnownSchema,
    entry: &mut Entry,
    mode: CheckMode,
) -> anyhow::Result<Option<LdapResult>> {
    match check_entry(schema, known, entry, mode, &NoLargeSets) {
        Ok(()) => {}
        Err(Failure::Refused(result)) => return Ok(Some(result)),
        Err(Failure::Storage(fault)) => return Err(anyhow::anyhow!("{fault}")),
    }
    for attribute in &entry.attributes {
        let definition = schema.attribute(attribute.description.attribute);
        for (number, value) in attribute.values.iter().enumerate() {
            if definition.syntax.validate(schema, value).is_err() {
                let name = attribute.description.to_text(schema);
                let diagnostic = format!("{name}: value #{number} invalid per syntax");
                return Ok(Some(LdapResult::with(ResultCode::INVALID_ATTRIBUTE_SYNTAX, diagnostic)));
            }
        }
    }
    Ok(None)
}
