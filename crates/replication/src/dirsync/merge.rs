//! What an entry here becomes by what a directory sent of it.

use std::collections::{BTreeSet, HashSet};

use larix_engine::write::AttributeValues;
use larix_engine::{Entry, EntryAttribute};
use larix_proto::Dn;
use larix_schema::{AttributeDescription, AttributeType, NormalDn, Schema};

use super::{COOKIE, OBJECT_CLASS, Received};
use crate::consumer::Massage;

/// What this server says of an entry itself, whatever the other one has.
const OWN: [&str; 4] = ["entryUUID", "entryCSN", "contextCSN", COOKIE];
const DN_SYNTAX: &str = "1.3.6.1.4.1.1466.115.121.1.12";
const WHEN_CREATED: &str = "whenCreated";
const CREATED: &str = "createTimestamp";
const MODIFIED: &str = "modifyTimestamp";

/// What of the other directory cannot be kept here.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Attribute types and object classes that the schema does not know.
    pub unknown: BTreeSet<String>,
    /// Values against their syntax: where they stand.
    pub invalid: Vec<String>,
}

/// How values came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Replace,
    Add,
    Delete,
}

/// Merges by the schema and the line of a consumer.
#[derive(Debug)]
pub struct Merge<'a> {
    pub schema: &'a Schema,
    pub massage: Option<&'a Massage>,
    /// Names of attributes that are not taken.
    pub except: &'a [String],
    /// At the provider.
    pub base: &'a NormalDn,
    /// The time of the change, as generalizedTime.
    pub now: &'a str,
}

/// An entry as it is here.
#[derive(Clone, Debug)]
pub struct Known {
    pub uuid: uuid::Uuid,
    pub entry: Entry,
}

impl Merge<'_> {
    /// The name of an entry here. `None`: it is none of the line's.
    ///
    /// # Errors
    /// A name that the schema does not understand.
    pub fn dn(&self, there: &str) -> Result<Option<String>, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("entry \"{there}\": {error}");
        let dn = Dn::parse(there).map_err(|error| wrong(&error))?;
        let normal = self.schema.normalize_dn(&dn).map_err(|error| wrong(&error))?;
        if !normal.is_within(self.base) {
            return Ok(None);
        }
        let here = match self.massage {
            Some(massage) => massage.dn(there).unwrap_or_default(),
            None => there.to_owned(),
        };
        let dn = Dn::parse(&here).map_err(|error| wrong(&error))?;
        self.schema.pretty_dn(&dn).map(Some).map_err(|error| wrong(&error))
    }

    /// The entry as it is to be here, under the name `dn`; `None` if it is so already.
    ///
    /// # Errors
    /// A range of values that DirSync does not have.
    pub fn merged(
        &self,
        known: Option<&Entry>,
        dn: &str,
        received: Received,
        left_out: &mut LeftOut,
    ) -> Result<Option<Entry>, String> {
        let mut entry = known.cloned().unwrap_or_else(|| Entry::new(dn));
        for attribute in received.attributes {
            self.attribute(&mut entry, &received.dn, attribute, left_out)?;
        }
        self.rename(&mut entry, dn);
        entry.attributes.retain(|attribute| !attribute.values.is_empty());
        self.complete(&mut entry);
        if known.is_some_and(|known| is_same(known, &entry)) {
            return Ok(None);
        }
        self.set(&mut entry, MODIFIED, self.now.as_bytes().to_vec());
        Ok(Some(entry))
    }

    fn attribute(
        &self,
        entry: &mut Entry,
        there: &str,
        mut attribute: AttributeValues,
        left_out: &mut LeftOut,
    ) -> Result<(), String> {
        let (name, change) = parted(&attribute.description)
            .ok_or_else(|| format!("entry \"{there}\": {} is no change", attribute.description))?;
        let base = name.split(';').next().unwrap_or_default();
        let mut not_taken = OWN.into_iter().chain(self.except.iter().map(String::as_str));
        if not_taken.any(|one| one.eq_ignore_ascii_case(base)) {
            return Ok(());
        }
        let Some((description, kind)) = self.described(&name) else {
            left_out.unknown.insert(name);
            return Ok(());
        };
        attribute.description = description.to_text(self.schema);
        let is_class = name.eq_ignore_ascii_case(OBJECT_CLASS);
        if kind.syntax.oid == DN_SYNTAX {
            attribute.values.iter_mut().for_each(|value| *value = plain_dn(std::mem::take(value)));
        }
        if let Some(massage) = self.massage {
            massage.values(&mut attribute);
        }
        let mut values: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(attribute.values.len());
        let mut keys_there: HashSet<Vec<u8>> = HashSet::with_capacity(attribute.values.len());
        for value in attribute.values {
            if is_class && let Some(unknown) = self.unknown_class(&value) {
                left_out.unknown.insert(unknown);
                continue;
            }
            match stored(self.schema, kind, value) {
                Some((value, key)) => {
                    if keys_there.insert(key.clone()) {
                        values.push((value, key));
                    }
                }
                None => left_out.invalid.push(format!("\"{there}\": {name}")),
            }
        }
        if name.eq_ignore_ascii_case(WHEN_CREATED)
            && let Some((value, _)) = values.first()
        {
            self.set(entry, CREATED, whole_seconds(value));
        }
        let current = &mut entry.attribute_or_insert(&description).values;
        match change {
            Change::Replace => *current = values.into_iter().map(|(value, _)| value).collect(),
            Change::Add => {
                let known = keys(self.schema, kind, current);
                let news = values.into_iter().filter(|(_, key)| !known.contains(key));
                current.extend(news.map(|(value, _)| value));
            }
            Change::Delete => {
                let deleted: BTreeSet<Vec<u8>> = values.into_iter().map(|(_, key)| key).collect();
                current
                    .retain(|value| key(self.schema, kind, value).is_none_or(|key| !deleted.contains(&key)));
            }
        }
        Ok(())
    }

    /// Of types that are transferred in binary the other directory says so nowhere.
    fn described(&self, name: &str) -> Option<(AttributeDescription, &AttributeType)> {
        let described = self.schema.describe(name).ok()?;
        let kind = self.schema.attribute(described.attribute);
        if kind.syntax.binary_transfer && !described.has_binary_option() {
            return Some((self.schema.describe(&format!("{name};binary")).ok()?, kind));
        }
        Some((described, kind))
    }

    fn unknown_class(&self, value: &[u8]) -> Option<String> {
        let name = String::from_utf8_lossy(value);
        self.schema.object_class(&name).is_none().then(|| name.into_owned())
    }

    fn set(&self, entry: &mut Entry, name: &str, value: Vec<u8>) {
        if let Ok(description) = self.schema.describe(name) {
            entry.attribute_or_insert(&description).values = vec![value];
        }
    }

    /// Gives the entry its name, with the values that this has, in place of those of the name before.
    fn rename(&self, entry: &mut Entry, dn: &str) {
        let before = std::mem::replace(&mut entry.dn, dn.to_owned());
        let (old, new) = (self.naming(&before), self.naming(dn));
        for (description, kind, _, key_of_old) in &old {
            let stays = new.iter().any(|(other, _, _, key)| other == description && key == key_of_old);
            if let (false, Some(current)) = (stays, entry.attribute_mut(description)) {
                current.values.retain(|value| key(self.schema, kind, value).as_ref() != Some(key_of_old));
            }
        }
        for (description, kind, value, own) in new {
            let current = &mut entry.attribute_or_insert(&description).values;
            if current.iter().all(|value| key(self.schema, kind, value).as_ref() != Some(&own)) {
                current.push(value);
            }
        }
    }

    /// The values of the first RDN, each with its key.
    fn naming(&self, dn: &str) -> Vec<(AttributeDescription, &AttributeType, Vec<u8>, Vec<u8>)> {
        let Ok(parsed) = Dn::parse(dn) else { return Vec::new() };
        let avas = parsed.rdns().first().into_iter().flat_map(larix_proto::Rdn::avas);
        let value = |ava: &larix_proto::RdnAva<'_>| {
            let (description, kind) = self.described(ava.attribute)?;
            let (value, key) = stored(self.schema, kind, ava.value.to_vec())?;
            Some((description, kind, value, key))
        };
        avas.filter_map(value).collect()
    }

    /// An entry of whose classes none is known is one without rules.
    fn complete(&self, entry: &mut Entry) {
        let Ok(description) = self.schema.describe(OBJECT_CLASS) else { return };
        let classes = &mut entry.attribute_or_insert(&description).values;
        if classes.iter().all(|class| class.eq_ignore_ascii_case(b"top")) {
            *classes = vec![b"top".to_vec(), b"extensibleObject".to_vec()];
        }
    }
}

/// Sets the cookie on the entry of the suffix.
pub fn set_cookie(schema: &Schema, entry: &mut Entry, cookie: &[u8]) {
    if let Ok(description) = schema.describe(COOKIE) {
        entry.attribute_or_insert(&description).values = vec![cookie.to_vec()];
    }
}

/// An entry for a suffix of which the other directory sends none: it keeps the cookie. `None`: no class is known for such a name.
#[must_use]
pub fn suffix_entry(schema: &Schema, dn: &str) -> Option<Entry> {
    let parsed = Dn::parse(dn).ok()?;
    let [ava] = parsed.rdns().first()?.avas() else { return None };
    let naming = schema.attribute_type(ava.attribute)?;
    let classes = [("dc", "domain"), ("o", "organization"), ("ou", "organizationalUnit"), ("c", "country")];
    let (_, class) = classes.into_iter().find(|(name, _)| naming.names.iter().any(|own| own == name))?;
    let mut entry = Entry::new(dn);
    for (name, values) in [
        (OBJECT_CLASS, vec![b"top".to_vec(), class.as_bytes().to_vec()]),
        (ava.attribute, vec![ava.value.to_vec()]),
    ] {
        entry.attributes.push(EntryAttribute::new(schema.describe(name).ok()?, values));
    }
    Some(entry)
}

/// The attribute, and what its option says of the values; `None` for another range than those of DirSync.
fn parted(description: &str) -> Option<(String, Change)> {
    let mut change = Change::Replace;
    let mut parts = Vec::new();
    for (at, part) in description.split(';').enumerate() {
        match part.to_ascii_lowercase().as_str() {
            "range=1-1" if at > 0 => change = Change::Add,
            "range=0-0" if at > 0 => change = Change::Delete,
            other if at > 0 && other.starts_with("range=") => return None,
            _ => parts.push(part),
        }
    }
    Some((parts.join(";"), change))
}

/// A value in the form in which it is kept, and its key.
fn stored(schema: &Schema, kind: &AttributeType, value: Vec<u8>) -> Option<(Vec<u8>, Vec<u8>)> {
    let value = match kind.syntax.pretty(schema, &value).ok()? {
        std::borrow::Cow::Borrowed(_) => None,
        std::borrow::Cow::Owned(pretty) => Some(pretty),
    }
    .unwrap_or(value);
    let key = key(schema, kind, &value)?;
    Some((value, key))
}

/// What equal values have in common; of one without an equality rule, itself. `None`: it has no normal form.
fn key(schema: &Schema, kind: &AttributeType, value: &[u8]) -> Option<Vec<u8>> {
    let Some(rule) = kind.equality else { return Some(value.to_vec()) };
    let mut key = Vec::with_capacity(value.len());
    rule.normalize_value(schema, value, &mut key).ok()?;
    Some(key)
}

fn keys(schema: &Schema, kind: &AttributeType, values: &[Vec<u8>]) -> BTreeSet<Vec<u8>> {
    values.iter().filter_map(|value| key(schema, kind, value)).collect()
}

/// A name without what an extended one says before it: `<GUID=...>;<SID=...>;CN=a,DC=x`. Samba sends some so.
fn plain_dn(value: Vec<u8>) -> Vec<u8> {
    let mut rest = value.as_slice();
    while let Some(inner) = rest.strip_prefix(b"<") {
        let Some(end) = inner.windows(2).position(|pair| pair == b">;") else { break };
        rest = inner.get(end + 2..).unwrap_or_default();
    }
    rest.to_vec()
}

/// A time of Active Directory (`20260101000000.0Z`) as others are written.
fn whole_seconds(value: &[u8]) -> Vec<u8> {
    match value.iter().position(|byte| *byte == b'.') {
        Some(end) if value.ends_with(b"Z") => [value.get(..end).unwrap_or_default(), b"Z"].concat(),
        _ => value.to_vec(),
    }
}

fn is_same(one: &Entry, other: &Entry) -> bool {
    let holds = |attribute: &EntryAttribute| {
        other.attribute(&attribute.description).is_some_and(|own| own.values == attribute.values)
    };
    one.dn == other.dn && one.attributes.len() == other.attributes.len() && one.attributes.iter().all(holds)
}
