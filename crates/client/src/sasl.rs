//! SASL binds with a password, or with a ticket.

use std::fmt;

use base64::Engine;
use larix_proto::{ResultCode, client};
use larix_sasl::digest_md5;
use larix_sasl::plain::Plain;
use larix_sasl::scram::{Client, ClientBinding, Hash};

use zeroize::Zeroizing;

use crate::error::ClientError;
use crate::session::{Reply, Session};

/// Random bytes in a nonce.
const NONCE_BYTES: usize = 18;

/// A SASL mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    Plain,
    Scram {
        hash: Hash,
        /// Bound to the channel.
        plus: bool,
    },
    DigestMd5,
    /// Kerberos V5, without a layer.
    #[cfg(feature = "gssapi")]
    Gssapi,
}

impl Mechanism {
    /// # Errors
    /// A mechanism that is not supported.
    pub fn from_name(name: &str) -> Result<Self, ClientError> {
        #[cfg(feature = "gssapi")]
        if name.eq_ignore_ascii_case(Self::Gssapi.name()) {
            return Ok(Self::Gssapi);
        }
        for one in [Self::Plain, Self::DigestMd5] {
            if name.eq_ignore_ascii_case(one.name()) {
                return Ok(one);
            }
        }
        let all = Hash::ALL.into_iter().flat_map(|hash| [false, true].map(|plus| Self::Scram { hash, plus }));
        all.into_iter().find(|mechanism| mechanism.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
            ClientError::Usage(format!(
                "{name}: EXTERNAL, PLAIN, SCRAM-SHA-512, SCRAM-SHA-256 and SCRAM-SHA-1 are supported, these three \
                 with -PLUS, too, DIGEST-MD5, and in a build with the feature gssapi GSSAPI"
            ))
        })
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => larix_sasl::plain::NAME,
            Self::Scram { hash, plus: false } => hash.mechanism(),
            Self::Scram { hash, plus: true } => hash.plus_mechanism(),
            Self::DigestMd5 => digest_md5::NAME,
            #[cfg(feature = "gssapi")]
            Self::Gssapi => "GSSAPI",
        }
    }

    /// Whether it needs a user's name and password; Kerberos has its ticket.
    pub const fn takes_password(self) -> bool {
        match self {
            #[cfg(feature = "gssapi")]
            Self::Gssapi => false,
            _ => true,
        }
    }
}

/// Who binds, as whom, and with what.
#[derive(PartialEq, Eq)]
pub struct SaslPassword {
    pub mechanism: Mechanism,
    pub user: String,
    pub authorization: String,
    /// Of DIGEST-MD5; empty: the server's.
    pub realm: String,
    pub password: Zeroizing<Vec<u8>>,
}

/// Passwords stay out of messages.
impl fmt::Debug for SaslPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaslPassword")
            .field("mechanism", &self.mechanism)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl SaslPassword {
    /// Binds; the last answer. A server that cannot prove that it knows the user is an error.
    pub(crate) fn bind(&self, session: &mut Session) -> Result<Reply, ClientError> {
        match self.mechanism {
            Mechanism::Plain => {
                let password = std::str::from_utf8(&self.password)
                    .map_err(|_| ClientError::Usage("PLAIN: the password is not UTF-8".to_owned()))?;
                let plain = Plain { authzid: &self.authorization, authcid: &self.user, password };
                self.step(session, &plain.encode())
            }
            Mechanism::Scram { hash, plus } => {
                let binding = match plus {
                    true => session.connection.channel_binding(session.ambient.end_point_binding)?,
                    false => ClientBinding::Unsupported,
                };
                self.scram(session, hash, binding)
            }
            Mechanism::DigestMd5 => self.digest(session),
            #[cfg(feature = "gssapi")]
            Mechanism::Gssapi => self.gssapi(session),
        }
    }

    fn digest(&self, session: &mut Session) -> Result<Reply, ClientError> {
        let name = digest_md5::NAME;
        let fault = |fault| ClientError::Input { name: name.to_owned(), why: format!("{fault}") };
        let challenge = session.call(|out, id, _| client::sasl_bind(out, id, "", name, None, &[]))?;
        if challenge.result.code != ResultCode::SASL_BIND_IN_PROGRESS {
            return Ok(challenge);
        }
        let nonce = nonce(session);
        let host = session.connection.host().to_owned();
        let asked = digest_md5::Asked {
            username: &self.user,
            realm: &self.realm,
            authzid: &self.authorization,
            host: &host,
            nonce: &nonce,
        };
        let challenge = challenge.value.unwrap_or_default();
        let client = digest_md5::Client::respond(&challenge, asked, &self.password).map_err(fault)?;
        let mut last = self.step(session, client.message().as_bytes())?;
        if last.result.code == ResultCode::SASL_BIND_IN_PROGRESS {
            // A server's proof may come as a step of its own, that is acknowledged.
            client.verify(last.value.as_deref().unwrap_or_default()).map_err(fault)?;
            return self.step(session, &[]);
        }
        if last.result.code == ResultCode::SUCCESS {
            client.verify(last.value.take().as_deref().unwrap_or_default()).map_err(fault)?;
        }
        Ok(last)
    }

    fn scram(&self, session: &mut Session, hash: Hash, binding: ClientBinding) -> Result<Reply, ClientError> {
        let nonce = nonce(session);
        let mut client = Client::new(hash, &self.user, &self.authorization, &nonce, binding);
        let fault = |fault| ClientError::Input { name: hash.mechanism().to_owned(), why: format!("{fault}") };
        let challenge = self.step(session, client.first().as_bytes())?;
        if challenge.result.code != ResultCode::SASL_BIND_IN_PROGRESS {
            return Ok(challenge);
        }
        let server_first = challenge.value.unwrap_or_default();
        let proof = client.respond(&server_first, &self.password).map_err(fault)?;
        let last = self.step(session, proof.as_bytes())?;
        if last.result.code == ResultCode::SUCCESS {
            client.verify(last.value.as_deref().unwrap_or_default()).map_err(fault)?;
        }
        Ok(last)
    }

    pub(crate) fn step(&self, session: &mut Session, message: &[u8]) -> Result<Reply, ClientError> {
        let name = self.mechanism.name();
        session.call(|out, id, _| client::sasl_bind(out, id, "", name, Some(message), &[]))
    }
}

fn nonce(session: &Session) -> String {
    let mut bytes = [0; NONCE_BYTES];
    (session.ambient.random)(&mut bytes);
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
