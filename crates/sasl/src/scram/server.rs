//! The server's side: [`ClientFirst::parse`], then [`Server::start`] with the user's verifier, then
//! [`Server::finish`].

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use super::message::{BindingFlag, ClientFinal, ClientFirst};
use super::{Verifier, xor};
use crate::Fault;

/// What the server can bind to.
#[derive(Debug, Clone, Copy)]
pub struct ServerBinding<'a> {
    /// The `-PLUS` mechanism was asked for.
    pub plus: bool,
    /// `-PLUS` mechanisms are offered on this connection: a client that could bind and does not was lied to.
    pub offered: bool,
    /// Types and their data for this connection.
    pub channels: &'a [(&'a str, &'a [u8])],
}

/// An exchange after the first message: it waits for the client's proof.
#[derive(Debug)]
pub struct Server {
    verifier: Verifier,
    nonce: String,
    /// `client-first-message-bare , server-first-message ,`
    transcript: String,
    /// What `c=` must hold.
    binding: Vec<u8>,
}

impl Server {
    /// Answers the first message. `nonce` is this server's part, of graphic characters without comma.
    ///
    /// # Errors
    /// If client and server do not agree about the channel binding.
    pub fn start(
        first: &ClientFirst,
        verifier: Verifier,
        nonce: &str,
        binding: &ServerBinding<'_>,
    ) -> Result<(Self, String), Fault> {
        let channel: &[u8] = match &first.binding {
            // Cyrus SASL's clients bind and leave -PLUS out of the name: what binds is as good under either.
            BindingFlag::Used(_) if !binding.plus && binding.channels.is_empty() => {
                return Err(Fault::ChannelBinding("the mechanism has none"));
            }
            BindingFlag::Used(name) => {
                let found = binding.channels.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
                found.map(|(_, data)| *data).ok_or(Fault::ChannelBinding("type not available"))?
            }
            _ if binding.plus => return Err(Fault::ChannelBinding("the mechanism demands it")),
            BindingFlag::NotOffered if binding.offered => {
                return Err(Fault::ChannelBinding("somebody removed it from the mechanisms offered"));
            }
            BindingFlag::NotOffered | BindingFlag::Unsupported => &[],
        };
        let nonce = format!("{}{nonce}", first.nonce);
        let challenge = format!("r={nonce},s={},i={}", STANDARD.encode(&verifier.salt), verifier.iterations);
        let mut expected = first.gs2_header.clone().into_bytes();
        expected.extend_from_slice(channel);
        let transcript = format!("{},{challenge},", first.bare);
        Ok((Self { verifier, nonce, transcript, binding: expected }, challenge))
    }

    /// Judges the proof; the message that proves the server to the client.
    ///
    /// # Errors
    /// If the message is malformed or of another exchange, or the proof is wrong.
    pub fn finish(&self, message: &[u8]) -> Result<String, Fault> {
        let last = ClientFinal::parse(message)?;
        if !bool::from(last.nonce.as_bytes().ct_eq(self.nonce.as_bytes())) {
            return Err(Fault::Mismatch("nonce"));
        }
        if !bool::from(last.binding.ct_eq(&self.binding)) {
            return Err(Fault::ChannelBinding("the data differ"));
        }
        let Verifier { hash, stored_key, server_key, .. } = &self.verifier;
        let signed: [&[u8]; 2] = [self.transcript.as_bytes(), last.without_proof.as_bytes()];
        let signature = hash.hmac(stored_key, &signed);
        if last.proof.len() != signature.len() {
            return Err(Fault::Malformed("proof"));
        }
        let client_key = xor(&last.proof, &signature);
        if !bool::from(hash.hash(&client_key).ct_eq(stored_key)) {
            return Err(Fault::Proof);
        }
        Ok(format!("v={}", STANDARD.encode(&*hash.hmac(server_key, &signed))))
    }
}
