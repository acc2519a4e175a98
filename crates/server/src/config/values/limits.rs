//! Search limits: sizelimit, timelimit and limits.

use super::ConfigDn;

/// Limits of one search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SearchLimits {
    pub time: TimeLimit,
    pub size: SizeLimit,
}

/// Seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimit {
    pub soft: Soft,
    pub hard: Hard,
}

impl Default for TimeLimit {
    fn default() -> Self {
        Self { soft: Soft::At(3600), hard: Hard::AsSoft }
    }
}

/// Entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimit {
    pub soft: Soft,
    pub hard: Hard,
    /// Candidates that may be examined.
    pub unchecked: Unchecked,
    /// Entries on one page; `None`: no limit.
    pub page: Option<u32>,
    /// `size.pr=noEstimate`: no count in the paged results response.
    pub hide_estimate: bool,
    /// Entries in all pages together.
    pub paged_total: PagedTotal,
}

impl Default for SizeLimit {
    fn default() -> Self {
        Self {
            soft: Soft::At(500),
            hard: Hard::AsSoft,
            unchecked: Unchecked::Unlimited,
            page: None,
            hide_estimate: false,
            paged_total: PagedTotal::AsHard,
        }
    }
}

/// What holds when the client asks for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Soft {
    Unlimited,
    At(u32),
}

/// The most a client may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hard {
    AsSoft,
    Unlimited,
    At(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unchecked {
    Unlimited,
    /// No search that needs a check of candidates.
    Disabled,
    At(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PagedTotal {
    AsHard,
    Unlimited,
    /// The paged results control is refused.
    Disabled,
    At(u32),
}

/// One `limits <who> <limit>...` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitRule {
    pub subject: LimitSubject,
    /// The section's limits with this line's changes applied.
    pub limits: SearchLimits,
}

/// Whom a `limits` line is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitSubject {
    Any,
    Anonymous,
    Users,
    /// `dn[.self].exact=` and the other styles; `this`: the search base rather than the client.
    Dn {
        this: bool,
        style: DnStyle,
        pattern: String,
    },
    Group {
        class: String,
        attribute: String,
        dn: ConfigDn,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnStyle {
    Exact,
    OneLevel,
    Subtree,
    Children,
    Regex,
}
