//! The small clients: `larix search | modify | compare | passwd | whoami | config | replica | deleted`, with the flags of OpenLDAP's tools, so that a
//! fresh machine needs nothing else.
//!
//! Output is readable on a terminal and LDIF when piped or asked for with `-L`; `--json` writes one object a line. The exit
//! status is the LDAP result code, as of OpenLDAP's tools; 255 if there was no answer, 1 for a wrong command line.

mod compare;
mod config;
mod controls;
mod deleted;
mod error;
mod json;
mod modify;
mod options;
mod passwd;
mod replica;
mod report;
mod search;
mod search_output;
mod session;
mod transaction;
mod value_files;
mod whoami;

use std::io;
use std::process::ExitCode;

use clap::Subcommand;

pub(crate) use compare::CompareArgs;
pub(crate) use config::ConfigArgs;
pub(crate) use deleted::DeletedArgs;
use larix_client::ClientError;
pub(crate) use modify::ModifyArgs;
pub(crate) use passwd::PasswdArgs;
pub(crate) use replica::ReplicaArgs;
pub(crate) use search::SearchArgs;
pub(crate) use whoami::WhoamiArgs;

use crate::terminal::READER_GONE;

/// The client subcommands of `larix`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// Search a directory (ldapsearch)
    Search(Box<SearchArgs>),
    /// Add, change, rename and delete entries from LDIF (ldapmodify; with -a, ldapadd)
    Modify(Box<ModifyArgs>),
    /// Ask whether an entry has a value (ldapcompare)
    Compare(Box<CompareArgs>),
    /// Change a password (ldappasswd)
    Passwd(Box<PasswdArgs>),
    /// Ask who the server takes you for (ldapwhoami)
    Whoami(Box<WhoamiArgs>),
    /// Keep a configuration as one file: check it, compare it with a server's, apply it
    Config(Box<ConfigArgs>),
    /// Ask replicas whether they hold the same, and how far behind they are
    Replica(Box<ReplicaArgs>),
    /// See who deleted which entries, and bring them back
    Deleted(Box<DeletedArgs>),
}

/// Whether a subcommand ends with LDAP's result code, as OpenLDAP's tool does: 2 is a protocol error there, and a command line that cannot
/// be read ends with 1.
pub(crate) fn ends_with_result_code(command: &str) -> bool {
    matches!(command, "search" | "modify" | "compare" | "passwd" | "whoami")
}

/// Runs a client; faults go to standard error.
pub(crate) fn run(command: &ClientCommand) -> ExitCode {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let done = match command {
        ClientCommand::Search(args) => search::run(args, &mut out),
        ClientCommand::Modify(args) => modify::run(args, &mut out),
        ClientCommand::Compare(args) => compare::run(args, &mut out),
        ClientCommand::Passwd(args) => passwd::run(args, &mut out),
        ClientCommand::Whoami(args) => whoami::run(args, &mut out),
        ClientCommand::Config(args) => config::run(args, &mut out),
        ClientCommand::Replica(args) => replica::run(args, &mut out),
        ClientCommand::Deleted(args) => deleted::run(args, &mut out),
    };
    let done = done.and_then(|code| io::Write::flush(&mut out).map_err(ClientError::Output).map(|()| code));
    match done {
        Ok(code) => code,
        Err(error) if error.is_broken_pipe() => ExitCode::from(READER_GONE),
        Err(error) => {
            // What was written so far belongs before the error.
            let _ = io::Write::flush(&mut out);
            eprintln!("{}", error::error_text(&error));
            error::status_of(&error)
        }
    }
}

#[cfg(test)]
mod tests;
