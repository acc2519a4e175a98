//! `larix replica`: whether servers hold the same, how far behind they are, and what to do about it.

mod check;
mod conflicts;
pub(super) mod entries;
mod retire;
mod status;
#[cfg(test)]
mod tests;
mod values;

use std::io::Write;
use std::ops::RangeInclusive;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use larix_client::{ClientError, Session};
use larix_configuration::QuickReplicas;
use larix_proto::url::LdapUrl;
use larix_proto::{FilterBuf, ResultCode, Scope};

use super::options::CommonArgs;
use super::session;
use entries::{EntryQuery, Kind};

/// Says that the answer is no: compareFalse.
const NO: u8 = 5;

#[derive(Args, Debug)]
pub(crate) struct ReplicaArgs {
    #[command(subcommand)]
    command: ReplicaCommand,
}

#[derive(Debug, Subcommand)]
enum ReplicaCommand {
    /// Compare what two servers hold: equal, or which entries differ and in what
    #[command(disable_help_flag = true)]
    Check(Box<check::CheckArgs>),
    /// Say how far each server has come with the changes of each
    #[command(disable_help_flag = true)]
    Status(Box<status::StatusArgs>),
    /// Show what lost where several servers took changes
    #[command(disable_help_flag = true)]
    Conflicts(Box<conflicts::ConflictsArgs>),
    /// Remove the contextCSN of a server that is gone for good
    #[command(disable_help_flag = true)]
    Retire(Box<retire::RetireArgs>),
}

pub(super) fn run(args: &ReplicaArgs, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    match &args.command {
        ReplicaCommand::Check(args) => check::run(args, out),
        ReplicaCommand::Status(args) => status::run(args, out),
        ReplicaCommand::Conflicts(args) => conflicts::run(args, out),
        ReplicaCommand::Retire(args) => retire::run(args, out),
    }
}

/// The servers that are named as URLs, or with `-H` or LDAPURI, which may name several.
///
/// # Errors
/// Both name some, or not as many are named as the command takes.
fn servers(
    common: &CommonArgs,
    urls: &[String],
    environment: Option<&str>,
    number: RangeInclusive<usize>,
) -> Result<Vec<String>, ClientError> {
    let listed = |text: &str| -> Vec<String> {
        text.split([' ', ',']).filter(|url| !url.is_empty()).map(str::to_owned).collect()
    };
    let servers = match (urls, &common.uri) {
        ([], Some(uri)) => listed(uri),
        ([], None) => environment.map(listed).unwrap_or_default(),
        (_, Some(_)) => {
            return Err(ClientError::Usage("name the servers once: as URLs, or with -H".to_owned()));
        }
        (urls, None) => urls.to_vec(),
    };
    if number.contains(&servers.len()) {
        return Ok(servers);
    }
    let servers_text = match number.into_inner() {
        (1, 1) => "one server",
        (2, 2) => "two servers",
        _ => "the servers",
    };
    Err(ClientError::Usage(format!("name {servers_text} as URLs, or with -H; {} given", servers.len())))
}

/// The value of LDAPURI, else of URI in ldap.conf.
fn environment() -> Option<String> {
    session::ldap_conf().value("URI").map(str::to_owned)
}

/// One of the servers that are asked.
struct Server {
    /// As it was given.
    url: String,
    session: Session,
    /// The client is anonymous.
    anonymous: bool,
}

impl Server {
    fn open(common: &CommonArgs, url: &str) -> Result<Self, ClientError> {
        let parsed = LdapUrl::parse(url).map_err(|error| ClientError::Usage(format!("{url}: {error}")))?;
        let anonymous = session::is_anonymous(common, &parsed);
        let session = session::open_at(common, &[parsed]);
        let session = session.map_err(|error| advised(error, anonymous, ""))?;
        Ok(Self { url: url.to_owned(), session, anonymous })
    }

    /// The only suffix of this server that holds entries.
    fn suffix(&mut self) -> Result<String, ClientError> {
        let mut found = Vec::new();
        let query = EntryQuery {
            base: "",
            scope: Scope::Base,
            filter: &all()?,
            attributes: &["namingContexts"],
            kind: Kind::Entries,
        };
        entries::each(&mut self.session, &query, &mut |_, attributes| {
            for attribute in attributes.iter() {
                found
                    .extend(attribute.values.iter().map(|value| String::from_utf8_lossy(value).into_owned()));
            }
        })?;
        match with_entries(&found).as_slice() {
            [one] => Ok((*one).to_owned()),
            [] if self.anonymous => Err(ClientError::Usage(format!(
                "{} shows no suffix to anonymous clients: name it with -b, or bind with -D DN -W",
                self.url
            ))),
            [] => Err(ClientError::Usage(format!("{} shows no suffix: name it with -b", self.url))),
            several => Err(ClientError::Usage(format!(
                "{} has several suffixes: choose one with -b: {}",
                self.url,
                several.join(", ")
            ))),
        }
    }
}

/// Without the suffix of the account that servers with `--replica` bind as: nothing is below it.
fn with_entries(suffixes: &[String]) -> Vec<&str> {
    let others = suffixes.iter().map(String::as_str);
    others.filter(|suffix| !suffix.eq_ignore_ascii_case(QuickReplicas::SUFFIX)).collect()
}

/// Says which of the servers it was, where the error does not: of one command several are asked.
fn at<T>(url: &str, answer: Result<T, ClientError>) -> Result<T, ClientError> {
    answer.map_err(|error| match error {
        ClientError::Usage(_) | ClientError::Connect { .. } | ClientError::Output(_) => error,
        error => ClientError::At { url: url.to_owned(), error: Box::new(error) },
    })
}

/// Says what to add where a server does not let its asker see or do this. `otherwise`: to somebody who is bound.
fn advised(error: ClientError, anonymous: bool, otherwise: &str) -> ClientError {
    const ANONYMOUS: &str = "nobody is bound: add -D DN -W (the rootdn, or somebody who may read everything), or ask on the \
                             server's own machine: ldapi:///, or ldapi://%2Fpath%2Fto%2Fsocket, with -Y EXTERNAL";
    const NOTHING: &str = "the server shows nothing of that name: it has not got its entries yet, -b has to name another suffix, \
                           or the access rules hide it";
    let ClientError::Refused { result, .. } = &error else { return error };
    let is_about_rights = matches!(
        result.code,
        ResultCode::NO_SUCH_OBJECT
            | ResultCode::INSUFFICIENT_ACCESS_RIGHTS
            | ResultCode::STRONGER_AUTH_REQUIRED
            | ResultCode::INAPPROPRIATE_AUTHENTICATION
            | ResultCode::UNWILLING_TO_PERFORM
    );
    let advice = match (anonymous, result.code) {
        (true, _) if is_about_rights => ANONYMOUS,
        (false, ResultCode::INSUFFICIENT_ACCESS_RIGHTS) if !otherwise.is_empty() => otherwise,
        (false, ResultCode::NO_SUCH_OBJECT) => NOTHING,
        _ => return error,
    };
    ClientError::Advised { error: Box::new(error), advice: advice.to_owned() }
}

/// `-b`, else the one suffix of the first server.
fn base(named_base: Option<&str>, first: &mut Server) -> Result<String, ClientError> {
    match named_base {
        Some(base) => Ok(base.to_owned()),
        None => first.suffix(),
    }
}

fn filter(text: &str) -> Result<FilterBuf, ClientError> {
    FilterBuf::parse(text).map_err(|error| ClientError::Usage(format!("filter `{text}`: {error}")))
}

fn all() -> Result<FilterBuf, ClientError> {
    filter("(objectClass=*)")
}
