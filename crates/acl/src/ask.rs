//! A question to the rules, and what can come of it.

use larix_schema::NormalDn;

use super::facts::AccessTarget;
use super::item::{ItemKind, Value, Verdict};
use super::subject::Subject;

/// A question, as far as it is known.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) subject: &'a Subject,
    /// `None`: any.
    pub(super) item: Option<ItemKind<'a>>,
    pub(super) value: Value<'a>,
    pub(super) target: Option<&'a AccessTarget<'a>>,
    /// Which entries it is about, when `target` is not known.
    pub(super) among: Among<'a>,
}

/// Entries that a question without a target is about.
#[derive(Debug, Clone, Copy)]
pub(super) enum Among<'a> {
    All,
    /// Those at or below a name.
    Within(&'a NormalDn),
    /// Those that have none of the subject's names.
    Others,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Granted,
    Denied,
    Unknown(Missing),
}

/// What would have to be known; the later includes the earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Missing {
    Entry,
    Value,
}

impl Answer {
    pub(super) const fn of(granted: bool) -> Self {
        if granted { Self::Granted } else { Self::Denied }
    }

    pub(super) const fn verdict(self) -> Verdict {
        match self {
            Self::Granted => Verdict::Granted,
            Self::Denied => Verdict::Denied,
            Self::Unknown(Missing::Entry) => Verdict::PerEntry,
            Self::Unknown(Missing::Value) => Verdict::PerValue,
        }
    }

    /// The answer when it depends on something missing which of two it is.
    pub(super) fn either(missing: Missing, a: Self, b: Self) -> Self {
        if a == b && !matches!(a, Self::Unknown(_)) {
            return a;
        }
        let of = |answer| if let Self::Unknown(missing) = answer { missing } else { Missing::Entry };
        Self::Unknown(missing.max(of(a)).max(of(b)))
    }
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    Yes,
    No,
    Unknown(Missing),
}

impl Holds {
    pub(super) const fn of(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }

    /// Both; the second is asked only if it matters.
    pub(super) fn and(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::No => Self::No,
            Self::Yes => other(),
            Self::Unknown(missing) => match other() {
                Self::No => Self::No,
                Self::Yes => self,
                Self::Unknown(also) => Self::Unknown(missing.max(also)),
            },
        }
    }
}

/// The part of a `<what>` that does not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmatchedWhat {
    Dn,
    Attributes,
    Value,
    Filter,
    Operation,
    Control,
}
