//! Where a search looks: its base, found anew in each slice, and what aliases add to it.

use larix_proto::{DerefAliases, LdapResult, ResultCode, Scope};
use larix_schema::NormalDn;
use larix_store::Snapshot;

use crate::database::View;
use crate::entry::record::RecordFlags;
pub use crate::entry::record::{ALIAS_CLASS, REFERRAL_CLASS};
use crate::entry::{EntryId, EntryReader, EntrySource, EntryView};
use crate::fault::Fault;
use crate::index::{KeyKind, key};
use crate::plan::{IdSet, Plan};
use crate::tree::Resolved;

/// What became of a base.
#[derive(Debug)]
pub enum Base {
    Found(EntryId),
    /// There is no such entry; the nearest superior that exists.
    Missing(Option<EntryId>),
    /// An alias on the way leads nowhere; the alias.
    AliasProblem(LdapResult, Option<EntryId>),
}

/// Whether aliases on the way to the base are followed.
pub fn finds(deref: DerefAliases) -> bool {
    matches!(deref, DerefAliases::FindingBase | DerefAliases::Always)
}

/// Whether aliases below the base are followed.
pub fn searches(deref: DerefAliases) -> bool {
    matches!(deref, DerefAliases::InSearching | DerefAliases::Always)
}

/// Finds the base entry.
pub fn find_base<N: Snapshot>(view: &View<'_, N>, dn: &NormalDn, deref: DerefAliases) -> Result<Base, Fault> {
    let mut dn = dn.clone();
    for _ in 0..=view.settings.max_deref_depth.max(1) {
        let Some(resolved) = view.resolve(&dn)? else { return Ok(Base::Missing(None)) };
        if dn.is_root() && resolved.id.is_none() {
            // The empty suffix has entries below it, if not one of its own.
            return Ok(Base::Found(EntryId::ROOT));
        }
        let at = resolved.nearest;
        let missing = || if at == EntryId::ROOT { None } else { Some(at) };
        let found = || resolved.id.map_or_else(|| Base::Missing(missing()), Base::Found);
        if !finds(deref) || at == EntryId::ROOT {
            return Ok(found());
        }
        let record = view.record(at)?.ok_or(Fault::Missing { entry: at, what: "the record" })?;
        let entry = view.reader(at, &record)?;
        if !entry.view.flags().has(RecordFlags::ALIAS) {
            return Ok(found());
        }
        match follow(view, &entry)? {
            Ok(target) => match beyond(view, &target, &dn, &resolved)? {
                Some(next) => dn = next,
                None => return Ok(Base::Found(target)),
            },
            Err(problem) => return Ok(Base::AliasProblem(problem, missing())),
        }
    }
    let problem = LdapResult::with(ResultCode::ALIAS_DEREFERENCING_PROBLEM, "maximum deref depth exceeded");
    Ok(Base::AliasProblem(problem, None))
}

/// The name that was asked for, below what the alias on its way stands for; `None` when the alias itself was asked for.
fn beyond<N: Snapshot>(
    view: &View<'_, N>,
    target: &EntryId,
    dn: &NormalDn,
    resolved: &Resolved,
) -> Result<Option<NormalDn>, Fault> {
    if resolved.missing == 0 {
        return Ok(None);
    }
    let record = view.record(*target)?.ok_or(Fault::Missing { entry: *target, what: "the record" })?;
    let mut next = view.names.normal_dn(&EntryView::parse(*target, &record)?)?;
    let rdns: Vec<&[u8]> = dn.rdns().take(resolved.missing).collect();
    for rdn in rdns.into_iter().rev() {
        let rdn = std::str::from_utf8(rdn).map_err(|_| Fault::Damaged { what: "a normalized RDN" })?;
        next = NormalDn::join(&larix_schema::NormalRdn::from_normal(rdn), &next);
    }
    Ok(Some(next))
}

/// Follows an alias to an entry that is none.
pub fn follow<N: Snapshot>(
    view: &View<'_, N>,
    alias: &EntryReader<'_, N>,
) -> Result<Result<EntryId, LdapResult>, Fault> {
    let problem = |text: &str| Ok(Err(LdapResult::with(ResultCode::ALIAS_PROBLEM, text)));
    let mut seen = vec![alias.view.id()];
    let mut dn = aliased(alias)?;
    loop {
        let Some(target) = dn else { return problem("alias missing or bad aliasedObjectName") };
        let Some(id) = view.resolve(&target)?.and_then(|resolved| resolved.id) else {
            return problem("aliasedObject not found");
        };
        if seen.contains(&id) {
            return problem("circular alias");
        }
        let record = view.record(id)?.ok_or(Fault::Missing { entry: id, what: "the record" })?;
        let entry = view.reader(id, &record)?;
        if !entry.view.flags().has(RecordFlags::ALIAS) {
            return Ok(Ok(id));
        }
        if seen.len() >= view.settings.max_deref_depth.max(1) as usize {
            let text = "maximum deref depth exceeded";
            return Ok(Err(LdapResult::with(ResultCode::ALIAS_DEREFERENCING_PROBLEM, text)));
        }
        seen.push(id);
        dn = aliased(&entry)?;
    }
}

fn aliased<N: Snapshot>(alias: &EntryReader<'_, N>) -> Result<Option<NormalDn>, Fault> {
    let Ok(description) = alias.schema.describe("aliasedObjectName") else { return Ok(None) };
    let mut dn = None;
    alias.visit_exact(&description, &mut |value| {
        dn = std::str::from_utf8(value).ok().and_then(|text| alias.schema.parse_dn(text).ok());
        false
    })?;
    Ok(dn)
}

/// The entries of an object class, from its index, which every database has.
pub fn of_class<N: Snapshot>(view: &View<'_, N>, class: &str) -> Result<Option<Plan>, Fault> {
    let Some(row) = view.catalog.object_class().and_then(|number| view.catalog.row(number)) else {
        return Ok(None);
    };
    if !row.usable().has(crate::index::Kinds::EQUALITY) {
        return Ok(None);
    }
    Plan::of_key(view.snapshot, key::make(row.number, KeyKind::Equality, class.as_bytes())).map(Some)
}

fn is_only_suffix<N: Snapshot>(view: &View<'_, N>, id: EntryId) -> Result<bool, Fault> {
    if let Some(facts) = &view.facts {
        return Ok(facts.only_suffix == Some(id));
    }
    let [suffix] = view.settings.suffixes.as_slice() else { return Ok(false) };
    Ok(crate::tree::child(view.snapshot, EntryId::ROOT, suffix.normal.as_str().as_bytes())? == Some(id))
}

/// The scope of a search, with the subtrees that aliases below its base add.
#[derive(Clone, Debug)]
pub struct Area {
    pub base: EntryId,
    pub scope: Scope,
    /// What aliases stand for: subtrees, or with one level the entries themselves.
    pub added: Vec<EntryId>,
    /// Every entry of the database is the base or below it.
    pub whole: bool,
}

impl Area {
    pub fn new<N: Snapshot>(
        view: &View<'_, N>,
        base: EntryId,
        scope: Scope,
        deref: DerefAliases,
    ) -> Result<Self, Fault> {
        let whole = base == EntryId::ROOT || (scope != Scope::Base && is_only_suffix(view, base)?);
        let mut area = Self { base, scope, added: Vec::new(), whole };
        if searches(deref) && scope != Scope::Base {
            area.add_aliases(view)?;
        }
        Ok(area)
    }

    /// Whether an entry is in the scope.
    pub fn contains<N: Snapshot>(&self, view: &View<'_, N>, entry: &EntryView<'_>) -> Result<bool, Fault> {
        let id = entry.id();
        let inside = match self.scope {
            Scope::Base => id == self.base,
            Scope::OneLevel => entry.parent() == self.base && id != self.base,
            Scope::Subtree => self.whole || id == self.base || view.names.is_below(entry, self.base)?,
            Scope::Children => id != self.base && (self.whole || view.names.is_below(entry, self.base)?),
        };
        if inside || self.added.is_empty() {
            return Ok(inside);
        }
        for top in &self.added {
            if id == *top || (self.scope != Scope::OneLevel && view.names.is_below(entry, *top)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn add_aliases<N: Snapshot>(&mut self, view: &View<'_, N>) -> Result<(), Fault> {
        let Some(plan) = of_class(view, ALIAS_CLASS)? else { return Ok(()) };
        let IdSet::List(aliases) = plan.read(view.snapshot)?.ids else { return Ok(()) };
        // What one alias adds may have aliases in it: go on until nothing is new.
        let mut done = vec![false; aliases.len()];
        loop {
            let before = self.added.len();
            for (alias, done) in aliases.iter().zip(&mut done).filter(|(_, done)| !**done) {
                let id = EntryId(*alias);
                // Aliases below the base are followed while searching; the base only while it is found.
                if id == self.base {
                    *done = true;
                    continue;
                }
                let Some(record) = view.record(id)? else { continue };
                let entry = view.reader(id, &record)?;
                if !self.contains(view, &entry.view)? {
                    continue;
                }
                *done = true;
                let Ok(target) = follow(view, &entry)? else { continue };
                let Some(record) = view.record(target)? else { continue };
                if !self.contains(view, &EntryView::parse(target, &record)?)? && target != self.base {
                    self.added.push(target);
                }
            }
            if self.added.len() == before || self.scope == Scope::OneLevel {
                return Ok(());
            }
        }
    }
}
