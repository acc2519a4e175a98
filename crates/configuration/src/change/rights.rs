//! The requester's rights, and what the answers disclose of entries.

use larix_engine::access::{AccessPolicy, Item, Privilege, Subject};
use larix_engine::controls::{ReadAttributes, RequestControls};
use larix_engine::entry::Entry;
use larix_engine::overlay::Change;
use larix_proto::ber::{DecodeError, Reader};
use larix_proto::{ControlBuf, LdapResult, ResultCode, oid};
use larix_schema::{NormalDn, Schema};

use super::{ConfigRefusal, Requester};
use larix_backend::memory_tree::MemoryTree;

/// The requester before the access rules of cn=config.
#[derive(Debug)]
pub(super) struct Rights<'a> {
    /// None: no rules apply.
    ruled: Option<MemoryTree<'a>>,
    root: bool,
}

impl<'a> Rights<'a> {
    pub(super) fn new(schema: &'a Schema, requester: &'a Requester) -> Self {
        let tree =
            |policy: &'a AccessPolicy, subject: &'a Subject| MemoryTree::empty(schema, policy, subject);
        match requester {
            Requester::Client { subject, policy } => {
                let root = policy.is_root(subject);
                Self { ruled: Some(tree(policy, subject)), root }
            }
            Requester::Offline => Self { ruled: None, root: true },
        }
    }

    pub(super) fn is_root(&self) -> bool {
        self.root
    }

    /// # Errors
    /// insufficientAccessRights with this text.
    pub(super) fn demand(
        &self,
        dn: &NormalDn,
        entry: &Entry,
        item: Item<'_>,
        privilege: Privilege,
        text: &str,
    ) -> Result<(), ConfigRefusal> {
        if self.has(dn, entry, item, privilege) { Ok(()) } else { Err(insufficient(text)) }
    }

    pub(super) fn has(&self, dn: &NormalDn, entry: &Entry, item: Item<'_>, privilege: Privilege) -> bool {
        self.root || self.ruled.as_ref().is_none_or(|tree| tree.allows(dn, entry, item, privilege))
    }

    /// Whether all of the changes may be made.
    ///
    /// # Errors
    /// insufficientAccessRights with this text.
    pub(super) fn demand_changes(
        &self,
        dn: &NormalDn,
        entry: &Entry,
        changes: &[Change],
        text: &str,
    ) -> Result<(), ConfigRefusal> {
        let may = |change: &Change| {
            change.is_granted(|value, privilege| {
                self.has(dn, entry, Item::Attribute { description: &change.description, value }, privilege)
            })
        };
        if self.root || changes.iter().all(may) { Ok(()) } else { Err(insufficient(text)) }
    }

    /// # Errors
    /// assertionFailed.
    pub(super) fn check_assertion(
        &self,
        dn: &NormalDn,
        entry: &Entry,
        controls: &RequestControls,
    ) -> Result<(), ConfigRefusal> {
        match &self.ruled {
            Some(tree) if !tree.is_as_asserted(dn, entry, controls) => {
                Err(LdapResult::new(ResultCode::ASSERTION_FAILED).into())
            }
            _ => Ok(()),
        }
    }

    /// The answer to a pre-read or post-read control, as far as the requester may read the entry.
    pub(super) fn read(
        &self,
        oid: &'static str,
        requested: Option<&ReadAttributes>,
        dn: &NormalDn,
        entry: &Entry,
    ) -> Option<ControlBuf> {
        let tree = self.ruled.as_ref()?;
        let message = tree.read(dn, entry, requested?.attributes.iter().map(String::as_str))?;
        // The control's value is the bare protocolOp of the message.
        let unwrap = || {
            let mut reader = Reader::new(&message).sequence("LDAPMessage")?;
            reader.integer("messageID")?;
            reader.raw("protocolOp").map(<[u8]>::to_vec)
        };
        let unwrapped: Result<_, DecodeError> = unwrap();
        Some(ControlBuf { oid: oid.into(), critical: false, value: unwrapped.ok() })
    }

    /// The answer to a refused change of `dn`: an entry that the requester may not know of looks as if it were not
    /// there. `nearest` are the entries from the target or the nearest above it upwards.
    pub(super) fn without_disclosure(
        &self,
        refusal: ConfigRefusal,
        dn: &NormalDn,
        mut nearest: impl Iterator<Item = (NormalDn, Entry)>,
    ) -> ConfigRefusal {
        let tells = [
            ResultCode::INSUFFICIENT_ACCESS_RIGHTS,
            ResultCode::NO_SUCH_OBJECT,
            ResultCode::ENTRY_ALREADY_EXISTS,
            ResultCode::ASSERTION_FAILED,
        ];
        if self.root || !tells.contains(&refusal.0.code) {
            return refusal;
        }
        let known =
            |(normal, entry): &(NormalDn, Entry)| self.has(normal, entry, Item::Entry, Privilege::Disclose);
        let Some(first) = nearest.next() else { return refusal };
        if known(&first) {
            return refusal;
        }
        let missing = LdapResult::new(ResultCode::NO_SUCH_OBJECT);
        // As a search answers: the superior is named only where the entry itself would have been.
        let superior = nearest.next().filter(|_| first.0 == *dn).filter(known);
        match superior {
            Some((_, entry)) => missing.matched(entry.dn).into(),
            None => missing.into(),
        }
    }
}

pub(super) const PRE_READ: &str = oid::PRE_READ;
pub(super) const POST_READ: &str = oid::POST_READ;

fn insufficient(text: &str) -> ConfigRefusal {
    ConfigRefusal::new(ResultCode::INSUFFICIENT_ACCESS_RIGHTS, text)
}
