//! `larix compare`: whether an entry has a value.

use std::io::Write;
use std::process::ExitCode;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use larix_proto::{ResultCode, client};
use serde_json::json;

use super::options::CommonArgs;
use super::session;
use super::{controls, json as output, report};
use larix_client::ClientError;

#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
The exit status is 6 if the entry has the value, 5 if it has not, else the result code.

Example:
  larix compare -D cn=admin,dc=example,dc=com -W uid=ann,dc=example,dc=com mail:ann@example.com")]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// The entry
    #[arg(value_name = "DN")]
    pub(super) dn: String,
    /// attribute:value, or attribute::base64
    #[arg(value_name = "ASSERTION")]
    pub(super) assertion: String,
    /// Write nothing; the exit status tells
    #[arg(short = 'z')]
    silent: bool,
    /// !dontUseCopy, or [!]<oid>[=:<value>|::<base64>]
    #[arg(short = 'E', value_name = "[!]EXTENSION")]
    extensions: Vec<String>,
}

pub(super) fn run(args: &CompareArgs, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    let (attribute, value) = assertion(&args.assertion)?;
    let extensions = controls::other(&args.extensions)?;
    if args.common.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let mut session = session::open(&args.common)?;
    session.controls.extend(extensions);
    let reply =
        session.call(|out, id, controls| client::compare(out, id, &args.dn, attribute, &value, controls))?;
    let code = reply.result.code;
    let verdict = match code {
        ResultCode::COMPARE_TRUE => Some(true),
        ResultCode::COMPARE_FALSE => Some(false),
        _ => None,
    };
    if args.silent {
        return Ok(report::status(code));
    }
    if args.common.json {
        output::line(
            out,
            &json!({ "dn": args.dn, "match": verdict, "result": output::result(&reply.result) }),
        )?;
        return Ok(report::status(code));
    }
    let word = match verdict {
        Some(true) => "TRUE",
        Some(false) => "FALSE",
        None => "UNDEFINED",
    };
    if verdict.is_none() {
        eprintln!("{}", ClientError::Refused { step: "ldap_compare", result: reply.result });
    }
    writeln!(out, "{word}").map_err(ClientError::Output)?;
    Ok(report::status(code))
}

/// `attribute:value` or `attribute::base64`.
pub(super) fn assertion(text: &str) -> Result<(&str, Vec<u8>), ClientError> {
    let (attribute, value) = text
        .split_once(':')
        .filter(|(attribute, _)| !attribute.is_empty())
        .ok_or_else(|| ClientError::Usage(format!("`{text}`: write attribute:value or attribute::base64")))?;
    match value.strip_prefix(':') {
        Some(encoded) => match STANDARD.decode(encoded) {
            Ok(value) => Ok((attribute, value)),
            Err(error) => Err(ClientError::Usage(format!("`{encoded}` is not base64: {error}"))),
        },
        None => Ok((attribute, value.as_bytes().to_vec())),
    }
}
