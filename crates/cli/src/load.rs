//! `larix load`: generated directories, and load for any LDAP server.

mod compare;
mod generate;
mod optimize;
mod report;
mod run;
mod show;
mod target;
mod work;

use std::process::ExitCode;

use clap::{Args, Subcommand};

pub(crate) use generate::kind;

/// Generate directories, and measure servers under load.
#[derive(Args, Debug)]
pub(crate) struct LoadArgs {
    #[command(subcommand)]
    command: LoadCommand,
}

#[derive(Debug, Subcommand)]
enum LoadCommand {
    /// Write a generated directory: LDIF, schema and slapd.conf.
    Generate(generate::GenerateArgs),
    /// Carry out a scenario on this server and on others, side by side
    Compare(Box<compare::CompareArgs>),
    /// Drive a server and report rates and latency.
    Run(Box<run::RunArgs>),
    /// Drive a server with more and more connections until three steps bring no gain.
    Optimize(Box<optimize::OptimizeArgs>),
    /// Show a report that was kept as JSON: as a table, or as an HTML file.
    Report(report::ReportArgs),
}

pub(crate) fn main(args: &LoadArgs) -> ExitCode {
    let done = match &args.command {
        LoadCommand::Compare(args) => compare::run(args),
        LoadCommand::Generate(args) => generate::run(args),
        LoadCommand::Run(args) => run::run(args),
        LoadCommand::Optimize(args) => optimize::run(args),
        LoadCommand::Report(args) => report::run(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("larix load: {error:#}");
            ExitCode::FAILURE
        }
    }
}
