//! The thread that sends spans: OTLP over HTTP, as JSON, a batch a request.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use larix_configuration::values::TraceExport;
use larix_engine::injected;
use larix_engine::time::Clock as _;

use super::Figures;
use super::span::{Span, request};
use crate::clock::SystemClock;
use crate::log::Log;
use crate::panics;

/// Spans of one request.
const BATCH: usize = 512;
/// A span waits so long for others to go with it.
const GATHERING: Duration = Duration::from_secs(1);
/// How long a collector may take for each step: connecting, taking the request, answering.
const PATIENCE: Duration = Duration::from_secs(5);
/// Of its answer nothing more is read.
const ANSWER_BYTES: u64 = 4 * 1024;

pub(super) struct Exporter {
    settings: TraceExport,
    log: Log,
    figures: Arc<Figures>,
    host: String,
}

impl Exporter {
    pub(super) fn new(settings: TraceExport, log: Log, figures: Arc<Figures>) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { settings, log, figures, host }
    }

    /// Runs until no sender of spans is left, and all spans are sent or lost.
    pub(super) fn run(self, spans: &Receiver<Span>) {
        let (mut failing, clock) = (false, SystemClock);
        while let Ok(first) = spans.recv() {
            let mut batch = vec![first];
            let since = clock.monotonic();
            while batch.len() < BATCH {
                let passed = Duration::from_nanos(clock.monotonic().0.saturating_sub(since.0));
                match spans.recv_timeout(GATHERING.saturating_sub(passed)) {
                    Ok(span) => batch.push(span),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
            let count = batch.len() as u64;
            let posted = panics::contained(|| {
                injected::panic_at("traces");
                self.post(&batch)
            });
            let posted = posted.unwrap_or_else(|panicked| Err(io::Error::other(panicked.to_string())));
            match posted {
                Ok(()) => {
                    self.figures.sent.fetch_add(count, Ordering::Relaxed);
                    if std::mem::take(&mut failing) {
                        self.log.notice(format_args!("trace-export: {} takes spans again", self.settings));
                    }
                }
                Err(error) => {
                    self.figures.lost.fetch_add(count, Ordering::Relaxed);
                    if !std::mem::replace(&mut failing, true) {
                        self.log.warning(format_args!(
                            "trace-export: {}: {error}; spans are lost until it takes them",
                            self.settings
                        ));
                    }
                }
            }
        }
    }

    fn post(&self, spans: &[Span]) -> io::Result<()> {
        let body = request(spans, &self.host).to_string();
        let mut stream = self.connect()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let TraceExport { authority, path, .. } = &self.settings;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut answer = Vec::new();
        let mut bounded = (&stream).take(ANSWER_BYTES);
        let mut buffer = [0; 512];
        // The first line says it all; a collector that keeps the connection open is not waited for.
        while !answer.contains(&b'\n') {
            match bounded.read(&mut buffer)? {
                0 => break,
                read => answer.extend_from_slice(buffer.get(..read).unwrap_or_default()),
            }
        }
        let line = answer.split(|byte| *byte == b'\r' || *byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        match line.split_ascii_whitespace().nth(1) {
            Some(status) if status.len() == 3 && status.starts_with('2') => Ok(()),
            _ => Err(io::Error::other(format!("answered \"{line}\""))),
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in self.settings.authority.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}
