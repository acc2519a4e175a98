//! `overlay lastmod` (slapo-lastmod, OpenLDAP's contrib): an entry below the suffix that tells the last change of the database.
//!
//! The change log knows that change: nothing is written for the entry, it tells replicated changes, too, and a restart does not make it
//! forget. While lastmodEnabled is FALSE it goes on telling the change that was the last one then.

mod config;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larix_backend::memory_tree::{Bases, MemoryTree};
use larix_backend::{
    Changes, Compare, Context, Cursor, End, ExtendedAnswer, ExtendedOperation, Interceptor, Later, Next,
    Operations, PasswordChange, PasswordChangeOutcome, PendingAnswer, Reply, Search, answer_now,
};
use larix_engine::access::{AccessPolicy, Item, Privilege};
use larix_engine::entry::split_rdn;
use larix_engine::log::{LastChange, OutlineKind};
use larix_engine::overlay::descriptor::InGluedDatabases;
use larix_engine::overlay::settings::SettingError;
use larix_engine::overlay::{Descriptor, OverlayDirective};
use larix_engine::write::{Completion, Modification, WriteOperation, WriteOutcome, WriteRequest};
use larix_engine::{Entry, EntryAttribute};
use larix_proto::{LdapResult, ModifyOperation, ResultCode, Scope};
use larix_schema::{AttributeDescription, NormalDn, Schema};

pub use config::build;

pub static DESCRIPTOR: Descriptor = Descriptor::in_front("lastmod", "olcLastmodConfig")
    .once()
    .over_glue(InGluedDatabases::Refused("it tells the last change of one database"))
    .reads_change_log()
    .directives(&[
        OverlayDirective::whole("lastmod-rdnvalue", "olcLastmodRdnValue"),
        OverlayDirective::switch("lastmod-enabled", "olcLastmodEnabled"),
    ])
    .schema(
        "attributetype ( 1.3.6.1.4.1.4203.666.1.28 NAME 'lastmodDN' DESC 'DN of last modification' \
         EQUALITY distinguishedNameMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.12 NO-USER-MODIFICATION \
         USAGE directoryOperation )\n\
         attributetype ( 1.3.6.1.4.1.4203.666.1.29 NAME 'lastmodType' DESC 'Type of last modification' \
         EQUALITY caseIgnoreMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 SINGLE-VALUE NO-USER-MODIFICATION \
         USAGE directoryOperation )\n\
         attributetype ( 1.3.6.1.4.1.4203.666.1.30 NAME 'lastmodEnabled' DESC 'Lastmod overlay state' \
         EQUALITY booleanMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.7 SINGLE-VALUE )\n\
         objectclass ( 1.3.6.1.4.1.4203.666.3.13 NAME 'lastmod' \
         DESC 'OpenLDAP per-database last modification monitoring' SUP top STRUCTURAL MUST cn \
         MAY ( lastmodDN $ lastmodType $ lastmodEnabled $ description $ seeAlso ) )",
    );

/// The attributes of the entry.
#[derive(Debug)]
struct Names {
    object_class: AttributeDescription,
    structural_class: AttributeDescription,
    cn: AttributeDescription,
    description: AttributeDescription,
    changed: AttributeDescription,
    kind: AttributeDescription,
    enabled: AttributeDescription,
    creator: AttributeDescription,
    csn: AttributeDescription,
    time: AttributeDescription,
    modifier: AttributeDescription,
    own_name: AttributeDescription,
    has_subordinates: AttributeDescription,
}

impl Names {
    /// # Errors
    /// A schema without one of them.
    fn of(
        described: &dyn Fn(&str) -> Result<AttributeDescription, SettingError>,
    ) -> Result<Self, SettingError> {
        Ok(Self {
            object_class: described("objectClass")?,
            structural_class: described("structuralObjectClass")?,
            cn: described("cn")?,
            description: described("description")?,
            changed: described("lastmodDN")?,
            kind: described("lastmodType")?,
            enabled: described("lastmodEnabled")?,
            creator: described("creatorsName")?,
            csn: described("entryCSN")?,
            time: described("modifyTimestamp")?,
            modifier: described("modifiersName")?,
            own_name: described("entryDN")?,
            has_subordinates: described("hasSubordinates")?,
        })
    }
}

/// The change that the entry shows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ShownChange {
    /// lastmodEnabled is TRUE: the newest one.
    Newest,
    /// It is TRUE again: the newest one if its number is above this, otherwise the one that it showed until then.
    NewestAbove(u64, Option<LastChange>),
    /// It is FALSE: the one that was the last then.
    Frozen(Option<LastChange>),
}

impl ShownChange {
    const fn is_enabled(&self) -> bool {
        !matches!(self, Self::Frozen(_))
    }

    /// The change to tell, where this is the newest one.
    fn change(&self, newest: Option<LastChange>) -> Option<LastChange> {
        match self {
            Self::Newest => newest,
            Self::NewestAbove(number, frozen) => {
                newest.filter(|it| it.number > *number).or_else(|| frozen.clone())
            }
            Self::Frozen(frozen) => frozen.clone(),
        }
    }
}

/// The overlay in front of one database.
#[derive(Debug)]
struct LastModification {
    schema: Arc<Schema>,
    names: Names,
    dn: NormalDn,
    /// The same as it is shown, and the value of its RDN.
    text: String,
    name: String,
    /// Of the entry: the root DN.
    creator: String,
    /// Set by clients; the configuration and a restart bring it back to what is configured.
    shown: Mutex<ShownChange>,
}

impl LastModification {
    fn shown(&self) -> MutexGuard<'_, ShownChange> {
        // Every change of it is whole.
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entry.
    ///
    /// # Errors
    /// A change log that cannot be read.
    fn entry(&self, next: Next<'_>) -> Result<Entry, LdapResult> {
        let newest = newest(next)?;
        let shown = self.shown();
        let (change, is_enabled) = (shown.change(newest), shown.is_enabled());
        drop(shown);
        let names = &self.names;
        let mut entry = Entry::new(self.text.clone());
        let mut add = |description: &AttributeDescription, value: String| {
            entry.attributes.push(EntryAttribute::new(description.clone(), vec![value.into_bytes()]));
        };
        add(&names.object_class, "lastmod".to_owned());
        add(&names.structural_class, "lastmod".to_owned());
        add(&names.cn, self.name.clone());
        let about = "This object contains the last modification to this database";
        add(&names.description, about.to_owned());
        let (changed, kind) = match &change {
            Some(change) => (change.outline.dn_behind(), kind_of(&change.outline.kind)),
            // As in slapd, before the first change.
            None => (self.text.clone(), "add"),
        };
        add(&names.changed, changed);
        add(&names.kind, kind.to_owned());
        add(&names.enabled, if is_enabled { "TRUE" } else { "FALSE" }.to_owned());
        add(&names.creator, self.creator.clone());
        if let Some(LastChange { outline, requester, .. }) = change {
            add(&names.csn, outline.csn.text());
            add(&names.time, outline.csn.time.generalized());
            let is_name = !requester.is_empty() && self.schema.parse_dn(&requester).is_ok();
            add(&names.modifier, if is_name { requester } else { "cn=anonymous".to_owned() });
        }
        add(&names.own_name, self.text.clone());
        add(&names.has_subordinates, "FALSE".to_owned());
        Ok(entry)
    }

    /// The entry as a tree of its own.
    fn tree<'a>(&'a self, entry: Entry, policy: &'a AccessPolicy, context: &Context<'a>) -> MemoryTree<'a> {
        let (schema, subject) = (&*self.schema, &**context.subject);
        MemoryTree { schema, policy, subject, entries: vec![entry], counted: None }
    }

    /// Whether a change is about the entry, or about a name below it.
    fn concerns(&self, request: &WriteRequest, target: Option<&NormalDn>) -> bool {
        let is_target = match target {
            Some(dn) => dn.is_within(&self.dn),
            None => self.is_own(request.operation.target()),
        };
        is_target || self.would_take_name(request)
    }

    fn is_own(&self, dn: &str) -> bool {
        self.schema.parse_dn(dn).is_ok_and(|dn| dn.is_within(&self.dn))
    }

    /// Whether a change would give an entry the entry's name, or one below it.
    fn would_take_name(&self, request: &WriteRequest) -> bool {
        match &request.operation {
            WriteOperation::Add { entry, .. } => self.is_own(entry),
            WriteOperation::ModifyDn { entry, new_rdn, new_superior, .. } => {
                let superior = new_superior.as_deref().unwrap_or_else(|| split_rdn(entry).1);
                let separator = if superior.is_empty() { "" } else { "," };
                self.is_own(&format!("{new_rdn}{separator}{superior}"))
            }
            WriteOperation::Modify { .. } | WriteOperation::Delete { .. } => false,
        }
    }

    /// Whether the requester may not know that the entry is there.
    fn is_hidden(&self, next: Next<'_>, context: &Context<'_>) -> bool {
        let Some(policy) = next.policy(&self.dn) else { return false };
        let Ok(entry) = self.entry(next) else { return true };
        let tree = self.tree(entry, &policy, context);
        !tree.entries.iter().all(|entry| tree.allows(&self.dn, entry, Item::Entry, Privilege::Disclose))
    }

    /// There is nothing below the entry.
    fn missing(&self) -> LdapResult {
        LdapResult::new(ResultCode::NO_SUCH_OBJECT).matched(self.text.clone())
    }

    fn refused(&self) -> LdapResult {
        let text = format!(
            "\"{}\" is kept by the overlay lastmod: read it with scope base; lastmodEnabled alone can be replaced",
            self.text
        );
        LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text)
    }

    /// Changes about the entry by a requester who may not know of it: the database answers that there is none, and its name cannot be
    /// taken.
    fn update_unseen(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        changes: Changes,
        done: Completion,
    ) -> PendingAnswer {
        match changes.requests().iter().position(|request| self.would_take_name(request)) {
            Some(at) => {
                // As the database answers who may not write there.
                let text = "no write access to parent";
                let refused = LdapResult::with(ResultCode::INSUFFICIENT_ACCESS_RIGHTS, text);
                answer_now(done, WriteOutcome { refused: Some(at), ..refused.into() })
            }
            None => next.update(context, changes, done),
        }
    }

    /// Carries out a modify of the entry.
    fn modify(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        request: &WriteRequest,
        changes: &[Modification],
    ) -> Result<(), LdapResult> {
        let controls = &request.controls;
        if controls.no_op || controls.pre_read.is_some() || controls.post_read.is_some() {
            let text = "lastmodEnabled is replaced without the controls no-op, pre-read and post-read";
            return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
        }
        let Some(policy) = next.policy(&self.dn) else { return Err(self.refused()) };
        let tree = self.tree(self.entry(next)?, &policy, context);
        let [entry] = tree.entries.as_slice() else { return Err(self.refused()) };
        let mut enabled = None;
        for change in changes {
            let description = self.schema.describe(&change.attribute.description);
            if !description.is_ok_and(|description| description == self.names.enabled) {
                return Err(self.refused());
            }
            let values = &change.attribute.values;
            let may = |value: Option<&[u8]>, privilege| {
                let item = Item::Attribute { description: &self.names.enabled, value };
                tree.allows(&self.dn, entry, item, privilege)
            };
            if !may(None, Privilege::Delete) || !values.iter().all(|value| may(Some(value), Privilege::Add)) {
                return Err(LdapResult::new(ResultCode::INSUFFICIENT_ACCESS_RIGHTS));
            }
            enabled = match (change.operation, values.as_slice()) {
                (ModifyOperation::Replace, [value]) if value.as_slice() == b"TRUE" => Some(true),
                (ModifyOperation::Replace, [value]) if value.as_slice() == b"FALSE" => Some(false),
                (ModifyOperation::Replace, _) => {
                    let text = "lastmodEnabled: one value, TRUE or FALSE";
                    return Err(LdapResult::with(ResultCode::INVALID_ATTRIBUTE_SYNTAX, text));
                }
                _ => {
                    let text = "lastmodEnabled can be replaced, and neither added nor deleted";
                    return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
                }
            };
        }
        if !tree.is_as_asserted(&self.dn, entry, controls) {
            return Err(LdapResult::new(ResultCode::ASSERTION_FAILED));
        }
        match enabled {
            Some(enabled) => self.set_enabled(enabled, next),
            None => Err(self.refused()),
        }
    }

    /// # Errors
    /// A change log that cannot be read.
    fn set_enabled(&self, enabled: bool, next: Next<'_>) -> Result<(), LdapResult> {
        let newest = newest(next)?;
        let mut shown = self.shown();
        *shown = match (&*shown, enabled) {
            (ShownChange::Frozen(frozen), true) => {
                ShownChange::NewestAbove(newest.as_ref().map_or(0, |it| it.number), frozen.clone())
            }
            (ShownChange::Newest | ShownChange::NewestAbove(..), false) => {
                ShownChange::Frozen(shown.change(newest))
            }
            (as_it_is, _) => as_it_is.clone(),
        };
        Ok(())
    }
}

fn newest(next: Next<'_>) -> Result<Option<LastChange>, LdapResult> {
    next.last_change()
        .map_err(|fault| LdapResult::with(ResultCode::OTHER, format!("internal error: {fault}")))
}

const fn kind_of(kind: &OutlineKind) -> &'static str {
    match kind {
        OutlineKind::Add => "add",
        OutlineKind::Modify => "modify",
        OutlineKind::Delete => "delete",
        OutlineKind::ModifyDn { .. } => "modrdn",
    }
}

impl Interceptor for LastModification {
    fn requests(&self) -> Operations {
        Operations::SEARCH
            .and(Operations::COMPARE)
            .and(Operations::UPDATE)
            .and(Operations::PASSWORD)
            .and(Operations::EXTENDED)
    }

    fn sees(&self, search: &Search<'_>) -> bool {
        search.base.is_within(&self.dn)
    }

    fn open(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        search: Search<'_>,
    ) -> Result<Box<dyn Cursor>, Box<End>> {
        if !self.sees(&search) || self.is_hidden(next, context) {
            return next.open(context, search);
        }
        let end = |result| Box::new((result, Vec::new()));
        let policy =
            next.policy(&self.dn).filter(|_| *search.base == self.dn).ok_or_else(|| end(self.missing()))?;
        if search.request.scope != Scope::Base {
            return Err(end(self.refused()));
        }
        let tree = self.tree(self.entry(next).map_err(end)?, &policy, context);
        Ok(Box::new(tree.answer(Bases::Judged, &search)))
    }

    fn compare(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        compare: &Compare<'_>,
        later: Later<'_, End>,
    ) -> Reply<End> {
        if !compare.dn.is_within(&self.dn) || self.is_hidden(next, context) {
            return next.compare(context, compare, later);
        }
        let result = match (next.policy(&self.dn), self.entry(next)) {
            (Some(policy), Ok(entry)) => {
                self.tree(entry, &policy, context).compare(compare.dn, compare.request, compare.controls)
            }
            (None, _) => self.missing(),
            (_, Err(result)) => result,
        };
        Reply::Now((result, Vec::new()))
    }

    fn update(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        changes: Changes,
        done: Completion,
    ) -> PendingAnswer {
        let concerns = |request: &WriteRequest| match &changes {
            Changes::One(_, target) => self.concerns(request, target.as_ref()),
            Changes::Together(_) => self.concerns(request, None),
        };
        let Some(at) = changes.requests().iter().position(concerns) else {
            return next.update(context, changes, done);
        };
        if self.is_hidden(next, context) {
            return self.update_unseen(next, context, changes, done);
        }
        if let Changes::One(request, Some(target)) = &changes
            && *target == self.dn
            && let WriteOperation::Modify { changes, .. } = &request.operation
        {
            let modified = self.modify(next, context, request, changes);
            return answer_now(done, modified.map_or_else(|refused| refused, |()| LdapResult::success()));
        }
        answer_now(done, WriteOutcome { refused: Some(at), ..self.refused().into() })
    }

    fn modify_password(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        match change.dn.is_within(&self.dn) && !self.is_hidden(next, context) {
            true => Reply::Now(self.refused().into()),
            false => next.modify_password(context, change, later),
        }
    }

    fn extended(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        match request.dn.is_within(&self.dn) && !self.is_hidden(next, context) {
            true => Reply::Now(self.refused().into()),
            false => next.extended(context, request, later),
        }
    }
}
