//! Domain scope (MS-ADTS section 3.1.1.3.4.1.4).

super::flag_control!(
    /// No continuation references are sent.
    DomainScope,
    crate::oid::DOMAIN_SCOPE
);
