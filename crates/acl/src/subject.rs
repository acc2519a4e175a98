//! The subject of a request: the identity that access rules judge.

use std::sync::{Arc, OnceLock};

use larix_schema::NormalDn;

use super::decisions::Decided;
use super::strength::Strength;

/// The identity of a request and what its connection is known by. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    /// Whom the request acts as (the authorization identity); `None` is anonymous.
    pub dn: Option<NormalDn>,
    /// The identity that authenticated, if it is another one (proxied authorization); `None`: the same as `dn`.
    pub real_dn: Option<NormalDn>,
    /// The name of `dn` in front of what maps names on the way to a backend; `None`: the same.
    pub outer_dn: Option<NormalDn>,
    /// As the Who am I? operation answers: `dn:` and the DN as it was given, or empty for anonymous (RFC 4532).
    pub authz_text: Arc<str>,
    pub peer: Arc<PeerNames>,
    /// Security strength factors, in bits of an equal symmetric key.
    pub strength: Strength,
    /// The request itself, where rules ask about it (`op=`, `control=`); they match nothing with `None`.
    pub request: Option<Arc<RequestFacts>>,
    /// What rules were found to say to this subject; a copy starts without.
    pub decisions: Decided,
}

/// What a rule can know of a request beside its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestFacts {
    pub operation: Operation,
    /// OIDs of the controls that came with it and are known to the server.
    pub controls: Vec<String>,
}

/// A kind of request, as `op=` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    Bind,
    Add,
    Delete,
    Modify,
    Rename,
    Search,
    Compare,
    /// An extended operation, by its OID.
    Extended(String),
}

/// How a connection is known, in OpenLDAP's forms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerNames {
    /// `IP=192.0.2.1:40000`, `IP=[2001:db8::1]:40000` or `PATH=/run/ldapi`.
    pub peer_name: String,
    /// The listener's side, in the same forms.
    pub sock_name: String,
    /// The listener's URL: `ldap://:389/`.
    pub sock_url: String,
    /// The client's host name as a reverse look-up gave it, in lower case; set once, if ever.
    pub domain: OnceLock<String>,
    /// What is below LDAP knows who is there: the kernel or a client certificate (SASL EXTERNAL).
    pub has_identity: bool,
}

impl PeerNames {
    /// What `domain` clauses compare: OpenLDAP's `unknown` where no name was looked up or found.
    pub fn domain(&self) -> &str {
        self.domain.get().map_or("unknown", String::as_str)
    }
}

impl Subject {
    pub fn anonymous(peer: Arc<PeerNames>, strength: Strength) -> Self {
        Self { peer, strength, ..Self::default() }
    }

    /// This connection after a bind: `dn` in normal form and as text to show.
    #[must_use]
    pub fn bound_as(&self, dn: NormalDn, pretty_dn: &str) -> Self {
        if dn.is_root() {
            return Self::anonymous(Arc::clone(&self.peer), self.strength);
        }
        Self { dn: Some(dn), real_dn: None, authz_text: format!("dn:{pretty_dn}").into(), ..self.clone() }
    }

    /// This connection with another authorization identity (RFC 4370).
    #[must_use]
    pub fn acting_as(&self, dn: NormalDn, pretty_dn: &str) -> Self {
        let real_dn = self.real_dn.clone().or_else(|| self.dn.clone());
        Self { real_dn, ..self.bound_as(dn, pretty_dn) }
    }

    /// The same identity in a request that rules may ask about.
    #[must_use]
    pub fn in_request(&self, facts: RequestFacts) -> Self {
        Self { request: Some(Arc::new(facts)), ..self.clone() }
    }

    pub const fn is_anonymous(&self) -> bool {
        self.dn.is_none()
    }

    /// Who authenticated.
    pub const fn authentication_dn(&self) -> Option<&NormalDn> {
        match &self.real_dn {
            Some(dn) => Some(dn),
            None => self.dn.as_ref(),
        }
    }

    /// The DN as it was given at the bind; empty for anonymous.
    pub fn shown_dn(&self) -> &str {
        self.authz_text.strip_prefix("dn:").unwrap_or_default()
    }
}
