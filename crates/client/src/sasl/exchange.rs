//! A SASL exchange as a state machine: the server's messages in, the client's out.

use std::fmt;

use larix_proto::ResultCode;
use larix_sasl::digest_md5;
use larix_sasl::plain::Plain;
use larix_sasl::scram::{Client, ClientBinding};
use zeroize::Zeroizing;

use super::{Mechanism, SaslPassword};

/// Steps that no mechanism exceeds.
const STEPS_MAX: u32 = 8;

/// An exchange under way.
pub struct SaslExchange {
    state: State,
    password: Zeroizing<Vec<u8>>,
    steps: u32,
}

enum State {
    /// The first message was all that there is to send.
    Complete,
    ScramBegun(Box<Client>),
    ScramProved(Box<Client>),
    Digest {
        user: String,
        realm: String,
        authorization: String,
        host: String,
        nonce: String,
    },
    DigestProved(Box<digest_md5::Client>),
}

/// What an exchange depends on beside the credentials.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// The server's name.
    pub host: &'a str,
    /// Never used before.
    pub nonce: String,
    /// Of a mechanism with `-PLUS`.
    pub binding: ClientBinding,
}

impl fmt::Debug for SaslExchange {
    /// Without what is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaslExchange").field("steps", &self.steps).finish_non_exhaustive()
    }
}

/// What is sent first: none for a mechanism whose server speaks first.
pub type FirstMessage = Option<Zeroizing<Vec<u8>>>;

impl SaslExchange {
    /// Begins; and the first message.
    ///
    /// # Errors
    /// A password that the mechanism cannot have; a mechanism that is no state machine here.
    pub fn begin(
        credentials: &SaslPassword,
        around: Surroundings<'_>,
    ) -> Result<(Self, FirstMessage), String> {
        let (state, first) = match credentials.mechanism {
            Mechanism::Plain => {
                let password = std::str::from_utf8(&credentials.password);
                let password = password.map_err(|_| "PLAIN: the password is not UTF-8".to_owned())?;
                let plain =
                    Plain { authzid: &credentials.authorization, authcid: &credentials.user, password };
                (State::Complete, Some(plain.encode()))
            }
            Mechanism::Scram { hash, .. } => {
                let client = Client::new(
                    hash,
                    &credentials.user,
                    &credentials.authorization,
                    &around.nonce,
                    around.binding,
                );
                let first = client.first().into_bytes().into();
                (State::ScramBegun(Box::new(client)), Some(first))
            }
            Mechanism::DigestMd5 => {
                let state = State::Digest {
                    user: credentials.user.clone(),
                    realm: credentials.realm.clone(),
                    authorization: credentials.authorization.clone(),
                    host: around.host.to_owned(),
                    nonce: around.nonce,
                };
                (state, None)
            }
            #[cfg(feature = "gssapi")]
            Mechanism::Gssapi => return Err("GSSAPI is for the blocking client".to_owned()),
        };
        Ok((Self { state, password: credentials.password.clone(), steps: 0 }, first))
    }

    /// What to send next; none where the exchange is over, as the code says how.
    ///
    /// # Errors
    /// A server that cannot prove that it knows the user, or says what no server of the mechanism says.
    pub fn answer(&mut self, code: ResultCode, server: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let goes_on = code == ResultCode::SASL_BIND_IN_PROGRESS;
        if !goes_on && code != ResultCode::SUCCESS {
            return Ok(None);
        }
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err("the server's exchange does not end".to_owned());
        }
        let fault_text = |fault: larix_sasl::Fault| fault.to_string();
        let early = || Err("success before the server has proved that it knows the user".to_owned());
        match std::mem::replace(&mut self.state, State::Complete) {
            State::Complete if goes_on => Err("the server asks for more than the mechanism has".to_owned()),
            State::Complete => Ok(None),
            State::ScramBegun(mut client) => {
                if !goes_on {
                    return early();
                }
                let proof = client.respond(server, &self.password).map_err(fault_text)?;
                self.state = State::ScramProved(client);
                Ok(Some(proof.into_bytes()))
            }
            State::ScramProved(client) => {
                client.verify(server).map_err(fault_text)?;
                Ok(goes_on.then(Vec::new))
            }
            State::Digest { user, realm, authorization, host, nonce } => {
                if !goes_on {
                    return early();
                }
                let parameters = digest_md5::ClientParameters {
                    username: &user,
                    realm: &realm,
                    authzid: &authorization,
                    host: &host,
                    nonce: &nonce,
                };
                let client =
                    digest_md5::Client::respond(server, parameters, &self.password).map_err(fault_text)?;
                let message = client.message().into_bytes();
                self.state = State::DigestProved(Box::new(client));
                Ok(Some(message))
            }
            // A server's proof may come as a step of its own, that is acknowledged.
            State::DigestProved(client) => {
                client.verify(server).map_err(fault_text)?;
                Ok(goes_on.then(Vec::new))
            }
        }
    }
}
