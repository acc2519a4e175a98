//! The one place where the driver asks the machine for the time.

use std::time::Instant;

#[allow(clippy::disallowed_methods)] // a measurement is about this machine's time
pub(super) fn now() -> Instant {
    Instant::now()
}
