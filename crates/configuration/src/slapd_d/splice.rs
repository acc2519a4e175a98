//! A large file that changes little: what differs is written into its place, so that one definition behind ten thousand
//! costs what one behind ten does.
//!
//! Nothing but bytes at their places, so that doing it again, or half of it, leads to the same file. For as long as one
//! write takes, another program may read some of the old bytes with some of the new ones.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use super::super::text::{Piece, Text};
use super::commit::split_line;

/// Files of fewer bytes are written anew.
const LARGE_BYTES: usize = 32 * 1024;
/// What differs is at most this part of a file.
const PART: usize = 4;

/// Bytes that come in places of a file, which may grow and does not shrink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Splice {
    length_before: u64,
    length: u64,
    /// Offsets and what stands there, ascending.
    spans: Vec<(u64, Vec<u8>)>,
}

impl Splice {
    /// Whether a file that becomes this may be worth it.
    pub(super) fn is_for(after: &Text) -> bool {
        after.len() >= LARGE_BYTES
    }

    /// `None`: the whole file had better be written.
    pub(super) fn between(before: &Text, after: &Text) -> Option<Self> {
        let (length_before, length) = (before.len(), after.len());
        if !Self::is_for(after) || length < length_before {
            return None;
        }
        let mut spans: Vec<(u64, Vec<u8>)> = Vec::new();
        let (mut at, mut tail) = (0_u64, false);
        let mut old = before.pieces().iter();
        for new in after.pieces() {
            let old: Option<&Arc<Piece>> = old.next();
            // Behind the first piece of another length nothing stands where it stood.
            tail |= old.is_none_or(|old| old.bytes().len() != new.bytes().len());
            if tail || old.is_none_or(|old| !Arc::ptr_eq(old, new) && old.bytes() != new.bytes()) {
                match spans.last_mut() {
                    Some((start, bytes)) if *start + bytes.len() as u64 == at => {
                        bytes.extend_from_slice(new.bytes());
                    }
                    _ => spans.push((at, new.bytes().to_vec())),
                }
            }
            at += new.bytes().len() as u64;
        }
        let differing: usize = spans.iter().map(|(_, bytes)| bytes.len()).sum();
        let splice = Self { length_before: length_before as u64, length: length as u64, spans };
        (differing <= length / PART).then_some(splice)
    }

    /// Whether a file is of this length and checksum. A file that was edited by hand is written anew as a whole.
    pub(super) fn stands(file: &Path, text: &Text) -> bool {
        let Some(header) = text.parts().next() else { return false };
        let mut found = vec![0; header.len()];
        File::open(file).is_ok_and(|mut open| {
            open.metadata().is_ok_and(|metadata| metadata.len() == text.len() as u64)
                && open.read_exact(&mut found).is_ok()
                && found == header
        })
    }

    pub(super) fn spans(&self) -> &[(u64, Vec<u8>)] {
        &self.spans
    }

    /// # Errors
    /// Another program wrote the file since: it has a length that this procedure cannot produce.
    pub(super) fn check_length(&self, found: u64) -> io::Result<()> {
        if (self.length_before..=self.length).contains(&found) {
            return Ok(());
        }
        let text = format!(
            "it has {found} bytes and not {} to {}: it was edited after larix.journal was written; put it back, \
             or remove larix.journal to keep it without the last change",
            self.length_before, self.length
        );
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    }

    /// What the file holds then.
    ///
    /// # Errors
    /// As [`Self::check_length`].
    pub(super) fn apply(&self, file: &mut Vec<u8>) -> io::Result<()> {
        self.check_length(file.len() as u64)?;
        let too_long = || io::Error::from(io::ErrorKind::FileTooLarge);
        file.resize(usize::try_from(self.length).map_err(|_| too_long())?, 0);
        for (at, bytes) in &self.spans {
            let at = usize::try_from(*at).map_err(|_| too_long())?;
            let place = file.get_mut(at..at + bytes.len()).ok_or_else(too_long)?;
            place.copy_from_slice(bytes);
        }
        Ok(())
    }

    /// This and then another one, as one. `None`: that one is not of the file that this one leaves.
    pub(super) fn then(self, second: Self) -> Option<Self> {
        if self.length != second.length_before {
            return None;
        }
        let first = self.spans.into_iter().flat_map(|span| uncovered(span, &second.spans));
        let mut spans: Vec<(u64, Vec<u8>)> = first.collect();
        spans.extend(second.spans);
        spans.sort_by_key(|(at, _)| *at);
        Some(Self { length_before: self.length_before, length: second.length, spans })
    }

    /// `splice BEFORE LENGTH COUNT PATH`, the file's lengths and how many spans follow, each `OFFSET LENGTH` with its
    /// bytes.
    pub(super) fn to_journal(&self, path: &str) -> Vec<u8> {
        let Self { length_before, length, spans } = self;
        let mut text = format!("splice {length_before} {length} {} {path}\n", spans.len()).into_bytes();
        for (at, bytes) in spans {
            text.extend_from_slice(format!("{at} {}\n", bytes.len()).as_bytes());
            text.extend_from_slice(bytes);
        }
        text
    }

    /// From what stands behind `splice ` in its line, and what follows: with the path, and what comes behind it all.
    pub(super) fn from_journal<'a>(line: &'a str, mut rest: &'a [u8]) -> Option<(Self, &'a str, &'a [u8])> {
        let mut words = line.splitn(4, ' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (length_before, length, count) = (number()?, number()?, number()?);
        let path = words.next()?;
        let mut spans = Vec::new();
        for _ in 0..count {
            let (line, after) = split_line(rest)?;
            let (at, bytes) = line.split_once(' ')?;
            let at = at.parse::<u64>().ok()?;
            let (bytes, after) = after.split_at_checked(bytes.parse().ok()?)?;
            if at.checked_add(bytes.len() as u64)? > length {
                return None;
            }
            spans.push((at, bytes.to_vec()));
            rest = after;
        }
        Some((Self { length_before, length, spans }, path, rest))
    }
}

/// What of a span others, ascending, do not write over.
fn uncovered(span: (u64, Vec<u8>), covers: &[(u64, Vec<u8>)]) -> Vec<(u64, Vec<u8>)> {
    let (mut at, mut bytes) = span;
    let mut rest = Vec::new();
    let offset = |from: u64, to: u64| usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
    for (start, cover) in covers {
        let ahead = offset(at, *start).min(bytes.len());
        let covered = offset(at, start + cover.len() as u64).min(bytes.len());
        let tail = bytes.split_off(covered);
        bytes.truncate(ahead);
        if !bytes.is_empty() {
            rest.push((at, bytes));
        }
        at += covered as u64;
        bytes = tail;
    }
    if !bytes.is_empty() {
        rest.push((at, bytes));
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pieces: &[Vec<u8>]) -> Text {
        let mut text = Text::default();
        pieces.iter().for_each(|piece| text.push(piece.clone()));
        text
    }

    /// Spans of what changes in twenty pieces of 4 KiB, if it is worth it.
    #[test]
    fn what_differs_is_what_is_written() {
        let many: Vec<Vec<u8>> = (0..20).map(|number| vec![number; 4_096]).collect();
        type Case<'c> = (&'c str, &'c dyn Fn(&mut Vec<Vec<u8>>), Option<&'c [(u64, usize)]>);
        let cases: [Case<'_>; 7] = [
            ("nothing", &|_| (), Some(&[])),
            ("the first", &|all| all[0] = vec![b'x'; 4_096], Some(&[(0, 4_096)])),
            ("one in the middle", &|all| all[9][7] = b'x', Some(&[(9 * 4_096, 4_096)])),
            ("the last grows", &|all| all[19].push(b'x'), Some(&[(19 * 4_096, 4_097)])),
            ("two more", &|all| all.extend([vec![1], vec![2]]), Some(&[(20 * 4_096, 2)])),
            ("one in front grows", &|all| all[3].push(b'x'), None),
            ("shorter", &|all| drop(all.pop()), None),
        ];
        for (name, change, expected) in cases {
            let (before, mut after) = (text(&many), many.clone());
            change(&mut after);
            let after = text(&after);
            let splice = Splice::between(&before, &after);
            let spans = splice.as_ref().map(|splice| {
                splice.spans().iter().map(|(at, bytes)| (*at, bytes.len())).collect::<Vec<_>>()
            });
            assert_eq!(spans.as_deref(), expected, "{name}");
            let Some(splice) = splice else { continue };
            let journal = splice.to_journal("a b");
            let (line, rest) = split_line(&journal).unwrap();
            let read = Splice::from_journal(line.strip_prefix("splice ").unwrap(), rest);
            assert_eq!(read, Some((splice.clone(), "a b", &b""[..])), "{name}");
            // Done again, and done to what is half done.
            for start in [before.to_vec(), after.to_vec()] {
                let mut file = start;
                splice.apply(&mut file).unwrap();
                assert!(file == after.to_vec(), "{name}");
            }
        }
        let small = text(&[vec![0; 100]]);
        assert_eq!(Splice::between(&small, &small), None);
    }

    /// Two splices as one do what they do one after the other, also to a file that has something of both already.
    #[test]
    fn one_behind_another() {
        let spans = |all: &[(u64, &str)]| -> Vec<(u64, Vec<u8>)> {
            all.iter().map(|(at, bytes)| (*at, bytes.as_bytes().to_vec())).collect()
        };
        let start = b"0123456789".to_vec();
        let firsts: [&[(u64, &str)]; 4] =
            [&[], &[(0, "abcd")], &[(0, "a"), (3, "bcd"), (9, "ef")], &[(2, "abcdefghij")]];
        let seconds: [&[(u64, &str)]; 5] =
            [&[], &[(0, "X")], &[(1, "XY"), (5, "Z")], &[(4, "XYZXYZXYZ")], &[(0, "XXXXXXXXXXXXX")]];
        for first in firsts {
            for second in seconds {
                let end = |length: u64, all: &[(u64, &str)]| {
                    all.iter().map(|(at, bytes)| at + bytes.len() as u64).max().unwrap_or(0).max(length)
                };
                let middle = end(10, first);
                let one = Splice { length_before: 10, length: middle, spans: spans(first) };
                let other =
                    Splice { length_before: middle, length: end(middle, second), spans: spans(second) };
                let (mut half, mut wanted) = (start.clone(), start.clone());
                one.apply(&mut half).unwrap();
                one.apply(&mut wanted).unwrap();
                other.apply(&mut wanted).unwrap();
                let both = one.then(other).unwrap();
                let ordered = both.spans.is_sorted_by(|(a, bytes), (b, _)| a + bytes.len() as u64 <= *b);
                assert!(ordered, "{both:?}");
                for mut file in [start.clone(), half, wanted.clone()] {
                    both.apply(&mut file).unwrap();
                    assert_eq!(file, wanted, "{first:?} {second:?}");
                }
            }
        }
        let splice = |length_before, length| Splice { length_before, length, spans: Vec::new() };
        assert_eq!(splice(1, 2).then(splice(3, 4)), None);
    }

    #[test]
    fn a_file_of_another_length_is_not_touched() {
        let splice = Splice { length_before: 3, length: 5, spans: vec![(3, b"de".to_vec())] };
        for (start, expected) in
            [("ab", None), ("abc", Some("abcde")), ("abcd", Some("abcde")), ("abcdef", None)]
        {
            let mut file = start.as_bytes().to_vec();
            let done = splice.apply(&mut file).map(|()| String::from_utf8(file).unwrap());
            assert_eq!(done.ok().as_deref(), expected, "{start}");
        }
    }
}
