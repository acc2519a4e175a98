//! Whether a new password is good enough (draft-behera-ldap-password-policy-10 sections 5.2.5 to 5.2.7).

use larix_proto::control::PasswordError;

use super::policy::Policy;
use larix_engine::password::Scheme;

/// Checks a password as it was given: in the clear, or hashed already.
pub(super) fn check(policy: &Policy, password: &[u8]) -> Result<(), PasswordError> {
    let length = i64::try_from(password.len()).unwrap_or(i64::MAX);
    if length == 0 || policy.min_length > length {
        return Err(PasswordError::PasswordTooShort);
    }
    if policy.max_length > 0 && length > policy.max_length {
        return Err(PasswordError::PasswordTooLong);
    }
    match Scheme::split(password) {
        // A hash tells nothing of what it is made from.
        Some((Some(scheme), _)) if scheme != Scheme::Cleartext => match policy.check_quality {
            2 => Err(PasswordError::InsufficientPasswordQuality),
            _ => Ok(()),
        },
        // Loadable modules are not loaded: what they would have checked does not pass.
        _ if policy.check_module => Err(PasswordError::InsufficientPasswordQuality),
        _ => Ok(()),
    }
}
