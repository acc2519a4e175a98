//! The security layers (RFC 2831 sections 2.3 and 2.4): packets of the message, perhaps encrypted, and a MAC.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::Quality;

/// Bytes of a MAC that are sent, without version and number.
const MAC_BYTES: usize = 10;
/// Version and sequence number behind each packet.
const TRAILER: usize = 6;
const LENGTH: usize = 4;
/// Least buffer that a client may ask for, so that packets make progress.
const BUFFER_MIN: usize = 64;

/// Why bytes cannot be a packet of the layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerFault {
    /// Shorter than a MAC.
    TooShort,
    /// Changed, repeated or out of order.
    Forged,
}

impl fmt::Display for LayerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort => f.write_str("a packet of the SASL layer is shorter than its MAC"),
            Self::Forged => f.write_str("a packet of the SASL layer was changed on its way"),
        }
    }
}

impl std::error::Error for LayerFault {}

/// One side's layer.
pub struct Layer {
    incoming: Direction,
    outgoing: Direction,
    /// Largest packet that is read.
    limit: usize,
    /// Largest message in one packet sent.
    chunk: usize,
}

impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layer")
            .field("limit", &self.limit)
            .field("chunk", &self.chunk)
            .finish_non_exhaustive()
    }
}

struct Direction {
    key: Zeroizing<[u8; 16]>,
    number: u32,
    cipher: Option<Rc4>,
}

impl Layer {
    /// The server's: `own_buffer` is the largest packet it reads, `peer_buffer` the client's.
    pub(super) fn of_server(
        session: &[u8; 16],
        quality: Quality,
        own_buffer: usize,
        peer_buffer: usize,
    ) -> Self {
        let direction = |towards: &str| Direction {
            key: derive(session, &format!("Digest session key to {towards} signing key magic constant")),
            number: 0,
            cipher: (quality == Quality::Confidentiality).then(|| {
                Rc4::new(&derive(session, &format!("Digest H(A1) to {towards} sealing key magic constant")))
            }),
        };
        Self {
            incoming: direction("client-to-server"),
            outgoing: direction("server-to-client"),
            limit: own_buffer,
            chunk: peer_buffer.max(BUFFER_MIN) - MAC_BYTES - TRAILER - LENGTH,
        }
    }

    /// Verifies and opens one packet (without its length), appending to `plain`.
    ///
    /// # Errors
    /// If it is not the next packet of this layer; nothing after it can be read.
    pub fn open(&mut self, packet: &[u8], plain: &mut Vec<u8>) -> Result<(), LayerFault> {
        self.incoming.open(packet, plain)
    }

    /// Protects at most [`chunk`](Self::chunk) bytes, appending one packet without its length to `packet`.
    pub fn seal(&mut self, plain: &[u8], packet: &mut Vec<u8>) {
        self.outgoing.seal(plain, packet);
    }

    /// Largest packet that the other side may send, in bytes.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Most bytes that one packet protects, so that the other side takes it.
    pub const fn chunk(&self) -> usize {
        self.chunk
    }
}

impl Direction {
    fn mac(&self, message: &[u8]) -> [u8; MAC_BYTES] {
        let mut short = [0; MAC_BYTES];
        // HMAC takes keys of every length.
        if let Ok(mut mac) = Hmac::<Md5>::new_from_slice(&*self.key) {
            mac.update(&self.number.to_be_bytes());
            mac.update(message);
            let full = mac.finalize().into_bytes();
            short.iter_mut().zip(full).for_each(|(to, from)| *to = from);
        }
        short
    }

    fn open(&mut self, packet: &[u8], plain: &mut Vec<u8>) -> Result<(), LayerFault> {
        let end = packet.len().checked_sub(TRAILER).ok_or(LayerFault::TooShort)?;
        let (sealed, trailer) = packet.split_at_checked(end).ok_or(LayerFault::TooShort)?;
        let mut sealed = sealed.to_vec();
        if let Some(cipher) = &mut self.cipher {
            cipher.apply(&mut sealed);
        }
        let end = sealed.len().checked_sub(MAC_BYTES).ok_or(LayerFault::TooShort)?;
        let (message, mac) = sealed.split_at_checked(end).ok_or(LayerFault::TooShort)?;
        let right = self.mac(message).ct_eq(mac) & self.trailer().ct_eq(trailer);
        if !bool::from(right) {
            return Err(LayerFault::Forged);
        }
        plain.extend_from_slice(message);
        self.number = self.number.wrapping_add(1);
        Ok(())
    }

    fn seal(&mut self, message: &[u8], wire: &mut Vec<u8>) {
        let mac = self.mac(message);
        let start = wire.len();
        wire.extend_from_slice(message);
        wire.extend_from_slice(&mac);
        if let (Some(cipher), Some(sealed)) = (&mut self.cipher, wire.get_mut(start..)) {
            cipher.apply(sealed);
        }
        wire.extend_from_slice(&self.trailer());
        self.number = self.number.wrapping_add(1);
    }

    fn trailer(&self) -> [u8; TRAILER] {
        let [a, b, c, d] = self.number.to_be_bytes();
        [0, 1, a, b, c, d]
    }
}

fn derive(session: &[u8; 16], constant: &str) -> Zeroizing<[u8; 16]> {
    Zeroizing::new(Md5::new().chain_update(session).chain_update(constant.as_bytes()).finalize().into())
}

/// The stream cipher RC4.
struct Rc4 {
    state: Zeroizing<[u8; 256]>,
    i: u8,
    j: u8,
}

impl Rc4 {
    fn new(key: &[u8; 16]) -> Self {
        let mut state = Zeroizing::new([0; 256]);
        state.iter_mut().zip(0..=u8::MAX).for_each(|(slot, value)| *slot = value);
        let mut j = 0_u8;
        for (i, byte) in (0..=u8::MAX).zip(key.iter().cycle()) {
            j = j.wrapping_add(state[usize::from(i)]).wrapping_add(*byte);
            state.swap(usize::from(i), usize::from(j));
        }
        Self { state, i: 0, j: 0 }
    }

    fn apply(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.i = self.i.wrapping_add(1);
            let at_i = self.state[usize::from(self.i)];
            self.j = self.j.wrapping_add(at_i);
            let at_j = self.state[usize::from(self.j)];
            self.state.swap(usize::from(self.i), usize::from(self.j));
            *byte ^= self.state[usize::from(at_i.wrapping_add(at_j))];
        }
    }
}

#[cfg(test)]
impl Layer {
    /// The client's side of the same layer.
    pub(super) fn of_client(session: &[u8; 16], quality: Quality, buffer: usize) -> Self {
        let Self { incoming, outgoing, limit, chunk } = Self::of_server(session, quality, buffer, buffer);
        Self { incoming: outgoing, outgoing: incoming, limit, chunk }
    }
}

#[cfg(test)]
#[test]
fn rc4_as_published() {
    // The first bytes of the stream of RFC 6229 section 2 for its key of 128 bits.
    let key: [u8; 16] = std::array::from_fn(|i| u8::try_from(i + 1).unwrap());
    let mut stream = [0; 16];
    Rc4::new(&key).apply(&mut stream);
    assert_eq!(super::hex(&stream), "9ac7cc9a609d1ef7b2932899cde41b97");
}
