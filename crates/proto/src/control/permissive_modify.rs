//! Permissive modify (MS-ADTS section 3.1.1.3.4.1.8).

super::flag_control!(
    /// Adding a value that is there and deleting one that is not are no errors.
    PermissiveModify,
    crate::oid::PERMISSIVE_MODIFY
);
