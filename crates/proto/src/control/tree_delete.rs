//! Tree delete (draft-armijo-ldap-treedelete).

super::flag_control!(
    /// Deletes an entry with everything below it.
    TreeDelete,
    crate::oid::TREE_DELETE
);
