//! Connections to other LDAP servers, as the tools and replication make them: `ldap://`, `ldaps://`, `ldapi://` and StartTLS,
//! simple and SASL binds, with blocking I/O and one request at a time.
//!
//! *Invariant:* no random byte is made here and no user is asked: both are parameters ([`Ambient`]).

mod certificate;
pub mod ciphers;
mod connection;
mod error;
mod fault;
#[cfg(feature = "gssapi")]
mod gssapi;
mod sasl;
mod session;
mod stop;
mod tls;
mod trust;

pub use connection::{Connection, ConnectionOptions, KeepAlive};
pub use error::{ClientError, write_result};
pub use sasl::{Mechanism, SaslPassword};
pub use session::{Ambient, Credentials, Reply, Session};
pub use stop::Stop;
pub use tls::TlsOptions;
