//! One driven connection: requests out, answers in, nothing kept but their start times.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context, bail};
use larix_proto::{Frame, MessageId, Response, ResultCode, client, frame};

use super::{Address, Identity, Report, Server, Workload, clock};
use crate::generate::Random;

/// The largest answer that is taken.
const PDU_MAX: usize = 64 << 20;
/// What is read at once.
const READ_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Connection {
    socket: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    next_id: u32,
    /// Requests out, with the time at which each was made, oldest first.
    started: VecDeque<(u32, Instant)>,
}

impl Connection {
    pub(super) fn open(server: &Server, identity: &Identity) -> anyhow::Result<Self> {
        let Address::Tcp(address) = &server.address else { bail!("{server}: only TCP can be driven") };
        let socket = TcpStream::connect(address).with_context(|| format!("cannot connect to {server}"))?;
        socket.set_nodelay(true)?;
        let mut connection =
            Self { socket, input: Vec::new(), output: Vec::new(), next_id: 1, started: VecDeque::new() };
        match identity {
            Identity::Anonymous => {}
            Identity::Simple { dn, password } => connection.bind(dn, password)?,
            Identity::Plain { .. } | Identity::External => bail!("{server}: only simple binds can be made"),
        }
        connection.socket.set_nonblocking(true)?;
        Ok(connection)
    }

    /// Binds while the socket still blocks.
    fn bind(&mut self, dn: &str, password: &str) -> anyhow::Result<()> {
        let mut request = Vec::new();
        client::simple_bind(&mut request, MessageId(self.next_id), dn, password.as_bytes(), &[]);
        self.next_id += 1;
        self.socket.write_all(&request)?;
        loop {
            if let Frame::Complete { len } = frame(&self.input, PDU_MAX)? {
                let code = result_code(self.input.get(..len).unwrap_or_default())?;
                self.input.drain(..len);
                if code != Some(ResultCode::SUCCESS) {
                    bail!("the bind as {dn:?} was refused: {code:?}");
                }
                return Ok(());
            }
            let mut chunk = [0; 4096];
            let count = self.socket.read(&mut chunk)?;
            if count == 0 {
                bail!("the server closed the connection on the bind as {dn:?}");
            }
            self.input.extend_from_slice(chunk.get(..count).unwrap_or_default());
        }
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(super) fn in_flight(&self) -> usize {
        self.started.len()
    }

    pub(super) fn wants_write(&self) -> bool {
        !self.output.is_empty()
    }

    pub(super) fn request(&mut self, workload: &Workload, sequence: u64, random: &mut Random) {
        let id = self.next_id;
        self.next_id = if id == i32::MAX as u32 { 1 } else { id + 1 };
        let total: u64 = workload.steps.iter().map(|step| u64::from(step.weight)).sum();
        let mut draw = random.below(total);
        let chosen = workload.steps.iter().find(|step| {
            let weight = u64::from(step.weight);
            let found = draw < weight;
            draw = draw.wrapping_sub(weight);
            found
        });
        let number = workload.targets.first + random.below(workload.targets.count);
        if let Some(step) = chosen {
            let sequence = workload.sequence_start + sequence;
            step.operation.append(MessageId(id), number, sequence, &mut self.output);
        }
        self.started.push_back((id, clock::now()));
    }

    pub(super) fn send(&mut self) -> anyhow::Result<()> {
        while !self.output.is_empty() {
            match self.socket.write(&self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("cannot send"),
            }
        }
        Ok(())
    }

    /// Reads what has come and counts the answers.
    pub(super) fn receive(&mut self, report: &mut Report) -> anyhow::Result<()> {
        let held = self.input.len();
        self.input.resize(held + READ_BYTES, 0);
        let read = self.socket.read(self.input.get_mut(held..).unwrap_or_default());
        let count = match read {
            Ok(0) => bail!("the server closed a connection with {} requests out", self.started.len()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error).context("cannot receive"),
        };
        self.input.truncate(held + count);
        let mut done = 0;
        while let Frame::Complete { len } = frame(self.input.get(done..).unwrap_or_default(), PDU_MAX)? {
            let pdu = self.input.get(done..done + len).unwrap_or_default();
            let message = Response::decode_message(pdu)?;
            match message.response.result() {
                None => report.entries += 1,
                Some((_, result)) => {
                    let position = self.started.iter().position(|(id, _)| *id == message.id.0);
                    let Some((_, start)) = position.and_then(|at| self.started.remove(at)) else {
                        bail!("an answer to {:?}, which was not asked: {}", message.id, result.diagnostic);
                    };
                    count_result(report, result.code, start);
                }
            }
            done += len;
        }
        self.input.drain(..done);
        Ok(())
    }

    pub(super) fn unbind(&mut self) {
        client::unbind(&mut self.output, MessageId(self.next_id));
        // A server that is already gone needs no goodbye.
        let _ = self.send();
    }
}

fn count_result(report: &mut Report, code: ResultCode, start: Instant) {
    report.operations += 1;
    let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    report.latency_us.saturating_record(micros.max(1));
    if ![ResultCode::SUCCESS, ResultCode::COMPARE_TRUE, ResultCode::COMPARE_FALSE].contains(&code) {
        match report.failures.iter_mut().find(|(known, _)| *known == code.0) {
            Some((_, count)) => *count += 1,
            None => report.failures.push((code.0, 1)),
        }
    }
}

fn result_code(pdu: &[u8]) -> anyhow::Result<Option<ResultCode>> {
    Ok(Response::decode_message(pdu)?.response.result().map(|(_, result)| result.code))
}
