//! Where the ambient clock and randomness of the machine enter; everything else takes them as parameters.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use larix_engine::time::{Clock, Monotonic, RandomSource, Timestamp};

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the server is where the ambient clock enters")]
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the server is where the ambient clock enters")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    #[expect(clippy::disallowed_methods, reason = "the server is where the ambient clock enters")]
    fn monotonic(&self) -> Monotonic {
        let since = Instant::now().duration_since(self.started);
        // Each request asks twice. The sum fits for 584 years.
        Monotonic(since.as_secs().wrapping_mul(1_000_000_000).wrapping_add(since.subsec_nanos().into()))
    }
}

/// The machine's randomness.
#[derive(Debug, Default)]
pub struct SystemRandom;

impl RandomSource for SystemRandom {
    #[expect(clippy::disallowed_methods, reason = "the server is where ambient randomness enters")]
    fn fill(&self, bytes: &mut [u8]) {
        if let Err(error) = getrandom::fill(bytes) {
            // Salts, cookies' keys and identifiers without entropy would be worse than no server.
            panic!("the operating system gives no random bytes: {error}");
        }
    }
}
