//! From a record of the LDIF to an entry that may be stored: what an add checks, without a requester.

use std::sync::{Arc, Mutex, PoisonError};

use foldhash::{HashMap, HashSet};
use larix_proto::ldif::{Body, LdifAttribute, Record};
use larix_proto::{Dn, LdapResult, ResultCode};
use larix_schema::{AttributeDescription, AttributeTypeId, NormalDn, Schema, SyntaxKind};
use smallvec::SmallVec;
use uuid::Uuid;

use super::error::{LoadError, RecordError, RecordFault};
use super::{LoadContext, LoadOptions};
use crate::catalog::{Catalog, CatalogEdit};
use crate::change::prepare::{ChangeKind, check_change};
use crate::change::values::{check_transfer, is_readable, unreadable, with_value};
use crate::csn::{Csn, CsnGenerator};
use crate::entry::{AttributeNumber, Entry, EntryAttribute};
use crate::failure::Failure;
use crate::index::{KeyKind, key};
use crate::overlay::Interests;
use crate::time::{RandomSource, Timestamp, UUID_RANDOM_BYTES, uuid_of};
use crate::write::AttributeValues;
use crate::write::change::NoLargeSets;
use crate::write::known::KnownSchema;
use crate::write::operational::{self, ANONYMOUS, Stamp};
use crate::write::schema_check::{CheckMode, check_entry, check_part, name_structural_class};
use crate::write::values;

/// What all threads of a load share.
#[derive(Debug)]
pub(super) struct Checker<'c> {
    pub(super) context: LoadContext<'c>,
    pub(super) options: &'c LoadOptions,
    pub(super) known: KnownSchema,
    csns: CsnGenerator,
    /// Where attribute numbers are given; each thread has a copy that it renews when it meets a new description.
    catalog: Mutex<CatalogEdit>,
    /// The creatorsName of entries that do not give one themselves.
    creator: String,
}

/// An entry that passed.
#[derive(Debug)]
pub(super) struct CheckedEntry {
    pub(super) line: u64,
    /// The DN as it stands in the LDIF.
    pub(super) given_dn: String,
    pub(super) dn: NormalDn,
    /// Stands under the root with its whole DN.
    pub(super) is_suffix: bool,
    pub(super) entry: Entry,
    /// Its entryCSN, where that is wanted, and its contextCSN, which is not stored with it.
    pub(super) csns: Vec<Csn>,
}

impl CheckedEntry {
    pub(super) fn fails(&self, fault: RecordFault) -> RecordError {
        RecordError { line: self.line, dn: self.given_dn.clone(), fault }
    }

    /// About how much memory it takes.
    pub(super) fn bytes(&self) -> usize {
        let values = self.entry.attributes.iter().flat_map(|attribute| &attribute.values);
        let values: usize = values.map(|value| value.len() + size_of::<Vec<u8>>()).sum();
        size_of::<Self>() + self.given_dn.len() * 3 + values
    }

    /// The name of the superior entry; none where the entry stands under the root.
    pub(super) fn superior(&self) -> Option<NormalDn> {
        // A database of the empty suffix takes entries of one RDN without an entry of the empty name.
        if self.is_suffix { None } else { self.dn.parent().filter(|parent| !parent.is_root()) }
    }

    /// The RDN as it is shown, and in normal form; of a suffix, its whole DN.
    pub(super) fn rdn(&self) -> (&str, &[u8]) {
        if self.is_suffix {
            return (&self.entry.dn, self.dn.as_str().as_bytes());
        }
        (self.entry.rdn(), self.dn.rdns().next().unwrap_or_default())
    }
}

/// What one thread keeps.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) catalog: CatalogEdit,
    /// Descriptions by how the LDIF writes them.
    descriptions: HashMap<Arc<str>, AttributeDescription>,
    /// The name and description at each place of the entries before: most have the same there as the one before.
    recent: Vec<(Arc<str>, AttributeDescription)>,
    uuids: Uuids,
    types: Types,
    /// The classes of the last entry, in which no class comes twice.
    classes: Vec<Vec<u8>>,
    /// The last DN that was looked at of each type: entries in turn often have the same creatorsName, modifiersName and manager.
    names: HashMap<AttributeTypeId, Vec<u8>>,
    /// Room for a normal form.
    scratch: Vec<u8>,
}

/// Which types the entry being checked has, without options: by number, the number of the entry that had one last.
#[derive(Debug, Default)]
struct Types {
    entry: u64,
    last: Vec<u64>,
}

impl Types {
    /// Whether the entry has no attribute of the type yet; from now on it has.
    fn is_new(&mut self, AttributeTypeId(number): AttributeTypeId) -> bool {
        let number = number as usize;
        if self.last.len() <= number {
            self.last.resize(number + 1, 0);
        }
        self.last.get_mut(number).is_some_and(|last| std::mem::replace(last, self.entry) != self.entry)
    }
}

/// Entries whose random bytes are fetched at once: each time is a system call.
const UUIDS_FETCHED: usize = 64;

/// Random bytes for entryUUIDs to come.
#[derive(Debug, Default)]
struct Uuids {
    random: Vec<[u8; UUID_RANDOM_BYTES]>,
}

impl Uuids {
    fn next(&mut self, now: Timestamp, source: &dyn RandomSource) -> Uuid {
        if self.random.is_empty() {
            self.random.resize(UUIDS_FETCHED, [0; UUID_RANDOM_BYTES]);
            source.fill(self.random.as_flattened_mut());
        }
        uuid_of(now, &self.random.pop().unwrap_or_default())
    }
}

impl<'c> Checker<'c> {
    pub(super) fn new(
        context: LoadContext<'c>,
        options: &'c LoadOptions,
        catalog: CatalogEdit,
    ) -> Result<Self, LoadError> {
        let known = KnownSchema::of(context.schema).map_err(|missing| LoadError::Schema(missing.0))?;
        let creator = match &context.settings.root_dn {
            Some(dn) if !dn.is_root() => context.settings.root_dn_text.clone(),
            _ => ANONYMOUS.to_owned(),
        };
        Ok(Self {
            context,
            options,
            known,
            csns: CsnGenerator::new(options.server_id),
            catalog: Mutex::new(catalog),
            creator,
        })
    }

    pub(super) fn schema(&self) -> &Schema {
        self.context.schema
    }

    pub(super) fn local(&self) -> Local {
        let catalog = self.lock().catalog().clone();
        Local {
            catalog: CatalogEdit::new(catalog),
            descriptions: HashMap::default(),
            recent: Vec::new(),
            uuids: Uuids::default(),
            types: Types::default(),
            classes: Vec::new(),
            names: HashMap::default(),
            scratch: Vec::new(),
        }
    }

    /// The number of entryUUID, once an entry has one, where no two may be the same.
    pub(super) fn unique_uuid(&self) -> Option<AttributeNumber> {
        let description = AttributeDescription::plain(self.known.entry_uuid);
        self.options.unique_uuids.then(|| self.lock().catalog().number(&description)).flatten()
    }

    /// The entryUUID of an entry, and its key in the index, where no two may be the same.
    pub(super) fn uuid_key(&self, entry: &Entry, catalog: &Catalog) -> Option<(Uuid, Vec<u8>)> {
        let description = AttributeDescription::plain(self.known.entry_uuid);
        let number = catalog.number(&description).filter(|_| self.options.unique_uuids)?;
        let text = entry.values(description.attribute).first()?;
        let uuid = Uuid::try_parse_ascii(text).ok()?;
        let normal = values::key(self.schema(), self.schema().attribute(description.attribute), text).ok()?;
        Some((uuid, key::make(number, KeyKind::Equality, &normal)))
    }

    /// The catalog with every number that was given so far.
    pub(super) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(self.lock().catalog())
    }

    /// The catalog with every number that was given.
    pub(super) fn into_catalog(self) -> CatalogEdit {
        self.catalog.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the thread has numbers for all descriptions of the entry.
    pub(super) fn knows(&self, local: &Local, entry: &Entry) -> bool {
        let catalog = local.catalog.catalog();
        entry.attributes.iter().all(|attribute| catalog.number(&attribute.description).is_some())
    }

    /// Gives a number to every description of the entry, the same one in every thread: when the thread does not
    /// [know](Self::knows) them all.
    pub(super) fn number(&self, local: &mut Local, entry: &Entry) {
        let mut shared = self.lock();
        for attribute in &entry.attributes {
            shared.number(self.schema(), &attribute.description);
        }
        local.catalog = CatalogEdit::new(shared.catalog().clone());
    }

    pub(super) fn check(
        &self,
        local: &mut Local,
        record: Record<Arc<str>>,
    ) -> Result<CheckedEntry, RecordError> {
        let Record { line, dn, body } = record;
        match self.checked(local, &dn, body) {
            Ok((normal, is_suffix, entry, csns)) => {
                Ok(CheckedEntry { line, given_dn: dn, dn: normal, is_suffix, entry, csns })
            }
            Err(fault) => Err(RecordError { line, dn, fault }),
        }
    }

    fn checked(
        &self,
        local: &mut Local,
        dn: &str,
        body: Body<Arc<str>>,
    ) -> Result<(NormalDn, bool, Entry, Vec<Csn>), RecordFault> {
        let Body::Content(attributes) = body else { return Err(RecordFault::NotAnEntry) };
        let normal = self.schema().parse_dn(dn).map_err(RecordFault::Dn)?;
        let suffixes = &self.context.settings.suffixes;
        let is_suffix = suffixes.iter().any(|suffix| suffix.normal == normal);
        if !(is_suffix || suffixes.iter().any(|s| normal.is_descendant_of(&s.normal))) {
            return Err(RecordFault::OutsideSuffixes);
        }
        let mut entry = Entry::new(self.pretty_dn(dn, is_suffix)?);
        entry.attributes.reserve(attributes.len() + 8);
        local.types.entry += 1;
        for (place, attribute) in attributes.into_iter().enumerate() {
            self.add_attribute(local, &mut entry, place, attribute)?;
        }
        let mut csns = self.take_context_csns(&mut entry)?;
        self.check_schema(&mut entry)?;
        if self.context.settings.last_modified {
            self.complete(local, &mut entry);
        }
        if self.options.write_context_csn
            && let Some(csn) = entry.values(self.known.entry_csn).first()
        {
            csns.extend(std::str::from_utf8(csn).ok().and_then(|text| text.parse::<Csn>().ok()));
        }
        Ok((normal, is_suffix, entry, csns))
    }

    /// The pretty DN; of an entry below another one, where that is easily told, the RDN alone, for nothing
    /// else of it is stored.
    fn pretty_dn(&self, dn: &str, is_suffix: bool) -> Result<String, RecordFault> {
        let is_plain = !is_suffix && !dn.contains(['\\', '"', ';', '#']);
        let parsed = match dn.split_once(',') {
            Some((rdn, _)) if is_plain => Dn::parse(rdn),
            _ => Dn::parse(dn),
        };
        let parsed = parsed.map_err(|error| RecordFault::Dn(error.into()))?;
        self.schema().pretty_dn(&parsed).map_err(RecordFault::Dn)
    }

    fn add_attribute(
        &self,
        local: &mut Local,
        entry: &mut Entry,
        place: usize,
        attribute: LdifAttribute<Arc<str>>,
    ) -> Result<(), RecordFault> {
        let LdifAttribute { description: name, values } = attribute;
        if self.options.value_check {
            let given = values.clone();
            let attribute = AttributeValues { description: (*name).to_owned(), values };
            let change = check_change(self.schema(), ChangeKind::Add, attribute)
                .map_err(|result| RecordFault::Refused(with_value(result, &given)))?;
            entry.attribute_or_insert(&change.description).values.extend(change.values);
            return Ok(());
        }
        let description = self.describe(local, place, &name)?;
        if self.options.schema_check {
            self.check_readable(local, &description, &name, &values)?;
        }
        let values = self.without_repeated(local, &description, &name, values)?;
        let is_new = description.options().is_empty() && local.types.is_new(description.attribute);
        let known = if is_new { None } else { entry.attribute_mut(&description) };
        match known {
            Some(known) => known.values.extend(values),
            None => entry.attributes.push(EntryAttribute::new(description, values)),
        }
        Ok(())
    }

    /// Refuses what slapadd refuses without a check of values, too. DNs among several are left to
    /// [`without_repeated`](Self::without_repeated), and the contextCSN to [`take_context_csns`](Self::take_context_csns), which read them.
    fn check_readable(
        &self,
        local: &mut Local,
        description: &AttributeDescription,
        name: &str,
        values: &[Vec<u8>],
    ) -> Result<(), RecordFault> {
        let Local { names, scratch, .. } = local;
        let kind = self.schema().attribute(description.attribute);
        check_transfer(kind, description, name).map_err(RecordFault::Refused)?;
        let mut last = match kind.syntax.kind {
            SyntaxKind::DistinguishedName if values.len() > 1 => return Ok(()),
            SyntaxKind::Csn if description.attribute == self.known.context_csn => return Ok(()),
            SyntaxKind::DistinguishedName => Some(names.entry(description.attribute).or_default()),
            _ => None,
        };
        for (position, value) in values.iter().enumerate() {
            if last.as_deref() == Some(value) {
                continue;
            }
            if !is_readable(self.schema(), kind, value, scratch) {
                return Err(RecordFault::Refused(with_value(unreadable(name, position), values)));
            }
            if let Some(last) = &mut last {
                last.clone_from(value);
            }
        }
        Ok(())
    }

    fn describe(
        &self,
        local: &mut Local,
        place: usize,
        name: &Arc<str>,
    ) -> Result<AttributeDescription, RecordFault> {
        if let Some((known, description)) = local.recent.get(place)
            && known == name
        {
            return Ok(description.clone());
        }
        let description = match local.descriptions.get(name) {
            Some(description) => description.clone(),
            None => {
                let description = self.schema().describe(name).map_err(|error| {
                    let text = format!("{name}: {error}");
                    RecordFault::Refused(LdapResult::with(ResultCode::UNDEFINED_ATTRIBUTE_TYPE, text))
                })?;
                local.descriptions.insert(Arc::clone(name), description.clone());
                description
            }
        };
        let (known, places) = ((Arc::clone(name), description.clone()), local.recent.len());
        match local.recent.get_mut(place) {
            Some(recent) => *recent = known,
            None if place == places => local.recent.push(known),
            // With gaps there is nothing at this place.
            None => {}
        }
        Ok(description)
    }

    /// Refuses a value that is equal to another one. The very same value given twice is one: nothing is lost.
    fn without_repeated(
        &self,
        local: &mut Local,
        description: &AttributeDescription,
        name: &str,
        mut values: Vec<Vec<u8>>,
    ) -> Result<Vec<Vec<u8>>, RecordFault> {
        let is_classes = description.attribute == self.known.object_class;
        if values.len() < 2 || (is_classes && values == local.classes) {
            return Ok(values);
        }
        let kind = self.schema().attribute(description.attribute);
        let rule = kind.equality;
        let are_names = self.options.schema_check && kind.syntax.kind == SyntaxKind::DistinguishedName;
        let mut seen = ValueKeys::new(values.len());
        let mut again = Vec::new();
        for (position, value) in values.iter().enumerate() {
            let mut is_read = true;
            let is_new = seen.insert(|key| {
                let start = key.len();
                let normal = rule.is_some_and(|rule| rule.normalize_value(self.schema(), value, key).is_ok());
                if !normal {
                    is_read = rule.is_none();
                    key.truncate(start);
                    key.extend_from_slice(value);
                }
            });
            if are_names && !is_read && !is_readable(self.schema(), kind, value, &mut Vec::new()) {
                return Err(RecordFault::Refused(with_value(unreadable(name, position), &values)));
            }
            if is_new {
                continue;
            }
            if !values.iter().take(position).any(|before| before == value) {
                let text = format!("{name}: value #{position} provided more than once");
                return Err(refused(ResultCode::ATTRIBUTE_OR_VALUE_EXISTS, text));
            }
            again.push(position);
        }
        for position in again.into_iter().rev() {
            values.remove(position);
        }
        if is_classes {
            local.classes.clone_from(&values);
        }
        Ok(values)
    }

    /// contextCSN is kept for the database, not in the entry that shows it.
    fn take_context_csns(&self, entry: &mut Entry) -> Result<Vec<Csn>, RecordFault> {
        let shown = entry.remove(&AttributeDescription::plain(self.known.context_csn));
        let parse = |value: &Vec<u8>| {
            let text = String::from_utf8_lossy(value);
            text.parse().map_err(|error| {
                refused(ResultCode::INVALID_ATTRIBUTE_SYNTAX, format!("contextCSN: {error}"))
            })
        };
        shown.iter().flat_map(|attribute| &attribute.values).map(parse).collect()
    }

    fn check_schema(&self, entry: &mut Entry) -> Result<(), RecordFault> {
        if self.options.schema_check && self.context.settings.holds_parts {
            check_part(self.schema(), entry).map_err(RecordFault::Refused)?;
        } else if self.options.schema_check {
            let dynamic_objects = self.context.settings.overlays.want(Interests::DYNAMIC_OBJECTS);
            let mode = CheckMode { add: true, dynamic_objects, alone: true, ..CheckMode::default() };
            return check_entry(self.schema(), &self.known, entry, mode, &NoLargeSets).map_err(|failure| {
                RecordFault::Refused(match failure {
                    Failure::Refused(result) => result,
                    failure => failure.into_result(),
                })
            });
        }
        name_structural_class(self.schema(), &self.known, entry);
        Ok(())
    }

    fn complete(&self, local: &mut Local, entry: &mut Entry) {
        let known = &self.known;
        let complete = [
            known.entry_uuid,
            known.entry_csn,
            known.creators_name,
            known.create_timestamp,
            known.modifiers_name,
            known.modify_timestamp,
        ];
        // A dump has them all: no CSN is given for nothing.
        if complete.iter().all(|attribute| !entry.values(*attribute).is_empty()) {
            return;
        }
        let now = self.context.clock.now();
        let stamp = Stamp { csn: self.csns.next(now), name: self.creator.clone() };
        operational::complete_entry(known, entry, &stamp, local.uuids.next(now, self.context.random));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CatalogEdit> {
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keys of an attribute's values.
#[allow(
    clippy::large_enum_variant,
    reason = "one lives at a time, on the stack; a box would cost an allocation an attribute"
)]
enum ValueKeys {
    /// One behind the other, and where each ends: compared one by one.
    Few {
        keys: Vec<u8>,
        ends: SmallVec<[usize; FEW_KEYS]>,
    },
    Many(HashSet<Vec<u8>>),
}

/// So many keys are compared one by one: most differ in length.
const FEW_KEYS: usize = 32;

impl ValueKeys {
    fn new(values: usize) -> Self {
        if values <= FEW_KEYS {
            Self::Few { keys: Vec::with_capacity(values * 32), ends: SmallVec::new() }
        } else {
            Self::Many(HashSet::default())
        }
    }

    /// Takes the key that `make` appends; false when it is there already.
    fn insert(&mut self, make: impl FnOnce(&mut Vec<u8>)) -> bool {
        match self {
            Self::Few { keys, ends } => {
                let start = ends.last().copied().unwrap_or_default();
                make(keys);
                let (before, key) = keys.split_at_checked(start).unwrap_or_default();
                let starts = std::iter::once(0).chain(ends.iter().copied());
                let known = starts.zip(ends.iter()).any(|(start, end)| before.get(start..*end) == Some(key));
                if known {
                    keys.truncate(start);
                } else {
                    ends.push(keys.len());
                }
                !known
            }
            Self::Many(keys) => {
                let mut key = Vec::new();
                make(&mut key);
                keys.insert(key)
            }
        }
    }
}

fn refused(code: ResultCode, text: String) -> RecordFault {
    RecordFault::Refused(LdapResult::with(code, text))
}
