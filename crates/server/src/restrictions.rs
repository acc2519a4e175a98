//! What the configuration asks of a session before an operation: `require`, `restrict`, `readonly`, `security` and
//! `allow update_anon`, with OpenLDAP's codes and texts and in its order.

use std::sync::Arc;

use larix_configuration::CommonSettings;
use larix_configuration::values::{Requirements, Restrictions, SecurityFactors};
use larix_engine::access::Subject;
use larix_proto::{Controls, LdapResult, ResultCode, oid};

use crate::operation_rules::{OperationRules, RestrictedOperation};

/// The rules in force: the frontend's, tightened by those of the database that the operation is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    requirements: Requirements,
    restrictions: Restrictions,
    security: SecurityFactors,
    read_only: bool,
    anonymous_updates: bool,
    operations: Option<Arc<OperationRules>>,
    /// What [`Self::is_empty`] says. False of rules that were not [made](Self::new) yet.
    empty: bool,
}

/// What of a session the rules look at.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct SessionState {
    /// A DN other than the empty one.
    pub authenticated: bool,
    /// By SASL.
    pub sasl: bool,
    /// Some bind has been tried, so that the protocol version is known.
    pub bound: bool,
    /// The protocol's version.
    pub version: u8,
    pub ssf: u32,
    pub transport_ssf: u32,
    pub tls_ssf: u32,
    pub sasl_ssf: u32,
}

impl Rules {
    /// The frontend's rules alone, and with a database's beside them.
    pub(crate) fn new(
        frontend: &CommonSettings,
        database: Option<&CommonSettings>,
        anonymous_updates: bool,
    ) -> Self {
        let mut rules = Self {
            requirements: frontend.requirements,
            restrictions: frontend.restrictions.clone(),
            security: frontend.security,
            read_only: frontend.read_only,
            anonymous_updates,
            operations: None,
            empty: false,
        };
        if let Some(database) = database {
            rules.tighten(database);
        }
        rules.empty = rules.is_empty();
        rules
    }

    /// With the `restrictop` rules that are in force there.
    #[must_use]
    pub(crate) fn with_operations(self, operations: Option<OperationRules>) -> Self {
        let empty = self.empty && operations.is_none();
        Self { operations: operations.map(Arc::new), empty, ..self }
    }

    /// The `restrictop` rules.
    pub(crate) fn operations(&self) -> Option<&OperationRules> {
        self.operations.as_deref()
    }

    /// Whether nothing at all is asked, as in most configurations.
    pub(crate) fn is_empty(&self) -> bool {
        self.requirements == Requirements::default()
            && self.restrictions == Restrictions::default()
            && self.security == SecurityFactors::default()
            && !self.read_only
            && self.operations.is_none()
    }

    /// Whether an operation passes for every subject. A change never does: it matters who makes it.
    #[inline]
    pub(crate) fn let_pass(&self, operation: RestrictedOperation<'_>) -> bool {
        self.empty && !operation.is_update()
    }

    /// Checks one operation, its `restrictop` rules last. Answers the OIDs of the controls to ignore.
    pub(crate) fn check_request(
        &self,
        session: &SessionState,
        subject: &Subject,
        operation: RestrictedOperation<'_>,
        sent: Controls<'_>,
    ) -> Result<Vec<String>, LdapResult> {
        if self.let_pass(operation) {
            return Ok(Vec::new());
        }
        self.check(session, operation)?;
        self.operations.as_ref().map_or(Ok(Vec::new()), |rules| rules.check(subject, operation, sent))
    }

    /// Checks one operation against all but the `restrictop` rules.
    pub(crate) fn check(
        &self,
        session: &SessionState,
        operation: RestrictedOperation<'_>,
    ) -> Result<(), LdapResult> {
        if operation != RestrictedOperation::Extended(oid::START_TLS) {
            self.check_security(session, operation)?;
        }
        if !operation.is_session() {
            self.check_requirements(session)?;
        }
        self.check_restricted(operation)
    }

    fn tighten(&mut self, other: &CommonSettings) {
        let (mine, theirs) = (&mut self.requirements, &other.requirements);
        mine.bind |= theirs.bind;
        mine.ldap_v3 |= theirs.ldap_v3;
        mine.authc |= theirs.authc;
        mine.sasl |= theirs.sasl;
        mine.strong |= theirs.strong;
        self.restrictions.join(&other.restrictions);
        self.read_only |= other.read_only;
        let (mine, theirs) = (&mut self.security, &other.security);
        for (mine, theirs) in [
            (&mut mine.ssf, theirs.ssf),
            (&mut mine.transport, theirs.transport),
            (&mut mine.tls, theirs.tls),
            (&mut mine.sasl, theirs.sasl),
            (&mut mine.update_ssf, theirs.update_ssf),
            (&mut mine.update_transport, theirs.update_transport),
            (&mut mine.update_tls, theirs.update_tls),
            (&mut mine.update_sasl, theirs.update_sasl),
            (&mut mine.simple_bind, theirs.simple_bind),
        ] {
            if theirs > 0 {
                *mine = theirs;
            }
        }
    }

    fn check_security(
        &self,
        session: &SessionState,
        operation: RestrictedOperation<'_>,
    ) -> Result<(), LdapResult> {
        let factors = &self.security;
        factor(session.transport_ssf, factors.transport, "transport ", "")?;
        factor(session.tls_ssf, factors.tls, "TLS ", "")?;
        if operation == RestrictedOperation::SimpleBind {
            factor(session.ssf, factors.simple_bind, "", "")?;
        }
        // As slapd has it: who binds with a mechanism is about to have a layer, and who binds as nobody shows nothing.
        if !matches!(operation, RestrictedOperation::SaslBind | RestrictedOperation::AnonymousBind) {
            factor(session.sasl_ssf, factors.sasl, "SASL ", "")?;
            factor(session.ssf, factors.ssf, "", "")?;
        }
        if operation.is_update() {
            factor(session.transport_ssf, factors.update_transport, "transport ", " for update")?;
            factor(session.tls_ssf, factors.update_tls, "TLS ", " for update")?;
            factor(session.sasl_ssf, factors.update_sasl, "SASL ", " for update")?;
            factor(session.ssf, factors.update_ssf, "", " for update")?;
            if !self.anonymous_updates && !session.authenticated {
                let text = "modifications require authentication";
                return Err(LdapResult::with(ResultCode::STRONGER_AUTH_REQUIRED, text));
            }
        }
        Ok(())
    }

    fn check_requirements(&self, session: &SessionState) -> Result<(), LdapResult> {
        let requirements = &self.requirements;
        let refuse = |code, text: &str| Err(LdapResult::with(code, text));
        if requirements.strong && !session.authenticated {
            return refuse(ResultCode::STRONGER_AUTH_REQUIRED, "strong(er) authentication required");
        }
        if requirements.sasl && !(session.sasl && session.authenticated) {
            return refuse(ResultCode::STRONGER_AUTH_REQUIRED, "SASL authentication required");
        }
        if requirements.authc && !session.authenticated {
            return refuse(ResultCode::UNWILLING_TO_PERFORM, "authentication required");
        }
        if requirements.bind && !session.bound {
            return refuse(ResultCode::OPERATIONS_ERROR, "BIND required");
        }
        if requirements.ldap_v3 && session.version < 3 {
            return refuse(ResultCode::OPERATIONS_ERROR, "operation restricted to LDAPv3 clients");
        }
        Ok(())
    }

    fn check_restricted(&self, operation: RestrictedOperation<'_>) -> Result<(), LdapResult> {
        let restricted = &self.restrictions;
        let mut extended = false;
        let by_kind = match operation {
            RestrictedOperation::SimpleBind
            | RestrictedOperation::AnonymousBind
            | RestrictedOperation::SaslBind => restricted.bind,
            RestrictedOperation::Search => restricted.search,
            RestrictedOperation::Compare => restricted.compare,
            RestrictedOperation::Add => restricted.add,
            RestrictedOperation::Delete => restricted.delete,
            RestrictedOperation::Modify => restricted.modify,
            RestrictedOperation::Rename => restricted.rename,
            RestrictedOperation::Extended(oid) => {
                extended = restricted.extended_oids.iter().any(|listed| listed == oid);
                // Those without a flag of their own are kept by `modify`, as a change about which no more is known.
                if has_flag(oid) { restricted.extended } else { restricted.modify }
            }
        };
        if !(by_kind || extended || self.read_only && operation.is_update()) {
            return Ok(());
        }
        let text = match () {
            () if restricted.is_reads() => "read operations restricted",
            () if extended => "extended operation restricted",
            () => "operation restricted",
        };
        Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text))
    }
}

/// Whether `restrict extended` is for this operation.
fn has_flag(oid: &str) -> bool {
    [oid::WHO_AM_I, oid::CANCEL, oid::START_TLS, oid::PASSWORD_MODIFY].contains(&oid)
}

fn factor(has: u32, required: u32, what: &str, when: &str) -> Result<(), LdapResult> {
    if has >= required {
        return Ok(());
    }
    let stronger = if has > 0 { "stronger " } else { "" };
    let text = format!("{stronger}{what}confidentiality required{when}");
    Err(LdapResult::with(ResultCode::CONFIDENTIALITY_REQUIRED, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        shared: CommonSettings,
        session: SessionState,
        operation: RestrictedOperation<'_>,
        expected: Option<(u32, &str)>,
    ) {
        let found = Rules::new(&CommonSettings::default(), Some(&shared), false).check(&session, operation);
        let found = found.err().map(|result| (result.code.0, result.diagnostic));
        let expected = expected.map(|(code, text)| (code, text.to_owned()));
        assert_eq!(found, expected, "{operation:?} with {session:?}");
    }

    #[test]
    fn rules_in_openldaps_words() {
        let nobody = SessionState { version: 3, ..SessionState::default() };
        let user = SessionState { authenticated: true, bound: true, ..nobody };
        let plain = CommonSettings::default;
        check(plain(), nobody, RestrictedOperation::Search, None);
        check(plain(), nobody, RestrictedOperation::Add, Some((8, "modifications require authentication")));
        check(plain(), user, RestrictedOperation::Add, None);
        let read_only = || CommonSettings { read_only: true, ..plain() };
        check(read_only(), user, RestrictedOperation::Modify, Some((53, "operation restricted")));
        check(read_only(), user, RestrictedOperation::Search, None);
        check(read_only(), user, RestrictedOperation::Extended(oid::WHO_AM_I), None);
        let authc = || CommonSettings {
            requirements: Requirements { authc: true, ..Requirements::default() },
            ..plain()
        };
        check(authc(), nobody, RestrictedOperation::Search, Some((53, "authentication required")));
        check(authc(), nobody, RestrictedOperation::SimpleBind, None);
        let bind = || CommonSettings {
            requirements: Requirements { bind: true, ..Requirements::default() },
            ..plain()
        };
        check(bind(), nobody, RestrictedOperation::Search, Some((1, "BIND required")));
        let ssf = || CommonSettings {
            security: SecurityFactors { ssf: 128, ..SecurityFactors::default() },
            ..plain()
        };
        check(ssf(), user, RestrictedOperation::Search, Some((13, "confidentiality required")));
        check(
            ssf(),
            SessionState { ssf: 71, ..user },
            RestrictedOperation::Search,
            Some((13, "stronger confidentiality required")),
        );
        check(ssf(), user, RestrictedOperation::Extended(oid::START_TLS), None);
        check(ssf(), nobody, RestrictedOperation::SaslBind, None);
        check(ssf(), nobody, RestrictedOperation::SimpleBind, Some((13, "confidentiality required")));
        check(ssf(), nobody, RestrictedOperation::AnonymousBind, None);
        let factors = |security| CommonSettings { security, ..plain() };
        for (security, expected) in [
            (SecurityFactors { simple_bind: 128, ..SecurityFactors::default() }, None),
            (
                SecurityFactors { tls: 1, ..SecurityFactors::default() },
                Some((13, "TLS confidentiality required")),
            ),
            (
                SecurityFactors { transport: 1, ..SecurityFactors::default() },
                Some((13, "transport confidentiality required")),
            ),
            (SecurityFactors { sasl: 1, ..SecurityFactors::default() }, None),
        ] {
            check(factors(security), nobody, RestrictedOperation::AnonymousBind, expected);
        }
        let no_search = || CommonSettings {
            restrictions: Restrictions { search: true, ..Restrictions::default() },
            ..plain()
        };
        check(no_search(), user, RestrictedOperation::Search, Some((53, "operation restricted")));
        check(no_search(), user, RestrictedOperation::Compare, None);
    }

    #[test]
    fn a_configuration_that_asks_nothing_asks_who_changes_something() {
        let subject = Subject::default();
        let nobody = SessionState { version: 3, ..SessionState::default() };
        let refusal = |rules: &Rules, operation| {
            let checked = rules.check_request(&nobody, &subject, operation, Controls::default());
            checked.err().map(|result| result.code)
        };
        let of = |shared: CommonSettings| Rules::new(&CommonSettings::default(), Some(&shared), false);
        let nothing = of(CommonSettings::default());
        assert!(nothing.is_empty());
        for operation in [
            RestrictedOperation::Search,
            RestrictedOperation::Compare,
            RestrictedOperation::SimpleBind,
            RestrictedOperation::SaslBind,
        ] {
            assert_eq!(refusal(&nothing, operation), None, "{operation:?}");
        }
        for operation in
            [RestrictedOperation::Add, RestrictedOperation::Modify, RestrictedOperation::Extended("1.2.3")]
        {
            let expected = Some(ResultCode::STRONGER_AUTH_REQUIRED);
            assert_eq!(refusal(&nothing, operation), expected, "{operation:?}");
        }
        let requirements = Requirements { bind: true, ..Requirements::default() };
        let restrictions = Restrictions { search: true, ..Restrictions::default() };
        let security = SecurityFactors { ssf: 1, ..SecurityFactors::default() };
        for (shared, expected) in [
            (CommonSettings { requirements, ..CommonSettings::default() }, ResultCode::OPERATIONS_ERROR),
            (CommonSettings { restrictions, ..CommonSettings::default() }, ResultCode::UNWILLING_TO_PERFORM),
            (CommonSettings { security, ..CommonSettings::default() }, ResultCode::CONFIDENTIALITY_REQUIRED),
        ] {
            assert_eq!(refusal(&of(shared), RestrictedOperation::Search), Some(expected));
        }
    }
}
