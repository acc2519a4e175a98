//! cn=config as a source of an access log. It has no change log: its changes are what differs between two configurations.
//!
//! The log's database keeps, beside the records, what the entries were when they were recorded last: what a crash kept from
//! being recorded is found at the next start by comparing again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larix_configuration::slapd_d::Stamp;
use larix_configuration::{Config, ConfigAttribute, ConfigEntry, ValueList};
use larix_engine::csn::Csn;
use larix_engine::log::{LogRecord, LoggedAttribute, LoggedChange, LoggedKind, LoggedModification};
use larix_proto::Dn;
use larix_schema::Schema;
use uuid::Uuid;

use larix_backend::memory_tree::ordered_parts;

/// By what it is known in the log's database.
pub(super) const NAME: &str = "cn=config";
/// Derived on every server for itself.
const OWN: &str = "contextCSN";

/// Changes of cn=config that are not recorded yet.
#[derive(Debug)]
pub(crate) struct ConfigChanges(Mutex<Pending>);

#[derive(Debug)]
struct Pending {
    /// How it was when recording was asked for.
    began: (Arc<EntryVersions>, Arc<Config>),
    /// The sequence of the last record; the first one's is 1.
    last: u64,
    /// Changes up to here are answered.
    answered: u64,
    records: VecDeque<(u64, LogRecord)>,
    /// Behind which record the entries were so.
    states: VecDeque<(u64, Arc<EntryVersions>)>,
    context: Vec<Csn>,
    /// Nothing more comes: the overlay was taken away.
    ended: bool,
}

/// What is remembered of the entries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct EntryVersions(BTreeMap<Uuid, EntryVersion>);

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EntryVersion {
    csn: String,
    names: Vec<String>,
    dn: String,
}

/// Changes up to a record, and how the entries were behind it.
pub(super) struct RecordedChanges {
    pub(super) records: Vec<(u64, LogRecord)>,
    pub(super) versions: Arc<EntryVersions>,
    pub(super) reached: u64,
    pub(super) more: bool,
}

impl ConfigChanges {
    pub(super) fn new(config: &Arc<Config>) -> Self {
        Self(Mutex::new(Pending {
            began: (Arc::new(EntryVersions::of(&config.shared_entries())), Arc::clone(config)),
            last: 0,
            answered: 0,
            records: VecDeque::new(),
            states: VecDeque::new(),
            context: config.context_csns().as_slice().to_vec(),
            ended: false,
        }))
    }

    /// The configuration became another one. Answers the sequences of the records that tell of it.
    pub(super) fn changed(&self, before: &Config, after: &Config) -> Range<u64> {
        let (old, new) = (before.shared_entries(), after.shared_entries());
        let records = Difference { schema: &after.schema, newest: newest(before, after) }.of(&old, &new);
        let mut pending = self.lock();
        pending.context = after.context_csns().as_slice().to_vec();
        let first = pending.last + 1;
        for record in records {
            pending.last += 1;
            let sequence = pending.last;
            pending.records.push_back((sequence, record));
        }
        if pending.last >= first {
            let state = (pending.last, Arc::new(EntryVersions::of(&new)));
            pending.states.push_back(state);
        }
        first..pending.last + 1
    }

    /// The sequence of the last change that any client may have received.
    pub(super) fn committed(&self) -> u64 {
        self.lock().last
    }

    /// The changes so far are answered, and what is known of their requests has been handed over.
    pub(super) fn answered(&self) {
        let mut pending = self.lock();
        pending.answered = pending.last;
    }

    pub(super) fn end(&self) {
        self.lock().ended = true;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().ended
    }

    pub(super) fn context_csns(&self) -> Vec<Csn> {
        self.lock().context.clone()
    }

    /// How the entries were when recording was asked for.
    pub(super) fn began(&self) -> Arc<EntryVersions> {
        Arc::clone(&self.lock().began.0)
    }

    /// What was changed between what a log recorded last and when recording was asked for now.
    pub(super) fn missed_since(&self, recorded: &EntryVersions) -> Vec<LogRecord> {
        let config = Arc::clone(&self.lock().began.1);
        recorded.changes_until(&config)
    }

    /// Whole changes behind `from`, until there are `limit` records.
    pub(super) fn after(
        &self,
        from: u64,
        newest_versions: &Arc<EntryVersions>,
        limit: usize,
    ) -> RecordedChanges {
        let pending = self.lock();
        let mut recorded = RecordedChanges {
            records: Vec::new(),
            versions: Arc::clone(newest_versions),
            reached: from,
            more: false,
        };
        let new = |(last, _): &&(u64, Arc<EntryVersions>)| (from + 1..=pending.answered).contains(last);
        for (last, versions) in pending.states.iter().filter(new) {
            if recorded.records.len() >= limit {
                recorded.more = true;
                break;
            }
            let new = pending.records.iter().filter(|(at, _)| *at > recorded.reached && at <= last);
            recorded.records.extend(new.cloned());
            (recorded.reached, recorded.versions) = (*last, Arc::clone(versions));
        }
        recorded
    }

    /// The changes up to this one are recorded.
    pub(super) fn forget(&self, reached: u64) {
        let mut pending = self.lock();
        pending.records.retain(|(at, _)| *at > reached);
        pending.states.retain(|(at, _)| *at > reached);
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        // Every change of it is whole: nothing is left half done by who panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EntryVersions {
    fn of(entries: &[Arc<ConfigEntry>]) -> Self {
        Self(entries.iter().filter_map(|entry| Some((uuid_of(entry)?, EntryVersion::of(entry)))).collect())
    }

    /// Whether it says anything: the entries of a configuration that is kept in one file have no identity.
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As the log's database keeps it: rows that end with NUL, which no name has.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let row = |(uuid, entry): (&Uuid, &EntryVersion)| {
            format!("{uuid} {} {} {}\0", entry.csn, entry.names.join(","), entry.dn)
        };
        self.0.iter().map(row).collect::<String>().into_bytes()
    }

    /// `None` for what [`to_bytes`](Self::to_bytes) did not write.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let row = |row: &str| -> Option<(Uuid, EntryVersion)> {
            let mut words = row.splitn(4, ' ');
            let mut word = || words.next();
            let (uuid, csn, names, dn) = (word()?, word()?, word()?, word()?);
            let entry = EntryVersion {
                csn: csn.to_owned(),
                names: names.split(',').map(str::to_owned).collect(),
                dn: dn.to_owned(),
            };
            Some((Uuid::parse_str(uuid).ok()?, entry))
        };
        let text = std::str::from_utf8(bytes).ok()?;
        text.split_terminator('\0').map(row).collect::<Option<_>>().map(Self)
    }

    /// What was changed since the log had recorded `self`, as far as it can still be told: an entry that was changed is
    /// told with all its attributes.
    fn changes_until(&self, config: &Config) -> Vec<LogRecord> {
        let entries = config.shared_entries();
        let now = Self::of(&entries);
        if now.is_empty() || *self == now {
            return Vec::new();
        }
        let newest = config.context_csns().as_slice().iter().max().copied();
        let difference = Difference { schema: &config.schema, newest };
        let before: HashMap<Uuid, Before<'_>> =
            self.0.iter().map(|(uuid, entry)| (*uuid, Before::Version(entry))).collect();
        difference.since(before, &entries)
    }
}

impl EntryVersion {
    fn of(entry: &ConfigEntry) -> Self {
        let text =
            |name: &str| entry.values(name).first().map(|value| String::from_utf8_lossy(value).into_owned());
        let names = entry.attributes.iter().map(|a| a.description.clone());
        Self {
            csn: text("entryCSN").filter(|csn| !csn.contains(' ')).unwrap_or_default(),
            names: names.filter(|name| !name.eq_ignore_ascii_case(OWN)).collect(),
            dn: entry.dn.clone(),
        }
    }
}

/// What is known of an entry as it was.
enum Before<'e> {
    Whole(&'e Arc<ConfigEntry>),
    Version(&'e EntryVersion),
}

impl Before<'_> {
    fn dn(&self) -> &str {
        match self {
            Self::Whole(entry) => &entry.dn,
            Self::Version(entry) => &entry.dn,
        }
    }

    /// Numbers among siblings that others' places give are no change of the entry, and leave its CSN alone.
    fn is_changed(&self, after: &Arc<ConfigEntry>) -> bool {
        match self {
            Self::Whole(before) => {
                !Arc::ptr_eq(before, after) && before.values("entryCSN") != after.values("entryCSN")
            }
            Self::Version(before) => before.csn.as_bytes() != first(after, "entryCSN"),
        }
    }

    /// What has become of the attributes.
    fn modifications(&self, schema: &Schema, after: &ConfigEntry) -> Vec<LoggedModification> {
        let mut all = Vec::new();
        let names: Vec<&str> = match self {
            Self::Whole(before) => before.attributes.iter().map(|a| a.description.as_str()).collect(),
            Self::Version(before) => before.names.iter().map(String::as_str).collect(),
        };
        let is_own = |name: &str| name.eq_ignore_ascii_case(OWN);
        let gone = names.iter().filter(|name| !is_own(name) && after.values(name).is_empty());
        all.extend(gone.map(|name| modification(LoggedKind::Replace, name, Vec::new())));
        for ConfigAttribute { description, values } in
            after.attributes.iter().filter(|a| !is_own(&a.description))
        {
            match self {
                Self::Version(_) if is_naming(after, description) => {}
                Self::Version(_) => all.push(modification(LoggedKind::Replace, description, values.to_vec())),
                Self::Whole(before) => {
                    all.extend(difference(schema, description, before.values(description), values));
                }
            }
        }
        all
    }
}

/// How one attribute's values became others: in few lines where a section has thousands.
fn difference(
    schema: &Schema,
    description: &str,
    before: &ValueList,
    after: &ValueList,
) -> Option<LoggedModification> {
    // Each record names the author of the last change.
    const ALWAYS_RECORDED: [&str; 3] = ["entryCSN", "modifiersName", "modifyTimestamp"];
    let is_always_recorded = ALWAYS_RECORDED.iter().any(|name| name.eq_ignore_ascii_case(description));
    if before == after && !is_always_recorded {
        return None;
    }
    let ordered = schema.attribute_type(description).is_some_and(|kind| kind.is_ordered_values());
    let more = after.len() > before.len() && !before.is_empty() && after.starts_with(before);
    let (kind, unchanged) = if more { (LoggedKind::Add, before.len()) } else { (LoggedKind::Replace, 0) };
    let mut values: Vec<Vec<u8>> = after.behind(unchanged).cloned().collect();
    if ordered && more {
        // Where they stand is where values without a place go.
        values.iter_mut().for_each(|value| {
            *value = ordered_parts(value).map_or(value.as_slice(), |(_, bare)| bare).to_vec();
        });
    }
    Some(modification(kind, description, values))
}

fn modification(kind: LoggedKind, description: &str, values: Vec<Vec<u8>>) -> LoggedModification {
    LoggedModification { kind, attribute: LoggedAttribute { description: description.to_owned(), values } }
}

/// Makes records of what differs between two sets of entries.
struct Difference<'s> {
    schema: &'s Schema,
    /// The CSN of what has none of its own: a delete.
    newest: Option<Csn>,
}

impl Difference<'_> {
    fn of(&self, old: &[Arc<ConfigEntry>], new: &[Arc<ConfigEntry>]) -> Vec<LogRecord> {
        let mut before: HashMap<Uuid, Before<'_>> =
            old.iter().filter_map(|entry| Some((uuid_of(entry)?, Before::Whole(entry)))).collect();
        for entry in old.iter().filter(|entry| uuid_of(entry).is_none()) {
            // It gets its identity with the first change of any of them.
            let same = new.iter().find(|other| other.dn == entry.dn);
            if let Some(uuid) = same.and_then(|other| uuid_of(other)) {
                before.insert(uuid, Before::Whole(entry));
            }
        }
        self.since(before, new)
    }

    /// In the order of their CSNs, superiors first; what is gone comes last, superiors last.
    fn since(&self, mut before: HashMap<Uuid, Before<'_>>, new: &[Arc<ConfigEntry>]) -> Vec<LogRecord> {
        let mut records = Vec::new();
        for entry in new {
            let Some(uuid) = uuid_of(entry) else { continue };
            let Some(csn) = csn_of(entry) else { continue };
            let requester = String::from_utf8_lossy(first(entry, "modifiersName")).into_owned();
            let record = |dn: &str, change| record(csn, uuid, dn, requester.clone(), change);
            match before.remove(&uuid) {
                None => records.push(record(&entry.dn, LoggedChange::Add(attributes(entry)))),
                Some(known) if known.is_changed(entry) => {
                    // What it lacked before the first change of all was not asked for by anybody.
                    if matches!(known, Before::Whole(before) if uuid_of(before).is_none() && bare(before) == bare(entry))
                    {
                        continue;
                    }
                    let modifications = known.modifications(self.schema, entry);
                    let change = match renamed(known.dn(), &entry.dn) {
                        Some(new_rdn) => LoggedChange::ModifyDn {
                            new_rdn,
                            delete_old_rdn: true,
                            new_superior: None,
                            modifications: unnamed(entry, modifications),
                        },
                        None => LoggedChange::Modify(unnamed(entry, modifications)),
                    };
                    records.push(record(known.dn(), change));
                }
                Some(_) => {}
            }
        }
        records.sort_by_key(|record| record.csn);
        let mut gone: Vec<(Uuid, String)> =
            before.into_iter().map(|(uuid, entry)| (uuid, entry.dn().to_owned())).collect();
        let depth = |dn: &str| Dn::parse(dn).map_or(0, |dn| dn.rdns().len());
        gone.sort_by_key(|(uuid, dn)| (std::cmp::Reverse(depth(dn)), *uuid));
        if let Some(csn) = self.newest {
            let of =
                |(uuid, dn): (Uuid, String)| record(csn, uuid, &dn, NAME.to_owned(), LoggedChange::Delete);
            records.extend(gone.into_iter().map(of));
        }
        records
    }
}

fn record(csn: Csn, entry_uuid: Uuid, dn: &str, requester: String, change: LoggedChange) -> LogRecord {
    LogRecord { entry_uuid, requester, ..LogRecord::new(csn, dn.to_owned(), change) }
}

/// The new first RDN, where that is another one.
fn renamed(before: &str, after: &str) -> Option<String> {
    let first = |dn: &str| Dn::parse(dn).ok()?.rdns().first().map(ToString::to_string);
    let (old, new) = (first(before)?, first(after)?);
    (old != new).then_some(new)
}

/// Without what the name tells.
fn unnamed(entry: &ConfigEntry, mut modifications: Vec<LoggedModification>) -> Vec<LoggedModification> {
    modifications.retain(|m| !is_naming(entry, &m.attribute.description));
    modifications
}

fn is_naming(entry: &ConfigEntry, description: &str) -> bool {
    let Ok(dn) = Dn::parse(&entry.dn) else { return false };
    let names =
        |rdn: &larix_proto::Rdn| rdn.avas().iter().any(|a| a.attribute.eq_ignore_ascii_case(description));
    dn.rdns().first().is_some_and(names)
}

fn attributes(entry: &ConfigEntry) -> Vec<LoggedAttribute> {
    let kept = entry.attributes.iter().filter(|a| !a.description.eq_ignore_ascii_case(OWN));
    kept.map(|a| LoggedAttribute { description: a.description.clone(), values: a.values.to_vec() }).collect()
}

/// What an entry says without what every entry gets.
fn bare(entry: &ConfigEntry) -> Vec<&ConfigAttribute> {
    let is_operational = |a: &&ConfigAttribute| {
        Stamp::ATTRIBUTES.iter().chain([&OWN]).any(|name| name.eq_ignore_ascii_case(&a.description))
    };
    entry.attributes.iter().filter(|a| !is_operational(a)).collect()
}

/// The CSN of the change that made the one of the other.
fn newest(before: &Config, after: &Config) -> Option<Csn> {
    let context = before.context_csns();
    let all = after.context_csns();
    all.as_slice()
        .iter()
        .filter(|csn| !context.covers(csn))
        .max()
        .or_else(|| all.as_slice().iter().max())
        .copied()
}

fn first<'e>(entry: &'e ConfigEntry, name: &str) -> &'e [u8] {
    entry.values(name).first().map_or(&[], Vec::as_slice)
}

fn uuid_of(entry: &ConfigEntry) -> Option<Uuid> {
    Uuid::parse_str(std::str::from_utf8(first(entry, "entryUUID")).ok()?).ok()
}

fn csn_of(entry: &ConfigEntry) -> Option<Csn> {
    std::str::from_utf8(first(entry, "entryCSN")).ok()?.parse().ok()
}
