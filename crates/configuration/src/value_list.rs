//! The values of an attribute of cn=config, in blocks that configurations share: adding a value behind ten thousand
//! others copies and writes one block.

use std::iter::FlatMap;
use std::slice;
use std::sync::{Arc, OnceLock};

use super::text::Piece;
use larix_backend::memory_tree::ordered_parts;

/// Values of a block.
const BLOCK: usize = 64;

/// Values in their order. Cloning costs a counter for each block; equality looks into blocks only that are not shared.
#[derive(Debug, Clone, Default)]
pub struct ValueList {
    /// All but the last are full.
    blocks: Vec<Arc<Block>>,
}

#[derive(Debug, Default)]
struct Block {
    values: Vec<Vec<u8>>,
    /// The place of the first value, if all say the next place each.
    numbered: OnceLock<Option<usize>>,
    /// As LDIF under a description.
    text: OnceLock<(String, Arc<Piece>)>,
}

impl Clone for Block {
    /// What is known of the block is not known of what the clone becomes.
    fn clone(&self) -> Self {
        let mut values = Vec::with_capacity(BLOCK);
        values.extend_from_slice(&self.values);
        Self { values, ..Self::default() }
    }
}

impl Block {
    fn numbered(&self) -> Option<usize> {
        let number = |value: &Vec<u8>| {
            let (number, _) = ordered_parts(value)?;
            std::str::from_utf8(number.get(1..number.len() - 1)?).ok()?.parse::<usize>().ok()
        };
        *self.numbered.get_or_init(|| {
            let first = number(self.values.first()?)?;
            let follows = |(place, value): (usize, &Vec<u8>)| number(value) == Some(first + place);
            self.values.iter().enumerate().all(follows).then_some(first)
        })
    }
}

impl ValueList {
    pub const NONE: Self = Self { blocks: Vec::new() };

    pub fn iter(&self) -> Values<'_> {
        let values: fn(&Arc<Block>) -> slice::Iter<'_, Vec<u8>> = |block| block.values.iter();
        Values(self.blocks.iter().flat_map(values))
    }

    pub fn len(&self) -> usize {
        let last = self.blocks.last().map_or(0, |block| block.values.len());
        self.blocks.len().saturating_sub(1) * BLOCK + last
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub fn first(&self) -> Option<&Vec<u8>> {
        self.blocks.first()?.values.first()
    }

    pub fn last(&self) -> Option<&Vec<u8>> {
        self.blocks.last()?.values.last()
    }

    pub fn contains(&self, value: &[u8]) -> bool {
        self.iter().any(|other| other == value)
    }

    pub fn to_vec(&self) -> Vec<Vec<u8>> {
        self.iter().cloned().collect()
    }

    /// Those behind the first `count`, without a look at these.
    pub fn behind(&self, count: usize) -> impl Iterator<Item = &Vec<u8>> {
        let blocks = self.blocks.get(count / BLOCK..).unwrap_or_default();
        blocks.iter().flat_map(|block| block.values.iter()).skip(count % BLOCK)
    }

    pub fn starts_with(&self, other: &Self) -> bool {
        let shared = self.blocks.iter().zip(&other.blocks).take_while(|(a, b)| Arc::ptr_eq(a, b)).count();
        let mut own = self.behind(shared * BLOCK);
        self.len() >= other.len() && other.behind(shared * BLOCK).all(|value| own.next() == Some(value))
    }

    pub fn push(&mut self, value: Vec<u8>) {
        match self.blocks.last_mut() {
            Some(last) if last.values.len() < BLOCK => {
                let last = Arc::make_mut(last);
                (last.numbered, last.text) = Default::default();
                last.values.push(value);
            }
            _ => self.blocks.push(Arc::new(Block { values: vec![value], ..Block::default() })),
        }
    }

    /// Whether each value says its place, `{0}` and on.
    pub(super) fn is_numbered(&self) -> bool {
        self.blocks.iter().enumerate().all(|(at, block)| block.numbered() == Some(at * BLOCK))
    }

    /// The values as text, piece by piece; what `write` made of a block of many is kept for the next time.
    pub(super) fn pieces(&self, description: &str, write: impl Fn(&[Vec<u8>]) -> Piece) -> Vec<Arc<Piece>> {
        let piece = |block: &Arc<Block>| {
            if self.blocks.len() == 1 {
                return Arc::new(write(&block.values));
            }
            let (known, text) =
                block.text.get_or_init(|| (description.to_owned(), Arc::new(write(&block.values))));
            if known == description { Arc::clone(text) } else { Arc::new(write(&block.values)) }
        };
        self.blocks.iter().map(piece).collect()
    }
}

type OfBlock<'a> = fn(&'a Arc<Block>) -> slice::Iter<'a, Vec<u8>>;

/// The values of a [`ValueList`].
#[derive(Debug, Clone)]
pub struct Values<'a>(FlatMap<slice::Iter<'a, Arc<Block>>, slice::Iter<'a, Vec<u8>>, OfBlock<'a>>);

impl<'a> Iterator for Values<'a> {
    type Item = &'a Vec<u8>;

    fn next(&mut self) -> Option<&'a Vec<u8>> {
        self.0.next()
    }
}

impl<'a> IntoIterator for &'a ValueList {
    type Item = &'a Vec<u8>;
    type IntoIter = Values<'a>;

    fn into_iter(self) -> Values<'a> {
        self.iter()
    }
}

impl PartialEq for ValueList {
    fn eq(&self, other: &Self) -> bool {
        let same = |(a, b): (&Arc<Block>, &Arc<Block>)| Arc::ptr_eq(a, b) || a.values == b.values;
        self.blocks.len() == other.blocks.len() && self.blocks.iter().zip(&other.blocks).all(same)
    }
}

impl Eq for ValueList {}

impl<const N: usize> PartialEq<[Vec<u8>; N]> for &ValueList {
    fn eq(&self, other: &[Vec<u8>; N]) -> bool {
        self.iter().eq(other)
    }
}

impl FromIterator<Vec<u8>> for ValueList {
    fn from_iter<I: IntoIterator<Item = Vec<u8>>>(values: I) -> Self {
        let mut blocks = Vec::new();
        let mut values = values.into_iter().peekable();
        while values.peek().is_some() {
            let values: Vec<_> = values.by_ref().take(BLOCK).collect();
            blocks.push(Arc::new(Block { values, ..Block::default() }));
        }
        Self { blocks }
    }
}

impl From<Vec<Vec<u8>>> for ValueList {
    fn from(values: Vec<Vec<u8>>) -> Self {
        values.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    fn list(range: Range<usize>) -> ValueList {
        range.map(|n| format!("{{{n}}}v{n}").into_bytes()).collect()
    }

    #[test]
    fn a_list_is_what_was_put_in() {
        for count in [0, 1, 63, 64, 65, 128, 200] {
            let whole = list(0..count);
            let mut grown = ValueList::default();
            whole.iter().for_each(|value| grown.push(value.clone()));
            assert_eq!(whole, grown);
            assert_eq!((whole.len(), whole.is_empty()), (count, count == 0));
            assert_eq!(
                whole.last().cloned(),
                count.checked_sub(1).map(|n| format!("{{{n}}}v{n}").into_bytes())
            );
            assert!(whole.is_numbered());
            for other in [0, 1, 63, 64, 65, 199] {
                let before = list(0..other);
                assert_eq!(whole.starts_with(&before), other <= count, "{other} of {count}");
                assert_eq!(whole.behind(other).count(), count.saturating_sub(other));
            }
        }
        assert!(!list(1..3).is_numbered());
        let mut gap = list(0..64);
        gap.push(b"{65}v".to_vec());
        assert!(!gap.is_numbered());
    }

    #[test]
    fn adding_shares_all_blocks_but_the_last() {
        let before = list(0..1_000);
        let mut after = before.clone();
        after.push(b"{1000}v".to_vec());
        let shared = before.blocks.iter().zip(&after.blocks).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
        assert_eq!(shared, 1_000 / BLOCK);
        assert_eq!((before.len(), after.len()), (1_000, 1_001));
        assert!(after.starts_with(&before) && before != after);
    }

    #[test]
    fn text_is_kept_under_its_description_only() {
        let write = |name: &'static str| {
            move |values: &[Vec<u8>]| Piece::new(format!("{name} {}", values.len()).into())
        };
        let mut values = list(0..100);
        let text = |values: &ValueList, name: &'static str| -> Vec<String> {
            let pieces = values.pieces(name, write(name));
            pieces.iter().map(|piece| String::from_utf8_lossy(piece.bytes()).into_owned()).collect()
        };
        assert_eq!(text(&values, "a"), ["a 64", "a 36"]);
        assert_eq!(text(&values, "b"), ["b 64", "b 36"]);
        values.push(Vec::new());
        assert_eq!(text(&values, "a"), ["a 64", "a 37"]);
    }
}
