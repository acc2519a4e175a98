//! The text of a file in pieces, each with its checksum: what a change leaves alone is neither made nor summed again.

use std::sync::Arc;

/// Bytes of a file and their CRC-32.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    bytes: Vec<u8>,
    crc: u32,
    /// What so many bytes behind it do to a sum.
    shift: u32,
}

impl Piece {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        let (crc, shift) = (crc32(&bytes), shift_of(bytes.len()));
        Self { bytes, crc, shift }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// What a file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Text {
    pieces: Vec<Arc<Piece>>,
}

impl Text {
    pub(super) fn push(&mut self, bytes: Vec<u8>) {
        self.pieces.push(Arc::new(Piece::new(bytes)));
    }

    pub(super) fn extend(&mut self, pieces: impl IntoIterator<Item = Arc<Piece>>) {
        self.pieces.extend(pieces);
    }

    pub(super) fn append(&mut self, other: &Self) {
        self.pieces.extend(other.pieces.iter().cloned());
    }

    /// `header`, and then all of this.
    pub(super) fn with_header(self, header: Vec<u8>) -> Self {
        let mut text = Self::default();
        text.push(header);
        text.extend(self.pieces);
        text
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.bytes.len()).sum()
    }

    /// The CRC-32 of the whole.
    pub(super) fn crc(&self) -> u32 {
        self.pieces.iter().fold(0, |crc, piece| product(piece.shift, crc) ^ piece.crc)
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(|piece| piece.bytes.as_slice())
    }

    pub(super) fn pieces(&self) -> &[Arc<Piece>] {
        &self.pieces
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        self.parts().collect::<Vec<_>>().concat()
    }
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Self {
        let mut text = Self::default();
        text.push(bytes);
        text
    }
}

/// The polynomial of ISO 3309; here the highest bit is the lowest power.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// x to the power of 8.
const BYTE: u32 = 1 << 23;
const ONE: u32 = 1 << 31;

/// The product of two polynomials over GF(2), modulo the CRC's.
fn product(mut a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    while a != 0 {
        if a & ONE != 0 {
            product ^= b;
        }
        a <<= 1;
        b = if b & 1 == 1 { (b >> 1) ^ POLYNOMIAL } else { b >> 1 };
    }
    product
}

/// x to the power of 8 times `bytes`.
fn shift_of(bytes: usize) -> u32 {
    let (mut shift, mut square, mut remaining) = (ONE, BYTE, bytes);
    while remaining != 0 {
        if remaining & 1 == 1 {
            shift = product(shift, square);
        }
        square = product(square, square);
        remaining >>= 1;
    }
    shift
}

/// CRC-32 as in ISO 3309 and zlib.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        let [low, ..] = crc.to_le_bytes();
        // A byte is always in a table of 256.
        (crc >> 8) ^ CRC_STEPS.get(usize::from(low ^ byte)).copied().unwrap_or(0)
    })
}

/// What each byte does to the sum.
const CRC_STEPS: [u32; 256] = {
    let mut steps = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut step, mut bit) = (byte as u32, 0);
        while bit < 8 {
            step = if step & 1 == 1 { (step >> 1) ^ 0xedb8_8320 } else { step >> 1 };
            bit += 1;
        }
        steps[byte] = step;
        byte += 1;
    }
    steps
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_pieces_is_that_of_the_whole() {
        let bytes: Vec<u8> =
            (0..2_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        for cuts in [vec![], vec![0], vec![1], vec![8_000], vec![1, 2, 3], vec![100, 100, 4_096, 7_999]] {
            let mut text = Text::default();
            let mut from = 0;
            for to in cuts.iter().copied().chain([bytes.len()]) {
                text.push(bytes[from..to].to_vec());
                from = to;
            }
            assert_eq!((text.crc(), text.len()), (crc32(&bytes), bytes.len()), "{cuts:?}");
            assert_eq!(text.to_vec(), bytes);
        }
        assert_eq!(Text::default().crc(), crc32(b""));
    }
}
