//! The password policy overlay: draft-behera-ldap-password-policy-10 with OpenLDAP's extensions (slapo-ppolicy).
//!
//! Which policy holds for an account is said by its pwdPolicySubentry, else by the first of the configured
//! [rules](PolicyRule), else by the default. What a policy means for a bind stands in `bind`, for a change of the password
//! in `change`, for the account usability control in `usability`. The clock is the hook's: everything here can be replayed.

mod account;
mod bind;
mod change;
mod config;
mod entries;
mod history;
mod holders;
mod lists;
mod policy;
mod ppm;
mod quality;
mod rules;
mod usability;

#[cfg(test)]
mod holders_tests;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larix_proto::control::{ControlValue, PasswordError, PasswordPolicyResponse, PasswordWarning};
use larix_proto::{ControlBuf, oid};
use larix_schema::{AttributeDescription, NormalDn, Schema};

use larix_engine::controls::RequestControls;
use larix_engine::entry::Entry;
use larix_engine::index::Kinds;
use larix_engine::overlay::computed::{ComputedAttributes, ComputedIn, ComputedOf, Holders};
use larix_engine::overlay::{
    Additions, AnsweredEntry, Answering, Authentication, Descriptor, Entries, Failure, InGluedDatabases,
    Interests, Judgement, NobodysBind, Overlay, OverlayDirective, PendingBind, PendingChange, Refusal,
};
use larix_engine::password::Hasher;

use account::Account;

pub use policy::Policy;
pub use rules::{Chosen, GroupCondition, ObjectPattern, PolicyName, PolicyRule, PolicyRuleError};

pub static DESCRIPTOR: Descriptor = Descriptor::new("ppolicy", "olcPPolicyConfig", config::build)
    .over_glue(InGluedDatabases::Refused(
        "in slapd binds of entries in glued databases do not pass through it",
    ))
    .once()
    .secrets(&["pwdHistory"])
    .local(&["pwdAccountLockedTime", "pwdAccountTmpLockoutEnd", "pwdFailureTime", "pwdGraceUseTime"])
    .below(&entries::RULES)
    // A database without a policy: it hashes passwords that an add or a modify brings in the clear.
    .quick_start(&[("ppolicy_hash_cleartext", &["on"])])
    .directives(&[
        OverlayDirective::whole("ppolicy_default", "olcPPolicyDefault").with_blanks(),
        OverlayDirective::switch("ppolicy_hash_cleartext", "olcPPolicyHashCleartext").default("FALSE"),
        OverlayDirective::switch("ppolicy_forward_updates", "olcPPolicyForwardUpdates").default("FALSE"),
        OverlayDirective::switch("ppolicy_use_lockout", "olcPPolicyUseLockout").default("FALSE"),
        OverlayDirective::switch("ppolicy_disable_write", "olcPPolicyDisableWrite").default("FALSE"),
        OverlayDirective::switch("ppolicy_send_netscape_controls", "olcPPolicySendNetscapeControls")
            .default("FALSE"),
        OverlayDirective::words(entries::RULES.keyword, entries::RULES.attribute).ordered(),
        OverlayDirective::whole("ppolicy_check_module", "olcPPolicyCheckModule"),
        OverlayDirective::whole("ppolicy_words", "olcLarixPPolicyWords"),
        OverlayDirective::whole("ppolicy_breached", "olcLarixPPolicyBreached"),
        // Of the entries below that rules are in OpenLDAP 2.7.
        OverlayDirective::whole("", "olcPPolicyRuleObject"),
        OverlayDirective::whole("", "olcPPolicyRuleScope"),
        OverlayDirective::switch("", "olcPPolicyRuleRequirePassword"),
        OverlayDirective::whole("", "olcPPolicyRuleFilter"),
        OverlayDirective::whole("", "olcPPolicyRuleGroup"),
        OverlayDirective::whole("", "olcPPolicyRuleGroupOC"),
        OverlayDirective::whole("", "olcPPolicyRuleGroupAttr"),
        OverlayDirective::whole("", "olcPPolicyRulePolicy"),
        OverlayDirective::whole("", "olcPPolicyRuleAction"),
    ]);

/// What a new password ends.
const ENDED_BY_PASSWORD: [&str; 4] =
    ["pwdGraceUseTime", "pwdAccountLockedTime", "pwdFailureTime", "pwdLastSuccess"];

/// The attribute that says which policy holds for an entry.
const SUBENTRY: &str = "pwdPolicySubentry";

/// What the overlay's configuration says.
#[derive(Clone, Debug, Default)]
pub struct PasswordPolicySettings {
    /// `ppolicy_default`
    pub default_policy: Option<NormalDn>,
    /// `ppolicy_rules`
    pub rules: Vec<PolicyRule>,
    /// `ppolicy_hash_cleartext`: passwords that come in the clear in an add or a modify are stored hashed.
    pub hash_cleartext: bool,
    /// `ppolicy_use_lockout`: the control tells that an account is locked.
    pub use_lockout: bool,
    /// `ppolicy_disable_write`: no account's state is ever written.
    pub disable_write: bool,
    /// `ppolicy_forward_updates`: a shadow hands on to its provider what binds change.
    pub forward_updates: bool,
    /// It would, and nothing follows its referral.
    forwards_nowhere: bool,
    /// `ppolicy_send_netscape_controls`: to those who did not ask for the policy's own control.
    pub send_netscape_controls: bool,
    /// `ppolicy_check_module`: the module of policies with `pwdUseCheckModule`.
    pub check_module: Option<String>,
    /// `ppolicy_words`
    words: Option<lists::Words>,
    /// `ppolicy_breached`
    breached: Option<lists::Breached>,
    /// How passwords are hashed (`password-hash`): the first.
    pub hasher: Hasher,
    /// Whether the database keeps pwdLastSuccess (`lastbind`), which pwdMaxIdle stands on.
    pub last_bind: bool,
    /// pwdPolicySubentry
    subentry: Option<AttributeDescription>,
}

/// The overlay on one database.
#[derive(Clone, Debug)]
pub struct PasswordPolicy {
    settings: PasswordPolicySettings,
    /// Whether an account was seen whose wrong passwords are counted.
    counts: Arc<AtomicBool>,
}

impl PasswordPolicy {
    pub fn new(settings: PasswordPolicySettings) -> Self {
        Self { settings, counts: Arc::default() }
    }

    /// The policy that holds for an entry; `None`: there is none, or what should be one cannot be read.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn policy_of(
        &self,
        schema: &Schema,
        dn: &NormalDn,
        entry: &Entry,
        entries: &dyn Entries,
    ) -> Result<Option<Policy>, Failure> {
        let Some(policy) = self.policy_name(schema, dn, entry, entries)? else { return Ok(None) };
        let found = entries.entry(&policy)?;
        Ok(found.and_then(|found| Policy::read(schema, &found)))
    }

    fn policy_name(
        &self,
        schema: &Schema,
        dn: &NormalDn,
        entry: &Entry,
        entries: &dyn Entries,
    ) -> Result<Option<NormalDn>, Failure> {
        let own = schema.attribute_type(SUBENTRY).and_then(|a| entry.values(a.id).first());
        if let Some(own) = own {
            return Ok(std::str::from_utf8(own).ok().and_then(|own| schema.parse_dn(own).ok()));
        }
        match rules::choose(&self.settings.rules, schema, dn, entry, entries)? {
            Chosen::Policy(policy) => Ok(Some(policy)),
            Chosen::NoPolicy => Ok(None),
            Chosen::Unsaid => Ok(self.settings.default_policy.clone()),
        }
    }
}

impl Overlay for PasswordPolicy {
    fn name(&self) -> &'static str {
        "ppolicy"
    }

    fn notes(&self, _: &Schema) -> Vec<String> {
        let forwards = self.settings.forwards_nowhere.then(|| {
            "ppolicy_forward_updates has no effect: a shadow needs an updateref and an overlay chain to hand on what binds change"
                .to_owned()
        });
        let module = self.settings.check_module.as_deref().filter(|module| !quality::is_built_in(module));
        let module = module.map(|module| {
            format!(
                "ppolicy_check_module \"{module}\": only the rules of ppm are built in. No new password passes a policy with \
                 pwdUseCheckModule TRUE and pwdCheckQuality"
            )
        });
        forwards.into_iter().chain(module).collect()
    }

    fn listed_controls(&self) -> &'static [&'static str] {
        &[oid::ACCOUNT_USABILITY, oid::PASSWORD_POLICY]
    }

    fn indexes(&self) -> Vec<(AttributeDescription, Kinds)> {
        // Who has a policy by name is looked up where a filter asks for it.
        self.settings.subentry.iter().map(|subentry| (subentry.clone(), Kinds::EQUALITY)).collect()
    }

    fn interests(&self) -> Interests {
        Interests::PREPARE | Interests::BIND | Interests::ANSWER | Interests::COMPUTE
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        change::before(self, change)
    }

    fn works_on_passwords(&self) -> bool {
        true
    }

    fn account_state(&self) -> &'static [&'static str] {
        &ENDED_BY_PASSWORD
    }

    fn password_length(
        &self,
        dn: &NormalDn,
        entry: &Entry,
        schema: &Schema,
        entries: &dyn Entries,
    ) -> Result<Option<RangeInclusive<usize>>, Failure> {
        Ok(self.policy_of(schema, dn, entry, entries)?.and_then(|policy| policy.length()))
    }

    fn authentication(&self) -> Option<&dyn Authentication> {
        Some(self)
    }

    fn answering(&self) -> Option<&dyn Answering> {
        Some(self)
    }

    fn computed(&self) -> Option<&dyn ComputedAttributes> {
        Some(self)
    }
}

impl Authentication for PasswordPolicy {
    fn judge(&self, bind: &PendingBind<'_>) -> Result<Judgement, Failure> {
        let dn = &bind.attempt.dn;
        let entry = account::whole(bind.schema, dn, bind.entry, bind.entries)?;
        let bind = &PendingBind { entry: &entry, ..*bind };
        let policy = self.policy_of(bind.schema, dn, bind.entry, bind.entries)?;
        let policy = policy.unwrap_or_default();
        if bind::records_failures(&self.settings, &policy) {
            self.counts.store(true, Ordering::Relaxed);
        }
        bind::judge(&self.settings, &policy, bind)
    }

    fn judge_nobody(&self, bind: &NobodysBind<'_>) -> Result<Judgement, Failure> {
        // The policy that would hold if there were an account; of a policy that only others have, it is learned from them.
        let mut nobody = Entry::new(bind.attempt.dn.as_str());
        if let Ok(password) = bind.schema.describe(account::PASSWORD) {
            nobody.attribute_or_insert(&password).values.push(Vec::new());
        }
        let policy = self.policy_of(bind.schema, &bind.attempt.dn, &nobody, bind.entries)?;
        let counts = policy.is_some_and(|policy| bind::records_failures(&self.settings, &policy));
        let controls = bind::empty_response(&self.settings, bind.attempt.policy_control);
        Ok(Judgement { controls, ordered: counts || self.counts_failures(), ..Judgement::default() })
    }

    fn counts_failures(&self) -> bool {
        self.counts.load(Ordering::Relaxed)
    }
}

impl Answering for PasswordPolicy {
    fn wants(&self, controls: &RequestControls) -> bool {
        controls.account_usability
    }

    fn controls(&self, answered: &AnsweredEntry<'_>) -> Result<Vec<ControlBuf>, Failure> {
        let AnsweredEntry { dn, entry, schema, entries, .. } = *answered;
        let entry = account::whole(schema, dn, entry, entries)?;
        let answered = &AnsweredEntry { entry: &entry, ..*answered };
        let Some(policy) = self.policy_of(schema, dn, &entry, entries)? else { return Ok(Vec::new()) };
        usability::controls(&self.settings, &policy, answered)
    }
}

impl ComputedAttributes for PasswordPolicy {
    fn attributes(&self, schema: &Schema) -> Vec<AttributeDescription> {
        schema.describe(SUBENTRY).into_iter().collect()
    }

    fn visit(
        &self,
        of: &ComputedOf<'_>,
        _: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        let ComputedOf { schema, entries, .. } = *of;
        let (dn, entry) = (of.entry.dn()?, &of.entry.owned()?);
        if Account::new(schema, entry).has(SUBENTRY) {
            return Ok(());
        }
        let chosen = match rules::choose(&self.settings.rules, schema, dn, entry, entries)? {
            Chosen::Policy(policy) => Some(policy),
            Chosen::NoPolicy => None,
            // Only who has a password has the policy of all others.
            Chosen::Unsaid => self
                .settings
                .default_policy
                .clone()
                .filter(|_| Account::new(schema, entry).has(account::PASSWORD)),
        };
        // As it is shown, where it is there.
        if let Some(policy) = chosen {
            let shown = entries.entry(&policy)?.map(|entry| entry.dn);
            visit(shown.as_deref().unwrap_or(policy.as_str()).as_bytes());
        }
        Ok(())
    }

    fn holders(
        &self,
        within: &ComputedIn<'_>,
        _: &AttributeDescription,
        normal: &[u8],
    ) -> Result<Option<Holders>, Failure> {
        let Ok(policy) = std::str::from_utf8(normal) else { return Ok(Some(Holders::default())) };
        self.entries_under(within, &NormalDn::from_normal(policy))
    }
}

/// The control that says how the password stands.
pub fn response(warning: Option<PasswordWarning>, error: Option<PasswordError>) -> ControlBuf {
    PasswordPolicyResponse { warning, error }.to_control(false)
}

/// Seconds as they go into a control.
fn seconds(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}
