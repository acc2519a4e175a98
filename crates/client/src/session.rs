//! A connection over which one request is sent after the other, and calls that have one answer.

use std::time::Duration;

use larix_proto::url::LdapUrl;
use larix_proto::{ControlBuf, LdapResult, MessageId, Response, ResultCode, client, oid};
use rustls::pki_types::CertificateDer;

use crate::connection::{Connection, ConnectionOptions};
use crate::error::ClientError;
use crate::tls::TlsOptions;

/// What a session needs of the world around it.
#[derive(Clone, Copy, Debug)]
pub struct Ambient {
    /// Fills a buffer with random bytes.
    pub random: fn(&mut [u8]),
    /// `tls-server-end-point` of a certificate (RFC 5929 section 4.1).
    pub end_point_binding: fn(&CertificateDer<'_>) -> Option<Vec<u8>>,
}

/// A connection over which requests are sent one by one.
#[derive(Debug)]
pub struct Session {
    pub connection: Connection,
    /// For every request that takes them.
    pub controls: Vec<ControlBuf>,
    pub(crate) ambient: Ambient,
}

/// The answer to a request that has one.
#[derive(Debug)]
pub struct Reply {
    pub result: LdapResult,
    /// Of an extended response; a SASL bind's server credentials.
    pub value: Option<Vec<u8>>,
    pub controls: Vec<ControlBuf>,
}

impl Session {
    /// Connects to the first of some servers that answers.
    ///
    /// # Errors
    /// Why the last one could not be reached.
    pub fn connect(
        urls: &[LdapUrl],
        options: &ConnectionOptions,
        tls: &TlsOptions,
        ambient: Ambient,
    ) -> Result<Self, ClientError> {
        let connection = Connection::open(urls, options, tls)?;
        Ok(Self { connection, controls: Vec::new(), ambient })
    }

    /// StartTLS (RFC 4511 section 4.14). The refusal, if the server refuses: the session can go on without it then. Over a local socket
    /// the server is not asked, and what it would refuse with stands there.
    ///
    /// # Errors
    /// TLS is there already, or the handshake failed.
    pub fn start_tls(&mut self, tls: &TlsOptions) -> Result<Option<LdapResult>, ClientError> {
        if self.connection.is_secure() {
            return Err(ClientError::Usage(
                "StartTLS is for ldap://: with ldaps:// TLS is there already".to_owned(),
            ));
        }
        // No message would go through TLS.
        if self.connection.is_private() {
            let text =
                "StartTLS is for ldap://: a local socket (ldapi://) has no TLS, and nobody listens there";
            return Ok(Some(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text)));
        }
        let reply = self.call(|out, id, _| client::extended(out, id, oid::START_TLS, None, &[]))?;
        if reply.result.code == ResultCode::SUCCESS {
            return self.connection.secure(tls).map(|()| None);
        }
        Ok(Some(reply.result))
    }

    /// How long one read may wait for something; none: for ever.
    ///
    /// # Errors
    /// A socket that takes no such time.
    pub fn set_patience(&self, time: Option<Duration>) -> Result<(), ClientError> {
        self.connection.set_read_timeout(time)
    }

    /// Sends one request, written by `encode`, and waits for its result.
    ///
    /// # Errors
    /// No answer came.
    pub fn call(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>, MessageId, &[ControlBuf]),
    ) -> Result<Reply, ClientError> {
        let id = self.send(encode)?;
        loop {
            let message = self.connection.receive()?;
            if message.id != id {
                continue;
            }
            if let Some((_, result)) = message.response.result() {
                let value = match message.response {
                    Response::Extended { value, .. } => value.map(<[u8]>::to_vec),
                    Response::Bind { server_sasl, .. } => server_sasl.map(<[u8]>::to_vec),
                    _ => None,
                };
                let controls = message.controls.iter().map(|control| control.to_owned()).collect();
                return Ok(Reply { result: result.to_owned(), value, controls });
            }
        }
    }

    /// Sends one request without waiting.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn send(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>, MessageId, &[ControlBuf]),
    ) -> Result<MessageId, ClientError> {
        let controls = &self.controls;
        self.connection.send(|out, id| encode(out, id, controls))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Out of courtesy: the server sees the end of the connection as well.
        let _ = self.send(|out, id, _| client::unbind(out, id));
    }
}
