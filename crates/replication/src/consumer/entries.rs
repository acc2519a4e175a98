//! What an entry of the provider means: the entry as it is now, a delete, or a record of its access log.

use larix_engine::csn::Csn;
use larix_engine::replica::{ENTRY_PLACE_OID, ENTRY_STATE_OID, EntryPlace, ReplicatedChange};
use larix_engine::write::AttributeValues;
use larix_proto::control::{ControlValue as _, EntryState, SyncState};
use larix_proto::{Controls, SearchResultEntry};
use uuid::Uuid;

use super::{Action, End, Phase, Session, only_control};
use crate::{Content, delta};

impl Session {
    /// An entry, as what the control beside it says.
    pub(super) fn entry(
        &mut self,
        entry: &SearchResultEntry<'_>,
        controls: Controls<'_>,
        actions: &mut Vec<Action>,
    ) -> Result<(), String> {
        let wrong = |what: &dyn std::fmt::Display| format!("entry \"{}\": {what}", entry.dn);
        let state = only_control(controls, SyncState::OID).map_err(|what| wrong(&what))?;
        let state = state
            .ok_or_else(|| wrong(&"no sync state control; is the provider's overlay syncprov there?"))?;
        let SyncState { state, entry_uuid, cookie } =
            SyncState::decode(state.value).map_err(|error| wrong(&error))?;
        let csns = self.read_cookie(cookie).map_err(|error| wrong(&error))?;
        if self.request.logged {
            let proves = csns.is_some_and(|csns| !csns.is_empty());
            return self.logged(entry, (state, proves), actions);
        }
        let uuid = Uuid::from_bytes(entry_uuid);
        if cookie.is_some() && self.content.take_if(|content| *content == Content::Elsewhere).is_some() {
            return self.entry_elsewhere((state, uuid), entry, actions);
        }
        let is_seen = self.is_passed_over(&csns);
        // Somebody who never had the entry may have told us of as much, and not of the delete.
        if is_seen && state != EntryState::Delete {
            return Ok(());
        }
        match state {
            EntryState::Present => self.present.insert(uuid),
            EntryState::Add | EntryState::Modify => {
                if self.phase == Phase::Refreshing {
                    self.present.insert(uuid);
                }
                self.part_before(uuid, csns.as_deref().unwrap_or_default(), actions);
                let beside = state_and_place(controls).map_err(|what| wrong(&what))?;
                self.states_kept |= beside.0.is_some();
                let change = self.put(uuid, entry, beside)?;
                self.gather(change, csns, actions);
            }
            EntryState::Delete => {
                let last = self.last_delete.filter(|_| cookie.is_some());
                let csn = last.or_else(|| csns.iter().flatten().max().copied());
                let csns = csns.filter(|_| !is_seen);
                self.gather(ReplicatedChange::Delete { entry_uuid: uuid, csn }, csns, actions);
            }
        }
        Ok(())
    }

    /// An entry that another server than the provider keeps: no CSN of the provider says anything of it.
    fn entry_elsewhere(
        &mut self,
        (state, uuid): (EntryState, Uuid),
        entry: &SearchResultEntry<'_>,
        actions: &mut Vec<Action>,
    ) -> Result<(), String> {
        let change = match state {
            EntryState::Present => {
                self.present.insert(uuid);
                return Ok(());
            }
            EntryState::Add | EntryState::Modify => {
                if self.phase == Phase::Refreshing {
                    self.present.insert(uuid);
                }
                self.put(uuid, entry, (None, None))?
            }
            EntryState::Delete => ReplicatedChange::Delete { entry_uuid: uuid, csn: None },
        };
        if !self.batch.is_elsewhere() {
            actions.extend(self.flush());
            self.batch.begin_elsewhere();
        }
        if self.batch.add(change) {
            actions.extend(self.flush());
        }
        Ok(())
    }

    /// A record of an access log: the change that it tells of. `proves`: a CSN came beside it, which says that all before it
    /// was sent. That a record is gone says nothing of what it told.
    fn logged(
        &mut self,
        entry: &SearchResultEntry<'_>,
        (state, proves): (EntryState, bool),
        actions: &mut Vec<Action>,
    ) -> Result<(), String> {
        if !matches!(state, EntryState::Add | EntryState::Modify) {
            return Ok(());
        }
        let read = delta::change_of(&attributes_of(entry)).map_err(|error| error.to_string());
        let massaged = read.and_then(|change| match (change, &self.massage) {
            (Some(change), Some(massage)) => delta::massaged(change, massage),
            (change, _) => Ok(change),
        });
        match massaged {
            Ok(Some(change @ ReplicatedChange::Delta { csn, .. })) => {
                // What a refresh brought the provider stands in its log in any order. It is sent without a CSN beside it; a
                // slapd whose log is gone through has one beside everything, and is in order with its own changes alone.
                let is_own = self.batch.is_providers(&csn);
                if !proves || self.phase == Phase::Refreshing && !is_own {
                    self.gather(change, None, actions);
                    return Ok(());
                }
                // Other records come in the order of the changes: each is as good as a cookie.
                if self.batch.is_next(&[csn]) {
                    self.batch.raise(&[csn]);
                    self.batch.note_taken(&[csn]);
                    self.gather(change, None, actions);
                }
            }
            Ok(_) => {}
            Err(why) => self.end(End::NotLogged(format!("{}: {why}", entry.dn)), actions),
        }
        Ok(())
    }

    /// Whether all of a change was seen before. What comes without a cookie, as other servers' changes that are passed on do,
    /// is judged by its entryCSN when it is written.
    fn is_passed_over(&mut self, csns: &Option<Vec<Csn>>) -> bool {
        let Some(csns) = csns.as_deref().filter(|csns| !csns.is_empty()) else { return false };
        if self.phase == Phase::Persisting && !self.batch.is_next(csns) {
            return true;
        }
        self.batch.note_taken(csns);
        false
    }

    fn put(
        &self,
        uuid: Uuid,
        entry: &SearchResultEntry<'_>,
        (state, place): StateAndPlace,
    ) -> Result<ReplicatedChange, String> {
        let (mut dn, mut attributes) = (entry.dn.to_owned(), attributes_of(entry));
        if let Some(massage) = &self.massage {
            dn = massage.dn(&dn).ok_or_else(|| format!("entry \"{dn}\" is not below the searchbase"))?;
            attributes.iter_mut().for_each(|attribute| massage.values(attribute));
        }
        Ok(ReplicatedChange::Put { entry_uuid: uuid, dn, attributes, state, place })
    }

    /// Ends the batch where a change of this entry has to go into the next one.
    fn part_before(&mut self, uuid: Uuid, csns: &[Csn], actions: &mut Vec<Action>) {
        if self.batch.ends_before(uuid, csns) {
            actions.extend(self.flush());
        }
        self.batch.note_changed(uuid, csns);
    }
}

/// What stands beside an entry: its state, and its place.
type StateAndPlace = (Option<Vec<u8>>, Option<EntryPlace>);

fn state_and_place(controls: Controls<'_>) -> Result<StateAndPlace, String> {
    let state = only_control(controls, ENTRY_STATE_OID)?;
    let state = state.and_then(|control| control.value.map(<[u8]>::to_vec));
    let place = only_control(controls, ENTRY_PLACE_OID)?.and_then(|control| control.value);
    let read = |value| EntryPlace::decode(value).ok_or_else(|| "its place cannot be read".to_owned());
    Ok((state, place.map(read).transpose()?))
}

fn attributes_of(entry: &SearchResultEntry<'_>) -> Vec<AttributeValues> {
    let owned = |attribute: larix_proto::Attribute<'_>| AttributeValues {
        description: attribute.description.to_owned(),
        values: attribute.values.iter().map(<[u8]>::to_vec).collect(),
    };
    entry.attributes.iter().map(owned).collect()
}
