//! Who the proxy is (`acl-bind`, `idassert-bind`), and whom it acts for.

use larix_client::{Credentials, Mechanism, SaslPassword};
use larix_proxy::settings::{Assertion, Identity, Mode, TargetTls, TlsBegins};
use zeroize::Zeroizing;

use super::super::super::builder::Builder;
use super::super::super::builder::call::{Call, Fault};
use super::super::super::values::{ConfigDn, TLS_KEYS};
use super::{MODES, Rule};
use larix_engine::access::posix_regex;

const MECHANISMS: &str = "PLAIN, EXTERNAL, DIGEST-MD5, SCRAM-SHA-1, SCRAM-SHA-256 or SCRAM-SHA-512, the last three with -PLUS, too";

/// Which of the two directives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Access,
    Assertion,
}

/// What such a line says.
#[derive(Debug, Default)]
pub(super) struct Bind {
    pub(super) identity: Identity,
    is_none: bool,
    mode: Option<Mode>,
    overrides: bool,
    non_prescriptive: bool,
    non_critical: bool,
    starts_tls: TlsBegins,
    tls: Vec<(String, String)>,
}

impl Bind {
    /// No identity is asserted.
    pub(super) fn assertion(self) -> Option<Assertion> {
        (!self.is_none).then(|| Assertion {
            identity: self.identity,
            mode: self.mode.unwrap_or_default(),
            overrides: self.overrides,
            prescriptive: !self.non_prescriptive,
            critical: !self.non_critical,
        })
    }
}

/// The words of a line by their keys.
#[derive(Default)]
struct Words {
    sasl: bool,
    has_method: bool,
    dn: String,
    password: Zeroizing<Vec<u8>>,
    mechanism: Option<String>,
    authentication: String,
    authorization: Option<String>,
    realm: String,
}

pub(super) fn parse(call: &Call<'_>, of: Of) -> Result<Bind, Fault> {
    let (mut words, mut bind) = (Words::default(), Bind::default());
    for (number, argument) in call.arguments.iter().enumerate() {
        let Some((key, value)) = argument.split_once('=') else {
            return Err(Fault::argument(number, "not key=value")
                .with_help("bindmethod=simple binddn=... credentials=..."));
        };
        let key = key.to_ascii_lowercase();
        if !words.apply(&key, value, number)? {
            bind.apply(of, &key, value, number)?;
        }
        if key == "bindmethod" && value.eq_ignore_ascii_case("none") {
            bind.is_none = true;
        }
    }
    // As in OpenLDAP, acl-bind is a simple bind unless it says otherwise.
    if !words.has_method && of != Of::Access {
        return Err(
            Fault::keyword("bindmethod= is missing").with_help("bindmethod=simple or bindmethod=sasl")
        );
    }
    if of == Of::Assertion && bind.mode.is_none() && !words.sasl {
        bind.mode = words.authorization.take().map(|identity| match identity.get(..2) {
            Some(head) if head.eq_ignore_ascii_case("u:") => Mode::Fixed(identity),
            Some(head) if head.eq_ignore_ascii_case("dn") && identity.get(2..3) == Some(":") => {
                Mode::Fixed(identity)
            }
            _ => Mode::Fixed(format!("dn:{identity}")),
        });
    }
    bind.identity.credentials = words.credentials()?;
    Ok(bind)
}

impl Words {
    /// Whether the key is one of a bind.
    fn apply(&mut self, key: &str, value: &str, number: usize) -> Result<bool, Fault> {
        match key {
            "bindmethod" => {
                self.has_method = true;
                self.sasl = match value.to_ascii_lowercase().as_str() {
                    "none" | "simple" => false,
                    "sasl" => true,
                    _ => {
                        let fault = Fault::argument(number, format!("no method `{value}`"));
                        return Err(fault.with_help("simple, sasl or none"));
                    }
                };
            }
            "binddn" => value.clone_into(&mut self.dn),
            "credentials" => self.password = value.as_bytes().to_vec().into(),
            "saslmech" => {
                if !value.eq_ignore_ascii_case("EXTERNAL") && Mechanism::from_name(value).is_err() {
                    return Err(
                        Fault::argument(number, format!("no mechanism `{value}`")).with_help(MECHANISMS)
                    );
                }
                self.mechanism = Some(value.to_ascii_uppercase());
            }
            "authcid" => value.clone_into(&mut self.authentication),
            "authzid" => self.authorization = Some(value.to_owned()),
            "realm" => value.clone_into(&mut self.realm),
            "secprops" => {
                let fault = Fault::argument(number, "security properties are not looked at here");
                return Err(fault.with_help("take it out; `tls start` protects the connection"));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn credentials(self) -> Result<Option<Credentials>, Fault> {
        if !self.sasl {
            let simple = Credentials::Simple { dn: self.dn.clone(), password: self.password };
            if let Credentials::Simple { dn, password } = &simple
                && !dn.is_empty()
                && password.is_empty()
            {
                // It would succeed, and be anonymous (RFC 4513 section 5.1.2).
                let fault = Fault::keyword("binddn= without credentials= is an unauthenticated bind");
                return Err(fault.with_help("give credentials=, or take binddn= out for an anonymous proxy"));
            }
            if let Credentials::Simple { dn, password } = &simple
                && dn.is_empty()
                && !password.is_empty()
            {
                let fault = Fault::keyword("credentials= without binddn= is an anonymous bind");
                return Err(fault.with_help("give binddn=, or take credentials= out for an anonymous proxy"));
            }
            return Ok((!self.dn.is_empty()).then_some(simple));
        }
        let authorization = self.authorization.unwrap_or_default();
        let Some(name) = self.mechanism else {
            return Err(Fault::keyword("bindmethod=sasl needs saslmech=").with_help(MECHANISMS));
        };
        if name == "EXTERNAL" {
            return Ok(Some(Credentials::External { authorization }));
        }
        let mechanism = Mechanism::from_name(&name).map_err(|error| Fault::keyword(error.to_string()))?;
        Ok(Some(Credentials::Sasl(SaslPassword {
            mechanism,
            user: self.authentication,
            authorization,
            realm: self.realm,
            password: self.password,
        })))
    }
}

impl Bind {
    fn apply(&mut self, of: Of, key: &str, value: &str, number: usize) -> Result<(), Fault> {
        match key {
            "starttls" => {
                self.starts_tls = match value.to_ascii_lowercase().as_str() {
                    "no" => TlsBegins::Never,
                    "yes" => TlsBegins::TryStart,
                    "critical" => TlsBegins::Start,
                    _ => {
                        let fault = Fault::argument(number, format!("starttls={value} cannot be"));
                        return Err(fault.with_help("no, yes or critical"));
                    }
                };
            }
            key if TLS_KEYS.contains(&key) => self.tls.push((key.to_owned(), value.to_owned())),
            "mode" if of == Of::Assertion => {
                let mode = MODES.iter().find(|(name, _)| name.eq_ignore_ascii_case(value));
                let Some((_, mode)) = mode else {
                    let fault = Fault::argument(number, format!("no mode `{value}`"));
                    return Err(
                        fault.with_help("legacy, none, self or anonymous; authzId= for a fixed identity")
                    );
                };
                self.mode = Some(mode.clone());
            }
            "authz" if of == Of::Assertion => {
                if !value.eq_ignore_ascii_case("proxyauthz") {
                    let fault =
                        Fault::argument(number, "identities are asserted by proxied authorization alone");
                    return Err(fault
                        .with_help("authz=proxyauthz; a fixed identity by SASL is authzId= with mode=none"));
                }
            }
            "flags" if of == Of::Assertion => {
                for flag in value.split(',').map(str::to_ascii_lowercase) {
                    self.flag(&flag, number)?;
                }
            }
            // slapd.d has them with the values of directives that stand beside them.
            "timeout" | "network-timeout" | "tcp-user-timeout" | "keepalive" => {
                if value.chars().any(|c| !matches!(c, '0' | ':')) {
                    let fault = Fault::argument(number, format!("{key}= is said once for all connections"));
                    return Err(fault.with_help(format!("write the directive `{key}` instead")));
                }
            }
            _ => {
                let fault = Fault::argument(number, format!("no key `{key}`"));
                return Err(fault.with_help(
                    "bindmethod, binddn, credentials, saslmech, authcId, authzId, realm, starttls, tls_*; of \
                     idassert-bind also mode, flags and authz",
                ));
            }
        }
        Ok(())
    }

    fn flag(&mut self, flag: &str, number: usize) -> Result<(), Fault> {
        match flag {
            "override" => self.overrides = true,
            "prescriptive" => self.non_prescriptive = false,
            "non-prescriptive" => self.non_prescriptive = true,
            "proxy-authz-critical" => self.non_critical = false,
            "proxy-authz-non-critical" => self.non_critical = true,
            "dn-authzid" | "dn-whoami" => {
                let fault =
                    Fault::argument(number, format!("flag {flag}: the target is not asked who the proxy is"));
                return Err(fault.with_help("take the flag out"));
            }
            _ => {
                let fault = Fault::argument(number, format!("no flag `{flag}`"));
                return Err(fault.with_help("override, [non-]prescriptive, proxy-authz-[non-]critical"));
            }
        }
        Ok(())
    }
}

/// One database has one way of TLS, wherever it is written.
pub(super) fn merge_tls(tls: &mut TargetTls, bind: &Bind) -> Result<(), Fault> {
    if tls.begins == TlsBegins::Never {
        tls.begins = bind.starts_tls;
    }
    for (key, value) in &bind.tls {
        match tls.options.iter().find(|(known, _)| known == key) {
            None => tls.options.push((key.clone(), value.clone())),
            Some((_, earlier)) if earlier == value => {}
            Some((_, earlier)) => {
                let fault = Fault::keyword(format!("{key}={value}, and {key}={earlier} before"));
                return Err(
                    fault.with_help("one database has one set of TLS settings: say it once, in `tls`")
                );
            }
        }
    }
    Ok(())
}

/// `*`, a DN, or `dn.<style>:` and a pattern.
pub(super) fn rule(builder: &mut Builder, call: &Call<'_>) -> Result<Rule, Fault> {
    let text = call.argument(0)?;
    let help = "*, dn:<DN>, dn.exact:, dn.onelevel:, dn.subtree:, dn.children: or dn.regex:";
    if text == "*" {
        return Ok(Rule::Everybody);
    }
    let lower = text.to_ascii_lowercase();
    let (style, pattern) = match lower.strip_prefix("dn") {
        Some(rest) if rest.starts_with(['.', ':']) => {
            let (style, pattern) = text.split_once(':').unwrap_or((text, ""));
            (style.get(3..).unwrap_or_default().to_ascii_lowercase(), pattern)
        }
        _ if ["u:", "u.", "group", "ldap:"].iter().any(|head| lower.starts_with(head)) => {
            let fault = Fault::argument(0, format!("`{text}`: who somebody is would have to be looked up"));
            return Err(fault.with_help(help));
        }
        _ => (String::new(), text),
    };
    match (pattern.trim_start_matches(' '), style.as_str()) {
        ("*", "") => return Ok(Rule::Everybody),
        ("*", "exact" | "onelevel" | "subtree" | "children" | "regex") => return Ok(Rule::Users),
        _ => {}
    }
    if style == "regex" {
        let regex = posix_regex(pattern, true);
        return regex.map(Rule::Regex).map_err(|error| Fault::argument(0, format!("`{pattern}`: {error}")));
    }
    let dn = ConfigDn::parse_relaxed(&builder.schema(), pattern)
        .map_err(|error| Fault::argument(0, format!("`{pattern}` is not a DN: {error}")).with_help(help))?;
    match style.as_str() {
        "" | "exact" | "base" => Ok(Rule::Exact(dn.normal)),
        "one" | "onelevel" => Ok(Rule::OneLevel(dn.normal)),
        "sub" | "subtree" => Ok(Rule::Subtree(dn.normal)),
        "children" => Ok(Rule::Children(dn.normal)),
        _ => Err(Fault::argument(0, format!("no style `{style}`")).with_help(help)),
    }
}
