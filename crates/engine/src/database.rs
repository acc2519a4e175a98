//! A database: a store, and what is known about it while it is open.

mod ahead;
mod attribute_commits;
mod facts;
pub(crate) mod kept_lists;
mod mirror;
mod settings;
mod shared;
mod unfinished;
mod view;

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::{ArcSwap, Guard};
use larix_schema::{NormalDn, Schema};
use larix_store::{CommitError, Durability, ReadError, Snapshot, Store, Transaction, WriteSet};

use crate::access::AccessPolicy;
use crate::catalog::{Catalog, CatalogError};
use crate::fault::{Fault, UnknownFormat, VERSION, commit_fault};
use crate::figures::WriteBoard;
use crate::index::build;
use crate::index::status::{IndexStatus, WorkBoard, WorkStatus};
use crate::index::uses::IndexUses;
use crate::index::{IndexConfig, Kinds};
use crate::log::{self, LogWatch};
use crate::overlay::Interests;
use crate::overlay::Overlay;
use crate::overlay::computed::ComputedAttribute;
use crate::overlay::internal_search::OtherDatabases;
use crate::overlay::shown::ShownEntries;
use crate::tables::{FORMAT, FORMAT_OLDEST, FORMAT_SHARED, META, meta};
use crate::time::{Monotonic, RandomSource};
use crate::tree::{FoundChildren, Names};
use attribute_commits::AttributeCommits;
pub(crate) use attribute_commits::is_altered;
use facts::CommitFacts;
use kept_lists::KeptLists;

pub use ahead::READ_FIRST;
pub(crate) use ahead::{facts as facts_ahead, path as path_ahead};
pub(crate) use facts::Configured;
pub use mirror::{Mirror, Mirrored, MirroredEntry};
pub use settings::{
    DatabaseSettings, GluedContexts, HardLimit, Limits, OldValues, PagedTotal, ProviderSettings, Suffix,
};
pub(crate) use shared::{MayConflict, commit_alone, is_conflict, retried, settled, unmade};
pub(crate) use unfinished::{begin_fill, discard_fill};
pub use view::View;

/// Why a database could not be opened on its store.
#[derive(Debug)]
pub enum DatabaseOpenError {
    Read(ReadError),
    Commit(CommitError),
    Catalog(CatalogError),
    Fault(Fault),
    /// Nothing was ever stored and the store cannot be written.
    Empty,
}

impl fmt::Display for DatabaseOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Commit(error) => error.fmt(f),
            Self::Catalog(error) => error.fmt(f),
            Self::Fault(fault) => fault.fmt(f),
            Self::Empty => f.write_str("the database is empty and opened for reading only"),
        }
    }
}

impl std::error::Error for DatabaseOpenError {}

impl From<ReadError> for DatabaseOpenError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<CommitError> for DatabaseOpenError {
    fn from(error: CommitError) -> Self {
        Self::Commit(error)
    }
}

impl From<Fault> for DatabaseOpenError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<CatalogError> for DatabaseOpenError {
    fn from(error: CatalogError) -> Self {
        Self::Catalog(error)
    }
}

/// What is needed to understand what a database stores, at one moment. Replaced as a whole, so that no thread ever sees a
/// catalog with types that its schema does not have.
#[derive(Clone, Debug)]
pub struct DatabaseState {
    pub schema: Arc<Schema>,
    pub catalog: Arc<Catalog>,
    pub settings: Arc<DatabaseSettings>,
    /// The access rules that the settings say.
    pub policy: Arc<AccessPolicy>,
    /// Where overlays find what this database does not hold; `None` before it is part of a directory.
    pub others: Option<Arc<dyn OtherDatabases>>,
    /// What its overlays compute of entries.
    pub computed: Arc<[ComputedAttribute]>,
    /// Its overlays that look at what is answered of entries.
    pub shown: Arc<[Arc<dyn Overlay>]>,
    /// Where entries were found by their names.
    pub(crate) found: Arc<FoundChildren>,
    /// Which commits have changed what, since schema and settings are these.
    pub(crate) attribute_commits: Arc<AttributeCommits>,
}

impl DatabaseState {
    /// Notes which hooks the overlays use.
    fn find_hooks(&mut self) {
        let overlays = &self.settings.overlays;
        self.computed = ComputedAttribute::all(&self.schema, overlays);
        let mut shown: Vec<_> = overlays.at(Interests::SHOW).cloned().collect();
        shown.sort_by_key(|overlay| overlay.shown().is_some_and(ShownEntries::orders_values));
        self.shown = shown.into();
    }
}

/// The settings in force when they were asked for, to look at for a moment.
#[derive(Debug)]
pub struct CurrentSettings(Guard<Arc<DatabaseState>>);

impl Deref for CurrentSettings {
    type Target = DatabaseSettings;

    fn deref(&self) -> &DatabaseSettings {
        &self.0.settings
    }
}

/// An open database.
#[derive(Debug)]
pub struct Database<S> {
    store: S,
    /// Tells databases of this process apart.
    instance: u64,
    state: ArcSwap<DatabaseState>,
    /// Held by who publishes another state.
    publishing: Mutex<()>,
    /// How often schema, catalog or settings were published: counted after it was done, read before they are.
    configuration: AtomicU64,
    /// The last commit for which the published catalog is known to hold; in a shared store only. Raised after
    /// the catalog was published.
    catalog_commit: AtomicU64,
    cookie_secret: [u8; COOKIE_SECRET_LENGTH],
    /// A provider sent the states of entries: they are kept, whatever the configuration says of that.
    states_kept: AtomicBool,
    index_uses: IndexUses,
    kept_lists: KeptLists,
    index_work: WorkBoard,
    writes: WriteBoard,
    following: log::Following,
    log_watch: LogWatch,
    /// Under which the writer numbers its records.
    server_id: AtomicU16,
    /// What the store is an image of.
    mirror: OnceLock<Box<dyn Mirror>>,
    /// The first content is coming, and is not to be read yet.
    filling: AtomicBool,
    attached: OnceLock<Box<dyn Any + Send + Sync>>,
}

pub(crate) const COOKIE_SECRET_LENGTH: usize = 32;

static INSTANCES: AtomicU64 = AtomicU64::new(1);

/// A number that no other database, nor other user of its caches, has in this process.
pub(crate) fn next_instance() -> u64 {
    INSTANCES.fetch_add(1, Ordering::Relaxed)
}

impl<S: Store> Database<S> {
    /// Opens the database on a store with [`crate::tables::TABLES`]; an empty store is initialised.
    ///
    /// Indexes that the lines no longer want are forgotten here; those that they want and that are not complete are
    /// not used before [`crate::check::rebuild`] has run ([`Catalog::stale`] tells).
    pub fn open(
        store: S,
        schema: Arc<Schema>,
        settings: DatabaseSettings,
        random: &dyn RandomSource,
    ) -> Result<Self, DatabaseOpenError> {
        let (catalog, cookie_secret) = if store.is_read_only() {
            let snapshot = store.snapshot()?;
            check_format::<S>(&snapshot)?;
            if snapshot.get(META, meta::FILLING)?.is_some() {
                return Err(DatabaseOpenError::Empty);
            }
            let secret = read_secret(&snapshot)?.ok_or(DatabaseOpenError::Empty)?;
            (Catalog::load(&snapshot, &schema, settings.index.clone())?, secret)
        } else {
            retried(|| prepare(&store, &schema, &settings, random))?
        };
        let states_kept = store.snapshot()?.get(META, meta::STATES_KEPT)?.is_some();
        let settings = settings.with_states(states_kept);
        let mut state = DatabaseState {
            policy: settings.policy_or_open(&schema),
            schema,
            catalog: Arc::new(catalog),
            settings: Arc::new(settings),
            others: None,
            computed: Arc::new([]),
            shown: Arc::new([]),
            found: Arc::default(),
            attribute_commits: Arc::default(),
        };
        state.find_hooks();
        Ok(Self {
            store,
            instance: next_instance(),
            state: ArcSwap::from_pointee(state),
            publishing: Mutex::default(),
            configuration: AtomicU64::new(0),
            // The first view of a shared store reads the catalog again.
            catalog_commit: AtomicU64::new(0),
            cookie_secret,
            states_kept: AtomicBool::new(states_kept),
            index_uses: IndexUses::default(),
            kept_lists: KeptLists::default(),
            index_work: WorkBoard::default(),
            writes: WriteBoard::default(),
            following: log::Following::default(),
            log_watch: LogWatch::default(),
            server_id: AtomicU16::new(0),
            mirror: OnceLock::new(),
            filling: AtomicBool::new(false),
            attached: OnceLock::new(),
        })
    }

    /// The store is the image of something else: before changes are committed this is shown them. To be called before
    /// the database is written to; the first call counts.
    pub fn set_mirror(&self, mirror: Box<dyn Mirror>) {
        let _ = self.mirror.set(mirror);
    }

    /// What the store is an image of, if it is one.
    pub fn mirror(&self) -> Option<&dyn Mirror> {
        self.mirror.get().map(AsRef::as_ref)
    }

    pub fn store(&self) -> &S {
        &self.store
    }

    pub fn instance(&self) -> u64 {
        self.instance
    }

    pub fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.state.load().schema)
    }

    /// Take it after the snapshot: then it knows every number in there.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.state.load().catalog)
    }

    pub fn settings(&self) -> Arc<DatabaseSettings> {
        Arc::clone(&self.state.load().settings)
    }

    pub(crate) fn current_attribute_commits(&self) -> Arc<AttributeCommits> {
        Arc::clone(&self.state.load().attribute_commits)
    }

    pub fn cookie_secret(&self) -> &[u8; COOKIE_SECRET_LENGTH] {
        &self.cookie_secret
    }

    /// Notifies followers that the log has grown.
    pub fn log_watch(&self) -> &LogWatch {
        &self.log_watch
    }

    /// Under which the change log is kept: the id of the server that writes here.
    pub fn server_id(&self) -> u16 {
        self.server_id.load(Ordering::Acquire)
    }

    pub(crate) fn set_server_id(&self, server_id: u16) {
        self.server_id.store(server_id, Ordering::Release);
    }

    /// A value that another module keeps with the open database. The first caller decides its type; callers with another
    /// type get none.
    pub fn attached<T: Any + Send + Sync + Default>(&self) -> Option<&T> {
        self.attached.get_or_init(|| Box::new(T::default())).downcast_ref()
    }

    /// Whether its first content is coming in ([`crate::load::Fill`]): what is in the tables is not to be read yet.
    pub fn is_filling(&self) -> bool {
        self.filling.load(Ordering::Acquire)
    }

    pub(crate) fn set_filling(&self, filling: bool) {
        self.filling.store(filling, Ordering::Release);
    }

    /// Publishes a catalog that has more numbers: before the commit that stores the first entry with them.
    pub(crate) fn publish_catalog(&self, catalog: Arc<Catalog>) {
        if !Arc::ptr_eq(&self.state.load().catalog, &catalog) {
            self.publish(|state| state.catalog = catalog);
        }
    }

    /// Lets overlays see these databases.
    pub(crate) fn see_others(&self, others: Arc<dyn OtherDatabases>) {
        self.publish(|state| state.others = Some(others));
    }

    fn publish(&self, change: impl FnOnce(&mut DatabaseState)) {
        // Nothing is left half done by who panics here.
        let _turn = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.state();
        let mut next = DatabaseState::clone(&before);
        change(&mut next);
        if !Arc::ptr_eq(&next.settings, &before.settings) || !Arc::ptr_eq(&next.schema, &before.schema) {
            next.find_hooks();
            // Other attributes may be indexed.
            next.attribute_commits = Arc::default();
        }
        self.state.store(Arc::new(next));
        self.configuration.fetch_add(1, Ordering::Release);
    }

    /// Schema, catalog and settings that belong together.
    pub fn state(&self) -> Arc<DatabaseState> {
        self.state.load_full()
    }

    /// As [`Self::settings`], to look at for a moment.
    pub fn current_settings(&self) -> CurrentSettings {
        CurrentSettings(self.state.load())
    }

    /// The access rules, for callers that read no entries. A [`View`] has its own: those of the configuration that it is read with.
    pub fn policy(&self) -> Arc<AccessPolicy> {
        Arc::clone(&self.state.load().policy)
    }

    /// Publishes what another configuration says. Indexes that are no longer wanted are known to the store as such already.
    /// The writer must not be in the middle of a group.
    pub(crate) fn publish_configuration(&self, schema: Arc<Schema>, settings: DatabaseSettings) {
        let settings = self.with_states(settings);
        let policy = settings.policy_or_open(&schema);
        self.publish(|state| {
            let mut catalog = state.catalog.rebound(&schema, settings.index.clone());
            catalog.forget_unwanted(&mut WriteSet::new());
            let (catalog, settings) = (Arc::new(catalog), Arc::new(settings));
            (state.schema, state.catalog, state.settings) = (schema, catalog, settings);
            state.policy = policy;
        });
        self.log_watch.tell();
    }

    fn with_states(&self, settings: DatabaseSettings) -> DatabaseSettings {
        settings.with_states(self.states_kept.load(Ordering::Acquire))
    }

    /// From now on states of entries are kept, as is written in the store: between two groups of the writer.
    pub(crate) fn publish_states(&self) {
        self.states_kept.store(true, Ordering::Release);
        self.publish(|state| {
            let settings = DatabaseSettings::clone(&state.settings);
            state.settings = Arc::new(settings.with_states(true));
        });
        self.log_watch.tell();
    }

    /// Takes changes, or none, until the configuration says otherwise.
    pub fn set_read_only(&self, read_only: bool) {
        self.publish(|state| Arc::make_mut(&mut state.settings).read_only = read_only);
    }

    /// The catalog under these lines. What they no longer want is not trusted again: stored before anything is changed under
    /// the new catalog.
    ///
    /// # Errors
    /// A commit that failed; nothing has changed.
    pub(crate) fn settle_indexes(
        &self,
        schema: &Schema,
        index: &IndexConfig,
    ) -> Result<Catalog, CommitError> {
        if self.store.is_read_only() {
            return Ok(self.catalog().rebound(schema, index.clone()));
        }
        retried(|| {
            let transaction = self.store.transaction()?;
            self.follow_catalog(&transaction).map_err(commit_fault)?;
            let mut catalog = self.catalog().rebound(schema, index.clone());
            let mut set = WriteSet::new();
            build::settle(&transaction, &mut catalog, &mut set)?;
            if !set.is_empty() {
                transaction.commit(&set, Durability::Sync)?;
            }
            Ok(catalog)
        })
    }

    /// The suffix at or above the DN.
    pub fn suffix_of(&self, dn: &NormalDn) -> Option<Suffix> {
        let settings = self.current_settings();
        settings.suffixes.iter().find(|s| s.normal == *dn || dn.is_descendant_of(&s.normal)).cloned()
    }

    /// What searches use indexes for.
    pub fn index_uses(&self) -> &IndexUses {
        &self.index_uses
    }

    /// Gives back the memory of sorted lists that no client has asked for in a while.
    pub fn drop_old_lists(&self, now: Monotonic) {
        self.kept_lists.drop_old(now);
    }

    /// Where the writer counts what it does.
    pub fn writes(&self) -> &WriteBoard {
        &self.writes
    }

    /// Who follows the change log, and how far.
    pub fn following(&self) -> &log::Following {
        &self.following
    }

    /// What is being done to the indexes.
    pub fn index_work(&self) -> &WorkBoard {
        &self.index_work
    }

    /// The indexes of each attribute description that has any, or should have: those that are complete, those that are
    /// being built, and what they were used for.
    pub fn index_status(&self) -> Vec<IndexStatus> {
        let (catalog, work) = (self.catalog(), self.index_work.get());
        let parts = work.as_ref().map(|work| work.parts.as_slice()).unwrap_or_default();
        let mut all = Vec::new();
        for row in catalog.rows() {
            let working = parts.iter().find(|(number, _)| *number == row.number);
            let working = working.map_or(Kinds::NONE, |(_, kinds)| *kinds);
            if row.wanted.or(working).is_empty() {
                continue;
            }
            let idle = WorkStatus::default();
            let work = work.as_ref().filter(|_| !working.is_empty()).unwrap_or(&idle);
            all.push(IndexStatus {
                attribute: row.text.to_string(),
                kinds: row.wanted,
                complete: row.usable(),
                working,
                done: work.done,
                total: work.total,
                per_second: work.per_second(),
                seconds_left: work.seconds_left(),
                uses: self.index_uses.of(row.number),
            });
        }
        all
    }

    /// Whether there may be referral objects (RFC 3296) in it.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn has_referrals(&self) -> Result<bool, Fault> {
        let snapshot = self.store().snapshot()?;
        Ok(self.view(&snapshot)?.facts.is_none_or(|facts| facts.referrals))
    }

    /// A consistent view with everything that reading takes.
    pub fn view<'s, N: Snapshot>(&'s self, snapshot: &'s N) -> Result<View<'s, N>, Fault> {
        self.follow_catalog(snapshot)?;
        // The snapshot was taken before the catalog, which therefore knows every number in there.
        let numbers = (self.instance, self.configuration.load(Ordering::Acquire));
        let state = self.state.load();
        let state = match state.catalog.for_commit(snapshot.commit_counter()) {
            Some(earlier) => {
                let catalog = Arc::clone(earlier);
                Guard::from_inner(Arc::new(DatabaseState { catalog, ..DatabaseState::clone(&state) }))
            }
            None => state,
        };
        let facts = CommitFacts::of(snapshot, numbers, &state.catalog, &state.settings)?;
        // Names of before are not those of a commit behind which some may have been lost.
        let unbroken = self.store.unbroken_since();
        let since = if snapshot.commit_counter() < unbroken { 0 } else { unbroken };
        let generation = facts.generation ^ since.rotate_left(u64::BITS / 2);
        let names = Names::of_generation(snapshot, self.instance, generation);
        let uses = Some((self.instance, &self.index_uses));
        let kept_lists = Some(&self.kept_lists);
        Ok(View { names, snapshot, state, facts: Some(facts), uses, kept_lists })
    }
}

/// The disk format that this version gives to a store when it opens that for writing: the newest one that it reads there.
const fn newest_format<S: Store>() -> u32 {
    if S::SHARED { FORMAT_SHARED } else { FORMAT }
}

/// The number of the store's format; none in a new store.
///
/// # Errors
/// A store that cannot be read, or a format that this version does not read.
pub fn check_format<S: Store>(snapshot: &impl Snapshot) -> Result<Option<u32>, Fault> {
    let Some(found) = snapshot.get(META, meta::FORMAT)? else { return Ok(None) };
    let newest = newest_format::<S>();
    let number = found.as_ref().try_into().ok().map(u32::from_be_bytes);
    match number.filter(|number| (FORMAT_OLDEST..=newest).contains(number)) {
        Some(number) => Ok(Some(number)),
        None => {
            let version = snapshot.get(META, meta::WRITTEN_BY)?;
            let written_by = version.map(|version| String::from_utf8_lossy(&version).into_owned());
            Err(UnknownFormat { found: found.into_owned(), written_by, newest }.into())
        }
    }
}

fn read_secret(snapshot: &impl Snapshot) -> Result<Option<[u8; COOKIE_SECRET_LENGTH]>, DatabaseOpenError> {
    let secret = snapshot.get(META, meta::COOKIE_SECRET)?;
    Ok(secret.and_then(|secret| secret.as_ref().try_into().ok()))
}

/// Brings a writable store up to what the settings say.
fn prepare<S: Store>(
    store: &S,
    schema: &Schema,
    settings: &DatabaseSettings,
    random: &dyn RandomSource,
) -> Result<(Catalog, [u8; COOKIE_SECRET_LENGTH]), DatabaseOpenError> {
    if !S::SHARED {
        discard_fill(store)?;
    }
    let transaction = store.transaction()?;
    let mut set = WriteSet::new();
    let format = newest_format::<S>();
    if check_format::<S>(&transaction)? != Some(format) {
        set.put(META, meta::FORMAT, format.to_be_bytes());
        set.put(META, meta::WRITTEN_BY, VERSION.as_bytes());
    }
    if settings.log && log::history(&transaction)?.is_none() {
        log::put_history(&mut set, random);
    }
    let secret = match read_secret(&transaction)? {
        Some(secret) => secret,
        None => {
            let mut secret = [0; COOKIE_SECRET_LENGTH];
            random.fill(&mut secret);
            set.put(META, meta::COOKIE_SECRET, secret);
            secret
        }
    };
    let mut catalog = Catalog::load(&transaction, schema, settings.index.clone())?;
    build::settle(&transaction, &mut catalog, &mut set)?;
    if !set.is_empty() {
        transaction.commit(&set, Durability::Sync)?;
    }
    Ok((catalog, secret))
}
