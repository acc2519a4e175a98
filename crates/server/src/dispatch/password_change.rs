//! Changes that set passwords, and sessions that may do nothing before they changed theirs.

use larix_engine::controls::RequestControls;
use larix_engine::overlay::password_policy;
use larix_engine::write::{WriteOperation, WriteRequest};
use larix_proto::control::PasswordError;
use larix_proto::{LdapResult, ResultCode};

use crate::connection::Started;
use crate::dispatch::{Begun, Completion, Dispatcher, Running};

/// The answer to everything else while the password has to be changed.
pub(crate) fn password_first() -> LdapResult {
    let text = "Operations are restricted to bind/unbind/abandon/StartTLS/modify password";
    LdapResult::with(ResultCode::INSUFFICIENT_ACCESS_RIGHTS, text)
}

impl Dispatcher {
    pub(crate) fn refuse_until_changed(
        &self,
        begun: &Begun,
        controls: &RequestControls,
        out: &mut Vec<u8>,
    ) -> Started<Running> {
        let response = || password_policy::response(None, Some(PasswordError::ChangeAfterReset));
        let controls: Vec<_> = controls.password_policy.then(response).into_iter().collect();
        self.answer(begun, &password_first(), &controls, out);
        Started::Answered
    }

    /// Whether a change is of passwords, and operational attributes, alone.
    pub(crate) fn changes_password_alone(&self, operation: &WriteOperation) -> bool {
        let WriteOperation::Modify { changes, .. } = operation else { return false };
        let databases = self.server.databases();
        let schema = databases.schema();
        changes.iter().all(|change| {
            schema.describe(&change.attribute.description).is_ok_and(|description| {
                let attribute = schema.attribute(description.attribute);
                attribute.name() == "userPassword" || attribute.is_operational()
            })
        })
    }

    /// Hands a change to its writer; one with passwords by way of the pool, where they are compared and hashed.
    pub(crate) fn submit_change(
        &mut self,
        begun: &Begun,
        mut request: WriteRequest,
    ) -> Result<(), LdapResult> {
        let databases = self.server.databases();
        let directory = databases.directory();
        let with_work = directory.has_password_work(&request.operation);
        let completer = self.completer(begun);
        let mut noted = self.take_noted(begun.operation.serial);
        noted.iter_mut().for_each(|noted| noted.acts_as(&request.subject));
        let done = move |outcome| {
            noted.into_iter().for_each(|noted| noted.changed(&outcome));
            completer.complete(Completion::Write(outcome));
        };
        if self.session.must_change_password {
            let target = directory.schema().parse_dn(request.operation.target()).ok();
            if target.is_some() && target == self.session.subject().dn {
                self.password_change = Some(begun.operation.serial);
            }
        }
        if !with_work {
            databases.update((&*self.server.clock, begun.started), request, Box::new(done));
            return Ok(());
        }
        let Ok(target) = directory.schema().parse_dn(request.operation.target()) else {
            databases.update((&*self.server.clock, begun.started), request, Box::new(done));
            return Ok(());
        };
        let (server, began) = (self.server.clone(), begun.started);
        let job = move || {
            let databases = server.databases();
            databases.directory().work_on_passwords(&mut request);
            databases.update((&*server.clock, began), request, Box::new(done));
        };
        self.server
            .passwords
            .submit(self.job_source(&target), job)
            .map_err(|_| LdapResult::with(ResultCode::BUSY, "too many passwords wait to be hashed"))
    }
}
