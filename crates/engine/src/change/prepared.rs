//! Changes whose names are resolved and whose values are checked.

use std::sync::Arc;

use larix_schema::{AttributeDescription, NormalDn, NormalRdn};

use super::{BindAttempt, Recording};
use crate::access::Privilege;
use crate::entry::Entry;

/// A change whose names are resolved and whose values obey their syntaxes.
#[derive(Clone, Debug)]
pub enum PreparedChange {
    Add {
        dn: NormalDn,
        entry: Entry,
        mods: Vec<Change>,
    },
    Modify {
        dn: NormalDn,
        mods: Vec<Change>,
    },
    Delete {
        dn: NormalDn,
    },
    ModifyDn(Box<PreparedModifyDn>),
    /// A bind whose password was compared: overlays judge it, and the account's state changes.
    Authenticate(Box<BindAttempt>),
    /// Entries of the access log.
    Record(Arc<Recording>),
}

impl PreparedChange {
    /// The entry that is changed.
    pub fn dn(&self) -> &NormalDn {
        match self {
            Self::Add { dn, .. } | Self::Modify { dn, .. } | Self::Delete { dn } => dn,
            Self::ModifyDn(rename) => &rename.dn,
            Self::Authenticate(attempt) => &attempt.dn,
            Self::Record(recording) => &recording.suffix,
        }
    }

    /// The same once the change is made: of a rename the new name.
    pub(crate) fn dn_behind(&self) -> NormalDn {
        match self {
            Self::ModifyDn(rename) => rename.target(),
            other => other.dn().clone(),
        }
    }

    /// The names of the entries that it looks for.
    pub(crate) fn names(&self) -> impl Iterator<Item = &NormalDn> {
        let (name, other) = match self {
            Self::Add { dn, .. } | Self::Modify { dn, .. } | Self::Delete { dn } => (Some(dn), None),
            Self::ModifyDn(rename) => (Some(&rename.dn), rename.new_superior.as_ref()),
            Self::Authenticate(attempt) => (Some(&attempt.dn), None),
            Self::Record(_) => (None, None),
        };
        name.into_iter().chain(other)
    }
}

/// A rename or move, resolved.
#[derive(Clone, Debug)]
pub struct PreparedModifyDn {
    pub dn: NormalDn,
    /// The new RDN as it will be shown.
    pub new_rdn: String,
    pub new_normal_rdn: NormalRdn,
    pub delete_old_rdn: bool,
    pub new_superior: Option<NormalDn>,
    /// Deletes of the old naming values, then adds of the new ones.
    pub mods: Vec<Change>,
}

impl PreparedModifyDn {
    /// The superior after the change.
    pub fn superior(&self) -> NormalDn {
        match &self.new_superior {
            Some(superior) => superior.clone(),
            None => self.dn.parent().unwrap_or_else(NormalDn::root),
        }
    }

    /// The DN after the change.
    pub fn target(&self) -> NormalDn {
        NormalDn::join(&self.new_normal_rdn, &self.superior())
    }
}

/// What one change does to one attribute.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Add,
    Delete,
    Replace,
    Increment,
    /// Adds what is not there yet, as a rename does with its naming values.
    SoftAdd,
}

/// One modification, resolved.
#[derive(Clone, Debug)]
pub struct Change {
    pub kind: ChangeKind,
    pub description: AttributeDescription,
    /// In the form in which they are stored. Empty: the whole attribute.
    pub values: Vec<Vec<u8>>,
    /// The equality key of each value.
    pub keys: Vec<Vec<u8>>,
    /// Whose doing it is, for access and for the no-user-modification rule.
    pub access: RequiredAccess,
}

impl Change {
    /// Whether everything that this change needs is granted: for the values that come and go, each, and for the whole
    /// attribute where all of it goes. `granted` is asked for a value, or for none of the attribute's in particular.
    pub fn is_granted(&self, granted: impl Fn(Option<&[u8]>, Privilege) -> bool) -> bool {
        let managing = match self.access {
            RequiredAccess::Internal => return true,
            RequiredAccess::Managing => true,
            RequiredAccess::User => false,
        };
        let check = |value: Option<&[u8]>, privilege: Privilege| {
            granted(value, if managing { Privilege::Manage } else { privilege })
        };
        let each = |privilege: Privilege| self.values.iter().all(|value| check(Some(value), privilege));
        match self.kind {
            ChangeKind::SoftAdd => true,
            ChangeKind::Add => each(Privilege::Add),
            ChangeKind::Delete if self.values.is_empty() => check(None, Privilege::Delete),
            ChangeKind::Delete => each(Privilege::Delete),
            ChangeKind::Replace => check(None, Privilege::Delete) && each(Privilege::Add),
            ChangeKind::Increment => each(Privilege::Increment),
        }
    }
}

/// What access a change needs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum RequiredAccess {
    /// The requester's: write access.
    #[default]
    User,
    /// The requester's, on an operational attribute under the relax control: manage access.
    Managing,
    /// The server's own: none.
    Internal,
}
