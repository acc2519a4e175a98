//! Change sequence numbers: what orders changes between servers.
//!
//! The form is OpenLDAP's: `20261121024647.123456Z#000000#001#000000`, that is time to the microsecond, a count within
//! it, the id of the server where the change was made, and a modification number that is always zero. As text and as a
//! value a CSN has one order. Databases glued under one suffix share one [`CsnGenerator`], so that one cookie can speak
//! for all of them.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use smallvec::SmallVec;

use crate::time::Timestamp;

/// The highest server id: OpenLDAP's ids have three hexadecimal digits.
pub const SERVER_ID_MAX: u16 = 0xfff;
/// The highest count within a microsecond: six hexadecimal digits.
const COUNT_MAX: u32 = 0xff_ffff;
/// Microseconds that another server's clock may be ahead for its time to be followed: a day.
pub const SKEW_FOLLOWED: i64 = 86_400_000_000;
/// Microseconds ahead from which on it is worth a warning: a minute.
pub const SKEW_WARNED: i64 = 60_000_000;

/// One change sequence number.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Csn {
    pub time: Timestamp,
    /// 0..=0xffffff
    pub count: u32,
    /// 0..=[`SERVER_ID_MAX`]
    pub server_id: u16,
    /// 0..=0xffffff; zero in every CSN written by today's servers.
    pub modification: u32,
}

/// The text that was no CSN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsnSyntaxError(pub String);

impl fmt::Display for CsnSyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no change sequence number (YYYYMMDDHHMMSS.ffffffZ#cccccc#sss#mmmmmm)", self.0)
    }
}

impl std::error::Error for CsnSyntaxError {}

impl fmt::Display for Csn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl Csn {
    /// Before any that is given out.
    pub const ZERO: Self = Self { time: Timestamp(0), count: 0, server_id: 0, modification: 0 };

    /// The CSN as values have it; what `to_string` gives, at less cost.
    pub fn text(&self) -> String {
        let mut text = self.time.generalized_micros();
        for (number, digits) in [(self.count, 6), (u32::from(self.server_id), 3), (self.modification, 6)] {
            if number == 0 {
                // As nearly always.
                text.push_str(if digits == 3 { "#000" } else { "#000000" });
                continue;
            }
            text.push('#');
            for place in (0..digits).rev() {
                let digit = number >> (4 * place) & 0xf;
                text.push(char::from_digit(digit, 16).unwrap_or('0'));
            }
        }
        text
    }
}

impl FromStr for Csn {
    type Err = CsnSyntaxError;

    /// Takes the current form and the one without a fraction of a second that OpenLDAP wrote before 2.4. The parts
    /// after the time may have fewer digits, or two for the server id, as old ones had.
    fn from_str(text: &str) -> Result<Self, CsnSyntaxError> {
        let parse = || {
            let mut parts = text.split('#');
            let time = Timestamp::parse_generalized(parts.next()?)?;
            let count = hex(parts.next()?, COUNT_MAX)?;
            let server_id = u16::try_from(hex(parts.next()?, u32::from(SERVER_ID_MAX))?).ok()?;
            let modification = hex(parts.next()?, COUNT_MAX)?;
            parts.next().is_none().then_some(Self { time, count, server_id, modification })
        };
        parse().ok_or_else(|| CsnSyntaxError(text.to_owned()))
    }
}

fn hex(text: &str, max: u32) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(text, 16).ok().filter(|n| *n <= max)
}

/// The highest CSN of each origin: at most one of each, in the order of the server ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsnVector(SmallVec<[Csn; 2]>);

impl CsnVector {
    pub fn as_slice(&self) -> &[Csn] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is known of an origin.
    pub fn of(&self, server_id: u16) -> Option<Csn> {
        let at = self.0.binary_search_by_key(&server_id, |csn| csn.server_id).ok()?;
        self.0.get(at).copied()
    }

    /// Learns of a CSN. Answers whether it is news.
    pub fn note(&mut self, csn: Csn) -> bool {
        match self.0.binary_search_by_key(&csn.server_id, |known| known.server_id) {
            Ok(at) => match self.0.get_mut(at) {
                Some(known) if *known < csn => {
                    *known = csn;
                    true
                }
                _ => false,
            },
            Err(at) => {
                self.0.insert(at, csn);
                true
            }
        }
    }

    /// Whether a change of this CSN is among what is known.
    pub fn covers(&self, csn: &Csn) -> bool {
        self.of(csn.server_id).is_some_and(|known| known >= *csn)
    }

    /// Whether all that the other knows is known here.
    pub fn covers_all(&self, other: &Self) -> bool {
        other.0.iter().all(|csn| self.covers(csn))
    }

    /// As rows of the table `meta` have it: the CSNs as text, `;` between them.
    pub(crate) fn text(&self) -> String {
        let csns: Vec<String> = self.0.iter().map(Csn::text).collect();
        csns.join(";")
    }

    /// What [`Self::text`] wrote.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let csns = std::str::from_utf8(text).ok()?.split(';').filter(|csn| !csn.is_empty());
        csns.map(|csn| csn.parse::<Csn>().ok()).collect()
    }
}

impl FromIterator<Csn> for CsnVector {
    fn from_iter<I: IntoIterator<Item = Csn>>(csns: I) -> Self {
        let mut vector = Self::default();
        vector.extend(csns);
        vector
    }
}

impl Extend<Csn> for CsnVector {
    fn extend<I: IntoIterator<Item = Csn>>(&mut self, csns: I) {
        csns.into_iter().for_each(|csn| {
            self.note(csn);
        });
    }
}

/// Gives out CSNs that only ever rise: later than the clock's last reading, than every one given before, and than every
/// one it was shown by [`CsnGenerator::observe`].
#[derive(Debug)]
pub struct CsnGenerator {
    server_id: u16,
    last: Mutex<(Timestamp, u32)>,
    /// A CSN came in that was too far ahead to be followed.
    left_ahead: AtomicBool,
}

impl CsnGenerator {
    /// `server_id`: 0 for a server that does not replicate. Larger ids than [`SERVER_ID_MAX`] are cut to it; the
    /// configuration refuses them before.
    pub fn new(server_id: u16) -> Self {
        Self {
            server_id: server_id.min(SERVER_ID_MAX),
            last: Mutex::new((Timestamp(i64::MIN), 0)),
            left_ahead: AtomicBool::new(false),
        }
    }

    pub fn server_id(&self) -> u16 {
        self.server_id
    }

    /// The next CSN: `now` when that is new, else one count after the last one. A clock that steps back costs nothing
    /// but counts; after 16,777,215 of them the microsecond itself moves on.
    pub fn next(&self, now: Timestamp) -> Csn {
        let mut last = self.lock();
        *last = match *last {
            (time, _) if now > time => (now, 0),
            (time, count) if count < COUNT_MAX => (time, count + 1),
            (time, _) => (Timestamp(time.0.saturating_add(1)), 0),
        };
        Csn { time: last.0, count: last.1, server_id: self.server_id, modification: 0 }
    }

    /// Learns of a stored CSN of our own server id: none that is given out later will be lower.
    /// CSNs of other servers are ignored, their clocks do not bind ours.
    pub fn observe(&self, csn: &Csn) {
        if csn.server_id == self.server_id {
            let mut last = self.lock();
            *last = (*last).max((csn.time, csn.count));
        }
    }

    /// Makes CSNs given from now on later than another server's change, so that a client that saw it may overrule it. A CSN more
    /// than [`SKEW_FOLLOWED`] ahead of `now` is not followed: one wrong clock must not set all others. Answers how far it
    /// is ahead, in microseconds.
    pub fn follow(&self, csn: &Csn, now: Timestamp) -> i64 {
        let ahead = csn.time.0.saturating_sub(now.0);
        if ahead <= SKEW_FOLLOWED || csn.server_id == self.server_id {
            let mut last = self.lock();
            *last = (*last).max((csn.time, csn.count));
        } else {
            self.left_ahead.store(true, Ordering::Relaxed);
        }
        ahead
    }

    /// Whether entries may have CSNs above ours, since there were some that [`follow`](Self::follow) left alone.
    pub fn left_ahead(&self) -> bool {
        self.left_ahead.load(Ordering::Relaxed)
    }

    /// Has the next CSN be above this one, however far that is ahead: a change that is made here to what has it must win.
    pub fn rise_above(&self, csn: &Csn) {
        let mut last = self.lock();
        *last = (*last).max((csn.time, csn.count));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Timestamp, u32)> {
        // The pair is written in one assignment: a panic elsewhere cannot leave it half done.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form() {
        let check = |text: &str, canonical: &str| {
            let csn: Csn = text.parse().unwrap();
            assert_eq!(csn.to_string(), canonical);
        };
        let full = "20261121024647.123456Z#0000ab#00f#000000";
        check(full, full);
        check("20070101000000Z#000001#00#000000", "20070101000000.000000Z#000001#000#000000");
        for bad in [
            "",
            "20261121024647.123456Z",
            "20261121024647.123456Z#000000#000",
            "x#0#0#0",
            "20261121024647.123456Z#000000#1000#000000",
            "20261121024647.123456Z#000000#000#000000#",
            "20261121024647.123456Z#+00001#000#000000",
        ] {
            assert_eq!(bad.parse::<Csn>(), Err(CsnSyntaxError(bad.to_owned())));
        }
    }

    #[test]
    fn rises_whatever_the_clock_does() {
        let generator = CsnGenerator::new(1);
        let mut last = generator.next(Timestamp(1_000));
        for now in [1_000, 1_001, 5, 0, 1_001, 2_000, 2_000] {
            let csn = generator.next(Timestamp(now));
            assert!(csn > last && csn.to_string() > last.to_string(), "{csn} after {last}");
            last = csn;
        }
    }

    #[test]
    fn a_full_count_moves_the_time() {
        let generator = CsnGenerator::new(1);
        generator.observe(&Csn { time: Timestamp(7), count: COUNT_MAX, server_id: 1, modification: 0 });
        assert_eq!(
            generator.next(Timestamp(3)),
            Csn { time: Timestamp(8), count: 0, server_id: 1, modification: 0 }
        );
    }

    #[test]
    fn what_comes_in_is_followed_unless_it_is_far_ahead() {
        let generator = CsnGenerator::new(1);
        let theirs = |time| Csn { time: Timestamp(time), count: 3, server_id: 2, modification: 0 };
        assert_eq!(generator.follow(&theirs(900), Timestamp(5)), 895);
        assert_eq!(generator.next(Timestamp(6)).to_string(), {
            let next = Csn { count: 4, server_id: 1, ..theirs(900) };
            next.to_string()
        });
        assert!(!generator.left_ahead());
        generator.follow(&theirs(SKEW_FOLLOWED + 7), Timestamp(6));
        assert_eq!(generator.next(Timestamp(1000)).time, Timestamp(1000));
        assert!(generator.left_ahead());
        generator.rise_above(&theirs(SKEW_FOLLOWED + 7));
        assert!(generator.next(Timestamp(1001)) > theirs(SKEW_FOLLOWED + 7));
    }

    #[test]
    fn only_our_own_server_binds_us() {
        let generator = CsnGenerator::new(1);
        generator.observe(&Csn { time: Timestamp(900), count: 0, server_id: 2, modification: 0 });
        assert_eq!(generator.next(Timestamp(5)).time, Timestamp(5));
    }

    #[test]
    fn a_vector_knows_the_highest_of_each_origin() {
        let vector = |csns: &[(u16, i64)]| -> CsnVector {
            let csn = |(server_id, time)| Csn { time: Timestamp(time), count: 0, server_id, modification: 0 };
            csns.iter().copied().map(csn).collect()
        };
        let check = |a: &[(u16, i64)], b: &[(u16, i64)], covers: bool| {
            assert_eq!(vector(a).covers_all(&vector(b)), covers, "{a:?} and {b:?}");
        };
        check(&[], &[], true);
        check(&[(1, 5)], &[], true);
        check(&[], &[(1, 5)], false);
        check(&[(1, 5)], &[(1, 5)], true);
        check(&[(1, 5)], &[(1, 6)], false);
        check(&[(1, 9)], &[(1, 5), (2, 1)], false);
        check(&[(2, 1), (1, 9), (1, 3)], &[(1, 5), (2, 1)], true);
        let none: &[(u16, i64)] = &[];
        for csns in [none, &[(1, 5)], &[(1, 5), (2, 1)]] {
            assert_eq!(CsnVector::parse(vector(csns).text().as_bytes()), Some(vector(csns)));
        }
        assert_eq!(CsnVector::parse(b"x"), None);
    }
}
