//! A connection's session: the client's identity, and how it authenticated.

use std::sync::Arc;

use larix_engine::access::{PeerNames, Strength, Subject};
use larix_schema::NormalDn;

use crate::restrictions::SessionState;
use crate::tls::TlsFacts;

/// The process at the other end of a Unix socket, as the kernel knows it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerCredentials {
    pub uid: u32,
    pub gid: u32,
}

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// `IP=192.0.2.1:40000` or `PATH=/run/ldapi`.
    pub name: String,
    /// For `ldapi://` alone.
    pub credentials: Option<PeerCredentials>,
}

/// How a session authenticated.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Method {
    #[default]
    None,
    Simple,
    Sasl,
}

/// The state that a bind changes.
#[derive(Debug)]
pub(crate) struct Session {
    subject: Arc<Subject>,
    anonymous: Arc<Subject>,
    pub credentials: Option<PeerCredentials>,
    /// Once TLS is established.
    pub tls: Option<Arc<TlsFacts>>,
    /// Another user set the password: until the client changes it, other requests are refused.
    pub must_change_password: bool,
    /// The bind that is under way came with the password policy control.
    pub asks_password_policy: bool,
    method: Method,
    /// The SASL mechanism of the last bind that succeeded; empty for a simple one.
    mechanism: &'static str,
    version: u8,
    bound: bool,
}

impl Session {
    /// A session before any bind. `local_ssf` is the strength given to `ldapi://` (`localSSF`).
    pub(crate) fn new(peer: Peer, sock_name: &str, sock_url: &str, local_ssf: u32) -> Self {
        let ssf = if peer.credentials.is_some() { local_ssf } else { 0 };
        let strength = Strength { overall: ssf, transport: ssf, tls: 0, sasl: 0 };
        let names = PeerNames {
            peer_name: peer.name,
            sock_name: sock_name.to_owned(),
            sock_url: sock_url.to_owned(),
            has_identity: peer.credentials.is_some(),
            ..PeerNames::default()
        };
        let anonymous = Arc::new(Subject::anonymous(Arc::new(names), strength));
        Self {
            subject: anonymous.clone(),
            anonymous,
            credentials: peer.credentials,
            tls: None,
            must_change_password: false,
            asks_password_policy: false,
            method: Method::None,
            mechanism: "",
            version: 3,
            bound: false,
        }
    }

    pub(crate) fn subject(&self) -> &Arc<Subject> {
        &self.subject
    }

    /// The subject of this connection without its identity, for a client that is about to authenticate.
    pub(crate) fn anonymous(&self) -> &Arc<Subject> {
        &self.anonymous
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        !self.subject.is_anonymous()
    }

    /// Anonymous again, as every bind request makes the session until it succeeds (RFC 4513 section 4).
    /// `version` is the protocol's, if it is one that is spoken here.
    pub(crate) fn reset(&mut self, version: Option<u8>) {
        self.subject = self.anonymous.clone();
        self.method = Method::None;
        self.must_change_password = false;
        self.asks_password_policy = false;
        if let Some(version) = version {
            self.version = version;
            self.bound = true;
        }
    }

    /// Anonymous again, as before any bind. Who has to change a password first is gone with the identity.
    pub(crate) fn forget(&mut self) {
        self.subject = self.anonymous.clone();
        self.method = Method::None;
        self.must_change_password = false;
    }

    /// A bind succeeded. `shown_dn` is the DN as it is shown.
    pub(crate) fn bind(&mut self, dn: NormalDn, shown_dn: &str, method: Method, mechanism: &'static str) {
        self.subject = Arc::new(self.anonymous.bound_as(dn, shown_dn));
        self.method = method;
        self.mechanism = if method == Method::Sasl { mechanism } else { "" };
    }

    /// The SASL mechanism of the identity in force as the names of users have it, without `-PLUS`; empty without one.
    pub(crate) fn mechanism(&self) -> &'static str {
        let mechanism = if self.method == Method::Sasl { self.mechanism } else { "" };
        mechanism.strip_suffix("-PLUS").unwrap_or(mechanism)
    }

    /// The client that just bound acts as another identity from here on.
    pub(crate) fn act_as(&mut self, dn: NormalDn, shown_dn: &str) {
        self.subject = Arc::new(self.subject.acting_as(dn, shown_dn));
    }

    /// TLS is established. The bound identity stays (RFC 4513 section 3.1.4 leaves that to the server).
    pub(crate) fn secured(&mut self, facts: Arc<TlsFacts>) {
        let tls = facts.ssf;
        let has_identity = self.credentials.is_some() || facts.peer_dn.is_some();
        let with_identity = |subject: &Arc<Subject>| {
            let peer = Arc::new(PeerNames { has_identity, ..PeerNames::clone(&subject.peer) });
            Arc::new(Subject { peer, ..Subject::clone(subject) })
        };
        (self.anonymous, self.subject) = (with_identity(&self.anonymous), with_identity(&self.subject));
        self.tls = Some(facts);
        self.change_strength(|strength| strength.tls = tls);
    }

    /// The strength of the SASL security layer in force; 0 without one.
    pub(crate) fn set_sasl_strength(&mut self, ssf: u32) {
        self.change_strength(|strength| strength.sasl = ssf);
    }

    fn change_strength(&mut self, change: impl Fn(&mut Strength)) {
        let changed = |subject: &Arc<Subject>| {
            let mut subject = Subject::clone(subject);
            change(&mut subject.strength);
            let Strength { transport, tls, sasl, .. } = subject.strength;
            subject.strength.overall = transport.max(tls).max(sasl);
            Arc::new(subject)
        };
        let (anonymous, subject) = (changed(&self.anonymous), changed(&self.subject));
        (self.anonymous, self.subject) = (anonymous, subject);
    }

    pub(crate) fn state(&self) -> SessionState {
        let strength = self.subject.strength;
        SessionState {
            authenticated: self.is_authenticated(),
            sasl: self.method == Method::Sasl,
            bound: self.bound,
            version: self.version,
            ssf: strength.overall,
            transport_ssf: strength.transport,
            tls_ssf: strength.tls,
            sasl_ssf: strength.sasl,
        }
    }
}
