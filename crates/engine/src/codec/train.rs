//! A dictionary out of records: the stretches that most of them share.
//!
//! As the COVER algorithm does it (Liao, Petri, Moffat, Wirth: "Effective Construction of Relative Lempel-Ziv
//! Dictionaries", 2016): a stretch is worth the number of records that have each of its short pieces, pieces that are in
//! the dictionary already are worth nothing any more, and each part of the sample gives its best stretch in turn. The
//! most valuable stretches stand at the end. The same records give the same dictionary.

use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;

use super::Dictionary;
use super::lz4::DICTIONARY_BYTES_MAX;
use crate::record::head_length;

/// Records that a dictionary is made of: more hardly make it better.
pub(crate) const SAMPLE_RECORDS: usize = 1_024;
/// Fewer are no sample.
pub(super) const SAMPLE_RECORDS_MIN: usize = 256;
/// Bytes of a record that count.
const RECORD_BYTES: usize = 8 << 10;
/// Every so many records are held back, to try the dictionaries on.
const HELD_BACK: usize = 8;
/// Lengths of a stretch that are tried: short ones for records that have little in common.
const STRETCHES: [usize; 2] = [96, 512];
/// Length of a piece.
const PIECE: usize = 8;
const HASH_BITS: u32 = 19;
const HASHES: usize = 1 << HASH_BITS;
/// A dictionary that does not bring records below this share of what they take without it, in percent, is not worth
/// its trouble.
const WORTH_PERCENT: usize = 85;
/// So many bytes of records for each of the dictionary: with less it would be the records themselves.
const RECORDS_PER_DICTIONARY: usize = 8;

// Records are numbered from 1 on, in 16 bits.
const _: () = assert!(SAMPLE_RECORDS < u16::MAX as usize);

/// Makes a dictionary of plain records in one go; `None` when they are too few, or when it would be of little use.
pub(crate) fn train<R: AsRef<[u8]>>(records: &[R]) -> Option<Dictionary> {
    let mut sample = Sample::default();
    let step = records.len().div_ceil(SAMPLE_RECORDS).max(1);
    records.iter().step_by(step).for_each(|record| sample.add(record.as_ref()));
    let mut training = Training::new(sample, None)?;
    loop {
        if let Poll::Ready(dictionary) = training.step(usize::MAX) {
            return dictionary;
        }
    }
}

/// Records that a dictionary is to be made of.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    taught: Vec<Taught>,
    /// Held back.
    tried: Vec<Box<[u8]>>,
    seen: usize,
}

impl Sample {
    /// Adds a plain record, of which 8 KiB count. What is beyond [`SAMPLE_RECORDS`] is not taken.
    pub(crate) fn add(&mut self, record: &[u8]) {
        let record = record.get(..RECORD_BYTES).unwrap_or(record);
        let Some(body) = head_length(record).and_then(|head| record.get(head..)) else { return };
        if self.seen >= SAMPLE_RECORDS {
            return;
        }
        if self.seen.is_multiple_of(HELD_BACK) {
            self.tried.push(record.into());
        } else {
            self.taught.push(Taught { bytes: body.into(), hashes: body.array_windows().map(hash).collect() });
        }
        self.seen += 1;
    }
}

/// A record without its head, and the hash of the piece at each of its places: they are asked for again and again.
#[derive(Debug)]
struct Taught {
    bytes: Box<[u8]>,
    hashes: Box<[u32]>,
}

/// A dictionary in the making, a step at a time: a writer makes one between its changes.
#[derive(Debug)]
pub(crate) struct Training {
    sample: Sample,
    /// What the new one has to be better than.
    now: Option<Arc<Dictionary>>,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Counting(Counting),
    Choosing(Choosing),
    Trying(Trying),
}

impl Training {
    /// `None`: the records are too few.
    pub(crate) fn new(sample: Sample, now: Option<Arc<Dictionary>>) -> Option<Self> {
        let is_enough = sample.seen >= SAMPLE_RECORDS_MIN;
        is_enough.then(|| Self { sample, now, work: Work::Counting(Counting::new()) })
    }

    /// Goes on by about so many bytes of records, and by less than 64 KiB more. Ready: with the dictionary, unless it would be little
    /// better than the one that there is. It is not to be called again then.
    pub(crate) fn step(&mut self, bytes: usize) -> Poll<Option<Dictionary>> {
        let mut remaining = bytes;
        while remaining > 0 {
            let done = match &mut self.work {
                Work::Counting(counting) => counting.step(&self.sample.taught),
                Work::Choosing(choosing) => choosing.step(&self.sample.taught),
                Work::Trying(trying) => trying.step(&self.sample.tried, self.now.as_deref()),
            };
            let Some(done) = done else {
                match self.next_work() {
                    Ok(next) => self.work = next,
                    Err(outcome) => return Poll::Ready(outcome),
                }
                continue;
            };
            remaining = remaining.saturating_sub(done);
        }
        Poll::Pending
    }

    /// What comes when the work in hand is done, or the outcome of it all.
    fn next_work(&mut self) -> Result<Work, Option<Dictionary>> {
        let taught = &self.sample.taught;
        Ok(match &mut self.work {
            Work::Counting(counting) => Work::Choosing(Choosing::new(taught, counting.counts())),
            Work::Choosing(choosing) => match choosing.next_stretch(taught) {
                Some(next) => Work::Choosing(next),
                None => Work::Trying(Trying::new(std::mem::take(&mut choosing.dictionaries))),
            },
            Work::Trying(trying) => return Err(trying.best()),
        })
    }
}

/// How many records have each piece, by its hash.
type Counts = Box<[u16]>;

/// Finds out [`Counts`].
#[derive(Debug)]
struct Counting {
    next: usize,
    pieces: Box<[Piece]>,
}

#[derive(Copy, Clone, Debug, Default)]
struct Piece {
    records: u16,
    /// The last record that had it, from 1 on: one that has it twice counts once.
    last: u16,
}

impl Counting {
    fn new() -> Self {
        Self { next: 0, pieces: vec![Piece::default(); HASHES].into_boxed_slice() }
    }

    /// Goes through one record. Answers its bytes; `None`: that was the last.
    fn step(&mut self, records: &[Taught]) -> Option<usize> {
        let record = records.get(self.next)?;
        self.next += 1;
        let number = self.next as u16;
        let pieces = self.pieces.first_chunk_mut::<HASHES>()?;
        for hash in &record.hashes {
            let piece = &mut pieces[place(*hash)];
            if piece.last != number {
                *piece = Piece { records: piece.records + 1, last: number };
            }
        }
        Some(record.bytes.len().max(1))
    }

    /// What one record has alone is not worth a place.
    fn counts(&self) -> Counts {
        self.pieces.iter().map(|piece| if piece.records < 2 { 0 } else { piece.records }).collect()
    }
}

/// Chooses stretches of one length.
#[derive(Debug)]
struct Choosing {
    /// What was counted, if another length comes.
    all_counts: Option<Counts>,
    /// Without the pieces that are in the dictionary already.
    counts: Counts,
    /// The lengths that are left behind this one.
    lengths: &'static [usize],
    stretch: usize,
    most: usize,
    parts: usize,
    part_records: usize,
    /// The first record of the next part.
    next: usize,
    chosen: Vec<Chosen>,
    bytes: usize,
    /// Parts one after the other without a stretch that is worth anything.
    idle: usize,
    /// What the best stretch of each record was worth when it was looked for last. It is not worth more since.
    bounds: Box<[i32]>,
    /// Room for what the pieces before each place of a record are worth together. Every x86-64 compares several signed numbers
    /// at once; the sums of 8 KiB are far below 2^31.
    sums: Vec<i32>,
    /// The dictionaries of the lengths before.
    dictionaries: Vec<Dictionary>,
}

/// A stretch of a record, and what it is worth.
#[derive(Debug)]
struct Chosen {
    value: i32,
    record: usize,
    place: Range<usize>,
}

impl Choosing {
    fn new(records: &[Taught], all_counts: Counts) -> Self {
        let [first, rest @ ..] = &STRETCHES;
        Self::of(records, all_counts, *first, rest)
    }

    fn of(records: &[Taught], all_counts: Counts, stretch: usize, lengths: &'static [usize]) -> Self {
        let most = records.iter().map(|record| record.bytes.len()).sum::<usize>() / RECORDS_PER_DICTIONARY;
        let most = most.min(DICTIONARY_BYTES_MAX);
        let parts = (most / stretch).min(records.len()).max(1);
        Self {
            all_counts: (!lengths.is_empty()).then(|| all_counts.clone()),
            counts: all_counts,
            lengths,
            stretch,
            most,
            parts,
            part_records: records.len().div_ceil(parts).max(1),
            next: 0,
            chosen: Vec::new(),
            bytes: 0,
            idle: 0,
            bounds: vec![i32::MAX; records.len()].into_boxed_slice(),
            sums: Vec::new(),
            dictionaries: Vec::new(),
        }
    }

    /// Goes through one part. Answers its bytes; `None`: nothing is left to be chosen.
    fn step(&mut self, records: &[Taught]) -> Option<usize> {
        if self.bytes >= self.most || self.idle >= self.parts || records.is_empty() {
            return None;
        }
        let part = self.next..(self.next + self.part_records).min(records.len());
        self.next = if part.end < records.len() { part.end } else { 0 };
        let mut bytes = 0;
        let mut best: Option<Chosen> = None;
        for at in part {
            let (Some(record), Some(bound)) = (records.get(at), self.bounds.get(at)) else { continue };
            let least = best.as_ref().map_or(1, |best| best.value);
            if *bound < least {
                continue;
            }
            bytes += record.bytes.len();
            let value = self.most_worth(record);
            self.bounds.get_mut(at).into_iter().for_each(|bound| *bound = value);
            if value >= least
                && let Some(place) = self.place_worth(value, record)
            {
                best = Some(Chosen { value, record: at, place });
            }
        }
        match best {
            Some(best) => {
                self.forget(records, &best);
                self.bytes += best.place.len();
                self.chosen.push(best);
                self.idle = 0;
            }
            None => self.idle += 1,
        }
        Some(bytes.max(1))
    }

    /// What the most valuable stretch of a record is worth.
    fn most_worth(&mut self, record: &Taught) -> i32 {
        let Some(counts) = self.counts.first_chunk::<HASHES>() else { return 0 };
        let mut sum = 0_i32;
        let sums = record.hashes.iter().map(|hash| {
            sum = i32::wrapping_add(sum, counts[place(*hash)].into());
            sum
        });
        self.sums.clear();
        self.sums.push(0);
        self.sums.extend(sums);
        self.worths(record).fold(0, i32::max)
    }

    /// What the stretch at each place of a record is worth. Its sums are there.
    fn worths(&self, record: &Taught) -> impl Iterator<Item = i32> {
        let behind = self.sums.get(self.pieces(record)..).unwrap_or_default();
        // The sums do not fall, so no difference overflows.
        behind.iter().zip(&self.sums).map(|(behind, before)| behind.wrapping_sub(*before))
    }

    /// Pieces of a stretch of a record.
    fn pieces(&self, record: &Taught) -> usize {
        self.stretch.min(record.bytes.len()).saturating_sub(PIECE - 1)
    }

    /// The first stretch of a record that is worth so much, without worthless ends. Its sums are there.
    fn place_worth(&self, value: i32, record: &Taught) -> Option<Range<usize>> {
        let start = self.worths(record).position(|worth| worth == value)?;
        let sums = self.sums.get(start..=start + self.pieces(record))?;
        let (first, last) = (sums.first()?, sums.last()?);
        let worthless = sums.iter().skip(1).take_while(|sum| *sum == first).count();
        let behind = sums.iter().rev().skip(1).take_while(|sum| *sum == last).count();
        Some(start + worthless..start + self.stretch.min(record.bytes.len()) - behind)
    }

    /// What is chosen is worth nothing any more.
    fn forget(&mut self, records: &[Taught], chosen: &Chosen) {
        let hashes = records.get(chosen.record).map(|record| &*record.hashes).unwrap_or_default();
        let pieces = chosen.place.start..chosen.place.end - (PIECE - 1);
        for hash in hashes.get(pieces).unwrap_or_default() {
            self.counts.get_mut(*hash as usize).into_iter().for_each(|count| *count = 0);
        }
    }

    /// Makes the dictionary of this length. `None`: it was the last one.
    fn next_stretch(&mut self, records: &[Taught]) -> Option<Self> {
        self.chosen.sort_by_key(|chosen| chosen.value);
        let stretches = self.chosen.iter().filter_map(|chosen| {
            let record = records.get(chosen.record)?;
            record.bytes.get(chosen.place.clone())
        });
        let mut bytes = stretches.collect::<Vec<_>>().concat();
        bytes.drain(..bytes.len().saturating_sub(self.most));
        self.dictionaries.push(Dictionary::new(&bytes));
        let (next, rest) = self.lengths.split_first()?;
        let all_counts = self.all_counts.take()?;
        Some(Self {
            dictionaries: std::mem::take(&mut self.dictionaries),
            ..Self::of(records, all_counts, *next, rest)
        })
    }
}

/// Packs what was held back with each dictionary.
#[derive(Debug)]
struct Trying {
    next: usize,
    /// With the bytes that the records take packed.
    candidates: Vec<(Dictionary, usize)>,
    /// The bytes that they take with the dictionary that there is.
    before: usize,
    room: Vec<u8>,
}

impl Trying {
    fn new(candidates: Vec<Dictionary>) -> Self {
        let candidates = candidates.into_iter().map(|dictionary| (dictionary, 0)).collect();
        Self { next: 0, candidates, before: 0, room: Vec::new() }
    }

    /// Packs one record. Answers the bytes that were gone through; `None`: that was the last.
    fn step(&mut self, records: &[Box<[u8]>], now: Option<&Dictionary>) -> Option<usize> {
        let record = records.get(self.next)?;
        self.next += 1;
        self.before += packed_length(now, record, &mut self.room);
        for (dictionary, bytes) in &mut self.candidates {
            *bytes += packed_length(Some(dictionary), record, &mut self.room);
        }
        Some(record.len() * (1 + self.candidates.len()))
    }

    fn best(&mut self) -> Option<Dictionary> {
        let (best, bytes) = self.candidates.drain(..).min_by_key(|(_, bytes)| *bytes)?;
        (bytes * 100 < self.before * WORTH_PERCENT).then_some(best)
    }
}

fn packed_length(dictionary: Option<&Dictionary>, record: &[u8], room: &mut Vec<u8>) -> usize {
    room.clear();
    match dictionary {
        Some(dictionary) if dictionary.pack(0, record, room) => room.len(),
        _ => record.len(),
    }
}

fn hash(piece: &[u8; PIECE]) -> u32 {
    (u64::from_le_bytes(*piece).wrapping_mul(0x9e37_79b1_85eb_ca87) >> (64 - HASH_BITS)) as u32
}

/// The place of a hash in a table of [`HASHES`]. The mask leaves the hash as it is, and shows the compiler that the place exists.
fn place(hash: u32) -> usize {
    hash as usize & (HASHES - 1)
}
