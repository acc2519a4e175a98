//! `larix deleted`: what was deleted, by whom, and the way back. The entries are in the records of an access log (slapo-accesslog(5)
//! with `logold`), of Larix or of slapd.

mod record;
mod restore;
mod select;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use larix_client::ClientError;
use larix_proto::ldif::{Body, Record};
use serde_json::{Map, Value, json};

use super::json as output;
use super::session;
use record::Deleted;
use select::Selection;

#[derive(Args, Debug)]
pub(crate) struct DeletedArgs {
    #[command(subcommand)]
    command: DeletedCommand,
}

#[derive(Debug, Subcommand)]
enum DeletedCommand {
    /// List deleted entries: when, which, and by whom
    #[command(disable_help_flag = true)]
    #[command(after_help = "\
Example:
  larix deleted list -D cn=admin,dc=example,dc=com -W --since 2h")]
    List(Box<Selection>),
    /// Write entries as they were when they were deleted, as LDIF
    #[command(disable_help_flag = true)]
    #[command(after_help = "\
Example:
  larix deleted show -D cn=admin,dc=example,dc=com -W uid=ann,ou=people,dc=example,dc=com")]
    Show(Box<Selection>),
    /// Bring entries back, superiors first: all of them or none
    #[command(disable_help_flag = true)]
    #[command(after_help = "\
Examples:
  larix deleted restore -D cn=admin,dc=example,dc=com -W uid=ann,ou=people,dc=example,dc=com
  larix deleted restore -D cn=admin,dc=example,dc=com -W --below ou=it,dc=example,dc=com --since 2h")]
    Restore(Box<restore::RestoreArgs>),
}

pub(super) fn run(args: &DeletedArgs, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    match &args.command {
        DeletedCommand::List(selection) => list(selection, out),
        DeletedCommand::Show(selection) => show(selection, out),
        DeletedCommand::Restore(args) => restore::run(args, out),
    }
}

fn list(selection: &Selection, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    let mut session = session::open(&selection.common)?;
    for deleted in selection.find(&mut session)? {
        if selection.common.json {
            let line = json!({
                "reqStart": deleted.start,
                "dn": deleted.dn,
                "by": deleted.by,
                "entryUUID": deleted.uuid,
                "content": deleted.has_content(),
            });
            output::line(out, &line)?;
            continue;
        }
        let lacks = if deleted.has_content() { "" } else { " (content not kept)" };
        writeln!(out, "{} {} by {}{lacks}", deleted.start, deleted.dn, deleted.by_whom())
            .map_err(ClientError::Output)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(selection: &Selection, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    let writer = selection.common.ldif_writer()?;
    let mut session = session::open(&selection.common)?;
    let found = selection.find_wanted(&mut session)?;
    for deleted in found {
        let entry = deleted.entry()?;
        if selection.common.json {
            output::line(out, &json_of(&deleted, &entry))?;
            continue;
        }
        let mut text = Vec::new();
        writer.comment(&mut text, &format!("deleted {} by {}", deleted.start, deleted.by_whom()));
        let record = Record { line: 0, dn: deleted.dn.clone(), body: Body::Content(entry) };
        writer.record(&mut text, &record);
        out.write_all(&text).map_err(ClientError::Output)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn json_of(deleted: &Deleted, entry: &[larix_proto::ldif::LdifAttribute]) -> Value {
    let mut attributes = Map::new();
    for attribute in entry {
        let values = attribute.values.iter().map(|value| output::value(value)).collect();
        attributes.insert(attribute.description.clone(), Value::Array(values));
    }
    json!({ "dn": deleted.dn, "reqStart": deleted.start, "by": deleted.by, "attributes": attributes })
}
