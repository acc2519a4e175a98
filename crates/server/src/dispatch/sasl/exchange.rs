//! A SASL bind of several requests: what the next one continues (RFC 4513 section 5.2.1).

use larix_configuration::values::Mechanism;
use larix_engine::password::ScramSecret;
use larix_sasl::scram::{self, Verifier};
use larix_sasl::{digest_md5, prepare};
use larix_schema::NormalDn;

use crate::security_layer::{LayerError, SecurityLayer};

/// Largest token of a mechanism that is looked at, in bytes: a Kerberos ticket with its privileges has tens of thousands.
pub(crate) const TOKEN_MAX: usize = 96 * 1024;

/// Waits for the client's next message.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) mechanism: Mechanism,
    pub(crate) state: State,
}

#[derive(Debug)]
pub(crate) enum State {
    /// The client was asked to begin.
    Begin,
    Scram {
        server: Box<scram::Server>,
        claim: Box<Claim>,
        /// What the challenge was made of.
        secret: Option<ScramSecret>,
    },
    DigestMd5(Box<digest_md5::Server>),
    CramMd5 {
        challenge: String,
    },
    #[cfg(feature = "gssapi")]
    Gssapi(Box<super::gssapi::Acceptor>),
}

/// The identity that the client claims.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) authcid: String,
    /// Empty: the user itself.
    pub(crate) authzid: String,
    /// The mechanism's name for the user, in normal form.
    pub(crate) identity: String,
    /// The directory's.
    pub(crate) dn: NormalDn,
}

/// What is needed to answer a SCRAM client's first message; made where it may take its time.
#[derive(Debug)]
pub(crate) struct ScramStart {
    pub(crate) first: scram::ClientFirst,
    pub(crate) hash: scram::Hash,
    pub(crate) plus: bool,
    pub(crate) claim: Claim,
    pub(crate) secret: Option<ScramSecret>,
    pub(crate) server_secret: [u8; 32],
}

impl ScramStart {
    /// The verifier to go on with. For a known and for an unknown user the same work is done, and the answer has the same form.
    pub(crate) fn verifier(&self) -> Verifier {
        let (hash, name) = (self.hash, &self.claim.identity);
        let salt = scram::salt_for(hash, &self.server_secret, name);
        let given: &[u8] = match &self.secret {
            Some(ScramSecret::Password(password)) => password,
            _ => b"nobody's password",
        };
        let derived = Verifier::derive(hash, given, &salt, scram::ITERATIONS);
        match &self.secret {
            Some(ScramSecret::Verifier(verifier)) => verifier.clone(),
            Some(ScramSecret::Password(_)) => derived,
            None => Verifier::of_nobody(hash, &self.server_secret, name, scram::ITERATIONS),
        }
    }
}

impl Claim {
    /// The name as it is compared.
    pub(crate) fn prepared(authcid: &str) -> String {
        prepare(authcid).into_owned()
    }
}

/// DIGEST-MD5's layer in the server's terms.
#[derive(Debug)]
pub(crate) struct DigestLayer {
    pub(crate) layer: digest_md5::Layer,
    pub(crate) ssf: u32,
}

impl SecurityLayer for DigestLayer {
    fn unwrap(&mut self, buffer: &[u8], plain: &mut Vec<u8>) -> Result<(), LayerError> {
        self.layer.open(buffer, plain).map_err(|fault| LayerError::Mechanism(fault.to_string()))
    }

    fn wrap(&mut self, plain: &[u8], buffer: &mut Vec<u8>) -> Result<(), LayerError> {
        self.layer.seal(plain, buffer);
        Ok(())
    }

    fn send_max(&self) -> usize {
        self.layer.chunk()
    }

    fn receive_max(&self) -> usize {
        self.layer.limit()
    }

    fn ssf(&self) -> u32 {
        self.ssf
    }
}
