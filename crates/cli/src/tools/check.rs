//! `larix check`: whether tree, entries, indexes and change log of a database agree, and whether the entries obey the rules of the
//! overlays unique and constraint. Also while the server runs.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use larix_configuration::{Config, Database, Source, slapd_d};
use larix_engine::check::{self, CheckReport};
use larix_store::Store;
use larix_store::lmdb::LmdbStore;

use super::choice::Chosen;
use super::flags::{self, ConfigArgs, DatabaseArgs};
use super::opening::{self, Access};
use crate::terminal::print_report;

/// Findings that are printed; the rest is counted.
const PRINTED_MAX: u64 = 100;

/// Something does not fit.
const FINDINGS: u8 = 1;
/// It could not be checked at all.
const NOT_CHECKED: u8 = 2;
/// All fits, but entries break rules of overlays.
const VIOLATIONS: u8 = 3;

/// What was found in all databases.
#[derive(Default)]
struct CheckSummary {
    findings: u64,
    /// Of these, the ones about indexes.
    of_indexes: u64,
    violations: u64,
    /// Whether it was cn=config that was checked.
    is_configuration: bool,
    /// Why databases were not checked, or what was found could not be printed; the others were.
    unchecked: Vec<anyhow::Error>,
}

const MEND_INDEXES: &str = "`larix index -f ...` makes the indexes anew";
const MEND_ENTRIES: &str = "`larix index` mends those about indexes alone: for the others put a backup back (`larix restore`), or load what \
    `larix cat -c` can still read into an empty database";
const MEND_CHECKSUM: &str =
    "compare the files with a backup; the next change of an entry writes its file with the checksum";

/// Check that the tree, the entries, the indexes and the change log of a database agree
///
/// Without -b and -n it checks every database. Also names entries that break rules of the overlays unique and constraint. Ends with 0
/// when all fits, 1 when something does not, 2 when it could not be checked, 3 when all fits but entries break such rules.
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Example:
  larix check -F larix-data/slapd.d")]
pub(super) struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    /// Print one JSON object a database
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(super) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: CheckArgs = flags::parse(name, arguments);
    let found = check(&args)
        .unwrap_or_else(|error| CheckSummary { unchecked: vec![error], ..CheckSummary::default() });
    let mend = found.mend();
    let CheckSummary { findings, violations, unchecked, .. } = found;
    unchecked.iter().for_each(|error| eprintln!("{name}: {error:#}"));
    if findings > 0 {
        eprintln!("{name}: {findings} findings; {mend}");
        return ExitCode::from(FINDINGS);
    }
    if !unchecked.is_empty() {
        return ExitCode::from(NOT_CHECKED);
    }
    if violations > 0 {
        eprintln!("{name}: entries break rules of overlays: {violations}; the server runs all the same");
        return ExitCode::from(VIOLATIONS);
    }
    ExitCode::SUCCESS
}

fn check(args: &CheckArgs) -> anyhow::Result<CheckSummary> {
    let config = args.config.read()?;
    let Chosen::Stored(databases) = args.database.choose_every(&config)? else {
        return check_configuration(args, &config);
    };
    let mut found = CheckSummary::default();
    for section in databases {
        match check_one(&mut found, args.json, &config, section) {
            Ok(report) => found.unchecked.extend(print_report(&report).err()),
            Err(error) => found.unchecked.push(error),
        }
    }
    Ok(found)
}

impl CheckSummary {
    /// What mends the findings.
    fn mend(&self) -> &'static str {
        if self.is_configuration {
            MEND_CHECKSUM
        } else if self.of_indexes == self.findings {
            MEND_INDEXES
        } else {
            MEND_ENTRIES
        }
    }
}

/// cn=config: it was read, and so is valid. Its files say by checksums whether they are what was written.
fn check_configuration(args: &CheckArgs, config: &Config) -> anyhow::Result<CheckSummary> {
    let mut found = CheckSummary { is_configuration: true, ..CheckSummary::default() };
    let mut printed = Printed { json: args.json, findings: Vec::new(), violations: Vec::new() };
    if let Source::Directory(directory) = &config.source {
        let (_, notes) = slapd_d::read_entries(directory).map_err(|error| anyhow::anyhow!("{error}"))?;
        for note in &notes {
            found.findings += 1;
            printed.finding(note.to_string());
        }
    }
    let (entries, findings) = (config.entries().len(), found.findings);
    let report = match args.json {
        true => serde_json::json!({
            "suffix": "cn=config",
            "entries": entries,
            "findings": findings,
            "found": printed.findings,
        })
        .to_string(),
        false => format!("cn=config: {entries} entries, {findings} findings"),
    };
    found.unchecked.extend(print_report(&report).err());
    Ok(found)
}

/// Checks a database, and counts what was found. Answers the line about it.
fn check_one(
    found: &mut CheckSummary,
    as_json: bool,
    config: &Config,
    section: &Database,
) -> anyhow::Result<String> {
    let suffix = section.suffixes.first().map_or("", |suffix| suffix.text.as_str());
    let mut printed = Printed { json: as_json, findings: Vec::new(), violations: Vec::new() };
    let mut pages = 0;
    if let Some(mdb) = section.kind.mdb() {
        LmdbStore::check_pages(&mdb.directory, &mut |page| {
            pages += 1;
            printed.finding(page.to_string());
        })?;
    }
    if pages > 0 {
        // Who reads them may be ended by a signal.
        found.findings += pages;
        return Ok(report(suffix, &CheckReport { findings: pages, ..CheckReport::default() }, 0, &printed));
    }
    let database = opening::open(config, section, Access::Read)?;
    let snapshot = database.store().snapshot()?;
    let view = database.view(&snapshot).map_err(|fault| anyhow::anyhow!("{suffix:?}: {fault}"))?;
    // Also where the check itself ends with an error.
    let checked: CheckReport = check::check(&view, &mut |finding| {
        found.findings += 1;
        found.of_indexes += u64::from(finding.is_of_index());
        printed.finding(finding.named(&view.catalog));
    })
    .map_err(|fault| anyhow::anyhow!("{suffix:?}: {fault}"))?;
    let violations = check::check_rules(&view, &mut |violation| {
        printed.violation(format!("\"{}\": {}", violation.dn, violation.what));
    })
    .map_err(|failure| anyhow::anyhow!("{suffix:?}: {failure}"))?;
    found.violations += violations;
    Ok(report(suffix, &checked, violations, &printed))
}

/// What is said of a database that was checked.
fn report(suffix: &str, checked: &CheckReport, violations: u64, printed: &Printed) -> String {
    match printed.json {
        true => json(suffix, checked, violations, printed),
        false => line(suffix, checked, violations),
    }
}

/// The first of what was found.
struct Printed {
    json: bool,
    findings: Vec<String>,
    violations: Vec<String>,
}

impl Printed {
    fn finding(&mut self, text: String) {
        print(text, self.json, &mut self.findings);
    }

    fn violation(&mut self, text: String) {
        print(text, self.json, &mut self.violations);
    }
}

fn print(text: String, is_kept: bool, shown: &mut Vec<String>) {
    if shown.len() as u64 >= PRINTED_MAX {
        return;
    }
    if !is_kept {
        eprintln!("{text}");
    }
    shown.push(text);
}

fn line(suffix: &str, checked: &CheckReport, violations: u64) -> String {
    let broken = match violations {
        0 => String::new(),
        count => format!(", {count} violations of rules"),
    };
    format!(
        "{suffix:?}: {} entries, {} index keys with {} postings, {} records of the change log, {} findings{broken}",
        checked.entries, checked.index_keys, checked.postings, checked.logged, checked.findings
    )
}

/// `found` has the first hundred findings, `broken` as many violations.
fn json(suffix: &str, checked: &CheckReport, violations: u64, printed: &Printed) -> String {
    serde_json::json!({
        "suffix": suffix,
        "entries": checked.entries,
        "tree_rows": checked.tree_rows,
        "index_keys": checked.index_keys,
        "postings": checked.postings,
        "change_log_records": checked.logged,
        "findings": checked.findings,
        "found": printed.findings,
        "violations": violations,
        "broken": printed.violations,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_made_anew_is_advised_for_what_it_mends() {
        for (findings, of_indexes, is_configuration, expected) in [
            (3, 3, false, MEND_INDEXES),
            (3, 2, false, MEND_ENTRIES),
            (1, 0, false, MEND_ENTRIES),
            (1, 0, true, MEND_CHECKSUM),
        ] {
            let found = CheckSummary { findings, of_indexes, is_configuration, ..CheckSummary::default() };
            assert_eq!(found.mend(), expected, "{findings} {of_indexes} {is_configuration}");
        }
    }
}
