//! Carries out again what the change log says: for a restore to a later time than the copy it begins with.
//!
//! Entries are found by their ids, not by their names, and nothing is checked anew: what was done was allowed then. After
//! it the tables of entries, tree and values are what they were when the last of the records had been written; the
//! records themselves are in the log again, under their sequences.

use std::fmt;
use std::sync::Arc;

use larix_schema::{NormalDn, Schema};
use larix_store::{CommitError, Durability, Layered, Snapshot, Store, Transaction, WriteSet};

use super::change;
use super::known::{KnownSchema, MissingElement};
use super::modify;
use super::operational::Stamp;
use super::operator::{Counters, Envelope, Operator, StoredSets, WriteContext};
use super::values;
use crate::access::Subject;
use crate::catalog::CatalogEdit;
use crate::change::prepare::{Change, ChangeKind, RequiredAccess};
use crate::controls::RequestControls;
use crate::csn::Csn;
use crate::database::{Database, DatabaseState, View, next_instance};
use crate::entry::encode::{self, Placement};
use crate::entry::{Entry, EntryAttribute, EntryId, split_rdn};
use crate::failure::Failure;
use crate::fault::Fault;
use crate::index::keys;
use crate::index::new_entry;
use crate::index::pending::{self, Writing};
use crate::log::{
    self, CsnVector, LogKey, LogRecord, LoggedAttribute, LoggedChange, LoggedKind, LoggedModification,
};
use crate::order::CommitOrder;
use crate::replica_state::{self, Tombstone};
use crate::tables::{ENTRIES, LOG, META, meta};
use crate::time::RandomSource;
use crate::tree;

/// Bytes of changes after which a replay commits.
const COMMIT_BYTES: usize = 64 << 20;

/// What a replay did.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    pub records: u64,
    /// The last one's.
    pub csn: Option<Csn>,
}

/// Why a replay ended early. The database is then of no use: begin again with the copy.
#[derive(Debug)]
pub enum ReplayError {
    /// Where the records come from.
    Source(std::io::Error),
    /// A record that cannot be carried out on what is there.
    Record {
        key: LogKey,
        /// Of the entry, if the record can be read that far.
        dn: String,
        what: String,
    },
    Fault(Fault),
    Commit(CommitError),
    Schema(MissingElement),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(error) => error.fmt(f),
            Self::Record { key, dn, what } => {
                let LogKey { server_id, sequence } = key;
                write!(f, "change {sequence} of server {server_id}, entry \"{dn}\": {what}")
            }
            Self::Fault(fault) => fault.fmt(f),
            Self::Commit(error) => error.fmt(f),
            Self::Schema(missing) => missing.fmt(f),
        }
    }
}

impl std::error::Error for ReplayError {}

impl From<Fault> for ReplayError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<larix_store::ReadError> for ReplayError {
    fn from(error: larix_store::ReadError) -> Self {
        Self::Fault(error.into())
    }
}

impl From<CommitError> for ReplayError {
    fn from(error: CommitError) -> Self {
        Self::Commit(error)
    }
}

/// A record of the log as it is stored.
pub type StoredRecord = (LogKey, Vec<u8>);

/// Carries out records in their order, on a database that nothing else writes. Commits are not synced one by one but all
/// together at the end; `progress` receives the number of records now and then.
///
/// # Errors
/// See [`ReplayError`].
pub fn replay<S: Store>(
    database: &Database<S>,
    records: &mut dyn Iterator<Item = std::io::Result<StoredRecord>>,
    progress: &mut dyn FnMut(u64),
) -> Result<Replayed, ReplayError> {
    let schema = database.schema();
    let known = KnownSchema::of(&schema).map_err(ReplayError::Schema)?;
    let replay = Replay { known, instance: next_instance() };
    let mut done = Replayed::default();
    let mut ended = false;
    while !ended {
        let transaction = database.store().transaction()?;
        let mut group = Group {
            state: database.state(),
            catalog: CatalogEdit::new(database.catalog()),
            set: WriteSet::new(),
            last_entry_id: last_entry_id(&transaction)?,
            csns: Vec::new(),
        };
        while group.set.byte_len() < COMMIT_BYTES {
            let Some(record) = records.next() else {
                ended = true;
                break;
            };
            let (key, bytes) = record.map_err(ReplayError::Source)?;
            done.csn = Some(replay.one(&transaction, &mut group, key, bytes)?);
            done.records += 1;
        }
        group.commit(transaction, database)?;
        progress(done.records);
    }
    tree::forget(replay.instance);
    database.store().sync()?;
    Ok(done)
}

fn last_entry_id(snapshot: &impl Snapshot) -> Result<EntryId, Fault> {
    let stored = snapshot.get(META, meta::LAST_ENTRY_ID)?;
    Ok(stored.and_then(|bytes| EntryId::from_prefix(&bytes)).unwrap_or(EntryId::ROOT))
}

/// What is committed together.
struct Group {
    state: Arc<DatabaseState>,
    catalog: CatalogEdit,
    set: WriteSet,
    last_entry_id: EntryId,
    /// The last of each server.
    csns: Vec<Csn>,
}

impl Group {
    /// Puts a record back into the log.
    fn note(&mut self, key: LogKey, bytes: Vec<u8>, record: &LogRecord) {
        self.set.put(LOG, &key.to_bytes(), bytes);
        self.last_entry_id = self.last_entry_id.max(record.entry);
        if record.csn.server_id != key.server_id || self.state.settings.shadow {
            // What came from another server may not be all up to there: it is asked again. A shadow may have its provider's id.
            return;
        }
        match self.csns.iter_mut().find(|csn| csn.server_id == record.csn.server_id) {
            Some(known) => *known = record.csn.max(*known),
            None => self.csns.push(record.csn),
        }
    }

    fn commit<S: Store>(
        mut self,
        transaction: impl Transaction,
        database: &Database<S>,
    ) -> Result<(), ReplayError> {
        if self.set.is_empty() {
            return Ok(());
        }
        self.set.put(META, meta::LAST_ENTRY_ID, self.last_entry_id.to_bytes());
        self.csns.iter().for_each(|csn| log::put_context_csn(&mut self.set, csn));
        self.catalog.write_new(&mut self.set);
        database.publish_catalog(Arc::clone(self.catalog.catalog()));
        transaction.commit(&self.set, Durability::NoSync)?;
        if let Some(catalog) = self.catalog.committed() {
            database.publish_catalog(catalog);
        }
        Ok(())
    }
}

struct Replay {
    known: KnownSchema,
    /// Under which names are cached.
    instance: u64,
}

/// Nothing that is replayed is left to chance.
#[derive(Debug)]
struct NoRandomness;

impl RandomSource for NoRandomness {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

impl Replay {
    fn one<T: Snapshot>(
        &self,
        transaction: &T,
        group: &mut Group,
        key: LogKey,
        bytes: Vec<u8>,
    ) -> Result<Csn, ReplayError> {
        let failed = |dn: &str, what: String| ReplayError::Record { key, dn: dn.to_owned(), what };
        let record = LogRecord::decode(&bytes).map_err(|error| failed("", error.to_string()))?;
        if record.absent {
            // Of an entry that was not here: all there is to it is that it does not come back.
            bury(&mut group.set, key, &record);
            group.note(key, bytes, &record);
            return Ok(record.csn);
        }
        if record.entry == EntryId::ROOT {
            return Err(failed(&record.dn, "written by an older version, without the entry's id".to_owned()));
        }
        let set = {
            let overlay = Layered::new(transaction, &group.set);
            let state = group.catalog.state(&group.state);
            let view = View::over_changes(&overlay, self.instance, state)?;
            let order = CommitOrder::new(key.server_id);
            let context = WriteContext {
                schema: &group.state.schema,
                known: &self.known,
                settings: &group.state.settings,
                random: &NoRandomness,
                default_referrals: &[],
                auxiliary_needs_rule: false,
                order: &order,
            };
            let (subject, controls) = (Subject::default(), RequestControls::default());
            let now = record.csn.time;
            let envelope =
                Envelope { derived: true, ..Envelope::internal(&subject, &record.dn, &controls, now) };
            let mut operator = Operator {
                context: &context,
                view,
                instance: self.instance,
                catalog: &mut group.catalog,
                counters: &mut Counters {
                    last_entry_id: group.last_entry_id.0,
                    last_log_sequence: key.sequence,
                    logged_bytes: 0,
                    csn: None,
                    claimed: None,
                    highest: CsnVector::default(),
                },
                envelope,
                stamp: Stamp::new(record.csn, &record.requester),
                set: WriteSet::new(),
                controls: Vec::new(),
                old: Vec::new(),
                continues: false,
            };
            match apply(&mut operator, &record) {
                Ok(()) => operator.set,
                Err(Failure::Refused(refused)) => return Err(failed(&record.dn, refused.to_string())),
                Err(Failure::Storage(fault)) => return Err(failed(&record.dn, fault.to_string())),
            }
        };
        group.set.merge(set);
        if !record.local && matches!(record.change, LoggedChange::Delete) {
            bury(&mut group.set, key, &record);
        }
        group.note(key, bytes, &record);
        Ok(record.csn)
    }
}

/// Remembers a delete as the one that was logged did.
fn bury(set: &mut WriteSet, key: LogKey, record: &LogRecord) {
    if !record.entry_uuid.is_nil() {
        let tombstone = Tombstone { sequence: key.sequence, csn: record.csn };
        replica_state::bury(set, &record.entry_uuid, tombstone);
    }
}

fn apply<V: Snapshot>(operator: &mut Operator<'_, V>, record: &LogRecord) -> Result<(), Failure> {
    match &record.change {
        LoggedChange::Add(attributes) => add(operator, record, attributes),
        LoggedChange::Modify(modifications) => {
            let current = operator.current_entry(record.entry)?;
            let entry = changed(operator, record, modifications)?;
            modify::store(operator, &current, &entry).map(|_| ())
        }
        LoggedChange::Delete => {
            let current = operator.current_entry(record.entry)?;
            let view = current.view()?;
            let reader = operator.reader(&current)?;
            let changes = keys::changes(operator.schema(), operator.catalog.catalog(), Some(&reader), None)?;
            let snapshot = operator.snapshot();
            pending::apply(&mut operator.set, snapshot, current.id, &changes, Writing::OneOfMany)?;
            encode::remove(&mut operator.set, snapshot, &view)?;
            tree::delete(&mut operator.set, view.parent(), view.normal_rdn());
            Ok(operator.bump_generation()?)
        }
        LoggedChange::ModifyDn { new_rdn, modifications, .. } => {
            let current = operator.current_entry(record.entry)?;
            let entry = changed(operator, record, modifications)?;
            let normal = normal_dn(operator.schema(), new_rdn)?;
            let place = Placement {
                id: current.id,
                parent: record.superior,
                rdn: new_rdn,
                normal_rdn: normal.as_str().as_bytes(),
            };
            modify::store_at(operator, &current, place, &entry)?;
            let old = current.view()?;
            tree::delete(&mut operator.set, old.parent(), old.normal_rdn());
            tree::put(&mut operator.set, record.superior, place.normal_rdn, current.id);
            Ok(operator.bump_generation()?)
        }
    }
}

fn add<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    record: &LogRecord,
    attributes: &[LoggedAttribute],
) -> Result<(), Failure> {
    let (schema, snapshot) = (operator.schema(), operator.snapshot());
    if snapshot.get(ENTRIES, &record.entry.to_bytes())?.is_some() {
        return Err(Fault::Damaged { what: "the order of changes: an entry is added that is there" }.into());
    }
    let mut entry = Entry::new(record.dn.clone());
    for attribute in attributes {
        let description = described(schema, &attribute.description)?;
        entry.attributes.push(EntryAttribute::new(description, attribute.values.clone()));
    }
    let dn = normal_dn(schema, &record.dn)?;
    let (rdn, normal_rdn) = added_rdn(operator, record, &dn)?;
    let place =
        Placement { id: record.entry, parent: record.superior, rdn: &rdn, normal_rdn: normal_rdn.as_bytes() };
    encode::store(&mut operator.set, snapshot, schema, operator.catalog, place, None, &entry)?;
    tree::put(&mut operator.set, place.parent, place.normal_rdn, place.id);
    let catalog = operator.catalog.catalog();
    Ok(new_entry::put(&mut operator.set, snapshot, schema, catalog, place.id, &entry)?)
}

/// The RDN that an added entry got, as it is shown and its normal form. A replicated entry whose name was another's is logged under the
/// name that it came with.
fn added_rdn<V: Snapshot>(
    operator: &Operator<'_, V>,
    record: &LogRecord,
    dn: &NormalDn,
) -> Result<(String, String), Failure> {
    let is_top = record.superior == EntryId::ROOT;
    // A suffix stands under the root with its whole DN.
    let own = dn.rdn().filter(|_| !is_top);
    let normal = own.as_ref().map_or(dn.as_str(), |rdn| rdn.as_str());
    let is_taken = tree::child(operator.snapshot(), record.superior, normal.as_bytes())?.is_some();
    if is_taken || operator.is_suffix(dn) && !is_top {
        return Ok(replica_state::own_rdn(operator.schema(), &record.entry_uuid));
    }
    let rdn = if is_top { record.dn.as_str() } else { split_rdn(&record.dn).0 };
    Ok((rdn.to_owned(), normal.to_owned()))
}

/// The stored entry with the modifications made.
fn changed<V: Snapshot>(
    operator: &Operator<'_, V>,
    record: &LogRecord,
    modifications: &[LoggedModification],
) -> Result<Entry, Failure> {
    let schema = operator.schema();
    let structural = operator.context.known.structural_object_class;
    let current = operator.current_entry(record.entry)?;
    let reader = operator.reader(&current)?;
    let mut entry = reader.to_owned(record.dn.clone(), false)?;
    let sets = StoredSets::new(reader);
    for modification in modifications {
        let change = resolved(schema, modification)?;
        // When the change was made, the schema check replaced the value in its place.
        let recorded = (change.description.attribute == structural)
            .then(|| entry.attribute_mut(&change.description))
            .flatten();
        match recorded {
            Some(recorded) => recorded.values = change.values,
            // The log has no refused change. The last argument makes it lenient, as a request with the permissive modify control was.
            None => change::apply(schema, &mut entry, &change, true, &sets)?,
        }
    }
    Ok(entry)
}

fn resolved(schema: &Schema, modification: &LoggedModification) -> Result<Change, Failure> {
    let description = described(schema, &modification.attribute.description)?;
    let kind = schema.attribute(description.attribute);
    let values = modification.attribute.values.clone();
    let keys =
        values.iter().map(|value| values::key(schema, kind, value).unwrap_or_default()).collect::<Vec<_>>();
    Ok(Change {
        kind: match modification.kind {
            LoggedKind::Add => ChangeKind::Add,
            LoggedKind::Delete => ChangeKind::Delete,
            LoggedKind::Replace => ChangeKind::Replace,
            LoggedKind::Increment => ChangeKind::Increment,
            LoggedKind::SoftAdd => ChangeKind::SoftAdd,
        },
        description,
        values,
        keys,
        access: RequiredAccess::Internal,
    })
}

fn described(schema: &Schema, name: &str) -> Result<larix_schema::AttributeDescription, Failure> {
    schema.describe(name).map_err(|error| {
        let text = format!("{name}: {error}; the schema has to be that of the backup");
        larix_proto::LdapResult::with(larix_proto::ResultCode::UNDEFINED_ATTRIBUTE_TYPE, text).into()
    })
}

fn normal_dn(schema: &Schema, dn: &str) -> Result<NormalDn, Failure> {
    schema.parse_dn(dn).map_err(|error| {
        let text = format!("\"{dn}\": {error}; the schema has to be that of the backup");
        larix_proto::LdapResult::with(larix_proto::ResultCode::INVALID_DN_SYNTAX, text).into()
    })
}
