//! Whether a new password is good enough (draft-behera-ldap-password-policy-10 sections 5.2.5 to 5.2.7), by the policy's own rules and by
//! lists of passwords that everybody knows.

use std::borrow::Cow;

use larix_proto::control::PasswordError;

use super::PasswordPolicySettings;
use super::policy::{CheckModule, Policy};
use super::ppm::{Owner, Rules};
use larix_engine::overlay::PasswordWork;
use larix_engine::password::Scheme;

/// The check module whose rules are built in.
const PPM: &str = "ppm";

/// Why a password is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) error: PasswordError,
    /// For the client.
    pub(super) text: Cow<'static, str>,
}

impl From<PasswordError> for Fault {
    fn from(error: PasswordError) -> Self {
        Self { error, text: Cow::Borrowed("Password fails quality checking policy") }
    }
}

/// What is wrong with the password itself.
fn poor(text: impl Into<Cow<'static, str>>) -> Fault {
    Fault { error: PasswordError::InsufficientPasswordQuality, text: text.into() }
}

/// What a new password is judged by.
#[derive(Debug)]
pub(super) struct Check<'a> {
    pub(super) settings: &'a PasswordPolicySettings,
    pub(super) policy: &'a Policy,
    pub(super) owner: Owner<'a>,
    pub(super) work: &'a PasswordWork,
}

impl Check<'_> {
    /// Checks a password as it was given: in the clear, or hashed already.
    pub(super) fn check(&self, password: &[u8]) -> Result<(), Fault> {
        let policy = self.policy;
        let length = i64::try_from(password.len()).unwrap_or(i64::MAX);
        if length == 0 || policy.min_length > length {
            return Err(PasswordError::PasswordTooShort.into());
        }
        if policy.max_length > 0 && length > policy.max_length {
            return Err(PasswordError::PasswordTooLong.into());
        }
        let clear = match Scheme::split(password) {
            // A hash tells nothing of what it is made from.
            Some((Some(scheme), _)) if scheme != Scheme::Cleartext => {
                return self.cannot_be_checked("Password fails quality checking policy");
            }
            Some((Some(_), clear)) => clear,
            _ => password,
        };
        if let Some(module) = &policy.check_module {
            self.check_rules(module, clear)?;
        }
        if self.is_word(clear) {
            return Err(poor("Password is a word that is easily guessed"));
        }
        self.check_breached(clear)
    }

    /// By the policy's strictness: 2 refuses what cannot be checked.
    fn cannot_be_checked(&self, text: &'static str) -> Result<(), Fault> {
        if self.policy.check_quality == 2 { Err(poor(text)) } else { Ok(()) }
    }

    /// The rules that the policy brings for a module. Without them, or for a module that is not here, no password passes.
    fn check_rules(&self, module: &CheckModule, password: &[u8]) -> Result<(), Fault> {
        let configured = self.settings.check_module.as_deref();
        let name = module.name.as_deref().or(configured).unwrap_or(PPM);
        if !is_built_in(name) {
            return Err(poor(format!(
                "there is no check module \"{name}\" here: only the rules of ppm are built in"
            )));
        }
        let text = module.argument.as_deref().ok_or_else(|| poor("the policy has no pwdCheckModuleArg"))?;
        let rules = Rules::parse(&String::from_utf8_lossy(text));
        let rules = rules.map_err(|fault| poor(format!("pwdCheckModuleArg of the policy: {fault}")))?;
        if rules.dictionary && self.settings.words.is_none() {
            return Err(poor("the policy has useCracklib, and no ppolicy_words are configured"));
        }
        rules.fault(password, &self.owner).map_or(Ok(()), |fault| Err(poor(fault)))
    }

    fn is_word(&self, password: &[u8]) -> bool {
        self.settings.words.as_ref().is_some_and(|words| words.has(&String::from_utf8_lossy(password)))
    }

    fn check_breached(&self, password: &[u8]) -> Result<(), Fault> {
        let Some(breached) = &self.settings.breached else { return Ok(()) };
        // Looked up once, before the writer has the change.
        match self.work.is_listed(password, || breached.has(password).ok()) {
            Some(false) => Ok(()),
            Some(true) => Err(poor("Password is in a list of passwords that were stolen elsewhere")),
            None => self.cannot_be_checked("the list of stolen passwords cannot be read"),
        }
    }
}

/// Whether the rules of a module are here, whatever its folder and its ending.
pub(super) fn is_built_in(module: &str) -> bool {
    let name = module.rsplit('/').next().unwrap_or(module);
    name.split('.').next() == Some(PPM)
}
