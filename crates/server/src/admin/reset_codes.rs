//! Codes with which users who forgot their password set another one (`admin-password-reset`): a helper makes a code, reads it out,
//! and it works once.
//!
//! A code is kept in memory alone, as a salted hash, with the helper's session: the change is made over that connection, so the
//! helper's rights decide once more. Whether a name has a code cannot be seen from an answer.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use larix_engine::time::{Monotonic, RandomSource};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// Characters of a code: 49 bits.
const LENGTH: usize = 10;
/// Letters and digits that nobody takes for one another, read out or written down.
const ALPHABET: &[u8; 31] = b"ABCDEFGHJKMNPQRSTUVWXYZ23456789";
/// Codes that are open at once.
const OPEN_MAX: usize = 64;
/// Of these, codes by one helper.
const OPEN_OF_ONE_MAX: usize = 8;
/// And codes that are sent by mail.
const OPEN_BY_MAIL_MAX: usize = 48;
/// Wrong codes for a user until the user's code is worth nothing; so many tries has the user to find a password that the policy takes,
/// too.
const TRIES_OF_CODE_MAX: u32 = 10;
/// Wrong codes and names from one address until it has to wait.
const TRIES_OF_ADDRESS_MAX: u32 = 5;
/// So long it waits.
const ADDRESS_SECONDS: u64 = 15 * 60;
/// Addresses that are remembered. The one that was first seen longest ago makes room.
const ADDRESSES_MAX: usize = 1_024;
const NANOS_A_SECOND: u64 = 1_000_000_000;

/// What is open, and who tried wrongly. `H` is how the helper reaches the directory.
#[derive(Debug)]
pub(super) struct ResetCodes<H> {
    open: Vec<OpenCode<H>>,
    addresses: HashMap<IpAddr, Tries>,
}

/// A code that was made and not used.
#[derive(Debug)]
pub(super) struct OpenCode<H> {
    /// The normalized DN of the user.
    pub(super) user: String,
    pub(super) helper: H,
    /// The helper's DN.
    pub(super) by: String,
    salt: [u8; 16],
    hash: [u8; 32],
    expires: Monotonic,
    tries: u32,
}

#[derive(Copy, Clone, Debug)]
struct Tries {
    count: u32,
    since: Monotonic,
}

/// Why no code is made.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Full {
    All,
    OfThisHelper,
}

/// Why nothing is changed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// No such code for such a user.
    Wrong,
    /// From this address; seconds until the next try.
    TooMany(u64),
}

impl<H> Default for ResetCodes<H> {
    fn default() -> Self {
        Self { open: Vec::new(), addresses: HashMap::new() }
    }
}

impl<H> ResetCodes<H> {
    /// A new code for a user; one that the user had is worth nothing from now on.
    ///
    /// # Errors
    /// Too many are open.
    pub(super) fn make(
        &mut self,
        user: &str,
        helper: H,
        by: &str,
        random: &dyn RandomSource,
        time: (Monotonic, u64),
    ) -> Result<Zeroizing<String>, Full> {
        self.open(user, (helper, by, OPEN_OF_ONE_MAX), random, time)
    }

    /// A new code for a user, to be sent by mail. `None`: too many are open, or a helper made one for the user, which stays.
    pub(super) fn make_for_mail(
        &mut self,
        user: &str,
        helper: H,
        by: &str,
        random: &dyn RandomSource,
        time: (Monotonic, u64),
    ) -> Option<Zeroizing<String>> {
        self.sweep(time.0);
        if self.open.iter().any(|code| code.user == user && code.by != by) {
            return None;
        }
        self.open(user, (helper, by, OPEN_BY_MAIL_MAX), random, time).ok()
    }

    /// Ends the code of a user that was not sent.
    pub(super) fn withdraw(&mut self, user: &str) {
        self.open.retain(|code| code.user != user);
    }

    fn open(
        &mut self,
        user: &str,
        (helper, by, of_one_max): (H, &str, usize),
        random: &dyn RandomSource,
        (now, seconds): (Monotonic, u64),
    ) -> Result<Zeroizing<String>, Full> {
        self.sweep(now);
        let others = |code: &&OpenCode<H>| code.user != user;
        if self.open.iter().filter(others).count() >= OPEN_MAX {
            return Err(Full::All);
        }
        if self.open.iter().filter(others).filter(|code| code.by == by).count() >= of_one_max {
            return Err(Full::OfThisHelper);
        }
        self.open.retain(|code| code.user != user);
        let code = generate(random);
        let mut salt = [0; 16];
        random.fill(&mut salt);
        self.open.push(OpenCode {
            user: user.to_owned(),
            helper,
            by: by.to_owned(),
            hash: hash(&salt, &code),
            salt,
            expires: Monotonic(now.0.saturating_add(seconds.saturating_mul(NANOS_A_SECOND))),
            tries: 0,
        });
        Ok(code)
    }

    /// Whether an address may try a code now.
    ///
    /// # Errors
    /// [`Refused::TooMany`].
    pub(super) fn may_try(&mut self, address: IpAddr, now: Monotonic) -> Result<(), Refused> {
        self.sweep(now);
        match self.addresses.get(&network(address)) {
            Some(tries) if tries.count >= TRIES_OF_ADDRESS_MAX => {
                let passed = now.0.saturating_sub(tries.since.0) / NANOS_A_SECOND;
                Err(Refused::TooMany(ADDRESS_SECONDS.saturating_sub(passed).max(1)))
            }
            _ => Ok(()),
        }
    }

    /// Takes the code of a user out: it works once. What is wrong is counted.
    ///
    /// # Errors
    /// The same for a user who has no code, and for no user.
    pub(super) fn take(
        &mut self,
        user: &str,
        typed: &str,
        address: IpAddr,
        now: Monotonic,
    ) -> Result<OpenCode<H>, Refused> {
        self.may_try(address, now)?;
        let address = network(address);
        let typed = plain(typed);
        let at = self.open.iter().position(|code| code.user == user);
        let found = at.and_then(|at| self.open.get_mut(at));
        // A user without a code costs the same hash.
        let salt = found.as_ref().map_or([0; 16], |code| code.salt);
        let hashed = hash(&salt, &typed);
        if let (Some(at), Some(code)) = (at, found) {
            if code.hash.ct_eq(&hashed).into() {
                return Ok(self.open.swap_remove(at));
            }
            code.tries += 1;
            if code.tries >= TRIES_OF_CODE_MAX {
                self.open.swap_remove(at);
            }
        }
        self.note(address, now);
        Err(Refused::Wrong)
    }

    /// Puts a code back whose user must choose another password.
    pub(super) fn give_back(&mut self, mut code: OpenCode<H>) {
        code.tries += 1;
        // A helper may have made a newer one meanwhile.
        if code.tries < TRIES_OF_CODE_MAX && !self.open.iter().any(|other| other.user == code.user) {
            self.open.push(code);
        }
    }

    /// Forgets what is over.
    pub(super) fn sweep(&mut self, now: Monotonic) {
        self.open.retain(|code| now < code.expires);
        self.addresses
            .retain(|_, tries| now.0.saturating_sub(tries.since.0) / NANOS_A_SECOND < ADDRESS_SECONDS);
    }

    /// Ends all codes.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    fn note(&mut self, address: IpAddr, now: Monotonic) {
        if !self.addresses.contains_key(&address) && self.addresses.len() >= ADDRESSES_MAX {
            let oldest =
                self.addresses.iter().min_by_key(|(_, tries)| tries.since).map(|(address, _)| *address);
            oldest.and_then(|oldest| self.addresses.remove(&oldest));
        }
        self.addresses.entry(address).or_insert(Tries { count: 0, since: now }).count += 1;
    }
}

/// An IPv6 client can take any address of its network of 64 bits.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

fn hash(salt: &[u8; 16], code: &str) -> [u8; 32] {
    Sha256::new().chain_update(salt).chain_update(code.as_bytes()).finalize().into()
}

fn generate(random: &dyn RandomSource) -> Zeroizing<String> {
    let mut code = Zeroizing::new(String::with_capacity(LENGTH));
    // Bytes above a multiple of the alphabet's size would favour its first letters.
    let limit = u8::try_from(256 - 256 % ALPHABET.len()).unwrap_or(u8::MAX);
    let mut bytes = Zeroizing::new([0; 16]);
    while code.len() < LENGTH {
        random.fill(&mut bytes[..]);
        let usable = bytes.iter().filter(|byte| **byte < limit);
        let letters = usable.filter_map(|byte| ALPHABET.get(usize::from(*byte) % ALPHABET.len()));
        let missing = LENGTH - code.len();
        letters.take(missing).for_each(|letter| code.push(char::from(*letter)));
    }
    code
}

/// A code as it is read out: in two groups.
pub(super) fn grouped(code: &str) -> String {
    let (first, last) = code.split_at_checked(LENGTH / 2).unwrap_or((code, ""));
    format!("{first}-{last}")
}

/// What was typed, as it was made: capitals, and nothing between the groups.
fn plain(typed: &str) -> Zeroizing<String> {
    let kept = typed.chars().filter(char::is_ascii_alphanumeric).take(2 * LENGTH);
    Zeroizing::new(kept.map(|letter| letter.to_ascii_uppercase()).collect())
}

#[cfg(test)]
mod tests {
    use larix_engine::time::SeededRandom;

    use super::*;

    const ANN: &str = "uid=ann,dc=x";
    const HELPER: &str = "uid=helper,dc=x";

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * NANOS_A_SECOND)
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn a_code_works_once_for_its_user_and_its_time() {
        let random = SeededRandom::new(1);
        let mut codes = ResetCodes::default();
        let make = |codes: &mut ResetCodes<u32>, user: &str, now: u64| {
            codes.make(user, 7, HELPER, &random, (at(now), 900)).unwrap()
        };
        let code = make(&mut codes, ANN, 0);
        assert!(code.len() == LENGTH && code.bytes().all(|byte| ALPHABET.contains(&byte)), "{code:?}");
        // As it is read out, in small letters, with blanks.
        let spoken = grouped(&code).to_lowercase().replace('-', " - ");
        assert_eq!(codes.take("uid=bob,dc=x", &code, address(1), at(1)).err(), Some(Refused::Wrong));
        let taken = codes.take(ANN, &spoken, address(1), at(1)).unwrap();
        assert_eq!((taken.helper, taken.by.as_str()), (7, HELPER));
        assert_eq!(codes.take(ANN, &code, address(1), at(1)).err(), Some(Refused::Wrong), "once");
        // A password that the policy refuses leaves the code; not for ever.
        let mut tries = 0;
        codes.give_back(taken);
        while let Ok(taken) = codes.take(ANN, &code, address(1), at(1)) {
            tries += 1;
            codes.give_back(taken);
        }
        assert_eq!(tries, TRIES_OF_CODE_MAX - 1);
        // The newer code counts, and no longer than it may.
        let old = make(&mut codes, ANN, 10);
        let new = make(&mut codes, ANN, 20);
        assert_eq!(codes.take(ANN, &old, address(2), at(21)).err(), Some(Refused::Wrong));
        assert_eq!(codes.take(ANN, &new, address(2), at(920)).err(), Some(Refused::Wrong), "expired");
        let kept = make(&mut codes, ANN, 1_000);
        let taken = codes.take(ANN, &kept, address(3), at(1_899)).unwrap();
        make(&mut codes, ANN, 1_899);
        codes.give_back(taken);
        assert_eq!(codes.open.len(), 1, "what was made meanwhile stays");
        codes.clear();
        assert_eq!(codes.open.len(), 0);
    }

    #[test]
    fn mailed_codes_leave_room_for_helpers_and_their_codes() {
        let random = SeededRandom::new(4);
        let mut codes = ResetCodes::default();
        let by_helper = codes.make(ANN, (), HELPER, &random, (at(0), 900)).unwrap();
        assert_eq!(codes.make_for_mail(ANN, (), "cn=mail", &random, (at(1), 900)), None);
        assert!(codes.take(ANN, &by_helper, address(1), at(2)).is_ok(), "the helper's code stays");
        assert!(codes.make_for_mail(ANN, (), "cn=mail", &random, (at(3), 900)).is_some());
        let second = codes.make_for_mail(ANN, (), "cn=mail", &random, (at(4), 900)).unwrap();
        assert!(codes.take(ANN, &second, address(1), at(5)).is_ok(), "a newer mail counts");
        for n in 0..OPEN_BY_MAIL_MAX {
            let user = format!("uid={n},dc=x");
            assert!(codes.make_for_mail(&user, (), "cn=mail", &random, (at(6), 900)).is_some(), "{n}");
        }
        assert_eq!(codes.make_for_mail(ANN, (), "cn=mail", &random, (at(7), 900)), None);
        codes.withdraw("uid=0,dc=x");
        assert!(codes.make_for_mail(ANN, (), "cn=mail", &random, (at(7), 900)).is_some());
        assert!(codes.make("uid=bob,dc=x", (), HELPER, &random, (at(8), 900)).is_ok());
    }

    #[test]
    fn wrong_tries_are_counted_by_code_and_by_address() {
        let random = SeededRandom::new(2);
        let mut codes = ResetCodes::default();
        let code = codes.make(ANN, (), HELPER, &random, (at(0), 3_600)).unwrap();
        // One address: whatever name it tries, it has to wait; then the right code does not help it.
        for n in 0..TRIES_OF_ADDRESS_MAX {
            let user = format!("uid=nobody{n},dc=x");
            assert_eq!(codes.take(&user, "x", address(1), at(0)).err(), Some(Refused::Wrong));
        }
        assert_eq!(codes.take(ANN, &code, address(1), at(60)).err(), Some(Refused::TooMany(840)));
        let network: IpAddr = "2001:db8::1".parse().unwrap();
        let beside: IpAddr = "2001:db8::ffff:2".parse().unwrap();
        for _ in 0..TRIES_OF_ADDRESS_MAX {
            assert_eq!(codes.take("", "", network, at(0)).err(), Some(Refused::Wrong));
        }
        assert!(matches!(codes.take("", "", beside, at(0)), Err(Refused::TooMany(_))));
        // Many addresses: the code is worth nothing after so many.
        for n in 0..TRIES_OF_CODE_MAX - 1 {
            assert_eq!(codes.take(ANN, "WRONG", address(n as u8 + 2), at(0)).err(), Some(Refused::Wrong));
        }
        assert_eq!(codes.open.len(), 1);
        assert_eq!(codes.take(ANN, "WRONG", address(100), at(0)).err(), Some(Refused::Wrong));
        assert_eq!(codes.take(ANN, &code, address(101), at(0)).err(), Some(Refused::Wrong), "spent");
        // After its time an address may try again; what is remembered is bounded.
        assert_eq!(codes.take(ANN, &code, address(1), at(900)).err(), Some(Refused::Wrong));
        for n in 0..2 * ADDRESSES_MAX as u32 {
            let address = IpAddr::from(n.to_be_bytes());
            assert_eq!(codes.take(ANN, "x", address, at(901)).err(), Some(Refused::Wrong));
        }
        assert_eq!(codes.addresses.len(), ADDRESSES_MAX);
    }

    #[test]
    fn so_many_codes_are_open() {
        let random = SeededRandom::new(3);
        let mut codes = ResetCodes::default();
        let mut make = |user: usize, helper: usize, now: u64| {
            let (user, helper) = (format!("uid={user},dc=x"), format!("cn={helper},dc=x"));
            codes.make(&user, (), &helper, &random, (at(now), 900)).map(drop)
        };
        for n in 0..OPEN_MAX {
            assert_eq!(make(n, n / OPEN_OF_ONE_MAX, 0), Ok(()), "{n}");
        }
        assert_eq!(make(100, 100, 1), Err(Full::All));
        // Another code for the same user takes the old one's place.
        assert_eq!(make(0, 0, 1), Ok(()));
        assert_eq!(make(0, 1, 1), Err(Full::OfThisHelper), "the helper has eight of others");
        assert_eq!(make(100, 100, 900), Ok(()), "after their time");
    }
}
