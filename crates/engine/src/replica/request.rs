//! What a consumer hands to the writer, and the writer's answer.

use std::sync::Arc;

use larix_proto::{FilterBuf, LdapResult, Scope};
use larix_schema::{AttributeDescription, AttributeTypeId, NormalDn, Schema, Usage};
use uuid::Uuid;

use super::EntryPlace;
use crate::csn::Csn;
use crate::log::{CsnVector, LoggedChange};
use crate::write::AttributeValues;

/// A change that another server made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicatedChange {
    /// The entry gets exactly this content: syncrepl's add and modify states. Operational attributes included.
    /// `state`: what came beside it, where conflicts are settled value by value.
    /// `place`: where it stands, from a Larix server; it takes precedence over the DN.
    Put {
        entry_uuid: Uuid,
        dn: String,
        attributes: Vec<AttributeValues>,
        state: Option<Vec<u8>>,
        place: Option<EntryPlace>,
    },
    /// The entry is gone. `csn`: of the delete, when known.
    Delete { entry_uuid: Uuid, csn: Option<Csn> },
    /// One logged change (delta-syncrepl): carried out as it was there, or refused so that a full refresh follows.
    /// `place`: where an add or a rename put the entry, from a Larix server; it takes precedence over the DN.
    /// `whole`: it is not a client's change: it gave the entry the content of another server's version.
    Delta {
        entry_uuid: Option<Uuid>,
        dn: String,
        csn: Csn,
        change: LoggedChange,
        place: Option<EntryPlace>,
        whole: bool,
    },
}

/// Changes that are committed together with what they raise the contextCSN to.
#[derive(Clone, Debug, Default)]
pub struct ReplicatedBatch {
    /// In the order in which they came; each is carried out for itself.
    pub changes: Vec<ReplicatedChange>,
    /// What holds once the changes are in, for each server at most one. It only rises, and stays where it is when a
    /// change of the batch is refused: a consumer that asks again then receives the change again.
    pub context_csns: Vec<Csn>,
    pub rules: ReplicaRules,
}

/// What holds for the changes of one `syncrepl` line.
#[derive(Clone, Debug)]
pub struct ReplicaRules {
    /// Entries obey the schema's rules of object classes (`schemachecking`); syntaxes they obey always.
    pub schema_checking: bool,
    /// Attribute types that the schema does not know are left out; otherwise the change that has one is refused.
    pub drop_unknown: bool,
    /// A put or a delta whose CSN the contextCSN covers is dropped: it was here before. Off when what is here cannot be
    /// trusted, or when the consumer's share has grown.
    pub drop_covered: bool,
    /// Every member may write (`multiprovider`): an entryUUID that was deleted does not come back, whatever is newer, and
    /// what a conflict asks for is done under a CSN of this server. Off for a consumer of one provider: entries leave its
    /// share and come back.
    pub multi_provider: bool,
    /// The whole of the suffix comes: superiors are found by their entryUUIDs, where the provider sends these.
    pub places: bool,
    /// Commits need not be durable at once (`lazycommit`): what a crash undoes is asked for again, for the contextCSN is
    /// undone with it.
    pub lazy: bool,
    /// The contextCSN rises by a pass over the provider's content, which does not name what is gone: who comes later and
    /// knows less cannot be told from the log alone what to delete.
    pub by_content: bool,
    /// The contextCSN rises by a refresh of entries as they are: an access log of ours does not tell one by one what was
    /// changed in them.
    pub whole: bool,
    /// The contextCSN rises for an access log that lacks changes of this database: cookies up to it say nothing of these.
    pub doubted: bool,
    /// Up to this change of its own the provider had told of when the batch began. If it sends an entry now that is older
    /// than such a change of the entry, it has lost that: a slapd does when its own change meets another server's. The entry
    /// is then written again under a CSN of this server, as it was.
    pub provider: Option<Csn>,
    /// The provider keeps no states of entries, and had come so far before it began to send entries as they are. What it has
    /// otherwise beside an older word of ours, which this covers, it has by a change that is not known here, or has lost: one
    /// of both is written again under a CSN of this server.
    pub provider_had: Option<CsnVector>,
    /// Changes come without CSNs, from a server that has none (DirSync): each gets the next CSN of this server, as a change of
    /// its own does.
    pub own_csns: bool,
    /// Another server than the provider keeps the entries: what comes last holds, whatever the contextCSN or the entry's own CSN says.
    pub elsewhere: bool,
    /// A delete is told again under a CSN of this server: it was found by the entry's absence, and its CSN may be
    /// another server's, which hears of it under no CSN of its own.
    pub tells_deletes_again: bool,
    /// The line brings one of several parts of the database.
    pub part: Option<ReplicatedPart>,
    /// Which attributes are the provider's.
    pub attributes: Arc<AttributeShare>,
}

/// What one of several lines brings. Each has a cookie of its own: where one has come far, another may lack what came before. And an
/// entry that leaves a part may have come into another by the same change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicatedPart {
    /// What its cookie is kept by: another part has another name. Without `/`.
    pub name: String,
    /// Here.
    pub base: NormalDn,
    pub scope: Scope,
}

impl Default for ReplicaRules {
    /// Of a member that has all of the suffix.
    fn default() -> Self {
        Self {
            schema_checking: false,
            drop_unknown: false,
            drop_covered: true,
            multi_provider: true,
            places: true,
            lazy: false,
            by_content: false,
            whole: false,
            doubted: false,
            provider: None,
            provider_had: None,
            own_csns: false,
            elsewhere: false,
            tells_deletes_again: false,
            part: None,
            attributes: Arc::default(),
        }
    }
}

/// Which attributes are replicated (`attrs`, `exattrs`): others stay as they are here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributeShare {
    only: Option<Vec<AttributeDescription>>,
    user: bool,
    operational: bool,
    except: Vec<AttributeDescription>,
}

impl AttributeShare {
    /// `only`: names, which stand for their subtypes, too, `*` and `+`; empty for all. `except`: names, without their subtypes. Names
    /// that the schema does not know match nothing.
    pub fn new(schema: &Schema, only: &[String], except: &[String]) -> Self {
        let known =
            |names: &[String]| names.iter().filter_map(|name| schema.describe(name).ok()).collect::<Vec<_>>();
        Self {
            only: (!only.is_empty()).then(|| known(only)),
            user: only.iter().any(|name| name == "*"),
            operational: only.iter().any(|name| name == "+"),
            except: known(except),
        }
    }

    /// Whether the provider's word on this attribute counts. What identifies an entry always is the provider's.
    pub fn covers(&self, schema: &Schema, description: &AttributeDescription) -> bool {
        const IDENTITY: [&str; 4] = ["objectClass", "structuralObjectClass", "entryUUID", "entryCSN"];
        let kind = schema.attribute(description.attribute);
        if IDENTITY.contains(&kind.name()) {
            return true;
        }
        let has_all = |options: &[Box<str>]| options.iter().all(|one| description.options().contains(one));
        let is_left_out = |except: &AttributeDescription| {
            except.attribute == description.attribute && has_all(except.options())
        };
        if self.except.iter().any(is_left_out) {
            return false;
        }
        let Some(only) = &self.only else { return true };
        let is_user = kind.usage == Usage::UserApplications;
        (if is_user { self.user } else { self.operational })
            || only.iter().any(|only| description.is_subdescription_of(schema, only))
    }

    /// Without attributes that are not the provider's either.
    #[must_use]
    pub fn without(&self, others: &[AttributeTypeId]) -> Self {
        let mut share = self.clone();
        share.except.extend(others.iter().copied().map(AttributeDescription::plain));
        share
    }

    /// Whether it names what is replicated (`attrs`): an entry may come without the attributes of its name.
    pub(crate) fn is_selection(&self) -> bool {
        self.only.is_some()
    }

    /// Whether it covers everything.
    pub fn is_whole(&self) -> bool {
        self.only.is_none() && self.except.is_empty()
    }
}

/// What became of one change.
#[derive(Clone, Debug, PartialEq)]
pub enum ApplyOutcome {
    Done,
    /// What is here is newer or the same.
    Older,
    /// Settled by a rule; the note says what lost. Nothing is left to do.
    Conflict(Box<ConflictNote>),
    /// Not carried out: the schema, a damaged change, or a fault that needs a full refresh.
    Refused(LdapResult),
}

/// How a batch ended.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicatedOutcome {
    /// In the order of the batch. Empty when nothing was carried out.
    pub changes: Vec<ApplyOutcome>,
    /// Of the commit. Success means durable.
    pub result: LdapResult,
}

/// Called once when a batch has ended, on the writer's thread or, for what is refused at once, on the caller's. It must
/// not block.
pub type ReplicatedCompletion = Box<dyn FnOnce(ReplicatedOutcome) + Send>;

/// Which rule settled a conflict.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ConflictKind {
    /// The same entry was changed on two servers.
    Modify = 0,
    /// Two entries have one name.
    Name = 1,
    /// An entry was changed that another server deleted.
    Delete = 2,
    /// Entries were moved below each other.
    Loop = 3,
}

/// Which side stayed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum KeptSide {
    /// What was here.
    Ours = 0,
    /// What came.
    Theirs = 1,
}

/// What a conflict was about, and what lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictNote {
    pub kind: ConflictKind,
    pub kept: KeptSide,
    /// The loser's name.
    pub dn: String,
    pub winner_uuid: Uuid,
    pub winner_csn: Option<Csn>,
    pub loser_uuid: Uuid,
    pub loser_csn: Option<Csn>,
    /// The values that lost: of an entry that gave way, all; of a change, what it would have set. Cut at a limit.
    pub lost: Vec<AttributeValues>,
}

/// The part of a database that a consumer holds.
#[derive(Clone, Debug)]
pub struct Share {
    /// Empty: the whole database.
    pub base: String,
    pub scope: Scope,
    /// Entries that do not match are not the provider's to delete.
    pub filter: Option<FilterBuf>,
    /// The contextCSN that the provider's refresh stands for: what the provider has not seen stays. Empty: everything that
    /// is absent goes.
    pub seen: Vec<Csn>,
    /// Other servers keep a part of the provider's content: what is absent goes, whether the provider has seen it or not.
    pub whole: bool,
    /// The provider sent or named subentries, too: those that are absent go. A slapd does so only when they are changed.
    pub subentries: bool,
}

/// How many entries a refresh may delete without the administrator's consent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DeleteLimit {
    /// Of the entries of the share, 0 to 100: 100 for no limit.
    pub percent: u8,
    /// So many may go whatever the share.
    pub entries: u64,
}

impl Share {
    /// Whether the provider knew this change of an entry.
    pub fn has_seen(&self, csn: &Csn) -> bool {
        if self.whole {
            return true;
        }
        match self.seen.iter().find(|known| known.server_id == csn.server_id) {
            Some(known) => csn <= known,
            // Servers without an ID do not tell who made a change.
            None if csn.server_id == 0 => self.seen.is_empty() || self.seen.iter().any(|known| csn <= known),
            None => self.seen.is_empty(),
        }
    }
}

impl DeleteLimit {
    /// Whether it forbids to delete so many of so many.
    pub fn is_exceeded(&self, absent: u64, entries: u64) -> bool {
        let share = u128::from(absent) * 100 > u128::from(entries) * u128::from(self.percent);
        self.percent < 100 && share && absent > self.entries
    }
}

impl Default for DeleteLimit {
    fn default() -> Self {
        Self { percent: 50, entries: 100 }
    }
}

/// What came of deleting what is absent.
#[derive(Clone, Debug, PartialEq)]
pub enum DeleteOutcome {
    Deleted(u64),
    /// Nothing was deleted: so many of the share's entries would have gone.
    TooMany {
        absent: u64,
        entries: u64,
    },
    /// It ended before its end; asked again, it goes on.
    Failed {
        deleted: u64,
        result: LdapResult,
    },
}

/// Called once when deleting what is absent has ended.
pub type DeleteCompletion = Box<dyn FnOnce(DeleteOutcome) + Send>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_attributes_are_replicated() {
        let schema = Schema::system();
        let check = |only: &[&str], except: &[&str], covered: &[&str], left_out: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
            let share = AttributeShare::new(schema, &owned(only), &owned(except));
            for (names, expected) in [(covered, true), (left_out, false)] {
                for name in names {
                    let description = schema.describe(name).unwrap();
                    let is_covered = share.covers(schema, &description);
                    assert_eq!(is_covered, expected, "{name} of {only:?} without {except:?}");
                }
            }
        };
        check(&[], &[], &["cn", "createTimestamp"], &[]);
        let identity = ["objectClass", "structuralObjectClass", "entryUUID", "entryCSN"];
        check(&["cn"], &identity, &identity, &["description", "createTimestamp"]);
        check(&["name"], &[], &["cn", "cn;lang-en", "entryCSN"], &["description", "createTimestamp"]);
        check(&["cn;lang-en"], &[], &["cn;lang-en"], &["cn"]);
        // A supertype is no reason to leave out what names an entry, and without its classes there is none.
        check(&["*"], &["name", "objectClass"], &["cn", "objectClass"], &["name", "createTimestamp"]);
        check(&[], &["description;lang-en"], &["description"], &["description;lang-en"]);
        check(&[], &["description"], &["cn"], &["description", "description;lang-en"]);
    }
}
