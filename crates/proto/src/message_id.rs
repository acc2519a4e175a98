//! Message ids (RFC 4511 section 4.1.1.1).

use std::fmt;

/// A message id, 0 ..= 2^31 - 1; zero is the server's own, for unsolicited notifications.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u32);

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
