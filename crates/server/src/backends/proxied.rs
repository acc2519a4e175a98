//! Databases that others have, `database ldap`, `database meta` and `database relay`: their backends with what the server adds to each database: its
//! root's password, and limits.

use std::sync::Arc;

use larix_backend::{
    Announcement, Backend, Bind, Changes, Compare, Context, Cursor, End, ExtendedAnswer, ExtendedOperation,
    Later, PasswordChange, PasswordChangeOutcome, PendingAnswer, Proof, Reply, Search, Secret, Verdict,
    answer_now,
};
use larix_client::Ambient;
use larix_configuration::values::LimitRule;
use larix_configuration::{Database, LdapSettings, MetaTarget};
use larix_engine::Limits;
use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::search::limits::{self, RequestedLimits};
use larix_engine::search::referral;
use larix_engine::time::RandomSource as _;
use larix_engine::write::Completion;
use larix_proto::{LdapResult, ResultCode};
use larix_proxy::{Proxy, ProxySettings, Surroundings};
use larix_schema::NormalDn;

use super::{Common, search_limits};
use crate::clock::SystemRandom;
use crate::log::printable;
use crate::services::Services;
use crate::tls::end_point_binding;

/// The connections of a database.
///
/// # Errors
/// Settings of TLS that cannot be used; no thread is left.
pub(crate) fn connections(
    services: &Arc<Services>,
    database: &Database,
) -> Result<Option<Arc<Proxy>>, String> {
    let Some(LdapSettings { proxy: settings }) = database.kind.settings() else { return Ok(None) };
    let suffix = database.suffixes.first().map(|suffix| suffix.normal.as_str()).unwrap_or_default();
    if !database.hidden {
        return connections_by_name(services, suffix, settings).map(Some);
    }
    // Others may have the same suffix.
    let urls: Vec<String> = settings.targets.iter().map(ToString::to_string).collect();
    connections_by_name(services, &format!("{suffix} at {}", urls.join(" ")), settings).map(Some)
}

/// The connections with these settings, kept by a name.
///
/// # Errors
/// Settings of TLS that cannot be used; no thread is left.
pub(super) fn connections_by_name(
    services: &Arc<Services>,
    name: &str,
    settings: &ProxySettings,
) -> Result<Arc<Proxy>, String> {
    let around = || {
        let teller = Arc::downgrade(services);
        Ok(Surroundings {
            clock: Arc::clone(&services.clock) as _,
            ambient: Ambient { random: |bytes| SystemRandom.fill(bytes), end_point_binding },
            tls: settings.tls_client().map_err(|error| error.to_string())?,
            tell: Box::new(move |text| {
                if let Some(services) = teller.upgrade() {
                    // Words of the target stand in it.
                    services.log.notice(format_args!("{}", printable(text)));
                }
            }),
        })
    };
    services.proxies.of(name, settings, around)
}

/// The connections of each target of a database, in their order.
///
/// # Errors
/// Settings of TLS that cannot be used; no thread is left.
pub(crate) fn connections_of_targets(
    services: &Arc<Services>,
    database: &Database,
    targets: &[MetaTarget],
) -> Result<Vec<Arc<Proxy>>, String> {
    let suffix = database.suffixes.first().map(|suffix| suffix.normal.as_str()).unwrap_or_default();
    let connections = |(number, target): (usize, &MetaTarget)| {
        connections_by_name(services, &format!("{suffix} target {}", number + 1), &target.proxy)
    };
    targets.iter().enumerate().map(connections).collect()
}

/// A database that another server or another database has.
#[derive(Debug)]
pub(crate) struct ProxiedBackend {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) policy: Arc<AccessPolicy>,
    pub(crate) common: Arc<Common>,
    pub(crate) root_dn: Option<NormalDn>,
    pub(crate) root_password: Option<Secret>,
    pub(crate) rules: Vec<LimitRule>,
    pub(crate) limits: Limits,
    pub(crate) shadow: Option<Shadow>,
}

/// Of a database that follows a provider: it is changed there.
#[derive(Debug)]
pub(crate) struct Shadow {
    /// Who may change it nevertheless (`updatedn`).
    pub(crate) update_dn: Option<NormalDn>,
    /// Where others are sent (`updateref`).
    pub(crate) referrals: Vec<String>,
}

impl ProxiedBackend {
    /// What a change is answered that is to be made elsewhere.
    fn shadow_refusal(&self, context: &Context<'_>, target: &str) -> Option<LdapResult> {
        let shadow = self.shadow.as_ref()?;
        if context.subject.dn.is_some() && context.subject.dn == shadow.update_dn {
            return None;
        }
        if shadow.referrals.is_empty() {
            let text = "shadow context; no update referral";
            return Some(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
        }
        let schema = &self.common.config.schema;
        let referrals = referral::rewrite(schema, &shadow.referrals, None, Some(target), None);
        Some(LdapResult { referrals, ..LdapResult::new(ResultCode::REFERRAL) })
    }

    fn limits(&self, subject: &Subject, base: &NormalDn) -> Limits {
        search_limits::by_name(&self.rules, self.limits, subject, base)
    }
}

impl Backend for ProxiedBackend {
    fn open(&self, context: &Context<'_>, mut search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        let refused = |result| Box::new((result, Vec::new()));
        let requests = &self.common.config.global.request_limits;
        requests.check_search(&search.request, &search.controls).map_err(refused)?;
        let is_root = self.policy.is_root(context.subject);
        let subject_limits = (!is_root).then(|| self.limits(context.subject, search.base));
        let page = search.controls.paged.as_ref().map(|page| (page.size, 0));
        let requested =
            RequestedLimits { size: search.request.size_limit, time: search.request.time_limit, page };
        let effective = limits::effective(subject_limits.as_ref(), requested).map_err(refused)?;
        // Of pages the target counts what came before.
        if page.is_none() {
            search.request.size_limit = effective.size.unwrap_or(0);
        }
        search.request.time_limit = effective.time.unwrap_or(0);
        let mut cursor = self.backend.open(context, search)?;
        // What is answered without pages, several targets together, is limited all the same.
        if let (true, Some(entries)) = (page.is_some(), effective.size) {
            cursor.limit_size(entries);
        }
        Ok(cursor)
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End> {
        self.backend.compare(context, compare, later)
    }

    fn bind(&self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        let passwords = self.secrets(context, bind.dn);
        if passwords.is_empty() || !matches!(bind.proof, Proof::Password(_)) {
            return self.backend.bind(context, bind, later);
        }
        self.common.bind_without_database(context, bind, passwords, later)
    }

    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        if let Some(refused) = self.shadow_refusal(context, &change.target) {
            return Reply::Now(refused.into());
        }
        self.backend.modify_password(context, change, later)
    }

    fn extended(
        &self,
        context: &Context<'_>,
        operation: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        self.backend.extended(context, operation, later)
    }

    fn heeds(&self, control: &str) -> bool {
        self.backend.heeds(control)
    }

    fn secrets(&self, _: &Context<'_>, dn: &NormalDn) -> Vec<Secret> {
        let is_root = self.root_dn.as_ref() == Some(dn);
        self.root_password.clone().filter(|_| is_root).into_iter().collect()
    }

    fn update(&self, context: &Context<'_>, changes: Changes, done: Completion) -> PendingAnswer {
        if let Changes::One(request, _) = &changes
            && let Some(refused) = self.shadow_refusal(context, request.operation.target())
        {
            return answer_now(done, refused);
        }
        self.backend.update(context, changes, done)
    }

    fn policy(&self, dn: &NormalDn) -> Option<Arc<AccessPolicy>> {
        self.backend.policy(dn)
    }

    fn announce(&self, announced: &mut Announcement) {
        self.backend.announce(announced);
    }
}
