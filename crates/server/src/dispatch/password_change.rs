//! Changes that set passwords, and sessions that may do nothing before they changed theirs.

use larix_engine::controls::RequestControls;
use larix_engine::write::WriteOperation;
use larix_proto::control::{ControlValue, PasswordError, PasswordPolicyResponse};
use larix_proto::{LdapResult, ModifyOperation, ResultCode};
use larix_schema::{AttributeDescription, NormalDn, Schema};

use crate::connection::StartOutcome;
use crate::dispatch::{Dispatcher, RequestInFlight, RunningSearch};

/// The answer to everything else while the password has to be changed.
pub(crate) fn password_first() -> LdapResult {
    let text = "Operations are restricted to bind/unbind/abandon/StartTLS/modify password";
    LdapResult::with(ResultCode::INSUFFICIENT_ACCESS_RIGHTS, text)
}

impl Dispatcher {
    pub(crate) fn refuse_until_changed(
        &self,
        in_flight: &RequestInFlight,
        controls: &RequestControls,
        out: &mut Vec<u8>,
    ) -> StartOutcome<RunningSearch> {
        let response = || {
            let error = Some(PasswordError::ChangeAfterReset);
            PasswordPolicyResponse { warning: None, error }.to_control(false)
        };
        let controls: Vec<_> = controls.password_policy.then(response).into_iter().collect();
        self.answer(in_flight, &password_first(), &controls, out);
        StartOutcome::Answered
    }

    /// Whether a change is of the password, and of operational attributes, alone.
    pub(crate) fn changes_password_alone(&self, operation: &WriteOperation) -> bool {
        let WriteOperation::Modify { changes, .. } = operation else { return false };
        let databases = self.server.databases();
        let schema = databases.schema();
        changes.iter().all(|change| {
            schema.describe(&change.attribute.description).is_ok_and(|description| {
                is_password(schema, &description) || schema.attribute(description.attribute).is_operational()
            })
        })
    }

    /// Whether a change brings a password. One that takes values away, or changes operational attributes or nothing, does not.
    pub(super) fn brings_password(&self, operation: &WriteOperation) -> bool {
        self.has_passwords(operation, &[ModifyOperation::Add, ModifyOperation::Replace])
    }

    /// Whether a change takes a password away by its value: its answer says whether that was right.
    pub(crate) fn names_old_password(&self, operation: &WriteOperation) -> bool {
        self.has_passwords(operation, &[ModifyOperation::Delete])
    }

    /// Whether one of these parts of a change has passwords.
    fn has_passwords(&self, operation: &WriteOperation, parts: &[ModifyOperation]) -> bool {
        let WriteOperation::Modify { changes, .. } = operation else { return false };
        let mut with_values = changes
            .iter()
            .filter(|change| parts.contains(&change.operation) && !change.attribute.values.is_empty())
            .peekable();
        if with_values.peek().is_none() {
            return false;
        }
        let databases = self.server.databases();
        let schema = databases.schema();
        with_values.any(|change| {
            schema
                .describe(&change.attribute.description)
                .is_ok_and(|description| is_password(schema, &description))
        })
    }

    /// Whether an entry is that of the login, whatever identity acts.
    pub(crate) fn is_of_login(&self, dn: &NormalDn) -> bool {
        self.session.subject().authentication_dn() == Some(dn)
    }
}

/// Whether values of this description are passwords: with an option they are not.
fn is_password(schema: &Schema, description: &AttributeDescription) -> bool {
    description.options().is_empty() && schema.attribute(description.attribute).name() == "userPassword"
}
