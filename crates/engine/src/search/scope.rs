//! Where a search looks: its base, found anew in each slice, and what aliases add to it.

use foldhash::{HashMap, HashSet};
use larix_proto::{DerefAliases, LdapResult, ResultCode, Scope};
use larix_schema::NormalDn;
use larix_store::{Direction, KeyRange, Snapshot};

use crate::budget::Meter;
use crate::catalog::CatalogRow;
use crate::database::View;
use crate::entry::record::RecordFlags;
pub use crate::entry::record::{ALIAS_CLASS, REFERRAL_CLASS};
use crate::entry::{EntryId, EntryReader, EntrySource, EntryView};
use crate::fault::Fault;
use crate::filter::charge;
use crate::index::{KeyKind, Kinds, key};
use crate::plan::{IdSet, Plan};
use crate::tables::ENTRIES;
use crate::tree::{self, DnLookup};

/// Steps that it takes to read an alias, and to follow it.
const ALIAS_STEPS: u64 = 8;
/// Heads of records that are looked at for one step.
const HEADS_A_STEP: usize = 8;
/// Entries of a subtree that are listed to find the aliases among them. Where there are more, all aliases are looked through once.
const LISTED_MAX: usize = 256;

/// What became of a base.
#[derive(Debug)]
pub enum Base {
    Found(EntryId),
    /// There is no such entry; the nearest superior that exists.
    Missing(Option<EntryId>),
    /// An alias on the way leads nowhere; the alias.
    AliasProblem(LdapResult, Option<EntryId>),
}

/// An alias that was followed on the way to a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowedAlias {
    pub alias: EntryId,
    /// The entry that it stands for.
    pub target: EntryId,
}

/// Whether aliases on the way to the base are followed.
pub fn finds(deref: DerefAliases) -> bool {
    matches!(deref, DerefAliases::FindingBase | DerefAliases::Always)
}

/// Whether aliases below the base are followed.
pub fn searches(deref: DerefAliases) -> bool {
    matches!(deref, DerefAliases::InSearching | DerefAliases::Always)
}

/// Finds the base entry. The aliases on the way are added to `followed`, in their order.
pub fn find_base<N: Snapshot>(
    view: &View<'_, N>,
    dn: &NormalDn,
    deref: DerefAliases,
    followed: &mut Vec<FollowedAlias>,
) -> Result<Base, Fault> {
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
            Ok(target) => {
                followed.push(FollowedAlias { alias: at, target });
                match beyond(view, &target, &dn, &resolved)? {
                    Some(next) => dn = next,
                    None => return Ok(Base::Found(target)),
                }
            }
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
    resolved: &DnLookup,
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

/// The answer about an alias whose entry is not there.
pub(crate) fn target_not_found() -> LdapResult {
    LdapResult::with(ResultCode::ALIAS_PROBLEM, "aliasedObject not found")
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
            return Ok(Err(target_not_found()));
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

/// Whether the index of object classes is complete.
pub(crate) fn knows_classes<N: Snapshot>(view: &View<'_, N>) -> bool {
    class_index(view).is_some()
}

/// The row of the attribute objectClass, if its index is complete.
fn class_index<'v, N: Snapshot>(view: &'v View<'_, N>) -> Option<&'v CatalogRow> {
    let row = view.catalog.object_class().and_then(|number| view.catalog.row(number))?;
    row.usable().has(Kinds::EQUALITY).then_some(row)
}

/// The entries of an object class, from its index, which every database has; `None` while that is built.
pub fn of_class<N: Snapshot>(view: &View<'_, N>, class: &str) -> Result<Option<Plan>, Fault> {
    let Some(row) = class_index(view) else { return Ok(None) };
    Plan::of_key(view.snapshot, key::make(row.number, KeyKind::Equality, class.as_bytes())).map(Some)
}

fn is_only_suffix<N: Snapshot>(view: &View<'_, N>, id: EntryId) -> Result<bool, Fault> {
    if let Some(facts) = &view.facts {
        return Ok(facts.only_suffix == Some(id));
    }
    let [suffix] = view.settings.suffixes.as_slice() else { return Ok(false) };
    Ok(tree::child(view.snapshot, EntryId::ROOT, suffix.normal.as_str().as_bytes())? == Some(id))
}

/// The scope of a search, with the subtrees that aliases below its base add.
#[derive(Clone, Debug)]
pub struct Area {
    pub base: EntryId,
    pub scope: Scope,
    /// What aliases stand for: subtrees, or with one level the entries themselves.
    pub added: HashSet<EntryId>,
    /// Every entry of the database is the base or below it.
    pub whole: bool,
}

impl Area {
    /// `meter`: what the search for aliases is charged to; `None`: no request waits for it, and it knows the aliases of the index alone.
    ///
    /// # Errors
    /// A store that cannot be read; [`Fault::StepsSpent`] for more aliases than the meter has steps for.
    pub fn new<N: Snapshot>(
        view: &View<'_, N>,
        base: EntryId,
        scope: Scope,
        deref: DerefAliases,
        meter: Option<&Meter>,
    ) -> Result<Self, Fault> {
        let whole = base == EntryId::ROOT || (scope != Scope::Base && is_only_suffix(view, base)?);
        let mut area = Self { base, scope, added: HashSet::default(), whole };
        // Nothing can be added to all there is.
        if searches(deref) && (scope == Scope::OneLevel || (scope != Scope::Base && !whole)) {
            area.add_aliases(view, meter)?;
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
        self.is_added(view, entry)
    }

    /// Whether an alias stands for the entry, or for one above it.
    fn is_added<N: Snapshot>(&self, view: &View<'_, N>, entry: &EntryView<'_>) -> Result<bool, Fault> {
        if self.added.contains(&entry.id()) {
            return Ok(true);
        }
        let mut at = entry.parent();
        while self.scope != Scope::OneLevel && at != EntryId::ROOT {
            if self.added.contains(&at) {
                return Ok(true);
            }
            let Some(superior) = view.names.superior(at)? else { break };
            at = superior.parent;
        }
        Ok(false)
    }

    /// Adds what the aliases in scope stand for; what one adds may have aliases in it.
    fn add_aliases<N: Snapshot>(&mut self, view: &View<'_, N>, meter: Option<&Meter>) -> Result<(), Fault> {
        let all = match of_class(view, ALIAS_CLASS)? {
            Some(plan) if plan.estimate().is_none_or(|aliases| aliases == 0) => return Ok(()),
            Some(plan) => plan.read(view.snapshot)?.ids,
            // The index is being built: every entry may be one. To look through all for each change of an entry would be too much.
            None if meter.is_none() => return Ok(()),
            None => IdSet::Everything,
        };
        let mut aliases = Aliases { all, by_superior: None, meter };
        let mut found = aliases.below(view, self.base, self.scope)?;
        while let Some(id) = found.pop() {
            charge(meter, ALIAS_STEPS)?;
            // The base was followed while it was found, if at all.
            if id == self.base {
                continue;
            }
            let Some(record) = view.record(id)? else { continue };
            let entry = view.reader(id, &record)?;
            if !entry.view.flags().has(RecordFlags::ALIAS) {
                continue;
            }
            let Ok(target) = follow(view, &entry)? else { continue };
            let Some(stored) = view.stored(target)? else { continue };
            if target == self.base || self.contains(view, &EntryView::parse(target, &stored)?)? {
                continue;
            }
            self.added.insert(target);
            if self.scope != Scope::OneLevel {
                found.extend(aliases.below(view, target, Scope::Subtree)?);
            }
        }
        Ok(())
    }
}

/// The aliases of a database; every entry may be one where no index tells.
struct Aliases<'m> {
    all: IdSet,
    /// Those below each entry, after they had to be looked through.
    by_superior: Option<HashMap<EntryId, Vec<EntryId>>>,
    meter: Option<&'m Meter>,
}

impl Aliases<'_> {
    /// The aliases below an entry; with one level, its children alone. One search asks with the same scope each time.
    fn below<N: Snapshot>(
        &mut self,
        view: &View<'_, N>,
        top: EntryId,
        scope: Scope,
    ) -> Result<Vec<EntryId>, Fault> {
        if self.by_superior.is_none() {
            let mut listed = listed(view, top, scope)?;
            charge(self.meter, listed.len() as u64)?;
            if listed.len() < LISTED_MAX {
                listed.retain(|id| *id != top && self.all.contains(*id));
                return Ok(listed);
            }
        }
        let mut by_superior = match self.by_superior.take() {
            Some(known) => known,
            None => {
                if matches!(self.all, IdSet::Everything) {
                    self.all = self.flagged(view)?;
                }
                self.look_through(view, scope)?
            }
        };
        let found = by_superior.remove(&top).unwrap_or_default();
        self.by_superior = Some(by_superior);
        Ok(found)
    }

    /// All aliases, by what the heads of the records say: where no index has them.
    fn flagged<N: Snapshot>(&self, view: &View<'_, N>) -> Result<IdSet, Fault> {
        let mut ids = Vec::new();
        let rows = view.snapshot.scan(ENTRIES, KeyRange::all(), Direction::Forward)?;
        for (count, row) in rows.enumerate() {
            if count.is_multiple_of(HEADS_A_STEP) {
                charge(self.meter, 1)?;
            }
            let (key, stored) = row?;
            let id = EntryId::from_prefix(&key).ok_or(Fault::Damaged { what: "an entry id" })?;
            if EntryView::parse(id, &stored)?.flags().has(RecordFlags::ALIAS) {
                ids.push(id.0);
            }
        }
        Ok(IdSet::List(ids))
    }

    /// All aliases, by each of their superiors; with one level, by the next one alone.
    fn look_through<N: Snapshot>(
        &self,
        view: &View<'_, N>,
        scope: Scope,
    ) -> Result<HashMap<EntryId, Vec<EntryId>>, Fault> {
        let mut by_superior: HashMap<EntryId, Vec<EntryId>> = HashMap::default();
        let mut last = EntryId::ROOT;
        while let Some(id) = self.all.after(last) {
            last = id;
            charge(self.meter, ALIAS_STEPS)?;
            let Some(stored) = view.stored(id)? else { continue };
            let mut at = EntryView::parse(id, &stored)?.parent();
            loop {
                charge(self.meter, 1)?;
                by_superior.entry(at).or_default().push(id);
                match view.names.superior(at)? {
                    Some(superior) if scope != Scope::OneLevel => at = superior.parent,
                    _ => break,
                }
            }
        }
        Ok(by_superior)
    }
}

/// The first entries of a subtree, or of the children of its top with one level: [`LISTED_MAX`] at most.
fn listed<N: Snapshot>(view: &View<'_, N>, top: EntryId, scope: Scope) -> Result<Vec<EntryId>, Fault> {
    if scope != Scope::OneLevel {
        return tree::subtree(view.snapshot, top, LISTED_MAX);
    }
    let mut ids = Vec::new();
    tree::visit_children(view.snapshot, top, |id| {
        ids.push(id);
        ids.len() < LISTED_MAX
    })?;
    Ok(ids)
}
