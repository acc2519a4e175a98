//! What a thread knows of a database as of its last commit, so that a search need not look it up again.

use std::cell::RefCell;

use larix_schema::NormalDn;
use larix_store::{ReadError, Snapshot};

use crate::catalog::Catalog;
use crate::database::DatabaseSettings;
use crate::entry::EntryId;
use crate::entry::record::RecordFlags;
use crate::fault::Fault;
use crate::index::{KeyKind, Kinds, key};
use crate::search::scope::REFERRAL_CLASS;
use crate::tables::INDEX;
use crate::tree;

/// Bases of searches remembered for each commit.
const BASES_MAX: usize = 4;
/// Databases a thread remembers; more than one process serves.
const DATABASES_MAX: usize = 64;

/// Facts of one commit.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Facts {
    /// Tells databases of this process apart.
    instance: u64,
    commit: u64,
    /// Where the catalog and the settings lie that this was found with: others may say otherwise.
    made_with: (usize, usize),
    pub(crate) generation: u64,
    /// The suffix entry, when there is but one suffix: every entry is below it.
    pub(crate) only_suffix: Option<EntryId>,
    /// Whether the index of object classes knows any referral object; true where it cannot tell.
    pub(crate) referrals: bool,
}

struct Known {
    facts: Facts,
    bases: Vec<(NormalDn, EntryId, RecordFlags)>,
}

thread_local! {
    static KNOWN: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
}

impl Facts {
    /// The facts of the commit that `snapshot` shows; nothing uncommitted may be laid over it.
    pub(crate) fn of<N: Snapshot>(
        snapshot: &N,
        instance: u64,
        catalog: &Catalog,
        settings: &DatabaseSettings,
    ) -> Result<Self, Fault> {
        let commit = snapshot.commit_counter();
        let made_with = (std::ptr::from_ref(catalog).addr(), std::ptr::from_ref(settings).addr());
        let known = KNOWN.with_borrow(|all| {
            let known = all.iter().find(|known| known.facts.instance == instance)?;
            ((known.facts.commit, known.facts.made_with) == (commit, made_with)).then_some(known.facts)
        });
        if let Some(facts) = known {
            return Ok(facts);
        }
        let only_suffix = match settings.suffixes.as_slice() {
            [suffix] => tree::child(snapshot, EntryId::ROOT, suffix.normal.as_str().as_bytes())?,
            _ => None,
        };
        let facts = Self {
            instance,
            commit,
            made_with,
            generation: tree::generation(snapshot)?,
            only_suffix,
            referrals: has_referrals(snapshot, catalog)?,
        };
        KNOWN.with_borrow_mut(|all| {
            if all.len() >= DATABASES_MAX {
                all.clear();
            }
            match all.iter_mut().find(|known| known.facts.instance == instance) {
                Some(known) => {
                    known.facts = facts;
                    known.bases.clear();
                }
                None => all.push(Known { facts, bases: Vec::new() }),
            }
        });
        Ok(facts)
    }

    /// A base that was searched since the last commit.
    pub(crate) fn base(&self, dn: &NormalDn) -> Option<(EntryId, RecordFlags)> {
        KNOWN.with_borrow(|all| {
            let known = all.iter().find(|known| known.facts.instance == self.instance)?;
            let base = known.bases.iter().find(|(base, ..)| base == dn)?;
            (known.facts.commit == self.commit).then_some((base.1, base.2))
        })
    }

    pub(crate) fn remember_base(&self, dn: &NormalDn, id: EntryId, flags: RecordFlags) {
        KNOWN.with_borrow_mut(|all| {
            let known = all.iter_mut().find(|known| known.facts.instance == self.instance);
            let Some(known) = known.filter(|known| known.facts.commit == self.commit) else { return };
            if known.bases.len() >= BASES_MAX {
                known.bases.clear();
            }
            known.bases.push((dn.clone(), id, flags));
        });
    }
}

fn has_referrals<N: Snapshot>(snapshot: &N, catalog: &Catalog) -> Result<bool, ReadError> {
    let Some(row) = catalog.object_class().and_then(|number| catalog.row(number)) else { return Ok(true) };
    if !row.usable().has(Kinds::EQUALITY) {
        return Ok(true);
    }
    let key = key::make(row.number, KeyKind::Equality, REFERRAL_CLASS.as_bytes());
    Ok(snapshot.posting_estimate(INDEX, &key)? > 0)
}
