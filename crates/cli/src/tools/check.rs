//! `larix check`: whether tree, entries, indexes and change log of a database agree. Also while the server runs.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use larix_engine::check::{self, Checked};
use larix_store::Store;

use super::common::{self, Access, Chosen, ConfigArgs, DatabaseArgs};

/// Findings that are printed; the rest is counted.
const PRINTED_MAX: u64 = 100;

/// Something does not fit.
const FINDINGS: u8 = 1;
/// It could not be checked at all.
const NOT_CHECKED: u8 = 2;

/// Check that the tree, the entries, the indexes and the change log of a database agree
///
/// Ends with 0 when all fits, 1 when something does not, 2 when it could not be checked.
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
struct CheckArgs {
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
    let args: CheckArgs = common::parse(name, arguments);
    match check(&args) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(findings) => {
            eprintln!("{name}: {findings} findings; `larix index -f ...` makes the indexes anew");
            ExitCode::from(FINDINGS)
        }
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::from(NOT_CHECKED)
        }
    }
}

fn check(args: &CheckArgs) -> anyhow::Result<u64> {
    let config = args.config.read()?;
    let Chosen::Stored(databases) = args.database.choose(&config)? else {
        println!("cn=config: {} entries, read without a fault", config.entries().len());
        return Ok(0);
    };
    let mut findings = 0;
    for section in databases {
        let database = common::open(&config, section, Access::Read)?;
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot).map_err(|fault| anyhow::anyhow!("{fault}"))?;
        let mut shown = Vec::new();
        let mut printed = 0;
        let checked: Checked = check::check(&view, &mut |finding| {
            printed += 1;
            if printed > PRINTED_MAX {
                return;
            }
            if args.json {
                shown.push(finding.to_string());
            } else {
                eprintln!("{finding}");
            }
        })
        .map_err(|fault| anyhow::anyhow!("{fault}"))?;
        let suffix = section.suffixes.first().map_or("", |suffix| suffix.text.as_str());
        println!("{}", if args.json { json(suffix, &checked, &shown) } else { line(suffix, &checked) });
        findings += checked.findings;
    }
    Ok(findings)
}

fn line(suffix: &str, checked: &Checked) -> String {
    format!(
        "{suffix:?}: {} entries, {} index keys with {} postings, {} records of the change log, {} findings",
        checked.entries, checked.index_keys, checked.postings, checked.logged, checked.findings
    )
}

/// `found` has the first hundred findings.
fn json(suffix: &str, checked: &Checked, found: &[String]) -> String {
    serde_json::json!({
        "suffix": suffix,
        "entries": checked.entries,
        "tree_rows": checked.tree_rows,
        "index_keys": checked.index_keys,
        "postings": checked.postings,
        "change_log_records": checked.logged,
        "findings": checked.findings,
        "found": found,
    })
    .to_string()
}
