//! What a search that goes on with changes (draft-ietf-ldapext-psearch-03) asks of a search: which entries it has found, and single
//! entries by id, as the client sees them.

use larix_proto::{ControlBuf, DerefAliases, LdapResult};
use larix_store::Snapshot;

use super::entry::GuardedEntry;
use super::gate::Gate;
use super::run::{CandidateOutcome, IndexProof, append};
use super::scope::{self, Area};
use super::synchronised::EntryIds;
use super::task::{End, SearchTask, storage_failure};
use crate::budget::{LimitExceeded, Meter, RequestLimit};
use crate::database::View;
use crate::entry::{EntryId, EntryView};
use crate::fault::Fault;

/// The entries that a search has found.
#[derive(Debug, Default)]
pub(super) struct FoundEntries {
    ids: EntryIds,
    /// They are not answered.
    pub(super) silent: bool,
}

impl FoundEntries {
    /// Answers whether to send the entry.
    pub(super) fn note<N: Snapshot>(&mut self, seen: &GuardedEntry<'_, N>) -> Result<bool, Fault> {
        if !seen.is_shown()? {
            return Ok(false);
        }
        self.ids.insert(seen.reader.view.id());
        Ok(!self.silent)
    }
}

impl SearchTask {
    /// Has the search remember which entries it finds. With `silent` it answers none of them.
    pub fn note_entries(&mut self, silent: bool) {
        self.found_entries = Some(Box::new(FoundEntries { silent, ..FoundEntries::default() }));
    }

    /// What it has found.
    pub fn take_noted(&mut self) -> EntryIds {
        self.found_entries.take().map(|found_entries| found_entries.ids).unwrap_or_default()
    }

    /// Looks at an entry as it is now. Answers whether the entry matches and the client may see it. Then it is sent with the controls of
    /// `send`, if there are any.
    ///
    /// # Errors
    /// A store that cannot be read; adminLimitExceeded where one entry takes more work than a request may.
    pub fn look_again<N: Snapshot>(
        &mut self,
        view: &View<'_, N>,
        id: EntryId,
        out: &mut Vec<u8>,
        send: Option<&[ControlBuf]>,
    ) -> Result<bool, LdapResult> {
        self.renumber(view);
        let Some(subject) = self.subject.take() else { return Ok(false) };
        let mut gate = Gate::new(&view.policy, &subject);
        gate.steps = view.settings.request_limits.most(RequestLimit::Steps);
        if !self.controls.manage_dsa_it {
            gate.computed = &view.computed;
        }
        let shown = self.shown_by(view);
        gate.shown = &shown;
        let looked = self.look_at(view, &gate, id, out, send);
        drop(shown);
        self.subject = Some(subject);
        looked.map_err(|end| match end {
            End::Result(result) => result,
            End::Fault(Fault::StepsSpent) => {
                let most = view.settings.request_limits.most(RequestLimit::Steps);
                LimitExceeded { limit: RequestLimit::Steps, most }.into()
            }
            End::Fault(fault) => storage_failure(&fault),
        })
    }

    fn look_at<N: Snapshot>(
        &mut self,
        view: &View<'_, N>,
        gate: &Gate<'_>,
        id: EntryId,
        out: &mut Vec<u8>,
        send: Option<&[ControlBuf]>,
    ) -> Result<bool, End> {
        let Some(stored) = view.stored(id)? else { return Ok(false) };
        self.looked += 1;
        // No caller looks before the base was found.
        let Some(base) = self.base_id else { return Ok(false) };
        let meter = Meter::new(gate.steps);
        // While the index of object classes is built, aliases would be looked for in all entries, and for each change.
        let deref = if scope::knows_classes(view) { self.deref } else { DerefAliases::Never };
        let area = Area::new(view, base, self.scope, deref, Some(&meter))?;
        if !area.contains(view, &EntryView::parse(id, &stored).map_err(Fault::from)?)? {
            return Ok(false);
        }
        let record = view.unpacked(id, stored)?;
        let seen = GuardedEntry::new(view, view.reader(id, &record)?, gate.clone());
        // A referral object is no entry of this server's.
        if !matches!(self.look(&seen, area.base, IndexProof::Nothing)?, CandidateOutcome::Match)
            || !seen.is_shown()?
        {
            return Ok(false);
        }
        if let Some(controls) = send
            && append(&self.answer, &seen, out, controls)?
        {
            self.entries = self.entries.saturating_add(1);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_in_their_order() {
        let mut ids = EntryIds::default();
        for id in [4_097, 3, 70_000, 64] {
            ids.insert(EntryId(id));
        }
        let after = |after| ids.after(after, 2).into_iter().map(|id| id.0).collect::<Vec<_>>();
        assert_eq!(after(None), [3, 64]);
        assert_eq!(after(Some(EntryId(64))), [4_097, 70_000]);
        assert_eq!(after(Some(EntryId(70_000))), [0; 0]);
    }
}
