//! `overlay pbind` (slapo-pbind(5)): another server judges the simple binds of a database, each under its own name.

use larix_proxy::ProxySettings;

use super::builder::call::Fault;
use super::builder::directive::{Apply, Directive, Form, Scope};
use super::diagnostic::ConfigError;
use super::kinds::{
    ldap_quarantine as quarantine_of, ldap_targets as targets, ldap_time as time, ldap_tls as tls_of,
};
use super::model::Overlay;

/// The overlay's name.
pub(super) const NAME: &str = "pbind";

const fn own(keyword: &'static str, attribute: &'static str, form: Form, apply: Apply) -> Directive {
    Directive::new(keyword, attribute, Scope::Overlay(NAME), form, apply)
}

pub(super) static TABLE: &[Directive] = &[
    own("uri", "olcDbURI", Form::Words, |_, c| targets(c.arguments).map(|_| ())),
    own("tls", "olcDbStartTLS", Form::Words, |_, c| tls_of(c.arguments).map(|_| ())),
    own("network-timeout", "olcDbNetworkTimeout", Form::Whole, |_, c| time(c.argument(0)?, 0).map(|_| ())),
    own("quarantine", "olcDbQuarantine", Form::Whole, |_, c| quarantine_of(c.argument(0)?).map(|_| ())),
];

impl Overlay {
    /// The server that judges binds (`overlay pbind`); none of another overlay.
    ///
    /// # Errors
    /// None is named.
    pub fn bind_server(&self) -> Result<Option<ProxySettings>, ConfigError> {
        if self.name != NAME || self.disabled {
            return Ok(None);
        }
        let settings = self.read_bind_server();
        let settings = settings.map_err(|fault| ConfigError::new(self.origin.clone(), fault.message))?;
        if settings.targets.is_empty() {
            let error = ConfigError::new(self.origin.clone(), "overlay pbind needs a `uri`");
            return Err(error.with_help("such as uri ldap://ldap.example.com, behind the overlay's line"));
        }
        Ok(Some(settings))
    }

    fn read_bind_server(&self) -> Result<ProxySettings, Fault> {
        let given = self.given();
        let words = |attribute: &str| given.words(attribute).map(str::to_owned).collect::<Vec<String>>();
        let mut settings =
            ProxySettings { targets: targets(&words("olcDbURI"))?, ..ProxySettings::default() };
        if given.text("olcDbStartTLS").is_some() {
            (settings.tls.begins, settings.tls.options) = tls_of(&words("olcDbStartTLS"))?;
        }
        if let Some(text) = given.text("olcDbNetworkTimeout") {
            settings.network_timeout = Some(time(text, 0)?).filter(|time| !time.is_zero());
        }
        if let Some(text) = given.text("olcDbQuarantine") {
            settings.quarantine = quarantine_of(text)?;
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests;
