//! Why a rule cannot be put in force.

use std::fmt;

/// What looking up a part of a rule comes to.
pub(super) type Outcome<T> = Result<T, AccessPolicyFault>;

/// A rule that cannot be put in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessPolicyError {
    /// The rule, as written.
    pub rule: String,
    pub fault: AccessPolicyFault,
}

impl AccessPolicyError {
    /// Where in the rule's text the fault is, in bytes from 1, if the value at fault stands there as it is.
    pub fn column(&self) -> Option<usize> {
        let value = self.fault.value()?;
        self.rule.find(value).map(|at| at + 1)
    }
}

impl fmt::Display for AccessPolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "access rule `{}`: {}", self.rule, self.fault)
    }
}

impl std::error::Error for AccessPolicyError {}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessPolicyFault {
    UnknownAttribute {
        name: String,
        why: String,
    },
    UnknownClass(String),
    UnknownMatchingRule(String),
    MatchingRuleNotForAttribute {
        rule: String,
        attribute: String,
    },
    BadDn {
        dn: String,
        why: String,
    },
    BadFilter {
        filter: String,
        why: String,
    },
    BadRegex {
        pattern: String,
        why: String,
    },
    BadValue {
        value: String,
        attribute: String,
    },
    NotDnSyntax(String),
    ValueOfPseudoAttribute(String),
    NoEqualityRule(String),
    GroupAttributeNotAllowed {
        class: String,
        attribute: String,
    },
    NotAciSyntax(String),
    /// `dynacl/<name>` of a name that is not known.
    UnknownDynamic(String),
    UnknownOid(String),
}

impl AccessPolicyFault {
    fn value(&self) -> Option<&str> {
        match self {
            Self::UnknownAttribute { name: value, .. }
            | Self::UnknownClass(value)
            | Self::UnknownMatchingRule(value)
            | Self::MatchingRuleNotForAttribute { rule: value, .. }
            | Self::BadDn { dn: value, .. }
            | Self::BadFilter { filter: value, .. }
            | Self::BadRegex { pattern: value, .. }
            | Self::BadValue { value, .. }
            | Self::NotDnSyntax(value)
            | Self::ValueOfPseudoAttribute(value)
            | Self::NoEqualityRule(value)
            | Self::NotAciSyntax(value)
            | Self::UnknownDynamic(value)
            | Self::UnknownOid(value)
            | Self::GroupAttributeNotAllowed { attribute: value, .. } => Some(value),
        }
    }
}

impl fmt::Display for AccessPolicyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownAttribute { name, why } => write!(f, "attribute `{name}`: {why}"),
            Self::UnknownClass(name) => write!(f, "object class `{name}` is not defined"),
            Self::UnknownMatchingRule(name) => write!(f, "matching rule `{name}` is not defined"),
            Self::MatchingRuleNotForAttribute { rule, attribute } => {
                write!(f, "matching rule `{rule}` does not apply to `{attribute}`")
            }
            Self::BadDn { dn, why } => write!(f, "bad DN `{dn}`: {why}"),
            Self::BadFilter { filter, why } => write!(f, "bad filter `{filter}`: {why}"),
            Self::BadRegex { pattern, why } => write!(f, "bad regular expression `{pattern}`: {why}"),
            Self::BadValue { value, attribute } => write!(f, "`{value}` is no value of `{attribute}`"),
            Self::NotDnSyntax(name) => write!(f, "the values of `{name}` are not DNs"),
            Self::ValueOfPseudoAttribute(name) => write!(f, "`{name}` has no values"),
            Self::NoEqualityRule(name) => write!(f, "attribute `{name}` has no equality rule"),
            Self::GroupAttributeNotAllowed { class, attribute } => {
                write!(f, "object class `{class}` does not allow `{attribute}`")
            }
            Self::NotAciSyntax(name) => write!(f, "the values of `{name}` are not ACIs"),
            Self::UnknownDynamic(name) => {
                write!(f, "dynamic access control `{name}` is not known; there is `aci`")
            }
            Self::UnknownOid(name) => write!(f, "`{name}` is neither an OID nor a name of one"),
        }
    }
}
