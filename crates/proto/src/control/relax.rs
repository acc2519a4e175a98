//! Relax rules (draft-zeilenga-ldap-relax).

super::flag_control!(
    /// Lets an administrator write what the rules keep for the server, such as entryUUID.
    Relax,
    crate::oid::RELAX
);
