//! The security layer of a SASL mechanism between the socket and LDAP (RFC 4422 section 3.7): integrity or confidentiality for
//! everything behind the bind that negotiated it.
//!
//! A bind that negotiated a layer hands it to [`Dispatcher::install_layer`](crate::dispatch::Dispatcher::install_layer)
//! before it answers success. The answer still goes out as before; what follows goes through the layer, which stands
//! above TLS. Bytes that came behind the bind request are dropped, and the connection with them.

use std::fmt;

/// Bytes of a buffer's length on the wire, in network order.
const LENGTH_BYTES: usize = 4;
/// The largest buffer that is taken from a peer, whatever its mechanism negotiated.
pub(crate) const BUFFER_BYTES_MAX: usize = 0x00ff_ffff;

/// A negotiated security layer, without I/O. It sees one buffer at a time; their lengths on the wire are
/// [`FramedLayer`]'s business.
pub(crate) trait SecurityLayer: Send + fmt::Debug {
    /// Verifies (and decrypts) one buffer from the peer and appends what was in it to `plain`.
    ///
    /// # Errors
    /// A buffer that was changed on its way, replayed, or is no such buffer: the connection ends.
    fn unwrap(&mut self, buffer: &[u8], plain: &mut Vec<u8>) -> Result<(), LayerError>;
    /// Appends one buffer that protects `plain`, of at most [`send_max`](Self::send_max) bytes, to `buffer`.
    ///
    /// # Errors
    /// The mechanism's own: the connection ends.
    fn wrap(&mut self, plain: &[u8], buffer: &mut Vec<u8>) -> Result<(), LayerError>;
    /// Plain bytes that one buffer to the peer may protect, so that it is no larger than the peer said it takes.
    fn send_max(&self) -> usize;
    /// The largest buffer, as it is on the wire, that the peer may send: what we said.
    fn receive_max(&self) -> usize;
    /// Its strength: 1 for integrity alone, the key's effective bits for confidentiality.
    fn ssf(&self) -> u32;
}

/// Why a security layer cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LayerError {
    /// The peer announced a buffer larger than was negotiated.
    TooLarge { length: usize, limit: usize },
    /// The mechanism refused a buffer, or failed; why.
    Mechanism(String),
}

impl fmt::Display for LayerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { length, limit } => {
                write!(f, "a SASL buffer of {length} bytes, where {limit} were negotiated")
            }
            Self::Mechanism(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for LayerError {}

/// A security layer with the framing of its buffers.
#[derive(Debug)]
pub(crate) struct FramedLayer {
    layer: Box<dyn SecurityLayer>,
    /// The beginning of a buffer that has not come whole.
    incomplete: Vec<u8>,
}

impl FramedLayer {
    pub(crate) fn new(layer: Box<dyn SecurityLayer>) -> Self {
        Self { layer, incomplete: Vec::new() }
    }

    /// Takes bytes as they came and appends what the whole buffers among them protect. Each byte is copied a fixed number of times,
    /// in however many pieces they come.
    pub(crate) fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), LayerError> {
        if self.incomplete.is_empty() {
            let used = self.open(bytes, plain)?;
            self.incomplete.extend_from_slice(bytes.get(used..).unwrap_or_default());
            return Ok(());
        }
        let mut incomplete = std::mem::take(&mut self.incomplete);
        incomplete.extend_from_slice(bytes);
        let used = self.open(&incomplete, plain)?;
        // An idle connection keeps no buffer.
        if used < incomplete.len() {
            incomplete.drain(..used);
            self.incomplete = incomplete;
        }
        Ok(())
    }

    /// Opens the whole buffers at the front; how many bytes they were.
    fn open(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> Result<usize, LayerError> {
        let mut rest = bytes;
        while let Some((header, after)) = rest.split_first_chunk::<LENGTH_BYTES>() {
            let length = usize::try_from(u32::from_be_bytes(*header)).unwrap_or(usize::MAX);
            let limit = self.layer.receive_max().min(BUFFER_BYTES_MAX);
            if length > limit {
                return Err(LayerError::TooLarge { length, limit });
            }
            let Some((buffer, next)) = after.split_at_checked(length) else { break };
            self.layer.unwrap(buffer, plain)?;
            rest = next;
        }
        Ok(bytes.len() - rest.len())
    }

    /// Appends the buffers that protect `plain` to `wire`.
    pub(crate) fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), LayerError> {
        for part in plain.chunks(self.layer.send_max().max(1)) {
            let start = wire.len();
            wire.extend_from_slice(&[0; LENGTH_BYTES]);
            self.layer.wrap(part, wire)?;
            let length = wire.len().saturating_sub(start + LENGTH_BYTES);
            let length = u32::try_from(length)
                .map_err(|_| LayerError::TooLarge { length, limit: BUFFER_BYTES_MAX })?;
            if let Some(header) = wire.get_mut(start..start + LENGTH_BYTES) {
                header.copy_from_slice(&length.to_be_bytes());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds one to every byte, and a byte that says which buffer it is.
    #[derive(Debug, Default)]
    struct Shift {
        sent: u8,
        received: u8,
    }

    impl SecurityLayer for Shift {
        fn unwrap(&mut self, buffer: &[u8], plain: &mut Vec<u8>) -> Result<(), LayerError> {
            let Some((number, rest)) = buffer.split_first().filter(|(number, _)| **number == self.received)
            else {
                return Err(LayerError::Mechanism("replayed".to_owned()));
            };
            self.received = number + 1;
            plain.extend(rest.iter().map(|byte| byte.wrapping_sub(1)));
            Ok(())
        }

        fn wrap(&mut self, plain: &[u8], buffer: &mut Vec<u8>) -> Result<(), LayerError> {
            buffer.push(self.sent);
            self.sent += 1;
            buffer.extend(plain.iter().map(|byte| byte.wrapping_add(1)));
            Ok(())
        }

        fn send_max(&self) -> usize {
            4
        }

        fn receive_max(&self) -> usize {
            8
        }

        fn ssf(&self) -> u32 {
            1
        }
    }

    #[test]
    fn what_is_sent_in_pieces_arrives_whole() {
        let mut wire = Vec::new();
        FramedLayer::new(Box::<Shift>::default()).send(b"hello world", &mut wire).unwrap();
        assert_eq!(&wire[..9], b"\0\0\0\x05\0ifmm");
        for piece in 1..wire.len() {
            let mut receiver = FramedLayer::new(Box::<Shift>::default());
            let mut plain = Vec::new();
            wire.chunks(piece).for_each(|bytes| receiver.receive(bytes, &mut plain).unwrap());
            assert_eq!(plain, b"hello world", "in pieces of {piece}");
            assert_eq!(receiver.incomplete.capacity(), 0);
        }
    }

    #[test]
    fn what_does_not_fit_ends_the_connection() {
        for (bytes, expected) in [
            (&b"\0\0\0\x09"[..], LayerError::TooLarge { length: 9, limit: 8 }),
            (b"\xff\xff\xff\xff", LayerError::TooLarge { length: 0xffff_ffff, limit: 8 }),
            (b"\0\0\0\x01\x07", LayerError::Mechanism("replayed".to_owned())),
        ] {
            let mut receiver = FramedLayer::new(Box::<Shift>::default());
            assert_eq!(receiver.receive(bytes, &mut Vec::new()), Err(expected), "{bytes:?}");
        }
    }

    /// Takes large buffers as they are.
    #[derive(Debug)]
    struct Large;

    impl SecurityLayer for Large {
        fn unwrap(&mut self, buffer: &[u8], plain: &mut Vec<u8>) -> Result<(), LayerError> {
            plain.extend_from_slice(buffer);
            Ok(())
        }

        fn wrap(&mut self, plain: &[u8], buffer: &mut Vec<u8>) -> Result<(), LayerError> {
            buffer.extend_from_slice(plain);
            Ok(())
        }

        fn send_max(&self) -> usize {
            1 << 17
        }

        fn receive_max(&self) -> usize {
            1 << 17
        }

        fn ssf(&self) -> u32 {
            1
        }
    }

    #[test]
    fn a_buffer_that_comes_byte_by_byte_is_not_copied_for_each() {
        let (sent, mut wire) = (vec![7; 1 << 17], Vec::new());
        FramedLayer::new(Box::new(Large)).send(&sent, &mut wire).unwrap();
        let mut receiver = FramedLayer::new(Box::new(Large));
        let (mut plain, mut rooms) = (Vec::new(), std::collections::BTreeSet::new());
        for byte in &wire {
            receiver.receive(&[*byte], &mut plain).unwrap();
            rooms.insert(receiver.incomplete.capacity());
        }
        assert_eq!(plain, sent);
        // A list has a room of another size each time that its content is copied.
        assert!(rooms.len() <= 20, "{rooms:?}");
    }
}
