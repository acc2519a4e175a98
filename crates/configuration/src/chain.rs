//! `overlay chain` (slapo-chain(5)): referrals that are followed for the client. Its own directives begin with `chain-`; so do those of
//! slapd-ldap(5), which hold for the server of the `chain-uri` line before them or, before the first, for all. Under cn=config each such
//! server is an entry below the overlay's.

use std::time::Duration;

use larix_proxy::ProxySettings;
use larix_proxy::chain::{Behavior, Wish};

use super::builder::call::{At, Call, Fault};
use super::builder::directive::{Directive, Form, Scope};
use super::builder::{Builder, Section};
use super::diagnostic::{ConfigError, Origin};
use super::directives;
use super::kinds::{DatabaseKind, LdapSettings, SERVER_KIND};
use super::model::{CommonSettings, Database, Overlay};
use super::settings::Settings;

/// The overlay's name.
pub(super) const NAME: &str = "chain";
/// The class of the entries below it.
pub(super) const SERVER_CLASS: &str = "olcChainDatabase";
/// What may stand before the first `chain-uri`, as in OpenLDAP.
const COMMON: [&str; 6] =
    ["timeout", "tls", "rebind-as-user", "chase-referrals", "t-f-support", "proxy-whoami"];
/// What OpenLDAP writes beyond that into the first entry of each slapd.d: it holds anyway.
const SHOWN_IN_FIRST: [(&str, &str); 12] = [
    ("olcDbCancel", "abandon"),
    ("olcDbConnectionPoolMax", "16"),
    ("olcDbKeepalive", "0:0:0"),
    ("olcDbNoRefs", "FALSE"),
    ("olcDbNoUndefFilter", "FALSE"),
    ("olcDbOnErr", "continue"),
    ("olcDbProtocolVersion", "3"),
    ("olcDbRemoveUnknownSchema", "FALSE"),
    ("olcDbSessionTrackingRequest", "FALSE"),
    ("olcDbSingleConn", "FALSE"),
    ("olcDbTcpUserTimeout", "0"),
    ("olcDbUseTemporaryConn", "FALSE"),
];
/// What stands before each of them in slapd.conf.
pub(super) const PREFIX: &str = "chain-";
/// Servers of one overlay.
const SERVERS_MAX: usize = 64;

const fn own(
    keyword: &'static str,
    attribute: &'static str,
    form: Form,
    apply: super::builder::directive::Apply,
) -> Directive {
    Directive::new(keyword, attribute, Scope::Overlay(NAME), form, apply)
}

pub(super) static TABLE: &[Directive] = &[
    own("chain-chaining", "olcChainingBehavior", Form::Words, |_, c| behavior(c.arguments).map(|_| ())),
    own("chain-cache-uri", "olcChainCacheURI", Form::Switch, |_, c| c.switch().map(|_| ()))
        .noted("connections to servers without settings of their own are kept for a minute either way"),
    own("chain-max-depth", "olcChainMaxReferralDepth", Form::Whole, |_, c| {
        let depth: u32 = c.number(0)?;
        match depth > DEPTH_CEILING {
            true => Err(Fault::argument(0, format!("{depth} referrals in a row are too many"))
                .with_help(format!("up to {DEPTH_CEILING}"))),
            false => Ok(()),
        }
    }),
    own("chain-return-error", "olcChainReturnError", Form::Switch, |_, c| c.switch().map(|_| ())),
    own("chain-wait-replicated", "olcLarixChainWaitReplicated", Form::Whole, |_, c| {
        let seconds: u32 = c.number(0)?;
        match seconds > WAIT_CEILING {
            true => Err(Fault::argument(0, format!("{seconds} seconds are too long for an answer to wait"))
                .with_help(format!("up to {WAIT_CEILING}; 0 for no wait"))),
            false => Ok(()),
        }
    }),
    // Anything that an ldap database takes, with `chain-` before it.
    own("chain-uri", "", Form::Command, of_server).prefix(6),
];

/// Referrals that may follow one another at most.
const DEPTH_CEILING: u32 = 32;
/// Seconds that an answer may wait for replication at most.
const WAIT_CEILING: u32 = 300;

/// What the overlay does.
#[derive(Debug, Clone)]
pub struct ChainSettings {
    /// Each with one target.
    pub servers: Vec<ProxySettings>,
    /// Of all others.
    pub unlisted: ProxySettings,
    pub depth_max: u32,
    pub return_error: bool,
    pub behavior: Option<Behavior>,
    /// How long the answer to a change of a shadow waits until the change has come back.
    pub wait_replicated: Option<Duration>,
}

impl Overlay {
    /// The settings of `overlay chain`; none of another one.
    pub fn chain(&self) -> Option<ChainSettings> {
        if self.name != NAME || self.disabled {
            return None;
        }
        let text = |attribute: &str| {
            let value = self.settings.get(attribute).first();
            value.map(|value| String::from_utf8_lossy(value).into_owned())
        };
        let proxies = || self.below.iter().filter_map(|database| database.kind.settings::<LdapSettings>());
        let proxies = proxies().map(|settings| settings.proxy.clone());
        let (servers, common): (Vec<_>, Vec<_>) = proxies.partition(|proxy| !proxy.targets.is_empty());
        let number = |attribute: &str| text(attribute).and_then(|text| text.parse::<u32>().ok());
        let depth_max = number("olcChainMaxReferralDepth").unwrap_or(1);
        let wait = number("olcLarixChainWaitReplicated").filter(|seconds| *seconds > 0);
        let words: Option<Vec<String>> =
            text("olcChainingBehavior").map(|text| text.split_whitespace().map(str::to_owned).collect());
        Some(ChainSettings {
            servers,
            unlisted: common.into_iter().next().unwrap_or_default(),
            depth_max: u32::max(depth_max, 1),
            return_error: text("olcChainReturnError").is_some_and(|text| text.eq_ignore_ascii_case("TRUE")),
            behavior: words.and_then(|words| behavior(&words).ok()),
            wait_replicated: wait.map(|seconds| Duration::from_secs(seconds.into())),
        })
    }

    /// Checks the servers below it.
    pub(super) fn check_below(&self) -> Result<(), ConfigError> {
        if self.name != NAME {
            // The one server of another overlay may have several URIs, and none yet.
            let has_uri = |database: &&Database| {
                database.kind.settings::<LdapSettings>().is_some_and(|own| !own.proxy.targets.is_empty())
            };
            return self.below.iter().filter(has_uri).try_for_each(|database| database.kind.check(database));
        }
        let mut known: Vec<&larix_proto::url::LdapUrl> = Vec::new();
        for (number, database) in self.below.iter().enumerate() {
            let Some(settings) = database.kind.settings::<LdapSettings>() else { continue };
            let refused = |message: &str, help: &str| {
                Err(ConfigError::new(database.origin.clone(), message).with_help(help.to_owned()))
            };
            match settings.proxy.targets.as_slice() {
                [] if number == 0 => continue,
                [] => return refused("a server to chain to has no URI", "such as ldap://ldap.example.com"),
                [url] if known.contains(&url) => {
                    return refused(&format!("{url} is there already"), "put its settings together");
                }
                [url] => known.push(url),
                _ => return refused("a server to chain to has one URI", "write one section for each"),
            }
            database.kind.check(database)?;
        }
        Ok(())
    }
}

/// `[resolve=<r>] [continuation=<c>] [critical]`
fn behavior(words: &[String]) -> Result<Behavior, Fault> {
    let mut behavior = Behavior::default();
    for (number, word) in words.iter().enumerate() {
        let help = || {
            let names: Vec<&str> = Wish::NAMES.iter().map(|(name, _)| *name).collect();
            format!("resolve= and continuation=, each with one of {}", names.join(", "))
        };
        let wish = |name: &str| {
            let known = Wish::NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            known.map(|(_, wish)| *wish).ok_or_else(|| {
                Fault::argument(number, format!("no chaining behavior `{name}`")).with_help(help())
            })
        };
        match word.split_once('=') {
            Some((key, name)) if key.eq_ignore_ascii_case("resolve") => behavior.resolve = wish(name)?,
            Some((key, name)) if key.eq_ignore_ascii_case("continuation") => {
                behavior.continuation = wish(name)?;
            }
            // It decides here, and is not sent to servers that might not know it.
            None if word.eq_ignore_ascii_case("critical") => {}
            _ => return Err(Fault::argument(number, format!("`{word}` is not known here")).with_help(help())),
        }
    }
    Ok(behavior)
}

/// A directive of slapd-ldap(5), with `chain-` before it.
fn of_server(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let Some((keyword, arguments)) = call.arguments.split_first() else { return Ok(()) };
    let bare = keyword.get(PREFIX.len()..).unwrap_or_default();
    let outer = builder.section;
    let is_new = bare.eq_ignore_ascii_case("uri");
    select(builder, is_new, call.origin)?;
    let is_common = matches!(builder.section, Section::Below { number: 0, .. });
    if is_common && !COMMON.iter().any(|known| known.eq_ignore_ascii_case(bare)) {
        builder.section = outer;
        let fault = Fault::keyword(format!("`{keyword}` is for one server"));
        return Err(fault.with_help("put it behind the `chain-uri` line of that server"));
    }
    let directive = directives::by_keyword(bare, &builder.context())
        .filter(|directive| directive.scope == Scope::Kind(SERVER_KIND));
    let applied = match directive {
        Some(directive) => builder.apply(&Call { directive, arguments, ..*call }),
        None => Err(Fault::keyword(format!("unknown directive `{keyword}`"))),
    };
    builder.section = outer;
    applied.map_err(|fault| match fault.at {
        At::Argument(number) => Fault { at: At::Argument(number + 1), ..fault },
        _ => fault,
    })
}

/// Opens the last section below the nearest overlay, or a new one.
fn select(builder: &mut Builder, is_new: bool, origin: &Origin) -> Result<(), Fault> {
    let own = match builder.section {
        Section::Database(number) => Some(number),
        _ => None,
    };
    let is_it = |overlay: &Overlay| overlay.name == NAME;
    let mut places = [own, None].into_iter();
    let place = places.find_map(|place| Some((place, builder.overlays_mut(place)?.iter().rposition(is_it)?)));
    let missing = || Fault::keyword("there is no overlay chain above it");
    let (database, overlay) = place.ok_or_else(missing)?;
    let found = builder.overlays_mut(database).and_then(|overlays| overlays.get_mut(overlay));
    let below = &mut found.ok_or_else(missing)?.below;
    // The first one has what holds for all.
    if below.is_empty() {
        below.push(section(None, origin));
    }
    if is_new {
        if below.len() > SERVERS_MAX {
            return Err(Fault::keyword(format!("more than {SERVERS_MAX} servers to chain to")));
        }
        let server = section(below.first(), origin);
        below.push(server);
    }
    builder.section = Section::Below { database, overlay, number: below.len() - 1 };
    Ok(())
}

/// An entry below the overlay's opens a section.
pub(super) fn open_entry(builder: &mut Builder, has_uri: bool, origin: &Origin) -> Result<(), Fault> {
    let outer = builder.section;
    select(builder, has_uri, origin)?;
    // The first one that is made by itself has no place; one without a URI stands at its place.
    let is_first = matches!(builder.section, Section::Below { number: 0, .. });
    let settings = builder.database().map(|database| database.settings.is_empty());
    let is_of_all = is_first && settings == Some(true);
    if !has_uri && !is_of_all {
        builder.section = outer;
        let fault = Fault::keyword("this server to chain to has no olcDbURI");
        return Err(fault.with_help("only the first entry has none: it has what holds for all"));
    }
    Ok(())
}

/// A section with what holds for all.
fn section(common: Option<&Database>, origin: &Origin) -> Database {
    let kind = common.map_or_else(DatabaseKind::server, |common| common.kind.clone());
    Database::new(kind, CommonSettings::default(), origin.clone())
}

/// Whether slapd.conf has a line for a setting of a section below the overlay: in the first one, of what holds for all, for nothing but what
/// may stand before the first `chain-uri`.
fn has_line(number: usize, attribute: &str) -> bool {
    number > 0
        || COMMON.iter().any(|keyword| {
            let of_kind = |directive: &&Directive| directive.scope == Scope::Kind(SERVER_KIND);
            let mut candidates = directives::all().filter(of_kind).filter(|own| own.is_attribute(attribute));
            candidates.any(|own| own.is_keyword(keyword))
        })
}

/// What of a section below the overlay slapd.conf has lines for.
pub(super) fn slapd_conf_settings(number: usize, settings: &Settings) -> Settings {
    let mut written = Settings::default();
    for setting in settings.iter().filter(|setting| has_line(number, setting.attribute)) {
        setting.values.iter().for_each(|value| written.add(setting.attribute, value.clone()));
    }
    written
}

/// What it has none for and what does not hold anyway.
pub(super) fn without_line(number: usize, settings: &Settings) -> Vec<(&'static str, &[u8])> {
    let left = settings.iter().filter(|setting| !has_line(number, setting.attribute));
    let values = left
        .flat_map(|setting| setting.values.iter().map(move |value| (setting.attribute, value.as_slice())));
    values.filter(|(attribute, value)| !holds_in_first(attribute, value)).collect()
}

/// Whether a setting of the first section below the overlay says what holds anyway.
pub(super) fn holds_in_first(attribute: &str, value: &[u8]) -> bool {
    SHOWN_IN_FIRST
        .iter()
        .any(|(known, default)| known.eq_ignore_ascii_case(attribute) && default.as_bytes() == value)
}

/// Whether an entry is one below the overlay's.
pub(super) fn is_server(classes: &[Vec<u8>]) -> bool {
    classes.iter().any(|class| class.eq_ignore_ascii_case(SERVER_CLASS.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::in_all_forms;
    use crate::{Config, Source};

    /// The overlay of a slapd.conf, the same by way of cn=config and of the file that is made of that.
    fn read(lines: &str) -> Result<ChainSettings, String> {
        let forms = in_all_forms(&["core"], &format!("overlay chain\n{lines}"))?;
        let [settings, entries, exported] = forms.map(|config| config.frontend.overlays[0].chain().unwrap());
        for again in [&entries, &exported] {
            assert_eq!(format!("{again:?}"), format!("{settings:?}"), "{lines}");
        }
        Ok(settings)
    }

    #[test]
    fn what_is_read() {
        let settings = read("").unwrap();
        assert_eq!((settings.servers.len(), settings.depth_max, settings.return_error), (0, 1, false));
        for (lines, seconds) in
            [("", None), ("chain-wait-replicated 0", None), ("chain-wait-replicated 7", Some(7))]
        {
            assert_eq!(read(lines).unwrap().wait_replicated, seconds.map(Duration::from_secs), "{lines}");
        }
        let settings = read(
            "chain-rebind-as-user yes\nchain-timeout 7\nchain-chase-referrals yes\nchain-uri ldap://a/\n\
             chain-idassert-bind bindmethod=simple binddn=cn=x credentials=\"a b\" mode=self\nchain-tls start\n\
             chain-uri \"ldaps://b\"\nchain-rebind-as-user no\nchain-network-timeout 3\nchain-return-error TRUE\nchain-max-depth 3\n\
             chain-cache-uri TRUE\nchain-chaining resolve=chainingRequired",
        )
        .unwrap();
        let [a, b] = settings.servers.as_slice() else { panic!("{settings:?}") };
        assert_eq!((a.targets[0].host.as_str(), b.targets[0].host.as_str()), ("a", "b"));
        assert!(a.assertion.is_some() && b.assertion.is_none() && settings.unlisted.assertion.is_none());
        assert_eq!(
            (a.rebind_as_user, b.rebind_as_user, settings.unlisted.rebind_as_user),
            (true, false, true)
        );
        assert_eq!((a.timeouts, b.timeouts), (settings.unlisted.timeouts, settings.unlisted.timeouts));
        assert!(a.network_timeout.is_none() && b.network_timeout.is_some());
        assert_eq!((settings.depth_max, settings.return_error), (3, true));
        assert_eq!(settings.behavior.unwrap().resolve, Wish::ChainingRequired);
    }

    #[test]
    fn what_cannot_be() {
        for (lines, expected) in [
            ("chain-idassert-bind bindmethod=simple binddn=cn=x credentials=x", "is for one server"),
            ("chain-uri ldap://a ldap://b", "has one URI"),
            ("chain-uri ldap://a\nchain-uri ldap://a", "is there already"),
            ("chain-uri http://a", "http://a"),
            ("chain-uri ldap://a:", "no port stands behind the colon"),
            ("chain-uri ldaps://a\nchain-tls start", "with ldaps:// TLS is there already"),
            ("chain-uri ldap://a\nchain-suffix o=x", "unknown directive `chain-suffix`"),
            ("chain-uri ldap://a\nchain-idassert-bind mode=self", "bindmethod= is missing"),
            ("chain-max-depth 100", "too many"),
            ("chain-wait-replicated 301", "301 seconds are too long"),
            ("chain-wait-replicated soon", "soon"),
            ("chain-chaining resolve=never", "no chaining behavior `never`"),
            ("chain-chaining always", "`always` is not known here"),
            ("chain-return-error perhaps", "neither on nor off"),
        ] {
            let error = read(lines).map(|_| String::new()).unwrap_or_else(|error| error);
            assert!(error.contains(expected), "{lines}: {error}");
        }
    }

    /// What OpenLDAP's slaptest makes of a slapd.conf.
    #[test]
    fn a_slapd_d_of_openldap() {
        const COMMON: &str = "olcDbStartTLS: none  starttls=no\nolcDbRebindAsUser: FALSE\nolcDbChaseReferrals: TRUE\n\
            olcDbTFSupport: no\nolcDbProxyWhoAmI: FALSE\nolcDbProtocolVersion: 3\nolcDbSingleConn: FALSE\nolcDbCancel: abandon\n\
            olcDbUseTemporaryConn: FALSE\nolcDbConnectionPoolMax: 16\nolcDbSessionTrackingRequest: FALSE\nolcDbNoRefs: FALSE\n\
            olcDbNoUndefFilter: FALSE\nolcDbOnErr: continue\nolcDbKeepalive: 0:0:0\n";
        let above = "olcOverlay={0}chain,olcDatabase={-1}frontend,cn=config";
        let server = |number: u8, lines: &str| {
            format!(
                "dn: olcDatabase={{{number}}}ldap,{above}\nobjectClass: olcLDAPConfig\nobjectClass: olcChainDatabase\n\
                 olcDatabase: {{{number}}}ldap\n{lines}{COMMON}\n"
            )
        };
        let text = format!(
            "dn: cn=config\nobjectClass: olcGlobal\ncn: config\n\ndn: olcDatabase={{-1}}frontend,cn=config\n\
             objectClass: olcDatabaseConfig\nolcDatabase: {{-1}}frontend\n\ndn: {above}\nobjectClass: olcOverlayConfig\n\
             objectClass: olcChainConfig\nolcOverlay: {{0}}chain\nolcChainCacheURI: FALSE\nolcChainMaxReferralDepth: 1\n\
             olcChainReturnError: TRUE\n\n{}{}",
            server(0, ""),
            server(
                1,
                "olcDbURI: \"ldap://localhost:9011\"\nolcDbIDAssertBind: mode=self flags=non-prescriptive,proxy-authz-non-critical \
                 bindmethod=simple timeout=0 network-timeout=0 binddn=\"cn=manager\" credentials=\"secret\" keepalive=0:0:0 \
                 tcp-user-timeout=0\n"
            ),
        );
        let entries = larix_proto::ldif::Reader::new(text.as_bytes()).map(|record| {
            let record = record.unwrap();
            let larix_proto::ldif::Body::Content(attributes) = record.body else { panic!("no entry") };
            crate::ConfigEntry::from_ldif(record.dn, attributes)
        });
        let config = Config::from_entries(entries.collect(), Source::QuickStart).unwrap();
        let chain = config.frontend.overlays[0].chain().unwrap();
        let [server] = chain.servers.as_slice() else { panic!("{chain:?}") };
        assert!(server.assertion.is_some() && chain.return_error);
        assert_eq!(chain.unlisted.targets, []);
    }
}
