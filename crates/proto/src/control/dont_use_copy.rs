//! Don't use copy (RFC 6171).

super::flag_control!(
    /// The answer must not come from a copy that may be stale.
    DontUseCopy,
    crate::oid::DONT_USE_COPY
);
