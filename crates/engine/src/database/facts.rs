//! Facts about a database as of its last commit, cached for each thread, so that a search need not look them up again.

use std::cell::RefCell;

use larix_schema::NormalDn;
use larix_store::{ReadError, Snapshot};

use super::DatabaseSettings;
use crate::catalog::Catalog;
use crate::entry::EntryId;
use crate::fault::Fault;
use crate::index::{KeyKind, Kinds, key};
use crate::record::{REFERRAL_CLASS, RecordFlags};
use crate::tables::INDEX;
use crate::tree;

/// Bases of searches remembered for each commit.
const BASES_MAX: usize = 4;
/// Databases a thread remembers; more than one process serves.
const DATABASES_MAX: usize = 64;

/// Which configuration of a database something was found with, and where its catalog and settings lie: others may say otherwise.
pub(crate) type Configured = (u64, usize, usize);

/// Facts of one commit.
#[derive(Copy, Clone, Debug)]
pub(crate) struct CommitFacts {
    /// Tells databases of this process apart.
    instance: u64,
    commit: u64,
    pub(crate) made_with: Configured,
    pub(crate) generation: u64,
    /// The suffix entry, when there is but one suffix: every entry is below it.
    pub(crate) only_suffix: Option<EntryId>,
    /// Whether the index of object classes knows any referral object; true where it cannot tell.
    pub(crate) referrals: bool,
}

struct CachedFacts {
    facts: CommitFacts,
    bases: Vec<(NormalDn, EntryId, RecordFlags)>,
}

thread_local! {
    static CACHE: RefCell<Vec<CachedFacts>> = const { RefCell::new(Vec::new()) };
}

impl CommitFacts {
    /// The facts of the commit that `snapshot` shows; nothing uncommitted may be laid over it. `instance` and
    /// `configuration` are the database's numbers, the second one read before `catalog` and `settings`.
    pub(crate) fn of<N: Snapshot>(
        snapshot: &N,
        (instance, configuration): (u64, u64),
        catalog: &Catalog,
        settings: &DatabaseSettings,
    ) -> Result<Self, Fault> {
        let commit = snapshot.commit_counter();
        let (at_catalog, at_settings) =
            (std::ptr::from_ref(catalog).addr(), std::ptr::from_ref(settings).addr());
        let made_with = (configuration, at_catalog, at_settings);
        let cached = CACHE.with_borrow_mut(|all| {
            let at = all.iter().position(|cached| cached.facts.instance == instance)?;
            if at > 0 {
                // Who asks goes on with it: it is found first.
                all.swap(0, at);
            }
            let facts = &all.first()?.facts;
            ((facts.commit, facts.made_with) == (commit, made_with)).then_some(*facts)
        });
        if let Some(facts) = cached {
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
        CACHE.with_borrow_mut(|all| {
            if all.len() >= DATABASES_MAX {
                all.clear();
            }
            match all.iter_mut().find(|cached| cached.facts.instance == instance) {
                Some(cached) => {
                    cached.facts = facts;
                    cached.bases.clear();
                }
                None => all.push(CachedFacts { facts, bases: Vec::new() }),
            }
        });
        Ok(facts)
    }

    /// A base that was searched since the last commit.
    pub(crate) fn base(&self, dn: &NormalDn) -> Option<(EntryId, RecordFlags)> {
        CACHE.with_borrow(|all| {
            let cached = all.iter().find(|cached| cached.facts.instance == self.instance)?;
            let base = cached.bases.iter().find(|(base, ..)| base == dn)?;
            (cached.facts.commit == self.commit).then_some((base.1, base.2))
        })
    }

    pub(crate) fn remember_base(&self, dn: &NormalDn, id: EntryId, flags: RecordFlags) {
        CACHE.with_borrow_mut(|all| {
            let cached = all.iter_mut().find(|cached| cached.facts.instance == self.instance);
            let Some(cached) = cached.filter(|cached| cached.facts.commit == self.commit) else { return };
            if cached.bases.len() >= BASES_MAX {
                cached.bases.clear();
            }
            cached.bases.push((dn.clone(), id, flags));
        });
    }
}

fn has_referrals<N: Snapshot>(snapshot: &N, catalog: &Catalog) -> Result<bool, ReadError> {
    let Some(key) = referrals_key(catalog) else { return Ok(true) };
    Ok(snapshot.posting_estimate(INDEX, &key)? > 0)
}

/// The key of the referral objects in the index of object classes, if that can tell.
pub(super) fn referrals_key(catalog: &Catalog) -> Option<Vec<u8>> {
    let row = catalog.row(catalog.object_class()?)?;
    let is_usable = row.usable().has(Kinds::EQUALITY);
    is_usable.then(|| key::make(row.number, KeyKind::Equality, REFERRAL_CLASS.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::database::Suffix;
    use crate::fixture::{Fixture, SUFFIX, index, schema, settings};
    use larix_store::Store;

    const ROOT: &str = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n";
    const REFERRAL: &str = "dn: ou=far,dc=example,dc=com\nobjectClass: referral\nobjectClass: extensibleObject\n\
        ou: far\nref: ldap://far.example.com/\n";

    fn facts<S: Store>(fixture: &Fixture<S>) -> CommitFacts {
        let snapshot = fixture.database.store().snapshot().expect("a snapshot");
        fixture.database.view(&snapshot).expect("a view").facts.expect("facts")
    }

    fn dn(rdn: &str) -> NormalDn {
        schema().parse_dn(&format!("{rdn},{SUFFIX}")).expect(rdn)
    }

    #[test]
    fn bases_are_known_until_the_next_commit() {
        let fixture = Fixture::memory(&[("objectClass", "eq")], ROOT);
        let before = facts(&fixture);
        let at = |number: usize| dn(&format!("ou=b{number}"));
        for number in 0..BASES_MAX {
            before.remember_base(&at(number), EntryId(number as u64), RecordFlags(0));
        }
        let cached =
            |facts: &CommitFacts| (0..=BASES_MAX).filter(|number| facts.base(&at(*number)).is_some()).count();
        assert_eq!(cached(&before), BASES_MAX);
        assert_eq!(before.base(&at(2)).map(|(id, _)| id), Some(EntryId(2)));
        before.remember_base(&at(BASES_MAX), EntryId(9), RecordFlags(0));
        assert_eq!(cached(&before), 1, "a full list is begun anew");
        fixture.load("dn: ou=x,dc=example,dc=com\nobjectClass: organizationalUnit\nou: x\n");
        let after = facts(&fixture);
        assert_eq!((cached(&before), cached(&after)), (0, 0));
        before.remember_base(&at(0), EntryId(1), RecordFlags(0));
        assert_eq!(cached(&after), 0, "what an older snapshot found is not taken");
    }

    #[test]
    fn referrals_are_known_by_the_index_alone() {
        let check = |lines: &[(&str, &str)], ldif: &str, want: bool| {
            assert_eq!(facts(&Fixture::memory(lines, ldif)).referrals, want, "{lines:?} {ldif}");
        };
        let both = format!("{ROOT}\n{REFERRAL}");
        check(&[("objectClass", "eq")], ROOT, false);
        check(&[("objectClass", "eq")], &both, true);
        let fixture = Fixture::memory(&[("objectClass", "eq")], ROOT);
        assert!(!facts(&fixture).referrals);
        fixture.load(REFERRAL);
        assert!(facts(&fixture).referrals);
    }

    #[test]
    fn other_settings_are_seen_without_a_commit() {
        let fixture = Fixture::memory(&[("objectClass", "eq")], ROOT);
        assert!(facts(&fixture).only_suffix.is_some());
        let lines = || index(&[("objectClass", "eq")]);
        let mut two = settings(SUFFIX, lines());
        let text = "dc=other".to_owned();
        two.suffixes.push(Suffix { normal: schema().parse_dn(&text).expect("a DN"), text });
        fixture.reconfigure(two);
        assert_eq!(facts(&fixture).only_suffix, None);
        fixture.reconfigure(settings(SUFFIX, lines()));
        assert!(facts(&fixture).only_suffix.is_some());
    }

    #[test]
    fn a_view_has_the_rules_in_force() {
        let fixture = Fixture::memory(&[], ROOT);
        let of_a_view = || {
            let snapshot = fixture.database.store().snapshot().expect("a snapshot");
            Arc::clone(&fixture.database.view(&snapshot).expect("a view").policy)
        };
        let before = of_a_view();
        assert!(Arc::ptr_eq(&before, &fixture.database.policy()));
        fixture.reconfigure(settings(SUFFIX, index(&[])));
        assert!(Arc::ptr_eq(&of_a_view(), &fixture.database.policy()) && !Arc::ptr_eq(&of_a_view(), &before));
        fixture.database.set_read_only(true);
        assert!(Arc::ptr_eq(&of_a_view(), &fixture.database.policy()));
    }
}
