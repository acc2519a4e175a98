//! What the rules say to one subject whatever the entry: found out at its first request, kept as long as it asks.

use std::fmt;
use std::sync::OnceLock;

use super::item::{ItemClass, Verdict};
use super::privilege::Privilege;
use super::strength::Strength;

/// Classes of attributes that are kept; of those beyond, nothing is said beforehand.
pub(super) const CLASSES_MAX: u16 = 32;

/// Verdicts by class of attributes, for comparing, searching and reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decisions {
    /// The policy's number in this process.
    pub(super) policy: u64,
    pub(super) strength: Strength,
    /// Whether the subject is the database's root.
    pub is_root: bool,
    /// Whether everything may be searched, and read.
    pub search_all: bool,
    pub read_all: bool,
    /// Of every entry.
    pub(super) general: ByPrivilege,
    /// Of every entry that has none of the subject's names.
    pub(super) others: ByPrivilege,
}

impl Decisions {
    /// What holds for every entry and value: granted or denied; `None` if that depends.
    #[inline]
    pub fn general(&self, class: ItemClass, privilege: Privilege) -> Option<bool> {
        self.general.get(class, privilege)
    }

    /// The same for every entry but those that the subject is bound or acts as.
    #[inline]
    pub fn of_others(&self, class: ItemClass, privilege: Privilege) -> Option<bool> {
        self.others.get(class, privilege)
    }
}

/// Verdicts for the privileges that are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ByPrivilege {
    pub(super) compare: Verdicts,
    pub(super) search: Verdicts,
    pub(super) read: Verdicts,
}

impl ByPrivilege {
    #[inline]
    fn get(&self, class: ItemClass, privilege: Privilege) -> Option<bool> {
        match privilege {
            Privilege::Compare => self.compare.get(class),
            Privilege::Search => self.search.get(class),
            Privilege::Read => self.read.get(class),
            _ => None,
        }
    }
}

/// Two bits a class: whether it is known, and whether granted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Verdicts {
    known: u32,
    granted: u32,
}

impl Verdicts {
    pub(super) fn set(&mut self, class: ItemClass, verdict: Verdict) {
        let Some(bit) = 1u32.checked_shl(u32::from(class.0)) else { return };
        match verdict {
            Verdict::Granted => (self.known, self.granted) = (self.known | bit, self.granted | bit),
            Verdict::Denied => self.known |= bit,
            Verdict::PerEntry | Verdict::PerValue => {}
        }
    }

    #[inline]
    pub(super) fn get(self, class: ItemClass) -> Option<bool> {
        let bit = 1u32.checked_shl(u32::from(class.0))?;
        (self.known & bit != 0).then_some(self.granted & bit != 0)
    }
}

/// The place in a subject for its decisions. A copy of a subject may become another, so its place is empty.
#[derive(Default)]
pub struct Decided(OnceLock<Box<Decisions>>);

impl Decided {
    /// The decisions of a policy, made by `decide` where none are kept yet; `None` where those of another are kept.
    #[inline]
    pub(super) fn of(
        &self,
        policy: u64,
        strength: Strength,
        decide: impl FnOnce() -> Decisions,
    ) -> Option<&Decisions> {
        let known = self.0.get_or_init(|| Box::new(decide()));
        (known.policy == policy && known.strength == strength).then_some(known)
    }
}

impl Clone for Decided {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for Decided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "Decided" } else { "Undecided" })
    }
}
