//! Binds of a session: with a name and a password, with the client's certificate or socket, or by a SASL mechanism.

use larix_proto::{ResultCode, client};
use zeroize::Zeroizing;

use crate::error::ClientError;
use crate::sasl::SaslPassword;
use crate::session::Session;

/// How to bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    Simple { dn: String, password: Zeroizing<Vec<u8>> },
    External { authorization: String },
    Sasl(SaslPassword),
}

impl Session {
    /// # Errors
    /// The bind was refused, or there was no answer.
    pub fn bind(&mut self, credentials: &Credentials) -> Result<(), ClientError> {
        let (step, reply) = match credentials {
            Credentials::Simple { dn, password } => {
                ("ldap_bind", self.call(|out, id, _| client::simple_bind(out, id, dn, password, &[]))?)
            }
            Credentials::External { authorization } => (
                "ldap_sasl_bind(EXTERNAL)",
                self.call(|out, id, _| {
                    client::sasl_bind(out, id, "", "EXTERNAL", Some(authorization.as_bytes()), &[]);
                })?,
            ),
            Credentials::Sasl(sasl) => ("ldap_sasl_bind", sasl.bind(self)?),
        };
        if reply.result.code == ResultCode::SUCCESS {
            return Ok(());
        }
        Err(ClientError::Refused { step, result: reply.result })
    }
}

impl Credentials {
    /// In words, without secrets.
    pub fn describe(&self) -> String {
        match self {
            Self::External { .. } => "bound by SASL EXTERNAL".to_owned(),
            Self::Sasl(sasl) => format!("bound by SASL {} as {}", sasl.mechanism.name(), sasl.user),
            Self::Simple { dn, .. } if dn.is_empty() => "anonymous".to_owned(),
            Self::Simple { dn, .. } => format!("bound as {dn}"),
        }
    }
}
