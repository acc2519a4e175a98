//! Whom a request acts as, and what identities are called in the directory, by the configuration in force.

use std::sync::Arc;

use larix_engine::access::Subject;
use larix_engine::budget::{LimitExceeded, Meter, RequestLimit};
use larix_engine::controls::RequestControls;
use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;

use super::{Dispatcher, RequestInFlight};
use crate::generation::Generation;
use crate::log::printable;
use crate::sasl::authorize::{Authorizer, RULE_STEPS};
use crate::sasl::identity::{IdentityFault, Mapper};
use crate::sasl::online::Online;
use crate::server::Server;
use crate::waiting_thread::take_missed_lookup;

impl Dispatcher {
    /// The directory's name for an authentication identity, by `authz-regexp`; and as it is shown.
    pub(crate) fn map_identity(&self, identity: &str) -> Result<(NormalDn, String), LdapResult> {
        let anonymous = self.session.anonymous();
        let resolver = IdentityResolver { server: &self.server, anonymous, subject: anonymous, who: None };
        take_missed_lookup();
        let dn = resolver.name(identity);
        none_missed()?;
        let dn = dn.ok_or_else(|| LdapResult::new(ResultCode::INVALID_CREDENTIALS))?;
        // A mapped identity is known by its normal form, as OpenLDAP tells it.
        let databases = self.server.databases();
        let schema = databases.schema();
        let own = larix_proto::Dn::parse(identity)
            .ok()
            .filter(|own| schema.normalize_dn(own).is_ok_and(|own| own == dn));
        let shown_dn = own.and_then(|own| schema.pretty_dn(&own).ok());
        let shown_dn = shown_dn.unwrap_or_else(|| dn.as_str().to_owned());
        Ok((dn, shown_dn))
    }

    /// Whom the request acts as: the session's identity, or the one that a proxied authorization control names (RFC 4370).
    pub(crate) fn subject_for(
        &self,
        in_flight: &RequestInFlight,
        controls: &RequestControls,
    ) -> Result<Arc<Subject>, LdapResult> {
        let Some(control) = &controls.proxied_authorization else {
            return Ok(self.session.subject().clone());
        };
        let denied = |text: &str| LdapResult::with(control.denial, text);
        let (non_critical_refused, anonymous_allowed) = {
            let config = self.server.config();
            (config.global.disallow.proxy_authz_non_critical, config.global.allow.proxy_authz_anon)
        };
        if !control.critical && non_critical_refused {
            let text = "proxied authorization criticality of FALSE not allowed";
            return Err(LdapResult::with(ResultCode::PROTOCOL_ERROR, text));
        }
        let me = self.session.subject();
        if me.is_anonymous() && !anonymous_allowed {
            return Err(denied("anonymous proxied authorization not allowed"));
        }
        if control.authzid.is_empty() {
            return Ok(Arc::new(me.acting_as(NormalDn::root(), "")));
        }
        let who = me.dn.clone();
        let anonymous = self.session.anonymous();
        let identities = IdentityResolver { server: &self.server, anonymous, subject: me, who: who.as_ref() };
        let mechanism = self.session.mechanism();
        take_missed_lookup();
        let whom = identities.authorization(&control.authzid, "", mechanism);
        let is_allowed = whom.as_ref().is_ok_and(|whom| identities.allows(who.as_ref(), whom));
        none_missed()?;
        let whom = whom.map_err(|_| denied("authzId mapping failed"))?;
        if !is_allowed {
            return Err(denied("not authorized to assume identity"));
        }
        let shown_dn = whom.as_str().to_owned();
        self.log_operation(in_flight, format_args!("PROXYAUTHZ dn=\"{}\"", printable(&shown_dn)));
        Ok(Arc::new(me.acting_as(whom, &shown_dn)))
    }
}

/// # Errors
/// Since [`take_missed_lookup`], this thread has missed a look-up: an engine does not answer.
pub(super) fn none_missed() -> Result<(), LdapResult> {
    let text = "the engine of a database that may have this identity cannot be reached: try again";
    if take_missed_lookup() { Err(LdapResult::with(ResultCode::UNAVAILABLE, text)) } else { Ok(()) }
}

/// Questions about identities, with the configuration in force.
pub(super) struct IdentityResolver<'a> {
    pub(super) server: &'a Server,
    pub(super) anonymous: &'a Arc<Subject>,
    pub(super) subject: &'a Arc<Subject>,
    pub(super) who: Option<&'a NormalDn>,
}

impl IdentityResolver<'_> {
    fn online<'g>(&'g self, generation: &'g Generation) -> Online<'g> {
        Online { server: self.server, generation, anonymous: self.anonymous, subject: self.subject }
    }

    fn name(&self, identity: &str) -> Option<NormalDn> {
        let generation = self.server.generation();
        let (online, config) = (self.online(&generation), &generation.config);
        let (rules, rewrite) = (&config.global.authz_regexps, &config.global.authid_rewrite);
        Mapper { lookups: &online, rules, rewrite, who: self.who }.name(identity)
    }

    pub(super) fn authorization(
        &self,
        identity: &str,
        realm: &str,
        mechanism: &str,
    ) -> Result<NormalDn, IdentityFault> {
        let generation = self.server.generation();
        let (online, config) = (self.online(&generation), &generation.config);
        let (rules, rewrite) = (&config.global.authz_regexps, &config.global.authid_rewrite);
        Mapper { lookups: &online, rules, rewrite, who: self.who }.authorization(identity, realm, mechanism)
    }

    pub(super) fn allows(&self, who: Option<&NormalDn>, whom: &NormalDn) -> bool {
        let generation = self.server.generation();
        let (online, config) = (self.online(&generation), &generation.config);
        let global = &config.global;
        let (rules, rewrite) = (&global.authz_regexps, &global.authid_rewrite);
        let most = global.request_limits.most(RequestLimit::Steps).min(RULE_STEPS);
        let (policy, meter) = (global.authz_policy, Meter::new(most));
        let authorizer = Authorizer { lookups: &online, policy, rules, rewrite, meter: &meter };
        let is_allowed = authorizer.allows(who, whom);
        if meter.is_overdrawn() {
            let exceeded = LimitExceeded { limit: RequestLimit::Steps, most };
            let [who, whom] = [who, Some(whom)].map(|dn| printable(dn.map_or("", NormalDn::as_str)));
            self.server.log.notice(format_args!(
                "not all rules in authzTo or authzFrom are looked at for \"{who}\" to act as \"{whom}\": {exceeded}"
            ));
        }
        is_allowed
    }
}
