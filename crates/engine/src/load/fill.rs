//! The first fill of a database while it is served: what a consumer's first refresh brings goes the way of a bulk load.
//!
//! **All of it or nothing.** A note in the store says that content is coming ([`meta::FILLING`]); the commit that removes
//! it is the one that brings the contextCSN. The writer finds the note after a fill that failed, the next process to open the
//! database after a crash: either throws away what was stored. Names come last, so that no search finds an entry that cannot be
//! read.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use foldhash::HashMap;
use larix_proto::ldif::{Body, LdifAttribute, Record};
use larix_proto::{LdapResult, ResultCode, SearchResultEntry};
use larix_store::{Loader, Store, WriteSet};
use uuid::Uuid;

use super::bulk::{self, Batches, Loading};
use super::error::{LoadError, RecordError, RecordFault};
use super::packing::Packing;
use super::prepare::Checker;
use super::states::{Arrived, StateRows};
use super::worker::{Batch, Content};
use super::{LoadContext, LoadOptions, Unobserved};
use crate::catalog::{Catalog, CatalogEdit};
use crate::csn::Csn;
use crate::database::{Database, DatabaseSettings, DatabaseState};
use crate::replica_state;
use crate::tables::{META, meta};
use crate::time::{Clock, RandomSource};

/// Entries that are handed over at once, or as many bytes of their values.
const BATCH_ENTRIES: usize = 64;
const BATCH_BYTES: usize = 128 << 10;
/// Batches that wait for the writer's thread.
const BATCHES_WAITING: usize = 8;
/// How long the feeding thread waits before it looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(50);
/// After so many looks without anything to store, changes that wait go first.
const IDLE_LOOKS: u32 = 40;

/// How to fill.
#[derive(Clone, Debug)]
pub struct FillOptions {
    /// Where temporary files go.
    pub scratch: PathBuf,
    /// Entries obey the schema's rules of object classes; syntaxes they obey always.
    pub schema_checking: bool,
    /// Threads that check and encode beside the one that writes.
    pub threads: usize,
}

/// What is handed to the writer's thread.
#[derive(Debug)]
pub(crate) enum Feed {
    Entries(Vec<Arrived>),
    /// That was all, and it stands for this.
    Finish(Extent),
}

/// What an end of the content stands for.
#[derive(Debug)]
pub(crate) struct Extent {
    pub(crate) context_csns: Vec<Csn>,
    /// It does not say what was deleted up to there.
    pub(crate) by_content: bool,
}

/// A fill that the writer is asked for.
#[derive(Debug)]
pub(crate) struct FillRequest {
    pub(crate) feed: Receiver<Feed>,
    pub(crate) options: FillOptions,
    /// How many entries there are, or why there are none.
    pub(crate) reply: SyncSender<Result<u64, LoadError>>,
}

/// Entries on their way into an empty database. Until it is [finished](Self::finish) there are none, and dropping it
/// leaves it at that.
#[derive(Debug)]
pub struct Fill {
    feed: SyncSender<Feed>,
    outcome: Receiver<Result<u64, LoadError>>,
    entries: Vec<Arrived>,
    bytes: usize,
    names: HashMap<Box<str>, Name>,
    /// `entryUUID`
    identity: Arc<str>,
}

/// What an attribute is called, or that it is not taken from others.
#[derive(Clone, Debug)]
enum Name {
    Taken(Arc<str>),
    /// `entryUUID`: what the control of the synchronisation says counts.
    Identity,
    Left,
}

impl Fill {
    /// A fill, and the request to the writer.
    pub(crate) fn new(options: FillOptions) -> (Self, FillRequest) {
        let (feed, fed) = sync_channel(BATCHES_WAITING);
        let (reply, outcome) = sync_channel(1);
        let request = FillRequest { feed: fed, options, reply };
        let fill = Self {
            feed,
            outcome,
            entries: Vec::with_capacity(BATCH_ENTRIES),
            bytes: 0,
            names: HashMap::default(),
            identity: "entryUUID".into(),
        };
        (fill, request)
    }

    /// Takes an entry. Superiors come before what is below them, or soon after. `state`: what came beside it.
    ///
    /// # Errors
    /// Why the fill has ended, be it because of an entry before.
    pub fn add(
        &mut self,
        uuid: Uuid,
        entry: &SearchResultEntry<'_>,
        state: Option<&[u8]>,
    ) -> Result<(), LoadError> {
        let mut attributes = Vec::with_capacity(entry.attributes.iter().count() + 1);
        let mut has_class = false;
        let mut identity = Some(LdifAttribute {
            description: Arc::clone(&self.identity),
            values: vec![uuid.to_string().into_bytes()],
        });
        for attribute in entry.attributes.iter() {
            let values: Vec<Vec<u8>> = attribute.values.iter().map(<[u8]>::to_vec).collect();
            if values.is_empty() {
                continue;
            }
            let description = match self.name(attribute.description) {
                Name::Taken(description) => description,
                // Where it was sent: an entry looks the same on all servers.
                Name::Identity => {
                    attributes.extend(identity.take());
                    continue;
                }
                Name::Left => continue,
            };
            has_class |= description.eq_ignore_ascii_case("objectClass");
            self.bytes += values.iter().map(Vec::len).sum::<usize>();
            attributes.push(LdifAttribute { description, values });
        }
        if !has_class {
            let refused = LdapResult::with(ResultCode::OBJECT_CLASS_VIOLATION, "no objectClass attribute");
            let dn = entry.dn.to_owned();
            return Err(RecordError { line: 0, dn, fault: RecordFault::Refused(refused) }.into());
        }
        attributes.extend(identity);
        self.bytes += state.map_or(0, <[u8]>::len);
        let record = Record { line: 0, dn: entry.dn.to_owned(), body: Body::Content(attributes) };
        self.entries.push(Arrived { uuid, record, state: state.map(<[u8]>::to_vec) });
        if self.entries.len() >= BATCH_ENTRIES || self.bytes >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn name(&mut self, description: &str) -> Name {
        if let Some(name) = self.names.get(description) {
            return name.clone();
        }
        let name = match description {
            _ if description.eq_ignore_ascii_case("entryUUID") => Name::Identity,
            _ if replica_state::is_computed(description) => Name::Left,
            _ => Name::Taken(description.into()),
        };
        self.names.insert(description.into(), name.clone());
        name
    }

    fn flush(&mut self) -> Result<(), LoadError> {
        self.bytes = 0;
        if self.entries.is_empty() {
            return Ok(());
        }
        let entries = std::mem::replace(&mut self.entries, Vec::with_capacity(BATCH_ENTRIES));
        let sent = self.feed.send(Feed::Entries(entries));
        sent.map_err(|_| self.why())
    }

    /// That was all; it stands for these CSNs. Answers how many entries there are. Success means durable.
    ///
    /// # Errors
    /// Why there are none.
    pub fn finish(self, context_csns: Vec<Csn>) -> Result<u64, LoadError> {
        self.end(Extent { context_csns, by_content: false })
    }

    /// As [`Self::finish`], of a provider that did not name what was deleted there: a member that has older content hears of those deletes
    /// from this server as little as from a pass over other content ([`crate::replica::ReplicaRules::by_content`]).
    ///
    /// # Errors
    /// As there.
    pub fn finish_by_content(self, context_csns: Vec<Csn>) -> Result<u64, LoadError> {
        self.end(Extent { context_csns, by_content: true })
    }

    fn end(mut self, extent: Extent) -> Result<u64, LoadError> {
        self.flush()?;
        self.feed.send(Feed::Finish(extent)).map_err(|_| self.why())?;
        self.outcome.recv().unwrap_or(Err(ENDED))
    }

    fn why(&self) -> LoadError {
        match self.outcome.recv() {
            Ok(Err(error)) => error,
            _ => ENDED,
        }
    }
}

const ENDED: LoadError = LoadError::Stopped("the database is being closed");

/// What a fill takes from its surroundings.
pub(crate) struct FillContext<'a, S> {
    pub(crate) database: &'a Database<S>,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) random: &'a dyn RandomSource,
    /// Why the fill has to make way, if it has; asked with whether nothing has come for [`IDLE_LOOKS`].
    pub(crate) called_off: &'a (dyn Fn(bool) -> Option<&'static str> + Sync),
}

/// What is left to be committed.
pub(crate) struct FillRemainder {
    pub(crate) set: WriteSet,
    pub(crate) catalog: CatalogEdit,
    pub(crate) last_entry_id: u64,
    pub(crate) entries: u64,
    pub(crate) extent: Extent,
    /// What is stored before that.
    pub(crate) states: StateRows,
}

/// What is known when all has come.
struct End {
    extent: Extent,
    states: StateRows,
}

impl<S: Store> FillContext<'_, S> {
    /// Stores what comes, all but the facts about the database.
    pub(crate) fn run(
        &self,
        feed: Receiver<Feed>,
        options: &FillOptions,
    ) -> Result<FillRemainder, LoadError> {
        let state = self.database.state();
        // Entries are as they were sent: nothing is added.
        let settings = DatabaseSettings { last_modified: false, ..DatabaseSettings::clone(&state.settings) };
        let load = LoadOptions {
            schema_check: options.schema_checking,
            value_check: true,
            threads: options.threads,
            // What another server has may not be refused here: nothing would be replicated.
            unique_uuids: false,
            ..LoadOptions::default()
        };
        let context = LoadContext {
            schema: &state.schema,
            settings: &settings,
            clock: self.clock,
            random: self.random,
        };
        let packing = Packing::new(state.catalog.dictionaries());
        let checker = Checker::new(context, &load, CatalogEdit::new(Arc::clone(&state.catalog)))?;
        let bytes = AtomicU64::new(0);
        let loading =
            Loading { checker: &checker, packing: &packing, scratch: &options.scratch, bytes: &bytes };
        let mut end = Ok(None);
        let loader = self.database.store().live_loader()?;
        let (into_end, state_here) = (&mut end, &*state);
        // `feed` ends first: what it says of the end is known before names are stored.
        let (sender, receiver) = sync_channel(1);
        let loaded = loading.run(
            Some(loader),
            &mut Unobserved,
            move |out| {
                // The receiver still waits.
                let _ = sender.send(self.forward(&feed, out, state_here, StateRows::new(&options.scratch)));
            },
            &mut || {
                *into_end = receiver.recv().unwrap_or(Err(ENDED));
                if !matches!(into_end, Ok(Some(_))) {
                    return Err(ENDED);
                }
                self.database.publish_catalog(named(&checker, &packing));
                Ok(())
            },
        );
        let finished = loaded.and_then(|(loaded, loader)| {
            loader.map_or(Ok(()), |loader| loader.finish().map(drop))?;
            Ok(loaded)
        });
        let loaded = match finished {
            Ok(loaded) => loaded,
            // Whatever came of what had not come whole.
            Err(error) => {
                let reported = receiver.try_recv().ok().and_then(Result::err);
                return Err(reported.or_else(|| end.err()).unwrap_or(error));
            }
        };
        let End { extent, states } = end?.ok_or(ENDED)?;
        let mut set = WriteSet::new();
        let mut catalog = checker.into_catalog();
        bulk::write_meta(&mut set, &mut catalog, packing, loaded.last_id);
        set.delete(META, meta::FILLING);
        let (last_entry_id, entries) = (loaded.last_id, loaded.load.entries);
        Ok(FillRemainder { set, catalog, last_entry_id, entries, extent, states })
    }

    /// Hands on what comes, until its end. `None`: it ended elsewhere, where it is known why.
    fn forward(
        &self,
        feed: &Receiver<Feed>,
        out: Batches,
        state: &DatabaseState,
        mut states: StateRows,
    ) -> Result<Option<End>, LoadError> {
        for number in 0.. {
            let mut looks = 0;
            let entries = loop {
                if let Some(why) = (self.called_off)(looks >= IDLE_LOOKS) {
                    return Err(LoadError::Stopped(why));
                }
                match feed.recv_timeout(LOOK) {
                    Ok(Feed::Entries(entries)) => break entries,
                    Ok(Feed::Finish(extent)) => return Ok(Some(End { extent, states })),
                    Err(RecvTimeoutError::Timeout) => looks += 1,
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(LoadError::Stopped("the refresh ended before its end"));
                    }
                }
            };
            for arrived in &entries {
                states.take(&state.schema, &state.settings, arrived)?;
            }
            let records = entries.into_iter().map(|arrived| arrived.record).collect();
            if !out.send(Batch { number, content: Content::Records(records) }) {
                // An entry cannot be stored: it is known there.
                break;
            }
        }
        Ok(None)
    }
}

/// The catalog that all stored records can be read with.
fn named(checker: &Checker<'_>, packing: &Packing) -> Arc<Catalog> {
    let mut catalog = CatalogEdit::new(checker.catalog());
    let known = catalog.catalog().dictionaries().len();
    for dictionary in packing.dictionaries().iter().skip(known) {
        catalog.add_dictionary(Arc::clone(dictionary));
    }
    Arc::clone(catalog.catalog())
}
