//! Extended operations (RFC 4511 section 4.12): who am I, password modify, cancel, StartTLS; all others are refused.

use std::sync::Arc;

use larix_engine::access::{self, Subject};
use larix_engine::controls::{self, RequestControls};
use larix_engine::password::{self, Argon2Cost, CryptMethod, Hasher, Scheme};
use larix_engine::time::RandomSource;
use larix_engine::write::{AttributeValues, Modification, WriteOperation};
use larix_proto::extended::{Cancel, ExtendedValue, PasswordModify, PasswordModifyResponse};
use larix_proto::{Controls, ExtendedRequest, LdapResult, Message, ModifyOperation, ResultCode, encode, oid};
use zeroize::Zeroizing;

use crate::clock::SystemRandom;
use crate::config::Config;
use crate::connection::Started;
use crate::databases::Credentials;
use crate::dispatch::{Begun, Completion, Dispatcher, LayerChange, Running};
use crate::restrictions::Restricted;
use crate::server::Server;
use crate::stats_log::printable;

/// Characters of a password that the server makes up.
const GENERATED_LENGTH: usize = 20;
/// Letters and digits that are not taken for one another.
const GENERATED_FROM: &[u8] = b"abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// A password was changed, or was not.
#[derive(Debug)]
pub struct PasswordOutcome {
    result: LdapResult,
    generated: Option<Zeroizing<Vec<u8>>>,
}

impl Dispatcher {
    pub(crate) fn extended(
        &mut self,
        begun: Begun,
        request: &ExtendedRequest<'_>,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> Started<Running> {
        if self.session.standing().version < 3 {
            let result = LdapResult::with(ResultCode::PROTOCOL_ERROR, "requires LDAPv3");
            self.finish(&begun, &result, None);
            return Started::Disconnect(result);
        }
        self.log_operation(&begun, format_args!("EXT oid={}", printable(request.name)));
        let started =
            RequestControls::parse(message.controls, controls::OperationKind::Extended(request.name))
                .and_then(|controls| match request.name {
                    oid::WHO_AM_I => self.who_am_i(&begun, &controls, out),
                    oid::PASSWORD_MODIFY => self.password_modify(begun, request, &controls, message.controls),
                    oid::CANCEL => self.cancel(begun, request),
                    oid::START_TRANSACTION => self.start_transaction(&begun, request, out),
                    oid::END_TRANSACTION => self.end_transaction(begun, request, out),
                    oid::START_TLS if self.server.tls.is_available() => {
                        self.start_tls_request(begun, request)
                    }
                    _ => {
                        let text = "unsupported extended operation";
                        Err(LdapResult::with(ResultCode::PROTOCOL_ERROR, text))
                    }
                });
        match started {
            Ok(started) => started,
            Err(result) => {
                self.answer_extended(&begun, &result, None, out);
                Started::Answered
            }
        }
    }

    /// A password change has ended.
    pub(crate) fn password_modified(&self, begun: &Begun, outcome: PasswordOutcome, out: &mut Vec<u8>) {
        let generated = outcome.generated.as_ref().filter(|_| outcome.result.is_success());
        let value = PasswordModifyResponse { generated: generated.map(|g| g.as_slice()) }.encode();
        self.answer_extended(begun, &outcome.result, value.as_deref(), out);
    }

    pub(crate) fn answer_extended(
        &self,
        begun: &Begun,
        result: &LdapResult,
        value: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) {
        encode::extended_result(out, begun.operation.id, result, None, value, &[]);
        self.finish(begun, result, None);
    }

    fn who_am_i(
        &self,
        begun: &Begun,
        controls: &RequestControls,
        out: &mut Vec<u8>,
    ) -> Result<Started<Running>, LdapResult> {
        self.log_operation(begun, format_args!("WHOAMI"));
        let subject = self.subject_for(controls)?;
        // The database of the session's own identity has a say.
        let own = self.session.subject().dn.as_ref().map_or("", |dn| dn.as_str());
        self.permitted_as(&subject, own, Restricted::Extended(oid::WHO_AM_I))?;
        let authz = subject.authz_text.clone();
        self.answer_extended(begun, &LdapResult::success(), Some(authz.as_bytes()), out);
        Ok(Started::Answered)
    }

    fn start_tls_request(
        &mut self,
        begun: Begun,
        request: &ExtendedRequest<'_>,
    ) -> Result<Started<Running>, LdapResult> {
        self.log_operation(&begun, format_args!("STARTTLS"));
        self.permitted("", Restricted::Extended(oid::START_TLS))?;
        if request.value.is_some() {
            return Err(LdapResult::with(ResultCode::PROTOCOL_ERROR, "no request data expected"));
        }
        self.wait_for(begun);
        Ok(Started::Securing)
    }

    /// RFC 4511 section 4.14.1, in OpenLDAP's order and words.
    pub(crate) fn answer_start_tls(&mut self, begun: &Begun, outstanding: bool, out: &mut Vec<u8>) {
        let result = self.start_tls(begun, outstanding).err().unwrap_or_else(LdapResult::success);
        self.answer_extended(begun, &result, None, out);
    }

    fn start_tls(&mut self, begun: &Begun, outstanding: bool) -> Result<(), LdapResult> {
        let refuse = |code, text: &str| Err(LdapResult::with(code, text));
        if self.session.tls.is_some() {
            return refuse(ResultCode::OPERATIONS_ERROR, "TLS already started");
        }
        if outstanding {
            let text = "cannot start TLS when operations are outstanding";
            return refuse(ResultCode::OPERATIONS_ERROR, text);
        }
        let disallow = self.server.config().global.disallow;
        if !disallow.tls_2_anon && self.session.is_authenticated() {
            self.log_operation(begun, format_args!("AUTHZ anonymous mech=starttls ssf=0"));
            self.session.forget();
            self.record.set_identity("");
        }
        if disallow.tls_authc && self.session.is_authenticated() {
            return refuse(ResultCode::OPERATIONS_ERROR, "cannot start TLS after authentication");
        }
        self.layer_change = Some(LayerChange::Tls);
        Ok(())
    }

    fn cancel(
        &mut self,
        begun: Begun,
        request: &ExtendedRequest<'_>,
    ) -> Result<Started<Running>, LdapResult> {
        let protocol = |text: &str| LdapResult::with(ResultCode::PROTOCOL_ERROR, text);
        match request.value {
            None => return Err(protocol("no message ID supplied")),
            Some([]) => return Err(protocol("empty request data field")),
            Some(_) => {}
        }
        let cancel = Cancel::decode(request.value).map_err(|_| protocol("message ID parse failed"))?;
        self.log_operation(&begun, format_args!("CANCEL msg={}", cancel.id));
        self.permitted("", Restricted::Extended(oid::CANCEL))?;
        self.wait_for(begun);
        Ok(Started::Cancel(cancel.id))
    }

    fn password_modify(
        &mut self,
        begun: Begun,
        request: &ExtendedRequest<'_>,
        controls: &RequestControls,
        sent: Controls<'_>,
    ) -> Result<Started<Running>, LdapResult> {
        let refuse = |code, text: &str| Err(LdapResult::with(code, text));
        let kind = || access::Operation::Extended(oid::PASSWORD_MODIFY.to_owned());
        let subject = self.in_request(self.subject_for(controls)?, kind, sent);
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
        let databases = &self.server.databases;
        let dn = databases
            .schema()
            .parse_dn(&target)
            .map_err(|_| LdapResult::with(ResultCode::INVALID_ATTRIBUTE_SYNTAX, "Invalid DN"))?;
        if dn.is_root() {
            return refuse(ResultCode::UNWILLING_TO_PERFORM, "no password is associated with the Root DSE");
        }
        self.permitted(dn.as_str(), Restricted::Extended(oid::PASSWORD_MODIFY))?;
        let stored = match asked.old {
            None => None,
            Some(_) => match databases.credentials(&subject, &dn) {
                Ok(Credentials::Stored { passwords, .. }) => Some(passwords),
                _ => return refuse(ResultCode::UNWILLING_TO_PERFORM, "unwilling to verify old password"),
            },
        };
        let generated = asked.new.is_none().then(|| generate_password(&SystemRandom));
        let new = match (asked.new, &generated) {
            (Some(new), _) => Zeroizing::new(new.to_vec()),
            (None, Some(generated)) => generated.clone(),
            (None, None) => return refuse(ResultCode::OTHER, "password generation failed"),
        };
        let change = PasswordChange {
            target,
            subject,
            old: asked.old.map(|old| Zeroizing::new(old.to_vec())).zip(stored),
            new,
            generated,
        };
        let completer = self.completer(&begun);
        let server = self.server.clone();
        let job = move || {
            change.carry_out(&server, move |outcome| {
                completer.complete(Completion::Password(Box::new(outcome)))
            });
        };
        self.server
            .passwords
            .submit(job)
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

type Secret = Zeroizing<Vec<u8>>;

/// A password change on its way: on the pool, since verifying and hashing take long.
struct PasswordChange {
    target: String,
    subject: Arc<Subject>,
    /// The old password as given, and the stored values that one of must match it.
    old: Option<(Secret, Vec<Secret>)>,
    new: Secret,
    generated: Option<Secret>,
}

impl PasswordChange {
    fn carry_out(self, server: &Server, done: impl FnOnce(PasswordOutcome) + Send + 'static) {
        let fail =
            |code, text: &str| PasswordOutcome { result: LdapResult::with(code, text), generated: None };
        if let Some((old, stored)) = &self.old
            && !stored.iter().any(|value| password::verify(value, old).is_match())
        {
            return done(fail(ResultCode::UNWILLING_TO_PERFORM, "unwilling to verify old password"));
        }
        let hashers = hashers(&server.config());
        let mut values = Vec::with_capacity(hashers.len());
        for hasher in hashers {
            match hasher.hash(&self.new, &SystemRandom) {
                Ok(hash) => values.push(hash.to_vec()),
                Err(error) => {
                    return done(fail(ResultCode::OTHER, &format!("password hash failed: {error}")));
                }
            }
        }
        let change = Modification {
            operation: ModifyOperation::Replace,
            attribute: AttributeValues { description: "userPassword".to_owned(), values },
        };
        let operation = WriteOperation::Modify { object: self.target, changes: vec![change] };
        let generated = self.generated;
        let finished = move |outcome: larix_engine::write::WriteOutcome| {
            // Which of the entries above exist is not told here.
            let result = LdapResult { matched_dn: String::new(), ..outcome.result };
            done(PasswordOutcome { result, generated });
        };
        server.databases.submit(operation, self.subject, RequestControls::default(), Box::new(finished));
    }
}

/// How new passwords are hashed: `password-hash`, Argon2id without it.
fn hashers(config: &Config) -> Vec<Hasher> {
    let format = config.global.password_crypt_salt_format.as_deref();
    let hashers: Vec<Hasher> = config
        .frontend
        .password_hash
        .iter()
        .filter_map(|name| Scheme::from_name(name))
        .map(|scheme| Hasher {
            crypt: format
                .and_then(CryptMethod::from_salt_format)
                .unwrap_or_else(|| Hasher::new(scheme).crypt),
            ..Hasher::new(scheme)
        })
        .collect();
    if hashers.is_empty() {
        return vec![Hasher { argon2: Argon2Cost::default(), ..Hasher::new(Scheme::Argon2) }];
    }
    hashers
}

/// A password that can be read out over the telephone.
pub fn generate_password(random: &dyn RandomSource) -> Zeroizing<Vec<u8>> {
    let mut password = Zeroizing::new(Vec::with_capacity(GENERATED_LENGTH));
    let limit = u8::try_from(256 - 256 % GENERATED_FROM.len()).unwrap_or(u8::MAX);
    let mut bytes = Zeroizing::new([0; 32]);
    while password.len() < GENERATED_LENGTH {
        random.fill(&mut bytes[..]);
        // Bytes above a multiple of the alphabet's size would favour its first letters.
        let usable = bytes.iter().filter(|byte| **byte < limit);
        let letters = usable.filter_map(|byte| GENERATED_FROM.get(usize::from(*byte) % GENERATED_FROM.len()));
        let missing = GENERATED_LENGTH - password.len();
        password.extend(letters.take(missing).copied());
    }
    password
}

#[cfg(test)]
mod tests {
    use larix_engine::time::SeededRandom;

    use super::*;

    #[test]
    fn generated_passwords_are_long_and_readable() {
        let password = generate_password(&SeededRandom::new(1));
        assert_eq!(password.len(), GENERATED_LENGTH);
        assert!(password.iter().all(|byte| GENERATED_FROM.contains(byte)));
        assert_ne!(*password, *generate_password(&SeededRandom::new(2)));
    }
}
