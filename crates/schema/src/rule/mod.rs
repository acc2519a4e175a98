//! Matching rules: keys under which equal values are equal bytes (RFC 4517 §4, and OpenLDAP's own rules).

mod approximate;
mod normal;
mod number;

use std::cmp::Ordering;

use crate::error::InvalidValue;
use crate::matching_rules::{MatchingRule, Normal, RuleUse, SubstringPosition};
use crate::prep::Position;
use crate::schema::Schema;
use crate::truth::Match;

impl MatchingRule {
    /// Appends the key of an attribute value. Equal values have equal keys; the byte order of an ordering rule's keys,
    /// and of the equality rules of numbers, times, UUIDs and CSNs, is the order of the values.
    pub fn normalize_value(
        &self,
        schema: &Schema,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), InvalidValue> {
        self.normal.value(schema, value, out)
    }

    /// Appends the key of an assertion value, to be compared with keys of values.
    pub fn normalize_assertion(
        &self,
        schema: &Schema,
        assertion: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), InvalidValue> {
        self.normal.assertion(schema, assertion, out)
    }

    /// Appends the key of a piece of a substring assertion, to be searched for in keys of values.
    pub(crate) fn normalize_substring(
        &self,
        _schema: &Schema,
        piece: &[u8],
        position: SubstringPosition,
        out: &mut Vec<u8>,
    ) -> Result<(), InvalidValue> {
        let position = match position {
            SubstringPosition::Initial => Position::Initial,
            SubstringPosition::Any => Position::Any,
            SubstringPosition::Final => Position::Final,
        };
        self.normal.substring(piece, position, out)
    }

    /// The normal form as text, as it stands in normalised DNs; where OpenLDAP knows one it is OpenLDAP's.
    ///
    /// # Errors
    /// A value that is none of the rule's syntax.
    pub fn normalize_text(
        &self,
        schema: &Schema,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), InvalidValue> {
        self.normal.text(schema, value, out)
    }

    /// Emits the keys under which an equality index files `value`: its key, and for object classes the keys of all
    /// superclasses too, since an assertion of a superclass matches.
    pub fn index_keys(
        &self,
        schema: &Schema,
        value: &[u8],
        emit: &mut dyn FnMut(&[u8]),
    ) -> Result<(), InvalidValue> {
        if self.normal == Normal::ObjectClass
            && let Some(class) = std::str::from_utf8(value).ok().and_then(|name| schema.object_class(name))
        {
            class.ancestry().iter().for_each(|&id| emit(schema.class(id).oid.as_bytes()));
            return Ok(());
        }
        let mut key = Vec::with_capacity(value.len());
        self.normalize_value(schema, value, &mut key)?;
        emit(&key);
        Ok(())
    }

    /// Whether [`Self::index_keys`] may give more than the key of the value.
    pub fn has_several_index_keys(&self) -> bool {
        self.normal == Normal::ObjectClass
    }

    /// Raised when this rule alone makes other keys than before; 0 for a rule that never did. What is stored by an
    /// earlier revision is of no use.
    pub const fn revision(&self) -> u32 {
        match self.normal {
            // 1: the number of a value, the spelling of its DN and `dn.exact` are not in the key any more. 2: `group.exact` and the
            // spelling of a URL.
            Normal::Authz => 2,
            _ => 0,
        }
    }

    /// Whether every value has the same key by both rules.
    pub fn normalizes_as(&self, other: &Self) -> bool {
        self.normal == other.normal
    }

    /// Whether an assertion is true of a value exactly when an [index key](Self::index_keys) of the value is the key of
    /// the assertion.
    pub fn indexable_equality(&self) -> bool {
        self.usage == RuleUse::Equality && self.normal.is_key()
    }

    /// Whether a value that matches approximately has, in its key, all words of the assertion's key.
    pub fn indexable_approx(&self) -> bool {
        self.normal != Normal::NameAndOptionalUid
    }

    /// Compares the key of a value with the key of an assertion, approximately: [`Self::compare_keys`], but that a
    /// name with a unique identifier is like the name without one.
    pub(crate) fn compare_approximately(
        &self,
        schema: &Schema,
        value_key: &[u8],
        assertion_key: &[u8],
    ) -> Match {
        match self.normal {
            Normal::NameAndOptionalUid => normal::is_like_name_and_uid(value_key, assertion_key).into(),
            _ => self.compare_keys(schema, value_key, assertion_key),
        }
    }

    /// Whether this is LDAP_MATCHING_RULE_IN_CHAIN: the engine follows the chain, here only its first link matches.
    pub fn is_in_chain(&self) -> bool {
        self.normal == Normal::InChain
    }

    /// Whether keys of `other` are keys of this rule, so that one index can serve both.
    pub fn shares_keys_with(&self, other: &Self) -> bool {
        self.normal == other.normal
    }

    /// Whether the rule can be used on values of the syntax.
    pub fn applies_to(&self, syntax_oid: &str) -> bool {
        self.syntax_oid == syntax_oid || self.value_syntaxes.contains(&syntax_oid)
    }

    /// Compares the key of a value with the key of an assertion under this rule.
    pub fn compare_keys(&self, schema: &Schema, value_key: &[u8], assertion_key: &[u8]) -> Match {
        let holds = match self.normal {
            Normal::ObjectClass => return normal::compare_classes(schema, value_key, assertion_key),
            Normal::Approximate => approximate::words_match(value_key, assertion_key),
            // RFC 4517 leaves open what a word and what a key word is: letters and digits; what commas and spaces part.
            Normal::Word => has_word(value_key, assertion_key, |c| !c.is_alphanumeric()),
            Normal::Keyword => has_word(value_key, assertion_key, |c| c == ' ' || c == ',' || c == ';'),
            Normal::BitAnd => number::bits(value_key, assertion_key, |value, bits| value & bits == bits),
            Normal::BitOr => number::bits(value_key, assertion_key, |value, bits| value & bits != 0),
            Normal::DnSubtree => {
                value_key == assertion_key || normal::is_subordinate(value_key, assertion_key)
            }
            Normal::DnSubordinate => normal::is_subordinate(value_key, assertion_key),
            Normal::DnSuperior => normal::is_subordinate(assertion_key, value_key),
            Normal::DnOneLevel => normal::parent(value_key) == Some(assertion_key),
            _ if self.usage == RuleUse::Ordering => value_key.cmp(assertion_key) == Ordering::Less,
            _ => value_key == assertion_key,
        };
        if holds { Match::True } else { Match::False }
    }
}

fn has_word(value_key: &[u8], word: &[u8], part: fn(char) -> bool) -> bool {
    std::str::from_utf8(value_key).is_ok_and(|value| value.split(part).any(|found| found.as_bytes() == word))
}

pub use approximate::approximate_words;

#[cfg(test)]
mod tests;
