//! The generator's random numbers: SplitMix64, so that a seed means the same on every machine and in every release.

/// A stream of numbers given by its seed alone.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; 0 when `bound` is 0. The bias of the multiplication is below 2^-32 for small bounds.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.bits() as u128 * bound as u128) >> 64) as u64
    }

    /// One of `items`, which must not be empty.
    pub const fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let index = self.below(items.len() as u64) as usize;
        &items[index]
    }

    /// `length` letters and digits.
    pub fn alphanumeric(&mut self, length: usize) -> String {
        const ALPHABET: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        (0..length).map(|_| char::from(*self.pick(ALPHABET))).collect()
    }

    /// `length` decimal digits.
    pub fn digits(&mut self, length: usize) -> String {
        (0..length).map(|_| char::from(b'0' + self.below(10) as u8)).collect()
    }

    /// A UUID in capitals, as the mail system writes its account ids.
    pub fn uuid(&mut self) -> String {
        let (high, low) = (self.bits(), self.bits());
        format!(
            "{:08X}-{:04X}-{:04X}-{:04X}-{:012X}",
            high >> 32,
            (high >> 16) & 0xffff,
            (high & 0x0fff) | 0x4000,
            ((low >> 48) & 0x3fff) | 0x8000,
            low & 0xffff_ffff_ffff
        )
    }

    /// A moment between 1978 and 2013 as Generalized Time (RFC 4517 section 3.3.13).
    pub fn generalized_time(&mut self) -> String {
        let (year, month, day) = (1978 + self.below(35), 1 + self.below(12), 1 + self.below(28));
        let (hour, minute, second) = (self.below(24), self.below(60), self.below(60));
        format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}Z")
    }
}
