//! What values mean: attribute types, object classes, syntaxes and matching rules (RFC 4512, RFC 4517), string
//! preparation (RFC 4518), normal forms of distinguished names, and filters bound to all of these.
//!
//! A [`Schema`] is immutable; [`SchemaBuilder`] extends one at a cost that depends on what is added, not on what is
//! there. Everything is interned: at run time attribute types and object classes are numbers.

mod builder;
mod bundled;
pub mod csn;
pub mod definition;
mod description;
mod dn;
mod error;
mod filter;
mod model;
pub mod prep;
mod rule;
mod schema;
mod subschema;
mod syntax;
mod table;
pub mod time;

pub use builder::SchemaBuilder;
pub use bundled::{BUNDLED, bundled};
pub use description::{AttributeDescription, AttributeOptions, DescriptionError};
pub use dn::{DnError, NormalDn, NormalRdn, escape_value};
pub use error::{InvalidValue, SchemaError, SchemaErrorKind};
pub use filter::{
    AssertedValue, BindError, BoundAssertion, BoundExtensible, BoundFilter, BoundSubstrings, Match, Scratch,
};
pub use model::{
    AttributeType, AttributeTypeId, ClassKind, ContentRule, Extensions, ObjectClass, ObjectClassId, Usage,
};
pub use rule::{ALL_RULES, MatchingRule, RuleUse, SubstringPosition, approximate_words};
pub use schema::Schema;
pub use subschema::SubschemaAttribute;
pub use syntax::{Syntax, SyntaxKind};
