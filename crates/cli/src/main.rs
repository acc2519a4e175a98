//! `larix`: the server and its tools in one binary, under its own names and under slapd's.
//!
//! Called as `slapd`, `slapadd`, `slapcat` and so on (a link suffices), or as `slapd -Tadd`, it is that program with
//! that program's flags. Called as `larix` it has subcommands.

mod adopt;
mod balance;
mod client;
mod cluster;
mod demo;
#[cfg(test)]
mod documented;
mod load;
mod manual;
mod serve;
mod signals;
mod size;
mod terminal;
mod tools;
mod version;

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::tools::Tool;

// Answers are built from many small buffers of all threads: measured faster here than the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An LDAP directory server that takes OpenLDAP's place
#[derive(Debug, Parser)]
#[command(name = "larix", version, disable_help_subcommand = true, arg_required_else_help = true)]
#[command(after_help = NAMES)]
struct Larix {
    #[command(subcommand)]
    command: LarixCommand,
}

const NAMES: &str = "\
Offline tools (they take slapadd's, slapcat's ... flags: larix COMMAND --help):
  add              Load LDIF into a database            (slapadd)
  cat              Write a database as LDIF             (slapcat)
  index            Rebuild indexes                      (slapindex)
  offline-modify   Apply LDIF changes to a database     (slapmodify)
  offline-delete   Delete entries of a database         (slapdelete)
  hash-password    Hash a password                      (slappasswd)
  test             Check a configuration                (slaptest)
  acl              Ask what the access rules allow      (slapacl)
  auth             Ask how identities are mapped        (slapauth)
  dn               Check and normalize DNs              (slapdn)
  schema           Check a database against the schema  (slapschema)
  check            Check that tree, entries and indexes agree
  backup           Copy databases, also while they are served
  restore          Put a backup back, also to a moment
  advise           Say which indexes searches lack, and which nobody uses
  rewrite          Show what rewriting rules make of a text

Called by one of slapd's names, or as `slapd -Tadd`, larix is that program.";

#[derive(Debug, Subcommand)]
enum LarixCommand {
    /// Run the server: from slapd.conf or slapd.d, or with --suffix and no file at all
    #[command(disable_help_flag = true)]
    Serve(Box<serve::ServeArgs>),
    /// Generate a directory of people, load it, serve it and ask it a question
    Demo(demo::DemoArgs),
    /// Balance clients over several servers, with the keywords of OpenLDAP's lloadd.conf
    #[command(disable_help_flag = true)]
    Balance(Box<balance::BalanceArgs>),
    /// Generate directories, and measure servers under load
    Load(load::LoadArgs),
    /// Estimate the disk, memory and processors that a directory needs, from a sample of it
    Size(size::SizeArgs),
    /// Take over the slapd of this machine, with a way back
    Adopt(Box<adopt::AdoptArgs>),
    /// Show the servers of a `database kv`, or make the one that writes step down
    Cluster(cluster::ClusterArgs),
    #[command(flatten)]
    Client(client::ClientCommand),
    /// Print this, or what a command does and its flags
    Help {
        /// A command, and one of its own commands
        #[arg(value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// Print version, commit, features and disk format
    Version,
    /// Print a completion script for bash, zsh, fish, elvish or PowerShell
    Completions(manual::CompletionsArgs),
    /// Write man pages: of each command, and of the keywords of slapd.conf
    Manual(manual::ManualArgs),
}

/// The status of a command line that cannot be read, as clap gives it.
const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    let rest: Vec<OsString> = arguments.collect();
    let name = Path::new(&program).file_name().and_then(OsStr::to_str).unwrap_or("larix").to_owned();
    if !prints_answers(&name, &rest) {
        return run(&program, &name, rest);
    }
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if printing_failed(panic.payload()).is_none() {
            usual(panic);
        }
    }));
    std::panic::catch_unwind(|| run(&program, &name, rest)).unwrap_or_else(|panic| {
        match printing_failed(&*panic) {
            Some(why) if why.contains("Broken pipe") => ExitCode::from(terminal::READER_GONE),
            Some(why) => {
                // Standard error may be what cannot be written.
                let _ = writeln!(io::stderr(), "{name}: {why}");
                ExitCode::FAILURE
            }
            None => std::panic::resume_unwind(panic),
        }
    })
}

/// Whether what the command prints is all that it is for: a server and a move do not end without a word.
fn prints_answers(name: &str, arguments: &[OsString]) -> bool {
    let first = arguments.first().and_then(|first| first.to_str());
    !matches!(name, "slapd" | "lt-slapd" | "lloadd" | "lt-lloadd")
        && !matches!(first, Some("serve" | "balance" | "demo" | "adopt"))
}

/// What a panic of `println!` says: into a pipe whose reader has ended, as in `larix version | true`, or to a full disk.
fn printing_failed(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<String>()?;
    text.starts_with("failed printing to std").then_some(text.as_str())
}

fn run(program: &OsStr, name: &str, rest: Vec<OsString>) -> ExitCode {
    if let Some(tool) = Tool::by_program_name(name) {
        return tools::run(tool, name, &rest);
    }
    if name == "slapd" || name == "lt-slapd" {
        return slapd(name, rest);
    }
    if name == "lloadd" || name == "lt-lloadd" {
        return balance::lloadd(name, rest);
    }
    match rest.first().and_then(|first| first.to_str()).and_then(Tool::by_subcommand) {
        Some(tool) => {
            let arguments = rest.get(1..).unwrap_or(&[]);
            if tool == Tool::Add
                && let Some(flag) = flag_of_ldapadd(arguments)
            {
                eprintln!(
                    "{name} add: {flag} is a flag of ldapadd, which is `larix modify -a`. `larix add` is slapadd: it loads a database and \
                     asks no server"
                );
                return ExitCode::from(WRONG_USAGE);
            }
            tools::run(tool, &format!("{name} {}", tool.subcommand()), arguments)
        }
        None => larix(program, rest),
    }
}

/// A flag that says who binds, and where: `larix add` was taken for ldapadd.
fn flag_of_ldapadd(arguments: &[OsString]) -> Option<&str> {
    let mut flags = arguments.iter().filter_map(|argument| argument.to_str());
    flags.find(|flag| matches!(*flag, "-x" | "-D" | "-W" | "-H" | "-y" | "-Y" | "-Z" | "-ZZ"))
}

/// slapd's own command line; `-T` makes it one of the tools.
fn slapd(name: &str, mut arguments: Vec<OsString>) -> ExitCode {
    let at = arguments.iter().position(|a| a.to_str().is_some_and(|a| a.starts_with("-T")));
    let Some(mut at) = at else { return serve::slapd(name, arguments) };
    // The server's own syslog level, as in `slapd -s0 -Ttest`, means nothing to a tool.
    if let Some(level) =
        arguments.iter().take(at).position(|a| a.to_str().is_some_and(|a| a.starts_with("-s")))
    {
        let is_apart = arguments.get(level).is_some_and(|a| a == "-s");
        let count = arguments.drain(level..(level + 1 + usize::from(is_apart)).min(at)).count();
        at -= count;
    }
    let flag = arguments.remove(at).to_string_lossy().into_owned();
    let tool_name = match flag.get(2..) {
        Some("") | None if at < arguments.len() => arguments.remove(at).to_string_lossy().into_owned(),
        Some(attached) => attached.to_owned(),
        None => String::new(),
    };
    match Tool::by_letter_or_name(&tool_name) {
        Some(tool) => tools::run(tool, tool.program_name(), &arguments),
        None => {
            eprintln!("{name}: unknown tool \"{tool_name}\" after -T: one of {}", Tool::names());
            ExitCode::FAILURE
        }
    }
}

/// What a program of OpenLDAP is called here.
fn renamed(program: &str) -> Option<&'static str> {
    Some(match program {
        "slapd" => "serve",
        "lloadd" => "balance",
        "ldapsearch" => "search",
        "ldapmodify" => "modify",
        "ldapadd" => "modify -a",
        "ldapcompare" => "compare",
        "ldappasswd" => "passwd",
        "ldapwhoami" => "whoami",
        _ => Tool::by_program_name(program)?.subcommand(),
    })
}

/// What does the work of a command that there is not.
fn done_otherwise(word: &str) -> Option<&'static str> {
    Some(match word {
        "delete" | "ldapdelete" => {
            "`larix modify` deletes an entry: a record of the two lines `dn: DN` and `changetype: delete`"
        }
        "rename" | "modrdn" | "ldapmodrdn" => {
            "`larix modify` renames an entry: a record of `dn: DN`, `changetype: modrdn`, `newrdn: RDN` and `deleteoldrdn: 1`"
        }
        "start" | "run" | "server" => "`larix serve` runs the server, in front with --suffix or -d 0",
        "stop" => "a server ends on Ctrl-C or SIGTERM, as by `systemctl stop larix` or `kill`",
        "status" => {
            "`larix search -b \"\" -s base +` asks a server; `larix replica status` and `larix cluster status` ask several"
        }
        _ => return None,
    })
}

fn larix(program: &OsStr, mut rest: Vec<OsString>) -> ExitCode {
    if let Some(word) = rest.first().and_then(|first| first.to_str()) {
        if let Some(command) = renamed(word) {
            eprintln!("larix: {word} is `larix {command}`");
            return ExitCode::from(WRONG_USAGE);
        }
        if let Some(otherwise) = done_otherwise(word) {
            eprintln!("larix: there is no command {word}: {otherwise}");
            return ExitCode::from(WRONG_USAGE);
        }
    }
    let first = rest.first().and_then(|first| first.to_str());
    let mistake = if first.is_some_and(client::ends_with_result_code) { 1 } else { terminal::MISTAKE };
    rest.insert(0, program.to_owned());
    let parsed =
        Larix::command().try_get_matches_from(rest).and_then(|matches| Larix::from_arg_matches(&matches));
    let larix = match parsed {
        Ok(larix) => larix,
        // Prints to standard output for --help and --version, to standard error otherwise, with the right status.
        Err(error) => terminal::end_parsing(&error, mistake),
    };
    match larix.command {
        LarixCommand::Serve(arguments) => serve::run("larix", &arguments),
        LarixCommand::Balance(arguments) => balance::main(&arguments),
        LarixCommand::Demo(arguments) => demo::main(&arguments),
        LarixCommand::Adopt(arguments) => adopt::main(&arguments),
        LarixCommand::Cluster(arguments) => cluster::main(&arguments),
        LarixCommand::Client(command) => client::run(&command),
        LarixCommand::Load(arguments) => load::main(&arguments),
        LarixCommand::Size(arguments) => size::main(&arguments),
        LarixCommand::Help { command } => help(program, command),
        LarixCommand::Version => {
            print!("{}", version::text());
            ExitCode::SUCCESS
        }
        LarixCommand::Completions(arguments) => manual::completions(&arguments, Larix::command()),
        LarixCommand::Manual(arguments) => {
            manual::manual(&arguments, Larix::command(), serve::slapd_command())
        }
    }
}

/// `larix help COMMAND` is `larix COMMAND --help`.
fn help(program: &OsStr, mut command: Vec<OsString>) -> ExitCode {
    command.push("--help".into());
    match command.first().and_then(|first| first.to_str()).and_then(Tool::by_subcommand) {
        Some(tool) => {
            let name = format!("larix {}", tool.subcommand());
            tools::run(tool, &name, command.get(1..).unwrap_or_default())
        }
        None => larix(program, command),
    }
}
