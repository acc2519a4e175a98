//! SASL EXTERNAL (RFC 4422 appendix A) over a Unix socket: the kernel says who is there.

use crate::session::PeerCredentials;

/// The mechanism's name.
pub const MECHANISM: &str = "EXTERNAL";

/// The authentication identity of a local process, as OpenLDAP forms it.
pub fn identity(peer: PeerCredentials) -> String {
    format!("gidNumber={}+uidNumber={},cn=peercred,cn=external,cn=auth", peer.gid, peer.uid)
}
