//! `larix check`: whether tree, entries and indexes of a database agree. Also while the server runs.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use larix_engine::check::{self, Checked};
use larix_store::Store;

use super::common::{self, Access, Chosen, ConfigArgs, DatabaseArgs};

/// Findings that are printed; the rest is counted.
const PRINTED_MAX: u64 = 100;

/// Check that the tree, the entries and the indexes of a database agree
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    database: DatabaseArgs,
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
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
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
        let mut printed = 0;
        let checked: Checked = check::check(&view, &mut |finding| {
            printed += 1;
            if printed <= PRINTED_MAX {
                eprintln!("{finding}");
            }
        })
        .map_err(|fault| anyhow::anyhow!("{fault}"))?;
        let suffix = section.suffixes.first().map_or("", |suffix| suffix.text.as_str());
        println!(
            "{suffix:?}: {} entries, {} index keys with {} postings, {} findings",
            checked.entries, checked.index_keys, checked.postings, checked.findings
        );
        findings += checked.findings;
    }
    Ok(findings)
}
