//! `database ldap`: entries that another server has (slapd-ldap(5)).

mod identity;

use std::time::Duration;

use larix_client::{GivingUp, KeepAlive};
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_proxy::ProxySettings;
use larix_proxy::settings::{HealthCheck, IdentityRule, Kind, Mode, QuarantineStep, Timeouts, TlsBegins};

use super::super::builder::Builder;
use super::super::builder::call::{Call, Fault};
use super::super::builder::directive::{Directive, Form, MANY, Scope};
use super::super::diagnostic::{ConfigError, Origin};
use super::super::line::c_integer;
use super::super::model::{Config, Database};
use super::super::values::SyncData;
use super::{Descriptor, KindSettings, MetaSettings, NOTHING, Storage, meta};

/// The name of the kind.
pub(super) const NAME: &str = "ldap";

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: NAME,
    storage: Storage::OtherServer,
    class: Some("olcLDAPConfig"),
    settings: || Box::new(LdapSettings::default()),
    directives: TABLE,
    follows: true,
    ..NOTHING
};

/// Settings of `database ldap`.
#[derive(Clone, Debug, Default)]
pub struct LdapSettings {
    pub proxy: ProxySettings,
}

impl KindSettings for LdapSettings {
    fn check(&self, database: &Database) -> Result<(), ConfigError> {
        if self.proxy.targets.is_empty() {
            let error = ConfigError::new(database.origin.clone(), "an ldap database needs a `uri`");
            return Err(error.with_help("such as uri ldap://ldap.example.com"));
        }
        check(&self.proxy, &database.origin)
    }

    /// What is replicated is written past the overlays, entry by entry.
    fn refusals(&self, config: &Config, database: &Database, found: &mut Vec<ConfigError>) {
        let lines = &database.sync_replication;
        if lines.iter().any(|line| line.data != SyncData::Entries) {
            let message = "an ldap database follows the entries of its provider, not an access log";
            let help = "take `syncdata` and `logbase` out of its syncrepl line";
            found.push(ConfigError::new(database.origin.clone(), message).with_help(help));
        }
        let in_front = config.interceptors(Some(database), &mut |_| Ok(None));
        if !lines.is_empty() && in_front.is_ok_and(|in_front| in_front.stack().maps_names()) {
            let message =
                "what an ldap database replicates does not pass overlays that give entries other names";
            let help = "name the entries as the target has them, with `suffixmassage` in the syncrepl line";
            found.push(ConfigError::new(database.origin.clone(), message).with_help(help));
        }
    }
}

/// Checks what the settings of connections say together.
///
/// # Errors
/// TLS begun twice; rules of identity assertion without an identity.
pub(super) fn check(proxy: &ProxySettings, origin: &Origin) -> Result<(), ConfigError> {
    let refused =
        |message: &str, help: &str| Err(ConfigError::new(origin.clone(), message).with_help(help.to_owned()));
    let mut schemes = proxy.targets.iter().map(|url| url.scheme);
    if proxy.tls.begins != TlsBegins::Never && schemes.any(|scheme| scheme == UrlScheme::Ldaps) {
        let help = "write ldap:// for StartTLS, or `tls ldaps` for ldaps://";
        return refused("`tls start` is for ldap://: with ldaps:// TLS is there already", help);
    }
    if (!proxy.asserted.is_empty() || !proxy.passed.is_empty()) && proxy.assertion.is_none() {
        let help = "say with `idassert-bind` who the proxy is, or take the rules out";
        return refused("rules of identity assertion without `idassert-bind`", help);
    }
    Ok(())
}

const fn own(
    keyword: &'static str,
    attribute: &'static str,
    form: Form,
    apply: super::super::builder::directive::Apply,
) -> Directive {
    Directive::new(keyword, attribute, Scope::Kind("ldap"), form, apply)
}

static TABLE: &[Directive] = &[
    own("uri", "olcDbURI", Form::Words, uri),
    own("tls", "olcDbStartTLS", Form::Words, tls),
    own("acl-bind", "olcDbACLBind", Form::Words, |b, c| {
        let bind = identity::parse(c, identity::Of::Access)?;
        let proxy = proxy(b)?;
        identity::merge_tls(&mut proxy.tls, &bind)?;
        proxy.acl_bind = Some(bind.identity);
        Ok(())
    }),
    own("idassert-bind", "olcDbIDAssertBind", Form::Words, |b, c| {
        let bind = identity::parse(c, identity::Of::Assertion)?;
        let proxy = proxy(b)?;
        identity::merge_tls(&mut proxy.tls, &bind)?;
        proxy.assertion = bind.assertion();
        Ok(())
    }),
    own("idassert-authzFrom", "olcDbIDAssertAuthzFrom", Form::Words, |b, c| {
        let rule = identity::rule(b, c)?;
        proxy(b)?.asserted.push(rule);
        Ok(())
    })
    .arguments(1, 1)
    .ordered(),
    own("idassert-passThru", "olcDbIDAssertPassThru", Form::Words, |b, c| {
        let rule = identity::rule(b, c)?;
        proxy(b)?.passed.push(rule);
        Ok(())
    })
    .arguments(1, 1)
    .ordered(),
    own("rebind-as-user", "olcDbRebindAsUser", Form::Switch, |b, c| {
        proxy(b)?.rebind_as_user = c.switch()?;
        Ok(())
    })
    .arguments(0, 1),
    own("chase-referrals", "olcDbChaseReferrals", Form::Switch, |b, c| {
        let chase = c.switch()?;
        if chase && b.is_below_overlay() && !b.is_below_referrals() {
            b.note_without_effect(c, "chase-referrals yes", "referrals are handed to the client here");
        }
        // Below chain it is `chain-max-depth` that says how far.
        proxy(b)?.chase_referrals = chase && !b.is_below_overlay();
        Ok(())
    }),
    own("t-f-support", "olcDbTFSupport", Form::Whole, |b, c| {
        proxy(b)?.absolute_filters = absolute_filters(b, c)?;
        Ok(())
    }),
    own("proxy-whoami", "olcDbProxyWhoAmI", Form::Switch, |b, c| {
        let asks = c.switch()?;
        if asks && b.is_below_overlay() {
            return Err(not_honoured("Who am I? is answered here", "no"));
        }
        proxy(b)?.proxies_who_am_i = asks;
        Ok(())
    }),
    own("timeout", "olcDbTimeout", Form::Words, timeout),
    own("idle-timeout", "olcDbIdleTimeout", Form::Whole, |b, c| {
        proxy(b)?.idle_timeout = some_time(c)?;
        Ok(())
    }),
    own("conn-ttl", "olcDbConnTtl", Form::Whole, |b, c| {
        proxy(b)?.connection_ttl = some_time(c)?;
        Ok(())
    }),
    own("network-timeout", "olcDbNetworkTimeout", Form::Whole, |b, c| {
        proxy(b)?.network_timeout = some_time(c)?;
        Ok(())
    }),
    own("protocol-version", "olcDbProtocolVersion", Form::Whole, |b, c| {
        let version: u8 = c.number(0)?;
        if !matches!(version, 0 | 3) {
            return Err(Fault::argument(0, format!("version {version} of LDAP is not spoken to targets"))
                .with_help("3, or 0 for the client's own, which is 3 as well"));
        }
        proxy(b).map(|_| ())
    }),
    own("single-conn", "olcDbSingleConn", Form::Switch, |b, c| {
        c.switch()?;
        proxy(b).map(|_| ())
    })
    .noted("a client that binds anew has no connection of its old identity"),
    own("cancel", "olcDbCancel", Form::Whole, |b, c| {
        let ways = [
            ("abandon", GivingUp::Abandon),
            ("exop", GivingUp::Cancel),
            ("exop-discover", GivingUp::Abandon),
            ("ignore", GivingUp::Silent),
        ];
        proxy(b)?.giving_up = c.choice(0, &ways)?;
        if c.argument(0)?.eq_ignore_ascii_case("exop-discover") {
            let why = "targets are not asked; operations are abandoned, as with `abandon`";
            b.note_without_effect(c, "cancel exop-discover", why);
        }
        Ok(())
    }),
    own("quarantine", "olcDbQuarantine", Form::Whole, quarantine),
    own("health-check", "olcLarixDbHealthCheck", Form::Words, health_check).arguments(1, 2),
    own("use-temporary-conn", "olcDbUseTemporaryConn", Form::Switch, |b, c| {
        c.switch()?;
        proxy(b).map(|_| ())
    })
    .noted("requests go beside each other on one connection: nobody waits for it"),
    own("conn-pool-max", "olcDbConnectionPoolMax", Form::Whole, |b, c| {
        let most: u32 = c.positive(0)?;
        if most > POOL_CEILING {
            let fault = Fault::argument(0, format!("{most} connections of one identity are too many"));
            return Err(fault.with_help(format!("from 1 to {POOL_CEILING}; requests share connections")));
        }
        proxy(b)?.pool_max = most;
        Ok(())
    }),
    own("session-tracking-request", "olcDbSessionTrackingRequest", Form::Switch, |b, c| {
        proxy(b)?.session_tracking = c.switch()?;
        Ok(())
    }),
    own("norefs", "olcDbNoRefs", Form::Switch, |b, c| {
        proxy(b)?.no_references = c.switch()?;
        Ok(())
    }),
    own("noundeffilter", "olcDbNoUndefFilter", Form::Switch, |b, c| {
        proxy(b)?.no_undefined_filter = c.switch()?;
        Ok(())
    }),
    own("onerr", "olcDbOnErr", Form::Whole, |b, c| {
        let passes_over = c.choice(0, &[("stop", false), ("report", false), ("continue", true)])?;
        if passes_over && !b.is_below_referrals() {
            let why = "a search whose target is lost midway ends with the error, never as if it were whole";
            b.note_without_effect(c, "onerr continue", why);
        }
        proxy(b).map(|_| ())
    }),
    own("omit-unknown-schema", "olcDbRemoveUnknownSchema", Form::Switch, |b, c| {
        proxy(b)?.omit_unknown_schema = c.switch()?;
        Ok(())
    })
    .alias(&["remove-unknown-schema"]),
    own("keepalive", "olcDbKeepalive", Form::Whole, |b, c| {
        let Some(keep_alive) = KeepAlive::parse(c.argument(0)?) else {
            return Err(
                Fault::argument(0, "not three numbers").with_help("idle:probes:interval, such as 240:10:30")
            );
        };
        proxy(b)?.keep_alive = Some(keep_alive);
        Ok(())
    }),
    own("tcp-user-timeout", "olcDbTcpUserTimeout", Form::Whole, |b, c| {
        let millis: u32 = c.number(0)?;
        proxy(b)?.user_timeout = (millis > 0).then(|| Duration::from_millis(millis.into()));
        Ok(())
    }),
    refused("acl-authcDN", "write acl-bind bindmethod=simple binddn=... credentials=..."),
    refused("acl-passwd", "write acl-bind bindmethod=simple binddn=... credentials=..."),
    refused("binddn", "write idassert-bind bindmethod=simple binddn=... credentials=..."),
    refused("bindpw", "write idassert-bind bindmethod=simple binddn=... credentials=..."),
    refused("suffixmassage", "write `overlay rwm` and `rwm-suffixmassage`"),
    refused("rewriteEngine", "write `overlay rwm` and `rwm-rewriteEngine`"),
    refused("map", "write `overlay rwm` and `rwm-map`"),
];

/// How long a target may take to answer a health check, unless that says otherwise.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections of one identity at most.
pub(super) const POOL_CEILING: u32 = 256;

const fn refused(keyword: &'static str, instead: &'static str) -> Directive {
    Directive::kept(keyword, "", Scope::Kind("ldap"), Form::Words).arguments(0, MANY).refused(instead)
}

fn proxy(builder: &mut Builder) -> Result<&mut ProxySettings, Fault> {
    if builder.database().is_some_and(|database| database.kind.settings::<MetaSettings>().is_some()) {
        return meta::proxy(builder);
    }
    Ok(&mut builder.settings_of::<LdapSettings>()?.proxy)
}

/// Whether the targets know the filters `(&)` and `(|)`. To `discover` it, targets are not asked: all of them understand what is written
/// out.
pub(super) fn absolute_filters(builder: &mut Builder, call: &Call<'_>) -> Result<bool, Fault> {
    let words = [("yes", true), ("true", true), ("no", false), ("false", false), ("discover", false)];
    let known = call.choice(0, &words)?;
    if call.argument(0)?.eq_ignore_ascii_case("discover") && !builder.is_below_referrals() {
        let why = "targets are not asked; (&) and (|) are written out, as with `no`";
        builder.note_without_effect(call, "t-f-support discover", why);
    }
    Ok(known)
}

fn not_honoured(why: &str, instead: &str) -> Fault {
    Fault::argument(0, why.to_owned()).with_help(format!("say `{instead}`, or take the line out"))
}

fn uri(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    proxy(builder)?.targets = targets(call.arguments)?;
    Ok(())
}

/// The servers of a `uri` line.
pub(crate) fn targets(arguments: &[String]) -> Result<Vec<LdapUrl>, Fault> {
    let mut targets = Vec::new();
    for (number, argument) in arguments.iter().enumerate() {
        for text in argument.split([' ', ',', '\t']).filter(|text| !text.is_empty()) {
            let wrong = |why: String| {
                Fault::argument(number, why).with_help("ldap://host:389, ldaps://host or ldapi://%2Fpath")
            };
            let url = LdapUrl::parse_server(text).map_err(|error| wrong(format!("`{text}`: {error}")))?;
            check_scheme(&url).map_err(|why| wrong(format!("`{text}` {why}")))?;
            if !url.dn.is_empty() {
                return Err(wrong(format!("`{text}`: a uri names a server and no entry")));
            }
            targets.push(url);
        }
    }
    Ok(targets)
}

/// # Errors
/// A URL of a server that is not spoken to.
pub(super) fn check_scheme(url: &LdapUrl) -> Result<(), &'static str> {
    match url.scheme {
        UrlScheme::Ldap | UrlScheme::Ldaps | UrlScheme::Ldapi => Ok(()),
        _ => Err("is no server that this one can speak to"),
    }
}

fn tls(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let (begins, options) = tls_of(call.arguments)?;
    let proxy = proxy(builder)?;
    proxy.tls.begins = begins;
    proxy.tls.options = options;
    Ok(())
}

/// What a `tls` line says: how TLS begins, and its settings.
pub(crate) fn tls_of(arguments: &[String]) -> Result<(TlsBegins, Vec<(String, String)>), Fault> {
    let word = arguments.first().map(|word| word.to_ascii_lowercase()).unwrap_or_default();
    let begins = match word.as_str() {
        "none" | "ldaps" => TlsBegins::Never,
        "start" => TlsBegins::Start,
        "try-start" => TlsBegins::TryStart,
        "propagate" | "try-propagate" => {
            let why = "connections are shared by clients with and without TLS";
            return Err(Fault::argument(0, why).with_help("start: TLS for all of them"));
        }
        _ => {
            let fault = Fault::argument(0, format!("`{word}` is not known here"));
            return Err(fault.with_help("one of none, start, try-start, ldaps"));
        }
    };
    let mut options = Vec::new();
    for (number, argument) in arguments.iter().enumerate().skip(1) {
        let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
        let key = key.to_ascii_lowercase();
        // The first word says so.
        if key == "starttls" {
            continue;
        }
        if !super::super::values::TLS_KEYS.contains(&key.as_str()) {
            let fault = Fault::argument(number, format!("no setting `{key}` of TLS"));
            return Err(fault.with_help(super::super::values::TLS_KEYS.join(", ")));
        }
        options.push((key, value.to_owned()));
    }
    Ok((begins, options))
}

/// Seconds, or `1d2h3m4s`.
pub(crate) fn time(text: &str, number: usize) -> Result<Duration, Fault> {
    let wrong = || {
        Fault::argument(number, format!("`{text}` is not a time")).with_help("such as 30, 90s, 5m or 1h30m")
    };
    let (mut seconds, mut rest) = (0u64, text);
    if text.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (count, tail) = rest.split_at(digits);
        let count: u64 = count.parse::<u32>().map_err(|_| wrong())?.into();
        let unit = match tail.chars().next().map(|unit| unit.to_ascii_lowercase()) {
            None | Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3_600,
            Some('d') => 86_400,
            Some('w') => 604_800,
            Some(_) => return Err(wrong()),
        };
        seconds = seconds.saturating_add(count * unit);
        rest = tail.get(1..).unwrap_or_default();
    }
    Ok(Duration::from_secs(seconds))
}

/// None for 0.
fn some_time(call: &Call<'_>) -> Result<Option<Duration>, Fault> {
    time(call.argument(0)?, 0).map(|time| Some(time).filter(|time| !time.is_zero()))
}

fn timeout(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let mut timeouts = Timeouts::default();
    for (number, argument) in call.arguments.iter().enumerate() {
        let (name, text) = argument.split_once('=').map_or((None, argument.as_str()), |(n, t)| (Some(n), t));
        // slapd reads these as C does, other times of the database in decimal digits and with units.
        let seconds = c_integer(text).and_then(|seconds| u32::try_from(seconds).ok());
        let time =
            seconds.map_or_else(|| time(text, number), |count| Ok(Duration::from_secs(count.into())))?;
        let time = Some(time).filter(|time| !time.is_zero());
        match name {
            None => {
                Timeouts::NAMES.iter().for_each(|(_, kind)| timeouts.set(*kind, time));
                timeouts.set(Kind::Extended, time);
            }
            Some(name) => {
                let kind = Timeouts::NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
                let (_, kind) = kind.ok_or_else(|| {
                    let names: Vec<&str> = Timeouts::NAMES.iter().map(|(name, _)| *name).collect();
                    Fault::argument(number, format!("no operation `{name}`")).with_help(names.join(", "))
                })?;
                timeouts.set(*kind, time);
            }
        }
    }
    proxy(builder)?.timeouts = timeouts;
    Ok(())
}

/// How often, and how long an answer may take.
fn health_check(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let mut times = Vec::new();
    for (number, argument) in call.arguments.iter().enumerate() {
        let found = time(argument, number)?;
        if found.is_zero() {
            return Err(
                Fault::argument(number, "a time of 0").with_help("an interval and a timeout, such as 5 2")
            );
        }
        times.push(found);
    }
    let interval = times.first().copied().unwrap_or(HEALTH_TIMEOUT);
    let timeout = times.get(1).copied().unwrap_or(HEALTH_TIMEOUT);
    proxy(builder)?.health_check = Some(HealthCheck { interval, timeout });
    Ok(())
}

fn quarantine(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    proxy(builder)?.quarantine = quarantine_of(call.argument(0)?)?;
    Ok(())
}

/// The steps of a `quarantine` line.
pub(crate) fn quarantine_of(text: &str) -> Result<Vec<QuarantineStep>, Fault> {
    let mut steps = Vec::new();
    let wrong = |why: String| {
        Fault::argument(0, why).with_help("interval,times;..., the last times + for ever, such as 5,10;60,+")
    };
    let pairs: Vec<&str> = text.split(';').collect();
    for (number, pair) in pairs.iter().enumerate() {
        let (interval, times) = pair.split_once(',').ok_or_else(|| wrong(format!("`{pair}` is no pair")))?;
        let interval = time(interval, 0)?;
        let times = match times {
            "+" if number + 1 == pairs.len() => None,
            "+" => return Err(wrong("`+` stands before the last".to_owned())),
            times => {
                let count = times.parse().ok().filter(|times| *times > 0);
                Some(count.ok_or_else(|| wrong(format!("`{times}` is no number of times")))?)
            }
        };
        if interval.is_zero() {
            return Err(wrong("an interval of 0".to_owned()));
        }
        steps.push(QuarantineStep { interval, times });
    }
    Ok(steps)
}

/// The values of settings about identities, for the rows above.
type Rule = IdentityRule;
/// As `mode=` names them.
const MODES: [(&str, Mode); 4] =
    [("legacy", Mode::Legacy), ("none", Mode::None), ("self", Mode::Itself), ("anonymous", Mode::Anonymous)];

#[cfg(test)]
mod tests;
