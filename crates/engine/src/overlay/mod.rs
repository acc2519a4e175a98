//! Overlays: behaviour that the configuration adds to a database.
//!
//! An overlay implements named hooks; nothing swaps a dispatch table under a running operation. A change passes the overlays from the last of
//! the configuration to the first. Its consequences pass them in the order of the configuration, as do binds and answers (ADR 0110).
//!
//! * [`Overlay::prepare`] sees each change on the writer's thread before it is carried out: it may refuse it, alter it, or
//!   have others carried out with it. What it adds is committed together with the change or not at all.
//! * [`Authentication`] judges a bind whose password was compared: it may refuse it, answer with controls, and have the
//!   account's state changed before the answer goes out.
//! * [`PasswordKeys`] finds the key of an entry that a stored password stands for.
//! * [`SecondFactor`] takes a code off the end of a password, and judges it before the password is judged.
//! * [`Answering`] sees an entry on its way out, and adds controls.
//! * [`ShownEntries`] alters what is answered of an entry.
//! * [`ComputedAttributes`] computes attributes, which filters and access rules see as they see stored ones.
//! * [`BackLinkRule`] names an attribute that the writer keeps: the entries that name this one.
//! * [`Committed`] sees changes that are durable, and [`Tick`] has a turn at an interval; both on a thread of the overlay's own.

mod authentication;
pub mod back_links;
pub mod committed;
pub mod computed;
pub mod descriptor;
mod entries;
pub mod interests;
pub mod internal_search;
pub mod password_keys;
pub mod second_factor;
pub mod settings;
pub mod shown;

mod password_work;

use std::fmt::Debug;
use std::ops::RangeInclusive;

use larix_proto::{ControlBuf, LdapResult};
use larix_schema::{AttributeDescription, NormalDn, Schema};

use crate::access::Subject;
use crate::budget::RequestLimits;
use crate::change::WriteOperation;
use crate::controls::RequestControls;
use crate::entry::Entry;
use crate::index::{IndexConfig, Kinds};
use crate::time::{RandomSource, Timestamp};
use committed::{Committed, Tick};
use computed::ComputedAttributes;
use password_keys::PasswordKeys;
use second_factor::SecondFactor;
use shown::ShownEntries;

pub use crate::change::BindAttempt;
pub use crate::change::prepare::{Change, ChangeKind, PreparedChange, PreparedModifyDn, internal_change};
pub use crate::failure::Failure;
pub use authentication::{Authentication, BindConclusion, Judgement, NobodysBind, PendingBind};
pub(crate) use authentication::{judge, judge_code};
pub use back_links::BackLinkRule;
pub use descriptor::{
    BuildContext, Descriptor, Global, InGluedDatabases, InSharedEngine, OtherDatabase, OverlayDirective,
    Piece, WordFault,
};
pub use entries::{Dependencies, Entries, Name, Reference, ReferenceTarget, Referrer};
pub use interests::{Interests, Overlays};
pub use password_work::{PasswordWork, Purpose};

/// Most changes that overlays may add to one change, directly or through each other.
pub(crate) const DERIVED_LIMIT: usize = 10_000;

/// Most changes that may [follow](FollowUp) from one change. All of them are in one commit.
pub(crate) const CONSEQUENCE_LIMIT: usize = 250_000;

/// Most changes that may follow one from the other: two overlays could answer each other without end.
pub(crate) const FOLLOWING_LIMIT: usize = 100;

/// The overlay of one database. Each hook has a method, which does nothing by default and is called only if it is in
/// [`Self::interests`].
pub trait Overlay: Debug + Send + Sync {
    /// The overlay's name, as in the configuration.
    fn name(&self) -> &str;

    /// The hooks that it uses. Asked once per configuration, and always the same.
    fn interests(&self) -> Interests;

    /// Indexes that the database has for it, whatever the `index` lines say.
    fn indexes(&self) -> Vec<(AttributeDescription, Kinds)> {
        Vec::new()
    }

    /// What an administrator should know of these settings; each a sentence.
    fn notes(&self, _schema: &Schema) -> Vec<String> {
        Vec::new()
    }

    /// The same in a database whose indexes an administrator chooses, and has chosen these.
    fn index_notes(&self, _schema: &Schema, _index: &IndexConfig) -> Vec<String> {
        Vec::new()
    }

    /// What one request may cost in the database, given what it may cost without this overlay.
    fn request_limits(&self, limits: RequestLimits) -> RequestLimits {
        limits
    }

    /// OIDs of controls that the root DSE lists where the overlay is configured.
    fn listed_controls(&self) -> &'static [&'static str] {
        &[]
    }

    /// How the content of the database is provided to consumers (RFC 4533), if the overlay has it provided.
    fn provider(&self) -> Option<ProviderSettings> {
        None
    }

    /// Whether clients may have searches of the database go on with its changes (draft-ietf-ldapext-psearch-03).
    fn tells_changes(&self) -> bool {
        false
    }

    /// Looks at a change before it is carried out.
    ///
    /// # Errors
    /// A refusal, with which the change and all that belongs to it end.
    fn prepare(&self, _change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        Ok(Additions::default())
    }

    /// Looks at all that is stored, and reports each entry that breaks a rule of the overlay. Only `larix check` asks.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn violations(
        &self,
        _entries: &dyn Entries,
        _schema: &Schema,
        _report: &mut dyn FnMut(Violation),
    ) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether [`Self::prepare`] takes long for changes of passwords, so that it is worth being called once beforehand, off
    /// the writer's thread: [`PasswordWork`] then knows the answers.
    fn works_on_passwords(&self) -> bool {
        false
    }

    /// Attributes with the state of an account, which a new password ends. A shadow that judges binds keeps them by itself, so its provider
    /// does not say that they end: the writer ends them when a password comes that another server has stored.
    fn account_state(&self) -> &'static [&'static str] {
        &[]
    }

    /// How many bytes a new password of an entry has at least and at most; `None`: no rule says so.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn password_length(
        &self,
        _dn: &NormalDn,
        _entry: &Entry,
        _schema: &Schema,
        _entries: &dyn Entries,
    ) -> Result<Option<RangeInclusive<usize>>, Failure> {
        Ok(None)
    }

    /// The hook around binds.
    fn authentication(&self) -> Option<&dyn Authentication> {
        None
    }

    /// The hook of a second factor.
    fn second_factor(&self) -> Option<&dyn SecondFactor> {
        None
    }

    /// The hook of passwords that are keys of the entry.
    fn password_keys(&self) -> Option<&dyn PasswordKeys> {
        None
    }

    /// The hook on answered entries.
    fn answering(&self) -> Option<&dyn Answering> {
        None
    }

    /// The hook that computes attributes.
    fn computed(&self) -> Option<&dyn ComputedAttributes> {
        None
    }

    /// The hook on entries that a search answers.
    fn shown(&self) -> Option<&dyn ShownEntries> {
        None
    }

    /// The hook behind commits.
    fn committed(&self) -> Option<&dyn Committed> {
        None
    }

    /// The hook of time.
    fn tick(&self) -> Option<&dyn Tick> {
        None
    }

    /// A back link that the writer keeps.
    fn back_link(&self) -> Option<&BackLinkRule> {
        None
    }
}

/// An entry that breaks a rule of an overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The entry's DN as it is shown.
    pub dn: String,
    /// The rule and what breaks it, without any value.
    pub what: String,
}

/// How a database's content is provided (the overlay syncprov).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderSettings {
    /// No present phase: consumers receive what is new, but not what is gone.
    pub no_present: bool,
    /// Answers e-syncRefreshRequired to consumers that reload only at the provider's request.
    pub reload_hint: bool,
}

/// A change that is about to be carried out.
#[derive(Debug)]
pub struct PendingChange<'a> {
    pub operation: &'a PreparedChange,
    pub subject: &'a Subject,
    pub controls: &'a RequestControls,
    pub schema: &'a Schema,
    /// Whether an overlay added it, or it follows from another change.
    pub derived: bool,
    /// The entry whose change, from which this one follows, is not made [without it](FollowUp::required); by the name that it has then.
    pub required_by: Option<&'a NormalDn>,
    /// Whether no other overlay is asked behind this one, which might alter the change.
    pub is_final: bool,
    /// The directory as the changes before this one leave it.
    pub entries: &'a dyn Entries,
    pub now: Timestamp,
    pub random: &'a dyn RandomSource,
    /// The passwords of the request, and what was computed about them already.
    pub passwords: &'a PasswordWork,
}

impl PendingChange<'_> {
    /// Whether rules about values are to judge it: a requester asks for it, or it fails together with what the requester asks for. Any
    /// other change that follows was judged with the one that it follows from.
    pub fn is_judged(&self) -> bool {
        !self.derived || self.required_by.is_some()
    }

    /// Whether an overlay added it, or it follows from another change, and it is about these attributes, except for operational ones that
    /// overlays before this one keep for each change.
    pub fn is_derived_about(&self, is_meant: impl Fn(&Change) -> bool) -> bool {
        let PreparedChange::Modify { mods, .. } = self.operation else { return false };
        let is_kept = |one: &Change| self.schema.attribute(one.description.attribute).is_operational();
        self.derived && mods.iter().any(&is_meant) && mods.iter().all(|one| is_meant(one) || is_kept(one))
    }
}

/// What an overlay adds to a change.
#[derive(Debug, Default)]
pub struct Additions {
    /// The final form of the change. `None`: it stays as it is. A modify that becomes empty succeeds and leaves the entry unchanged.
    pub altered: Option<PreparedChange>,
    /// The overlays after this one do not see the change.
    pub ends: bool,
    /// Changes that are carried out after it, in order, as its requester.
    pub derived: Vec<WriteOperation>,
    /// Called once the change has been carried out.
    pub follow_up: Option<Box<dyn FollowUp>>,
}

/// Further changes after a change, in the same commit.
pub trait FollowUp: Debug {
    /// The changes, in order.
    ///
    /// # Errors
    /// A refusal, with which the change and all that belongs to it end.
    fn consequences(
        self: Box<Self>,
        around: &AroundChange<'_>,
        schema: &Schema,
    ) -> Result<Vec<Consequence>, Refusal>;

    /// Changes without which the change is not made, in order, before the [consequences](Self::consequences). No access rule applies to
    /// them, and replicas get them. If one is refused, all of it is.
    ///
    /// # Errors
    /// As for the consequences.
    fn required(&self, _: &AroundChange<'_>, _: &Schema) -> Result<Vec<WriteOperation>, Refusal> {
        Ok(Vec::new())
    }
}

/// The consequences of a change in another database. That database's writer asks for them, in a transaction of its own.
pub trait FollowUpElsewhere: Debug + Send + Sync {
    /// The changes, in order. `entries`: the other database as its writer finds it, and the rest of the server as it is committed.
    ///
    /// # Errors
    /// A refusal, with which nothing of it is done.
    fn consequences(&self, entries: &dyn Entries, schema: &Schema) -> Result<Vec<Consequence>, Refusal>;
}

/// The directory on both sides of a change that has been carried out.
#[derive(Copy, Clone, Debug)]
pub struct AroundChange<'a> {
    /// As the change found it.
    pub before: &'a dyn Entries,
    /// With the change in it.
    pub after: &'a dyn Entries,
}

/// A change that follows from another. If it is refused, it alone is not made.
#[derive(Debug)]
pub struct Consequence {
    /// No access rule applies: its modifications are the server's own.
    pub operation: PreparedChange,
    /// Whether each server derives it for itself: operational attributes stay, and replicas do not get it. Otherwise it is a change like any
    /// other.
    pub local: bool,
    /// As with the permissive modify control: a value that is there, or gone, already is no fault.
    pub permissive: bool,
}

/// An overlay's refusal of a change.
#[derive(Debug)]
pub struct Refusal {
    pub result: LdapResult,
    pub controls: Vec<ControlBuf>,
    /// The requester gave a wrong password for the account that the change is about: it counts as a failed bind there.
    pub wrong_password: bool,
}

impl From<LdapResult> for Refusal {
    fn from(result: LdapResult) -> Self {
        Self { result, controls: Vec::new(), wrong_password: false }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        failure.into_result().into()
    }
}

/// The hook on answered entries.
pub trait Answering: Debug + Send + Sync {
    /// Whether it adds controls to answers of a request with these controls.
    fn wants(&self, controls: &RequestControls) -> bool;

    /// The controls of the answered entry.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn controls(&self, answered: &AnsweredEntry<'_>) -> Result<Vec<ControlBuf>, Failure>;
}

/// An entry on its way out.
#[derive(Debug)]
pub struct AnsweredEntry<'a> {
    pub dn: &'a NormalDn,
    pub entry: &'a Entry,
    pub subject: &'a Subject,
    pub schema: &'a Schema,
    pub entries: &'a dyn Entries,
    pub now: Timestamp,
}
