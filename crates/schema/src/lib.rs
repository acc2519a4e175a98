//! What values mean: attribute types, object classes, syntaxes and matching rules (RFC 4512, RFC 4517), string
//! preparation (RFC 4518), normal forms of distinguished names, and filters bound to all of these.
//!
//! A [`Schema`] is immutable; [`SchemaBuilder`] extends one at a cost that depends on what is added, not on what is
//! there. Everything is interned: at run time attribute types and object classes are numbers.

mod builder;
mod bundled;
mod clauses;
mod csn;
pub mod definition;
mod description;
mod dn;
mod error;
mod filter;
#[cfg(test)]
mod fixture;
mod lexical;
mod matching_rules;
mod model;
mod nearest;
mod options;
mod prep;
mod recent;
mod rule;
mod schema;
mod secret;
mod subschema;
mod syntax;
mod syntaxes;
mod table;
mod time;
mod truth;

pub use builder::SchemaBuilder;
pub use bundled::{BUNDLED, bundle_with, bundle_with_class, bundled};
pub use clauses::Extensions;
pub use description::{AttributeDescription, DescriptionError};
pub use dn::{DnError, MAX_DN_LENGTH, NormalDn, NormalRdn, escape_value};
pub use error::{InvalidValue, SchemaError, SchemaErrorKind};
pub use filter::{
    AssertedValue, BindError, BoundAssertion, BoundExtensible, BoundFilter, BoundSubstrings, Scratch,
};
pub use matching_rules::{ALL_RULES, MatchingRule, RuleUse, SubstringPosition};
pub use model::{AttributeType, AttributeTypeId, ClassKind, ContentRule, ObjectClass, ObjectClassId, Usage};
pub use nearest::NearestSuffix;
pub use options::AttributeOptions;
pub use rule::approximate_words;
pub use schema::Schema;
pub use secret::{SECRET_ATTRIBUTES, is_secret, is_secret_in};
pub use subschema::SubschemaAttribute;
pub use syntaxes::{Syntax, SyntaxKind};
pub use truth::Match;
