//! Admission of connections, and how much one address may ask for: `client-limits`.
//!
//! Each limit is off unless configured, but for what the limit of open files leaves room for. What one address has is
//! shared by its connections: a count of those open, and token buckets, each one atomic number. An IPv6
//! client is identified by its network of 64 bits, since it can take any address in it.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use larix_configuration::values::{ClientLimits, Rate};
use larix_engine::time::Monotonic;
use larix_proto::{LdapResult, ResultCode};

/// Descriptors kept for everything that is no client: databases, logs, listeners, event loops.
const RESERVED_DESCRIPTORS: u64 = 128;
/// Addresses remembered at once. Those beyond share one account: strictness rises, memory does not.
pub(crate) const ADDRESSES_MAX: usize = 65_536;
/// Addresses above which those that have nothing to remember are looked for.
const FIRST_SWEEP: usize = 1_024;
/// How often they are looked for, at most, while there is no room.
const FULL_SWEEP_NANOS: u64 = 1_000_000_000;

/// The limits and what was counted against them.
#[derive(Debug)]
pub(crate) struct Admission {
    limits: ArcSwap<ClientLimits>,
    /// Of open files.
    descriptors: u64,
    /// Connections that may be open.
    most: AtomicUsize,
    open: Arc<AtomicUsize>,
    addresses: Mutex<Addresses>,
    refused: Refused,
}

#[derive(Debug)]
struct Addresses {
    known: HashMap<IpAddr, Arc<Account>>,
    /// For those that there is no room for.
    others: Arc<Account>,
    sweep_at: usize,
    swept: Monotonic,
}

/// How often clients were refused, for cn=Monitor.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    pub connections: AtomicU64,
    pub operations: AtomicU64,
    pub binds: AtomicU64,
}

/// What one address has had.
#[derive(Debug, Default)]
struct Account {
    open: AtomicU32,
    connects: Bucket,
    operations: Bucket,
    failures: Bucket,
}

/// Tokens that come back evenly over time, kept as the moment at which all of them are there again.
#[derive(Debug, Default)]
struct Bucket(AtomicU64);

/// A token that was taken, under the limit that was in force then.
#[derive(Copy, Clone, Debug)]
pub(crate) struct PaidToken {
    /// Nanoseconds that it takes to come back.
    each: u64,
    /// When it has come back by itself.
    until: Monotonic,
}

/// Why a connection is not served.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "each says what there is too much of")]
pub(crate) enum Refusal {
    /// `connections=`, or open files.
    TooMany(usize),
    /// `connections.address=`.
    TooManyFromAddress(u32),
    /// `connects.address=`.
    TooFast(Rate),
}

/// One connection that was let in; its end frees its place.
#[derive(Debug)]
pub(crate) struct Admitted {
    open: Arc<AtomicUsize>,
    /// None for clients without an address, and for those that the limits are not for.
    account: Option<Arc<Account>>,
}

impl Admission {
    /// `descriptors` is the limit of open files.
    pub(crate) fn new(limits: ClientLimits, descriptors: u64) -> Self {
        let most = AtomicUsize::new(connections_max(&limits, descriptors));
        let addresses = Addresses {
            known: HashMap::new(),
            others: Arc::default(),
            sweep_at: FIRST_SWEEP,
            swept: Monotonic(0),
        };
        Self {
            limits: ArcSwap::from_pointee(limits),
            descriptors,
            most,
            open: Arc::default(),
            addresses: Mutex::new(addresses),
            refused: Refused::default(),
        }
    }

    /// Holds to these from now on. What was counted stays counted.
    pub(crate) fn set_limits(&self, limits: ClientLimits) {
        self.most.store(connections_max(&limits, self.descriptors), Ordering::Relaxed);
        self.limits.store(Arc::new(limits));
    }

    /// Lets a connection in. `address` is none for Unix sockets.
    ///
    /// # Errors
    /// Which limit it is over.
    pub(crate) fn admit(&self, address: Option<IpAddr>, now: Monotonic) -> Result<Admitted, Refusal> {
        self.try_admit(address, now).inspect_err(|_| {
            self.refused.connections.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn try_admit(&self, address: Option<IpAddr>, now: Monotonic) -> Result<Admitted, Refusal> {
        let most = self.connections_max();
        if self.open.fetch_add(1, Ordering::Relaxed) >= most {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(Refusal::TooMany(most));
        }
        let limits = self.limits.load();
        // From here on, dropping it gives its places back.
        let mut admitted = Admitted { open: self.open.clone(), account: None };
        let Some(address) = address.filter(|_| limits.ask_for_address()) else { return Ok(admitted) };
        if limits.except.iter().any(|network| network.contains(address)) {
            return Ok(admitted);
        }
        let account = self.account(address, now);
        let most = limits.connections_per_address;
        let open = account.open.fetch_add(1, Ordering::Relaxed);
        let account = &*admitted.account.insert(account);
        if most > 0 && open >= most {
            return Err(Refusal::TooManyFromAddress(most));
        }
        match limits.connects {
            Some(rate) if account.connects.take(now, rate).is_none() => Err(Refusal::TooFast(rate)),
            _ => Ok(admitted),
        }
    }

    /// Counts an operation of an anonymous client.
    ///
    /// # Errors
    /// The answer to one that is too many.
    pub(crate) fn anonymous_operation(&self, admitted: &Admitted, now: Monotonic) -> Result<(), LdapResult> {
        let (Some(rate), Some(account)) = (self.limits.load().anonymous_operations, &admitted.account) else {
            return Ok(());
        };
        if account.operations.take(now, rate).is_some() {
            return Ok(());
        }
        self.refused.operations.fetch_add(1, Ordering::Relaxed);
        Err(busy(format!("more than {rate} anonymous operations from this address; try again later")))
    }

    /// Whether anonymous operations are counted at all.
    pub(crate) fn counts_operations(&self) -> bool {
        self.limits.load().anonymous_operations.is_some()
    }

    /// Whether binds that fail are limited.
    pub(crate) fn counts_failures(&self) -> bool {
        self.limits.load().failures.is_some()
    }

    /// A bind begins: it counts as failed until [`Self::bind_did_not_fail`] says otherwise, so that attempts made at the
    /// same time are counted, too. Answers what that has to be told; none where failures are not limited.
    ///
    /// # Errors
    /// The answer when too many have failed; the credentials are not to be looked at.
    pub(crate) fn bind_begins(
        &self,
        admitted: &Admitted,
        now: Monotonic,
    ) -> Result<Option<PaidToken>, LdapResult> {
        let (Some(rate), Some(account)) = (self.limits.load().failures, &admitted.account) else {
            return Ok(None);
        };
        let paid = account.failures.take(now, rate);
        if paid.is_none() {
            self.refused.binds.fetch_add(1, Ordering::Relaxed);
            return Err(busy(format!("more than {rate} failed binds from this address; try again later")));
        }
        Ok(paid)
    }

    /// A bind that began was not answered with invalid credentials.
    pub(crate) fn bind_did_not_fail(&self, admitted: &Admitted, paid: PaidToken, now: Monotonic) {
        if let Some(account) = &admitted.account {
            account.failures.give_back(paid, now);
        }
    }

    pub(crate) fn refused(&self) -> &Refused {
        &self.refused
    }

    /// Connections that may be open at once.
    pub(crate) fn connections_max(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    fn account(&self, address: IpAddr, now: Monotonic) -> Arc<Account> {
        let address = told_apart(address);
        let mut addresses = self.addresses();
        if let Some(account) = addresses.known.get(&address) {
            return account.clone();
        }
        let is_full = addresses.known.len() >= ADDRESSES_MAX;
        let is_early = now.0.saturating_sub(addresses.swept.0) < FULL_SWEEP_NANOS;
        if addresses.known.len() >= addresses.sweep_at && !(is_full && is_early) {
            addresses.swept = now;
            addresses.known.retain(|_, account| !account.is_forgettable(now));
            addresses.sweep_at = (addresses.known.len() * 2).clamp(FIRST_SWEEP, ADDRESSES_MAX);
        }
        if addresses.known.len() >= ADDRESSES_MAX {
            return addresses.others.clone();
        }
        addresses.known.entry(address).or_default().clone()
    }

    fn addresses(&self) -> MutexGuard<'_, Addresses> {
        // A map of counters is whole after any panic.
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As many as are wanted, and as open files allow.
fn connections_max(limits: &ClientLimits, descriptors: u64) -> usize {
    let room = descriptors - RESERVED_DESCRIPTORS.min(descriptors / 4);
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    match limits.connections {
        0 => room,
        wanted => room.min(usize::try_from(wanted).unwrap_or(usize::MAX)),
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(account) = &self.account {
            account.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Account {
    /// Nothing is open, and every bucket is full again. Called with the map locked, which is where accounts are handed
    /// out: one that no other thread holds stays so.
    fn is_forgettable(self: &Arc<Self>, now: Monotonic) -> bool {
        Arc::strong_count(self) == 1
            && [&self.connects, &self.operations, &self.failures].iter().all(|bucket| bucket.is_full(now))
    }
}

impl Bucket {
    /// Takes a token if there is one.
    fn take(&self, now: Monotonic, rate: Rate) -> Option<PaidToken> {
        let (each, whole) = rate.nanos();
        let mut until = now;
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            let next = full_at.max(now.0).saturating_add(each);
            until = Monotonic(next);
            (next - now.0 <= whole).then_some(next)
        });
        taken.is_ok().then_some(PaidToken { each, until })
    }

    /// What of a token has come back by itself is not given back once more: others may have had it since.
    fn give_back(&self, paid: PaidToken, now: Monotonic) {
        let rest = paid.until.0.saturating_sub(now.0).min(paid.each);
        let update = |full_at: u64| Some(full_at.saturating_sub(rest));
        // An update that always gives a value cannot fail.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    }

    fn is_full(&self, now: Monotonic) -> bool {
        self.0.load(Ordering::Relaxed) <= now.0
    }
}

impl Refusal {
    /// The result in the Notice of Disconnection (RFC 4511 section 4.4.1).
    pub(crate) fn result(self) -> LdapResult {
        LdapResult::with(ResultCode::UNAVAILABLE, format!("{self}; try again later"))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany(most) => write!(f, "all {most} connections are in use"),
            Self::TooManyFromAddress(most) => write!(f, "more than {most} connections from this address"),
            Self::TooFast(rate) => write!(f, "more than {rate} new connections from this address"),
        }
    }
}

fn busy(text: String) -> LdapResult {
    LdapResult::with(ResultCode::BUSY, text)
}

/// What stands for a client: its IPv4 address, or the first half of its IPv6 address.
pub(crate) fn told_apart(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) >> 64 << 64)),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests;
