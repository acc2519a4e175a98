//! The elements of a schema as they stand once all names in them are resolved.

use std::fmt;
use std::sync::Arc;

use crate::clauses::{Extensions, write_description, write_extensions, write_flag, write_names, write_oids};
use crate::matching_rules::MatchingRule;
use crate::syntaxes::Syntax;

/// Number of an attribute type in its schema; it stays the same when the schema is extended.
#[derive(Copy, Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AttributeTypeId(pub u32);

/// Number of an object class in its schema; it stays the same when the schema is extended.
#[derive(Copy, Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectClassId(pub u32);

/// What an attribute is for (RFC 4512 §4.1.2).
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub enum Usage {
    #[default]
    UserApplications,
    DirectoryOperation,
    DistributedOperation,
    DsaOperation,
}

/// Kind of an object class (RFC 4512 §2.4).
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub enum ClassKind {
    Abstract,
    #[default]
    Structural,
    Auxiliary,
}

/// An attribute type with what it inherits (RFC 4512 §2.5.1).
#[derive(Clone, Debug)]
pub struct AttributeType {
    pub id: AttributeTypeId,
    pub oid: String,
    pub names: Vec<String>,
    pub description: Option<String>,
    pub obsolete: bool,
    pub superior: Option<AttributeTypeId>,
    /// Effective rules: the type's own or the nearest superior's.
    pub equality: Option<&'static MatchingRule>,
    pub ordering: Option<&'static MatchingRule>,
    pub substring: Option<&'static MatchingRule>,
    pub syntax: Arc<Syntax>,
    /// Whether assertions of the equality rule are of the type's own syntax, as nearly always: so nobody compares OIDs for each assertion.
    pub(crate) equality_has_own_syntax: bool,
    pub syntax_length: Option<u32>,
    pub single_value: bool,
    pub collective: bool,
    pub no_user_modification: bool,
    pub usage: Usage,
    pub extensions: Extensions,
    /// OpenLDAP keeps some of its own types out of cn=Subschema.
    pub hidden: bool,
    /// Self and all direct and indirect subtypes, ascending.
    pub(crate) subtypes: Vec<AttributeTypeId>,
    /// All direct and indirect superiors, nearest first.
    pub(crate) superiors: Vec<AttributeTypeId>,
    /// What the definition itself said, for its text.
    pub(crate) own: OwnClauses,
}

/// The inheritable clauses as the definition gave them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct OwnClauses {
    pub(crate) superior: Option<String>,
    pub(crate) equality: Option<String>,
    pub(crate) ordering: Option<String>,
    pub(crate) substring: Option<String>,
    pub(crate) syntax: bool,
}

impl AttributeType {
    /// First name, or the OID of a type without names: the name under which values are returned.
    pub fn name(&self) -> &str {
        self.names.first().unwrap_or(&self.oid)
    }

    /// Whether assertions of the rule are of the type's own syntax.
    pub(crate) fn is_syntax_of(&self, rule: &MatchingRule) -> bool {
        let is_equality = self.equality.is_some_and(|equality| std::ptr::eq(equality, rule));
        self.equality_has_own_syntax && is_equality || self.syntax.oid == rule.syntax_oid
    }

    /// Whether this is an operational attribute: any usage but userApplications.
    pub fn is_operational(&self) -> bool {
        self.usage != Usage::UserApplications
    }

    /// Whether values carry a `{n}` prefix that orders them (X-ORDERED 'VALUES').
    pub fn is_ordered_values(&self) -> bool {
        self.is_ordered("VALUES")
    }

    /// Whether the naming value orders sibling entries (X-ORDERED 'SIBLINGS').
    pub fn is_ordered_siblings(&self) -> bool {
        self.is_ordered("SIBLINGS")
    }

    fn is_ordered(&self, what: &str) -> bool {
        self.extensions.get("X-ORDERED").is_some_and(|v| v.iter().any(|v| v.eq_ignore_ascii_case(what)))
    }
}

impl fmt::Display for AttributeType {
    /// The description as text (RFC 4512 §4.1.2).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "( {}", self.oid)?;
        write_names(f, &self.names)?;
        write_description(f, self.description.as_deref())?;
        write_flag(f, "OBSOLETE", self.obsolete)?;
        for (keyword, value) in [
            ("SUP", &self.own.superior),
            ("EQUALITY", &self.own.equality),
            ("ORDERING", &self.own.ordering),
            ("SUBSTR", &self.own.substring),
        ] {
            if let Some(value) = value {
                write!(f, " {keyword} {value}")?;
            }
        }
        if self.own.syntax {
            write!(f, " SYNTAX {}", self.syntax.oid)?;
            if let Some(length) = self.syntax_length {
                write!(f, "{{{length}}}")?;
            }
        }
        write_flag(f, "SINGLE-VALUE", self.single_value)?;
        write_flag(f, "COLLECTIVE", self.collective)?;
        write_flag(f, "NO-USER-MODIFICATION", self.no_user_modification)?;
        f.write_str(match self.usage {
            Usage::UserApplications => "",
            Usage::DirectoryOperation => " USAGE directoryOperation",
            Usage::DistributedOperation => " USAGE distributedOperation",
            Usage::DsaOperation => " USAGE dSAOperation",
        })?;
        write_extensions(f, &self.extensions)?;
        f.write_str(" )")
    }
}

/// An object class (RFC 4512 §2.4).
#[derive(Clone, Debug)]
pub struct ObjectClass {
    pub id: ObjectClassId,
    pub oid: String,
    pub names: Vec<String>,
    pub description: Option<String>,
    pub obsolete: bool,
    pub kind: ClassKind,
    /// Direct superiors.
    pub superiors: Vec<ObjectClassId>,
    /// What the class itself requires and allows.
    pub must: Vec<AttributeTypeId>,
    pub may: Vec<AttributeTypeId>,
    pub extensions: Extensions,
    pub hidden: bool,
    /// With what all superiors require and allow; ascending.
    pub(crate) all_must: Vec<AttributeTypeId>,
    pub(crate) all_may: Vec<AttributeTypeId>,
    /// Self and all direct and indirect superiors, ascending.
    pub(crate) ancestry: Vec<ObjectClassId>,
    /// The names used in the definition, for its text.
    pub(crate) own: OwnReferences,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct OwnReferences {
    pub(crate) superiors: Vec<String>,
    pub(crate) auxiliary: Vec<String>,
    pub(crate) must: Vec<String>,
    pub(crate) may: Vec<String>,
    pub(crate) not: Vec<String>,
}

impl ObjectClass {
    /// First name, or the OID of a class without names.
    pub fn name(&self) -> &str {
        self.names.first().unwrap_or(&self.oid)
    }

    /// All attribute types that the class and its superiors require, ascending.
    pub fn all_must(&self) -> &[AttributeTypeId] {
        &self.all_must
    }

    /// All attribute types that the class and its superiors allow, ascending, without the required ones.
    pub fn all_may(&self) -> &[AttributeTypeId] {
        &self.all_may
    }

    /// Whether the class or a superior requires or allows `attribute` itself (its subtypes are not considered).
    pub fn allows(&self, attribute: AttributeTypeId) -> bool {
        self.all_must.binary_search(&attribute).is_ok() || self.all_may.binary_search(&attribute).is_ok()
    }

    /// The class itself and all its direct and indirect superiors, ascending.
    pub fn ancestry(&self) -> &[ObjectClassId] {
        &self.ancestry
    }
}

impl fmt::Display for ObjectClass {
    /// The description as text (RFC 4512 §4.1.1).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "( {}", self.oid)?;
        write_names(f, &self.names)?;
        write_description(f, self.description.as_deref())?;
        write_flag(f, "OBSOLETE", self.obsolete)?;
        write_oids(f, "SUP", &self.own.superiors)?;
        f.write_str(match self.kind {
            ClassKind::Abstract => " ABSTRACT",
            ClassKind::Structural => " STRUCTURAL",
            ClassKind::Auxiliary => " AUXILIARY",
        })?;
        write_oids(f, "MUST", &self.own.must)?;
        write_oids(f, "MAY", &self.own.may)?;
        write_extensions(f, &self.extensions)?;
        f.write_str(" )")
    }
}

/// A DIT content rule: what entries of one structural class may have beside it (RFC 4512 §4.1.6).
#[derive(Clone, Debug)]
pub struct ContentRule {
    /// The structural class governed.
    pub class: ObjectClassId,
    pub oid: String,
    pub names: Vec<String>,
    pub description: Option<String>,
    pub obsolete: bool,
    /// Auxiliary classes that may be present; all others may not.
    pub auxiliary: Vec<ObjectClassId>,
    pub must: Vec<AttributeTypeId>,
    pub may: Vec<AttributeTypeId>,
    pub not: Vec<AttributeTypeId>,
    pub extensions: Extensions,
    pub(crate) own: OwnReferences,
}

impl ContentRule {
    pub fn name(&self) -> &str {
        self.names.first().unwrap_or(&self.oid)
    }
}

impl fmt::Display for ContentRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "( {}", self.oid)?;
        write_names(f, &self.names)?;
        write_description(f, self.description.as_deref())?;
        write_flag(f, "OBSOLETE", self.obsolete)?;
        write_oids(f, "AUX", &self.own.auxiliary)?;
        write_oids(f, "MUST", &self.own.must)?;
        write_oids(f, "MAY", &self.own.may)?;
        write_oids(f, "NOT", &self.own.not)?;
        write_extensions(f, &self.extensions)?;
        f.write_str(" )")
    }
}
