//! What a session has gathered: the changes of one batch, and how far the contextCSN may be raised with it.
//!
//! *Invariant:* the CSNs of a batch stand for changes in it or in earlier ones.

use std::collections::BTreeSet;

use larix_engine::csn::Csn;
use larix_engine::log::{CsnVector, LoggedAttribute, LoggedChange};
use larix_engine::replica::ReplicatedChange;
use uuid::Uuid;

use super::Action;

/// Changes of one batch; more make another one.
pub const BATCH_CHANGES: usize = 1_000;
/// Bytes of values of one batch.
pub const BATCH_BYTES: usize = 4 << 20;

#[derive(Debug, Default)]
pub(super) struct Batch {
    /// What the contextCSN was when the session began, and what it was raised to since.
    known: CsnVector,
    changes: Vec<ReplicatedChange>,
    bytes: usize,
    csns: CsnVector,
    /// What the last change that was taken has to say of itself.
    last_csns: Vec<Csn>,
    provider: Provider,
    /// Another server than the provider keeps its entries.
    elsewhere: bool,
}

/// What the provider made itself.
#[derive(Debug, Default)]
struct Provider {
    /// Its server id, as its cookies say it.
    sid: Option<u16>,
    /// How far it had sent its changes when the batch began.
    before: Option<Csn>,
    /// Entries of the batch that it changed itself.
    changed: BTreeSet<Uuid>,
}

impl Batch {
    pub(super) fn new(known: Vec<Csn>) -> Self {
        Self { known: known.into_iter().collect(), ..Self::default() }
    }

    /// How far the contextCSN is, with what was gathered.
    pub(super) fn known(&self) -> &CsnVector {
        &self.known
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.csns.is_empty()
    }

    /// Whether its changes are of entries that another server than the provider keeps.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// An empty batch is to have such changes.
    pub(super) fn begin_elsewhere(&mut self) {
        self.elsewhere = true;
    }

    /// Takes in a change. Answers whether there is room for no more.
    pub(super) fn add(&mut self, change: ReplicatedChange) -> bool {
        if self.changes.is_empty() {
            self.provider.before = self.provider.sid.and_then(|sid| self.known.of(sid));
        }
        self.bytes += size(&change);
        self.changes.push(change);
        self.changes.len() >= BATCH_CHANGES || self.bytes >= BATCH_BYTES
    }

    /// From this batch on the contextCSN covers these.
    pub(super) fn raise(&mut self, csns: &[Csn]) {
        self.known.extend(csns.iter().copied());
        self.csns.extend(csns.iter().copied());
    }

    /// The new contextCSN, for a caller that raises it without the changes.
    pub(super) fn take_csns(&mut self) -> Vec<Csn> {
        std::mem::take(&mut self.csns).as_slice().to_vec()
    }

    /// Ends the batch, if there is anything in it.
    pub(super) fn take(&mut self, refreshing: bool) -> Option<Action> {
        let elsewhere = std::mem::take(&mut self.elsewhere);
        if self.is_empty() {
            return None;
        }
        self.bytes = 0;
        self.provider.changed.clear();
        Some(Action::Apply {
            provider: self.provider.before.take(),
            changes: std::mem::take(&mut self.changes),
            csns: self.take_csns(),
            refreshing,
            elsewhere,
        })
    }

    /// Whether one of these is news.
    pub(super) fn is_news(&self, csns: &[Csn]) -> bool {
        csns.iter().any(|csn| !self.known.covers(csn))
    }

    /// Whether a change with these is to be taken: changes that were made together, deletes above all, may share a CSN.
    pub(super) fn is_next(&self, csns: &[Csn]) -> bool {
        self.is_news(csns) || self.last_csns == csns
    }

    /// A change with these is taken.
    pub(super) fn note_taken(&mut self, csns: &[Csn]) {
        self.last_csns = csns.to_vec();
    }

    /// So said a cookie of the provider.
    pub(super) fn note_provider(&mut self, sid: Option<u16>) {
        self.provider.sid = sid.or(self.provider.sid);
    }

    /// The provider's server ID, as far as it has said it.
    pub(super) fn provider_id(&self) -> Option<u16> {
        self.provider.sid
    }

    /// Whether the provider made this change itself.
    pub(super) fn is_providers(&self, csn: &Csn) -> bool {
        Some(csn.server_id) == self.provider.sid
    }

    /// Whether a change of this entry has to go into the next batch. One that others made, behind one of the provider's own, does:
    /// it is to be seen that the provider had told of its own before.
    pub(super) fn ends_before(&self, uuid: Uuid, csns: &[Csn]) -> bool {
        let is_own = csns.iter().any(|csn| self.is_providers(csn));
        !is_own && self.provider.changed.contains(&uuid)
    }

    /// A change of this entry comes into the batch.
    pub(super) fn note_changed(&mut self, uuid: Uuid, csns: &[Csn]) {
        if csns.iter().any(|csn| self.is_providers(csn)) {
            self.provider.changed.insert(uuid);
        }
    }
}

fn size(change: &ReplicatedChange) -> usize {
    match change {
        ReplicatedChange::Put { dn, attributes, state, place, .. } => {
            let values = attributes.iter().flat_map(|attribute| &attribute.values);
            let beside =
                state.as_ref().map_or(0, Vec::len) + place.as_ref().map_or(0, |place| place.name.len());
            dn.len() + values.map(Vec::len).sum::<usize>() + beside
        }
        ReplicatedChange::Delta { dn, change, .. } => dn.len() + logged_size(change),
        ReplicatedChange::Delete { .. } => 16,
    }
}

/// The add of an entry is as large as the entry, and a modification may bring a photo.
fn logged_size(change: &LoggedChange) -> usize {
    let of = |attribute: &LoggedAttribute| attribute.values.iter().map(Vec::len).sum::<usize>();
    match change {
        LoggedChange::Add(attributes) => attributes.iter().map(of).sum(),
        LoggedChange::Modify(modifications) | LoggedChange::ModifyDn { modifications, .. } => {
            modifications.iter().map(|modification| of(&modification.attribute)).sum()
        }
        LoggedChange::Delete => 0,
    }
}

#[cfg(test)]
mod tests {
    use larix_engine::log::{LoggedKind, LoggedModification};
    use larix_engine::time::Timestamp;

    use super::*;

    fn csn(server_id: u16, time: i64) -> Csn {
        Csn { time: Timestamp(time), count: 0, server_id, modification: 0 }
    }

    fn change() -> ReplicatedChange {
        ReplicatedChange::Delete { entry_uuid: Uuid::nil(), csn: None }
    }

    #[test]
    fn what_is_next() {
        let mut batch = Batch::new(vec![csn(1, 5), csn(2, 5)]);
        batch.note_taken(&[csn(1, 4)]);
        for (csns, news, next) in [
            (&[][..], false, false),
            (&[csn(1, 5)], false, false),
            (&[csn(1, 6)], true, true),
            (&[csn(3, 1)], true, true),
            (&[csn(1, 5), csn(2, 6)], true, true),
            (&[csn(1, 4)], false, true),
            (&[csn(1, 4), csn(2, 5)], false, false),
        ] {
            assert_eq!((batch.is_news(csns), batch.is_next(csns)), (news, next), "{csns:?}");
        }
    }

    #[test]
    fn a_batch_is_taken_with_what_it_stands_for() {
        let mut batch = Batch::new(vec![csn(1, 5)]);
        batch.note_provider(Some(1));
        batch.note_provider(None);
        assert!(batch.take(true).is_none());
        assert!(!batch.add(change()));
        batch.raise(&[csn(1, 7), csn(2, 3)]);
        batch.raise(&[csn(1, 6)]);
        let Some(Action::Apply { changes, csns, refreshing, provider, elsewhere: false }) = batch.take(true)
        else {
            panic!("nothing to apply");
        };
        // Of the provider's own the consumer had this before the batch.
        assert_eq!(
            (changes.len(), csns, refreshing, provider),
            (1, vec![csn(1, 7), csn(2, 3)], true, Some(csn(1, 5)))
        );
        assert!(batch.is_empty() && batch.take(true).is_none());
        assert_eq!(batch.known().as_slice(), [csn(1, 7), csn(2, 3)]);
        // CSNs without changes are a batch, too.
        batch.raise(&[csn(2, 4)]);
        assert!(matches!(batch.take(false), Some(Action::Apply { refreshing: false, .. })));
    }

    #[test]
    fn a_batch_has_room_for_so_many() {
        let mut batch = Batch::default();
        let count = (1..=BATCH_CHANGES).find(|_| batch.add(change()));
        assert_eq!(count, Some(BATCH_CHANGES));
    }

    #[test]
    fn records_of_a_log_fill_a_batch_by_their_bytes() {
        let attribute = || LoggedAttribute {
            description: "jpegPhoto".to_owned(),
            values: vec![vec![0xff; BATCH_BYTES / 2]],
        };
        let modification = || LoggedModification { kind: LoggedKind::Add, attribute: attribute() };
        let rename = LoggedChange::ModifyDn {
            new_rdn: "cn=b".to_owned(),
            delete_old_rdn: false,
            new_superior: None,
            modifications: vec![modification()],
        };
        for change in
            [LoggedChange::Add(vec![attribute()]), LoggedChange::Modify(vec![modification()]), rename]
        {
            let delta = || ReplicatedChange::Delta {
                entry_uuid: None,
                dn: "cn=a,dc=example,dc=com".to_owned(),
                csn: csn(1, 1),
                change: change.clone(),
                place: None,
                whole: false,
            };
            let mut batch = Batch::default();
            assert_eq!([batch.add(delta()), batch.add(delta())], [false, true]);
        }
    }

    #[test]
    fn others_changes_go_behind_the_providers_own() {
        let (entry, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut batch = Batch::default();
        batch.note_provider(Some(1));
        batch.note_changed(entry, &[csn(1, 5)]);
        batch.note_changed(other, &[csn(2, 5)]);
        for (uuid, server_id, ends) in [(entry, 1, false), (entry, 2, true), (other, 2, false)] {
            assert_eq!(batch.ends_before(uuid, &[csn(server_id, 6)]), ends, "{uuid} of {server_id}");
        }
    }
}
