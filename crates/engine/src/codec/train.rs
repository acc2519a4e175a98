//! A dictionary out of records: the stretches that most of them share.
//!
//! As the COVER algorithm does it (Liao, Petri, Moffat, Wirth: "Effective Construction of Relative Lempel-Ziv
//! Dictionaries", 2016): a stretch is worth the number of records that have each of its short pieces, pieces that are in
//! the dictionary already are worth nothing any more, and each part of the sample gives its best stretch in turn. The
//! most valuable stretches stand at the end. The same records give the same dictionary.

use super::Dictionary;
use super::lz4::DICTIONARY_BYTES_MAX;
use crate::record::head_length;

/// Records that a dictionary is made of: more hardly make it better.
pub const SAMPLE_RECORDS: usize = 1_024;
/// Fewer are no sample.
pub const SAMPLE_RECORDS_MIN: usize = 256;
/// Bytes of a record that count.
const RECORD_BYTES: usize = 8 << 10;
/// Every so many records are held back, to try the dictionaries on.
const HELD_BACK: usize = 8;
/// Lengths of a stretch that are tried: short ones for records that have little in common.
const STRETCHES: [usize; 2] = [96, 512];
/// Length of a piece.
const PIECE: usize = 8;
const HASH_BITS: u32 = 19;
/// A dictionary that does not bring records below this share of what they take without it, in percent, is not worth
/// its trouble.
const WORTH_PERCENT: usize = 85;
/// So many bytes of records for each of the dictionary: with less it would be the records themselves.
const RECORDS_PER_DICTIONARY: usize = 8;

/// Makes a dictionary of plain records; `None` when they are too few, or when it would be little better than the one
/// that there is.
pub fn train<R: AsRef<[u8]>>(records: &[R], now: Option<&Dictionary>) -> Option<Dictionary> {
    if records.len() < SAMPLE_RECORDS_MIN {
        return None;
    }
    let step = records.len().div_ceil(SAMPLE_RECORDS);
    let bodies: Vec<(&[u8], usize)> = records
        .iter()
        .step_by(step)
        .filter_map(|record| {
            let record = record.as_ref();
            Some((record, head_length(record)?))
        })
        .collect();
    let (mut tried, mut taught) = (Vec::new(), Vec::new());
    for (at, (record, head)) in bodies.iter().enumerate() {
        if at % HELD_BACK == 0 {
            tried.push(*record);
        } else if let Some(body) = record.get(*head..) {
            taught.push(Sample::new(body.get(..RECORD_BYTES).unwrap_or(body)));
        }
    }
    let counts = Counts::new(&taught);
    let (dictionary, bytes) = STRETCHES
        .iter()
        .map(|stretch| Dictionary::new(&counts.clone().choose(&taught, *stretch)))
        .map(|dictionary| {
            let bytes = tried.iter().map(|record| packed_length(&dictionary, record)).sum::<usize>();
            (dictionary, bytes)
        })
        .min_by_key(|(_, bytes)| *bytes)?;
    let before: usize =
        tried.iter().map(|record| now.map_or(record.len(), |now| packed_length(now, record))).sum();
    (bytes * 100 < before * WORTH_PERCENT).then_some(dictionary)
}

fn packed_length(dictionary: &Dictionary, record: &[u8]) -> usize {
    let mut out = Vec::new();
    if dictionary.pack(0, record, &mut out) { out.len() } else { record.len() }
}

/// A record, and the hash of the piece at each of its places: they are asked for again and again.
struct Sample<'s> {
    bytes: &'s [u8],
    hashes: Box<[u32]>,
}

impl<'s> Sample<'s> {
    fn new(bytes: &'s [u8]) -> Self {
        Self { bytes, hashes: bytes.array_windows().map(hash).collect() }
    }
}

/// How many records have each piece, by its hash.
#[derive(Clone)]
struct Counts(Box<[u32]>);

impl Counts {
    fn new(samples: &[Sample<'_>]) -> Self {
        let mut counts = vec![0_u32; 1 << HASH_BITS].into_boxed_slice();
        // The last record that had the piece: one that has it twice counts once.
        let mut last = vec![0_u32; 1 << HASH_BITS];
        for (number, sample) in (1..).zip(samples) {
            for hash in &sample.hashes {
                let hash = *hash as usize;
                if let (Some(count), Some(last)) = (counts.get_mut(hash), last.get_mut(hash))
                    && *last != number
                {
                    *last = number;
                    *count += 1;
                }
            }
        }
        // What one record has alone is not worth a place.
        counts.iter_mut().filter(|count| **count < 2).for_each(|count| *count = 0);
        Self(counts)
    }

    fn of(&self, hash: u32) -> u64 {
        self.0.get(hash as usize).copied().unwrap_or_default().into()
    }

    fn choose(mut self, samples: &[Sample<'_>], stretch: usize) -> Vec<u8> {
        let most = samples.iter().map(|sample| sample.bytes.len()).sum::<usize>() / RECORDS_PER_DICTIONARY;
        let most = most.min(DICTIONARY_BYTES_MAX);
        let parts = (most / stretch).min(samples.len()).max(1);
        let mut chosen: Vec<(u64, &[u8])> = Vec::new();
        let (mut bytes, mut idle) = (0, 0);
        for part in samples.chunks(samples.len().div_ceil(parts).max(1)).cycle() {
            let best =
                part.iter().filter_map(|sample| self.best(sample, stretch)).max_by_key(|(value, _)| *value);
            match best {
                Some((value, best)) => {
                    best.array_windows().for_each(|piece| self.forget(hash(piece)));
                    bytes += best.len();
                    chosen.push((value, best));
                    idle = 0;
                }
                None => idle += 1,
            }
            if bytes >= most || idle >= parts {
                break;
            }
        }
        chosen.sort_by_key(|(value, _)| *value);
        let mut dictionary = chosen.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>().concat();
        dictionary.drain(..dictionary.len().saturating_sub(most));
        dictionary
    }

    /// The most valuable stretch of a record, without worthless ends.
    fn best<'s>(&self, sample: &Sample<'s>, stretch: usize) -> Option<(u64, &'s [u8])> {
        let Sample { bytes, hashes } = sample;
        let pieces = stretch.min(bytes.len()).checked_sub(PIECE - 1)?;
        let (first, rest) = hashes.split_at_checked(pieces)?;
        // A stretch at the beginning that is worth something is worth the most when it is whole.
        let mut value = first.iter().map(|piece| self.of(*piece)).sum::<u64>();
        let (mut best, mut start) = (value, 0);
        for (at, (piece, left)) in (1..).zip(rest.iter().zip(hashes)) {
            value = value + self.of(*piece) - self.of(*left);
            if value > best {
                (best, start) = (value, at);
            }
        }
        let mut bytes = bytes.get(start..)?;
        bytes = bytes.get(..stretch).unwrap_or(bytes);
        let is_worthless = |piece: Option<&[u8; PIECE]>| piece.is_some_and(|piece| self.of(hash(piece)) == 0);
        while bytes.len() > PIECE && is_worthless(bytes.first_chunk()) {
            bytes = bytes.get(1..)?;
        }
        while bytes.len() > PIECE && is_worthless(bytes.last_chunk()) {
            bytes = bytes.get(..bytes.len() - 1)?;
        }
        (best > 0).then_some((best, bytes))
    }

    fn forget(&mut self, hash: u32) {
        if let Some(count) = self.0.get_mut(hash as usize) {
            *count = 0;
        }
    }
}

fn hash(piece: &[u8; PIECE]) -> u32 {
    (u64::from_le_bytes(*piece).wrapping_mul(0x9e37_79b1_85eb_ca87) >> (64 - HASH_BITS)) as u32
}
