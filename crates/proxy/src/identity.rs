//! Whose connection a request takes, and whom the target is asked to carry it out as.

use std::any::Any;
use std::sync::{Arc, Weak};

use larix_backend::Context;
use larix_client::Credentials;
use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::time::Monotonic;
use larix_proto::{LdapResult, ResultCode};

use crate::job::Owner;
use crate::proxy::Proxy;
use crate::settings::{Assertion, Mode};

/// Who asks, and since when: what of a request's surroundings is needed later.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) subject: Arc<Subject>,
    /// As long as its connection lives.
    pub(crate) client: Option<Weak<dyn Any + Send + Sync>>,
    pub(crate) began: Monotonic,
    /// The root of the database, who goes by `acl-bind`.
    pub(crate) is_root: bool,
    /// The root of the database, who acts for somebody else (RFC 4370).
    pub(crate) root_acts: bool,
}

impl Asker {
    pub(crate) fn of(context: &Context<'_>) -> Self {
        Self {
            subject: Arc::clone(context.subject),
            client: context.client.lifetime(),
            began: context.began,
            is_root: false,
            root_acts: false,
        }
    }

    /// As a database with these rules sees it: its root may be somebody else to the target.
    pub(crate) fn by(policy: &AccessPolicy, context: &Context<'_>) -> Self {
        let subject = context.subject;
        let acts = subject.authentication_dn().filter(|dn| subject.dn.as_ref() != Some(*dn));
        let root_acts =
            acts.is_some_and(|dn| policy.is_root(&Subject::default().bound_as(dn.clone(), dn.as_str())));
        Self { is_root: policy.is_root(subject), root_acts, ..Self::of(context) }
    }
}

/// Who a request is to the target.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) owner: Owner,
    /// What a connection is bound with.
    pub(crate) credentials: Option<Credentials>,
    /// Whom the target is to act for (RFC 4370), and whether the control is critical.
    pub(crate) acting: Option<(String, bool)>,
}

impl Chosen {
    const fn anonymous() -> Self {
        Self { owner: Owner::Anonymous, credentials: None, acting: None }
    }
}

/// # Errors
/// Somebody who may not be asserted (`idassert-authzFrom`).
pub(crate) fn choose(proxy: &Proxy, asker: &Asker) -> Result<Chosen, LdapResult> {
    let (settings, subject) = (&proxy.settings, &asker.subject);
    let assertion = settings.assertion.as_ref();
    if asker.is_root {
        let identity = settings.acl_bind.as_ref().map(|identity| (Owner::Root, identity));
        let identity = identity.or_else(|| assertion.map(|own| (Owner::Assertion, &own.identity)));
        return Ok(match identity {
            Some((owner, identity)) => {
                Chosen { owner, credentials: identity.credentials.clone(), acting: None }
            }
            None => Chosen::anonymous(),
        });
    }
    let client = || match &subject.dn {
        Some(dn) => format!("dn:{dn}"),
        None => "dn:".to_owned(),
    };
    if asker.root_acts
        && let Some(identity) = &settings.acl_bind
    {
        let acting = Some((client(), true));
        return Ok(Chosen { owner: Owner::Root, credentials: identity.credentials.clone(), acting });
    }
    // Rules of a target of `database meta` are about names as they are here, whatever the target calls them.
    let name = subject.outer_dn.as_ref().or(subject.dn.as_ref());
    let passes = |rules: &[crate::settings::IdentityRule]| rules.iter().any(|rule| rule.matches(name));
    let is_passed = passes(&settings.passed);
    if assertion.is_none_or(|assertion| !assertion.overrides || is_passed)
        && let Some(bound) = bound(proxy, asker)
    {
        return Ok(bound);
    }
    let Some(assertion) = assertion.filter(|_| !is_passed) else { return Ok(Chosen::anonymous()) };
    if !settings.asserted.is_empty() && !passes(&settings.asserted) {
        if assertion.prescriptive {
            let text = "the proxy may not act for this identity";
            return Err(LdapResult::with(ResultCode::INAPPROPRIATE_AUTHENTICATION, text));
        }
        return Ok(Chosen::anonymous());
    }
    let acting = match &assertion.mode {
        Mode::Legacy if subject.is_anonymous() => return Ok(Chosen::anonymous()),
        Mode::Itself => Some(client()),
        Mode::Legacy | Mode::None => None,
        Mode::Anonymous => Some("dn:".to_owned()),
        Mode::Fixed(identity) => Some(identity.clone()),
    };
    Ok(own(assertion, acting))
}

/// Whether somebody has bound to the target through this proxy.
pub(crate) fn has_bound(proxy: &Proxy, asker: &Asker) -> bool {
    bound(proxy, asker).is_some()
}

/// Of somebody who has bound to the target through this proxy.
fn bound(proxy: &Proxy, asker: &Asker) -> Option<Chosen> {
    let subject = &asker.subject;
    let authenticated = subject.authentication_dn()?;
    let client = asker.client.as_ref()?;
    let credentials = proxy.shared.is_bound(client, authenticated)?;
    // Who acts for somebody else (RFC 4370) is let to do so by the target.
    let acting = (subject.dn.as_ref() != Some(authenticated)).then(|| {
        let dn = subject.dn.as_ref().map_or("", |dn| dn.as_str());
        (format!("dn:{dn}"), true)
    });
    Some(Chosen { owner: Owner::User(authenticated.clone()), credentials, acting })
}

fn own(assertion: &Assertion, acting: Option<String>) -> Chosen {
    Chosen {
        owner: Owner::Assertion,
        credentials: assertion.identity.credentials.clone(),
        acting: acting.map(|identity| (identity, assertion.critical)),
    }
}
