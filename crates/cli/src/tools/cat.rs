//! `slapcat`: a database as LDIF, also while the server runs.
//!
//! Entries come in the order of their ids, so that what was loaded first comes first. One that was moved below a
//! younger entry waits until that has been written: the output always loads. All of it is of one moment, as slapcat's is.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use larix_configuration::Config;
use larix_engine::entry::Entry;
use larix_engine::{Database, EntryId, View, log};
use larix_proto::ldif::{Body, LdifAttribute, Record, Writer};
use larix_schema::NormalDn;
use larix_server::{cluster, config_entries_matching};
use larix_store::{Snapshot, Store};

use super::choice::Chosen;
use super::flags::{self, ConfigArgs, DatabaseArgs};
use super::opening::Opened;
use super::selection::{Selection, SelectionArgs, each_record_of_one_moment};
use crate::terminal::{self, print_report};

/// Write a database as LDIF
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Options of -o: ldif-wrap=no, or a number of columns.

Examples:
  larix cat -F larix-data/slapd.d -l copy.ldif
  larix cat -F larix-data/slapd.d -s ou=people,dc=example,dc=com -a '(mail=*)'
  larix cat -F larix-data/slapd.d -n 0")]
pub(super) struct CatArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    selection: SelectionArgs,
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
    let args: CatArgs = flags::parse(name, arguments);
    match cat(&args) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(unreadable) => {
            eprintln!("{name}: {unreadable} entries could not be read");
            ExitCode::FAILURE
        }
        Err(error) => terminal::end_with(name, &error),
    }
}

/// Answers how many entries could not be read.
fn cat(args: &CatArgs) -> anyhow::Result<u64> {
    let config = args.config.read()?;
    let mut writer = Writer::new(fold(&args.config)?);
    writer.always_base64("userPassword");
    // As slapd does; Puppet finds it in no other form.
    writer.always_base64("olcRootPW");
    let base = args.selection.base()?;
    let chosen = args.database.choose_to_read_below(&config, base.as_deref())?;
    let selection = Selection::new(&args.selection, &config, &chosen)?;
    let sources = match chosen {
        Chosen::Configuration => None,
        Chosen::Stored(databases) => {
            let opened = databases
                .into_iter()
                .map(|section| Opened::open(&config, section).map(|opened| (opened, section)));
            Some(opened.collect::<anyhow::Result<Vec<_>>>()?)
        }
    };
    // Now that there is something to write: the file may be the dump of yesterday.
    let file = args
        .ldif
        .as_ref()
        .map(|path| std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display())));
    let file = file.transpose()?;
    let mut out: Box<dyn Write + '_> = match &file {
        Some(file) => Box::new(BufWriter::with_capacity(1 << 20, file)),
        None => Box::new(BufWriter::with_capacity(1 << 16, io::stdout().lock())),
    };
    let mut unreadable = 0;
    match sources {
        None => write_configuration(&config, &selection, &writer, &mut out)?,
        Some(sources) => {
            for (opened, section) in &sources {
                let mut output = Output { writer: &writer, out: &mut out, selection: &selection, args };
                unreadable += match opened {
                    Opened::Stored(database) => output.database(database, section)?,
                    Opened::Shared(database) => {
                        let unreadable = output.database(database, section)?;
                        cluster::whole().map_err(anyhow::Error::msg)?;
                        unreadable
                    }
                };
            }
        }
    }
    out.flush().context("cannot write the LDIF")?;
    drop(out);
    if let Some(file) = file.filter(|file| file.metadata().is_ok_and(|about| about.is_file())) {
        // Some disks say at last that they have no room.
        file.sync_all().context("cannot write the LDIF")?;
    }
    Ok(unreadable)
}

/// `-o ldif-wrap=no` or a number of columns.
fn fold(args: &ConfigArgs) -> anyhow::Result<Option<usize>> {
    match args.option("ldif-wrap").or_else(|| args.option("ldif_wrap")) {
        None | Some("0") => Ok(Some(Writer::COLUMNS)),
        Some("no") => Ok(None),
        Some(text) => {
            let columns = text.parse().ok();
            Ok(Some(columns.with_context(|| format!("-o ldif-wrap={text}: no, or a number of columns"))?))
        }
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
    /// The highest id that was come to.
    passed: Option<EntryId>,
    /// Ids that were passed and not written yet.
    waiting: BTreeSet<EntryId>,
    /// What waits for an id.
    blocked: BTreeMap<EntryId, Vec<EntryId>>,
}

impl<W: Write> Output<'_, W> {
    fn database<D: Store>(
        &mut self,
        database: &Database<D>,
        section: &larix_configuration::Database,
    ) -> anyhow::Result<u64> {
        let mut unreadable = 0;
        let mut order = Order::default();
        let directory = section.suffixes.first().map_or("", |suffix| suffix.text.as_str());
        each_record_of_one_moment(database, |view, id, record| {
            order.passed = Some(id);
            let Err(error) = self.row(view, id, record, &mut order) else { return Ok(()) };
            // A full disk is no damaged entry, and the next one would meet it, too.
            if error.is::<io::Error>() {
                return Err(error);
            }
            unreadable += 1;
            eprintln!("{directory}: entry {id}: {error:#}");
            if !self.args.go_on {
                bail!("entry {id} of {directory:?} cannot be read; -c goes on after such entries");
            }
            Ok(())
        })?;
        for id in order.waiting {
            eprintln!("{directory}: entry {id} hangs below an entry that does not exist");
            unreadable += 1;
        }
        Ok(unreadable)
    }

    /// The id of an entry in a comment, for `-v`: on standard output, as of slapcat, wherever the LDIF goes.
    fn number(&mut self, id: EntryId) -> anyhow::Result<()> {
        let comment = format!("# id={:08x}", id.0);
        match (self.args.config.verbose, &self.args.ldif) {
            (0, _) => Ok(()),
            (_, None) => writeln!(self.out, "{comment}").context("cannot write the LDIF"),
            (_, Some(_)) => print_report(&comment),
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
        let selection = self.selection;
        let waits = selection.see(view, id, stored, |seen, selected| {
            let parent = seen.reader.view.parent();
            // What waited comes again once its superior is written, whose id may be the higher one.
            if Some(parent) > order.passed || order.waiting.contains(&parent) {
                order.waiting.insert(id);
                order.blocked.entry(parent).or_default().push(id);
                return Ok(true);
            }
            if !selected {
                return Ok(false);
            }
            let dn = view.dn(&seen.reader.view).map_err(fault)?;
            let mut entry = seen.reader.to_owned(dn, true).map_err(fault)?;
            let is_suffix = |name: &NormalDn| view.settings.suffixes.iter().any(|s| *name == s.normal);
            if parent == EntryId::ROOT || seen.name().is_ok_and(is_suffix) {
                add_context_csn(view, &mut entry)?;
            }
            self.number(id)?;
            let unknown = seen.reader.unknown().map_err(fault)?;
            write_entry(self.writer, self.out, view, (entry, unknown))?;
            Ok(false)
        })?;
        if waits {
            return Ok(());
        }
        order.waiting.remove(&id);
        for waiting in order.blocked.remove(&id).unwrap_or_default() {
            order.waiting.remove(&waiting);
            if let Some(stored) = view.stored(waiting).map_err(fault)? {
                self.row(view, waiting, &stored, order)?;
            }
        }
        Ok(())
    }
}

/// Writes an entry; `unknown` has what the schema does not know any more.
fn write_entry<S>(
    writer: &Writer,
    out: &mut impl Write,
    view: &View<'_, S>,
    (entry, unknown): (Entry, Vec<LdifAttribute>),
) -> anyhow::Result<()> {
    let attributes = entry
        .attributes
        .into_iter()
        .map(|a| LdifAttribute { description: a.description.to_text(&view.schema), values: a.values })
        .chain(unknown)
        .collect();
    write_record(writer, out, entry.dn, attributes)
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
    let matching = selection.filter().map(|filter| config_entries_matching(config, filter));
    for entry in config.entries() {
        let dn =
            config.schema.parse_dn(&entry.dn).map_err(|error| anyhow::anyhow!("{}: {error}", entry.dn))?;
        if selection.holds_name(&dn) && matching.as_ref().is_none_or(|all| all.contains(&entry.dn)) {
            write_record(writer, out, entry.dn.clone(), entry.into_ldif())?;
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
