//! `slapindex`: makes indexes anew.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use larix_configuration::Config;
use larix_engine::Database;
use larix_engine::load::{self, Rebuild, RebuildOptions, RebuildProgress};
use larix_proto::{LdapResult, ResultCode};
use larix_server::cluster::{self, ToolWriter};
use larix_server::tool_socket::ReindexRequest;
use larix_store::Store;

use super::changing::{is_in_use, server_of};
use super::choice::Chosen;
use super::flags::{self, ConfigArgs, DatabaseArgs};
use super::opening::{self, Access};

/// Make indexes anew: all of them, or those of the attributes that are named
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Example:
  larix index -F larix-data/slapd.d uid mail")]
pub(super) struct IndexArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    /// Go on after errors: an entry that cannot be read is reported and passed over
    #[arg(short = 'c')]
    go_on: bool,
    /// Quick; accepted: this tool is always quick, and leaves no half index in use
    #[arg(short = 'q')]
    quick: bool,
    /// Truncate; accepted: what is made anew is always emptied first
    #[arg(short = 't')]
    truncate: bool,
    /// Only indexes that are not complete: the server would build them while it serves
    #[arg(long)]
    stale: bool,
    /// Attributes whose indexes are made anew
    attributes: Vec<String>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(super) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: IndexArgs = flags::parse(name, arguments);
    match index(name, &args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn index(name: &str, args: &IndexArgs) -> anyhow::Result<()> {
    let config = args.config.read()?;
    let Chosen::Stored(databases) = args.database.choose_with_shared(&config)? else {
        bail!("cn=config has no indexes");
    };
    let mut failed = 0;
    let mut without_index: BTreeSet<&str> = args.attributes.iter().map(String::as_str).collect();
    // The answer of a server that has no index for a name; whether a server made all that was asked for.
    let (mut lacks, mut made) = (None, false);
    for section in databases {
        if section.kind.is_in_shared_engine() {
            let writer = ToolWriter::open(&config, section, name).map_err(anyhow::Error::msg)?;
            let scratch = tempfile::tempdir().context("cannot make a directory for temporary files")?;
            failed +=
                rebuild(args, &config, section, (writer.database(), scratch.path()), &mut without_index)?;
            cluster::whole().map_err(anyhow::Error::msg)?;
            continue;
        }
        let database = match opening::open(&config, section, Access::Change) {
            Ok(database) => database,
            Err(error) => {
                match index_served(args, section, error)? {
                    Some(result) => lacks = Some(result),
                    None => made = true,
                }
                // The server has index lines of its own.
                without_index.clear();
                continue;
            }
        };
        let Some(mdb) = section.kind.mdb() else { continue };
        failed += rebuild(args, &config, section, (&database, &mdb.directory), &mut without_index)?;
    }
    if let Some(name) = without_index.first() {
        bail!(
            "no index is configured for {name}, and none was made: add a line such as `index {name} eq` first"
        );
    }
    if let Some(result) = lacks.filter(|_| !made) {
        bail!("{result}");
    }
    if failed > 0 {
        bail!("{failed} entries could not be read and are in no index that was made: see `larix check`");
    }
    Ok(())
}

/// Makes the indexes of one database anew, with temporary files in a directory; takes those attributes out of `without_index` that have
/// one. Answers how many entries could not be read.
fn rebuild<S: Store>(
    args: &IndexArgs,
    config: &Config,
    section: &larix_configuration::Database,
    (database, scratch): (&Database<S>, &Path),
    without_index: &mut BTreeSet<&str>,
) -> anyhow::Result<usize> {
    let what = if !args.attributes.is_empty() {
        let catalog = database.catalog();
        let mut numbers = Vec::new();
        for name in &args.attributes {
            let description =
                config.schema.describe(name).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
            if database.settings().is_indexed(&config.schema, &description) {
                without_index.remove(name.as_str());
            }
            numbers.extend_from_slice(catalog.covered(&config.schema, &description).as_slice());
        }
        Rebuild::Attributes(numbers)
    } else if args.stale {
        Rebuild::Stale
    } else {
        Rebuild::All
    };
    let suffix = section.suffixes.first().map_or("", |suffix| suffix.text.as_str());
    let mut options = RebuildOptions::new(scratch);
    options.continue_on_error = args.go_on;
    options.threads = larix_server::cores();
    let rebuilt = load::rebuild(database, &what, &options, &mut |progress| {
        if args.config.verbose > 0 {
            show(progress);
        }
    })
    .map_err(|error| anyhow::anyhow!("database \"{suffix}\": {error}"))?;
    for (entry, fault) in &rebuilt.failed {
        eprintln!("entry {entry}: {fault}");
    }
    if args.config.verbose > 0 {
        eprintln!("{suffix:?}: {} entries indexed, {} postings", rebuilt.entries, rebuilt.postings);
    }
    Ok(rebuilt.failed.len())
}

/// Has the server make the indexes that has the database open. Answers what it says if it has none for one of the names.
///
/// # Errors
/// `error`, where there is none; and what the server says.
fn index_served(
    args: &IndexArgs,
    section: &larix_configuration::Database,
    error: anyhow::Error,
) -> anyhow::Result<Option<LdapResult>> {
    if !is_in_use(&error) {
        return Err(error);
    }
    let Some(mut client) = server_of(section, args.config.verbose > 0)? else { return Err(error) };
    let request = ReindexRequest { stale: args.stale, attributes: args.attributes.clone() };
    let result = client.reindex(&request)?;
    if result.code == ResultCode::NO_SUCH_ATTRIBUTE {
        return Ok(Some(result));
    }
    if !result.is_success() {
        bail!("{result}");
    }
    if args.config.verbose > 0 {
        let suffix = section.suffixes.first().map_or("", |suffix| suffix.text.as_str());
        eprintln!("{suffix:?}: indexed by the server that serves it");
    }
    Ok(None)
}

fn show(progress: &RebuildProgress) {
    match progress.postings {
        (_, 0) => eprintln!("{} entries read", progress.entries),
        (done, total) => eprintln!("{done} of {total} postings written"),
    }
}

#[cfg(test)]
mod tests {
    use larix_configuration::Config;

    #[test]
    fn attributes_with_an_index() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slapd.conf");
        let text = "database mdb\nsuffix cn=x\ndirectory /nowhere\nindex cn eq\nindex entryCSN eq\n";
        std::fs::write(&file, text).unwrap();
        let config = Config::from_slapd_conf(&file).unwrap();
        let section = config.databases.iter().find(|database| database.kind.is_stored()).unwrap();
        let settings = config.engine_settings(section).unwrap();
        for (name, expected) in [
            ("cn", true),
            ("commonName", true),
            // One of its subtypes.
            ("name", true),
            ("objectClass", true),
            ("entryCSN", true),
            ("description", false),
        ] {
            let description = config.schema.describe(name).unwrap();
            assert_eq!(settings.is_indexed(&config.schema, &description), expected, "{name}");
        }
    }
}
