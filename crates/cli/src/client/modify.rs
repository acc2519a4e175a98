//! `larix modify`: LDIF in, one operation a record.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use larix_proto::client::{self, ClientAttribute, ClientChange};
use larix_proto::ldif::{
    Body, Change, LdifAttribute, LdifError, LocalFiles, Modification, Reader, Record, Writer,
};
use larix_proto::{ControlBuf, LdapResult, MessageId, ResultCode};
use serde_json::json;

use super::options::CommonArgs;
use super::report::{self, ControlStyle};
use super::session;
use super::{controls, json as output};
use crate::terminal::Otherwise;
use larix_client::ClientError;
use larix_client::{Reply, Session};

#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Records are read from standard input unless -f names a file.

Examples:
  larix modify -D cn=admin,dc=example,dc=com -W -f changes.ldif
  larix modify -a -D cn=admin,dc=example,dc=com -W -f entries.ldif

Two records, with an empty line between them:
  dn: uid=ann,ou=people,dc=example,dc=com
  changetype: modify
  replace: mail
  mail: ann@example.com

  dn: uid=bob,ou=people,dc=example,dc=com
  changetype: delete")]
pub(crate) struct ModifyArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// Records without `changetype:` are entries to add
    #[arg(short = 'a')]
    pub(super) add: bool,
    /// Go on after an error
    #[arg(short = 'c')]
    go_on: bool,
    /// Read records from a file
    #[arg(short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Write the records that failed to a file
    #[arg(short = 'S', value_name = "FILE")]
    skipped: Option<PathBuf>,
    /// [!]<oid>[=:<value>|::<base64>]
    #[arg(short = 'E', value_name = "[!]EXTENSION")]
    extensions: Vec<String>,
}

pub(super) fn run(args: &ModifyArgs, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    let extensions = controls::other(&args.extensions)?;
    let writer = args.common.ldif_writer()?;
    if let (Some(file), Some(skipped)) = (&args.file, &args.skipped)
        && is_same_file(file, skipped)
    {
        let text = format!(
            "-S {} is the file that -f reads, and would be emptied first: name another one",
            skipped.display()
        );
        return Err(ClientError::Usage(text));
    }
    let (name, input) = input(args.file.as_deref())?;
    let mut reader = Reader::new(input).with_files(LocalFiles).assume_modify(!args.add);
    let mut skipped = args.skipped.as_deref().map(create).transpose()?;
    let mut session = None;
    if !args.common.dry_run {
        let otherwise = if args.file.is_some() { Otherwise::StandardInput } else { Otherwise::Nowhere };
        let mut opened = session::open_with(&args.common, otherwise)?;
        opened.controls.extend(extensions);
        session = Some(opened);
    }
    let mut status = ExitCode::SUCCESS;
    loop {
        let record = match reader.read_record() {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(status),
            Err(error) => {
                let recoverable = error.is_recoverable();
                if let Some(file) = &mut skipped {
                    skip_unread(file, &writer, &error, reader.last_lines())?;
                }
                let fault = ClientError::Input { name: name.clone(), why: error.to_string() };
                if !args.go_on || !recoverable {
                    return Err(fault);
                }
                eprintln!("{fault}");
                status = ExitCode::FAILURE;
                continue;
            }
        };
        let step = Step::of(&record);
        if !args.common.json {
            let mark = if args.common.dry_run { "!" } else { "" };
            writeln!(out, "{mark}{} \"{}\"", step.doing, record.dn).map_err(ClientError::Output)?;
        }
        let Some(session) = &mut session else {
            if !args.common.json {
                writeln!(out).map_err(ClientError::Output)?;
            }
            continue;
        };
        let reply = perform(session, &record)?;
        // The line above, and what follows on standard error, in this order.
        out.flush().map_err(ClientError::Output)?;
        show(args, out, &writer, &step, &record, &reply)?;
        if reply.result.code != ResultCode::SUCCESS {
            if let Some(file) = &mut skipped {
                skip(file, &writer, &record, &reply)?;
            }
            status = report::status(reply.result.code);
            if !args.go_on {
                return Ok(status);
            }
        }
    }
}

/// What a record does, in OpenLDAP's words.
struct Step {
    doing: &'static str,
    operation: &'static str,
    /// As errors name it.
    call: &'static str,
}

impl Step {
    const fn of(record: &Record) -> Self {
        match &record.body {
            Body::Content(_) | Body::Change { change: Change::Add(_), .. } => {
                Self { doing: "adding new entry", operation: "add", call: "ldap_add" }
            }
            Body::Change { change: Change::Delete, .. } => {
                Self { doing: "deleting entry", operation: "delete", call: "ldap_delete" }
            }
            Body::Change { change: Change::Modify(_), .. } => {
                Self { doing: "modifying entry", operation: "modify", call: "ldap_modify" }
            }
            Body::Change { change: Change::ModifyDn { .. }, .. } => {
                Self { doing: "modifying rdn of entry", operation: "modifyDn", call: "ldap_rename" }
            }
        }
    }
}

fn input(file: Option<&Path>) -> Result<(String, Box<dyn BufRead>), ClientError> {
    // Not locked: another reader of standard input would wait for ever.
    let Some(path) = file else {
        return Ok(("standard input".to_owned(), Box::new(BufReader::new(io::stdin()))));
    };
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => Ok((name, Box::new(BufReader::new(file)))),
        Err(error) => Err(ClientError::Input { name, why: error.to_string() }),
    }
}

/// Whether both are one file with content.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (fs::metadata(one), fs::metadata(other)) else { return false };
    one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn create(path: &Path) -> Result<File, ClientError> {
    File::create(path)
        .map_err(|error| ClientError::Input { name: path.display().to_string(), why: error.to_string() })
}

/// Sends a record as the request that it is, and waits for the answer.
pub(super) fn perform(session: &mut Session, record: &Record) -> Result<Reply, ClientError> {
    let dn = record.dn.as_str();
    let with = |own: &[ControlBuf], common: &[ControlBuf]| [common, own].concat();
    match &record.body {
        Body::Content(attributes) => session.call(|out, id, controls| add(out, id, dn, attributes, controls)),
        Body::Change { controls: own, change } => session.call(|out, id, common| {
            let controls = with(own, common);
            match change {
                Change::Add(attributes) => add(out, id, dn, attributes, &controls),
                Change::Delete => client::delete(out, id, dn, &controls),
                Change::Modify(modifications) => modify(out, id, dn, modifications, &controls),
                Change::ModifyDn { new_rdn, delete_old_rdn, new_superior } => {
                    client::modify_dn(
                        out,
                        id,
                        dn,
                        new_rdn,
                        *delete_old_rdn,
                        new_superior.as_deref(),
                        &controls,
                    );
                }
            }
        }),
    }
}

fn add(out: &mut Vec<u8>, id: MessageId, dn: &str, attributes: &[LdifAttribute], controls: &[ControlBuf]) {
    let attributes: Vec<_> = attributes
        .iter()
        .map(|attribute| ClientAttribute { description: &attribute.description, values: &attribute.values })
        .collect();
    client::add(out, id, dn, &attributes, controls);
}

fn modify(
    out: &mut Vec<u8>,
    id: MessageId,
    dn: &str,
    modifications: &[Modification],
    controls: &[ControlBuf],
) {
    let changes: Vec<_> = modifications
        .iter()
        .map(|step| ClientChange {
            operation: step.operation,
            attribute: ClientAttribute { description: &step.description, values: &step.values },
        })
        .collect();
    client::modify(out, id, dn, &changes, controls);
}

fn show(
    args: &ModifyArgs,
    out: &mut dyn Write,
    writer: &Writer,
    step: &Step,
    record: &Record,
    reply: &Reply,
) -> Result<(), ClientError> {
    if args.common.json {
        let result = output::result(&reply.result);
        let mut line = json!({ "operation": step.operation, "dn": record.dn, "result": result });
        report::add_read_entries(&mut line, &reply.controls);
        return output::line(out, &line);
    }
    if reply.result.code != ResultCode::SUCCESS {
        let refused = ClientError::Refused { step: step.call, result: reply.result.clone() };
        eprintln!("{refused}");
        if let Some(advice) = advice(record, &reply.result) {
            eprintln!("\t{advice}");
        }
    }
    let mut text = Vec::new();
    report::controls(&mut text, writer, ControlStyle::Plain, &reply.controls);
    text.push(b'\n');
    report::write(out, &text)
}

/// What servers say of a name below none of their suffixes.
const NO_SUFFIX: &str = "no global superior knowledge";
/// What they say to a client that has not bound.
const ANONYMOUS: &str = "modifications require authentication";

/// What the result alone does not say: which entry is missing, which value was meant.
fn advice(record: &Record, result: &LdapResult) -> Option<String> {
    let adds = matches!(record.body, Body::Content(_) | Body::Change { change: Change::Add(_), .. });
    match result.code {
        ResultCode::NO_SUCH_OBJECT if adds => {
            Some("the entry above it is missing: add that one first".to_owned())
        }
        ResultCode::STRONGER_AUTH_REQUIRED if result.diagnostic == ANONYMOUS => {
            Some("this client is anonymous: -D names who changes it, and -W asks for the password".to_owned())
        }
        ResultCode::UNWILLING_TO_PERFORM if result.diagnostic == NO_SUFFIX => Some(
            "no database of the server has a suffix above this name; its suffixes: larix search -b \"\" -s base namingContexts"
                .to_owned(),
        ),
        ResultCode::INVALID_ATTRIBUTE_SYNTAX => {
            let (name, number) = result.invalid_value()?;
            let Ok(text) = std::str::from_utf8(value_of(record, name, number)?) else {
                return Some("that value is not UTF-8, which most syntaxes want".to_owned());
            };
            let unknown = match name.eq_ignore_ascii_case("objectClass") {
                true => {
                    let bundled = larix_schema::bundle_with_class(text)
                        .map_or_else(String::new, |bundle| format!("; {}", defined_by(bundle)));
                    format!(": the server's schema has no class of this name{bundled}")
                }
                false => String::new(),
            };
            (text.len() <= 64).then(|| format!("that value is {text:?}{unknown}"))
        }
        ResultCode::UNDEFINED_ATTRIBUTE_TYPE => {
            let name = result.diagnostic.strip_suffix(": attribute type undefined")?;
            larix_schema::bundle_with(name).map(defined_by)
        }
        _ => None,
    }
}

/// What gives a server a definition that it does not know: a schema that Larix brings along.
fn defined_by(bundle: &str) -> String {
    format!("`schema {bundle}` in the configuration of a Larix server defines it")
}

/// A value that a record sends; none if several modifications of the attribute have one of that number.
fn value_of<'r>(record: &'r Record, name: &str, number: usize) -> Option<&'r [u8]> {
    match &record.body {
        Body::Content(attributes) | Body::Change { change: Change::Add(attributes), .. } => {
            let named = attributes.iter().filter(|one| one.description.eq_ignore_ascii_case(name));
            named.flat_map(|one| &one.values).nth(number).map(Vec::as_slice)
        }
        Body::Change { change: Change::Modify(steps), .. } => {
            let named = steps.iter().filter(|step| step.description.eq_ignore_ascii_case(name));
            let mut values = named.filter_map(|step| step.values.get(number));
            let value = values.next()?;
            values.next().is_none().then_some(value.as_slice())
        }
        Body::Change { .. } => None,
    }
}

fn skip(file: &mut File, writer: &Writer, record: &Record, reply: &Reply) -> Result<(), ClientError> {
    let mut text = Vec::new();
    writer.comment(&mut text, &format!("Error: {}", reply.result));
    writer.record(&mut text, record);
    file.write_all(&text).map_err(ClientError::Output)
}

/// A record that cannot be read, with its lines as they stand in the input.
fn skip_unread<'l>(
    file: &mut File,
    writer: &Writer,
    error: &LdifError,
    lines: impl Iterator<Item = &'l [u8]>,
) -> Result<(), ClientError> {
    let mut text = Vec::new();
    writer.comment(&mut text, &format!("Error: {error}"));
    for line in lines {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    text.push(b'\n');
    file.write_all(&text).map_err(ClientError::Output)
}
