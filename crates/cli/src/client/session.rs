//! A bound connection, and calls that have one answer.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};

use larix_proto::url::UrlScheme;
use larix_proto::{ControlBuf, LdapResult, MessageId, Response, ResultCode, client, oid};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use super::connection::Connection;
use super::controls;
use super::error::ClientError;
use super::options::CommonArgs;
use super::sasl::{self, SaslPassword};
use super::tls::TlsOptions;

pub(super) struct Session {
    pub(super) connection: Connection,
    /// Those of `-e` and `-M`.
    pub(super) controls: Vec<ControlBuf>,
    buffer: Vec<u8>,
}

/// The answer to a request that has one.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) result: LdapResult,
    /// Of an extended response; a SASL bind's server credentials.
    pub(super) value: Option<Vec<u8>>,
    pub(super) controls: Vec<ControlBuf>,
}

/// How to bind.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Credentials {
    Simple { dn: String, password: Vec<u8> },
    External { authorization: String },
    Sasl(SaslPassword),
}

impl Session {
    /// Connects and binds.
    pub(super) fn open(args: &CommonArgs) -> Result<Self, ClientError> {
        let tls = TlsOptions::gather(&args.settings);
        let urls = args.urls(std::env::var("LDAPURI").ok().as_deref())?;
        let local = urls.first().is_some_and(|url| url.scheme == UrlScheme::Ldapi);
        let bind_dn = args.bind_dn.clone().or_else(|| std::env::var("LDAPBINDDN").ok());
        let credentials = credentials(args, bind_dn, local, tls.has_certificate(), &mut ask)?;
        let controls = controls::common(args)?;
        let connection = Connection::open(&urls, args.connect_timeout()?, &tls)?;
        let mut session = Self { connection, controls, buffer: Vec::new() };
        if args.start_tls > 0 {
            session.start_tls(args.start_tls > 1, &tls)?;
        }
        session.bind(&credentials)?;
        if args.verbose && !args.quiet {
            eprintln!("{}", credentials.describe());
        }
        Ok(session)
    }

    /// StartTLS (RFC 4511 section 4.14). Unless it must, the session goes on without it where the server refuses.
    fn start_tls(&mut self, must: bool, tls: &TlsOptions) -> Result<(), ClientError> {
        if self.connection.is_secure() {
            return Err(ClientError::Usage(
                "-Z is for ldap://: with ldaps:// TLS is there already".to_owned(),
            ));
        }
        let reply = self.call(|out, id, _| client::extended(out, id, oid::START_TLS, None, &[]))?;
        if reply.result.code == ResultCode::SUCCESS {
            return self.connection.secure(tls);
        }
        let refused = ClientError::Refused { step: "ldap_start_tls", result: reply.result };
        if must {
            return Err(refused);
        }
        eprintln!("{refused}");
        Ok(())
    }

    fn bind(&mut self, credentials: &Credentials) -> Result<(), ClientError> {
        let (step, reply) = match credentials {
            Credentials::Simple { dn, password } => {
                ("ldap_bind", self.call(|out, id, _| client::simple_bind(out, id, dn, password, &[]))?)
            }
            Credentials::External { authorization } => (
                "ldap_sasl_bind(EXTERNAL)",
                self.call(|out, id, _| {
                    client::sasl_bind(out, id, "", "EXTERNAL", Some(authorization.as_bytes()), &[]);
                })?,
            ),
            Credentials::Sasl(sasl) => ("ldap_sasl_bind", sasl.bind(self)?),
        };
        if reply.result.code == ResultCode::SUCCESS {
            return Ok(());
        }
        Err(ClientError::Refused { step, result: reply.result })
    }

    /// Sends one request, written by `encode`, and waits for its result.
    pub(super) fn call(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>, MessageId, &[ControlBuf]),
    ) -> Result<Reply, ClientError> {
        let id = self.send(encode)?;
        loop {
            let message = self.connection.receive()?;
            if message.id != id {
                continue;
            }
            if let Some((_, result)) = message.response.result() {
                let value = match message.response {
                    Response::Extended { value, .. } => value.map(<[u8]>::to_vec),
                    Response::Bind { server_sasl, .. } => server_sasl.map(<[u8]>::to_vec),
                    _ => None,
                };
                let controls = message.controls.iter().map(|control| control.to_owned()).collect();
                return Ok(Reply { result: result.to_owned(), value, controls });
            }
        }
    }

    /// Sends one request without waiting.
    pub(super) fn send(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>, MessageId, &[ControlBuf]),
    ) -> Result<MessageId, ClientError> {
        let id = self.connection.next_id();
        self.buffer.clear();
        encode(&mut self.buffer, id, &self.controls);
        self.connection.send(&self.buffer)?;
        Ok(id)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Out of courtesy: the server sees the end of the connection as well.
        let _ = self.send(|out, id, _| client::unbind(out, id));
    }
}

impl Credentials {
    fn describe(&self) -> String {
        match self {
            Self::External { .. } => "bound by SASL EXTERNAL".to_owned(),
            Self::Sasl(sasl) => format!("bound by SASL {} as {}", sasl.mechanism.name(), sasl.user),
            Self::Simple { dn, .. } if dn.is_empty() => "anonymous".to_owned(),
            Self::Simple { dn, .. } => format!("bound as {dn}"),
        }
    }
}

/// Decides how to bind: as told; else EXTERNAL over a local socket; else anonymously.
pub(super) fn credentials(
    args: &CommonArgs,
    bind_dn: Option<String>,
    local: bool,
    certificate: bool,
    ask: &mut dyn FnMut(&str) -> Result<Vec<u8>, ClientError>,
) -> Result<Credentials, ClientError> {
    let external = match &args.mechanism {
        Some(mechanism) if mechanism.eq_ignore_ascii_case("EXTERNAL") && (local || certificate) => true,
        Some(mechanism) if mechanism.eq_ignore_ascii_case("EXTERNAL") => {
            return Err(ClientError::Usage(
                "-Y EXTERNAL needs a local socket (-H ldapi://%2Fpath) or a certificate (-o tls_cert=FILE)"
                    .to_owned(),
            ));
        }
        Some(mechanism) => {
            let mechanism = sasl::Mechanism::from_name(mechanism)?;
            let user = args
                .user
                .clone()
                .ok_or_else(|| ClientError::Usage(format!("-Y {}: -U names the user", mechanism.name())))?;
            let authorization = args.authorization.clone().unwrap_or_default();
            let password = match password(args, ask)? {
                Some(password) => password,
                None => ask("Please enter your password: ")?,
            };
            return Ok(Credentials::Sasl(SaslPassword { mechanism, user, authorization, password }));
        }
        None => local && !args.simple && bind_dn.is_none(),
    };
    if external {
        return Ok(Credentials::External { authorization: args.authorization.clone().unwrap_or_default() });
    }
    let password = password(args, ask)?.unwrap_or_default();
    Ok(Credentials::Simple { dn: bind_dn.unwrap_or_default(), password })
}

/// The password that the flags give, or have asked for.
fn password(
    args: &CommonArgs,
    ask: &mut dyn FnMut(&str) -> Result<Vec<u8>, ClientError>,
) -> Result<Option<Vec<u8>>, ClientError> {
    match (&args.password, &args.password_file) {
        (Some(password), _) => Ok(Some(password.clone().into_bytes())),
        (None, Some(path)) => fs::read(path)
            .map(Some)
            .map_err(|error| ClientError::Input { name: path.display().to_string(), why: error.to_string() }),
        (None, None) if args.prompt => ask("Enter LDAP Password: ").map(Some),
        (None, None) => Ok(None),
    }
}

/// Asks for a secret: on the terminal without echo, or by a line of standard input.
pub(super) fn ask(prompt: &str) -> Result<Vec<u8>, ClientError> {
    let fault = |error: io::Error| ClientError::Input { name: "password".to_owned(), why: error.to_string() };
    let stdin = io::stdin();
    let before = stdin.is_terminal().then(|| tcgetattr(&stdin).ok()).flatten();
    if let Some(before) = &before {
        eprint!("{prompt}");
        let _ = io::stderr().flush();
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Flush, &silent).map_err(|error| fault(error.into()))?;
    }
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    if let Some(before) = &before {
        tcsetattr(&stdin, OptionalActions::Flush, before).map_err(|error| fault(error.into()))?;
        eprintln!();
    }
    read.map_err(fault)?;
    Ok(line.trim_end_matches(['\r', '\n']).as_bytes().to_vec())
}
