//! `larix replica status`: how far each server has come with the changes of each.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use larix_client::ClientError;
use larix_engine::csn::Csn;
use serde_json::json;

use super::super::json as output;
use super::super::options::CommonArgs;
use super::{NO, Server, entries};

#[derive(Args, Debug)]
#[command(after_help = "\
Lag is the time between the newest change of a server that any of the servers has and the newest that this one has.
The exit status is 5 if one cannot be reached or is further behind than --max-lag, else 0.

Example:
  larix replica status -D cn=admin,dc=example,dc=com -W ldap://one.example ldap://two.example")]
pub(super) struct StatusArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// The suffix [the first server's one]
    #[arg(short = 'b', value_name = "DN")]
    base: Option<String>,
    /// Seconds that a server may be behind
    #[arg(long, value_name = "SECONDS")]
    max_lag: Option<f64>,
    /// Servers, as URLs; -H may name them, too
    #[arg(value_name = "URL")]
    urls: Vec<String>,
}

/// contextCSN of a server, or why it is not known.
type Known = Result<Vec<Csn>, String>;

pub(super) fn run(args: &StatusArgs, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    let mut base = args.base.clone();
    let mut all: Vec<(&str, Known)> = Vec::new();
    let urls = super::servers(&args.common, &args.urls, super::environment().as_deref(), 1..=usize::MAX)?;
    for url in &urls {
        let known = context(args, url, &mut base).map_err(|error| error.to_string());
        all.push((url, known));
    }
    let mut newest: BTreeMap<u16, Csn> = BTreeMap::new();
    for csn in all.iter().filter_map(|(_, known)| known.as_ref().ok()).flatten() {
        let known = newest.entry(csn.server_id).or_insert(*csn);
        *known = (*known).max(*csn);
    }
    let mut fine = true;
    for (url, known) in &all {
        fine &= match known {
            Ok(csns) => server(args, url, csns, &newest, out)?,
            Err(why) => {
                match args.common.json {
                    true => output::line(out, &json!({ "server": url, "error": why }))?,
                    false => writeln!(out, "{url}\n  {why}").map_err(ClientError::Output)?,
                }
                false
            }
        };
    }
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

fn context(args: &StatusArgs, url: &str, base: &mut Option<String>) -> Result<Vec<Csn>, ClientError> {
    let mut server = Server::open(&args.common, url)?;
    let suffix = super::base(base.as_deref(), &mut server)?;
    let csns = entries::context_csns(&mut server.session, &suffix);
    let csns = csns.map_err(|error| super::advised(error, server.anonymous, ""))?;
    *base = Some(suffix);
    Ok(csns)
}

/// Answers whether the server is near enough.
fn server(
    args: &StatusArgs,
    url: &str,
    csns: &[Csn],
    newest: &BTreeMap<u16, Csn>,
    out: &mut dyn Write,
) -> Result<bool, ClientError> {
    let mut fine = true;
    let mut members = Vec::new();
    let mut text = format!("{url}\n");
    for (server_id, newest) in newest {
        let own = csns.iter().find(|csn| csn.server_id == *server_id);
        let lag = own.map(|own| seconds(own, newest));
        fine &= args.max_lag.is_none_or(|limit| lag.is_some_and(|lag| lag <= limit));
        let state = match (own, lag) {
            (Some(own), _) if own == newest => format!("{}  up to date", own.text()),
            (Some(own), Some(lag)) => format!("{}  {lag:.6} s behind", own.text()),
            _ => "knows no change of it".to_owned(),
        };
        text.push_str(&format!("  sid {server_id:03x}  {state}\n"));
        members.push(json!({
            "sid": server_id,
            "contextCSN": own.map(Csn::text),
            "newest": newest.text(),
            "lagSeconds": lag,
        }));
    }
    if newest.is_empty() {
        text.push_str(
            "  no contextCSN is shown: the database provides nothing and follows nobody, or it has to be asked as \
             somebody who may read it (-D DN -W)\n",
        );
    }
    if args.common.json {
        output::line(out, &json!({ "server": url, "changes": members }))?;
    } else {
        out.write_all(text.as_bytes()).map_err(ClientError::Output)?;
    }
    Ok(fine)
}

/// From an older CSN to a newer one.
fn seconds(older: &Csn, newer: &Csn) -> f64 {
    newer.time.0.saturating_sub(older.time.0).max(0) as f64 / 1e6
}
