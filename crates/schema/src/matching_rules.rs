//! What a matching rule is, and all that there are.

use std::sync::LazyLock;

use crate::table::NameTable;

/// Which part of a substring assertion a piece is.
#[derive(Copy, Clone, Debug, Eq, Hash, PartialEq)]
pub enum SubstringPosition {
    Initial,
    Any,
    Final,
}

/// Where a rule can stand.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum RuleUse {
    Approximate,
    Equality,
    Ordering,
    Substring,
    /// In extensible filters only.
    Extensible,
}

/// A matching rule (RFC 4512 §4.1.3). There are no others than [`ALL_RULES`].
#[derive(Debug)]
pub struct MatchingRule {
    pub oid: &'static str,
    pub name: &'static str,
    /// Syntax of assertion values.
    pub syntax_oid: &'static str,
    pub usage: RuleUse,
    /// Whether extensible filters may name it.
    pub extensible: bool,
    /// Not listed in cn=Subschema.
    pub hidden: bool,
    /// Syntaxes of attribute values, beside `syntax_oid`, to which the rule applies.
    pub(crate) value_syntaxes: &'static [&'static str],
    pub(crate) normal: Normal,
}

impl PartialEq for MatchingRule {
    fn eq(&self, other: &Self) -> bool {
        self.oid == other.oid
    }
}

impl Eq for MatchingRule {}

/// How a rule makes keys.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Normal {
    Aci,
    Approximate,
    AttributeCertificateExact,
    Authz,
    BitAnd,
    BitOr,
    BitString,
    Boolean,
    CaseExact,
    CaseIgnore,
    /// Lines of a postal address.
    CaseIgnoreList,
    CertificateExact,
    CertificateListExact,
    Csn,
    CsnSid,
    Dn,
    DnOneLevel,
    DnSubordinate,
    DnSubtree,
    DnSuperior,
    GeneralizedTime,
    InChain,
    Integer,
    IntegerFirstComponent,
    /// A key word among those of the value.
    Keyword,
    NameAndOptionalUid,
    NumericString,
    ObjectClass,
    ObjectIdentifier,
    ObjectIdentifierFirstComponent,
    OctetString,
    Rdn,
    StringFirstComponent,
    Telephone,
    /// A rule that is known by name only: everything is Undefined.
    Unknown,
    Uuid,
    /// A word among those of the value.
    Word,
}

impl MatchingRule {
    /// The rule of approximate matches that goes with this equality rule; itself when there is none.
    pub fn approximate(&'static self) -> &'static Self {
        approximate(self)
    }
}

macro_rules! ldap {
    ($arc:literal) => {
        concat!("1.3.6.1.4.1.1466.115.121.1.", $arc)
    };
}

const DIRECTORY_STRING: &str = ldap!(15);
const SUBSTRING: &str = ldap!(58);
const INTEGER: &str = ldap!(27);
const DN: &str = ldap!(12);
const IA5: &str = ldap!(26);
const OID: &str = ldap!(38);
const UUID: &str = "1.3.6.1.1.16.1";
const CSN: &str = "1.3.6.1.4.1.4203.666.11.2.1";

/// Country, printable and telephone number strings are directory strings, too.
const STRINGS: &[&str] = &[ldap!(11), ldap!(44), ldap!(50)];
const DESCRIPTIONS: &[&str] = &[ldap!(3), ldap!(16), ldap!(54), ldap!(30), ldap!(31), ldap!(35), ldap!(37)];

/// Extensible; hidden.
const X: u8 = 1;
const H: u8 = 2;

const fn rule(
    oid: &'static str,
    name: &'static str,
    syntax_oid: &'static str,
    usage: RuleUse,
    normal: Normal,
    flags: u8,
    value_syntaxes: &'static [&'static str],
) -> MatchingRule {
    let (extensible, hidden) = (flags & X != 0, flags & H != 0);
    MatchingRule { oid, name, syntax_oid, usage, extensible, hidden, value_syntaxes, normal }
}

use Normal as N;
use RuleUse::{Approximate, Equality, Extensible, Ordering, Substring};

/// Every matching rule there is. cn=Subschema lists them from the last to the first.
#[rustfmt::skip]
pub static ALL_RULES: &[MatchingRule] = &[
    rule("1.3.6.1.4.1.4203.666.4.4", "directoryStringApproxMatch", DIRECTORY_STRING, Approximate, N::Approximate, X | H, STRINGS),
    rule("1.3.6.1.4.1.4203.666.4.5", "IA5StringApproxMatch", IA5, Approximate, N::Approximate, X | H, &[]),
    rule("2.5.13.0", "objectIdentifierMatch", OID, Equality, N::ObjectIdentifier, X, &[]),
    rule("2.5.13.1", "distinguishedNameMatch", DN, Equality, N::Dn, X, &[]),
    rule("1.2.36.79672281.1.13.3", "rdnMatch", "1.2.36.79672281.1.5.0", Equality, N::Rdn, X, &[]),
    rule("2.5.13.2", "caseIgnoreMatch", DIRECTORY_STRING, Equality, N::CaseIgnore, X, STRINGS),
    rule("2.5.13.3", "caseIgnoreOrderingMatch", DIRECTORY_STRING, Ordering, N::CaseIgnore, X, STRINGS),
    rule("2.5.13.4", "caseIgnoreSubstringsMatch", SUBSTRING, Substring, N::CaseIgnore, 0, STRINGS),
    rule("2.5.13.5", "caseExactMatch", DIRECTORY_STRING, Equality, N::CaseExact, X, STRINGS),
    rule("2.5.13.6", "caseExactOrderingMatch", DIRECTORY_STRING, Ordering, N::CaseExact, X, STRINGS),
    rule("2.5.13.7", "caseExactSubstringsMatch", SUBSTRING, Substring, N::CaseExact, 0, STRINGS),
    rule("2.5.13.8", "numericStringMatch", ldap!(36), Equality, N::NumericString, X, &[]),
    rule("2.5.13.9", "numericStringOrderingMatch", ldap!(36), Ordering, N::NumericString, X, &[]),
    rule("2.5.13.10", "numericStringSubstringsMatch", SUBSTRING, Substring, N::NumericString, 0, &[]),
    rule("2.5.13.11", "caseIgnoreListMatch", ldap!(41), Equality, N::CaseIgnoreList, X, &[]),
    rule("2.5.13.12", "caseIgnoreListSubstringsMatch", SUBSTRING, Substring, N::CaseIgnoreList, 0, &[]),
    rule("2.5.13.13", "booleanMatch", ldap!(7), Equality, N::Boolean, X, &[]),
    rule("2.5.13.14", "integerMatch", INTEGER, Equality, N::Integer, X, &[]),
    rule("2.5.13.15", "integerOrderingMatch", INTEGER, Ordering, N::Integer, X, &[]),
    rule("2.5.13.16", "bitStringMatch", ldap!(6), Equality, N::BitString, X, &[]),
    rule("2.5.13.17", "octetStringMatch", ldap!(40), Equality, N::OctetString, X, &[]),
    rule("2.5.13.18", "octetStringOrderingMatch", ldap!(40), Ordering, N::OctetString, X, &[]),
    rule("2.5.13.19", "octetStringSubstringsMatch", ldap!(40), Substring, N::OctetString, 0, &[]),
    rule("2.5.13.20", "telephoneNumberMatch", ldap!(50), Equality, N::Telephone, X, &[]),
    rule("2.5.13.21", "telephoneNumberSubstringsMatch", SUBSTRING, Substring, N::Telephone, 0, &[]),
    rule("2.5.13.22", "presentationAddressMatch", ldap!(43), Equality, N::Unknown, X | H, &[]),
    rule("2.5.13.23", "uniqueMemberMatch", ldap!(34), Equality, N::NameAndOptionalUid, X, &[]),
    rule("2.5.13.24", "protocolInformationMatch", ldap!(42), Equality, N::Unknown, X | H, &[]),
    rule("2.5.13.27", "generalizedTimeMatch", ldap!(24), Equality, N::GeneralizedTime, X, &[]),
    rule("2.5.13.28", "generalizedTimeOrderingMatch", ldap!(24), Ordering, N::GeneralizedTime, X, &[]),
    rule("2.5.13.29", "integerFirstComponentMatch", INTEGER, Equality, N::IntegerFirstComponent, X, &[ldap!(17)]),
    rule("2.5.13.30", "objectIdentifierFirstComponentMatch", OID, Equality, N::ObjectIdentifierFirstComponent, X, DESCRIPTIONS),
    rule("2.5.13.31", "directoryStringFirstComponentMatch", DIRECTORY_STRING, Equality, N::StringFirstComponent, X | H, DESCRIPTIONS),
    rule("2.5.13.32", "wordMatch", DIRECTORY_STRING, Equality, N::Word, X | H, STRINGS),
    rule("2.5.13.33", "keywordMatch", DIRECTORY_STRING, Equality, N::Keyword, X | H, STRINGS),
    rule("2.5.13.34", "certificateExactMatch", "1.3.6.1.1.15.1", Equality, N::CertificateExact, X, &[ldap!(8)]),
    rule("2.5.13.35", "certificateMatch", "1.3.6.1.1.15.2", Equality, N::Unknown, X | H, &[]),
    rule("2.5.13.38", "certificateListExactMatch", "1.3.6.1.1.15.5", Equality, N::CertificateListExact, X, &[ldap!(9)]),
    rule("2.5.13.39", "certificateListMatch", "1.3.6.1.1.15.6", Equality, N::Unknown, X | H, &[]),
    rule("2.5.13.45", "attributeCertificateExactMatch", "1.3.6.1.4.1.4203.666.11.10.2.2", Equality, N::AttributeCertificateExact, X | H, &["1.3.6.1.4.1.4203.666.11.10.2.1"]),
    rule("2.5.13.46", "attributeCertificateMatch", "1.3.6.1.4.1.4203.666.11.10.2.3", Equality, N::Unknown, X | H, &[]),
    rule("1.3.6.1.4.1.1466.109.114.1", "caseExactIA5Match", IA5, Equality, N::CaseExact, X, &[ldap!(11)]),
    rule("1.3.6.1.4.1.1466.109.114.2", "caseIgnoreIA5Match", IA5, Equality, N::CaseIgnore, X, &[ldap!(11)]),
    rule("1.3.6.1.4.1.1466.109.114.3", "caseIgnoreIA5SubstringsMatch", IA5, Substring, N::CaseIgnore, 0, &[]),
    rule("1.3.6.1.4.1.4203.1.2.1", "caseExactIA5SubstringsMatch", IA5, Substring, N::CaseExact, 0, &[]),
    rule("1.2.840.113556.1.4.803", "integerBitAndMatch", INTEGER, Extensible, N::BitAnd, X, &[]),
    rule("1.2.840.113556.1.4.804", "integerBitOrMatch", INTEGER, Extensible, N::BitOr, X, &[]),
    rule("1.2.840.113556.1.4.1941", "distinguishedNameInChainMatch", DN, Extensible, N::InChain, X, &[ldap!(34)]),
    rule("1.3.6.1.1.16.2", "UUIDMatch", UUID, Equality, N::Uuid, X, &[]),
    rule("1.3.6.1.1.16.3", "UUIDOrderingMatch", UUID, Ordering, N::Uuid, X, &[]),
    rule("1.3.6.1.4.1.4203.666.11.2.2", "CSNMatch", CSN, Equality, N::Csn, H, &[]),
    rule("1.3.6.1.4.1.4203.666.11.2.3", "CSNOrderingMatch", CSN, Ordering, N::Csn, X | H, &[]),
    rule("1.3.6.1.4.1.4203.666.11.2.5", "CSNSIDMatch", "1.3.6.1.4.1.4203.666.11.2.4", Equality, N::CsnSid, X | H, &[CSN]),
    rule("1.3.6.1.4.1.4203.666.4.8", "dnOneLevelMatch", DN, Extensible, N::DnOneLevel, X | H, &[]),
    rule("1.3.6.1.4.1.4203.666.4.9", "dnSubtreeMatch", DN, Extensible, N::DnSubtree, X | H, &[]),
    rule("1.3.6.1.4.1.4203.666.4.10", "dnSubordinateMatch", DN, Extensible, N::DnSubordinate, X | H, &[]),
    rule("1.3.6.1.4.1.4203.666.4.11", "dnSuperiorMatch", DN, Extensible, N::DnSuperior, X | H, &[]),
    rule("1.3.6.1.4.1.4203.666.4.2", "OpenLDAPaciMatch", "1.3.6.1.4.1.4203.666.2.1", Equality, N::Aci, H, &[]),
    rule("1.3.6.1.4.1.4203.666.4.12", "authzMatch", "1.3.6.1.4.1.4203.666.2.7", Equality, N::Authz, H, &[]),
    rule("1.3.6.1.4.1.4203.666.4.13", "privateKeyMatch", "1.2.840.113549.1.8.1.1", Equality, N::OctetString, H, &[]),
];

/// objectIdentifierMatch as it works on object classes.
static OBJECT_CLASS: MatchingRule =
    rule("2.5.13.0", "objectIdentifierMatch", OID, Equality, N::ObjectClass, X, &[]);

pub(crate) fn object_class_rule() -> &'static MatchingRule {
    &OBJECT_CLASS
}

pub(crate) fn find(name_or_oid: &str) -> Option<&'static MatchingRule> {
    static BY_NAME: LazyLock<NameTable<&'static MatchingRule>> = LazyLock::new(|| {
        let mut table = NameTable::default();
        for rule in ALL_RULES {
            table.insert(rule.oid, rule);
            table.insert(rule.name, rule);
        }
        table
    });
    BY_NAME.get(name_or_oid).copied()
}

/// The approximate rule that stands behind an equality rule.
fn approximate(rule: &'static MatchingRule) -> &'static MatchingRule {
    let name = match rule.name {
        "caseIgnoreMatch" | "caseExactMatch" => "directoryStringApproxMatch",
        "caseIgnoreIA5Match" | "caseExactIA5Match" => "IA5StringApproxMatch",
        _ => return rule,
    };
    find(name).unwrap_or(rule)
}
