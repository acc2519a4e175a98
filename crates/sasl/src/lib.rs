//! SASL mechanisms (RFC 4422) as state machines without I/O: messages in, messages out. Both sides are here, since the
//! server, its command line clients and the load generator speak them.
//!
//! Nothing here looks a user up, reads a clock or makes random bytes: secrets and nonces are parameters, so that the
//! examples of the RFCs are tests.
//!
//! | mechanism | specified in | module |
//! |---|---|---|
//! | SCRAM-SHA-1, -SHA-256, -SHA-512 and their -PLUS | RFC 5802, RFC 7677 | [`scram`] |
//! | PLAIN | RFC 4616 | [`plain`] |
//! | CRAM-MD5 | RFC 2195 | [`cram_md5`] |
//! | DIGEST-MD5 | RFC 2831 | [`digest_md5`] |

pub mod cram_md5;
pub mod digest_md5;
pub mod plain;
pub mod scram;

mod fault;
mod prep;

pub use fault::Fault;
pub use prep::prepare;

/// Longest message of a mechanism made of text, in bytes; a longer one is refused unread.
pub const TEXT_MESSAGE_MAX: usize = 4096;
/// Longest user name, authorization identity or password in a message, in bytes.
pub const NAME_MAX: usize = 1024;

const _: () = assert!(3 * NAME_MAX < TEXT_MESSAGE_MAX);
