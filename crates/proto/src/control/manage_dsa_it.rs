//! ManageDsaIT (RFC 3296).

super::flag_control!(
    /// Treats referral objects as ordinary entries.
    ManageDsaIt,
    crate::oid::MANAGE_DSA_IT
);
