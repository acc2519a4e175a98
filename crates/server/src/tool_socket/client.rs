//! The tool's side: work handed to the server that has the database open.

use std::fmt;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use larix_engine::write::{AttributeValues, Modification, WriteOperation};
use larix_proto::ber::DecodeError;
use larix_proto::client::{self, ClientAttribute, ClientChange};
use larix_proto::{ControlBuf, LdapResult, MessageId, Response};

use super::place::SocketPath;
use super::protocol::{
    IMPORT_OID, ImportRequest, Messages, RAISE_OID, REINDEX_OID, ReindexRequest, decode_results, encode_csns,
};

/// Why the server's answer is not known.
#[derive(Debug)]
pub enum ToolError {
    Io(io::Error),
    /// The server ended, or ended the connection: what was not answered may have been done or not.
    Closed,
    Answer(DecodeError),
    /// An answer to something else.
    Unexpected,
    /// The server refused to talk at all.
    Refused(LdapResult),
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the server that serves the database cannot be asked: {error}"),
            Self::Closed => f.write_str(
                "the server that serves the database was stopped; what it had answered is stored, and the tool can be run \
                 again",
            ),
            Self::Answer(error) => write!(f, "the server's answer cannot be read: {error}"),
            Self::Unexpected => f.write_str("the server answered something else: is it of another version?"),
            Self::Refused(result) => result.fmt(f),
        }
    }
}

impl std::error::Error for ToolError {}

impl From<io::Error> for ToolError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => {
                Self::Closed
            }
            _ => Self::Io(error),
        }
    }
}

impl From<DecodeError> for ToolError {
    fn from(error: DecodeError) -> Self {
        Self::Answer(error)
    }
}

/// A connection to the server that serves a database.
#[derive(Debug)]
pub struct ToolClient {
    stream: UnixStream,
    messages: Messages<UnixStream>,
    last: u32,
}

impl ToolClient {
    /// Connects to the server that serves the database in this directory.
    ///
    /// # Errors
    /// NotFound and ConnectionRefused: no server takes work there. PermissionDenied: this user may hand it none.
    pub fn connect(directory: &Path) -> io::Result<Self> {
        let place = SocketPath::of(directory)?;
        let stream = UnixStream::connect(place.path())?;
        let messages = Messages::new(stream.try_clone()?);
        Ok(Self { stream, messages, last: 0 })
    }

    /// Carries out one change and waits until it is durable.
    ///
    /// # Errors
    /// An answer that did not come: see [`ToolError`].
    pub fn change(
        &mut self,
        operation: &WriteOperation,
        controls: &[ControlBuf],
    ) -> Result<LdapResult, ToolError> {
        let id = self.next_id();
        let mut out = Vec::new();
        encode(&mut out, id, operation, controls);
        self.ask(&out).map(|(result, _)| result)
    }

    /// Adds entries as they stand. Answers what became of each, up to the one with which it ended.
    ///
    /// # Errors
    /// As [`Self::change`].
    pub fn import(&mut self, request: &ImportRequest) -> Result<Vec<LdapResult>, ToolError> {
        let (result, value) = self.extended(IMPORT_OID, &request.encode())?;
        if !result.is_success() {
            return Err(ToolError::Refused(result));
        }
        Ok(decode_results(&value.ok_or(ToolError::Unexpected)?)?)
    }

    /// Makes indexes anew and waits until they are complete.
    ///
    /// # Errors
    /// As [`Self::change`].
    pub fn reindex(&mut self, request: &ReindexRequest) -> Result<LdapResult, ToolError> {
        self.extended(REINDEX_OID, &request.encode()).map(|(result, _)| result)
    }

    /// Raises contextCSN to these.
    ///
    /// # Errors
    /// As [`Self::change`].
    pub fn raise(&mut self, csns: &[String]) -> Result<LdapResult, ToolError> {
        self.extended(RAISE_OID, &encode_csns(csns)).map(|(result, _)| result)
    }

    fn extended(&mut self, oid: &str, value: &[u8]) -> Result<(LdapResult, Option<Vec<u8>>), ToolError> {
        let id = self.next_id();
        let mut out = Vec::new();
        client::extended(&mut out, id, oid, Some(value), &[]);
        self.ask(&out)
    }

    fn next_id(&mut self) -> MessageId {
        self.last = if self.last == i32::MAX.unsigned_abs() { 1 } else { self.last + 1 };
        MessageId(self.last)
    }

    fn ask(&mut self, request: &[u8]) -> Result<(LdapResult, Option<Vec<u8>>), ToolError> {
        // A server that refuses to talk says why and closes: its word is read even where writing fails.
        let written = self.stream.write_all(request);
        let answer = match (self.messages.next()?, written) {
            (Some(answer), _) => answer,
            (None, Err(error)) => return Err(error.into()),
            (None, Ok(())) => return Err(ToolError::Closed),
        };
        let message = Response::decode_message(&answer)?;
        let result = message.response.result().ok_or(ToolError::Unexpected)?.1.to_owned();
        if message.id == MessageId(0) {
            return Err(ToolError::Refused(result));
        }
        if message.id != MessageId(self.last) {
            return Err(ToolError::Unexpected);
        }
        match message.response {
            Response::Extended { value, .. } => Ok((result, value.map(<[u8]>::to_vec))),
            _ => Ok((result, None)),
        }
    }
}

impl Drop for ToolClient {
    fn drop(&mut self) {
        let mut out = Vec::new();
        client::unbind(&mut out, self.next_id());
        // The server sees the end of the stream as well.
        let _ = self.stream.write_all(&out);
    }
}

fn encode(out: &mut Vec<u8>, id: MessageId, operation: &WriteOperation, controls: &[ControlBuf]) {
    match operation {
        WriteOperation::Add { entry, attributes } => {
            let attributes: Vec<_> = attributes
                .iter()
                .map(|attribute| ClientAttribute {
                    description: &attribute.description,
                    values: &attribute.values,
                })
                .collect();
            client::add(out, id, entry, &attributes, controls);
        }
        WriteOperation::Modify { object, changes } => {
            let changes: Vec<_> = changes.iter().map(client_change).collect();
            client::modify(out, id, object, &changes, controls);
        }
        WriteOperation::Delete { entry } => client::delete(out, id, entry, controls),
        WriteOperation::ModifyDn { entry, new_rdn, delete_old_rdn, new_superior } => {
            client::modify_dn(out, id, entry, new_rdn, *delete_old_rdn, new_superior.as_deref(), controls);
        }
    }
}

fn client_change(change: &Modification) -> ClientChange<'_, Vec<u8>> {
    let AttributeValues { description, values } = &change.attribute;
    ClientChange { operation: change.operation, attribute: ClientAttribute { description, values } }
}
