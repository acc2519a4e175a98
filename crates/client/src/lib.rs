//! Connections to other LDAP servers, as the tools and replication make them: `ldap://`, `ldaps://`, `ldapi://` and StartTLS,
//! simple and SASL binds, with blocking I/O and one request at a time.
//!
//! Below the blocking client is one without I/O: [`MessageLayer`] for the requests of a connection, [`Channel`] with TLS and binds around
//! it, [`SaslExchange`] for a mechanism. An event loop drives it with bytes and the time.
//!
//! *Invariant:* no random byte is made here and no user is asked: both are parameters ([`Ambient`]).

pub mod authorities;
mod bind;
mod certificate;
mod channel;
pub mod ciphers;
mod connection;
pub mod dial;
mod error;
mod fault;
#[cfg(feature = "gssapi")]
mod gssapi;
mod ldap_conf;
mod messages;
mod peer_fault;
mod pins;
pub mod proof;
pub mod revocation;
mod sasl;
mod session;
mod stop;
mod tls;
mod trust;
mod verifier;

pub use bind::Credentials;
pub use channel::{Channel, Opening, Security};
pub use connection::{Connection, ConnectionOptions};
pub use dial::KeepAlive;
pub use error::{ClientError, write_result};
pub use fault::SettingNames;
pub use ldap_conf::{LdapConf, Origin, Setting};
pub use messages::{Answer, GIVEN_UP_MAX, GivingUp, MessageLayer, MessageLimits, NotSent};
pub use peer_fault::PeerFault;
pub use pins::PeerKeyHash;
pub use sasl::{FirstMessage, Mechanism, SaslExchange, SaslPassword, Surroundings};
pub use session::{Ambient, Reply, Session};
pub use stop::Stop;
pub use tls::{Handshake, TlsClient, TlsOptions, fault_after_handshake};
