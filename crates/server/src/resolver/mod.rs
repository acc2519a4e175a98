//! Which hosts serve a domain, as SRV records in the DNS say (RFC 2782): asked for off the event loops, and known for a while.
//!
//! Everything is bounded: domains that are known and that are asked for, those who wait, threads, and the time of one lookup.

mod exchange;
mod message;
mod order;

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larix_engine::time::{Clock, Monotonic, RandomSource};

use crate::clock::SystemRandom;
use crate::password_pool::PasswordPool;
use exchange::NameServers;
use message::Host;

/// Lookups at a time, each on a thread.
const THREADS: usize = 4;
/// Domains of which something is known.
const CACHE_MAX: usize = 1_000;
/// Domains that are asked for at a time.
const LOOKUPS_MAX: usize = 1_000;
/// Requests that wait for a lookup, of all domains together.
const WAITING_MAX: usize = 10_000;
/// How long one lookup may take, in seconds.
const LOOKUP_TIME: u32 = 10;
/// The longest time for which records are known, whatever they say; and the shortest, so that a record that is to be known for no time
/// does not have every request ask. In seconds.
const TTL: (u32, u32) = (1, 3_600);
/// The longest time for which it is known that there are no records, in seconds (RFC 2308 section 5).
const NEGATIVE_TTL_MAX: u32 = 300;
/// For so long nobody is asked again after no server has answered, in seconds.
const FAILURE_TTL: u32 = 5;

/// What the machine's name servers are named in.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The services that are looked for (RFC 3088; `_ldaps` is OpenLDAP's), with the scheme of their URLs.
const SERVICES: [(&str, &str); 2] = [("_ldaps._tcp", "ldaps"), ("_ldap._tcp", "ldap")];
/// Bytes of a domain: with the longest of the services it is a name (RFC 1035 section 2.3.4).
pub(crate) const DOMAIN_BYTES_MAX: usize = 241;

pub(crate) use message::is_label;

/// The hosts of a domain, by the schemes of their URLs in the order in which they are preferred.
#[derive(Debug, Default)]
pub(crate) struct Hosts(Vec<(&'static str, Vec<Host>)>);

impl Hosts {
    /// `ldaps://HOST:PORT`, `ldap://HOST:PORT`: in the order in which they are to be tried, which chance has a say in.
    pub(crate) fn urls(&self, random: &dyn RandomSource) -> Vec<String> {
        let of = |(scheme, hosts): &(&str, Vec<Host>)| {
            let ordered = order::in_order(hosts, random).into_iter();
            ordered.map(|host| format!("{scheme}://{}:{}", host.name, host.port)).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of).collect()
    }
}

/// Why the hosts of a domain are not known.
#[derive(Debug)]
pub(crate) struct Failure {
    why: String,
    is_logged: AtomicBool,
}

impl Failure {
    /// The reason, for the first who asks: the log has it once.
    pub(crate) fn news(&self) -> Option<&str> {
        (!self.is_logged.swap(true, Ordering::Relaxed)).then_some(&*self.why)
    }
}

/// What is known of a domain.
pub(crate) type Resolution = Result<Arc<Hosts>, Arc<Failure>>;

/// Called once with it, on any thread. It must not block.
pub(crate) type Callback = Box<dyn FnOnce(Resolution) + Send>;

/// The answer to somebody who asks for a domain.
pub(crate) enum LookupReply {
    Now(Resolution),
    /// What was given is called.
    Later(Ticket),
    /// Too much is asked for.
    Busy,
}

/// The name servers that are asked (none: those of the machine), and the domain.
type Key = (Arc<[SocketAddr]>, String);

#[derive(Default)]
struct State {
    /// Until when it is known.
    cache: HashMap<Key, (Resolution, Monotonic)>,
    /// Those who wait, by numbers.
    lookups: HashMap<Key, HashMap<u64, Callback>>,
    waiting: usize,
    next: u64,
}

struct Shared {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
}

/// Asks for domains, and knows them for a while.
pub(crate) struct Resolver {
    shared: Arc<Shared>,
    pool: PasswordPool,
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("cache", &self.shared.state().cache.len()).finish_non_exhaustive()
    }
}

impl Resolver {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let shared = Arc::new(Shared { state: Mutex::default(), clock });
        // Its threads begin with the first lookup.
        Self { shared, pool: PasswordPool::new(THREADS) }
    }

    /// Looks for the hosts of a domain. `servers`: the name servers; none: those of the machine. Lookups have turns by `peer`, for whom they are.
    /// `then` makes what is called if the answer comes later.
    pub(crate) fn find(
        &self,
        servers: &Arc<[SocketAddr]>,
        (domain, peer): (&str, &str),
        then: &mut dyn FnMut() -> Callback,
    ) -> LookupReply {
        let key = (Arc::clone(servers), domain.to_owned());
        let now = self.shared.clock.monotonic();
        let mut state = self.shared.state();
        if let Some((resolution, _)) = state.cache.get(&key).filter(|(_, until)| now < *until) {
            return LookupReply::Now(resolution.clone());
        }
        let is_begun = state.lookups.contains_key(&key);
        if state.waiting >= WAITING_MAX || (!is_begun && state.lookups.len() >= LOOKUPS_MAX) {
            return LookupReply::Busy;
        }
        if !is_begun {
            let source = self.pool.source(peer, domain);
            // Its thread waits for the state, and finds who waits for it.
            let make = || {
                let lookup = Lookup { shared: Arc::clone(&self.shared), key: key.clone(), resolution: None };
                move || lookup.look_up()
            };
            if self.pool.submit_made(source, make).is_err() {
                return LookupReply::Busy;
            }
        }
        state.next += 1;
        state.waiting += 1;
        let number = state.next;
        state.lookups.entry(key.clone()).or_default().insert(number, then());
        drop(state);
        LookupReply::Later(Ticket { shared: Arc::clone(&self.shared), key, number })
    }
}

/// Somebody who waits.
pub(crate) struct Ticket {
    shared: Arc<Shared>,
    key: Key,
    number: u64,
}

impl Ticket {
    /// Waits no more.
    pub(crate) fn give_up(self) {
        let mut state = self.shared.state();
        let then = state.lookups.get_mut(&self.key).and_then(|waiting| waiting.remove(&self.number));
        state.waiting -= usize::from(then.is_some());
        drop(state);
        // Its drop may take locks of its own.
        drop(then);
    }
}

/// A lookup. Dropped without an end it has failed.
struct Lookup {
    shared: Arc<Shared>,
    key: Key,
    resolution: Option<Resolution>,
}

impl Lookup {
    fn look_up(mut self) {
        let waits = |waiting: &HashMap<u64, Callback>| !waiting.is_empty();
        if !self.shared.state().lookups.get(&self.key).is_some_and(waits) {
            return;
        }
        let (resolution, ttl) = match self.shared.ask(&self.key) {
            Ok((hosts, ttl)) => (Ok(Arc::new(hosts)), ttl),
            Err(why) => (Err(failure(why)), FAILURE_TTL),
        };
        self.resolution = Some(resolution.clone());
        let now = self.shared.clock.monotonic();
        self.shared.state().remember(self.key.clone(), resolution, (now, now.plus_seconds(ttl)));
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        let waiting = state.lookups.remove(&self.key).unwrap_or_default();
        state.waiting -= waiting.len();
        drop(state);
        let unanswered = || Err(failure("the lookup has ended without an answer".to_owned()));
        let resolution = self.resolution.take().unwrap_or_else(unanswered);
        waiting.into_values().for_each(|then| then(resolution.clone()));
    }
}

fn failure(why: String) -> Arc<Failure> {
    Arc::new(Failure { why, is_logged: AtomicBool::new(false) })
}

impl State {
    fn remember(&mut self, key: Key, resolution: Resolution, (now, until): (Monotonic, Monotonic)) {
        if self.cache.len() >= CACHE_MAX && !self.cache.contains_key(&key) {
            self.cache.retain(|_, (_, until)| now < *until);
            // What would be known for the shortest time makes room.
            let first = self.cache.iter().min_by_key(|(_, (_, until))| until.0).map(|(key, _)| key.clone());
            if let Some(first) = first.filter(|_| self.cache.len() >= CACHE_MAX) {
                self.cache.remove(&first);
            }
        }
        self.cache.insert(key, (resolution, until));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every step leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hosts, and how long they are known: in seconds.
    fn ask(&self, (servers, domain): &Key) -> Result<(Hosts, u32), String> {
        let servers = match servers.is_empty() {
            true => NameServers::of_machine(Path::new(RESOLV_CONF)),
            false => NameServers::new(servers),
        };
        let until = self.clock.monotonic().plus_seconds(LOOKUP_TIME);
        let (mut all, mut ttl) = (Hosts::default(), TTL.1);
        for (service, scheme) in SERVICES {
            let name = format!("{service}.{domain}");
            let (hosts, known_for) = servers.hosts(&name, until, (&*self.clock, &SystemRandom))?;
            let most = if hosts.is_empty() { NEGATIVE_TTL_MAX } else { TTL.1 };
            ttl = ttl.min(known_for.min(most));
            all.0.push((scheme, hosts));
        }
        Ok((all, ttl.max(TTL.0)))
    }
}

#[cfg(test)]
mod tests;
