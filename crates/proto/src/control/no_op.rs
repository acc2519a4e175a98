//! No-op (draft-zeilenga-ldap-noop).

super::flag_control!(
    /// Does everything but the change; a success answers noOperation.
    NoOp,
    crate::oid::NO_OP
);
