//! Which mechanisms a connection may use, by `sasl-mechanisms` and `sasl-secprops`, as Cyrus SASL judges them.

use larix_configuration::values::{ChannelBinding, Mechanism, SaslSettings, SecurityProperties};
use larix_engine::access::{Strength, Subject};
use larix_proto::{LdapResult, ResultCode};

use crate::tls::TlsFacts;

/// What of a connection decides about mechanisms.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MechanismContext {
    /// Strength of what is below SASL.
    pub(crate) external_ssf: u32,
    /// Something below SASL knows who is there.
    pub(crate) has_identity: bool,
    /// There is a channel to bind to.
    pub(crate) has_channel: bool,
}

impl MechanismContext {
    pub(crate) fn of_subject(subject: &Subject, settings: &SaslSettings) -> Self {
        let Strength { transport, tls, .. } = subject.strength;
        Self {
            external_ssf: transport.max(tls),
            has_identity: subject.peer.has_identity,
            has_channel: tls > 0
                && !matches!(settings.channel_binding, ChannelBinding::None | ChannelBinding::TlsUnique),
        }
    }
}

/// What a mechanism is worth.
struct Worth {
    /// Strength of the layers it can put on.
    max_ssf: u32,
    /// Does not show the password to an eavesdropper.
    hides_password: bool,
    withstands_active: bool,
    withstands_dictionary: bool,
    passes_credentials: bool,
}

fn worth(mechanism: Mechanism) -> Worth {
    let plain = Worth {
        max_ssf: 0,
        hides_password: false,
        withstands_active: false,
        withstands_dictionary: false,
        passes_credentials: true,
    };
    let hidden = Worth { hides_password: true, passes_credentials: false, ..plain };
    match mechanism {
        Mechanism::Plain => plain,
        Mechanism::CramMd5 => hidden,
        Mechanism::DigestMd5 => Worth { max_ssf: 128, ..hidden },
        Mechanism::Scram { .. } => Worth { withstands_active: true, ..hidden },
        Mechanism::External => Worth { withstands_dictionary: true, ..hidden },
        #[cfg(feature = "gssapi")]
        Mechanism::Gssapi => Worth {
            max_ssf: 256,
            hides_password: true,
            withstands_active: true,
            withstands_dictionary: true,
            passes_credentials: true,
        },
    }
}

/// Whether the mechanism may be used here.
///
/// # Errors
/// What to answer otherwise.
pub(crate) fn check(
    mechanism: Mechanism,
    settings: &SaslSettings,
    context: MechanismContext,
) -> Result<(), LdapResult> {
    let chosen = match &settings.mechanisms {
        Some(chosen) => chosen.contains(&mechanism),
        None => !mechanism.is_obsolete(),
    };
    let possible = match mechanism {
        Mechanism::External => context.has_identity,
        Mechanism::Scram { plus: true, .. } => context.has_channel,
        _ => true,
    };
    let name = mechanism.name();
    if !chosen || !possible {
        return Err(LdapResult::with(ResultCode::AUTH_METHOD_NOT_SUPPORTED, not_found(name)));
    }
    if is_strong_enough(&worth(mechanism), &settings.properties, context.external_ssf) {
        return Ok(());
    }
    let text = format!("SASL(-15): mechanism too weak for this user: mech {name} is too weak");
    Err(LdapResult::with(ResultCode::INAPPROPRIATE_AUTHENTICATION, text))
}

pub(crate) fn not_found(name: &str) -> String {
    format!("SASL(-4): no mechanism available: Couldn't find mech {name}")
}

fn is_strong_enough(worth: &Worth, properties: &SecurityProperties, external_ssf: u32) -> bool {
    let missing = properties.min_ssf.saturating_sub(external_ssf);
    // Below a strong enough layer nothing is plain any more.
    let protected = properties.min_ssf <= external_ssf && external_ssf > 1;
    let layers = if properties.max_buffer == 0 { 0 } else { worth.max_ssf };
    layers >= missing
        && (!properties.no_plain || protected || worth.hides_password)
        && (!properties.no_active || worth.withstands_active)
        && (!properties.no_dictionary || worth.withstands_dictionary)
        && (!properties.pass_credentials || worth.passes_credentials)
        && !properties.forward_secrecy
}

/// The names for `supportedSASLMechanisms`.
pub(crate) fn offered(settings: &SaslSettings, context: MechanismContext) -> Vec<&'static str> {
    let usable = |mechanism: &&Mechanism| check(**mechanism, settings, context).is_ok();
    Mechanism::ALL.iter().filter(usable).map(|mechanism| mechanism.name()).collect()
}

/// Whether a mechanism that binds to the channel is among them.
pub(crate) fn offers_channel_binding(settings: &SaslSettings, context: MechanismContext) -> bool {
    let binds = |mechanism: &&Mechanism| matches!(mechanism, Mechanism::Scram { plus: true, .. });
    Mechanism::ALL.iter().filter(binds).any(|mechanism| check(*mechanism, settings, context).is_ok())
}

/// The channels to bind to: type and data. `ldap` is how OpenLDAP's client library calls the one it is configured for.
pub(crate) fn channels(tls: &TlsFacts, configured: ChannelBinding) -> Vec<(&'static str, Vec<u8>)> {
    let bindings = &tls.bindings;
    let endpoint = || bindings.server_end_point.clone().map(|data| ("tls-server-end-point", data));
    let exporter = || bindings.exporter.map(|data| ("tls-exporter", data.to_vec()));
    let unique = || bindings.unique.clone().map(|data| ("tls-unique", data));
    let mut found: Vec<(&'static str, Vec<u8>)> = match configured {
        ChannelBinding::None => return Vec::new(),
        ChannelBinding::Any => [exporter(), endpoint(), unique()].into_iter().flatten().collect(),
        ChannelBinding::TlsUnique => unique().into_iter().collect(),
        ChannelBinding::TlsEndpoint => endpoint().into_iter().collect(),
        ChannelBinding::TlsExporter => exporter().into_iter().collect(),
    };
    let legacy = found.iter().find(|(name, _)| *name != "tls-exporter").map(|(name, data)| {
        let mut prefixed = format!("{name}:").into_bytes();
        prefixed.extend_from_slice(data);
        ("ldap", prefixed)
    });
    found.extend(legacy);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::ChannelBindings;

    fn check(properties: &str, mechanisms: Option<&[&str]>, context: MechanismContext, expected: &[&str]) {
        let settings = SaslSettings {
            properties: SecurityProperties::parse(properties).unwrap(),
            mechanisms: mechanisms
                .map(|names| names.iter().filter_map(|n| Mechanism::from_name(n)).collect()),
            ..SaslSettings::default()
        };
        let found = offered(&settings, context);
        let found: Vec<&str> = found.into_iter().filter(|name| *name != "GSSAPI").collect();
        assert_eq!(found, expected, "{properties} {mechanisms:?} {context:?}");
    }

    #[test]
    fn mechanisms_by_connection_and_configuration() {
        let scram = ["SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1"];
        let bare = MechanismContext::default();
        let local = MechanismContext { external_ssf: 71, has_identity: true, has_channel: false };
        let tls = MechanismContext { external_ssf: 256, has_identity: false, has_channel: true };
        let default = "noplain,noanonymous";
        check(default, None, bare, &scram);
        check(default, None, local, &[&scram[..], &["EXTERNAL", "PLAIN"]].concat());
        let plus = ["SCRAM-SHA-512-PLUS", "SCRAM-SHA-256-PLUS", "SCRAM-SHA-1-PLUS"];
        check(default, None, tls, &[&plus[..], &scram, &["PLAIN"]].concat());
        check("none", None, bare, &[&scram[..], &["PLAIN"]].concat());
        check("nodict", None, local, &["EXTERNAL"]);
        check("noactive", None, bare, &scram);
        check("passcred", None, bare, &["PLAIN"]);
        check("forwardsec", None, tls, &[]);
        check("minssf=56", None, bare, &[]);
        check("minssf=56", None, local, &[&scram[..], &["EXTERNAL", "PLAIN"]].concat());
        check("minssf=128", None, local, &[]);
        let old = ["digest-md5", "CRAM-MD5", "PLAIN"];
        check(default, Some(&old), bare, &["DIGEST-MD5", "CRAM-MD5"]);
        check("minssf=1", Some(&old), bare, &["DIGEST-MD5"]);
        check("minssf=1,maxbufsize=0", Some(&old), bare, &[]);
        check(default, Some(&["EXTERNAL"]), bare, &[]);
    }

    #[test]
    fn what_binds_is_offered_where_the_configuration_has_it() {
        let bare = MechanismContext::default();
        let tls = MechanismContext { external_ssf: 256, has_identity: false, has_channel: true };
        for (mechanisms, context, expected) in [
            (None, tls, true),
            (None, bare, false),
            (Some(&["SCRAM-SHA-256", "PLAIN"][..]), tls, false),
            (Some(&["SCRAM-SHA-256", "SCRAM-SHA-1-PLUS"][..]), tls, true),
        ] {
            let chosen =
                |names: &[&str]| names.iter().filter_map(|name| Mechanism::from_name(name)).collect();
            let settings = SaslSettings { mechanisms: mechanisms.map(chosen), ..SaslSettings::default() };
            assert_eq!(offers_channel_binding(&settings, context), expected, "{mechanisms:?} {context:?}");
        }
    }

    #[test]
    fn channels_by_configuration() {
        let bindings =
            ChannelBindings { server_end_point: Some(vec![1]), exporter: Some([2; 32]), unique: None };
        let tls = TlsFacts { bindings, ..TlsFacts::default() };
        let names = |configured| channels(&tls, configured).iter().map(|(name, _)| *name).collect::<Vec<_>>();
        for (configured, expected) in [
            (ChannelBinding::Any, &["tls-exporter", "tls-server-end-point", "ldap"][..]),
            (ChannelBinding::None, &[]),
            (ChannelBinding::TlsUnique, &[]),
            (ChannelBinding::TlsEndpoint, &["tls-server-end-point", "ldap"]),
            (ChannelBinding::TlsExporter, &["tls-exporter"]),
        ] {
            assert_eq!(names(configured), expected, "{configured:?}");
        }
        let legacy = channels(&tls, ChannelBinding::TlsEndpoint).pop();
        assert_eq!(legacy, Some(("ldap", b"tls-server-end-point:\x01".to_vec())));
    }
}
