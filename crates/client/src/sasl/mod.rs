//! SASL binds with a password, or with a ticket.

mod exchange;

use std::fmt;

use base64::Engine;
use larix_proto::client;
use larix_sasl::digest_md5;
use larix_sasl::scram::{ClientBinding, Hash};

use zeroize::Zeroizing;

use crate::error::ClientError;
use crate::session::{Ambient, Reply, Session};
pub use exchange::{FirstMessage, SaslExchange, Surroundings};

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
#[derive(Clone, PartialEq, Eq)]
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
        #[cfg(feature = "gssapi")]
        if self.mechanism == Mechanism::Gssapi {
            return self.gssapi(session);
        }
        let binding = match self.mechanism {
            Mechanism::Scram { plus: true, .. } => {
                session.connection.channel_binding(session.ambient.end_point_binding)?
            }
            _ => ClientBinding::Unsupported,
        };
        let fault = |why| ClientError::Input { name: self.mechanism.name().to_owned(), why };
        let host = session.connection.host().to_owned();
        let around = Surroundings { host: &host, nonce: nonce(session.ambient), binding };
        let (mut exchange, first) = SaslExchange::begin(self, around).map_err(ClientError::Usage)?;
        let mut reply = self.step(session, first.as_ref().map(|message| message.as_slice()))?;
        loop {
            let server = reply.value.take().unwrap_or_default();
            match exchange.answer(reply.result.code, &server).map_err(fault)? {
                Some(message) => reply = self.step(session, Some(&message))?,
                None => return Ok(reply),
            }
        }
    }

    pub(crate) fn step(&self, session: &mut Session, message: Option<&[u8]>) -> Result<Reply, ClientError> {
        let name = self.mechanism.name();
        session.call(|out, id, _| client::sasl_bind(out, id, "", name, message, &[]))
    }
}

pub(crate) fn nonce(ambient: Ambient) -> String {
    let mut bytes = [0; NONCE_BYTES];
    (ambient.random)(&mut bytes);
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
