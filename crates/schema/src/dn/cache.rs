//! Names that came before: the base of most searches, and what one client asks about again and again. Each thread remembers the normal
//! form of some, by the text.
//!
//! A name is remembered when it comes for the second time: names that come once cost no more than their hash.

use std::cell::RefCell;

use super::NormalDn;
use crate::schema::Schema;

/// Names that a thread remembers, each in the place that its hash gives.
const NAMES: usize = 256;
/// Longer ones are not remembered.
const NAME_BYTES_MAX: usize = 256;

#[derive(Default)]
struct CachedName {
    /// Of the last name that came to this place.
    hash: u64,
    /// The [instance](Schema::instance) of the schema.
    schema: u64,
    text: String,
    /// `None`: the name came once.
    name: Option<NormalDn>,
}

thread_local! {
    /// Made with the first name.
    static CACHE: RefCell<Vec<CachedName>> = const { RefCell::new(Vec::new()) };
}

/// The hash of a text, for [`recall`] and [`note`]; `None`: it is too long to be remembered.
pub(super) fn hash(text: &str) -> Option<u64> {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    if text.is_empty() || text.len() > NAME_BYTES_MAX {
        return None;
    }
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let mut hash = text.len() as u64;
    let mut mix = |word: u64| hash = (hash.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    words.iter().for_each(|word| mix(u64::from_le_bytes(*word)));
    // The last eight, of which some were mixed in before.
    match text.as_bytes().last_chunk() {
        Some(last) => mix(u64::from_le_bytes(*last)),
        None => mix(rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte))),
    }
    Some(hash ^ hash >> 32)
}

/// The normal form of a name that is remembered.
pub(super) fn recall(schema: &Schema, text: &str, hash: u64) -> Option<NormalDn> {
    CACHE.with_borrow(|all| {
        let cached = all.get(hash as usize % NAMES)?;
        let is_it = cached.hash == hash && cached.schema == schema.instance && cached.text == text;
        if is_it { cached.name.clone() } else { None }
    })
}

/// Notes a name that was not remembered.
pub(super) fn note(schema: &Schema, text: &str, hash: u64, name: &NormalDn) {
    CACHE.with_borrow_mut(|all| {
        if all.is_empty() {
            all.resize_with(NAMES, CachedName::default);
        }
        let Some(cached) = all.get_mut(hash as usize % NAMES) else { return };
        if cached.hash != hash {
            (cached.hash, cached.name) = (hash, None);
            return;
        }
        cached.text.clear();
        cached.text.push_str(text);
        (cached.schema, cached.name) = (schema.instance, Some(name.clone()));
    });
}
