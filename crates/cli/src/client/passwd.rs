//! `larix passwd`: changing a password (RFC 3062).

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use larix_proto::extended::{ExtendedValue, PasswordModify, PasswordModifyResponse};
use larix_proto::{ResultCode, client};
use serde_json::json;

use super::options::CommonArgs;
use super::session;
use super::{controls, json as output, report};
use larix_client::ClientError;

#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Without a new password the server makes one, which is shown.

Examples:
  larix passwd -D uid=ann,ou=people,dc=example,dc=com -W -S
  larix passwd -D cn=admin,dc=example,dc=com -W uid=ann,ou=people,dc=example,dc=com")]
pub(crate) struct PasswdArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// Whose password: commonly a DN; without it, one's own
    #[arg(value_name = "USER")]
    account: Option<String>,
    /// Old password
    #[arg(short = 'a', value_name = "PASSWORD", allow_hyphen_values = true)]
    old: Option<String>,
    /// Ask for the old password
    #[arg(short = 'A', conflicts_with = "old")]
    ask_old: bool,
    /// Read the old password from a file
    #[arg(short = 't', value_name = "FILE", conflicts_with_all = ["old", "ask_old"])]
    old_file: Option<PathBuf>,
    /// New password
    #[arg(short = 's', value_name = "PASSWORD", allow_hyphen_values = true)]
    new: Option<String>,
    /// Ask for the new password, twice
    #[arg(short = 'S', conflicts_with = "new")]
    ask_new: bool,
    /// Read the new password from a file
    #[arg(short = 'T', value_name = "FILE", conflicts_with_all = ["new", "ask_new"])]
    new_file: Option<PathBuf>,
    /// [!]<oid>[=:<value>|::<base64>]
    #[arg(short = 'E', value_name = "[!]EXTENSION")]
    extensions: Vec<String>,
}

/// What to do about a name that no entry has.
const NO_ENTRY: &str = "no entry has that name; the password of an administrator without an entry is olcRootPW of the database in \
                        cn=config (rootpw in slapd.conf)";

pub(super) fn run(args: &PasswdArgs, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    let extensions = controls::other(&args.extensions)?;
    let old = secret(args.old.as_deref(), args.ask_old.then_some("Old password: "), args.old_file.as_ref())?;
    let new = secret(args.new.as_deref(), args.ask_new.then_some("New password: "), args.new_file.as_ref())?;
    if args.common.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let mut session = session::open(&args.common)?;
    session.controls.extend(extensions);
    let request = PasswordModify {
        user: args.account.as_deref().map(str::as_bytes),
        old: old.as_deref(),
        new: new.as_deref(),
    };
    let value = request.encode();
    let reply = session.call(|out, id, controls| {
        client::extended(out, id, PasswordModify::OID, value.as_deref(), controls);
    })?;
    let generated = PasswordModifyResponse::decode(reply.value.as_deref())?.generated;
    if args.common.json {
        let generated = generated.map(output::value);
        output::line(out, &json!({ "generated": generated, "result": output::result(&reply.result) }))?;
        return Ok(report::status(reply.result.code));
    }
    if let (Some(generated), ResultCode::SUCCESS) = (generated, reply.result.code) {
        let mut line = b"New password: ".to_vec();
        line.extend_from_slice(generated);
        line.push(b'\n');
        report::write(out, &line)?;
    }
    let advice = match (reply.result.code, &args.account) {
        (ResultCode::NO_SUCH_OBJECT, _) => Some(NO_ENTRY.to_owned()),
        (ResultCode::INVALID_ATTRIBUTE_SYNTAX, Some(name)) if !name.contains('=') => {
            Some(format!("{name:?} is no DN: name the entry, such as uid=ann,ou=people,dc=example,dc=com"))
        }
        _ => None,
    };
    report::conclude("ldap_passwd", reply.result).map_err(|error| match advice {
        Some(advice) => ClientError::Advised { error: Box::new(error), advice },
        None => error,
    })
}

/// A password as given, asked for twice, or the whole of a file.
fn secret(
    given: Option<&str>,
    prompt: Option<&str>,
    file: Option<&PathBuf>,
) -> Result<Option<Vec<u8>>, ClientError> {
    if let Some(path) = file {
        let read = fs::read(path).map_err(|error| ClientError::Input {
            name: path.display().to_string(),
            why: error.to_string(),
        })?;
        if read.ends_with(b"\n") {
            eprintln!(
                "larix: {} ends in a line end, which is a part of the password: printf writes a file without one",
                path.display()
            );
        }
        return Ok(Some(read));
    }
    let Some(prompt) = prompt else { return Ok(given.map(|text| text.as_bytes().to_vec())) };
    let first = session::ask(prompt)?;
    if session::ask(&format!("Re-enter {}", prompt.to_ascii_lowercase()))? != first {
        return Err(ClientError::Usage("the passwords do not match".to_owned()));
    }
    Ok(Some(first))
}
