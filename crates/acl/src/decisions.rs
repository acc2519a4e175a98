//! What the rules say to one subject whatever the entry: found out at its first request, kept as long as it asks.

use std::fmt;
use std::sync::OnceLock;

use super::items::ItemClass;
use super::policy::{AccessPolicy, Verdict};
use super::privilege::Privilege;
use super::subject::{Strength, Subject};

/// Classes of attributes that are kept; of those beyond, nothing is said beforehand.
const CLASSES_MAX: u16 = 32;

/// Verdicts by class of attributes, for comparing, searching and reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decisions {
    policy: u64,
    strength: Strength,
    /// Whether everything may be searched, and read.
    pub search_all: bool,
    pub read_all: bool,
    compare: Verdicts,
    search: Verdicts,
    read: Verdicts,
}

impl Decisions {
    fn new(policy: &AccessPolicy, subject: &Subject) -> Self {
        let all = |privilege| {
            let mut verdicts = Verdicts::default();
            for number in 0..CLASSES_MAX {
                let class = ItemClass(number);
                if policy.classes.list(class).is_some_and(|list| !list.individual) {
                    verdicts.set(class, policy.class_verdict(subject, None, class, privilege));
                }
            }
            verdicts
        };
        Self {
            policy: policy.instance,
            strength: subject.strength,
            search_all: policy.grants_all(subject, Privilege::Search),
            read_all: policy.grants_all(subject, Privilege::Read),
            compare: all(Privilege::Compare),
            search: all(Privilege::Search),
            read: all(Privilege::Read),
        }
    }

    /// What holds for every entry and value: granted or denied; `None` if that depends.
    #[inline]
    pub fn general(&self, class: ItemClass, privilege: Privilege) -> Option<bool> {
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
struct Verdicts {
    known: u32,
    granted: u32,
}

impl Verdicts {
    fn set(&mut self, class: ItemClass, verdict: Verdict) {
        let Some(bit) = 1u32.checked_shl(u32::from(class.0)) else { return };
        match verdict {
            Verdict::Granted => (self.known, self.granted) = (self.known | bit, self.granted | bit),
            Verdict::Denied => self.known |= bit,
            Verdict::PerEntry | Verdict::PerValue => {}
        }
    }

    #[inline]
    fn get(self, class: ItemClass) -> Option<bool> {
        let bit = 1u32.checked_shl(u32::from(class.0))?;
        (self.known & bit != 0).then_some(self.granted & bit != 0)
    }
}

/// The place in a subject for its decisions. A copy of a subject may become another, so its place is empty.
#[derive(Default)]
pub struct Decided(OnceLock<Box<Decisions>>);

impl Decided {
    /// The decisions of a policy; `None` where those of another are kept.
    #[inline]
    pub(super) fn of(&self, policy: &AccessPolicy, subject: &Subject) -> Option<&Decisions> {
        let known = self.0.get_or_init(|| Box::new(Decisions::new(policy, subject)));
        (known.policy == policy.instance && known.strength == subject.strength).then_some(known)
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
