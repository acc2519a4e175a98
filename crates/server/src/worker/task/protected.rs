//! The way through TLS and SASL layers: how they begin on a connection, and what comes and goes through them.
//!
//! **What was in the output when a layer begins goes out without it**, and handshakes are computed on another thread.

use std::time::Duration;

use super::{Task, TaskEnd};
use crate::connection::Turn;
use crate::dispatch::LayerChange;
use crate::input::overwrite;
use crate::layers::LayersError;
use crate::statistics::add;
use crate::stream::{Noting, Writer};
use crate::tls::TlsSession;
use crate::worker::now;

/// How long a client may take for a TLS handshake, from its beginning to its end.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
/// A buffer for decrypted input larger than this is given back to the allocator.
const PLAIN_BUFFER_BYTES: usize = 128 * 1024;
/// A client asks for TLS where none is configured, or where it cannot be agreed on.
const NO_TLS: &str = "TLS negotiation failure";

impl Task<'_> {
    pub(super) fn take_protected(&mut self, count: usize) -> Result<Turn, TaskEnd> {
        let Some(layers) = &mut self.layers else { return Err(TaskEnd::Lost) };
        let mut plain = self.core.plain.take();
        let received = layers.receive(self.core.read_buffer.borrow().get(..count).unwrap_or(&[]), &mut plain);
        let turn = received.map_err(|error| self.broken(&error)).map(|received| {
            let turn = match plain.is_empty() {
                true => self.connection.resume(),
                false => self.connection.receive(&plain),
            };
            if received.closed { self.input_closed() } else { turn }
        });
        if self.connection.take_had_secrets() {
            overwrite(&mut plain);
        }
        plain.clear();
        if plain.capacity() <= PLAIN_BUFFER_BYTES {
            self.core.plain.replace(plain);
        }
        turn
    }

    /// A handshake's next step, on another thread: a loop has other clients to serve meanwhile. Where there is no thread to be had, they
    /// wait.
    pub(super) async fn take_handshake(&mut self, count: usize) -> Result<Turn, TaskEnd> {
        let Some(mut layers) = self.layers.take() else { return Err(TaskEnd::Lost) };
        let bytes = self.core.read_buffer.borrow().get(..count).unwrap_or(&[]).to_vec();
        let step = self.core.handshakes.run_or_here(move || {
            let mut plain = Vec::new();
            let received = layers.receive(&bytes, &mut plain);
            (layers, plain, received)
        });
        let Ok((layers, mut plain, received)) = step.await else { return Err(TaskEnd::Lost) };
        self.layers = Some(layers);
        let received = received.map_err(|error| {
            self.core.server.tls.count(None);
            self.broken(&error)
        })?;
        if let Some(facts) = received.established {
            self.handshake_until = None;
            self.core.server.tls.count(Some(&facts));
            self.connection.service_mut().tls_established(facts);
        }
        let turn = match plain.is_empty() {
            true => self.connection.resume(),
            false => self.connection.receive(&plain),
        };
        if self.connection.take_had_secrets() {
            overwrite(&mut plain);
        }
        Ok(if received.closed { self.input_closed() } else { turn })
    }

    /// The client said in TLS that it sends no more.
    fn input_closed(&mut self) -> Turn {
        self.connection.service_mut().close_because("connection lost");
        self.connection.input_ended()
    }

    /// The input cannot be trusted. The peer gets the alert of TLS for it.
    fn broken(&mut self, error: &LayersError) -> TaskEnd {
        self.connection.service().log_broken_layer(error);
        if let Some(layers) = &mut self.layers {
            let _ = layers.flush(&mut Writer(&self.stream));
        }
        TaskEnd::Because(error.reason())
    }

    /// What is in the output goes out as until now; what comes after it in the new way.
    pub(super) fn change_layers(&mut self) -> Result<(), TaskEnd> {
        let change = self.connection.service_mut().layer_change.take();
        let layers = self.layers.get_or_insert_default();
        let before = self.connection.output();
        let count = before.len();
        match change {
            Some(LayerChange::Tls) => return self.start_tls(),
            Some(LayerChange::Sasl(layer)) => {
                if let Err(error) = layers.install(layer, before) {
                    return Err(self.broken(&error));
                }
            }
            None => {
                if let Err(error) = layers.send(before) {
                    return Err(self.broken(&error));
                }
            }
        }
        add(&self.core.counters.bytes_sent, count as u64);
        self.connection.sent(count);
        self.connection.layers_changed();
        Ok(())
    }

    /// TLS begins: what is in the output still goes out as until now.
    pub(super) fn start_tls(&mut self) -> Result<(), TaskEnd> {
        let Some(state) = self.core.server.tls.current() else { return Err(TaskEnd::Because(NO_TLS)) };
        let before = self.connection.output();
        let count = before.len();
        let started = self.layers.get_or_insert_default().start_tls(TlsSession::new(state), before);
        if let Err(error) = started {
            return Err(self.broken(&error));
        }
        self.handshake_until = Some(now() + HANDSHAKE_TIMEOUT);
        add(&self.core.counters.bytes_sent, count as u64);
        self.connection.sent(count);
        self.connection.layers_changed();
        Ok(())
    }

    /// The same through the layers. They are given more only when all they had is sent: what they hold is bounded by
    /// what a connection's output holds.
    pub(super) fn flush_layers(&mut self) -> Result<(), TaskEnd> {
        let Some(layers) = &mut self.layers else { return Ok(()) };
        loop {
            if layers.wants_write() {
                let mut socket = Noting::new(Writer(&self.stream));
                let flushed = layers.flush(&mut socket);
                // It may take long until the client has taken all that the layers have, and it takes some of it all the time.
                if socket.has_taken {
                    self.handle.note_taken();
                }
                if let Err(error) = flushed {
                    return self.not_written(&error);
                }
            }
            let output = self.connection.output();
            let count = output.len();
            if count == 0 || layers.is_handshaking() {
                return Ok(());
            }
            if let Err(error) = layers.send(output) {
                return Err(self.broken(&error));
            }
            add(&self.core.counters.bytes_sent, count as u64);
            self.connection.sent(count);
        }
    }
}
