//! The client's side: [`Client::first`], [`Client::respond`], [`Client::verify`].

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::message::{ServerFirst, escape, text};
use super::{ClientKeys, Hash, ITERATIONS_MIN, xor};
use crate::{Fault, prepare};

/// How the client binds to its channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientBinding {
    /// It cannot.
    Unsupported,
    /// It could, and the server offers no `-PLUS` mechanism.
    NotOffered,
    /// To a channel of this type, with these data.
    Used { name: &'static str, data: Vec<u8> },
}

/// One exchange.
#[derive(Debug)]
pub struct Client {
    hash: Hash,
    binding: ClientBinding,
    gs2_header: String,
    bare: String,
    nonce: String,
    /// What the server must prove it knows.
    expected: Option<Zeroizing<Vec<u8>>>,
}

impl Client {
    /// A client that authenticates as `authcid` to act as `authzid` (empty: himself). `nonce` is of graphic characters
    /// without comma.
    pub fn new(hash: Hash, authcid: &str, authzid: &str, nonce: &str, binding: ClientBinding) -> Self {
        let flag = match &binding {
            ClientBinding::Unsupported => "n".to_owned(),
            ClientBinding::NotOffered => "y".to_owned(),
            ClientBinding::Used { name, .. } => format!("p={name}"),
        };
        let authzid = match authzid {
            "" => String::new(),
            name => format!("a={}", escape(name)),
        };
        let bare = format!("n={},r={nonce}", escape(&prepare(authcid)));
        let gs2_header = format!("{flag},{authzid},");
        Self { hash, binding, gs2_header, bare, nonce: nonce.to_owned(), expected: None }
    }

    /// The first message.
    pub fn first(&self) -> String {
        format!("{}{}", self.gs2_header, self.bare)
    }

    /// Salt and rounds that a server's first message asks for: who keeps [`ClientKeys`] need not derive them twice.
    ///
    /// # Errors
    /// As [`respond`](Self::respond).
    pub fn parameters(server_first: &[u8]) -> Result<(Vec<u8>, u32), Fault> {
        ServerFirst::parse(server_first).map(|first| (first.salt, first.iterations))
    }

    /// Answers the server's first message with the proof of the password.
    ///
    /// # Errors
    /// If the message is malformed or of another exchange, or asks for too few rounds.
    pub fn respond(&mut self, server_first: &[u8], password: &[u8]) -> Result<String, Fault> {
        let (salt, iterations) = Self::parameters(server_first)?;
        if iterations < ITERATIONS_MIN {
            return Err(Fault::Unsupported("an iteration count below 4096 is"));
        }
        let keys = ClientKeys::derive(self.hash, password, &salt, iterations);
        self.respond_with(server_first, &keys)
    }

    /// As [`respond`](Self::respond), with keys that were derived before for the same salt and rounds.
    ///
    /// # Errors
    /// If the message is malformed or of another exchange.
    pub fn respond_with(&mut self, server_first: &[u8], keys: &ClientKeys) -> Result<String, Fault> {
        let first = ServerFirst::parse(server_first)?;
        if !first.nonce.starts_with(&self.nonce) || first.nonce.len() == self.nonce.len() {
            return Err(Fault::Mismatch("nonce"));
        }
        let mut channel = self.gs2_header.clone().into_bytes();
        if let ClientBinding::Used { data, .. } = &self.binding {
            channel.extend_from_slice(data);
        }
        let without_proof = format!("c={},r={}", STANDARD.encode(&channel), first.nonce);
        let signed: [&[u8]; 5] = [self.bare.as_bytes(), b",", server_first, b",", without_proof.as_bytes()];
        let signature = self.hash.hmac(&keys.stored_key, &signed);
        let proof = xor(&keys.client_key, &signature);
        self.expected = Some(self.hash.hmac(&keys.server_key, &signed));
        Ok(format!("{without_proof},p={}", STANDARD.encode(&*proof)))
    }

    /// Whether the server's last message proves that it knows the verifier.
    ///
    /// # Errors
    /// If it does not.
    pub fn verify(&self, server_final: &[u8]) -> Result<(), Fault> {
        let text = text(server_final)?;
        let value = text.split(',').next().and_then(|part| part.strip_prefix("v=")).ok_or(Fault::Peer)?;
        let proof = STANDARD.decode(value).map_err(|_| Fault::Malformed("verifier"))?;
        let expected = self.expected.as_ref().ok_or(Fault::Peer)?;
        if bool::from(proof.ct_eq(expected)) { Ok(()) } else { Err(Fault::Peer) }
    }
}
