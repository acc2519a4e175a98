//! `slapcat`: a database as LDIF, also while the server runs.
//!
//! Entries come in the order of their ids, so that what was loaded first comes first. One that was moved below a
//! younger entry waits until that has been written: the output always loads.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::entry::Entry;
use larix_engine::search::entry::{Gate, Seen, Unguarded};
use larix_engine::search::filter::Filter;
use larix_engine::tables::ENTRIES;
use larix_engine::{Database, EntryId, View, log};
use larix_proto::FilterBuf;
use larix_proto::ldif::{Body, LdifAttribute, Record, Writer};
use larix_proto::url::LdapUrl;
use larix_schema::{BoundFilter, Match, NormalDn};
use larix_server::config::{self, Config};
use larix_store::lmdb::LmdbStore;
use larix_store::{Direction, KeyRange, Snapshot, Store};

use super::common::{self, Access, Chosen, ConfigArgs, DatabaseArgs};

/// Entries read in one snapshot: a slow disk or pipe never holds old pages for long.
const SLICE_ENTRIES: usize = 2_000;
/// Where OpenLDAP folds lines.
const FOLD_COLUMNS: usize = 76;

/// Write a database as LDIF
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
struct CatArgs {
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
    /// Write to this file instead of standard output
    #[arg(short = 'l', value_name = "FILE")]
    ldif: Option<PathBuf>,
    /// Go on after an entry that cannot be read
    #[arg(short = 'c')]
    go_on: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(super) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: CatArgs = common::parse(name, arguments);
    match cat(&args) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(unreadable) => {
            eprintln!("{name}: {unreadable} entries could not be read");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Answers how many entries could not be read.
fn cat(args: &CatArgs) -> anyhow::Result<u64> {
    let config = args.config.read()?;
    let mut out: Box<dyn Write> = match &args.ldif {
        Some(path) => {
            let file =
                std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            Box::new(BufWriter::with_capacity(1 << 20, file))
        }
        None => Box::new(BufWriter::with_capacity(1 << 16, io::stdout().lock())),
    };
    let mut writer = Writer::new(fold(&args.config)?);
    writer.always_base64("userPassword");
    let selection = Selection::new(args, &config)?;
    let unreadable = match args.database.choose(&config)? {
        Chosen::Configuration => {
            write_configuration(&config, &selection, &writer, &mut out)?;
            0
        }
        Chosen::Stored(databases) => {
            let mut unreadable = 0;
            for database in databases {
                let opened = common::open(&config, database, Access::Read)?;
                let mut output = Output { writer: &writer, out: &mut out, selection: &selection, args };
                unreadable += output.database(&opened, database)?;
            }
            unreadable
        }
    };
    out.flush().context("cannot write the LDIF")?;
    Ok(unreadable)
}

/// `-o ldif-wrap=no` or a number of columns.
fn fold(args: &ConfigArgs) -> anyhow::Result<Option<usize>> {
    match args.option("ldif-wrap").or_else(|| args.option("ldif_wrap")) {
        None => Ok(Some(FOLD_COLUMNS)),
        Some("no") => Ok(None),
        Some(text) => {
            let columns =
                text.parse().with_context(|| format!("-o ldif-wrap={text}: no, or a number of columns"))?;
            Ok(Some(columns))
        }
    }
}

/// Which entries are wanted.
struct Selection {
    below: Option<NormalDn>,
    only_base: bool,
    filter: Option<BoundFilter>,
    policy: AccessPolicy,
}

impl Selection {
    fn new(args: &CatArgs, config: &Config) -> anyhow::Result<Self> {
        let schema = &config.schema;
        let bind = |text: &str| -> anyhow::Result<BoundFilter> {
            let filter =
                FilterBuf::parse(text).map_err(|error| anyhow::anyhow!("filter {text:?}: {error}"))?;
            Ok(schema.bind_filter(filter.as_filter()))
        };
        let dn = |text: &str| schema.parse_dn(text).map_err(|error| anyhow::anyhow!("DN {text:?}: {error}"));
        let policy = AccessPolicy::new(schema.clone(), None, &[], &[])
            .map_err(|error| anyhow::anyhow!("{}: {}", error.rule, error.fault))?;
        let mut selection = Self {
            below: args.subtree.as_deref().map(dn).transpose()?,
            only_base: false,
            filter: args.filter.as_deref().map(bind).transpose()?,
            policy,
        };
        if let Some(text) = &args.url {
            let url = LdapUrl::parse(text).map_err(|error| anyhow::anyhow!("-H {text}: {error}"))?;
            selection.below = Some(dn(&url.dn)?);
            selection.only_base = url.scope == Some(larix_proto::Scope::Base);
            if let Some(filter) = &url.filter {
                selection.filter = Some(schema.bind_filter(filter.as_filter()));
            }
        }
        Ok(selection)
    }

    fn holds_name(&self, dn: &NormalDn) -> bool {
        match &self.below {
            None => true,
            Some(base) if self.only_base => dn == base,
            Some(base) => dn.is_within(base),
        }
    }

    fn wants<S: Snapshot>(&self, view: &View<'_, S>, seen: &Seen<'_, S>) -> anyhow::Result<bool> {
        let fault = |fault| anyhow::anyhow!("{fault}");
        if self.below.is_some() && !self.holds_name(seen.name().map_err(fault)?) {
            return Ok(false);
        }
        let Some(filter) = &self.filter else { return Ok(true) };
        let filter = Filter::new(&view.schema, &view.catalog, filter.clone());
        Ok(filter.matches(&Unguarded(seen), &seen.reader).map_err(fault)? == Match::True)
    }
}

struct Output<'a, W> {
    writer: &'a Writer,
    out: &'a mut W,
    selection: &'a Selection,
    args: &'a CatArgs,
}

/// The entries that were written, and those that wait for a superior that was not.
#[derive(Default)]
struct Order {
    /// Ids that were passed and not written yet.
    waiting: BTreeSet<EntryId>,
    /// What waits for an id.
    behind: BTreeMap<EntryId, Vec<EntryId>>,
}

impl<W: Write> Output<'_, W> {
    fn database(
        &mut self,
        database: &Database<LmdbStore>,
        section: &config::Database,
    ) -> anyhow::Result<u64> {
        let mut unreadable = 0;
        let mut next = EntryId(1);
        let mut order = Order::default();
        let directory = section.suffixes.first().map_or("", |suffix| suffix.text.as_str());
        loop {
            let snapshot = database.store().snapshot()?;
            let view = database.view(&snapshot).map_err(|fault| anyhow::anyhow!("{fault}"))?;
            let from = next.to_bytes();
            let mut read = 0;
            for row in
                snapshot.scan(ENTRIES, KeyRange::at_least(&from), Direction::Forward)?.take(SLICE_ENTRIES)
            {
                let (key, record) = row?;
                let id = EntryId::from_prefix(&key).context("a damaged key in the table of entries")?;
                next = common::after(id);
                read += 1;
                if let Err(error) = self.row(&view, id, &record, &mut order) {
                    unreadable += 1;
                    eprintln!("{directory}: entry {id}: {error:#}");
                    if !self.args.go_on {
                        bail!("entry {id} of {directory:?} cannot be read; -c goes on after such entries");
                    }
                }
            }
            if read < SLICE_ENTRIES {
                for id in std::mem::take(&mut order.waiting) {
                    eprintln!("{directory}: entry {id} hangs below an entry that does not exist");
                    unreadable += 1;
                }
                return Ok(unreadable);
            }
        }
    }

    /// Writes an entry, and all that waited for it, or makes it wait for its superior.
    fn row<S: Snapshot>(
        &mut self,
        view: &View<'_, S>,
        id: EntryId,
        stored: &[u8],
        order: &mut Order,
    ) -> anyhow::Result<()> {
        let fault = |fault| anyhow::anyhow!("{fault}");
        let record = view.unpacked(id, stored).map_err(fault)?;
        let reader = view.reader(id, &record).map_err(fault)?;
        let parent = reader.view.parent();
        if parent > id || order.waiting.contains(&parent) {
            order.waiting.insert(id);
            order.behind.entry(parent).or_default().push(id);
            return Ok(());
        }
        let subject = Subject::default();
        let seen = Seen::new(view, reader, Gate::new(&self.selection.policy, &subject));
        if self.selection.wants(view, &seen)? {
            let dn = view.dn(&seen.reader.view).map_err(fault)?;
            let mut entry = seen.reader.to_owned(dn, true).map_err(fault)?;
            if parent == EntryId::ROOT
                || view.settings.suffixes.iter().any(|s| seen.name().is_ok_and(|n| *n == s.normal))
            {
                add_context_csn(view, &mut entry)?;
            }
            self.entry(view, entry)?;
        }
        order.waiting.remove(&id);
        for waiting in order.behind.remove(&id).unwrap_or_default() {
            order.waiting.remove(&waiting);
            if let Some(stored) = view.stored(waiting).map_err(fault)? {
                self.row(view, waiting, &stored, order)?;
            }
        }
        Ok(())
    }

    fn entry<S>(&mut self, view: &View<'_, S>, entry: Entry) -> anyhow::Result<()> {
        let attributes = entry
            .attributes
            .into_iter()
            .map(|a| common::ldif_attribute(a.description.to_text(&view.schema), a.values))
            .collect();
        write_record(self.writer, self.out, entry.dn, attributes)
    }
}

/// The state of replication is shown on the suffix entry.
fn add_context_csn<S: Snapshot>(view: &View<'_, S>, entry: &mut Entry) -> anyhow::Result<()> {
    let csns = log::context_csns(view.snapshot).map_err(|fault| anyhow::anyhow!("{fault}"))?;
    if let Ok(description) = view.schema.describe("contextCSN") {
        let attribute = entry.attribute_or_insert(&description);
        attribute.values = csns.iter().map(|csn| csn.to_string().into_bytes()).collect();
    }
    Ok(())
}

fn write_configuration(
    config: &Config,
    selection: &Selection,
    writer: &Writer,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    for entry in config.entries() {
        let dn =
            config.schema.parse_dn(&entry.dn).map_err(|error| anyhow::anyhow!("{}: {error}", entry.dn))?;
        if selection.holds_name(&dn) {
            write_record(writer, out, entry.dn, entry.attributes)?;
        }
    }
    Ok(())
}

fn write_record(
    writer: &Writer,
    out: &mut impl Write,
    dn: String,
    attributes: Vec<LdifAttribute>,
) -> anyhow::Result<()> {
    let mut text = Vec::new();
    writer.record(&mut text, &Record { line: 0, dn, body: Body::Content(attributes) });
    out.write_all(&text).context("cannot write the LDIF")
}
