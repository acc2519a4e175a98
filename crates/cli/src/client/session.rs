//! A bound connection, and calls that have one answer.

use std::fs;
use std::io;
use std::sync::OnceLock;

use larix_client::{
    Ambient, ClientError, ConnectionOptions, Credentials, LdapConf, Mechanism, Origin, SaslPassword, Session,
    Setting, TlsOptions,
};
use larix_engine::time::RandomSource as _;
use larix_proto::ResultCode;
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_server::clock::SystemRandom;
use larix_server::tls::end_point_binding;
use zeroize::Zeroizing;

use super::controls;
use super::options::{CommonArgs, named_server};
use crate::terminal::{self, Otherwise};

/// Connects and binds, as the command line says.
pub(super) fn open(args: &CommonArgs) -> Result<Session, ClientError> {
    open_with(args, Otherwise::StandardInput)
}

/// What the files of ldap.conf(5) and the environment say, read once.
pub(super) fn ldap_conf() -> &'static LdapConf {
    static CONF: OnceLock<LdapConf> = OnceLock::new();
    CONF.get_or_init(LdapConf::gather)
}

/// The same; `otherwise` says whether a password may be read from standard input where there is no terminal.
pub(super) fn open_with(args: &CommonArgs, otherwise: Otherwise) -> Result<Session, ClientError> {
    let conf = ldap_conf();
    let opened = connect(args, &args.urls(conf)?, otherwise);
    if args.names_server() {
        return opened;
    }
    opened.map_err(|error| match named_server(conf) {
        Some(setting) => name_the_place(error, setting),
        None => name_a_server(error),
    })
}

/// Who names no server asks one at port 389, where a newcomer's does not listen.
pub(super) fn name_a_server(error: ClientError) -> ClientError {
    add_to_connect(
        error,
        &format!(
            "no server was named: -H or LDAPURI does, as in -H {} for what `larix serve --suffix` serves",
            crate::serve::QUICK_START_URL
        ),
    )
}

/// A file that somebody else wrote may have named the server.
pub(super) fn name_the_place(error: ClientError, setting: &Setting) -> ClientError {
    match setting.origin {
        Origin::File { .. } => {
            add_to_connect(error, &format!("{} names this server; -H names another one", setting.place()))
        }
        Origin::Environment => error,
    }
}

fn add_to_connect(error: ClientError, more: &str) -> ClientError {
    let ClientError::Connect { url, source } = error else { return error };
    let text = format!("{source}; {more}");
    ClientError::Connect { url, source: io::Error::new(source.kind(), text) }
}

/// Connects to the first of these servers that answers, and binds.
pub(super) fn open_at(args: &CommonArgs, urls: &[LdapUrl]) -> Result<Session, ClientError> {
    connect(args, urls, Otherwise::StandardInput)
}

fn connect(args: &CommonArgs, urls: &[LdapUrl], otherwise: Otherwise) -> Result<Session, ClientError> {
    let conf = ldap_conf();
    let tls = TlsOptions::gather(&args.settings, conf);
    let local = urls.first().is_some_and(|url| url.scheme == UrlScheme::Ldapi);
    let named_mechanism = args.mechanism.is_some();
    let given = args;
    let args = &args.with_defaults(conf);
    check_identity(given, args, local)?.iter().for_each(|remark| eprintln!("larix: {remark}"));
    let mut ask = |prompt: &str| prompt_for(prompt, otherwise);
    let credentials = credentials(args, local, tls.has_certificate(), &mut ask).map_err(|error| {
        match (error, conf.get("SASL_MECH")) {
            (ClientError::Usage(text), Some(setting)) if !named_mechanism => {
                ClientError::Usage(format!("{text} ({setting}; -x is a simple bind)"))
            }
            (error, _) => error,
        }
    })?;
    let controls = controls::common(args)?;
    let connect_timeout = args.connect_timeout(conf)?;
    let options = ConnectionOptions { connect_timeout, ..ConnectionOptions::default() };
    let ambient = Ambient { random: |bytes| SystemRandom.fill(bytes), end_point_binding };
    let mut session = Session::connect(urls, &options, &tls, ambient)?;
    session.controls = controls;
    if args.start_tls > 0
        && let Some(result) = session.start_tls(&tls)?
    {
        // Unless it must, the session goes on without it where the server refuses.
        let is_unknown = result.code == ResultCode::PROTOCOL_ERROR;
        let refused = ClientError::Refused { step: "ldap_start_tls", result };
        if args.start_tls > 1 {
            if !is_unknown {
                return Err(refused);
            }
            let advice =
                "the server has no TLS: give it a certificate (TLSCertificateFile; larix serve --tls-cert)";
            return Err(ClientError::Advised { error: Box::new(refused), advice: advice.to_owned() });
        }
        eprintln!("{refused}");
    }
    session.bind(&credentials).map_err(|error| name_what_lacks(name_line_end(error, args), &credentials))?;
    if args.verbose && !args.quiet {
        eprintln!("{}", credentials.describe());
    }
    Ok(session)
}

/// Who types a login in the place of a DN, or no password, is answered with a syntax and a policy.
pub(super) fn name_what_lacks(error: ClientError, credentials: &Credentials) -> ClientError {
    let ClientError::Refused { result, .. } = &error else { return error };
    let advice = match (result.code, credentials) {
        (ResultCode::INVALID_DN_SYNTAX, Credentials::Simple { dn, .. }) if !dn.contains('=') => {
            format!("{dn:?} is no DN: -D takes the whole name, such as uid=ann,ou=people,dc=example,dc=com")
        }
        (ResultCode::UNWILLING_TO_PERFORM, Credentials::Simple { dn, password })
            if password.is_empty() && !dn.is_empty() =>
        {
            "no password was given: -W asks for it".to_owned()
        }
        (ResultCode::INVALID_CREDENTIALS, Credentials::Simple { dn, .. }) if is_short_of_suffix(dn) => {
            format!("{dn:?} has one part: -D takes the whole name, such as cn=admin,dc=example,dc=com")
        }
        _ => return error,
    };
    ClientError::Advised { error: Box::new(error), advice }
}

/// Names of one part with which administrators do log in.
const WHOLE_NAMES: [&str; 2] = ["cn=config", "cn=monitor"];

/// Whether a DN looks like the first part of one.
fn is_short_of_suffix(dn: &str) -> bool {
    dn.contains('=') && !dn.contains(',') && !WHOLE_NAMES.iter().any(|whole| dn.eq_ignore_ascii_case(whole))
}

/// A password file that an editor or `echo` wrote ends in a line end, which is a part of the password.
fn name_line_end(error: ClientError, args: &CommonArgs) -> ClientError {
    let is_wrong = matches!(&error, ClientError::Refused { result, .. } if result.code == ResultCode::INVALID_CREDENTIALS);
    let Some(path) = args.password_file.as_ref().filter(|_| is_wrong) else { return error };
    if !fs::read(path).is_ok_and(|password| password.ends_with(b"\n")) {
        return error;
    }
    let advice = format!(
        "{} ends in a line end, which is a part of the password: write it with printf",
        path.display()
    );
    ClientError::Advised { error: Box::new(error), advice }
}

/// Whether the command line binds no identity at this server.
pub(super) fn is_anonymous(args: &CommonArgs, url: &LdapUrl) -> bool {
    let args = args.with_defaults(ldap_conf());
    let external = url.scheme == UrlScheme::Ldapi && !args.simple;
    args.mechanism.is_none() && !external && args.bind_dn.is_none_or(|dn| dn.is_empty())
}

/// Whether the flags name who binds. `args` are those `given` with what files and the environment add. Answers a remark about a password
/// that is there for nobody: with `-x` that is an anonymous bind, as with OpenLDAP's tools.
///
/// # Errors
/// Names for SASL, which a simple bind has no use for. A password without a name and without `-x`: OpenLDAP's tools make a SASL bind then,
/// and an anonymous bind would pass for it.
pub(super) fn check_identity(
    given: &CommonArgs,
    args: &CommonArgs,
    local: bool,
) -> Result<Option<&'static str>, ClientError> {
    if args.mechanism.is_some() || binds_external(args, local) {
        return Ok(None);
    }
    for (flag, name) in [("-U", &given.user), ("-X", &given.authorization)] {
        if let Some(name) = name {
            let text = format!(
                "{flag} {name} is a name for SASL: -Y names the mechanism, or -D a DN in place of it"
            );
            return Err(ClientError::Usage(text));
        }
    }
    if args.bind_dn.is_some() || !given.gives_password() {
        return Ok(None);
    }
    if given.simple {
        return Ok(Some("a password, and no name: this bind is anonymous; -D names the DN"));
    }
    let text = "a password, and no name: -D names the DN, or -Y a mechanism and -U the user";
    Err(ClientError::Usage(text.to_owned()))
}

/// Whether the kernel says who asks: over a local socket, unless somebody else is named.
fn binds_external(args: &CommonArgs, local: bool) -> bool {
    local && !args.simple && args.bind_dn.is_none()
}

/// Decides how to bind: as told; else EXTERNAL over a local socket; else anonymously.
pub(super) fn credentials(
    args: &CommonArgs,
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
            let mechanism = Mechanism::from_name(mechanism)?;
            let (authorization, realm) = (args.authorization.clone().unwrap_or_default(), String::new());
            if !mechanism.takes_password() {
                let (user, password) = Default::default();
                return Ok(Credentials::Sasl(SaslPassword {
                    mechanism,
                    user,
                    authorization,
                    realm,
                    password,
                }));
            }
            let user = args
                .user
                .clone()
                .ok_or_else(|| ClientError::Usage(format!("-Y {}: -U names the user", mechanism.name())))?;
            let password = match password(args, ask)? {
                Some(password) => password,
                None => ask("Please enter your password: ")?,
            };
            let password = Zeroizing::new(password);
            return Ok(Credentials::Sasl(SaslPassword { mechanism, user, authorization, realm, password }));
        }
        None => binds_external(args, local),
    };
    if external {
        return Ok(Credentials::External { authorization: args.authorization.clone().unwrap_or_default() });
    }
    let password = Zeroizing::new(password(args, ask)?.unwrap_or_default());
    Ok(Credentials::Simple { dn: args.bind_dn.clone().unwrap_or_default(), password })
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

/// Asks for a secret on the terminal, without echo; without a terminal, by a line of standard input.
pub(super) fn ask(prompt: &str) -> Result<Vec<u8>, ClientError> {
    prompt_for(prompt, Otherwise::StandardInput)
}

fn prompt_for(prompt: &str, otherwise: Otherwise) -> Result<Vec<u8>, ClientError> {
    terminal::secret(prompt, otherwise)
        .map_err(|error| ClientError::Input { name: "password".to_owned(), why: error.to_string() })
}
