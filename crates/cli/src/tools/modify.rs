//! `slapmodify`: LDIF changes applied to a database, by the server where one runs on it.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::bail;
use clap::Parser;
use larix_configuration::Config;
use larix_engine::controls::{ControlValues, RequestControls};
use larix_engine::write::WriteOperation;
use larix_proto::ldif::{self, LocalFiles};
use larix_proto::{LdapResult, ResultCode};

use super::changing::{Changing, Writes};
use super::choice::Chosen;
use super::config_directory;
use super::flags::{self, ConfigArgs, DatabaseArgs, InputArgs};
use super::opening::Access;
use crate::terminal;

/// Apply LDIF changes to a database, also while a server runs on it
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Examples:
  larix offline-modify -F larix-data/slapd.d -l changes.ldif
  larix offline-modify -n 0 -F larix-data/slapd.d -l config-changes.ldif")]
pub(super) struct ModifyArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    input: InputArgs,
    /// Quick; accepted: checks are not left out
    #[arg(short = 'q')]
    quick: bool,
    /// No schema checks, for entries that another server keeps otherwise; offline alone
    #[arg(short = 's')]
    no_schema_check: bool,
    /// Server id of new change sequence numbers, 0 to 4095 [default: the configuration's]; offline alone
    #[arg(short = 'S', value_name = "SID", value_parser = flags::server_id)]
    server_id: Option<u16>,
    /// Write contextCSN; accepted: it is always written
    #[arg(short = 'w')]
    write_context: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(super) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: ModifyArgs = flags::parse(name, arguments);
    terminal::end_counted(name, modify(name, &args), "changes failed")
}

fn modify(name: &str, args: &ModifyArgs) -> anyhow::Result<u64> {
    let config = args.config.read()?;
    let checks_schema = !args.no_schema_check && args.config.switch("schema-check", true)?;
    let Chosen::Stored(databases) = args.database.choose_with_shared(&config)? else {
        if !checks_schema || args.server_id.is_some() {
            bail!(
                "-s, -o schema-check=no and -S are for databases of entries: each change of cn=config is checked, and has the server id \
                 of the configuration; leave them out"
            );
        }
        return modify_configuration(name, args, config);
    };
    if args.input.dry_run {
        // No database is opened, which would make one where there is none.
        return each_change(name, args, checks_schema, |_, _| Ok(LdapResult::success()));
    }
    let writes = Writes { access: Access::Write, server_id: args.server_id };
    let mut changing = Changing::open(name, &config, &databases, writes, args.config.verbose > 0)?;
    if matches!(changing, Changing::Served(_)) && (!checks_schema || args.server_id.is_some()) {
        bail!(
            "-s, -o schema-check=no and -S hold for a database that no server has open: this one's server checks what it stores, and \
             uses its own server id; stop it first, or leave them out"
        );
    }
    each_change(name, args, checks_schema, |operation, controls| {
        changing.change(&config, operation, controls)
    })
}

/// Changes cn=config in its directory, each whole and valid by itself.
fn modify_configuration(name: &str, args: &ModifyArgs, mut config: Config) -> anyhow::Result<u64> {
    let _directory = config_directory::take_directory(&mut config)?;
    each_change(name, args, true, |operation, controls| {
        Ok(config_directory::change_configuration(&mut config, operation, controls))
    })
}

/// Hands each record's change to `apply`. Answers how many were refused.
fn each_change(
    name: &str,
    args: &ModifyArgs,
    checks_schema: bool,
    mut apply: impl FnMut(WriteOperation, RequestControls) -> anyhow::Result<LdapResult>,
) -> anyhow::Result<u64> {
    let mut failed = 0;
    let reader = ldif::Reader::new(args.input.open()?).with_files(LocalFiles).assume_modify(true);
    let from_line = args.input.from_line;
    for record in reader {
        let record = match record {
            Ok(record) => record,
            Err(error) if error.is_recoverable() && error.line < from_line => continue,
            Err(error) if error.is_recoverable() && args.input.go_on => {
                eprintln!("{name}: {error}");
                failed += 1;
                continue;
            }
            Err(error) => bail!("{error}"),
        };
        if record.line < from_line || args.input.dry_run {
            continue;
        }
        let (line, dn) = (record.line, record.dn.clone());
        // What an administrator writes offline may set operational attributes and change referral objects, as OpenLDAP's tool
        // lets it.
        let controls = RequestControls::from(ControlValues {
            relax: true,
            manage_dsa_it: true,
            schema_unchecked: !checks_schema,
            ..ControlValues::default()
        });
        let result = apply(record.into(), controls)?;
        if result.code == ResultCode::SUCCESS {
            if args.config.verbose > 0 {
                eprintln!("{name}: line {line}: {dn:?} changed");
            }
            continue;
        }
        let text = format!("line {line}: {dn:?}: {result}");
        if !args.input.go_on {
            bail!("{text}");
        }
        eprintln!("{name}: {text}");
        failed += 1;
    }
    Ok(failed)
}

#[cfg(test)]
mod tests {
    use larix_proto::ModifyOperation;

    use super::*;

    /// As of slapd's tool, and of ldapmodify.
    #[test]
    fn a_record_without_a_changetype_modifies() {
        let folder = tempfile::tempdir().unwrap();
        let ldif = folder.path().join("changes.ldif");
        for (text, expected) in [
            ("dn: cn=a\nreplace: sn\nsn: x\n", Ok(0)),
            (
                "dn: cn=a\nobjectClass: person\ncn: a\nsn: x\n",
                Err("(an entry to add has a line \"changetype: add\")"),
            ),
        ] {
            std::fs::write(&ldif, text).unwrap();
            let args = ModifyArgs::parse_from(["slapmodify", "-l"].into_iter().chain(ldif.to_str()));
            let done = each_change("slapmodify", &args, true, |operation, _| {
                let WriteOperation::Modify { object, changes } = operation else { panic!("{operation:?}") };
                let changed: Vec<_> =
                    changes.iter().map(|one| (one.operation, one.attribute.description.as_str())).collect();
                assert_eq!((object.as_str(), changed), ("cn=a", vec![(ModifyOperation::Replace, "sn")]));
                Ok(LdapResult::success())
            });
            match (done, expected) {
                (Ok(failed), Ok(expected)) => assert_eq!(failed, expected),
                (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
                (done, _) => panic!("{text:?}: {done:?}"),
            }
        }
    }

    /// Each record is one that is applied, passed over or refused, also where it cannot be read.
    #[test]
    fn a_record_that_cannot_be_read_is_one_record() {
        let folder = tempfile::tempdir().unwrap();
        let ldif = folder.path().join("changes.ldif");
        let text = "dn: cn=a\nchangetype: delete\n\ndn: cn=b\nchangetype: nonsense\n\ndn: cn=c\nchangetype: delete\n";
        std::fs::write(&ldif, text).unwrap();
        for (flags, expected, changed) in [
            (&[][..], None, &["cn=a"][..]),
            (&["-c"], Some(1), &["cn=a", "cn=c"]),
            (&["-j", "7"], Some(0), &["cn=c"]),
            (&["-c", "-j", "4"], Some(1), &["cn=c"]),
            (&["-u"], None, &[]),
            (&["-c", "-u"], Some(1), &[]),
        ] {
            let words = ["slapmodify", "-l"].into_iter().chain(ldif.to_str()).chain(flags.iter().copied());
            let args = ModifyArgs::parse_from(words);
            let mut found = Vec::new();
            let done = each_change("slapmodify", &args, true, |operation, _| {
                found.push(operation.target().to_owned());
                Ok(LdapResult::success())
            });
            assert_eq!(done.ok(), expected, "{flags:?}");
            assert_eq!(found, changed, "{flags:?}");
        }
    }
}
