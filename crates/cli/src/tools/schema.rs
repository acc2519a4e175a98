//! `slapschema`: whether the entries of a database follow the schema as it is now.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::entry::Entry;
use larix_engine::search::entry::{Gate, Seen, Unguarded};
use larix_engine::search::filter::Filter;
use larix_engine::tables::ENTRIES;
use larix_engine::write::change::NoLargeSets;
use larix_engine::write::schema_check::{CheckMode, check_entry};
use larix_engine::write::{Failure, KnownSchema};
use larix_engine::{Database, EntryId, View};
use larix_proto::url::LdapUrl;
use larix_proto::{FilterBuf, LdapResult, ResultCode, Scope};
use larix_schema::{BoundFilter, Match, NormalDn, Schema};
use larix_server::config::Config;
use larix_store::lmdb::LmdbStore;
use larix_store::{Direction, KeyRange, Snapshot, Store};

use super::common::{self, Access, Chosen, ConfigArgs, DatabaseArgs};

/// Entries read in one snapshot.
const SLICE_ENTRIES: usize = 2_000;

/// Check the entries of a database against the schema
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
struct SchemaArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    /// Only entries that match this filter
    #[arg(short = 'a', value_name = "FILTER")]
    filter: Option<String>,
    /// Only this entry and what is below it
    #[arg(short = 's', value_name = "DN")]
    subtree: Option<String>,
    /// Only what this LDAP URL describes: base, scope and filter
    #[arg(short = 'H', value_name = "URL")]
    url: Option<String>,
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
    let args: SchemaArgs = common::parse(name, arguments);
    match run(&args) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Answers how many entries do not follow the schema.
fn run(args: &SchemaArgs) -> anyhow::Result<u64> {
    let config = args.config.read()?;
    let Chosen::Stored(databases) = args.database.choose(&config)? else {
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
        selection: Selection::new(args, &config)?,
        known: KnownSchema::of(&config.schema).map_err(|error| anyhow::anyhow!("{error}"))?,
    };
    let mut found = 0;
    for section in databases {
        found += check.database(&common::open(&config, section, Access::Read)?)?;
    }
    check.out.flush().context("cannot write what was found")?;
    Ok(found)
}

/// Which entries are wanted.
struct Selection {
    base: Option<NormalDn>,
    scope: Scope,
    filter: Option<BoundFilter>,
    policy: AccessPolicy,
}

impl Selection {
    fn new(args: &SchemaArgs, config: &Config) -> anyhow::Result<Self> {
        let schema = &config.schema;
        let dn = |text: &str| schema.parse_dn(text).map_err(|error| anyhow::anyhow!("DN {text:?}: {error}"));
        let filter = match &args.filter {
            Some(text) => Some(bind(schema, text)?),
            None => None,
        };
        let mut selection = Self {
            base: args.subtree.as_deref().map(dn).transpose()?,
            scope: Scope::Subtree,
            filter,
            policy: AccessPolicy::open(schema.clone(), None),
        };
        if let Some(text) = &args.url {
            let url = LdapUrl::parse(text).map_err(|error| anyhow::anyhow!("-H {text}: {error}"))?;
            selection.base = Some(dn(&url.dn)?);
            selection.scope = url.scope.unwrap_or(Scope::Subtree);
            if let Some(filter) = &url.filter {
                selection.filter = Some(schema.bind_filter(filter.as_filter()));
            }
        }
        Ok(selection)
    }

    fn holds_name(&self, dn: &NormalDn) -> bool {
        let Some(base) = &self.base else { return true };
        match self.scope {
            Scope::Base => dn == base,
            Scope::OneLevel => dn.parent().is_some_and(|parent| parent == *base),
            Scope::Subtree => dn.is_within(base),
            Scope::Children => dn.is_descendant_of(base),
        }
    }

    fn wants<S: Snapshot>(&self, view: &View<'_, S>, seen: &Seen<'_, S>) -> anyhow::Result<bool> {
        let fault = |fault| anyhow::anyhow!("{fault}");
        if self.base.is_some() && !self.holds_name(seen.name().map_err(fault)?) {
            return Ok(false);
        }
        let Some(filter) = &self.filter else { return Ok(true) };
        let filter = Filter::new(&view.schema, &view.catalog, filter.clone());
        Ok(filter.matches(&Unguarded(seen), &seen.reader).map_err(fault)? == Match::True)
    }
}

fn bind(schema: &Schema, text: &str) -> anyhow::Result<BoundFilter> {
    let filter = FilterBuf::parse(text).map_err(|error| anyhow::anyhow!("filter {text:?}: {error}"))?;
    Ok(schema.bind_filter(filter.as_filter()))
}

struct Check<'a> {
    args: &'a SchemaArgs,
    out: Box<dyn Write>,
    selection: Selection,
    known: KnownSchema,
}

impl Check<'_> {
    fn database(&mut self, database: &Database<LmdbStore>) -> anyhow::Result<u64> {
        let mut found = 0;
        let mut next = EntryId(1);
        loop {
            let snapshot = database.store().snapshot()?;
            let view = database.view(&snapshot).map_err(|fault| anyhow::anyhow!("{fault}"))?;
            let from = next.to_bytes();
            let mut read = 0;
            let rows = snapshot.scan(ENTRIES, KeyRange::at_least(&from), Direction::Forward)?;
            for row in rows.take(SLICE_ENTRIES) {
                let (key, record) = row?;
                let id = EntryId::from_prefix(&key).context("a damaged key in the table of entries")?;
                next = common::after(id);
                read += 1;
                match self.row(&view, id, &record) {
                    Ok(fits) => found += u64::from(!fits),
                    Err(error) if self.args.go_on => {
                        writeln!(self.out, "# no data for entry id={:08x}: {error:#}\n", id.0)?;
                        found += 1;
                    }
                    Err(error) => return Err(error.context(format!("entry {id} cannot be read; -c goes on"))),
                }
            }
            if read < SLICE_ENTRIES {
                return Ok(found);
            }
        }
    }

    /// Whether the entry follows the schema or is not asked for.
    fn row<S: Snapshot>(&mut self, view: &View<'_, S>, id: EntryId, record: &[u8]) -> anyhow::Result<bool> {
        let fault = |fault| anyhow::anyhow!("{fault}");
        let record = view.unpacked(id, record).map_err(fault)?;
        let reader = view.reader(id, &record).map_err(fault)?;
        let subject = Subject::default();
        let seen = Seen::new(view, reader, Gate::new(&self.selection.policy, &subject));
        if !self.selection.wants(view, &seen)? {
            return Ok(true);
        }
        if self.args.config.verbose > 0 {
            writeln!(self.out, "# id={:08x}", id.0)?;
        }
        let dn = view.dn(&seen.reader.view).map_err(fault)?;
        let mut entry = seen.reader.to_owned(dn, true).map_err(fault)?;
        let found = match undefined(view, &seen)? {
            Some(result) => Some(result),
            None => violation(&view.schema, &self.known, &mut entry)?,
        };
        let Some(result) = found else { return Ok(true) };
        let colon = if result.diagnostic.is_empty() { "" } else { ": " };
        let text = result.code.to_string();
        // "Object class violation (65)" is told as "(65) Object class violation".
        let name = text.split(" (").next().unwrap_or_default();
        writeln!(self.out, "# ({}) {name}{colon}{}\ndn: {}\n", result.code.0, result.diagnostic, entry.dn)?;
        Ok(false)
    }
}

/// An attribute of an entry that the schema no longer defines.
fn undefined<S: Snapshot>(view: &View<'_, S>, seen: &Seen<'_, S>) -> anyhow::Result<Option<LdapResult>> {
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
fn violation(schema: &Schema, known: &KnownSchema, entry: &mut Entry) -> anyhow::Result<Option<LdapResult>> {
    match check_entry(schema, known, entry, CheckMode::default(), &NoLargeSets) {
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
