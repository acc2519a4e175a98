//! What a syntax is, and those that are there from the start: RFC 4517 §3.3, RFC 2307, RFC 4523, RFC 4530 and OpenLDAP's own.

use std::fmt;
use std::sync::Arc;

use crate::clauses::{Extensions, write_description, write_extensions};

/// How values of a syntax are checked and written.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum SyntaxKind {
    /// OpenLDAP's experimental ACI.
    Aci,
    AttributeCertificate,
    AttributeCertificateExactAssertion,
    Authz,
    Ber,
    BitString,
    Boolean,
    BootParameter,
    Certificate,
    CertificateExactAssertion,
    CertificateList,
    CertificateListExactAssertion,
    CountryString,
    Csn,
    CsnSid,
    /// A definition of a schema element.
    Definition,
    DeliveryMethod,
    DirectoryString,
    DistinguishedName,
    EnhancedGuide,
    GeneralizedTime,
    Guide,
    Ia5String,
    Integer,
    NameAndOptionalUid,
    /// No value is valid.
    Nothing,
    NetgroupTriple,
    NumericString,
    /// The OID syntax where it names object classes (objectClass, structuralObjectClass).
    ObjectClassName,
    OctetString,
    Oid,
    PostalAddress,
    PrintableString,
    /// Printable strings with dollar signs between them.
    PrintableStrings,
    PrivateKey,
    Rdn,
    Sequence,
    SubstringAssertion,
    TeletexTerminalIdentifier,
    /// Known by OID, but not checked; OpenLDAP refuses attribute values of such syntaxes.
    Unchecked,
    UtcTime,
    Utf8String,
    Uuid,
}

/// An LDAP syntax (RFC 4512 §4.1.5).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Syntax {
    pub oid: String,
    pub description: Option<String>,
    pub kind: SyntaxKind,
    /// Values go with the `;binary` option (RFC 4522).
    pub binary_transfer: bool,
    /// Values are not text.
    pub human_readable: bool,
    /// Not listed in cn=Subschema.
    pub hidden: bool,
    pub extensions: Extensions,
}

impl Syntax {
    /// Whether values name entries: DNs, and DNs with an optional UID.
    pub fn is_dn(&self) -> bool {
        matches!(self.kind, SyntaxKind::DistinguishedName | SyntaxKind::NameAndOptionalUid)
    }
}

impl fmt::Display for Syntax {
    /// The description as text (RFC 4512 §4.1.5).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "( {}", self.oid)?;
        write_description(f, self.description.as_deref())?;
        write_extensions(f, &self.extensions)?;
        f.write_str(" )")
    }
}

use SyntaxKind as Kind;

/// Value travels with `;binary`; value is not text; syntax is not listed in cn=Subschema.
const B: u8 = 1;
const N: u8 = 2;
const H: u8 = 4;

/// Arc of 1.3.6.1.4.1.1466.115.121.1, description, kind, flags.
#[rustfmt::skip]
const LDAP: &[(u32, &str, Kind, u8)] = &[
    (1, "ACI Item", Kind::Unchecked, B | N | H),
    (2, "Access Point", Kind::Unchecked, N | H),
    (3, "Attribute Type Description", Kind::Definition, H),
    (4, "Audio", Kind::OctetString, N),
    (5, "Binary", Kind::Ber, N),
    (6, "Bit String", Kind::BitString, 0),
    (7, "Boolean", Kind::Boolean, 0),
    (8, "Certificate", Kind::Certificate, B | N),
    (9, "Certificate List", Kind::CertificateList, B | N),
    (10, "Certificate Pair", Kind::Sequence, B | N),
    (12, "Distinguished Name", Kind::DistinguishedName, 0),
    (13, "Data Quality", Kind::Unchecked, H),
    (14, "Delivery Method", Kind::DeliveryMethod, 0),
    (15, "Directory String", Kind::DirectoryString, 0),
    (16, "DIT Content Rule Description", Kind::Definition, H),
    (17, "DIT Structure Rule Description", Kind::Definition, H),
    (19, "DSA Quality", Kind::Unchecked, H),
    (20, "DSE Type", Kind::Unchecked, H),
    (21, "Enhanced Guide", Kind::EnhancedGuide, H),
    (22, "Facsimile Telephone Number", Kind::PrintableStrings, 0),
    (23, "Fax", Kind::OctetString, N | H),
    (24, "Generalized Time", Kind::GeneralizedTime, 0),
    (25, "Guide", Kind::Guide, H),
    (26, "IA5 String", Kind::Ia5String, 0),
    (27, "Integer", Kind::Integer, 0),
    (28, "JPEG", Kind::OctetString, N),
    (29, "Master And Shadow Access Points", Kind::Unchecked, H),
    (30, "Matching Rule Description", Kind::Definition, H),
    (31, "Matching Rule Use Description", Kind::Definition, H),
    (32, "Mail Preference", Kind::Unchecked, H),
    (33, "MHS OR Address", Kind::Unchecked, H),
    (34, "Name And Optional UID", Kind::NameAndOptionalUid, 0),
    (35, "Name Form Description", Kind::Definition, H),
    (36, "Numeric String", Kind::NumericString, 0),
    (37, "Object Class Description", Kind::Definition, H),
    (38, "OID", Kind::Oid, 0),
    (39, "Other Mailbox", Kind::Ia5String, 0),
    (40, "Octet String", Kind::OctetString, 0),
    (41, "Postal Address", Kind::PostalAddress, 0),
    (42, "Protocol Information", Kind::Unchecked, H),
    (43, "Presentation Address", Kind::Unchecked, H),
    (44, "Printable String", Kind::PrintableString, 0),
    (11, "Country String", Kind::CountryString, 0),
    (45, "SubtreeSpecification", Kind::Utf8String, 0),
    (49, "Supported Algorithm", Kind::Ber, B | N),
    (50, "Telephone Number", Kind::PrintableString, 0),
    (51, "Teletex Terminal Identifier", Kind::TeletexTerminalIdentifier, H),
    (52, "Telex Number", Kind::PrintableStrings, 0),
    (53, "UTC Time", Kind::UtcTime, H),
    (54, "LDAP Syntax Description", Kind::Definition, H),
    (55, "Modify Rights", Kind::Unchecked, H),
    (56, "LDAP Schema Definition", Kind::Unchecked, H),
    (57, "LDAP Schema Description", Kind::Unchecked, H),
    (58, "Substring Assertion", Kind::SubstringAssertion, H),
];

#[rustfmt::skip]
const OTHERS: &[(&str, &str, Kind, u8)] = &[
    ("1.3.6.1.4.1.4203.666.11.10.2.1", "X.509 AttributeCertificate", Kind::AttributeCertificate, B | N),
    ("1.2.36.79672281.1.5.0", "RDN", Kind::Rdn, 0),
    ("1.3.6.1.1.1.0.0", "RFC2307 NIS Netgroup Triple", Kind::NetgroupTriple, 0),
    ("1.3.6.1.1.1.0.1", "RFC2307 Boot Parameter", Kind::BootParameter, 0),
    ("1.3.6.1.1.15.1", "Certificate Exact Assertion", Kind::CertificateExactAssertion, H),
    ("1.3.6.1.1.15.2", "Certificate Assertion", Kind::Unchecked, H),
    ("1.3.6.1.1.15.3", "Certificate Pair Exact Assertion", Kind::Unchecked, H),
    ("1.3.6.1.1.15.4", "Certificate Pair Assertion", Kind::Unchecked, H),
    ("1.3.6.1.1.15.5", "Certificate List Exact Assertion", Kind::CertificateListExactAssertion, H),
    ("1.3.6.1.1.15.6", "Certificate List Assertion", Kind::Unchecked, H),
    ("1.3.6.1.1.15.7", "Algorithm Identifier", Kind::Unchecked, H),
    ("1.3.6.1.4.1.4203.666.11.10.2.2", "AttributeCertificate Exact Assertion",
        Kind::AttributeCertificateExactAssertion, H),
    ("1.3.6.1.4.1.4203.666.11.10.2.3", "AttributeCertificate Assertion", Kind::Unchecked, H),
    ("1.3.6.1.1.16.1", "UUID", Kind::Uuid, 0),
    ("1.3.6.1.4.1.4203.666.11.2.1", "CSN", Kind::Csn, H),
    ("1.3.6.1.4.1.4203.666.11.2.4", "CSN SID", Kind::CsnSid, H),
    ("1.3.6.1.4.1.4203.1.1.1", "OpenLDAP void", Kind::Nothing, H),
    ("1.3.6.1.4.1.4203.666.2.1", "OpenLDAP Experimental ACI", Kind::Aci, H),
    ("1.3.6.1.4.1.4203.666.2.7", "OpenLDAP authz", Kind::Authz, H),
    ("1.2.840.113549.1.8.1.1", "PKCS#8 PrivateKeyInfo", Kind::PrivateKey, B),
];

/// Whether the syntax is one of [`system_syntaxes`].
pub(crate) fn is_system_syntax(oid: &str) -> bool {
    let arc = oid.strip_prefix("1.3.6.1.4.1.1466.115.121.1.").and_then(|arc| arc.parse::<u32>().ok());
    arc.is_some_and(|arc| LDAP.iter().any(|row| row.0 == arc)) || OTHERS.iter().any(|row| row.0 == oid)
}

/// All syntaxes that need no definition.
pub(crate) fn system_syntaxes() -> Vec<Arc<Syntax>> {
    let ldap = LDAP.iter().map(|&(arc, description, kind, flags)| {
        syntax(format!("1.3.6.1.4.1.1466.115.121.1.{arc}"), description, kind, flags)
    });
    let others = OTHERS
        .iter()
        .map(|&(oid, description, kind, flags)| syntax(oid.to_owned(), description, kind, flags));
    ldap.chain(others).collect()
}

fn syntax(oid: String, description: &str, kind: Kind, flags: u8) -> Arc<Syntax> {
    let mut extensions = Extensions::default();
    // A PKCS#8 key takes `;binary` but OpenLDAP does not announce it.
    if flags & B != 0 && flags & N != 0 {
        extensions.push("X-BINARY-TRANSFER-REQUIRED".to_owned(), vec!["TRUE".to_owned()]);
    }
    if flags & N != 0 {
        extensions.push("X-NOT-HUMAN-READABLE".to_owned(), vec!["TRUE".to_owned()]);
    }
    Arc::new(Syntax {
        oid,
        description: Some(description.to_owned()),
        kind,
        binary_transfer: flags & B != 0,
        human_readable: flags & N == 0,
        hidden: flags & H != 0,
        extensions,
    })
}
