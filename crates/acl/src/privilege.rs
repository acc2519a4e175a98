//! What can be granted: single privileges, the levels that imply one another, and the three ways to apply them
//! (slapd.access(5), "The <ACCESS> field").

use std::fmt;

/// One thing a request needs before it may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Privilege {
    /// To learn that something exists, by way of an error.
    Disclose,
    /// To authenticate against a value.
    Auth,
    Compare,
    /// To use an attribute in a search filter.
    Search,
    Read,
    /// `Add`, `Delete` and `Increment` together.
    Write,
    /// To add values, entries or children.
    Add,
    /// To delete values, entries or children.
    Delete,
    /// To increment values (RFC 4525), as in OpenLDAP 2.7. An identity that may add and delete values has this privilege as well,
    /// for OpenLDAP 2.5 has no other word for it; `-i` takes it away.
    Increment,
    /// To do what the data model forbids otherwise (relax rules).
    Manage,
}

impl Privilege {
    /// The privileges that must all be granted.
    pub const fn required(self) -> Privileges {
        match self {
            Self::Disclose => Privileges::DISCLOSE,
            Self::Auth => Privileges::AUTH,
            Self::Compare => Privileges::COMPARE,
            Self::Search => Privileges::SEARCH,
            Self::Read => Privileges::READ,
            Self::Write => Privileges::WRITE,
            Self::Add => Privileges::ADD,
            Self::Delete => Privileges::DELETE,
            Self::Increment => Privileges::INCREMENT,
            Self::Manage => Privileges::MANAGE,
        }
    }

    /// Whether this is one of those that change data.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::Add | Self::Delete | Self::Increment)
    }
}

/// A set of privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Privileges(u16);

impl Privileges {
    pub const NONE: Self = Self(0);
    pub const DISCLOSE: Self = Self(1);
    pub const AUTH: Self = Self(1 << 1);
    pub const COMPARE: Self = Self(1 << 2);
    pub const SEARCH: Self = Self(1 << 3);
    pub const READ: Self = Self(1 << 4);
    pub const ADD: Self = Self(1 << 5);
    pub const DELETE: Self = Self(1 << 6);
    pub const WRITE: Self = Self(Self::ADD_AND_DELETE.0 | Self::INCREMENT.0);
    pub const MANAGE: Self = Self(1 << 7);
    pub const INCREMENT: Self = Self(1 << 8);
    /// What a 2.5 configuration needs to increment, because it has no `i`.
    const ADD_AND_DELETE: Self = Self(Self::ADD.0 | Self::DELETE.0);

    pub const fn contains(self, required: Self) -> bool {
        self.0 & required.0 == required.0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub const fn with(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[must_use]
    pub const fn without(self, less: Self) -> Self {
        Self(self.0 & !less.0)
    }

    /// With `i` where `a` and `z` are.
    const fn whole(self) -> Self {
        if self.contains(Self::ADD_AND_DELETE) { self.with(Self::INCREMENT) } else { self }
    }

    /// The set a letter names: `m w a z i r s c x d`, and `0` for none; `None` for any other.
    const fn from_letter(letter: u8) -> Option<Self> {
        Some(match letter.to_ascii_lowercase() {
            b'm' => Self::MANAGE,
            b'w' => Self::WRITE,
            b'a' => Self::ADD,
            b'z' => Self::DELETE,
            b'i' => Self::INCREMENT,
            b'r' => Self::READ,
            b's' => Self::SEARCH,
            b'c' => Self::COMPARE,
            b'x' => Self::AUTH,
            b'd' => Self::DISCLOSE,
            b'0' => Self::NONE,
            _ => return None,
        })
    }
}

impl fmt::Display for Privileges {
    /// The letters in OpenLDAP's order, `0` for the empty set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("0");
        }
        let letters = [
            (Self::MANAGE, "m"),
            (Self::WRITE, "w"),
            (Self::ADD, "a"),
            (Self::DELETE, "z"),
            (Self::INCREMENT, "i"),
            (Self::READ, "r"),
            (Self::SEARCH, "s"),
            (Self::COMPARE, "c"),
            (Self::AUTH, "x"),
            (Self::DISCLOSE, "d"),
        ];
        let mut left = *self;
        for (set, letter) in letters {
            if left.contains(set) {
                f.write_str(letter)?;
                left = left.without(set);
            }
        }
        Ok(())
    }
}

/// A named level; each implies those before it, but `Add`, `Delete` and `Increment` stand side by side between `Read` and `Write`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessLevel {
    None,
    Disclose,
    Auth,
    Compare,
    Search,
    Read,
    Add,
    Delete,
    Increment,
    Write,
    Manage,
}

impl AccessLevel {
    const NAMES: [(&'static str, Self); 11] = [
        ("none", Self::None),
        ("disclose", Self::Disclose),
        ("auth", Self::Auth),
        ("compare", Self::Compare),
        ("search", Self::Search),
        ("read", Self::Read),
        ("add", Self::Add),
        ("delete", Self::Delete),
        ("increment", Self::Increment),
        ("write", Self::Write),
        ("manage", Self::Manage),
    ];

    pub fn parse(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, level)| *level)
    }

    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, level)| *level == self).map_or("none", |(name, _)| name)
    }

    pub const fn privileges(self) -> Privileges {
        let below = match self {
            Self::None => return Privileges::NONE,
            Self::Disclose => Self::None,
            Self::Auth => Self::Disclose,
            Self::Compare => Self::Auth,
            Self::Search => Self::Compare,
            Self::Read => Self::Search,
            Self::Add | Self::Delete | Self::Increment | Self::Write => Self::Read,
            Self::Manage => Self::Write,
        };
        let own = match self {
            Self::None => Privileges::NONE,
            Self::Disclose => Privileges::DISCLOSE,
            Self::Auth => Privileges::AUTH,
            Self::Compare => Privileges::COMPARE,
            Self::Search => Privileges::SEARCH,
            Self::Read => Privileges::READ,
            Self::Add => Privileges::ADD,
            Self::Delete => Privileges::DELETE,
            Self::Increment => Privileges::INCREMENT,
            Self::Write => Privileges::WRITE,
            Self::Manage => Privileges::MANAGE,
        };
        below.privileges().with(own)
    }
}

/// What a clause does to the privileges collected so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Grant {
    /// A level by name: replaces what was collected.
    Level(AccessLevel),
    /// `=...`: replaces what was collected.
    Assign(Privileges),
    /// `+...`
    Add(Privileges),
    /// `-...`
    Remove(Privileges),
}

impl Grant {
    /// A clause without `<access>` changes nothing.
    pub const UNCHANGED: Self = Self::Add(Privileges::NONE);

    /// A level's name, or a sign and letters; `None` if it is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let (sign, letters) = match text.as_bytes().split_first() {
            Some((sign @ (b'=' | b'+' | b'-'), letters)) => (*sign, letters),
            _ => return AccessLevel::parse(text).map(Self::Level),
        };
        let mut set = Privileges::NONE;
        for &letter in letters {
            set = set.with(Privileges::from_letter(letter)?);
        }
        let set = set.whole();
        Some(match sign {
            b'=' => Self::Assign(set),
            b'+' => Self::Add(set),
            _ => Self::Remove(set),
        })
    }

    #[must_use]
    pub const fn apply(self, collected: Privileges) -> Privileges {
        match self {
            Self::Level(level) => level.privileges(),
            Self::Assign(set) => set,
            Self::Add(set) if set.intersection(Privileges::ADD_AND_DELETE).is_empty() => collected.with(set),
            Self::Add(set) => collected.with(set).whole(),
            Self::Remove(set) => collected.without(set),
        }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(level) => f.write_str(level.name()),
            Self::Assign(set) => write!(f, "={set}"),
            Self::Add(set) => write!(f, "+{set}"),
            Self::Remove(set) => write!(f, "-{set}"),
        }
    }
}

/// What the rules that match have collected: what a check is decided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    pub privileges: Privileges,
    /// The level, if a level was the last thing granted.
    pub level: Option<AccessLevel>,
}

impl Collected {
    pub(crate) const fn of_level(level: AccessLevel) -> Self {
        Self { privileges: level.privileges(), level: Some(level) }
    }

    #[must_use]
    pub(crate) const fn after(self, grant: Grant) -> Self {
        let level = match grant {
            Grant::Level(level) => Some(level),
            _ => None,
        };
        Self { privileges: grant.apply(self.privileges), level }
    }
}

impl fmt::Display for Collected {
    /// `read(=rscxd)`, or `=rs` where no level was granted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            Some(level) => write!(f, "{}(={})", level.name(), self.privileges),
            None => write!(f, "={}", self.privileges),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_parse_and_display() {
        for (text, shown) in [
            ("none", "none"),
            ("READ", "read"),
            ("add", "add"),
            ("=rscxd", "=rscxd"),
            ("=dxcsr", "=rscxd"),
            ("+az", "+w"),
            ("=ia", "=ai"),
            ("-i", "-i"),
            ("increment", "increment"),
            ("-w", "-w"),
            ("=", "=0"),
            ("+0", "+0"),
            ("=mwrscxd", "=mwrscxd"),
        ] {
            assert_eq!(Grant::parse(text).map(|grant| grant.to_string()).as_deref(), Some(shown), "{text}");
        }
        for text in ["", "readx", "=q", "~r", "self"] {
            assert_eq!(Grant::parse(text), None, "{text}");
        }
    }

    #[test]
    fn levels_imply_those_below() {
        let check = |level: AccessLevel, letters: &str| {
            assert_eq!(level.privileges().to_string(), letters, "{}", level.name());
        };
        check(AccessLevel::None, "0");
        check(AccessLevel::Disclose, "d");
        check(AccessLevel::Auth, "xd");
        check(AccessLevel::Compare, "cxd");
        check(AccessLevel::Search, "scxd");
        check(AccessLevel::Read, "rscxd");
        check(AccessLevel::Add, "arscxd");
        check(AccessLevel::Delete, "zrscxd");
        check(AccessLevel::Increment, "irscxd");
        check(AccessLevel::Write, "wrscxd");
        check(AccessLevel::Manage, "mwrscxd");
    }
}
