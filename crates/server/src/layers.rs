//! The layers between a socket and its connection: TLS, a SASL security layer above it, both or either. No I/O of its
//! own: bytes in, bytes out.

use std::fmt;
use std::io;

use crate::security_layer::{FramedLayer, LayerError, SecurityLayer};
use crate::tls::{Received, TlsSession};

/// The layers of one connection.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    tls: Option<TlsSession>,
    sasl: Option<FramedLayer>,
    /// Bytes for the socket that go out before anything that TLS has to send; the first `sent` are gone.
    wire: Vec<u8>,
    sent: usize,
}

/// Why nothing more can come through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LayersError {
    /// The handshake failed.
    Negotiation(String),
    /// Established TLS was broken.
    Tls(String),
    Sasl(LayerError),
}

impl LayersError {
    /// The reason in the log's line about the end of the connection.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Negotiation(_) => "TLS negotiation failure",
            Self::Tls(_) => "TLS failure",
            Self::Sasl(_) => "security layer failure",
        }
    }
}

impl fmt::Display for LayersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Negotiation(why) => write!(f, "TLS negotiation failure: {why}"),
            Self::Tls(why) => write!(f, "TLS failure: {why}"),
            Self::Sasl(error) => error.fmt(f),
        }
    }
}

impl Layers {
    /// TLS from here on, below a SASL layer if there is one; `before` goes out as until now.
    ///
    /// # Errors
    /// Those of the SASL layer.
    pub(crate) fn start_tls(&mut self, tls: TlsSession, before: &[u8]) -> Result<(), LayersError> {
        self.send(before)?;
        self.tls = Some(tls);
        Ok(())
    }

    /// A SASL layer from here on; `before` goes out as until now.
    ///
    /// # Errors
    /// Those of the layer that stood until now.
    pub(crate) fn install(
        &mut self,
        layer: Box<dyn SecurityLayer>,
        before: &[u8],
    ) -> Result<(), LayersError> {
        self.send(before)?;
        self.sasl = Some(FramedLayer::new(layer));
        Ok(())
    }

    /// Whether the next bytes belong to a handshake: costly, so that they are not taken on a loop.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(TlsSession::is_handshaking)
    }

    /// Takes bytes as they came from the socket and appends the plain ones to `plain`.
    ///
    /// # Errors
    /// What cannot be trusted: the connection ends, when what is to be sent is sent (TLS tells the other side why).
    pub(crate) fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> Result<Received, LayersError> {
        let Some(tls) = &mut self.tls else {
            return match &mut self.sasl {
                Some(sasl) => sasl.receive(bytes, plain).map(|()| Received::default()),
                None => {
                    plain.extend_from_slice(bytes);
                    Ok(Received::default())
                }
            }
            .map_err(LayersError::Sasl);
        };
        let handshaking = tls.is_handshaking();
        let failed = |error: rustls::Error| match handshaking {
            true => LayersError::Negotiation(error.to_string()),
            false => LayersError::Tls(error.to_string()),
        };
        match &mut self.sasl {
            None => tls.receive(bytes, plain).map_err(failed),
            Some(sasl) => {
                let mut below = Vec::new();
                let received = tls.receive(bytes, &mut below).map_err(failed)?;
                sasl.receive(&below, plain).map_err(LayersError::Sasl)?;
                Ok(received)
            }
        }
    }

    /// Takes plain bytes to be sent.
    ///
    /// # Errors
    /// The SASL layer's own.
    pub(crate) fn send(&mut self, plain: &[u8]) -> Result<(), LayersError> {
        match (&mut self.sasl, &mut self.tls) {
            (None, None) => self.wire.extend_from_slice(plain),
            (None, Some(tls)) => tls.send(plain),
            (Some(sasl), None) => sasl.send(plain, &mut self.wire).map_err(LayersError::Sasl)?,
            (Some(sasl), Some(tls)) => {
                let mut wrapped = Vec::with_capacity(plain.len() + plain.len() / 8 + 64);
                sasl.send(plain, &mut wrapped).map_err(LayersError::Sasl)?;
                tls.send(&wrapped);
            }
        }
        Ok(())
    }

    /// Whether there are bytes for the socket.
    pub(crate) fn wants_write(&self) -> bool {
        self.sent < self.wire.len() || self.tls.as_ref().is_some_and(TlsSession::wants_write)
    }

    /// Gives the socket what it takes.
    ///
    /// # Errors
    /// The socket's, `WouldBlock` among them.
    pub(crate) fn flush(&mut self, socket: &mut dyn io::Write) -> io::Result<()> {
        while self.sent < self.wire.len() {
            self.sent += socket.write(self.wire.get(self.sent..).unwrap_or(&[]))?;
        }
        if self.sent > 0 {
            (self.wire, self.sent) = (Vec::new(), 0);
        }
        match &mut self.tls {
            Some(tls) => tls.flush(socket),
            None => Ok(()),
        }
    }

    /// Says goodbye as TLS wants it.
    pub(crate) fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use larix_configuration::values::TlsSettings;
    use larix_engine::time::Timestamp;
    use larix_testkit::Authority;

    use super::*;
    use crate::stream::Noting;
    use crate::tls::TlsState;

    /// Shows what went through it.
    #[derive(Debug)]
    struct Brackets;

    impl SecurityLayer for Brackets {
        fn unwrap(&mut self, buffer: &[u8], plain: &mut Vec<u8>) -> Result<(), LayerError> {
            plain.extend_from_slice(buffer);
            Ok(())
        }

        fn wrap(&mut self, plain: &[u8], buffer: &mut Vec<u8>) -> Result<(), LayerError> {
            buffer.push(b'<');
            buffer.extend_from_slice(plain);
            buffer.push(b'>');
            Ok(())
        }

        fn send_max(&self) -> usize {
            1024
        }

        fn receive_max(&self) -> usize {
            1024
        }

        fn ssf(&self) -> u32 {
            1
        }
    }

    fn tls() -> TlsSession {
        let folder = tempfile::tempdir().unwrap();
        Authority::new("Root").server().write(folder.path(), "server");
        let settings = TlsSettings {
            certificate_file: Some(folder.path().join("server.pem")),
            certificate_key_file: Some(folder.path().join("server.key")),
            ..TlsSettings::default()
        };
        let loaded = TlsState::load(&settings, Timestamp::from_seconds(1_800_000_000)).unwrap();
        TlsSession::new(loaded.state.unwrap())
    }

    /// A socket that takes so many bytes now.
    struct Narrow(usize);

    impl io::Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.0);
            self.0 -= count;
            if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_socket_that_takes_a_part_has_taken_something() {
        for layered in [false, true] {
            let mut layers = Layers::default();
            match layered {
                true => layers.start_tls(tls(), &[7; 100]).unwrap(),
                false => layers.send(&[7; 100]).unwrap(),
            }
            for (takes, has_taken, is_done) in
                [(0, false, false), (30, true, false), (0, false, false), (70, true, true)]
            {
                let mut socket = Noting::new(Narrow(takes));
                let flushed = layers.flush(&mut socket);
                assert_eq!((socket.has_taken, flushed.is_ok()), (has_taken, is_done), "{layered}, {takes}");
            }
        }
    }

    #[test]
    fn what_is_answered_before_tls_begins_goes_as_until_then() {
        for (has_layer, expected) in [(false, &b"answer"[..]), (true, b"\0\0\0\x08<answer>")] {
            let mut layers = Layers::default();
            if has_layer {
                layers.install(Box::new(Brackets), b"").unwrap();
            }
            layers.start_tls(tls(), b"answer").unwrap();
            let mut socket = Vec::new();
            layers.flush(&mut socket).unwrap();
            assert_eq!(socket, expected, "with a SASL layer: {has_layer}");
            assert!(layers.is_handshaking());
        }
    }
}
