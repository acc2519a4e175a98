//! `slapindex`: makes indexes anew.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::bail;
use clap::Parser;
use larix_engine::check::{self, Rebuild};

use super::common::{self, Access, Chosen, ConfigArgs, DatabaseArgs};

/// Make indexes anew: all of them, or those of the attributes that are named
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
struct IndexArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    /// Go on after errors; accepted: an entry that cannot be indexed stops this tool
    #[arg(short = 'c')]
    go_on: bool,
    /// Quick; accepted: this tool is always quick
    #[arg(short = 'q')]
    quick: bool,
    /// Only indexes that were added since the last run
    #[arg(short = 't')]
    stale: bool,
    /// Attributes whose indexes are made anew
    attributes: Vec<String>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(super) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: IndexArgs = common::parse(name, arguments);
    match index(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn index(args: &IndexArgs) -> anyhow::Result<()> {
    let config = args.config.read()?;
    let Chosen::Stored(databases) = args.database.choose(&config)? else {
        bail!("cn=config has no indexes");
    };
    for section in databases {
        let database = common::open(&config, section, Access::Write)?;
        let what = if !args.attributes.is_empty() {
            let catalog = database.catalog();
            let mut numbers = Vec::new();
            for name in &args.attributes {
                let description =
                    config.schema.describe(name).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
                numbers.extend(catalog.covered(&config.schema, &description).iter().copied());
            }
            Rebuild::Attributes(numbers)
        } else if args.stale {
            Rebuild::Stale
        } else {
            Rebuild::All
        };
        let entries = check::rebuild(&database, &what, &mut |count| {
            if args.config.verbose > 0 {
                eprintln!("{count} entries");
            }
        })
        .map_err(|error| anyhow::anyhow!("{error}"))?;
        let suffix = section.suffixes.first().map_or("", |suffix| suffix.text.as_str());
        if args.config.verbose > 0 {
            eprintln!("{suffix:?}: {entries} entries indexed");
        }
    }
    Ok(())
}
