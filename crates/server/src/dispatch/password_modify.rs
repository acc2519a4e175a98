//! Password modify (RFC 3062): one's own or another's password, given or made up.

use std::sync::Arc;

use larix_engine::access::{self, Subject};
use larix_engine::controls::{ControlValues, OperationKind, RequestControls};
use larix_engine::overlay::{BindAttempt, PasswordWork, Purpose};
use larix_engine::password;
use larix_engine::time::Clock;
use larix_engine::write::{
    AttributeValues, Modification, Origin, WriteOperation, WriteOutcome, WriteRequest,
};
use larix_proto::extended::{ExtendedValue, PasswordModify, PasswordModifyResponse};
use larix_proto::{ControlBuf, Controls, ExtendedRequest, LdapResult, ModifyOperation, ResultCode, oid};
use larix_schema::NormalDn;
use zeroize::Zeroizing;

use crate::access_log::RecordedRequest;
use crate::clock::SystemRandom;
use crate::connection::Started;
use crate::databases::{Credentials, Databases};
use crate::dispatch::{Begun, Completion, Dispatcher, Running};
use crate::generated_password::generate_password;
use crate::log::printable;
use crate::operation_rules::Restricted;
use crate::password_check::{self, Elsewhere};
use crate::server::Server;

/// A password was changed, or was not.
#[derive(Debug)]
pub struct PasswordOutcome {
    result: LdapResult,
    controls: Vec<ControlBuf>,
    generated: Option<Secret>,
    /// It was the session's own.
    own: bool,
    /// An old password came with the request, and counts as a failed bind of its address unless it is right.
    proof: Proof,
}

/// What an old password is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// The request had none.
    Absent,
    Right,
    Wrong,
}

type Secret = Zeroizing<Vec<u8>>;

impl Dispatcher {
    /// A password change has ended.
    pub(crate) fn password_modified(&mut self, begun: &Begun, outcome: PasswordOutcome, out: &mut Vec<u8>) {
        let PasswordOutcome { result, controls, generated, own, proof } = outcome;
        if proof == Proof::Right {
            self.proof_was_right();
        }
        if own && result.is_success() {
            self.session.must_change_password = false;
        }
        let generated = generated.as_ref().filter(|_| result.is_success());
        let value = PasswordModifyResponse { generated: generated.map(|g| g.as_slice()) }.encode();
        self.answer_extended_with(begun, &result, value.as_deref(), &controls, out);
    }

    pub(crate) fn password_modify(
        &mut self,
        begun: Begun,
        request: &ExtendedRequest<'_>,
        mut controls: RequestControls,
        sent: Controls<'_>,
    ) -> Result<Started<Running>, LdapResult> {
        let refuse = |code, text: &str| Err(LdapResult::with(code, text));
        let kind = || access::Operation::Extended(oid::PASSWORD_MODIFY.to_owned());
        let databases = self.server.databases();
        let subject = self.in_request(&databases, self.subject_for(&controls)?, kind, sent);
        if subject.is_anonymous() {
            self.log_operation(&begun, format_args!("PASSMOD"));
            let text = "only authenticated users may change passwords";
            return refuse(ResultCode::STRONGER_AUTH_REQUIRED, text);
        }
        let asked = PasswordModify::decode(request.value)
            .map_err(|error| LdapResult::with(ResultCode::PROTOCOL_ERROR, error.to_string()))?;
        if asked.new.is_some_and(<[u8]>::is_empty) {
            return refuse(ResultCode::UNWILLING_TO_PERFORM, "new password value is empty");
        }
        let user = asked.user.map(String::from_utf8_lossy).filter(|user| !user.is_empty());
        self.log_password_modify(&begun, user.as_deref(), &asked);
        let target = match &user {
            Some(user) => user.strip_prefix("dn:").unwrap_or(user).to_owned(),
            None => subject.shown_dn().to_owned(),
        };
        let dn = databases
            .schema()
            .parse_dn(&target)
            .map_err(|_| LdapResult::with(ResultCode::INVALID_ATTRIBUTE_SYNTAX, "Invalid DN"))?;
        if dn.is_root() {
            return refuse(ResultCode::UNWILLING_TO_PERFORM, "no password is associated with the Root DSE");
        }
        let operation = Restricted::Extended(oid::PASSWORD_MODIFY);
        let dropped = self.permitted(dn.as_str(), operation, sent)?;
        controls.forget(&dropped, sent, OperationKind::Extended(oid::PASSWORD_MODIFY))?;
        let stored = match asked.old {
            None => None,
            Some(_) => Some(self.old_passwords(&databases, &subject, &dn)?),
        };
        let generated = asked.new.is_none().then(|| generate_password(&SystemRandom));
        let new = match (asked.new, &generated) {
            (Some(new), _) => Zeroizing::new(new.to_vec()),
            (None, Some(generated)) => generated.clone(),
            (None, None) => return refuse(ResultCode::OTHER, "password generation failed"),
        };
        let change = PasswordChange {
            dn: dn.clone(),
            own: self.session.subject().dn.as_ref() == Some(&dn),
            target,
            controls,
            subject,
            old: asked.old.map(|old| Zeroizing::new(old.to_vec())),
            stored,
            new,
            generated,
        };
        self.hash_and_submit(begun, &dn, change)
    }

    /// What an old password is compared with. Whoever may not replace the password gets the same answer whatever there is,
    /// and a wrong one counts where failed binds do.
    fn old_passwords(
        &self,
        databases: &Databases,
        subject: &Arc<Subject>,
        dn: &NormalDn,
    ) -> Result<Vec<Secret>, LdapResult> {
        let unwilling =
            || LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, "unwilling to verify old password");
        if !databases.directory().may_replace_password(subject, dn) {
            return Err(unwilling());
        }
        match databases.credentials(subject, dn) {
            Ok(Credentials::Stored { mut passwords, .. }) => {
                self.drop_costly(&mut passwords, dn);
                self.proof_begins()?;
                Ok(passwords)
            }
            _ => Err(unwilling()),
        }
    }

    fn hash_and_submit(
        &mut self,
        begun: Begun,
        dn: &NormalDn,
        change: PasswordChange,
    ) -> Result<Started<Running>, LdapResult> {
        let completer = self.completer(&begun);
        let server = self.server.clone();
        let about = WriteOperation::Modify { object: change.target.clone(), changes: Vec::new() };
        let noted = self.note_change(&about, &change.subject);
        let job = move || {
            change.carry_out(&server, noted, move |outcome| {
                completer.complete(Completion::Password(Box::new(outcome)))
            });
        };
        self.server
            .passwords
            .submit(self.job_source(dn), job)
            .map_err(|_| LdapResult::with(ResultCode::BUSY, "too many passwords wait to be hashed"))?;
        self.wait_for(begun);
        Ok(Started::Waiting)
    }

    fn log_password_modify(&self, begun: &Begun, user: Option<&str>, asked: &PasswordModify<'_>) {
        let old = if asked.old.is_some() { " old" } else { "" };
        let new = if asked.new.is_some() { " new" } else { "" };
        match user {
            Some(user) => {
                self.log_operation(begun, format_args!("PASSMOD id=\"{}\"{old}{new}", printable(user)))
            }
            None => self.log_operation(begun, format_args!("PASSMOD{old}{new}")),
        }
    }
}

/// Whether the old password is the one that is stored, or known elsewhere.
fn matches(elsewhere: Option<&Elsewhere>, work: &PasswordWork, stored: &[u8], old: &[u8]) -> bool {
    match password::pass_through(stored) {
        Some(_) => password_check::is_match(stored, old, elsewhere),
        None => work.matches(stored, old),
    }
}

/// A password change on its way: on the pool, since verifying and hashing take long.
struct PasswordChange {
    dn: NormalDn,
    target: String,
    controls: RequestControls,
    subject: Arc<Subject>,
    own: bool,
    /// The old password as given; one of the stored values must match it.
    old: Option<Secret>,
    stored: Option<Vec<Secret>>,
    new: Secret,
    generated: Option<Secret>,
}

impl PasswordChange {
    fn carry_out(
        self,
        server: &Arc<Server>,
        noted: Option<RecordedRequest>,
        done: impl FnOnce(PasswordOutcome) + Send + 'static,
    ) {
        let Self { dn, target, controls, subject, own, old, stored, new, generated } = self;
        let failed = move |code, text: &str, proof| PasswordOutcome {
            result: LdapResult::with(code, text),
            controls: Vec::new(),
            generated: None,
            own,
            proof,
        };
        let proof = if old.is_some() { Proof::Right } else { Proof::Absent };
        let hashers = server.config().hashers();
        let elsewhere = Elsewhere::of(server);
        let work = PasswordWork::of(Purpose::PasswordModify, old, Some(new));
        if let (Some(old), Some(stored)) = (&work.old, stored)
            && !stored.iter().any(|value| matches(elsewhere.as_ref(), &work, value, old))
        {
            let attempt = BindAttempt { dn, matched: false, policy_control: controls.password_policy };
            // The account's policy counts it, durably before the answer.
            server.databases().directory().conclude_bind(
                attempt,
                Box::new(move |verdict| {
                    let text = "unwilling to verify old password";
                    let outcome = failed(ResultCode::UNWILLING_TO_PERFORM, text, Proof::Wrong);
                    done(PasswordOutcome { controls: verdict.controls, ..outcome });
                }),
            );
            return;
        }
        let mut values = Vec::with_capacity(hashers.len());
        for hasher in &hashers {
            match work.hash(hasher, work.new.as_deref().map_or(&[], Vec::as_slice), &SystemRandom) {
                Ok(hash) => values.push(hash.to_vec()),
                Err(error) => {
                    let text = format!("password hash failed: {error}");
                    return done(failed(ResultCode::OTHER, &text, proof));
                }
            }
        }
        let change = Modification {
            operation: ModifyOperation::Replace,
            attribute: AttributeValues { description: "userPassword".to_owned(), values },
        };
        let finished = move |outcome: WriteOutcome| {
            noted.into_iter().for_each(|noted| noted.changed(&outcome));
            // Which of the entries above exist is not told here.
            let result = LdapResult { matched_dn: String::new(), ..outcome.result };
            done(PasswordOutcome { result, controls: outcome.controls, generated, own, proof });
        };
        let mut request = WriteRequest {
            operation: WriteOperation::Modify { object: target, changes: vec![change] },
            subject,
            controls: RequestControls::from(ControlValues {
                password_policy: controls.password_policy,
                ..ControlValues::default()
            }),
            origin: Origin::Client,
            passwords: Some(Arc::new(work)),
        };
        let databases = server.databases();
        let directory = databases.directory();
        if directory.has_password_work(&request.operation) {
            directory.work_on_passwords(&mut request);
        }
        databases.update((&*server.clock, server.clock.monotonic()), request, Box::new(finished));
    }
}
