//! Where the ambient clock and randomness of the machine enter; everything else takes them as parameters.

use std::time::{SystemTime, UNIX_EPOCH};

use larix_engine::time::{Clock, Monotonic, RandomSource, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// The machine's clocks.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the server is where the ambient clock enters")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Monotonic {
        // Each request asks twice, and the difference of two `Instant`s takes 55 instructions. The sum fits for 584 years since the
        // machine's start.
        let since = clock_gettime(ClockId::Monotonic);
        let (seconds, nanos) = (since.tv_sec.cast_unsigned(), since.tv_nsec.cast_unsigned());
        Monotonic(seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos))
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
