//! `larix whoami`: Who am I? (RFC 4532).

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use larix_proto::extended::{ExtendedValue, WhoAmI, WhoAmIResponse};
use larix_proto::{ResultCode, client};
use serde_json::json;

use super::options::CommonArgs;
use super::session;
use super::{controls, json as output, report};
use larix_client::ClientError;

#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Examples:
  larix whoami -H ldap://127.0.0.1:3890 -D cn=admin,dc=example,dc=com -W
  larix whoami -H ldaps://127.0.0.1:6360 -o tls_cacert=larix-data/server.pem")]
pub(crate) struct WhoamiArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// [!]<oid>[=:<value>|::<base64>]
    #[arg(short = 'E', value_name = "[!]EXTENSION")]
    extensions: Vec<String>,
}

pub(super) fn run(args: &WhoamiArgs, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    let extensions = controls::other(&args.extensions)?;
    if args.common.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let mut session = session::open(&args.common)?;
    session.controls.extend(extensions);
    let reply = session.call(|out, id, controls| client::extended(out, id, WhoAmI::OID, None, controls))?;
    let identity = WhoAmIResponse::decode(reply.value.as_deref())?.authorization_id;
    if args.common.json {
        let line = json!({ "authorizationId": identity, "result": output::result(&reply.result) });
        output::line(out, &line)?;
        return Ok(report::status(reply.result.code));
    }
    if reply.result.code == ResultCode::SUCCESS {
        let shown = if identity.is_empty() { "anonymous" } else { identity };
        writeln!(out, "{shown}").map_err(ClientError::Output)?;
    }
    report::conclude("ldap_whoami", reply.result)
}
