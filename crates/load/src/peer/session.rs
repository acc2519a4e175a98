//! A plain client for what is not driven: counting entries, and changes whose single times are looked at.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};
use larix_proto::client::{self, ClientAttribute, ClientChange, Search};
use larix_proto::{FilterBuf, Frame, MessageId, ModifyOperation, Response, ResultCode, Scope, frame};

/// The largest answer that is taken.
const PDU_MAX: usize = 64 << 20;
/// How long one answer may take: counting tens of millions of entries is one request, but its answers flow.
const PATIENCE: Duration = Duration::from_secs(120);

/// A connection with one request out at a time.
#[derive(Debug)]
pub(crate) struct Session {
    socket: TcpStream,
    input: Vec<u8>,
    next_id: u32,
}

/// What a request came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: ResultCode,
    pub(crate) diagnostic: String,
    /// Entries of a search.
    pub(crate) entries: u64,
}

impl Outcome {
    /// # Errors
    /// Any result but success, named with `what` was asked.
    pub(crate) fn success(self, what: &str) -> anyhow::Result<Self> {
        if self.code != ResultCode::SUCCESS {
            bail!("{what}: {:?} {}", self.code, self.diagnostic);
        }
        Ok(self)
    }
}

impl Session {
    /// Connects and binds, when it is said as whom.
    ///
    /// # Errors
    /// No connection, or the bind is refused.
    pub(crate) fn open(server: SocketAddr, bind: Option<&(String, String)>) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(server).with_context(|| format!("cannot connect to {server}"))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut session = Self { socket, input: Vec::new(), next_id: 1 };
        if let Some((dn, password)) = bind {
            let bound = session.ask(|id, out| client::simple_bind(out, id, dn, password.as_bytes(), &[]))?;
            bound.success(&format!("the bind as {dn:?}"))?;
        }
        Ok(session)
    }

    /// Counts the entries in and below `base` by reading each without its attributes.
    ///
    /// # Errors
    /// No result success (0), or noSuchObject (32), which counts as no entry.
    pub(crate) fn count(&mut self, base: &str) -> anyhow::Result<u64> {
        let filter = FilterBuf::parse("(objectClass=*)").context("the filter for all entries")?;
        let search = Search { attributes: &["1.1"], ..Search::new(base, Scope::Subtree, filter.as_filter()) };
        let outcome = self.ask(|id, out| client::search(out, id, &search, &[]))?;
        if outcome.code == ResultCode::NO_SUCH_OBJECT {
            return Ok(0);
        }
        Ok(outcome.success(&format!("counting below {base:?}"))?.entries)
    }

    /// Adds an entry; attributes as (description, values).
    ///
    /// # Errors
    /// The connection fails; a refusal is an [`Outcome`].
    pub(crate) fn add(&mut self, dn: &str, attributes: &[(&str, &[String])]) -> anyhow::Result<Outcome> {
        let list: Vec<ClientAttribute<'_, String>> =
            attributes.iter().map(|(description, values)| ClientAttribute { description, values }).collect();
        self.ask(|id, out| client::add(out, id, dn, &list, &[]))
    }

    /// Makes one change to one attribute.
    ///
    /// # Errors
    /// The connection fails; a refusal is an [`Outcome`].
    pub(crate) fn modify(
        &mut self,
        dn: &str,
        operation: ModifyOperation,
        description: &str,
        values: &[String],
    ) -> anyhow::Result<Outcome> {
        let change = ClientChange { operation, attribute: ClientAttribute { description, values } };
        self.ask(|id, out| client::modify(out, id, dn, &[change], &[]))
    }

    fn ask(&mut self, request: impl FnOnce(MessageId, &mut Vec<u8>)) -> anyhow::Result<Outcome> {
        let id = MessageId(self.next_id);
        self.next_id = self.next_id % (i32::MAX as u32) + 1;
        let mut out = Vec::new();
        request(id, &mut out);
        self.socket.write_all(&out).context("cannot send")?;
        let mut entries = 0;
        loop {
            let mut done = 0;
            while let Frame::Complete { len } = frame(self.input.get(done..).unwrap_or_default(), PDU_MAX)? {
                let pdu = self.input.get(done..done + len).unwrap_or_default();
                done += len;
                let message = Response::decode_message(pdu)?;
                let Some((_, result)) = message.response.result() else {
                    entries += 1;
                    continue;
                };
                if message.id != id {
                    bail!("an answer to {:?}, which was not asked: {}", message.id, result.diagnostic);
                }
                let diagnostic = result.diagnostic.to_string();
                let outcome = Outcome { code: result.code, diagnostic, entries };
                self.input.drain(..done);
                return Ok(outcome);
            }
            self.input.drain(..done);
            self.read()?;
        }
    }

    fn read(&mut self) -> anyhow::Result<()> {
        let mut chunk = [0; 64 << 10];
        let count = self.socket.read(&mut chunk).context("cannot receive")?;
        if count == 0 {
            bail!("the server closed the connection");
        }
        self.input.extend_from_slice(chunk.get(..count).unwrap_or_default());
        Ok(())
    }
}
