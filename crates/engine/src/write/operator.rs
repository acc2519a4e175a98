//! One change, from its prepared form to a write set: what all kinds of changes share.

use larix_proto::{ControlBuf, LdapResult, ResultCode};
use larix_schema::{AttributeDescription, NormalDn, Schema};
use larix_store::{PostingCursor, Snapshot, WriteSet};
use uuid::Uuid;

use std::sync::Arc;

use super::WriterEnvironment;
use super::change::LargeSets;
use super::known::KnownSchema;
use super::operational::{self, Stamp};
use super::prepared_sets::{NONE_PREPARED, PreparedSets};
use super::schema_check::CheckMode;
use super::values;
use crate::access::Subject;
use crate::catalog::CatalogEdit;
use crate::change::prepare::{Change, ChangeKind};
use crate::controls::RequestControls;
use crate::csn::Csn;
use crate::database::{DatabaseSettings, DatabaseState, View};
use crate::entry::record::{CODEC_PLAIN, Form, RecordFlags, ValuesView};
use crate::entry::values as values_apart;
use crate::entry::{
    AttributeNumber, Entry, EntryId, EntryReader, EntrySource, EntryView, Joined, Members, Record,
};
use crate::failure::Failure;
use crate::fault::Fault;
use crate::index::{KeyKind, Kinds, key};
use crate::log::{
    self, CsnVector, LogHeading, LogKey, LogRecord, LoggedAttribute, LoggedChange, LoggedKind,
    LoggedModification, RecordForm,
};
use crate::order::CommitOrder;
use crate::overlay::{Entries, Interests};
use crate::replica_state::{self, Tombstone};
use crate::search::referral;
use crate::search::view_entries::ViewEntries;
use crate::tables::{INDEX, META, meta};
use crate::time::{RandomSource, Timestamp};
use crate::tree::{self, DnLookup};

/// What the changes of a group have in common.
#[derive(Debug)]
pub(crate) struct WriteContext<'a> {
    pub(crate) schema: &'a Schema,
    pub(crate) known: &'a KnownSchema,
    pub(crate) settings: &'a DatabaseSettings,
    pub(crate) random: &'a dyn RandomSource,
    /// Where to refer to for entries that nothing here is a superior of.
    pub(crate) default_referrals: &'a [String],
    pub(crate) auxiliary_needs_rule: bool,
    pub(crate) order: &'a CommitOrder,
}

impl<'a> WriteContext<'a> {
    /// How strictly entries are checked, whatever the operation.
    pub(crate) fn check_mode(&self) -> CheckMode {
        CheckMode {
            auxiliary_needs_rule: self.auxiliary_needs_rule,
            dynamic_objects: self.settings.overlays.want(Interests::DYNAMIC_OBJECTS),
            ..CheckMode::default()
        }
    }

    pub(crate) fn of(
        state: &'a DatabaseState,
        known: &'a KnownSchema,
        environment: &'a WriterEnvironment,
    ) -> Self {
        Self {
            schema: &state.schema,
            known,
            settings: &state.settings,
            random: &*environment.random,
            default_referrals: &environment.default_referrals,
            auxiliary_needs_rule: environment.auxiliary_needs_rule,
            order: &environment.order,
        }
    }
}

/// Numbers that the writer gives out. They only rise: what a failed change took stays unused.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    pub(crate) last_entry_id: u64,
    pub(crate) last_log_sequence: u64,
    /// Bytes of records logged so far.
    pub(crate) logged_bytes: u64,
    /// The latest CSN of the group.
    pub(crate) csn: Option<Csn>,
    /// That of the last record of the group, if it [says](LogHeading::claims) that the contextCSN has come to it.
    pub(crate) claimed: Option<Csn>,
    /// The highest CSN of each origin that the log has, or that came before it.
    pub(crate) highest: CsnVector,
}

/// Who asks, and how.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Envelope<'a> {
    pub(crate) subject: &'a Subject,
    /// The target's DN as the request had it.
    pub(crate) target: &'a str,
    pub(crate) controls: &'a RequestControls,
    pub(crate) now: Timestamp,
    /// An overlay asked for it: no access rule applies, no operational attribute changes, and replicas derive it themselves.
    pub(crate) derived: bool,
    /// No access rule applies. In all else it is a change like any other.
    pub(crate) trusted: bool,
    /// An overlay found that nothing is left to be changed.
    pub(crate) idle: bool,
    /// Of the modifications of the operation.
    pub(crate) prepared: &'a PreparedSets,
    /// It was made on another server, and says itself by whom and when.
    pub(crate) replicated: bool,
    /// The contextCSN of this server comes to the CSN of the change, and of nothing that goes with it.
    pub(crate) claims: bool,
}

impl<'a> Envelope<'a> {
    /// Of a change that the writer makes by itself.
    pub(crate) fn internal(
        subject: &'a Subject,
        target: &'a str,
        controls: &'a RequestControls,
        now: Timestamp,
    ) -> Self {
        Self {
            subject,
            target,
            controls,
            now,
            derived: false,
            trusted: false,
            idle: false,
            prepared: &NONE_PREPARED,
            replicated: false,
            claims: false,
        }
    }
}

/// What a record of the log is beside its change: see [`LogRecord`].
#[derive(Clone, Debug, Default)]
pub(crate) struct LogMark {
    pub(crate) local: bool,
    pub(crate) absent: bool,
    pub(crate) form: RecordForm,
}

/// What a change did.
#[derive(Debug)]
pub(crate) struct Effects {
    pub(crate) set: WriteSet,
    pub(crate) controls: Vec<ControlBuf>,
    /// The last CSN of the change.
    pub(crate) csn: Csn,
}

/// Carries out one change on a view of what came before it.
pub(crate) struct Operator<'a, V: Snapshot> {
    pub(crate) context: &'a WriteContext<'a>,
    pub(crate) view: View<'a, V>,
    /// Under which the names of this view are cached.
    pub(crate) instance: u64,
    pub(crate) catalog: &'a mut CatalogEdit,
    pub(crate) counters: &'a mut Counters,
    pub(crate) envelope: Envelope<'a>,
    pub(crate) stamp: Stamp,
    pub(crate) set: WriteSet,
    pub(crate) controls: Vec<ControlBuf>,
    /// Something of what happens together with this change is in the log already.
    pub(crate) continues: bool,
    /// What of the entry as it was goes into its next record of the log.
    pub(crate) old: Vec<LoggedAttribute>,
}

/// An entry as it is stored before the change.
pub(crate) struct CurrentEntry<'v> {
    pub(crate) id: EntryId,
    record: Record<'v>,
}

impl<'v> CurrentEntry<'v> {
    pub(crate) fn record(&self) -> &Record<'v> {
        &self.record
    }

    pub(crate) fn flags(&self) -> Result<RecordFlags, Fault> {
        match **self.record() {
            // Of a record that is read nothing else stands there.
            [CODEC_PLAIN, flags, ..] => Ok(RecordFlags(flags)),
            _ => Ok(self.view()?.flags()),
        }
    }

    pub(crate) fn view(&self) -> Result<EntryView<'_>, Fault> {
        Ok(EntryView::parse(self.id, &self.record)?)
    }
}

/// Where a DN leads that belongs to no suffix.
fn absent(dn: &NormalDn) -> DnLookup {
    DnLookup { id: None, nearest: EntryId::ROOT, missing: dn.depth() }
}

impl<'a, V: Snapshot> Operator<'a, V> {
    pub(crate) fn snapshot(&self) -> &'a V {
        self.view.snapshot
    }

    pub(crate) fn schema(&self) -> &'a Schema {
        self.context.schema
    }

    /// Whether the change renews the operational attributes.
    pub(crate) fn stamps(&self) -> bool {
        self.context.settings.last_modified && !self.envelope.derived && !self.envelope.replicated
    }

    /// What is changed here comes after what the entry had, however far ahead the clock was that set its CSN: other
    /// servers keep the higher one.
    pub(crate) fn rise_above(&mut self, current: &CurrentEntry<'_>) -> Result<(), Fault> {
        if !self.stamps() || !self.context.order.left_ahead() {
            return Ok(());
        }
        let mut csn: Option<Csn> = None;
        let description = AttributeDescription::plain(self.context.known.entry_csn);
        self.reader(current)?.visit_exact(&description, &mut |value| {
            csn = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            false
        })?;
        if let Some(csn) = csn.filter(|csn| *csn > self.stamp.csn) {
            self.context.order.rise_above(&csn);
            self.renew_stamp();
        }
        Ok(())
    }

    /// The changes that go with a modify or a rename.
    pub(crate) fn own_changes(&self, requested: &[Change]) -> Vec<Change> {
        let mut own = self.own_changes_without_keys(requested);
        operational::key_changes(&mut own);
        own
    }

    /// The same without their equality keys.
    pub(crate) fn own_changes_without_keys(&self, requested: &[Change]) -> Vec<Change> {
        match self.stamps() {
            true => operational::modification_changes(self.context.known, requested, &self.stamp),
            false => Vec::new(),
        }
    }

    /// Looks up a DN that is known to belong to this database.
    pub(crate) fn resolve(&self, dn: &NormalDn) -> Result<DnLookup, Fault> {
        Ok(self.view.resolve(dn)?.unwrap_or_else(|| absent(dn)))
    }

    pub(crate) fn is_suffix(&self, dn: &NormalDn) -> bool {
        self.context.settings.suffixes.iter().any(|suffix| suffix.normal == *dn)
    }

    pub(crate) fn current_entry(&self, id: EntryId) -> Result<CurrentEntry<'a>, Fault> {
        let record = self.view.record(id)?.ok_or(Fault::Missing { entry: id, what: "the record" })?;
        Ok(CurrentEntry { id, record })
    }

    /// The entry of this DN.
    ///
    /// # Errors
    /// noSuchObject with the nearest superior, or a referral that stands there.
    pub(crate) fn find(&self, dn: &NormalDn) -> Result<CurrentEntry<'a>, Failure> {
        let located = self.view.locate(dn)?.unwrap_or_else(|| absent(dn).into());
        match located.resolved.id {
            Some(id) => Ok(CurrentEntry { id, record: self.view.located_record(located)? }),
            None => Err(self.missing(&located.resolved)?.into()),
        }
    }

    /// What is answered for a DN that has no entry.
    pub(crate) fn missing(&self, resolved: &DnLookup) -> Result<LdapResult, Fault> {
        if resolved.nearest == EntryId::ROOT {
            return Ok(match self.context.default_referrals {
                [] => LdapResult::new(ResultCode::NO_SUCH_OBJECT),
                referrals => self.default_referral(referrals),
            });
        }
        let nearest = self.current_entry(resolved.nearest)?;
        let view = nearest.view()?;
        if view.flags().has(RecordFlags::REFERRAL) {
            return self.referral(&nearest);
        }
        Ok(LdapResult::new(ResultCode::NO_SUCH_OBJECT).matched(self.view.dn(&view)?))
    }

    /// Where entries are that nothing here is a superior of.
    pub(crate) fn default_referral(&self, referrals: &[String]) -> LdapResult {
        let target = Some(self.envelope.target);
        referral::answer(referral::rewrite(self.context.schema, referrals, None, target, None), String::new())
    }

    /// The answer that a referral entry gives to requests at or below it.
    pub(crate) fn referral(&self, current: &CurrentEntry<'_>) -> Result<LdapResult, Fault> {
        let dn = self.view.dn(&current.view()?)?;
        let urls = referral::urls(&self.reader(current)?)?;
        let target = Some(self.envelope.target);
        Ok(referral::answer(referral::rewrite(self.context.schema, &urls, Some(&dn), target, None), dn))
    }

    /// Refuses a change of a referral entry unless it is managed as an entry.
    pub(crate) fn check_referral(&self, current: &CurrentEntry<'_>) -> Result<(), Failure> {
        if current.flags()?.has(RecordFlags::REFERRAL) && !self.envelope.controls.manage_dsa_it {
            return Err(self.referral(current)?.into());
        }
        Ok(())
    }

    pub(crate) fn reader<'h>(&'h self, current: &'h CurrentEntry<'_>) -> Result<EntryReader<'h, V>, Fault> {
        self.view.reader(current.id, &current.record)
    }

    /// As [`Self::reader`], of a record that was looked at before.
    pub(crate) fn reader_of<'h>(&'h self, view: EntryView<'h>) -> EntryReader<'h, V> {
        EntryReader::new(self.view.snapshot, &self.view.schema, &self.view.catalog, view)
    }

    /// The first value of an attribute.
    pub(crate) fn first_value(
        &self,
        current: &CurrentEntry<'_>,
        attribute: larix_schema::AttributeTypeId,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let description = AttributeDescription::plain(attribute);
        let Some(number) = self.catalog.catalog().number(&description) else { return Ok(None) };
        let view = current.view()?;
        let Some(stored) = view.get(number)? else { return Ok(None) };
        let mut found = None;
        self.reader(current)?.visit_values(number, &stored, &mut |value| {
            found = Some(value.to_vec());
            false
        })?;
        Ok(found)
    }

    /// Whether an entry of so many bytes may be stored (`maxentrysize`).
    ///
    /// # Errors
    /// adminLimitExceeded, as OpenLDAP.
    pub(crate) fn check_size(&self, bytes: u64) -> Result<(), Failure> {
        match self.context.settings.entry_bytes_max {
            Some(most) if bytes > most => {
                let text = format!("entry is too big: {bytes} bytes, where maxentrysize is {most}");
                Err(LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text).into())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn next_entry_id(&mut self) -> EntryId {
        self.counters.last_entry_id += 1;
        let last = self.counters.last_entry_id;
        self.set.put(META, meta::LAST_ENTRY_ID, last.to_be_bytes());
        EntryId(last)
    }

    /// Writes the change of an entry into the log, if there is one. `superior`: below which an add or a rename put it.
    pub(crate) fn log(
        &mut self,
        (entry, superior): (EntryId, EntryId),
        entry_uuid: Uuid,
        dn: &str,
        change: impl FnOnce(&Schema) -> LoggedChange,
    ) {
        let mark = LogMark { local: self.envelope.derived, ..LogMark::default() };
        self.log_marked((entry, superior), entry_uuid, dn, mark, change);
    }

    /// As [`Self::log`], with what else there is to say about the record.
    pub(crate) fn log_marked(
        &mut self,
        (entry, superior): (EntryId, EntryId),
        entry_uuid: Uuid,
        dn: &str,
        mark: LogMark,
        change: impl FnOnce(&Schema) -> LoggedChange,
    ) {
        let Some(key) = self.next_log_key() else { return };
        let record = LogRecord {
            csn: self.stamp.csn,
            offset: self.counters.logged_bytes,
            entry,
            superior,
            entry_uuid,
            dn: dn.to_owned(),
            requester: self.stamp.name.clone(),
            local: mark.local,
            continues: std::mem::replace(&mut self.continues, true),
            absent: mark.absent,
            change: change(self.context.schema),
            old: std::mem::take(&mut self.old),
            form: mark.form,
        };
        self.counters.logged_bytes += log::append(&mut self.set, key, &record);
    }

    /// As [`Self::log`] with a modify, of which nothing is copied but into the record.
    pub(crate) fn log_modify(&mut self, entry: EntryId, entry_uuid: Uuid, dn: &[u8], changes: &[&Change]) {
        self.log_encoded((entry, EntryId::ROOT), entry_uuid, dn, |schema, heading, old| {
            let modifications =
                changes.iter().map(|change| (logged_kind(change.kind), &change.description, &*change.values));
            log::encode_modify(schema, heading, modifications, old)
        });
    }

    /// As [`Self::log_modify`], with an add of an entry that was made from `mods`.
    pub(crate) fn log_add(
        &mut self,
        place: (EntryId, EntryId),
        entry_uuid: Uuid,
        entry: &Entry,
        mods: &[Change],
    ) {
        self.log_encoded(place, entry_uuid, entry.dn.as_bytes(), |schema, heading, old| {
            log::encode_add(schema, heading, &entry.attributes, mods, old)
        });
    }

    fn log_encoded(
        &mut self,
        (entry, superior): (EntryId, EntryId),
        entry_uuid: Uuid,
        dn: &[u8],
        encode: impl FnOnce(&Schema, &LogHeading<'_>, &[LoggedAttribute]) -> Vec<u8>,
    ) {
        let Some(key) = self.next_log_key() else { return };
        let heading = LogHeading {
            csn: self.stamp.csn,
            offset: self.counters.logged_bytes,
            entry,
            superior,
            entry_uuid,
            dn,
            requester: &self.stamp.name,
            local: self.envelope.derived,
            continues: std::mem::replace(&mut self.continues, true),
            absent: false,
            claims: self.envelope.claims,
        };
        let bytes = encode(self.context.schema, &heading, &std::mem::take(&mut self.old));
        self.counters.logged_bytes += bytes.len() as u64;
        log::append_encoded(&mut self.set, key, bytes);
        self.counters.claimed = self.envelope.claims.then_some(self.stamp.csn);
    }

    /// The place of the next record in the log, if there is one.
    fn next_log_key(&mut self) -> Option<LogKey> {
        // Of what is not logged, too: nothing that is logged later proves that a consumer has it. What each server does by
        // itself nobody lacks.
        if !self.envelope.derived {
            self.counters.highest.note(self.stamp.csn);
        }
        if !self.context.settings.log {
            return None;
        }
        self.counters.last_log_sequence += 1;
        self.counters.claimed = None;
        // A change that another server made is logged here as any other: in the order of its arrival.
        let server_id = self.context.order.server_id();
        Some(LogKey { server_id, sequence: self.counters.last_log_sequence })
    }

    /// Keeps what the access log wants to know of an entry before it changes: where `changed` is `None`, all of it.
    pub(crate) fn keep_old(
        &mut self,
        current: &CurrentEntry<'_>,
        changed: Option<&[&Change]>,
    ) -> Result<(), Failure> {
        let Some(wanted) = self.context.settings.old_values.as_ref().filter(|_| !self.envelope.derived)
        else {
            return Ok(());
        };
        let view = current.view()?;
        let entry = self.reader(current)?.to_owned(self.view.dn(&view)?, true)?;
        let dn = self.view.names.normal_dn(&view)?;
        let entries = ViewEntries::of(&self.view);
        if !entries.matches(&dn, &entry, &wanted.filter)? {
            return Ok(());
        }
        let is_logged = |attribute: &crate::entry::EntryAttribute| {
            let description = &attribute.description;
            changed.is_none_or(|changes| {
                wanted.attributes.contains(description)
                    || changes.iter().any(|change| change.description == *description)
            })
        };
        let logged_values = entry.attributes.into_iter().filter(is_logged).map(|attribute| LoggedAttribute {
            description: attribute.description.to_text(self.context.schema),
            values: attribute.values,
        });
        self.old = logged_values.collect();
        Ok(())
    }

    /// The entryUUID of a stored entry; nil for one that never got any (lastmod was off).
    pub(crate) fn entry_uuid(&self, current: &CurrentEntry<'_>) -> Result<Uuid, Fault> {
        let description = AttributeDescription::plain(self.context.known.entry_uuid);
        let Some(number) = self.view.catalog.number(&description) else { return Ok(Uuid::nil()) };
        let view = current.view()?;
        let mut uuid = Uuid::nil();
        if let Some(stored) = view.get(number)? {
            self.reader(current)?.visit_values(number, &stored, &mut |value| {
                uuid = Uuid::try_parse_ascii(value).unwrap_or_default();
                false
            })?;
        }
        Ok(uuid)
    }

    /// Whether the index of entryUUID is complete. So it is before the first entry has one.
    pub(crate) fn has_index_of_uuids(&self) -> bool {
        let catalog = self.catalog.catalog();
        let number = catalog.number(&AttributeDescription::plain(self.context.known.entry_uuid));
        let row = number.and_then(|number| catalog.row(number));
        number.is_none() || row.is_some_and(|row| row.usable().has(Kinds::EQUALITY))
    }

    /// The entry with this entryUUID.
    ///
    /// # Errors
    /// busy while the index of entryUUID is not complete.
    pub(crate) fn entry_with_uuid(&self, uuid: &Uuid) -> Result<Option<EntryId>, Failure> {
        if !self.has_index_of_uuids() {
            return Err(
                LdapResult::with(ResultCode::BUSY, "the index of entryUUID is not complete yet").into()
            );
        }
        let description = AttributeDescription::plain(self.context.known.entry_uuid);
        let Some(number) = self.catalog.catalog().number(&description) else { return Ok(None) };
        let kind = self.schema().attribute(description.attribute);
        let normal = values::key(self.schema(), kind, uuid.to_string().as_bytes()).unwrap_or_default();
        let key = key::make(number, KeyKind::Equality, &normal);
        let found = self.snapshot().postings(INDEX, &key)?.next()?;
        Ok(found.map(EntryId))
    }

    /// Remembers that the entry was deleted by the change that was logged last, so that no replica brings it back.
    pub(crate) fn bury(&mut self, entry_uuid: &Uuid) {
        if self.context.settings.log && !entry_uuid.is_nil() {
            let tombstone = Tombstone { sequence: self.counters.last_log_sequence, csn: self.stamp.csn };
            replica_state::bury(&mut self.set, entry_uuid, tombstone);
        }
    }

    /// Remembers who had a name until the change that was logged last.
    pub(crate) fn left(&mut self, dn: &NormalDn, entry_uuid: &Uuid) {
        if self.context.settings.log && !entry_uuid.is_nil() {
            let left = Tombstone { sequence: self.counters.last_log_sequence, csn: self.stamp.csn };
            replica_state::put_former(&mut self.set, dn, entry_uuid, left);
        }
    }

    /// Goes on under the next CSN: for changes of several entries in one operation.
    pub(crate) fn renew_stamp(&mut self) {
        self.stamp.csn = self.context.order.next_csn(self.envelope.now);
    }

    pub(crate) fn bump_generation(&mut self) -> Result<(), Fault> {
        tree::bump_generation(&mut self.set, self.view.snapshot)
    }

    pub(crate) fn finish(self) -> Effects {
        Effects { set: self.set, controls: self.controls, csn: self.stamp.csn }
    }
}

/// The large sets of a stored entry.
pub(crate) struct StoredSets<'h, V> {
    pub(crate) reader: EntryReader<'h, V>,
    /// Modifications, and what was made of their values before.
    pub(crate) prepared: Option<(&'h [Change], &'h PreparedSets)>,
}

impl<'h, V> StoredSets<'h, V> {
    pub(crate) fn new(reader: EntryReader<'h, V>) -> Self {
        Self { reader, prepared: None }
    }
}

impl<V: Snapshot> LargeSets for StoredSets<'_, V> {
    fn contains(&self, description: &AttributeDescription, member: &[u8]) -> Result<bool, Fault> {
        match self.reader.catalog.number(description) {
            Some(number) => self.reader.member(number, member),
            None => Ok(false),
        }
    }

    fn keeps(&self, description: &AttributeDescription, key: &[u8]) -> Result<bool, Fault> {
        let kind = self.reader.schema.attribute(description.attribute);
        let mut found = false;
        self.reader.visit_exact(description, &mut |value| {
            found = values::key(self.reader.schema, kind, value).is_ok_and(|own| own == key);
            !found
        })?;
        Ok(found)
    }

    fn prepared(&self, change: &Change) -> Option<&Arc<Members>> {
        let (changes, sets) = self.prepared?;
        sets.of(changes, change)
    }

    fn joined(&self, change: &Change) -> Result<Option<Joined>, Fault> {
        let Some((members, number)) = self.to_go_through(change)? else { return Ok(None) };
        members.joined(|visit| self.go_through(number, visit)).map(Some)
    }

    fn left(&self, change: &Change) -> Result<Option<(Members, u64)>, Fault> {
        let Some((members, number)) = self.to_go_through(change)? else { return Ok(None) };
        members.left_of(|visit| self.go_through(number, visit)).map(Some)
    }
}

impl<V: Snapshot> StoredSets<'_, V> {
    /// The prepared values of a change, and the number of its attribute, where the stored set is best gone through for it.
    fn to_go_through(&self, change: &Change) -> Result<Option<(&Arc<Members>, AttributeNumber)>, Fault> {
        let Some(members) = LargeSets::prepared(self, change) else { return Ok(None) };
        let EntryReader { catalog, view, .. } = self.reader;
        // The keys of an index would have to be made of all members, not of those alone that change.
        let row = catalog.number(&change.description).and_then(|number| catalog.row(number));
        let Some(row) = row.filter(|row| row.wanted.is_empty()) else { return Ok(None) };
        let is_worth_it =
            |stored: &ValuesView<'_>| stored.form() == Form::Large && stored.len() <= JOINED * members.len();
        let stored = view.get(row.number)?;
        Ok(stored.as_ref().is_some_and(is_worth_it).then_some((members, row.number)))
    }

    fn go_through(&self, number: AttributeNumber, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Fault> {
        let EntryReader { view, snapshot, .. } = self.reader;
        values_apart::visit(snapshot, view.id(), number, &mut |member, value| {
            visit(member, value);
            true
        })
    }
}

/// A large set is gone through for a change of it whose values are so many times fewer, at most: to ask for one takes some five times
/// as long as to go past it.
const JOINED: u64 = 4;

pub(crate) fn insufficient(text: &str) -> LdapResult {
    LdapResult::with(ResultCode::INSUFFICIENT_ACCESS_RIGHTS, text)
}

/// Modifications as they stand in the log.
pub(crate) fn logged(schema: &Schema, changes: &[&Change]) -> Vec<LoggedModification> {
    let logged = |change: &&Change| LoggedModification {
        kind: logged_kind(change.kind),
        attribute: LoggedAttribute {
            description: change.description.to_text(schema),
            values: change.values.clone(),
        },
    };
    changes.iter().map(logged).collect()
}

fn logged_kind(kind: ChangeKind) -> LoggedKind {
    match kind {
        ChangeKind::Add => LoggedKind::Add,
        ChangeKind::Delete => LoggedKind::Delete,
        ChangeKind::Replace => LoggedKind::Replace,
        ChangeKind::Increment => LoggedKind::Increment,
        ChangeKind::SoftAdd => LoggedKind::SoftAdd,
    }
}
