//! Kinds of operations, and sets of them (`logops`).

use std::fmt;
use std::str::FromStr;

/// A kind of operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Add,
    Delete,
    Modify,
    ModifyDn,
    Compare,
    Search,
    Bind,
    Unbind,
    Abandon,
    Extended,
}

impl Operation {
    /// The object class of its records.
    pub fn class(self) -> &'static str {
        match self {
            Self::Add => "auditAdd",
            Self::Delete => "auditDelete",
            Self::Modify => "auditModify",
            Self::ModifyDn => "auditModRDN",
            Self::Compare => "auditCompare",
            Self::Search => "auditSearch",
            Self::Bind => "auditBind",
            Self::Unbind => "auditObject",
            Self::Abandon => "auditAbandon",
            Self::Extended => "auditExtended",
        }
    }

    /// Its word in reqType and `logops`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Delete => "delete",
            Self::Modify => "modify",
            Self::ModifyDn => "modrdn",
            Self::Compare => "compare",
            Self::Search => "search",
            Self::Bind => "bind",
            Self::Unbind => "unbind",
            Self::Abandon => "abandon",
            Self::Extended => "extended",
        }
    }
}

/// A set of kinds of operations.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Operations(u16);

impl Operations {
    pub const WRITES: Self = Self(0x00f);
    pub const READS: Self = Self(0x030);
    pub const SESSION: Self = Self(0x1c0);
    pub const ALL: Self = Self(0x7ff);

    fn of(operation: Operation) -> Self {
        Self(1 << operation as u16)
    }

    pub fn contains(self, operation: Operation) -> bool {
        self.0 & Self::of(operation).0 != 0
    }

    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of these are in the other set, too.
    pub fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }
}

/// A word that names no operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownOperation(pub String);

impl fmt::Display for UnknownOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no operation: say all, writes, reads, session, add, delete, modify, modrdn, compare, search, bind, \
             unbind, abandon, extended or unknown",
            self.0
        )
    }
}

impl std::error::Error for UnknownOperation {}

/// One word, or several with `|` between them.
impl FromStr for Operations {
    type Err = UnknownOperation;

    fn from_str(text: &str) -> Result<Self, UnknownOperation> {
        text.split('|').try_fold(Self::default(), |all, word| {
            let set = match word.trim().to_ascii_lowercase().as_str() {
                "all" => Self::ALL,
                "writes" => Self::WRITES,
                "reads" => Self::READS,
                "session" => Self::SESSION,
                "add" => Self::of(Operation::Add),
                "delete" => Self::of(Operation::Delete),
                "modify" => Self::of(Operation::Modify),
                "modrdn" => Self::of(Operation::ModifyDn),
                "compare" => Self::of(Operation::Compare),
                "search" => Self::of(Operation::Search),
                "bind" => Self::of(Operation::Bind),
                "unbind" => Self::of(Operation::Unbind),
                "abandon" => Self::of(Operation::Abandon),
                "extended" => Self::of(Operation::Extended),
                "unknown" => Self(0x400),
                other => return Err(UnknownOperation(other.to_owned())),
            };
            Ok(all.union(set))
        })
    }
}
