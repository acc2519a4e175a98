//! Overlays in front of a database and of those glued below it, together: those that are configured behind its `overlay glue`.
//!
//! As in slapd they see searches that begin in any of the databases, and changes and extended operations. Binds and compares go to the
//! database of the entry alone.

use std::sync::Arc;

use larix_engine::Fault;
use larix_engine::access::AccessPolicy;
use larix_engine::overlay::internal_search::{InternalSearch, Visit};
use larix_engine::write::Completion;
use larix_proto::LdapResult;
use larix_schema::{NormalDn, Schema};

use crate::backend::{Announcement, Backend, Context};
use crate::cursor::{Cursor, End, First};
use crate::glue;
use crate::intercept::Stack;
use crate::mounts::Mounts;
use crate::operation::{
    Bind, Changes, Compare, ExtendedAnswer, ExtendedOperation, Later, PasswordChange, PasswordChangeOutcome,
    PendingAnswer, Reply, Search, Verdict,
};
use crate::replica_progress::ReplicaProgress;
use crate::shared_content::SharedContent;

/// What a database has for those glued below it.
#[derive(Clone, Debug)]
pub struct OverGlue {
    /// The overlays in front of all of them.
    pub stack: Stack,
    /// The database behind its other overlays.
    pub inner: Arc<dyn Backend>,
}

/// A database and those glued below it, behind the overlays that are in front of all of them.
#[derive(Debug)]
pub(crate) struct GluedTree {
    pub(crate) stack: Stack,
    /// The number of the uppermost one's mount.
    pub(crate) superior: usize,
    pub(crate) parts: Parts,
}

/// The databases themselves: the uppermost one behind its other overlays, and those below.
#[derive(Debug)]
pub(crate) struct Parts {
    schema: Arc<Schema>,
    inner: Arc<dyn Backend>,
    mounts: Mounts,
}

impl GluedTree {
    /// The trees among some databases, and which of them each database is part of.
    pub(crate) fn all(
        schema: &Arc<Schema>,
        mounts: &Mounts,
        over_glue: &[(usize, OverGlue)],
    ) -> (Vec<Self>, Vec<Option<usize>>) {
        let mut trees: Vec<Self> = Vec::new();
        let mut members: Vec<Option<usize>> = vec![None; mounts.all().len()];
        for (number, over) in over_glue {
            let number = *number;
            let mut parts = Mounts::default();
            for (part, member) in mounts.all().iter().zip(&mut members) {
                if mounts.uppermost(part) == Some(number) {
                    parts.push(part.with(Arc::clone(&part.backend)));
                    *member = Some(trees.len());
                }
            }
            let Some(superior) = mounts.all().get(number).filter(|_| !parts.all().is_empty()) else {
                continue;
            };
            parts.push(superior.with(Arc::clone(&over.inner)));
            if let Some(member) = members.get_mut(number) {
                *member = Some(trees.len());
            }
            let parts = Parts { schema: Arc::clone(schema), inner: Arc::clone(&over.inner), mounts: parts };
            trees.push(Self { stack: over.stack.clone(), superior: number, parts });
        }
        (trees, members)
    }
}

impl Parts {
    /// What an overlay has altered to a name of none of them is for the uppermost one to answer.
    fn holder(&self, dn: &NormalDn) -> &dyn Backend {
        self.mounts.backend(dn).unwrap_or(&*self.inner)
    }
}

impl Backend for Parts {
    fn open(&self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        let holder = self.holder(search.base);
        // A provider's content is one, whatever it consists of; and so are changes.
        let is_whole = search.controls.sync.is_some() || search.controls.persistent.is_some();
        let below = match is_whole {
            true => Vec::new(),
            false => self.mounts.glued_below(search.base, search.request.scope),
        };
        match below.is_empty() {
            true => holder.open(context, search),
            false => glue::open(holder, &below, context, search),
        }
    }

    fn search(&self, context: &Context<'_>, search: Search<'_>, out: &mut Vec<u8>) -> First {
        match self.open(context, search) {
            Ok(cursor) => First::slice_of(cursor, context.clock, out),
            Err(end) => First::ended(*end),
        }
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End> {
        self.holder(compare.dn).compare(context, compare, later)
    }

    fn bind(&self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        self.holder(bind.dn).bind(context, bind, later)
    }

    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        self.holder(change.dn).modify_password(context, change, later)
    }

    fn extended(
        &self,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        self.holder(request.dn).extended(context, request, later)
    }

    fn update(&self, context: &Context<'_>, changes: Changes, completion: Completion) -> PendingAnswer {
        let target = match &changes {
            Changes::One(_, target) => target.clone(),
            Changes::Together(requests) => {
                let first = requests.first();
                first.and_then(|first| self.schema.parse_dn(first.operation.target()).ok())
            }
        };
        let holder = target.as_ref().map_or(&*self.inner, |dn| self.holder(dn));
        holder.update(context, changes, completion)
    }

    fn stands_apart(&self) -> Option<LdapResult> {
        self.inner.stands_apart()
    }

    fn policy(&self, dn: &NormalDn) -> Option<Arc<AccessPolicy>> {
        self.holder(dn).policy(dn)
    }

    fn find(
        &self,
        context: &Context<'_>,
        query: &InternalSearch<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<(), Fault> {
        self.holder(query.base).find(context, query, visit)
    }

    fn refers(&self, dn: &NormalDn, changes: bool) -> bool {
        self.mounts.refer(self.holder(dn), dn, changes)
    }

    fn replica_progress(&self, dn: &NormalDn) -> Option<Arc<dyn ReplicaProgress>> {
        self.holder(dn).replica_progress(dn)
    }

    fn shared_content(&self, dn: &NormalDn) -> Option<Arc<dyn SharedContent>> {
        self.holder(dn).shared_content(dn)
    }

    fn announce(&self, _: &mut Announcement) {}
}
