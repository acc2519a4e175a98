//! `larix advise`: which indexes the searches that were asked lack, what they would cost, and which are not used.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use larix_configuration::{Config, unquoted};
use larix_engine::database::View;
use larix_engine::index::Kinds;
use larix_engine::plan::advice::{self, Advice, IndexCost, Lines};
use larix_proto::FilterBuf;
use larix_proto::ldif::{Body, LdifAttribute, Reader};
use larix_schema::NormalDn;
use larix_store::{Snapshot, Store};

use super::choice::Chosen;
use super::flags::{self, ConfigArgs, DatabaseArgs};
use super::opening::{self, Access};
use crate::terminal;

/// Entries looked at to say what an index would cost.
const SAMPLE_ENTRIES: u64 = 2_000;
/// Different filters that are remembered of a log.
const SHAPES_MAX: usize = 100_000;
/// Lines of searches shown under a proposal.
const EXAMPLES_SHOWN: usize = 3;

/// Say which indexes searches lack, what these would cost, and which indexes nobody uses
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
What was asked is read from logs with loglevel stats (--log), or from what a running server counted:
  larix search -H ldapi:/// -LLL -b cn=Monitor '(objectClass=*)' '*' + > counters
  larix advise -F /etc/ldap/slapd.d -n 1 --monitor counters --ldif indexes.ldif
  larix modify -H ldapi:/// -f indexes.ldif")]
pub(super) struct AdviseArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    /// A log with loglevel stats; `-` is standard input
    #[arg(long, value_name = "FILE")]
    log: Vec<PathBuf>,
    /// What a search of cn=Monitor answered, as LDIF; `-` is standard input
    #[arg(long, value_name = "FILE")]
    monitor: Option<PathBuf>,
    /// Write the change of cn=config that adds what is lacking here; `-` is standard output
    #[arg(long, value_name = "FILE")]
    ldif: Option<PathBuf>,
    /// Propose an index from so many searches on
    #[arg(long, value_name = "SEARCHES", default_value = "1")]
    least: u64,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(super) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: AdviseArgs = flags::parse(name, arguments);
    match advise(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => terminal::end_with(name, &error),
    }
}

/// Searches by filter and base, and how many there were.
#[derive(Debug, Default)]
struct SearchCounts {
    searches: BTreeMap<(String, String), u64>,
    /// How often indexes were used, by attribute and kind: from a running server alone.
    uses: Option<BTreeMap<(String, String), u64>>,
    /// Searches that were not remembered.
    beyond: u64,
}

fn advise(args: &AdviseArgs) -> anyhow::Result<()> {
    if args.log.is_empty() && args.monitor.is_none() {
        bail!("nothing to go by: give --log or --monitor (see --help)");
    }
    let config = args.config.read()?;
    let Chosen::Stored(databases) = args.database.choose(&config)? else {
        bail!("cn=config has no indexes");
    };
    let mut counts = SearchCounts::default();
    for log in &args.log {
        counts.read_log(open(log)?).with_context(|| format!("cannot read {}", log.display()))?;
    }
    let monitor = args.monitor.as_deref().map(read_monitor).transpose()?;
    let mut ldif = match args.ldif.as_deref() {
        None => None,
        Some(path) if path == Path::new("-") => Some(Box::new(io::stdout()) as Box<dyn Write>),
        Some(path) => {
            let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            Some(Box::new(BufWriter::new(file)) as Box<dyn Write>)
        }
    };
    // With the change on standard output the report gives way.
    let mut report: Box<dyn Write> = match args.ldif.as_deref() {
        Some(path) if path == Path::new("-") => Box::new(io::stderr()),
        _ => Box::new(io::stdout()),
    };
    for section in databases {
        let mut counts =
            SearchCounts { searches: counts.searches.clone(), beyond: counts.beyond, uses: None };
        if let Some(monitor) = &monitor {
            counts.add_monitor(monitor, section);
        }
        let database = opening::open(&config, section, Access::Read)?;
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot).map_err(|fault| anyhow::anyhow!("{fault}"))?;
        let found = DatabaseAdvice::new(&view, section, &counts, args.least);
        found.report(&view, section, &counts, &mut report)?;
        if let Some(ldif) = &mut ldif {
            found.write_ldif(&config, section, ldif)?;
        }
    }
    if let Some(ldif) = &mut ldif {
        ldif.flush()?;
    }
    Ok(())
}

fn open(path: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Box::new(BufReader::new(file)))
}

impl SearchCounts {
    fn add(&mut self, filter: &str, base: &str, searches: u64) {
        let shape = (filter.to_owned(), base.to_owned());
        if self.searches.len() < SHAPES_MAX || self.searches.contains_key(&shape) {
            *self.searches.entry(shape).or_default() += searches;
        } else {
            self.beyond += searches;
        }
    }

    fn read_log(&mut self, mut input: Box<dyn BufRead>) -> io::Result<()> {
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line)? > 0 {
            if let Some((filter, base)) = search_of_line(&String::from_utf8_lossy(&line)) {
                self.add(&filter, &base, 1);
            }
            line.clear();
        }
        Ok(())
    }

    /// Takes what the server says of the database.
    fn add_monitor(
        &mut self,
        entries: &[(String, Vec<LdifAttribute>)],
        section: &larix_configuration::Database,
    ) {
        let values = |attributes: &[LdifAttribute], name: &str| -> Vec<String> {
            let own = attributes.iter().filter(|a| a.description.eq_ignore_ascii_case(name));
            own.flat_map(|a| &a.values).map(|v| String::from_utf8_lossy(v).into_owned()).collect()
        };
        let is_it = |attributes: &[LdifAttribute]| {
            let contexts = values(attributes, "namingContexts");
            section.suffixes.iter().any(|s| contexts.iter().any(|c| c.eq_ignore_ascii_case(&s.text)))
        };
        let own = |dn: &str| dn.to_ascii_lowercase().contains(",cn=larix,");
        let Some((above, _)) = entries.iter().find(|(dn, attributes)| own(dn) && is_it(attributes)) else {
            return;
        };
        let uses = self.uses.get_or_insert_default();
        let mut searches = Vec::new();
        for (dn, attributes) in entries {
            let Some(head) = dn.strip_suffix(above.as_str()).and_then(|head| head.strip_suffix(',')) else {
                continue;
            };
            let info = values(attributes, "monitoredInfo");
            if let Some(attribute) = head.strip_prefix("cn=Index ") {
                let attribute = attribute.replace("\\;", ";");
                for word in info {
                    if let Some((kind, count)) = word.split_once("_searches=") {
                        uses.insert((attribute.clone(), kind.to_owned()), count.parse().unwrap_or(0));
                    }
                }
            } else if head == "cn=Not Indexed" {
                searches.extend(info.iter().filter_map(|text| search_of_counter(text)));
            }
        }
        searches.iter().for_each(|(filter, base, count)| self.add(filter, base, *count));
    }
}

fn read_monitor(path: &Path) -> anyhow::Result<Vec<(String, Vec<LdifAttribute>)>> {
    let mut entries = Vec::new();
    for record in Reader::new(open(path)?) {
        let record = record.map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
        if let Body::Content(attributes) = record.body {
            entries.push((record.dn, attributes));
        }
    }
    Ok(entries)
}

/// The filter and the base of a line like `conn=1 op=1 SRCH base="dc=x" scope=2 deref=0 filter="(cn=y)"`; none of one
/// that reads a single entry.
fn search_of_line(line: &str) -> Option<(String, String)> {
    let (_, rest) = line.split_once(" SRCH base=\"")?;
    let (base, rest) = rest.split_once("\" scope=")?;
    let (scope, rest) = rest.split_once(' ')?;
    let (_, filter) = rest.split_once("filter=\"")?;
    let (filter, _) = filter.rsplit_once('"')?;
    (scope != "0").then(|| (shape_of(filter), base.to_owned()))
}

/// The filter without its values, so that what is alike counts as one; one that does not parse as it is.
fn shape_of(filter: &str) -> String {
    let mut out = String::with_capacity(filter.len());
    let mut in_value = false;
    for c in filter.chars() {
        match c {
            '(' | ')' => {
                in_value = false;
                out.push(c);
            }
            '=' if !in_value => {
                in_value = true;
                out.push(c);
            }
            '*' if in_value => out.push(c),
            _ if in_value => {
                if !out.ends_with('?') {
                    out.push('?');
                }
            }
            _ => out.push(c),
        }
    }
    out
}

/// `searches=3 base="dc=x" filter="(cn=?)"`
fn search_of_counter(text: &str) -> Option<(String, String, u64)> {
    let (count, rest) = text.strip_prefix("searches=")?.split_once(" base=\"")?;
    let (base, filter) = rest.split_once("\" filter=\"")?;
    Some((filter.strip_suffix('"')?.to_owned(), base.to_owned(), count.parse().ok()?))
}

/// What came out for one database.
#[derive(Debug, Default)]
struct DatabaseAdvice {
    /// Index lines that are lacking: kinds, searches, examples.
    lacking: BTreeMap<String, Proposal>,
    /// Searches that no index would help, by filter.
    hopeless: BTreeMap<String, u64>,
    /// Indexes that searches could use.
    used: Lines,
    /// Filters that could not be understood, and searches elsewhere.
    unknown: u64,
    searches: u64,
}

#[derive(Debug, Default)]
struct Proposal {
    kinds: Kinds,
    searches: u64,
    examples: Vec<String>,
}

impl DatabaseAdvice {
    fn new<N: Snapshot>(
        view: &View<'_, N>,
        section: &larix_configuration::Database,
        counts: &SearchCounts,
        least: u64,
    ) -> Self {
        let mut found = Self::default();
        for ((filter, base), count) in &counts.searches {
            if !concerns(view, section, base) {
                continue;
            }
            let Ok(parsed) = FilterBuf::parse(filter) else {
                found.unknown += count;
                continue;
            };
            found.searches += count;
            match advice::advise(&view.schema, &view.catalog, parsed.as_filter()) {
                Advice::Indexed(lines) => advice::merge(&mut found.used, &lines),
                Advice::Hopeless => *found.hopeless.entry(filter.clone()).or_default() += count,
                Advice::Lacks(lines) => {
                    for (name, kinds) in lines {
                        let proposal = found.lacking.entry(name).or_default();
                        proposal.kinds = proposal.kinds.or(kinds);
                        proposal.searches += count;
                        if proposal.examples.len() < EXAMPLES_SHOWN {
                            proposal.examples.push(format!("{count} times {filter} below \"{base}\""));
                        }
                    }
                }
            }
        }
        found.lacking.retain(|_, proposal| proposal.searches >= least);
        found
    }

    fn report<N: Snapshot>(
        &self,
        view: &View<'_, N>,
        section: &larix_configuration::Database,
        counts: &SearchCounts,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let suffix = section.suffixes.first().map_or("", |suffix| suffix.text.as_str());
        writeln!(
            out,
            "database \"{suffix}\": {} searches of {} kinds",
            self.searches,
            counts.searches.len()
        )?;
        if counts.beyond + self.unknown > 0 {
            let (beyond, unknown) = (counts.beyond, self.unknown);
            writeln!(out, "  not looked at: {beyond} of too many kinds, {unknown} not understood")?;
        }
        if self.knows_nothing(counts) {
            let found = match &counts.uses {
                Some(_) => "the server has counted no search of it since it was started",
                None => {
                    "what was given has no search of it (a log needs loglevel stats, counters need `database monitor`)"
                }
            };
            writeln!(out, "\n{found}: there is nothing to judge by")?;
            return Ok(());
        }
        let mut proposals: Vec<_> = self.lacking.iter().collect();
        proposals.sort_by_key(|(_, proposal)| std::cmp::Reverse(proposal.searches));
        for (name, proposal) in proposals {
            writeln!(out, "\nindex {name} {}\n  for {} searches", proposal.kinds, proposal.searches)?;
            let description =
                view.schema.describe(name).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
            let cost = advice::cost(view, &description, proposal.kinds, SAMPLE_ENTRIES)
                .map_err(|fault| anyhow::anyhow!("{fault}"))?;
            writeln!(out, "  {}", cost_text(&cost))?;
            for example in &proposal.examples {
                writeln!(out, "  {example}")?;
            }
        }
        if self.lacking.is_empty() {
            writeln!(out, "\nno index is lacking")?;
        }
        for (filter, count) in &self.hopeless {
            writeln!(out, "\n{count} searches look at every entry, and no index changes that: {filter}")?;
        }
        for unused in self.unused(view, counts) {
            writeln!(out, "\nnot used: {unused}")?;
        }
        Ok(())
    }

    /// Whether no client sent any request, as far as is known.
    fn knows_nothing(&self, counts: &SearchCounts) -> bool {
        let used = counts.uses.as_ref().is_some_and(|uses| uses.values().any(|count| *count > 0));
        self.searches == 0 && !used
    }

    /// Indexes that nothing used: since the server was started if its counters are there, else in the logs.
    fn unused<N: Snapshot>(&self, view: &View<'_, N>, counts: &SearchCounts) -> Vec<String> {
        const KINDS: [(&str, Kinds, &str); 4] = [
            ("pres", Kinds::PRESENCE, "pres"),
            ("eq", Kinds::EQUALITY, "eq"),
            ("approx", Kinds::APPROX, "approx"),
            ("sub", Kinds::SUBSTRINGS, "sub"),
        ];
        let mut unused = Vec::new();
        for row in view.catalog.rows() {
            let name = row.text.as_ref();
            // Every database has these, whatever its lines say.
            if matches!(name, "objectClass" | "entryUUID") {
                continue;
            }
            for (shown, kinds, prefix) in KINDS.into_iter().filter(|(_, k, _)| row.wanted.intersects(*k)) {
                let used = match &counts.uses {
                    Some(uses) => uses.iter().any(|((attribute, kind), count)| {
                        attribute.eq_ignore_ascii_case(name) && kind.starts_with(prefix) && *count > 0
                    }),
                    None => self.used.get(name).is_some_and(|used| used.intersects(kinds)),
                };
                if !used {
                    unused.push(format!("index {name} {shown}"));
                }
            }
        }
        unused
    }

    /// The change of cn=config.
    fn write_ldif(
        &self,
        config: &Config,
        section: &larix_configuration::Database,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        if self.lacking.is_empty() {
            return Ok(());
        }
        let Some(mdb) = section.kind.mdb() else { return Ok(()) };
        let directory = mdb.directory.to_string_lossy();
        let is_its = |value: &Vec<u8>| unquoted(&String::from_utf8_lossy(value)) == directory;
        let entries = config.entries();
        let entry = entries
            .iter()
            .find(|entry| entry.values("olcDbDirectory").first().is_some_and(is_its))
            .context("cn=config has no entry of the database")?;
        let lines = entry.values("olcDbIndex").iter();
        let before: Vec<String> = lines.map(|value| String::from_utf8_lossy(value).into_owned()).collect();
        writeln!(out, "dn: {}\nchangetype: modify", entry.dn)?;
        let proposed: Vec<(&str, Kinds)> = self.lacking.iter().map(|(n, p)| (n.as_str(), p.kinds)).collect();
        let (removed, added) = changed_lines(&before, &proposed);
        for (operation, values) in [("delete", removed), ("add", added)] {
            if !values.is_empty() {
                writeln!(out, "{operation}: olcDbIndex")?;
                values.iter().try_for_each(|value| writeln!(out, "olcDbIndex: {value}"))?;
                writeln!(out, "-")?;
            }
        }
        writeln!(out)?;
        Ok(())
    }
}

/// Whether a search from this base goes into the database.
fn concerns<N: Snapshot>(view: &View<'_, N>, section: &larix_configuration::Database, base: &str) -> bool {
    let Ok(base) = view.schema.parse_dn(base) else { return false };
    let meets = |suffix: &NormalDn| base.is_within(suffix) || suffix.is_within(&base);
    section.suffixes.iter().any(|suffix| meets(&suffix.normal))
}

fn cost_text(cost: &IndexCost) -> String {
    format!(
        "{} of {} entries looked at have it; about {} bytes an entry, {} keys written where it is added or removed",
        cost.having,
        cost.sampled,
        cost.bytes_per_entry(),
        cost.keys_per_entry()
    )
}

/// The values of olcDbIndex that go and those that come, so that each attribute stands in one line.
fn changed_lines(before: &[String], proposed: &[(&str, Kinds)]) -> (Vec<String>, Vec<String>) {
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    let mut open: BTreeMap<&str, String> =
        proposed.iter().map(|(name, kinds)| (*name, kinds.to_string())).collect();
    for line in before {
        let mut words = line.split_whitespace();
        let (Some(names), kinds) = (words.next(), words.next()) else { continue };
        let is_wanted = |name: &&str| proposed.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        let (more, same): (Vec<&str>, Vec<&str>) = names.split(',').partition(|name| is_wanted(name));
        if more.is_empty() {
            continue;
        }
        removed.push(line.clone());
        let tail = kinds.map(|kinds| format!(" {kinds}")).unwrap_or_default();
        if !same.is_empty() {
            added.push(format!("{}{tail}", same.join(",")));
        }
        for name in more {
            let new = open.iter_mut().find(|(other, _)| other.eq_ignore_ascii_case(name));
            if let (Some((_, new)), Some(kinds)) = (new, kinds) {
                *new = format!("{kinds},{new}");
            }
        }
    }
    added.extend(open.into_iter().map(|(name, kinds)| format!("{name} {}", without_repetition(&kinds))));
    (removed, added)
}

fn without_repetition(kinds: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    kinds.split(',').for_each(|word| {
        if !words.contains(&word) {
            words.push(word);
        }
    });
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_are_read_from_logs_and_counters() {
        for (line, expected) in [
            (
                "67 conn=1 op=2 SRCH base=\"dc=x\" scope=2 deref=0 filter=\"(&(cn=A*b*)(sn=\\28x))\"",
                Some(("(&(cn=?*?*)(sn=?))", "dc=x")),
            ),
            ("conn=1 op=2 SRCH base=\"dc=x\" scope=0 deref=0 filter=\"(cn=y)\"", None),
            ("conn=1 op=2 SRCH attr=cn", None),
            (
                "conn=1 op=2 SRCH base=\"\" scope=1 deref=3 filter=\"(cn:caseExactMatch:=y)\"\n",
                Some(("(cn:caseExactMatch:=?)", "")),
            ),
        ] {
            let expected = expected.map(|(filter, base)| (filter.to_owned(), base.to_owned()));
            assert_eq!(search_of_line(line), expected, "{line}");
            assert!(expected.is_none_or(|(filter, _)| FilterBuf::parse(&filter).is_ok()));
        }
        let counter = "searches=3 base=\"dc=x\" filter=\"(cn=?)\"";
        assert_eq!(search_of_counter(counter), Some(("(cn=?)".to_owned(), "dc=x".to_owned(), 3)));
        assert_eq!(search_of_counter("searches=x"), None);
    }

    #[test]
    fn an_attribute_stands_in_one_line() {
        let before = ["objectClass eq", "cn,sn pres,eq", "mail sub"].map(str::to_owned);
        let (removed, added) =
            changed_lines(&before, &[("sn", Kinds::SUBSTRINGS), ("title", Kinds::EQUALITY)]);
        assert_eq!(removed, ["cn,sn pres,eq"]);
        assert_eq!(added, ["cn pres,eq", "sn pres,eq,sub", "title eq"]);
    }
}
