//! An entry that comes with its state, beside the one that is here.

use larix_proto::{LdapResult, ResultCode};
use larix_schema::AttributeDescription;
use larix_store::{Snapshot, Store};
use uuid::Uuid;

use super::registers::{Content, MergedVersion, Value, Version, merge};
use super::{EntryState, derived, rows, rule_of, state_that_came};
use crate::change::prepare::{Change, ChangeKind, RequiredAccess};
use crate::csn::Csn;
use crate::entry::{EntryId, split_rdn};
use crate::failure::Failure;
use crate::log::LoggedChange;
use crate::replica::apply::Applier;
use crate::replica::prepare::{Put, first_value};
use crate::replica::steps::{self, LocalEntry};
use crate::replica::{ApplyOutcome, ConflictKind, ConflictNote, KeptSide, conflicts};
use crate::write::operator::{CurrentEntry, LogMark, Operator};
use crate::write::{AttributeValues, KnownSchema, values};

impl<S: Store, T: Snapshot> Applier<'_, '_, S, T> {
    /// Whether a put is of the mode of this database. `None`: a put of a database that settles conflicts by entries.
    ///
    /// # Errors
    /// Refused: the provider's mode is another one.
    pub(in crate::replica) fn state_of_put(&self, put: &Put) -> Result<Option<EntryState>, Failure> {
        let came = state_that_came(&self.group.state.settings, put.csn, put.state.as_deref());
        came.map_err(|text| {
            LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, format!("\"{}\": {text}", put.pretty_dn))
                .into()
        })
    }

    /// Whether all that is in a new entry was here before.
    pub(in crate::replica) fn is_all_covered(&self, state: &EntryState) -> bool {
        state.seen.as_slice().iter().all(|csn| self.is_covered(csn))
    }

    /// The entry is not here.
    pub(in crate::replica) fn put_new_version(
        &mut self,
        put: &Put,
        state: &EntryState,
    ) -> Result<ApplyOutcome, Failure> {
        let applied = self.put_new(put)?;
        self.remember(&put.uuid, state, state.seen.as_slice(), put.csn)?;
        Ok(applied)
    }

    /// The entry is here, perhaps with changes that the other one does not have.
    pub(in crate::replica) fn put_version(
        &mut self,
        put: &Put,
        theirs: EntryState,
        local: LocalEntry,
    ) -> Result<ApplyOutcome, Failure> {
        let ours = self.step(|op| Ok(rows::read(op.schema(), op.snapshot(), &put.uuid, local.csn)?))?;
        let news = theirs.news_for(&ours);
        let Some(newest) = news.iter().max().copied() else {
            self.keep_name_known(put, &local)?;
            return Ok(ApplyOutcome::Older);
        };
        self.stamp.csn = newest;
        let before = self.step(|op| Ok(op.counters.last_log_sequence))?;
        let (applied, state) = if theirs.has_all_of(&ours) {
            (self.put_named(put, local)?, theirs)
        } else {
            self.put_merged(put, (ours, theirs), local)?
        };
        let logged = self.step(|op| Ok(op.counters.last_log_sequence > before))?;
        self.remember(&put.uuid, &state, &news, logged.then_some(newest))?;
        Ok(applied)
    }

    /// Both sides have changes that the other one has not.
    fn put_merged(
        &mut self,
        put: &Put,
        (ours, theirs): (EntryState, EntryState),
        local: LocalEntry,
    ) -> Result<(ApplyOutcome, EntryState), Failure> {
        let takes_name = theirs.named > ours.named;
        let (pretty_dn, merged) = self.step(|op| {
            let current = op.current_entry(local.id)?;
            let (schema, known) = (op.schema(), op.context.known);
            let own_pretty_dn = op.view.dn(&current.view()?)?;
            let mine = Version { state: ours.clone(), content: content_of(op, &current)? };
            let other = Version { state: theirs.clone(), content: content_of_put(put) };
            let rule = |description: &AttributeDescription| rule_of(schema, known, description);
            let mut merged = merge(&rule, &mine, &other);
            let name = if takes_name { &put.pretty_dn } else { &own_pretty_dn };
            derived::complete(schema, known, &mut merged.version, split_rdn(name).0)?;
            Ok((own_pretty_dn, merged))
        })?;
        let MergedVersion { version, mut lost_ours, mut lost_theirs } = merged;
        let mut result = put_of(self.known(), put, version);
        if !takes_name {
            result.dn = local.dn.clone();
            result.pretty_dn = pretty_dn.clone();
            self.keep_name_known(put, &local)?;
        }
        let state = result.state.as_deref().cloned().unwrap_or_default();
        let mut names = [None, None];
        if local.dn != put.dn {
            // Whose name gave way to one that was given without knowing of it.
            let is_lost = |named: Option<Csn>, other: &EntryState| {
                named.is_some_and(|named| !other.seen.covers(&named))
            };
            names = match takes_name {
                true => [is_lost(ours.named, &theirs).then(|| pretty_dn.clone()), None],
                false => [None, is_lost(theirs.named, &ours).then(|| put.pretty_dn.clone())],
            };
        }
        let (csns, uuid) = ((ours.newest(), theirs.newest()), local.uuid);
        let mut applied = self.put_named(&result, local)?;
        let [our_name, their_name] = names;
        for (kept, dn, (loser, winner), lost, name) in [
            (KeptSide::Theirs, &pretty_dn, csns, &mut lost_ours, our_name),
            (KeptSide::Ours, &put.pretty_dn, (csns.1, csns.0), &mut lost_theirs, their_name),
        ] {
            let lost = self.lost_values(std::mem::take(lost), name);
            if !lost.is_empty() {
                applied = self.note(ConflictNote {
                    kind: ConflictKind::Modify,
                    kept,
                    dn: dn.clone(),
                    winner_uuid: uuid,
                    winner_csn: winner,
                    loser_uuid: uuid,
                    loser_csn: loser,
                    lost,
                })?;
            }
        }
        Ok((applied, state))
    }

    pub(super) fn lost_values(&self, lost: Content, name: Option<String>) -> Vec<AttributeValues> {
        let schema = self.schema();
        let name = name.map(|name| AttributeValues {
            description: "entryDN".to_owned(),
            values: vec![name.into_bytes()],
        });
        let values = lost.into_iter().map(|(description, values)| AttributeValues {
            description: description.to_text(schema),
            values: values.into_iter().map(|value| value.value).collect(),
        });
        conflicts::cut(name.into_iter().chain(values))
    }

    /// Keeps the state of an entry, and logs each server's change that came with it, so that a consumer of this server that
    /// lacks one of them receives the entry. `logged`: the one that is in the log already.
    fn remember(
        &mut self,
        uuid: &Uuid,
        state: &EntryState,
        news: &[Csn],
        logged: Option<Csn>,
    ) -> Result<(), Failure> {
        self.step(|op| {
            let Some(id) = steps::find(op, uuid)? else { return Ok(()) };
            let sequence = op.counters.last_log_sequence;
            rows::replace(op.schema(), op.snapshot(), &mut op.set, (uuid, state), sequence)?;
            let pretty_dn = op.view.dn(&op.current_entry(id)?.view()?)?;
            for csn in news.iter().filter(|csn| Some(**csn) != logged) {
                op.stamp.csn = *csn;
                op.log_marked((id, EntryId::ROOT), *uuid, &pretty_dn, LogMark::default(), |_| {
                    LoggedChange::Modify(Vec::new())
                });
            }
            Ok(())
        })
    }
}

pub(super) fn content_of<V: Snapshot>(
    op: &Operator<'_, V>,
    current: &CurrentEntry<'_>,
) -> Result<Content, Failure> {
    let (schema, reader) = (op.schema(), op.reader(current)?);
    let entry = reader.to_owned(String::new(), true)?;
    let mut content = Content::new();
    for attribute in entry.attributes {
        let kind = schema.attribute(attribute.description.attribute);
        let values = attribute
            .values
            .into_iter()
            .map(|value| Value { normal: values::key(schema, kind, &value).unwrap_or_default(), value });
        content.insert(attribute.description, values.collect());
    }
    Ok(content)
}

pub(super) fn content_of_put(put: &Put) -> Content {
    let values = |change: &Change| {
        let pairs = change.keys.iter().zip(&change.values);
        pairs.map(|(normal, value)| Value { normal: normal.clone(), value: value.clone() }).collect()
    };
    put.attributes.iter().map(|change| (change.description.clone(), values(change))).collect()
}

/// The merged version as a put, under the name of `put`.
pub(super) fn put_of(known: &KnownSchema, put: &Put, version: Version) -> Put {
    let attributes: Vec<Change> = version
        .content
        .into_iter()
        .map(|(description, content)| {
            let (keys, values) = content.into_iter().map(|value| (value.normal, value.value)).unzip();
            Change { kind: ChangeKind::Add, description, values, keys, access: RequiredAccess::Internal }
        })
        .collect();
    let modifier = first_value(&attributes, known.modifiers_name).unwrap_or_default().to_owned();
    Put {
        uuid: put.uuid,
        dn: put.dn.clone(),
        pretty_dn: put.pretty_dn.clone(),
        csn: version.state.newest(),
        named: version.state.named,
        modifier,
        attributes,
        state: Some(Box::new(version.state)),
        place: put.place.clone(),
        record: put.record.clone(),
    }
}
