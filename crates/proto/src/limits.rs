//! Named limits of the wire and text forms, and how they relate.

/// Largest content length of a PDU from an anonymous peer, bytes (OpenLDAP's `sockbuf_max_incoming`).
pub const PDU_ANONYMOUS: usize = 262_143;

/// Largest content length of a PDU from an authenticated peer, bytes (OpenLDAP's `sockbuf_max_incoming_auth`).
pub const PDU_AUTHENTICATED: usize = 4_194_303;

/// No PDU is ever larger than this, whatever the configuration says, bytes.
pub const PDU_CEILING: usize = 1 << 30;

/// The largest message ID with its tag and its length (RFC 4511 section 4.1.1.1), bytes.
pub const MESSAGE_ID: usize = 6;

/// Filters nested deeper than this are refused (OpenLDAP's `maxfilterdepth`).
pub const FILTER_DEPTH: usize = 1000;

/// `maxfilterdepth` has no effect above this: bound filters are walked by recursive functions, and this many
/// frames of them must fit [`FILTER_STACK`].
pub const FILTER_DEPTH_CEILING: usize = 1000;

/// Bytes of stack for a thread that looks at filters. An unoptimised build takes some 4 KB a level; what is not used is
/// not there.
pub const FILTER_STACK: usize = 16 << 20;

/// Controls on one message.
pub const CONTROLS: usize = 64;

/// Largest record of an LDIF file, bytes.
pub const LDIF_RECORD: usize = 512 << 20;

/// LDIF files nested by `include:`.
pub const LDIF_INCLUDES: usize = 16;

const _: () = assert!(PDU_ANONYMOUS <= PDU_AUTHENTICATED && PDU_AUTHENTICATED <= PDU_CEILING);
const _: () = assert!(FILTER_DEPTH <= FILTER_DEPTH_CEILING);
// Each level of a filter takes at least two octets: an anonymous peer can reach the depth limit, so it must hold.
const _: () = assert!(FILTER_DEPTH_CEILING * 2 < PDU_ANONYMOUS);
const _: () = assert!(FILTER_DEPTH_CEILING * 8192 < FILTER_STACK);
const _: () = assert!(LDIF_RECORD > PDU_AUTHENTICATED);

/// Limits that a configuration may change.
#[derive(Copy, Clone, Debug)]
pub struct DecodeLimits {
    /// Deepest nesting of a filter; held below [`FILTER_DEPTH_CEILING`].
    pub filter_depth: usize,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self { filter_depth: FILTER_DEPTH }
    }
}
