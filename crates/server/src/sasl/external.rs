//! SASL EXTERNAL (RFC 4422 appendix A): the layer below LDAP identifies the client. The kernel does so for a Unix socket, the
//! verified client certificate for TLS.

use larix_proto::Dn;
use larix_schema::Schema;

use crate::session::{PeerCredentials, Session};

/// The authentication identity of a local process, as OpenLDAP forms it.
pub(crate) fn local_identity(peer: PeerCredentials) -> String {
    format!("gidNumber={}+uidNumber={},cn=peercred,cn=external,cn=auth", peer.gid, peer.uid)
}

/// The peer's identity as layers below LDAP know it: the certificate's first, then the process's.
pub(crate) fn identity(session: &Session, schema: &Schema) -> Option<String> {
    let certificate = session.tls.as_ref().and_then(|tls| tls.peer_dn.as_deref()).map(|subject| {
        let normal = Dn::parse(subject).ok().and_then(|dn| schema.normalize_dn(&dn).ok());
        normal.map_or_else(|| subject.to_owned(), |dn| dn.as_str().to_owned())
    });
    certificate.or_else(|| session.credentials.map(local_identity))
}
