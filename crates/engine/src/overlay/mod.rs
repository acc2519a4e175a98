//! Overlays: what stands in front of a database.
//!
//! An overlay stands on named hooks, in the order of the configuration; nothing swaps a dispatch table under a running
//! operation.
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
//! * [`Committed`] sees changes that are durable, and [`Tick`] has a turn at an interval; both on a thread of the overlay's own.

pub mod back_links;
pub mod committed;
pub mod computed;
pub mod descriptor;
pub mod interests;
pub mod internal_search;
pub mod password_keys;
pub mod second_factor;
pub mod settings;
pub mod shown;

mod password_work;

use std::fmt::Debug;
use std::ops::RangeInclusive;

use larix_proto::{ControlBuf, FilterBuf, LdapResult, ResultCode};
use larix_schema::{AttributeDescription, NormalDn, Schema};

use crate::access::{EntrySet, GroupQuery, Privilege, Subject};
use crate::budget::RequestLimits;
use crate::change::{Forward, WriteOperation};
use crate::controls::RequestControls;
use crate::entry::{Entry, EntryAttribute, EntryId};
use crate::index::{IndexConfig, Kinds};
use crate::password::Scheme;
use crate::time::{RandomSource, Timestamp};
use committed::{Committed, Tick};
use computed::ComputedAttributes;
use internal_search::{InternalSearch, Searched, Visit};
use password_keys::PasswordKeys;
use second_factor::SecondFactor;
use shown::ShownEntries;

pub use crate::change::BindAttempt;
pub use crate::change::prepare::{Change, ChangeKind, Prepared, PreparedModifyDn, internal_change};
pub use crate::failure::Failure;
pub use back_links::BackLinkRule;
pub use descriptor::{
    BuildContext, Descriptor, Global, InGluedDatabases, InSharedEngine, OtherDatabase, OverlayDirective,
    Piece, WordFault,
};
pub use interests::{Interests, Overlays};
pub use password_work::{PasswordWork, Purpose};

/// Changes that one change may lead to, those of these included: a bound against overlays that answer each other.
pub const DERIVED_LIMIT: usize = 10_000;

/// Changes that [follow](FollowUp) from one change: all of them are in one commit.
pub const CONSEQUENCE_LIMIT: usize = 250_000;

/// What stands in front of a database. Each hook has a method that does nothing unless an overlay says otherwise, and is called
/// only where [`Self::interests`] has it.
pub trait Overlay: Debug + Send + Sync {
    /// The overlay's name, as in the configuration.
    fn name(&self) -> &str;

    /// The hooks that it uses. Asked once per configuration, and always the same.
    fn interests(&self) -> Interests;

    /// Indexes that the database has for it, whatever the `index` lines say.
    fn indexes(&self) -> Vec<(AttributeDescription, Kinds)> {
        Vec::new()
    }

    /// What an administrator should know of these settings in a database with these indexes; each a sentence.
    fn notes(&self, _schema: &Schema, _index: &IndexConfig) -> Vec<String> {
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
    pub operation: &'a Prepared,
    pub subject: &'a Subject,
    pub controls: &'a RequestControls,
    pub schema: &'a Schema,
    /// Whether an overlay asked for it, or it follows from another change.
    pub derived: bool,
    /// The directory as the changes before this one leave it.
    pub entries: &'a dyn Entries,
    pub now: Timestamp,
    pub random: &'a dyn RandomSource,
    /// The passwords of the request, and what was computed about them already.
    pub passwords: &'a PasswordWork,
}

/// What an overlay wants done about a change.
#[derive(Debug, Default)]
pub struct Additions {
    /// The final form of the change; `None`: it stays the same. A modify that becomes empty succeeds, and leaves the entry
    /// alone.
    pub altered: Option<Prepared>,
    /// Carried out after it, in order, in its name.
    pub derived: Vec<WriteOperation>,
    /// Asked once it has been carried out.
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

    /// Changes without which the change is not made, in order, before the [consequences](Self::consequences): the server's own, to
    /// which no access rule applies, and sent to replicas. One that is refused ends all of it.
    ///
    /// # Errors
    /// As for the consequences.
    fn required(&self, _: &AroundChange<'_>, _: &Schema) -> Result<Vec<WriteOperation>, Refusal> {
        Ok(Vec::new())
    }
}

/// What changes of one database lead to in another, whose writer asks for it in a transaction of its own.
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

/// A change that follows from another. One that is refused is left undone, and nothing else with it.
#[derive(Debug)]
pub struct Consequence {
    /// Not asked whether the requester may: its modifications are the server's own.
    pub operation: Prepared,
    /// Whether each server sees to it by itself: operational attributes stay, and it does not go to replicas. Otherwise it is
    /// a change as any other.
    pub local: bool,
    /// As with the permissive modify control: a value that has come or gone already is no reason to leave it undone.
    pub permissive: bool,
}

/// Names that are looked for among values, whether there are such entries or not.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Sought<'a> {
    /// This one alone.
    Name(&'a NormalDn),
    /// It and all below it.
    Within(&'a NormalDn),
}

impl Sought<'_> {
    pub fn includes(&self, name: &NormalDn) -> bool {
        match self {
            Self::Name(sought) => name == *sought,
            Self::Within(top) => name.is_within(top),
        }
    }
}

/// A value that is a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub normal: NormalDn,
    /// As it stands there, or its normal form: to take it out either will do.
    pub text: String,
}

/// An entry that has names of others as values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referrer {
    pub dn: NormalDn,
    pub references: Vec<Reference>,
}

/// Names in one attribute of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub attribute: AttributeDescription,
    /// Those that were looked for, in the order of the values.
    pub names: Vec<Name>,
    /// How many values it has in all.
    pub values: u64,
}

/// A change that an overlay does not let happen.
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

/// What something depends on that is remembered from one commit to the next.
#[derive(Copy, Clone, Debug)]
pub struct Dependencies<'a> {
    /// The values of these, in any entry. One without an equality index has always changed.
    pub attributes: &'a [AttributeDescription],
    /// That no entry is added.
    pub entries: bool,
    /// That no entry is renamed, moved or deleted.
    pub names: bool,
}

/// Entries by name: the database's in the state that the change finds, others as they are committed.
pub trait Entries: Debug {
    /// The entry of this DN, here or in another database, large sets left in the store; `None` when there is none.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn entry(&self, dn: &NormalDn) -> Result<Option<Entry>, Failure>;

    /// Brings the values of an attribute of this entry that were left in the store.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn bring(&self, dn: &NormalDn, attribute: &mut EntryAttribute) -> Result<(), Failure> {
        if attribute.large.is_none() {
            return Ok(());
        }
        let mut values = Vec::new();
        let query = InternalSearch::new(dn, larix_proto::Scope::Base, &larix_schema::BoundFilter::True)
            .of_what_is_stored();
        self.search(&query, &mut |found| {
            found.source().visit_exact(&attribute.description, &mut |value| {
                values.push(value.to_vec());
                true
            })?;
            Ok(false)
        })?;
        (attribute.values, attribute.large) = (values, None);
        Ok(())
    }

    /// Whether there is an entry of this DN, here or in another database.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn exists(&self, dn: &NormalDn) -> Result<bool, Failure> {
        Ok(self.entry(dn)?.is_some())
    }

    /// The entry of this DN in this database; `None` when there is none.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn id_of(&self, dn: &NormalDn) -> Result<Option<EntryId>, Failure>;

    /// Whether it is the database's root DN.
    fn is_root(&self, subject: &Subject) -> bool;

    /// The name of an entry of this database.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn name_of(&self, _id: EntryId) -> Result<Option<NormalDn>, Failure> {
        Ok(None)
    }

    /// The ids of the entries of this database that an attribute of an entry of it names, ascending, each once.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn named_by(&self, _id: EntryId, _attribute: &AttributeDescription) -> Result<Vec<u64>, Failure> {
        Ok(Vec::new())
    }

    /// The ids of the entries of this database that a filter matches, ascending, without regard to access; `None`: indexes alone do not
    /// tell.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn indexed_ids(&self, _filter: &larix_schema::BoundFilter) -> Result<Option<Vec<u64>>, Failure> {
        Ok(None)
    }

    /// Tells the state of this database that is read apart from others; `None`: changes are laid over it.
    fn commit(&self) -> Option<u64>;

    /// The commit in whose state, too, everything would be found that is found here and depends on this alone: changes that are laid over it
    /// do not alter that. `None` where they do, or where that is not known.
    fn found_at(&self, _dependencies: &Dependencies<'_>) -> Option<u64> {
        self.commit()
    }

    /// Whether overlays compute values of the attribute.
    fn is_computed(&self, _attribute: &AttributeDescription) -> bool {
        false
    }

    /// Whether what was found in the state of an earlier [`Self::commit`] or [`Self::found_at`] holds in this one, if it depends on this alone. False also where
    /// that is not known.
    fn is_as_at(&self, _commit: u64, _dependencies: &Dependencies<'_>) -> bool {
        false
    }

    /// Whether the subject has the privilege on an attribute of this entry, which need not be stored.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn allows(
        &self,
        subject: &Subject,
        dn: &NormalDn,
        entry: &Entry,
        attribute: &AttributeDescription,
        privilege: Privilege,
    ) -> Result<bool, Failure>;

    /// Whether the subject has the privilege `manage` on this entry, which need not be stored.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn manages(&self, subject: &Subject, dn: &NormalDn, entry: &Entry) -> Result<bool, Failure>;

    /// Whether the set has any value for this entry, which need not be stored; without regard to access. `None`: that cannot be
    /// told, as where a limit is met.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn has_any(
        &self,
        set: &EntrySet,
        subject: &Subject,
        dn: &NormalDn,
        entry: &Entry,
    ) -> Result<Option<bool>, Failure>;

    /// Whether a filter matches this entry, which need not be stored; without regard to access.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn matches(
        &self,
        dn: &NormalDn,
        entry: &Entry,
        filter: &larix_schema::BoundFilter,
    ) -> Result<bool, Failure>;

    /// An internal search: in this database as the change finds it, by its indexes, whatever of it is committed; in another one
    /// that holds the base as it is committed. Hands entries to `visit` until it answers false.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn search(&self, query: &InternalSearch<'_>, visit: &mut Visit<'_>) -> Result<Searched, Failure>;

    /// As [`Self::search`], until the first entry: whether there is any.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn finds_any(&self, query: &InternalSearch<'_>) -> Result<Searched, Failure> {
        self.search(query, &mut |_| Ok(false))
    }

    /// Whether the group has this member.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn is_member(&self, group: &GroupQuery<'_>, member: &NormalDn) -> Result<bool, Failure>;

    /// Whether there are entries below this one of the database.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn has_subordinates(&self, dn: &NormalDn) -> Result<bool, Failure>;

    /// The entries of this database that have any of the names as a value of any of the attributes. One name costs a look-up
    /// in the equality index of each attribute, all within one a look at every key there; an attribute without such an
    /// index a look at every entry.
    ///
    /// # Errors
    /// A store that cannot be read; adminLimitExceeded for more than [`crate::write::REFERENCES_LIMIT`] values.
    fn referrers(
        &self,
        attributes: &[AttributeDescription],
        sought: Sought<'_>,
    ) -> Result<Vec<Referrer>, Failure>;
}

/// The hook around binds.
pub trait Authentication: Debug + Send + Sync {
    /// Judges a bind whose password was compared. Called in the order of the configuration; `matched` tells what the
    /// overlays before made of it. Called once more, and the first judgement is dropped, where an overlay behind refuses the login.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn judge(&self, bind: &PendingBind<'_>) -> Result<Judgement, Failure>;

    /// Judges a bind to a name that has no account as [`Self::judge`] would a wrong password: neither the answer nor the
    /// time until it comes is to tell which names there are.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn judge_nobody(&self, _bind: &NobodysBind<'_>) -> Result<Judgement, Failure> {
        Ok(Judgement::default())
    }

    /// Whether wrong passwords are counted, as far as is known from the accounts that were judged.
    fn counts_failures(&self) -> bool {
        false
    }
}

/// A bind that is about to be answered.
#[derive(Debug)]
pub struct PendingBind<'a> {
    pub attempt: &'a BindAttempt,
    /// What the comparison and the overlays before say.
    pub matched: bool,
    /// The account; its state as everything before leaves it.
    pub entry: &'a Entry,
    pub schema: &'a Schema,
    pub entries: &'a dyn Entries,
    pub now: Timestamp,
}

/// A bind to a name that has no account.
#[derive(Debug)]
pub struct NobodysBind<'a> {
    pub attempt: &'a BindAttempt,
    pub schema: &'a Schema,
    pub entries: &'a dyn Entries,
}

/// What overlays say to a bind.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// The bind fails though the password was right.
    pub refused: bool,
    pub controls: Vec<ControlBuf>,
    /// Changes of the account, made before the answer.
    pub changes: Vec<Change>,
    /// Those of [`Self::changes`] that a shadow hands on to its provider as well.
    pub forwarded: Vec<Change>,
    /// Others of them that it hands on each by itself, under the condition that the filter matches the entry there.
    pub forwarded_if: Vec<(Change, FilterBuf)>,
    /// Until the password is changed the session may do nothing else.
    pub must_change_password: bool,
    /// Store the password anew with this scheme (pwdRehashOnBind).
    pub rehash: Option<Scheme>,
    /// Whether other attempts at the same time may change the judgement: then it stands only on the writer's thread.
    pub ordered: bool,
}

impl Judgement {
    /// Joins what the next overlay says.
    pub fn join(&mut self, next: Self) {
        self.refused |= next.refused;
        self.controls.extend(next.controls);
        self.changes.extend(next.changes);
        self.forwarded.extend(next.forwarded);
        self.forwarded_if.extend(next.forwarded_if);
        self.must_change_password |= next.must_change_password;
        self.rehash = self.rehash.or(next.rehash);
        self.ordered |= next.ordered;
    }
}

/// How a bind ended.
#[derive(Clone, Debug)]
pub struct BindConclusion {
    pub result: LdapResult,
    pub controls: Vec<ControlBuf>,
    /// Until the password is changed the session may do nothing else.
    pub must_change_password: bool,
    /// Store the password anew with this scheme.
    pub rehash: Option<Scheme>,
    /// What the provider of a shadow has to receive. A bind that needs it fails if nothing passes it on.
    pub forward: Option<Box<Forward>>,
}

impl BindConclusion {
    /// No overlay judges the bind: the password alone decides.
    pub fn outright(matched: bool) -> Self {
        let code = if matched { ResultCode::SUCCESS } else { ResultCode::INVALID_CREDENTIALS };
        Self {
            result: LdapResult::new(code),
            controls: Vec::new(),
            must_change_password: false,
            rehash: None,
            forward: None,
        }
    }
}

/// The hook on answered entries.
pub trait Answering: Debug + Send + Sync {
    /// Whether there will be something to say, given the request's controls.
    fn wants(&self, controls: &RequestControls) -> bool;

    /// Controls to go with the entry.
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
