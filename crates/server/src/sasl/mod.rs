//! SASL (RFC 4422) in LDAP (RFC 4513 section 5.2): the bind's side, mechanisms, and who may act for whom.

pub mod external;
pub mod identity;

use larix_proto::{Dn, LdapResult, ResultCode};
use larix_schema::NormalDn;

use crate::bind::BindStep;
use crate::dispatch::{Begun, Dispatcher};
use crate::restrictions::Restricted;
use crate::session::Method;
use crate::stats_log::printable;
use identity::Mapped;

/// The names of a PLAIN bind: who authenticates, and whom he wants to act as.
#[derive(Debug)]
pub(crate) struct PlainNames {
    pub(crate) authcid: String,
    pub(crate) authzid: String,
}

impl Dispatcher {
    /// One step of a SASL bind.
    pub(crate) fn sasl_bind(
        &mut self,
        begun: Begun,
        mechanism: &str,
        credentials: Option<&[u8]>,
    ) -> Result<BindStep, LdapResult> {
        let unsupported = |text: &str| Err(LdapResult::with(ResultCode::AUTH_METHOD_NOT_SUPPORTED, text));
        if mechanism.is_empty() {
            return unsupported("no SASL mechanism provided");
        }
        self.permitted("", Restricted::SaslBind)?;
        let Some(peer) =
            self.session.credentials.filter(|_| mechanism.eq_ignore_ascii_case(external::MECHANISM))
        else {
            return unsupported(&format!("SASL(-4): no mechanism available: Couldn't find mech {mechanism}"));
        };
        let identity = external::identity(peer);
        let (mut dn, mut shown) = self.map_identity(&identity)?;
        if let Err(refused) = identity::check_authorization(credentials, &identity) {
            (dn, shown) = self.authorize_as(&dn, credentials).ok_or(refused)?;
        }
        self.log_operation(&begun, format_args!("BIND authcid=\"{identity}\" authzid=\"{identity}\""));
        self.bound(&begun, dn, &shown, Method::Sasl, external::MECHANISM);
        Ok(BindStep::Bound(None))
    }

    /// The password of a PLAIN bind proved right.
    pub(crate) fn plain_bound(
        &mut self,
        begun: &Begun,
        dn: NormalDn,
        shown: &str,
        names: &PlainNames,
    ) -> Result<(), LdapResult> {
        let (authcid, authzid) = (printable(&names.authcid), printable(&names.authzid));
        self.log_operation(begun, format_args!("BIND authcid=\"{authcid}\" authzid=\"{authzid}\""));
        self.bound(begun, dn, shown, Method::Sasl, "PLAIN");
        Ok(())
    }

    /// The identity `dn:...` that was asked for, if the authenticated one may take it: it is its own, or it is a
    /// database's root, who may act as anybody.
    fn authorize_as(&self, authenticated: &NormalDn, asked: Option<&[u8]>) -> Option<(NormalDn, String)> {
        let text = std::str::from_utf8(asked?).ok()?.strip_prefix("dn:")?;
        let schema = self.server.databases.schema();
        let wanted = schema.normalize_dn(&Dn::parse(text).ok()?).ok()?;
        let config = self.server.config();
        let is_root = || {
            config.databases.iter().any(|database| database.effective_root().as_ref() == Some(authenticated))
        };
        (wanted == *authenticated || is_root()).then(|| (wanted.clone(), wanted.as_str().to_owned()))
    }

    /// The directory's name for an authentication identity, by `authz-regexp`.
    pub(crate) fn map_identity(&self, identity: &str) -> Result<(NormalDn, String), LdapResult> {
        let mapped = identity::map(identity, &self.server.config().global.authz_regexps);
        let schema = self.server.databases.schema();
        let parse = |text: &str| {
            let parsed = Dn::parse(text).ok()?;
            Some((schema.normalize_dn(&parsed).ok()?, schema.pretty_dn(&parsed).ok()?))
        };
        // A mapped identity is known by its normal form, as OpenLDAP tells it.
        let normal = |text: &str| parse(text).map(|(dn, _)| (dn.clone(), dn.as_str().to_owned()));
        let found = match &mapped {
            Mapped::Dn(dn) if dn == identity => parse(dn),
            Mapped::Dn(dn) => normal(dn),
            Mapped::Search(url) => self
                .server
                .databases
                .find_one(&self.server, self.session.anonymous(), url)
                .and_then(|dn| normal(&dn)),
        };
        // A rule that leads nowhere leaves the identity as it is.
        found.or_else(|| parse(identity)).ok_or_else(|| LdapResult::new(ResultCode::INVALID_CREDENTIALS))
    }
}
