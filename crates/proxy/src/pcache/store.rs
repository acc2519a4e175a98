//! The cached answers of one database: bounded in queries, entries and bytes, the longest unused go first.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larix_engine::time::Monotonic;
use larix_proto::FilterBuf;
use larix_schema::{BoundFilter, NormalDn, Schema};
use sha2::{Digest, Sha256};

use super::containment::{self, Region};
use super::flights::{Boarding, Flight, Leading};
use super::passwords::CachedPasswords;
use super::refreshing::{AskAgain, Identity, Refreshes};
use super::template::Settings;

/// Cached queries with parts of values, or with bounds, that are looked at for one search, the newest first.
const WIDE_MAX: usize = 128;
/// Places below which the same filter is cached.
const PLACES_MAX: usize = 64;
/// Bytes that a query takes beside its entries, roughly.
const QUERY_BYTES: usize = 512;
/// And so many more if it is asked once more in the background.
const AGAIN_BYTES: usize = 1024;
/// Bytes that an entry takes beside its message, roughly.
const ENTRY_BYTES: usize = 128;

/// Who has asked the remote server: none where answers are for all.
pub(super) type Asker = Option<Identity>;

/// A search that may be cached.
#[derive(Clone, Debug)]
pub(super) struct Query {
    pub(super) asker: Asker,
    /// The number of its template.
    pub(super) template: usize,
    pub(super) region: Region,
    pub(super) filter: BoundFilter,
    /// The filter as it was sent.
    pub(super) sent: Arc<FilterBuf>,
    /// Names of attributes that the schema does not know.
    pub(super) unknown: Vec<String>,
    /// By what it is asked once more in the background; none: by the next search alone.
    pub(super) again: Option<Arc<AskAgain>>,
}

impl Query {
    pub(super) fn group(&self) -> Group {
        (self.asker.clone(), self.template)
    }

    pub(super) fn values(&self) -> Vec<u8> {
        let mut values = Vec::new();
        containment::values(&self.filter, &mut values);
        values
    }

    /// Whether an answer to this one has an answer to the other, of the same group.
    fn has(&self, schema: &Schema, other: &Self) -> bool {
        self.region.has(&other.region)
            && other.unknown.iter().all(|name| self.unknown.contains(name))
            && containment::has(schema, &self.filter, &other.filter)
    }
}

/// An entry of an answer.
#[derive(Debug)]
pub(super) struct CachedEntry {
    pub(super) dn: NormalDn,
    /// The message, with all attributes of the set.
    pub(super) message: Box<[u8]>,
}

impl CachedEntry {
    pub(super) fn bytes(&self) -> usize {
        self.message.len() + self.dn.as_str().len() + ENTRY_BYTES
    }
}

/// What is known of a query.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Entries(Arc<[CachedEntry]>),
    /// It met a size limit.
    TooMany,
}

impl Answer {
    fn size(&self) -> (usize, usize) {
        match self {
            Self::Entries(entries) => (entries.len(), entries.iter().map(CachedEntry::bytes).sum()),
            Self::TooMany => (0, 0),
        }
    }
}

/// By which clients know a query: a UUID (OpenLDAP's pcacheQueryId). It stays as long as the query is known.
pub(super) type QueryId = [u8; 16];

/// An answer with its times.
#[derive(Debug)]
pub(super) struct CachedAnswer {
    pub(super) id: QueryId,
    pub(super) query: Query,
    pub(super) answer: Answer,
    pub(super) expires: Monotonic,
    /// None: never.
    pub(super) refresh: Option<Monotonic>,
}

/// How long an answer is kept.
#[derive(Copy, Clone, Debug)]
pub(super) struct Times {
    pub(super) ttl: Duration,
    pub(super) refresh: Option<Duration>,
}

#[derive(Debug)]
struct StoredAnswer {
    id: QueryId,
    query: Query,
    answer: Answer,
    expires: Monotonic,
    /// Nanoseconds of [`Monotonic`]; the maximum: never.
    refresh: AtomicU64,
    answered: AtomicU64,
    bytes: usize,
}

impl StoredAnswer {
    fn is_live(&self, now: Monotonic, offline: bool) -> bool {
        offline || now < self.expires
    }

    /// How long its time to be read again is over, in nanoseconds.
    fn overdue(&self, now: Monotonic) -> Option<u64> {
        now.0.checked_sub(self.refresh.load(Ordering::Relaxed))
    }

    /// Whether it is time to read it again, and the caller's turn: the next one is when as much time has passed once more.
    fn takes_turn(&self, settings: &Settings, now: Monotonic) -> bool {
        let due = self.refresh.load(Ordering::Relaxed);
        let again = settings.templates.get(self.query.template).and_then(|template| template.refresh);
        let next = again.map_or(u64::MAX, |time| later(now, time.max(settings.check_period)).0);
        due <= now.0 && self.refresh.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

pub(super) type Group = (Asker, usize);

/// By the values of filters within a group.
type Flights = HashMap<(Group, Vec<u8>), Vec<Arc<Flight>>>;

/// Queries of one template that the remote server has answered to one identity.
#[derive(Debug, Default)]
struct Queries {
    /// By the values of their filters.
    equal: HashMap<Vec<u8>, Vec<u64>>,
    /// Those that may have what others ask for, the newest last.
    wide: VecDeque<u64>,
}

#[derive(Debug, Default)]
struct State {
    stored: HashMap<u64, (u64, Arc<StoredAnswer>)>,
    /// By use, the oldest first.
    order: BTreeMap<u64, u64>,
    groups: HashMap<Group, Queries>,
    entries: usize,
    bytes: usize,
    /// Of identifiers and of uses.
    next: u64,
    /// What the UUIDs of queries begin with: those of another cache, or of another run, are others.
    id_prefix: u64,
    /// Changes that went through so far.
    changes: u64,
    check_at: Option<Monotonic>,
}

/// What is found for a search.
#[derive(Debug)]
pub(super) enum CacheLookup {
    /// `is_same`: the cached search has the same base.
    Entries {
        entries: Arc<[CachedEntry]>,
        is_same: bool,
        answered: u64,
    },
    /// The same, and it is this search's turn to read it anew.
    Refresh {
        entries: Arc<[CachedEntry]>,
        answered: u64,
    },
    TooMany,
    Nothing,
}

/// The cache of one database.
pub struct Cache {
    state: Mutex<State>,
    pub(super) binds: CachedPasswords,
    /// Bytes of answers that are being read.
    reading: AtomicUsize,
    /// Searches that the remote server is answering, by what they are kept by.
    flights: Mutex<Flights>,
    pub(super) refreshes: Refreshes,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("size", &self.size()).finish_non_exhaustive()
    }
}

fn later(now: Monotonic, time: Duration) -> Monotonic {
    Monotonic(now.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
}

impl Cache {
    /// `secret`: random bytes, with which passwords are hashed.
    pub fn new(secret: [u8; 32]) -> Self {
        let digest = Sha256::new_with_prefix(b"pcacheQueryId").chain_update(secret).finalize();
        let id_prefix = digest.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte));
        Self {
            state: Mutex::new(State { id_prefix, ..State::default() }),
            binds: CachedPasswords::new(secret),
            reading: AtomicUsize::new(0),
            flights: Mutex::default(),
            refreshes: Refreshes::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every step leaves it whole, but for counts.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queries, entries and bytes.
    pub fn size(&self) -> (usize, usize, usize) {
        let state = self.state();
        (state.stored.len(), state.entries, state.bytes)
    }

    /// All that there is, the longest unused first.
    pub(super) fn all(&self) -> Vec<CachedAnswer> {
        let state = self.state();
        let cached = |number: &u64| {
            let (_, stored) = state.stored.get(number)?;
            let refresh = stored.refresh.load(Ordering::Relaxed);
            Some(CachedAnswer {
                id: stored.id,
                query: stored.query.clone(),
                answer: stored.answer.clone(),
                expires: stored.expires,
                refresh: (refresh != u64::MAX).then_some(Monotonic(refresh)),
            })
        };
        state.order.values().filter_map(cached).collect()
    }

    /// How many changes have gone through: an answer that was begun before one of them is not stored.
    pub(super) fn changes(&self) -> u64 {
        self.state().changes
    }

    pub(super) fn find(
        &self,
        schema: &Schema,
        query: &Query,
        settings: &Settings,
        now: Monotonic,
    ) -> CacheLookup {
        let candidates = self.state().candidates(query, settings, now);
        let live = candidates
            .into_iter()
            .filter(|(_, stored)| stored.is_live(now, settings.offline) && stored.query.has(schema, query));
        let mut best: Option<(u64, Arc<StoredAnswer>)> = None;
        for (number, stored) in live {
            match stored.answer {
                // As in OpenLDAP, nothing within it is answered then.
                Answer::TooMany => return CacheLookup::TooMany,
                Answer::Entries(_) => {
                    // The same base needs no proof that there is one.
                    let is_same = stored.query.region.base == query.region.base;
                    if best.is_none() || (is_same && !best_is_same(best.as_ref(), query)) {
                        best = Some((number, stored));
                    }
                }
            }
        }
        let Some((number, stored)) = best else { return CacheLookup::Nothing };
        let Answer::Entries(entries) = &stored.answer else { return CacheLookup::Nothing };
        let entries = Arc::clone(entries);
        self.state().use_now(number);
        if let Some(overdue) = stored.overdue(now).filter(|_| !settings.offline) {
            // Until the next check of the cache nobody waits for it.
            let is_early = u128::from(overdue) <= settings.check_period.as_nanos();
            let in_background = stored.query.again.is_some() && is_early;
            if !in_background
                && (stored.query.region != query.region || stored.query.values() != query.values())
            {
                // A part of it cannot stand for the whole: the remote server is asked for the part.
                return CacheLookup::Nothing;
            }
            // One reads it anew; the others go on with what there is.
            if stored.takes_turn(settings, now) {
                if !in_background {
                    let answered = stored.answered.fetch_add(1, Ordering::Relaxed) + 1;
                    return CacheLookup::Refresh { entries, answered };
                }
                self.refreshes.note([number], settings.queries_max);
            }
        }
        let is_same = stored.query.region.base == query.region.base;
        let answered = stored.answered.fetch_add(1, Ordering::Relaxed) + 1;
        CacheLookup::Entries { entries, is_same, answered }
    }

    /// Stores an answer, unless something was changed meanwhile; whether it is stored.
    pub(super) fn insert(
        &self,
        query: Query,
        answer: Answer,
        times: Times,
        (settings, now, changes): (&Settings, Monotonic, u64),
    ) -> bool {
        let (count, bytes) = answer.size();
        let again = query.again.as_ref().map_or(0, |_| AGAIN_BYTES);
        let bytes = bytes + QUERY_BYTES + again;
        if count > settings.entries_max || bytes > settings.bytes_max || settings.queries_max == 0 {
            return false;
        }
        let refresh = times.refresh.map_or(u64::MAX, |time| later(now, time).0);
        let stored = StoredAnswer {
            // It is given one with its place.
            id: QueryId::default(),
            query,
            answer,
            expires: later(now, times.ttl),
            refresh: AtomicU64::new(refresh),
            answered: AtomicU64::new(0),
            bytes,
        };
        let mut state = self.state();
        if state.changes != changes {
            return false;
        }
        state.insert(stored, settings);
        true
    }

    /// Whether the remote server is to be asked, or is being asked for the same already.
    pub(super) fn board(self: &Arc<Self>, query: &Query) -> Boarding {
        let mut flights = self.flights();
        let own = flights.entry((query.group(), query.values())).or_default();
        if let Some(flight) = own.iter().find(|flight| flight.is_for(query)) {
            return Boarding::Waits(Arc::clone(flight));
        }
        let flight = Arc::new(Flight::of(query));
        own.push(Arc::clone(&flight));
        Boarding::Leads(Leading::new(Arc::clone(self), query, flight))
    }

    /// A search has ended, or is not kept.
    pub(super) fn land(&self, group: &Group, values: &[u8], flight: &Arc<Flight>) {
        let key = (group.clone(), values.to_vec());
        let mut flights = self.flights();
        if let Some(own) = flights.get_mut(&key) {
            own.retain(|one| !Arc::ptr_eq(one, flight));
            if own.is_empty() {
                flights.remove(&key);
            }
        }
    }

    fn flights(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets every answer that a change of this entry, or of those below it, may have made wrong.
    pub(super) fn forget(&self, dn: &NormalDn) {
        let mut state = self.state();
        state.changes += 1;
        let touched = state.stored.iter().filter(|(_, (_, stored))| stored.query.region.may_see(dn));
        let touched: Vec<u64> = touched.map(|(number, _)| *number).collect();
        touched.into_iter().for_each(|number| state.remove(number));
        drop(state);
        self.binds.forget(dn);
    }

    /// Forgets the answers that have this entry, those without entries that it may be missing in, and its password.
    pub(super) fn forget_entry(&self, dn: &NormalDn) {
        let mut state = self.state();
        state.changes += 1;
        let has_it = |stored: &StoredAnswer| match &stored.answer {
            Answer::Entries(entries) if !entries.is_empty() => entries.iter().any(|entry| entry.dn == *dn),
            Answer::Entries(_) | Answer::TooMany => stored.query.region.may_see(dn),
        };
        let with_it = state.stored.iter().filter(|(_, (_, stored))| has_it(stored));
        let with_it: Vec<u64> = with_it.map(|(number, _)| *number).collect();
        with_it.into_iter().for_each(|number| state.remove(number));
        drop(state);
        self.binds.forget(dn);
    }

    /// Forgets the query with this UUID if it is about a base below this one, or if its answer has this entry; whether there is one.
    pub(super) fn forget_query(&self, id: &QueryId, dn: &NormalDn, is_entry: bool) -> bool {
        let mut state = self.state();
        let is_meant = |stored: &StoredAnswer| {
            let is_about = match (&stored.answer, is_entry) {
                (Answer::Entries(entries), true) => entries.iter().any(|entry| entry.dn == *dn),
                (Answer::TooMany, true) => false,
                (_, false) => stored.query.region.base.is_within(dn),
            };
            stored.id == *id && is_about
        };
        let found = state.stored.iter().find(|(_, (_, stored))| is_meant(stored)).map(|(number, _)| *number);
        if let Some(number) = found {
            state.changes += 1;
            state.remove(number);
        }
        found.is_some()
    }

    /// Forgets the answers to searches of this base, and of those below it.
    pub(super) fn forget_searches(&self, base: &NormalDn) {
        let mut state = self.state();
        state.changes += 1;
        let below = state.stored.iter().filter(|(_, (_, stored))| stored.query.region.base.is_within(base));
        let below: Vec<u64> = below.map(|(number, _)| *number).collect();
        below.into_iter().for_each(|number| state.remove(number));
    }

    /// Keeps a password that the remote server has let in, unless something was changed meanwhile; whether it is kept.
    pub(super) fn keep_password(
        &self,
        name: (&NormalDn, &Arc<str>),
        password: &[u8],
        times: (Monotonic, Monotonic),
        most: usize,
        changes: Option<u64>,
    ) -> bool {
        let state = self.state();
        let is_as_it_was = changes.is_none_or(|changes| changes == state.changes);
        is_as_it_was && self.binds.keep(name, password, times, most)
    }

    /// Forgets what has expired, now and then, and notes what is to be read again.
    pub(super) fn check(&self, settings: &Settings, now: Monotonic) {
        if settings.offline {
            return;
        }
        let mut state = self.state();
        if state.check_at.is_some_and(|at| now < at) {
            return;
        }
        state.check_at = Some(later(now, settings.check_period));
        let expired = state.stored.iter().filter(|(_, (_, stored))| !stored.is_live(now, false));
        let expired: Vec<u64> = expired.map(|(number, _)| *number).collect();
        expired.into_iter().for_each(|number| state.remove(number));
        // What was used since it was read will be asked for again.
        let is_used = |stored: &StoredAnswer| {
            stored.query.again.is_some() && stored.answered.load(Ordering::Relaxed) > 0
        };
        let due = state.stored.iter().filter(|(_, (_, one))| is_used(one) && one.takes_turn(settings, now));
        let due: Vec<u64> = due.map(|(number, _)| *number).collect();
        drop(state);
        self.refreshes.note(due, settings.queries_max);
        self.binds.check(now);
    }

    /// The search that is answered by the one with this number, if that is there.
    pub(super) fn query_of(&self, number: u64) -> Option<Query> {
        self.state().stored.get(&number).map(|(_, stored)| stored.query.clone())
    }

    /// Forgets what this very search was answered: the remote server answers something else, which is not kept.
    pub(super) fn forget_answer(&self, query: &Query) {
        let mut state = self.state();
        state.same(query).into_iter().for_each(|number| state.remove(number));
    }

    /// Takes room for an answer that is being read; whether there is any.
    pub(super) fn reserve(&self, bytes: usize, settings: &Settings) -> bool {
        let before = self.reading.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= settings.bytes_max / 4;
        if !fits {
            self.release(bytes);
        }
        fits
    }

    pub(super) fn release(&self, bytes: usize) {
        self.reading.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes of answers that are being read.
    #[cfg(test)]
    pub(super) fn reading(&self) -> usize {
        self.reading.load(Ordering::Relaxed)
    }
}

/// A UUID of version 8 (RFC 9562).
fn query_id(prefix: u64, number: u64) -> QueryId {
    let (high, low) = (prefix & !0xf000 | 0x8000, number & (u64::MAX >> 2) | 1 << 63);
    (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
}

fn best_is_same(best: Option<&(u64, Arc<StoredAnswer>)>, query: &Query) -> bool {
    best.is_some_and(|(_, stored)| stored.query.region.base == query.region.base)
}

impl State {
    /// What may have the answer: the same filter, and those that find more than that.
    fn candidates(
        &self,
        query: &Query,
        settings: &Settings,
        now: Monotonic,
    ) -> Vec<(u64, Arc<StoredAnswer>)> {
        let Some(group) = self.groups.get(&query.group()) else { return Vec::new() };
        let equal = group.equal.get(&query.values()).map(Vec::as_slice).unwrap_or_default();
        let all = equal.iter().rev().chain(group.wide.iter().rev().take(WIDE_MAX));
        let found = all.filter_map(|number| Some((*number, self.stored.get(number)?)));
        let live = found.filter(|(_, (_, stored))| stored.is_live(now, settings.offline));
        live.map(|(number, (_, stored))| (number, Arc::clone(stored))).collect()
    }

    fn use_now(&mut self, number: u64) {
        self.next += 1;
        let next = self.next;
        if let Some((used, _)) = self.stored.get_mut(&number) {
            self.order.remove(used);
            *used = next;
            self.order.insert(next, number);
        }
    }

    /// What the same search was answered.
    fn same(&self, query: &Query) -> Vec<u64> {
        let same = self.groups.get(&query.group()).and_then(|queries| queries.equal.get(&query.values()));
        let is_same = |number: &&u64| {
            self.stored.get(number).is_some_and(|(_, old)| {
                old.query.region == query.region && old.query.unknown == query.unknown
            })
        };
        same.into_iter().flatten().filter(is_same).copied().collect()
    }

    fn insert(&mut self, mut stored: StoredAnswer, settings: &Settings) {
        let (group, values) = (stored.query.group(), stored.query.values());
        let (count, bytes) = (stored.answer.size().0, stored.bytes);
        // What the same search was answered before goes.
        let same = self.same(&stored.query);
        let known = same.first().and_then(|number| Some(self.stored.get(number)?.1.id));
        same.into_iter().for_each(|number| self.remove(number));
        while self.stored.len() >= settings.queries_max
            || self.entries + count > settings.entries_max
            || self.bytes + bytes > settings.bytes_max
        {
            let Some((_, oldest)) = self.order.first_key_value().map(|(used, number)| (*used, *number))
            else {
                break;
            };
            self.remove(oldest);
        }
        self.next += 1;
        let number = self.next;
        stored.id = known.unwrap_or_else(|| query_id(self.id_prefix, number));
        let queries = self.groups.entry(group).or_default();
        let places = queries.equal.entry(values).or_default();
        places.push(number);
        let mut superfluous = Vec::new();
        if places.len() > PLACES_MAX {
            superfluous.extend(places.first());
        }
        if containment::is_wide(&stored.query.filter) {
            queries.wide.push_back(number);
            if queries.wide.len() > WIDE_MAX {
                superfluous.extend(queries.wide.front());
            }
        }
        self.entries += count;
        self.bytes += bytes;
        self.order.insert(number, number);
        self.stored.insert(number, (number, Arc::new(stored)));
        superfluous.into_iter().for_each(|number| self.remove(number));
    }

    fn remove(&mut self, number: u64) {
        let Some((used, stored)) = self.stored.remove(&number) else { return };
        self.order.remove(&used);
        self.entries -= stored.answer.size().0;
        self.bytes -= stored.bytes;
        let (group, values) = (stored.query.group(), stored.query.values());
        let Some(queries) = self.groups.get_mut(&group) else { return };
        if let Some(places) = queries.equal.get_mut(&values) {
            places.retain(|one| *one != number);
            if places.is_empty() {
                queries.equal.remove(&values);
            }
        }
        queries.wide.retain(|one| *one != number);
        if queries.equal.is_empty() {
            self.groups.remove(&group);
        }
    }
}
