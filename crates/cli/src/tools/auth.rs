//! `slapauth`: what identities are called in the directory, and who may act for whom.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use larix_configuration::Config;
use larix_engine::budget::Meter;
use larix_server::cluster;
use larix_server::sasl::authorize::{Authorizer, RULE_STEPS};
use larix_server::sasl::identity::{IdentityFault, Mapper, user_name};

use super::flags::{self, ConfigArgs};
use super::identities::Offline;

/// The status for a wrong ID, as slapauth gives it: with `-U` the IDs are whom somebody wants to act as.
const WRONG_ID: u8 = 1;
const WRONG_ID_TO_ACT_AS: u8 = 255;

/// Check what SASL identities are mapped to
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Examples:
  larix auth -F larix-data/slapd.d -M SCRAM-SHA-256 ann
  larix auth -F larix-data/slapd.d -M SCRAM-SHA-256 -U ann u:bob")]
pub(super) struct AuthArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Mechanism
    #[arg(short = 'M', value_name = "MECHANISM", default_value = "")]
    mechanism: String,
    /// Realm
    #[arg(short = 'R', value_name = "REALM", default_value = "")]
    realm: String,
    /// Who authenticates; the IDs are then the identities that it wants to act as
    #[arg(short = 'U', value_name = "ID")]
    user: Option<String>,
    /// The identity that each ID wants to act as
    #[arg(short = 'X', value_name = "ID")]
    authorization: Option<String>,
    /// Go on after an identity that is wrong
    #[arg(short = 'c')]
    go_on: bool,
    /// Who authenticates, as SASL knows the name, `u:NAME` or `dn:DN`; with -U, whom that one wants to act as
    #[arg(value_name = "ID", required_unless_present = "user")]
    identities: Vec<String>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(super) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: AuthArgs = flags::parse(name, arguments);
    match run(&args) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The status: 0 if every identity could be mapped.
fn run(args: &AuthArgs) -> anyhow::Result<u8> {
    let config = args.config.read()?;
    let check = Check { args, config: &config, lookups: Offline::open(&config) };
    let whom = args.authorization.as_deref();
    let mut status = 0;
    let pairs: Vec<(&str, Option<&str>)> = match &args.user {
        Some(user) if whom.is_some() || args.identities.is_empty() => vec![(user, whom)],
        Some(user) => args.identities.iter().map(|whom| (user.as_str(), Some(whom.as_str()))).collect(),
        None => args.identities.iter().map(|who| (who.as_str(), whom)).collect(),
    };
    for (who, whom) in pairs {
        if let Err(wrong) = check.one(who, whom) {
            status = wrong;
            if !args.go_on {
                break;
            }
        }
    }
    cluster::whole().map_err(anyhow::Error::msg)?;
    Ok(status)
}

struct Check<'a> {
    args: &'a AuthArgs,
    config: &'a Config,
    lookups: Offline<'a>,
}

impl Check<'_> {
    /// # Errors
    /// The status for an identity that cannot be mapped.
    fn one(&self, who: &str, whom: Option<&str>) -> Result<(), u8> {
        let global = &self.config.global;
        let (rules, rewrite) = (&global.authz_regexps, &global.authid_rewrite);
        let mapper = Mapper { lookups: &self.lookups, rules, rewrite, who: None };
        let external = self.args.mechanism.eq_ignore_ascii_case("EXTERNAL");
        let name = match external {
            true => who.to_owned(),
            false => user_name(who, &self.args.realm, &self.args.mechanism),
        };
        let Some(dn) = mapper.name(&name) else {
            show_failed("ID", who, IdentityFault::Dn);
            return Err(WRONG_ID);
        };
        let Some(whom) = whom else {
            eprintln!("ID: <{who}> check succeeded\nauthcID:     <{dn}>");
            return Ok(());
        };
        let target = match mapper.authorization(whom, "", &self.args.mechanism) {
            Ok(target) => target,
            Err(fault) => {
                show_failed("authzID", whom, fault);
                return Err(if self.args.authorization.is_none() { WRONG_ID_TO_ACT_AS } else { WRONG_ID });
            }
        };
        let policy = global.authz_policy;
        let meter = Meter::new(RULE_STEPS);
        let authorizer = Authorizer { lookups: &self.lookups, policy, rules, rewrite, meter: &meter };
        let verdict = if authorizer.allows(Some(&dn), &target) { "OK" } else { "failed" };
        eprintln!("ID:      <{who}>\nauthcDN: <{dn}>\nauthzDN: <{target}>\nauthorization {verdict}");
        Ok(())
    }
}

fn show_failed(what: &str, identity: &str, fault: IdentityFault) {
    eprintln!("{what}: <{identity}> check failed {} ({})", fault.code().0, fault.text());
}
