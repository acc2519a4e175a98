//! `larix replica retire`: the contextCSN of a server that is gone for good.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use larix_client::ClientError;
use larix_proto::{ResultCode, client};
use larix_replication::{RETIRE_OID, RetireRequest, SID_MAX};

use super::super::options::CommonArgs;
use super::{Server, advised, at, entries};

#[derive(Args, Debug)]
#[command(after_help = "\
Every server must have all changes of the one that goes (larix replica status), and that one must not run any more. \
Name all servers at once: one that keeps the contextCSN tells the others of it again.")]
pub(super) struct RetireArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// The suffix [the first server's one]
    #[arg(short = 'b', value_name = "DN")]
    base: Option<String>,
    /// The server id, as in olcServerID; with 0x in front hexadecimal, as in a CSN
    #[arg(value_name = "SID", value_parser = server_id)]
    server_id: u16,
    /// The servers that stay, as URLs; -H may name them, too
    #[arg(value_name = "URL")]
    urls: Vec<String>,
}

fn server_id(text: &str) -> Result<u16, String> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hexadecimal) => u16::from_str_radix(hexadecimal, 16).ok(),
        None => text.parse().ok(),
    };
    number.filter(|id| *id <= SID_MAX).ok_or_else(|| "a server id is 0 to 4095".to_owned())
}

pub(super) fn run(args: &RetireArgs, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    // The variable names servers to ask, not servers to change.
    let urls = super::servers(&args.common, &args.urls, None, 1..=usize::MAX)?;
    let mut servers =
        urls.iter().map(|url| at(url, Server::open(&args.common, url))).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = servers.first_mut() else {
        return Err(ClientError::Usage("no server is given".to_owned()));
    };
    let base = super::base(args.base.as_deref(), first);
    let base = at(&first.url, base)?;
    let mut known = Vec::new();
    for server in &mut servers {
        let csns = entries::context_csns(&mut server.session, &base);
        let csns = at(&server.url, csns.map_err(|error| advised(error, server.anonymous, "")))?;
        known.push((server.url.clone(), csns.into_iter().find(|csn| csn.server_id == args.server_id)));
    }
    let newest = known.iter().filter_map(|(_, csn)| *csn).max();
    if let Some((url, _)) = known.iter().find(|(_, csn)| csn.is_some() && *csn != newest) {
        return Err(ClientError::Usage(format!(
            "{url} does not have all changes of the server id {} yet: nothing was done",
            args.server_id
        )));
    }
    if args.common.dry_run {
        for (url, csn) in known {
            let would = if csn.is_some() { "would be removed" } else { "has none" };
            writeln!(out, "{url}: {would}").map_err(ClientError::Output)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let value = RetireRequest { base, server_id: args.server_id }.encode();
    for server in &mut servers {
        let answer = server
            .session
            .call(|out, id, controls| client::extended(out, id, RETIRE_OID, Some(&value), controls));
        let reply = at(&server.url, answer)?;
        let outcome = match reply.result.code {
            ResultCode::SUCCESS => "removed",
            ResultCode::NO_SUCH_ATTRIBUTE => "had none",
            _ => {
                return at(&server.url, Err(ClientError::Refused { step: "retire", result: reply.result }));
            }
        };
        writeln!(out, "{}: {outcome}", server.url).map_err(ClientError::Output)?;
    }
    Ok(ExitCode::SUCCESS)
}
