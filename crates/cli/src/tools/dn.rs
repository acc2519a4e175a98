//! `slapdn`: checks DNs against the schema of a configuration, and shows their forms.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use larix_configuration::values::ConfigDn;

use super::flags::{self, ConfigArgs};

/// The status for a wrong DN, as slapdn gives it.
const WRONG_DN: u8 = 255;

/// Check and normalize DNs
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Example:
  larix dn -F larix-data/slapd.d 'UID=Ann, OU=People, DC=Example, DC=com'")]
pub(super) struct DnArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Write the normal form alone
    #[arg(short = 'N', conflicts_with = "pretty")]
    normal: bool,
    /// Write the form in which the server shows it alone
    #[arg(short = 'P')]
    pretty: bool,
    /// Go on after a DN that is wrong
    #[arg(short = 'c')]
    go_on: bool,
    /// DNs to check
    #[arg(value_name = "DN", required = true)]
    names: Vec<String>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(super) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: DnArgs = flags::parse(name, arguments);
    let config = match args.config.load(false) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{name}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut status = ExitCode::SUCCESS;
    for text in &args.names {
        match ConfigDn::parse(&config.schema, text) {
            Ok(dn) if args.normal => println!("{}", dn.normal.as_str()),
            Ok(dn) if args.pretty => println!("{}", dn.text),
            Ok(dn) => {
                println!(
                    "DN: <{text}> check succeeded\nnormalized: <{}>\npretty:     <{}>",
                    dn.normal.as_str(),
                    dn.text
                );
            }
            Err(error) => {
                eprintln!("DN: <{text}> check failed 34 (Invalid DN syntax): {error}");
                status = ExitCode::from(WRONG_DN);
                if !args.go_on {
                    break;
                }
            }
        }
    }
    status
}
