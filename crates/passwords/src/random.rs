//! Randomness as a parameter: no crate below the server asks the machine for entropy, so that every run can be replayed from
//! a seed.

use std::fmt;
use std::sync::Mutex;

/// Where salts, identifiers and whatever else must not be predicted get their bytes from.
pub trait RandomSource: Send + Sync + fmt::Debug {
    fn fill(&self, bytes: &mut [u8]);
}

/// A reproducible stream of bytes (SplitMix64): for tests and simulations, never for secrets.
#[derive(Debug)]
pub struct SeededRandom(Mutex<u64>);

impl SeededRandom {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    /// The next number.
    pub fn number(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_be_bytes(bytes)
    }

    /// A number below `limit`.
    ///
    /// # Panics
    /// `limit` is zero.
    pub fn below(&self, limit: usize) -> usize {
        (self.number() % limit as u64) as usize
    }

    /// One of them, each as likely as the others.
    ///
    /// # Panics
    /// There are none.
    pub fn one_of<T: Copy>(&self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

impl RandomSource for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) {
        let mut state = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for chunk in bytes.chunks_mut(8) {
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = *state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
            for (to, from) in chunk.iter_mut().zip(z.to_be_bytes()) {
                *to = from;
            }
        }
    }
}
