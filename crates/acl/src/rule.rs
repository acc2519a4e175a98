//! The typed form of one `access to ...` line, as written: names are not yet looked up in a schema.
//!
//! The grammar is slapd.access(5)'s:
//! `access to <what> [by <who> [<access>] [<control>]]+`.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::privilege::Grant;
use super::subject::Operation;

/// One access directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRule {
    /// The `{n}` in front of an olcAccess value.
    pub index: Option<i32>,
    pub what: What,
    /// In order; never empty.
    pub by: Vec<ByClause>,
    /// The line as it was given, without `access` and `{n}`.
    pub text: String,
}

/// What a rule speaks about; all parts must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct What {
    pub dn: TargetDn,
    /// An RFC 4515 filter.
    pub filter: Option<String>,
    /// Empty: all attributes, `entry` and `children`.
    pub attributes: Vec<AttributeSelector>,
    /// Only with exactly one attribute.
    pub value: Option<ValuePattern>,
    /// `op=` (OpenLDAP 2.7)
    pub operation: Option<OperationPattern>,
    /// `control=` (OpenLDAP 2.7): an OID, or a macro for one.
    pub control: Option<String>,
}

/// The kind of request a rule speaks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationPattern {
    Add,
    Bind,
    Compare,
    Delete,
    /// Any extended operation.
    AnyExtended,
    Modify,
    Rename,
    Search,
    /// `read`: search and compare.
    Read,
    /// `write`: add, delete, modify and rename.
    Write,
    /// Everything.
    All,
    /// An extended operation, by its OID or a macro for it.
    Extended(String),
}

impl OperationPattern {
    const NAMES: [(&'static str, Self); 12] = [
        ("add", Self::Add),
        ("bind", Self::Bind),
        ("compare", Self::Compare),
        ("delete", Self::Delete),
        ("extended", Self::AnyExtended),
        ("modify", Self::Modify),
        ("rename", Self::Rename),
        ("modrdn", Self::Rename),
        ("search", Self::Search),
        ("read", Self::Read),
        ("write", Self::Write),
        ("all", Self::All),
    ];

    /// A name as `restrict` has them, or else an OID.
    pub(super) fn parse(text: &str) -> Self {
        let named = Self::NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        named.map_or_else(|| Self::Extended(text.to_owned()), |(_, pattern)| pattern.clone())
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Extended(oid) => oid,
            _ => Self::NAMES.iter().find(|(_, pattern)| pattern == self).map_or("", |(name, _)| name),
        }
    }

    pub(super) fn is(&self, operation: &Operation) -> bool {
        match operation {
            _ if *self == Self::All => true,
            Operation::Bind => *self == Self::Bind,
            Operation::Add => matches!(self, Self::Add | Self::Write),
            Operation::Delete => matches!(self, Self::Delete | Self::Write),
            Operation::Modify => matches!(self, Self::Modify | Self::Write),
            Operation::Rename => matches!(self, Self::Rename | Self::Write),
            Operation::Search => matches!(self, Self::Search | Self::Read),
            Operation::Compare => matches!(self, Self::Compare | Self::Read),
            Operation::Extended(oid) => match self {
                Self::AnyExtended => true,
                Self::Extended(wanted) => wanted == oid,
                _ => false,
            },
        }
    }
}

/// Which entries a rule speaks about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TargetDn {
    #[default]
    Any,
    Scoped {
        scope: DnScope,
        dn: String,
    },
    /// A POSIX extended regular expression over the normalised DN.
    Regex(String),
}

/// Where a DN stands relative to a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnScope {
    Base,
    OneLevel,
    Subtree,
    Children,
    /// The pattern is the n-th ancestor; only in `by` clauses.
    Level(u32),
}

/// An element of `attrs=`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeSelector {
    /// An attribute description and its subtypes, or `entry`, `children`, or (the old way) an object class.
    Named(String),
    /// `-name`: that description alone, no subtypes.
    Exactly(String),
    /// `@class`: what the class requires or allows.
    Class(String),
    /// `!class`: what the class neither requires nor allows.
    NotClass(String),
}

/// The `val` part of `<what>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValuePattern {
    /// Instead of the attribute's equality rule.
    pub matching_rule: Option<String>,
    pub style: ValueStyle,
    pub text: String,
}

/// How the value of a rule's `val` is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueStyle {
    Exact,
    Regex,
    /// For values that are DNs.
    Scope(DnScope),
}

/// One `by <who> [<access>] [<control>]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByClause {
    /// All must match; never empty.
    pub who: Vec<Who>,
    /// The `self` or `realself` in front of the access: only for values that are the requester's own DN.
    pub own_value: Option<Identity>,
    pub grant: Grant,
    pub control: FlowControl,
}

/// Whether checking goes on after a clause matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlowControl {
    #[default]
    Stop,
    /// With the next clause of this rule.
    Continue,
    /// With the next rule.
    Break,
}

impl FlowControl {
    /// As rules have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Continue => "continue",
            Self::Break => "break",
        }
    }
}

/// Which of the two identities of a request is meant. They differ under proxied authorization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Identity {
    /// Whom the request acts as.
    #[default]
    Authorization,
    /// Who authenticated: the `real...` forms.
    Authentication,
}

/// One condition on the requester.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    Anyone,
    Anonymous(Identity),
    Users(Identity),
    /// Level 0: the entry itself. Positive: the n-th ancestor of the requester is the entry. Negative: the requester is the
    /// n-th ancestor of the entry.
    SelfEntry {
        identity: Identity,
        level: i32,
    },
    Dn {
        identity: Identity,
        pattern: DnPattern,
    },
    /// The requester is a value of this attribute of the entry.
    DnAttribute {
        identity: Identity,
        attribute: String,
    },
    Group {
        /// `groupOfNames` when not given.
        class: String,
        /// `member` when not given.
        attribute: String,
        expand: bool,
        group: String,
    },
    PeerName(PeerPattern),
    SockName(TextPattern),
    SockUrl(TextPattern),
    Domain(DomainPattern),
    Set {
        expand: bool,
        pattern: String,
    },
    StrengthFactor {
        layer: StrengthLayer,
        minimum: u32,
    },
    /// `dynacl/<name>[/<options>][.<style>][=<pattern>]`, and the old `aci`.
    Dynamic {
        name: String,
        options: Option<String>,
        pattern: Option<String>,
    },
}

/// The DNs that a clause or a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DnPattern {
    Scoped {
        scope: DnScope,
        dn: String,
        /// Whether `$n` in the DN stands for what the `<what>` matched.
        expand: bool,
    },
    Regex(String),
}

/// How the text names of a connection are compared, without regard to case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextPattern {
    Any,
    Exact(String),
    Expand(String),
    Regex(String),
}

/// The addresses that a clause is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerPattern {
    Text(TextPattern),
    Ipv4 { address: Ipv4Addr, mask: Ipv4Addr, port: Option<u16> },
    Ipv6 { address: Ipv6Addr, mask: Ipv6Addr, port: Option<u16> },
    Path(String),
}

/// The host names that a clause is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DomainPattern {
    Text(TextPattern),
    Subtree { domain: String, expand: bool },
}

/// Which layer a required strength (`ssf=` and its kin) is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrengthLayer {
    Overall,
    Transport,
    Tls,
    Sasl,
}

impl StrengthLayer {
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Overall => "ssf",
            Self::Transport => "transport_ssf",
            Self::Tls => "tls_ssf",
            Self::Sasl => "sasl_ssf",
        }
    }
}
