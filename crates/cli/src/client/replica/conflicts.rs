//! `larix replica conflicts`: what lost where several servers took changes.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use larix_client::ClientError;
use larix_proto::{ResultCode, client};
use larix_replication::{CONFLICTS_OID, ConflictsRequest};
use serde_json::Value;

use super::super::json as output;
use super::super::options::CommonArgs;
use super::Server;

#[derive(Args, Debug)]
pub(super) struct ConflictsArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// The suffix [the server's one]
    #[arg(short = 'b', value_name = "DN")]
    base: Option<String>,
    /// Only those with higher numbers
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    after: u64,
    /// The server, as URL; -H may name it, too
    #[arg(value_name = "URL")]
    urls: Vec<String>,
}

pub(super) fn run(args: &ConflictsArgs, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    let urls = super::servers(&args.common, &args.urls, super::environment().as_deref(), 1..=1)?;
    let mut server = Server::open(&args.common, &urls.concat())?;
    let base = super::base(args.base.as_deref(), &mut server)?;
    let mut after = args.after;
    loop {
        let value = ConflictsRequest { base: base.clone(), after }.encode();
        let reply = server
            .session
            .call(|out, id, controls| client::extended(out, id, CONFLICTS_OID, Some(&value), controls))?;
        if reply.result.code != ResultCode::SUCCESS {
            return Err(ClientError::Refused { step: "conflicts", result: reply.result });
        }
        let text = reply.value.unwrap_or_default();
        let found: Vec<Value> = serde_json::from_slice(&text)
            .map_err(|_| ClientError::Unexpected("conflicts that cannot be read"))?;
        if found.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        for conflict in &found {
            after = after.max(conflict.get("number").and_then(Value::as_u64).unwrap_or(u64::MAX));
            match args.common.json {
                true => output::line(out, conflict)?,
                false => show(conflict, out).map_err(ClientError::Output)?,
            }
        }
    }
}

fn show(conflict: &Value, out: &mut dyn Write) -> std::io::Result<()> {
    let text = |path: &str| match conflict.pointer(path) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "none".to_owned(),
        Some(other) => other.to_string(),
    };
    writeln!(out, "{} {} {}: {}", text("/number"), text("/at"), text("/rule"), text("/dn"))?;
    writeln!(out, "  kept: {}", text("/kept"))?;
    writeln!(out, "  winner: {} {}", text("/winner/csn"), text("/winner/entryUUID"))?;
    writeln!(out, "  loser: {} {}", text("/loser/csn"), text("/loser/entryUUID"))?;
    for (name, values) in conflict.get("lost").and_then(Value::as_object).into_iter().flatten() {
        for value in values.as_array().into_iter().flatten() {
            match value {
                Value::String(value) => writeln!(out, "  lost: {name}: {value}")?,
                other => writeln!(out, "  lost: {name}: {other}")?,
            }
        }
    }
    Ok(())
}
