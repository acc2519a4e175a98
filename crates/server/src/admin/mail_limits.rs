//! How often a code is sent by mail: by the address that asks, and by the user who gets it.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use larix_engine::time::Monotonic;

use super::reset_codes::network;

/// Requests from one address (of IPv6, its network of 64 bits) within [`ADDRESS_SECONDS`].
const OF_ADDRESS_MAX: u32 = 5;
const ADDRESS_SECONDS: u64 = 15 * 60;
/// Mails to one user within [`USER_SECONDS`].
const OF_USER_MAX: u32 = 3;
const USER_SECONDS: u64 = 60 * 60;
/// Addresses, and users, that are remembered. The one that was first seen longest ago makes room.
const REMEMBERED_MAX: usize = 1_024;
const NANOS_A_SECOND: u64 = 1_000_000_000;

#[derive(Debug, Default)]
pub(super) struct MailLimits {
    addresses: Counts<IpAddr>,
    users: Counts<String>,
}

#[derive(Debug)]
struct Counts<K>(HashMap<K, (u32, Monotonic)>);

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl MailLimits {
    /// Counts a request, whatever comes of it.
    ///
    /// # Errors
    /// Seconds until the next one is possible.
    pub(super) fn by_address(&mut self, address: IpAddr, now: Monotonic) -> Result<(), u64> {
        self.addresses.count(network(address), now, (OF_ADDRESS_MAX, ADDRESS_SECONDS))
    }

    /// Counts a mail to a user, by the normalized DN.
    ///
    /// # Errors
    /// Seconds until the next one is possible.
    pub(super) fn by_user(&mut self, user: &str, now: Monotonic) -> Result<(), u64> {
        self.users.count(user.to_owned(), now, (OF_USER_MAX, USER_SECONDS))
    }
}

impl<K: Clone + Eq + Hash> Counts<K> {
    fn count(&mut self, key: K, now: Monotonic, (most, seconds): (u32, u64)) -> Result<(), u64> {
        let passed = |since: Monotonic| now.0.saturating_sub(since.0) / NANOS_A_SECOND;
        let is_full = self.0.len() >= REMEMBERED_MAX;
        match self.0.get_mut(&key) {
            Some((count, since)) if passed(*since) < seconds => {
                if *count >= most {
                    return Err(seconds.saturating_sub(passed(*since)).max(1));
                }
                *count += 1;
                return Ok(());
            }
            Some(_) => (),
            None if !is_full => (),
            None => {
                let oldest = self.0.iter().min_by_key(|(_, (_, since))| *since).map(|(key, _)| key.clone());
                oldest.and_then(|oldest| self.0.remove(&oldest));
            }
        }
        self.0.insert(key, (1, now));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * NANOS_A_SECOND)
    }

    #[test]
    fn an_address_and_a_user_have_to_wait() {
        let mut limits = MailLimits::default();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for second in 0..u64::from(OF_ADDRESS_MAX) {
            assert_eq!(limits.by_address(address("2001:db8::1"), at(second)), Ok(()));
        }
        assert_eq!(limits.by_address(address("2001:db8::2"), at(60)), Err(840), "the network counts");
        assert_eq!(limits.by_address(address("2001:db8:1::2"), at(60)), Ok(()));
        assert_eq!(limits.by_address(address("2001:db8::2"), at(900)), Ok(()), "after its time");
        for second in 0..u64::from(OF_USER_MAX) {
            assert_eq!(limits.by_user("uid=ann", at(second)), Ok(()));
        }
        assert_eq!(limits.by_user("uid=ann", at(600)), Err(3_000));
        assert_eq!(limits.by_user("uid=bob", at(600)), Ok(()));
        assert_eq!(limits.by_user("uid=ann", at(3_600)), Ok(()));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut limits = MailLimits::default();
        for n in 0..2 * REMEMBERED_MAX as u64 {
            limits.by_user(&format!("uid={n}"), at(n)).unwrap();
        }
        assert_eq!(limits.users.0.len(), REMEMBERED_MAX);
        assert!(limits.users.0.contains_key("uid=2047") && !limits.users.0.contains_key("uid=0"));
    }
}
