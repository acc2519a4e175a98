//! Answers of a remote server, kept for a while (`overlay pcache`, slapo-pcache(5)).
//!
//! The cache is in memory and bounded. It stands right in front of the remote server, behind the limits and the access rules of its
//! database, so an answer from the cache is judged as one from the remote server is. An answer is kept for those alone who are the same
//! to the remote server, unless the configuration says that it is for all.

mod binds;
mod cache_file;
mod containment;
mod cursors;
mod flights;
mod passwords;
mod private_db;
mod projection;
mod query_delete;
mod query_urls;
mod refreshing;
mod store;
mod template;

#[cfg(test)]
mod tests;

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use larix_backend::memory_tree::OneByOne;
use larix_backend::{
    Announcement, Backend, Bind, Changes, Compare, Context, Cursor, End, ExtendedAnswer, ExtendedOperation,
    Later, PasswordChange, PasswordChangeOutcome, PendingAnswer, Reply, Search, Verdict,
};
use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::budget::RequestLimits;
use larix_engine::controls::RequestControls;
use larix_engine::time::{Clock, Monotonic};
use larix_engine::write::{Completion, WriteOperation};
use larix_proto::{Controls, Filter, LdapResult, oid};
use larix_schema::NormalDn;

pub use cache_file::NotRestored;
pub use store::Cache;
pub use template::{AttributeSet, BindTemplate, Settings, Shape, Template};

use crate::backend::{ProxyBackend, is_undefined};
use crate::identity::Asker;
use crate::search::{Judge, OutgoingSearch, TargetCursor};
use crate::settings::Kind;
use containment::Region;
use cursors::{Answering, Keeping, Reading};
use flights::{Awaiting, Boarding, Leading};
use projection::Projection;
use refreshing::{AskAgain, Identity};
use store::{CacheLookup, Query};
use template::{RequestedAttributes, write_template};

/// Bytes of a filter that is looked for in the cache.
const FILTER_BYTES_MAX: usize = 1024;
/// How long the remote server may say nothing about the entry of a bind, or about an answer that is read again.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the overlay says what it does with requests.
pub trait Tell: Debug + Send + Sync {
    /// Whether anybody wants to know.
    fn is_heard(&self) -> bool;

    fn tell(&self, text: fmt::Arguments<'_>);
}

/// A database on another server, and the cache in front of it.
#[derive(Clone, Debug)]
pub struct CachingBackend {
    /// Its rules for entries let everything through: they are judged in front of the cache.
    pub inner: ProxyBackend,
    pub cache: Arc<Cache>,
    pub settings: Arc<Settings>,
    pub request_limits: RequestLimits,
    pub clock: Arc<dyn Clock>,
    pub log: Arc<dyn Tell>,
}

impl CachingBackend {
    fn now(&self) -> Monotonic {
        self.clock.monotonic()
    }

    /// The search as the cache knows it; none: it is no business of the cache.
    fn query(&self, search: &Search<'_>, asker: &Asker) -> Option<Query> {
        let request = &search.request;
        if !is_plain(&search.controls) || request.filter.as_ber().len() > FILTER_BYTES_MAX {
            return None;
        }
        let schema = &*self.inner.schema;
        let filter = schema.bind_filter(request.filter);
        if is_undefined(&filter) {
            return None;
        }
        let requested = RequestedAttributes::of(schema, request.attributes.iter())?;
        let templates = self.settings.templates.iter();
        let fits = |template: &Template| {
            template.shape.fits(&filter)
                && self.settings.sets.get(template.set).is_some_and(|set| set.covers(schema, &requested))
        };
        let template = templates.into_iter().position(fits)?;
        let identity = self.identity(asker, search.controls.hops)?;
        Some(Query {
            asker: (!self.settings.shared).then_some(identity),
            template,
            region: Region { base: search.base.clone(), scope: request.scope, deref: request.deref },
            filter,
            sent: Arc::new(request.filter.to_owned()),
            unknown: requested.unknown,
            again: None,
        })
    }

    /// Who the requester is to the remote server; none: nobody.
    fn identity(&self, asker: &Asker, hops: u8) -> Option<Identity> {
        let request_context = self.inner.proxy.request_context(asker, hops, Kind::Search).ok()?;
        Some((request_context.chosen.owner, request_context.chosen.acting.map(|(name, _)| name)))
    }

    /// What it takes to ask for the same once more in the background; none: its template has no time to refresh.
    fn again(&self, search: &Search<'_>, asker: &Asker, template: usize) -> Option<Arc<AskAgain>> {
        self.settings.templates.get(template)?.refresh?;
        let seen_by = (&self.inner.entry_policy, &Arc::default());
        Some(Arc::new(AskAgain {
            asker: asker.clone(),
            identity: self.identity(asker, search.controls.hops)?,
            projection: self.projection_for(seen_by, search).ok()?,
            base: self.base(search),
            controls: search.controls.with(|values| values.paged = None),
        }))
    }

    /// The base as the remote server is asked for it.
    fn base(&self, search: &Search<'_>) -> String {
        // Below a database that this one is glued to, the base is not what the request says.
        let is_own = self.inner.schema.parse_dn(search.request.base).is_ok_and(|dn| dn == *search.base);
        if is_own { search.request.base.to_owned() } else { search.base.as_str().to_owned() }
    }

    /// What the remote server is asked for: the template's attributes, and those that the filter is about.
    fn names(&self, query: &Query) -> Vec<String> {
        let Some(template) = self.settings.templates.get(query.template) else { return Vec::new() };
        let set = self.settings.sets.get(template.set);
        let mut names: Vec<String> = set.map(|set| set.names.clone()).unwrap_or_default();
        let mut mentioned = Vec::new();
        template.shape.mentioned(&mut mentioned);
        let mentioned = mentioned.into_iter().map(|description| description.to_text(&self.inner.schema));
        // As in OpenLDAP: to know entries by.
        for name in mentioned.chain(["objectClass".to_owned()]).chain(query.unknown.iter().cloned()) {
            if !names.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
                names.push(name);
            }
        }
        names
    }

    /// What the requester sees of an answer.
    fn projection(&self, context: &Context<'_>, search: &Search<'_>) -> Result<Arc<Projection>, LdapResult> {
        self.projection_for((&self.inner.policy, context.subject), search)
    }

    fn projection_for(
        &self,
        (policy, subject): (&Arc<AccessPolicy>, &Arc<Subject>),
        search: &Search<'_>,
    ) -> Result<Arc<Projection>, LdapResult> {
        let request = &search.request;
        let none = RequestControls::default();
        let limits = &self.request_limits;
        let schema = &self.inner.schema;
        Ok(Arc::new(Projection {
            schema: Arc::clone(schema),
            policy: Arc::clone(policy),
            open_policy: Arc::clone(&self.inner.entry_policy),
            subject: Arc::clone(subject),
            search: OneByOne::new(schema, limits, request, &none, search.message)?,
            names: request.attributes.iter().map(str::to_owned).collect(),
            types_only: request.types_only,
            message: search.message,
        }))
    }

    /// Asks the remote server, and keeps what it answers.
    fn read(
        &self,
        remote_read: &RemoteRead,
        changes: u64,
        before: Option<Arc<[store::CachedEntry]>>,
        leading: Option<Leading>,
    ) -> Result<Box<dyn Cursor>, LdapResult> {
        let names = self.names(&remote_read.query);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let enough = self.settings.answer_entries_max;
        let region = &remote_read.query.region;
        let outgoing = OutgoingSearch {
            base: &remote_read.base,
            normal: &region.base,
            scope: region.scope,
            deref: region.deref,
            // More than the client wants: to others it may be the whole.
            size_limit: remote_read.size_limit.map_or(0, |limit| limit.max(enough)),
            time_limit: remote_read.time_limit,
            types_only: false,
            filter: remote_read.query.sent.as_filter(),
            attributes: &names,
            controls: &remote_read.controls,
            message: remote_read.projection.message,
        };
        let rules = (&self.inner.schema, &self.inner.entry_policy);
        let judge = Judge::new(&self.inner.proxy, rules, &remote_read.asker, &outgoing);
        let mut inner = TargetCursor::new(&self.inner.proxy, &remote_read.asker, &outgoing, judge)?;
        remote_read.patience.into_iter().for_each(|time| inner.be_patient_at_most(time));
        let keeping = Keeping {
            cache: Arc::clone(&self.cache),
            settings: Arc::clone(&self.settings),
            query: remote_read.query.clone(),
            changes,
            clock: Arc::clone(&self.clock),
            leading,
        };
        let projection = Arc::clone(&remote_read.projection);
        Ok(Box::new(Reading::new(Box::new(inner), projection, keeping, before, remote_read.size_limit)))
    }

    /// A search whose answer another one is reading: it is looked for when that has ended.
    fn go_on(&self, remote_read: &RemoteRead) -> Result<Box<dyn Cursor>, LdapResult> {
        let changes = self.cache.changes();
        let found = self.cache.find(&self.inner.schema, &remote_read.query, &self.settings, self.now());
        let found = match found {
            CacheLookup::Entries { entries, is_same, answered } => Some((entries, is_same, answered)),
            CacheLookup::Refresh { entries, answered } => Some((entries, true, answered)),
            CacheLookup::TooMany | CacheLookup::Nothing => None,
        };
        if let Some((entries, is_same, answered)) = found {
            let region = remote_read.query.region.clone();
            let answering =
                Answering::new(entries, region, Arc::clone(&remote_read.projection), remote_read.size_limit);
            if is_same || answering.finds_any() {
                self.tell(format_args!("QUERY ANSWERABLE (answered {answered} times)"));
                return Ok(Box::new(answering));
            }
        }
        // It has waited once, and does not wait again.
        self.tell(format_args!("QUERY NOT ANSWERABLE"));
        self.tell(format_args!("QUERY CACHEABLE"));
        self.read(remote_read, changes, None, None)
    }

    /// Passes on a search that the cache has no answer to and keeps none of; the log says why.
    fn pass_on(
        &self,
        context: &Context<'_>,
        search: Search<'_>,
        why: &str,
    ) -> Result<Box<dyn Cursor>, Box<End>> {
        self.tell(format_args!("QUERY NOT ANSWERABLE"));
        self.tell(format_args!("{why}"));
        self.inner.open(context, search)
    }

    fn tell(&self, text: fmt::Arguments<'_>) {
        if self.log.is_heard() {
            self.log.tell(text);
        }
    }

    fn tell_of(&self, filter: Filter<'_>) {
        if self.log.is_heard() {
            let mut text = String::new();
            write_template(filter, &mut text);
            self.log.tell(format_args!("query template of incoming query = {text}"));
        }
    }

    /// What forgets answers that a change makes wrong, when it has ended or its end is not known.
    fn forgetting(&self, names: Vec<NormalDn>) -> impl FnOnce() + Send + 'static {
        let cache = Arc::clone(&self.cache);
        move || names.iter().for_each(|dn| cache.forget(dn))
    }

    /// The names whose entries a change touches.
    fn touched(&self, operation: &WriteOperation, dn: Option<&NormalDn>) -> Vec<NormalDn> {
        let schema = &self.inner.schema;
        // What has no name that can be read may be anywhere.
        let own = dn.cloned().unwrap_or_else(NormalDn::root);
        let WriteOperation::ModifyDn { new_superior, .. } = operation else { return vec![own] };
        let above = match new_superior {
            Some(superior) => schema.parse_dn(superior).ok(),
            None => own.parent(),
        };
        vec![own, above.unwrap_or_else(NormalDn::root)]
    }
}

/// What it takes to ask the remote server for the answer to a search.
struct RemoteRead {
    asker: Asker,
    query: Query,
    projection: Arc<Projection>,
    base: String,
    controls: RequestControls,
    size_limit: Option<u32>,
    /// Seconds; 0: no limit.
    time_limit: u32,
    /// How long the remote server may say nothing, where neither its settings nor a client say so.
    patience: Option<Duration>,
}

impl RemoteRead {
    /// When its time is over.
    fn deadline(&self) -> Option<Monotonic> {
        self.asker.began.with_limit(self.time_limit)
    }
}

/// Whether a search has no control that has a say in its answer, but for one for pages that may be passed over.
fn is_plain(controls: &RequestControls) -> bool {
    let Ok(sent) = Controls::parse(&controls.sent) else { return false };
    let mut pages = false;
    let is_known = sent.iter().all(|control| {
        pages |= control.oid == oid::PAGED_RESULTS;
        matches!(
            control.oid,
            oid::PROXIED_AUTHORIZATION | oid::PROXY_HOPS | oid::SESSION_TRACKING | oid::PAGED_RESULTS
        )
    });
    let may_pass =
        controls.paged.as_ref().is_none_or(|page| pages && !page.critical && page.cookie.is_empty());
    is_known && may_pass
}

impl Backend for CachingBackend {
    fn open(&self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        let refused = |result| Box::new((result, Vec::new()));
        if private_db::is_sent(&search.controls) {
            return self.search_kept(context, &search).map_err(refused);
        }
        let now = self.now();
        self.cache.check(&self.settings, now);
        self.tell_of(search.request.filter);
        let asker = self.inner.asker(context);
        let Some(query) = self.query(&search, &asker) else {
            return self.pass_on(context, search, "QUERY NOT CACHEABLE");
        };
        // Before it is looked up: what changes from here on makes the answer one that is not kept.
        let changes = self.cache.changes();
        let found = self.cache.find(&self.inner.schema, &query, &self.settings, now);
        self.refresh();
        let size_limit = (search.request.size_limit > 0).then_some(search.request.size_limit);
        let projection = self.projection(context, &search).map_err(refused)?;
        let mut before = None;
        match found {
            CacheLookup::Entries { entries, is_same, answered } => {
                let answering =
                    Answering::new(entries, query.region.clone(), Arc::clone(&projection), size_limit);
                if is_same || answering.finds_any() {
                    self.tell(format_args!("QUERY ANSWERABLE (answered {answered} times)"));
                    return Ok(Box::new(answering));
                }
            }
            CacheLookup::Refresh { entries, .. } => before = Some(entries),
            CacheLookup::TooMany => {
                let text = "QUERY NOT CACHEABLE: it is within one that met a size limit";
                return self.pass_on(context, search, text);
            }
            CacheLookup::Nothing => {}
        }
        if search.request.types_only {
            return self.pass_on(context, search, "QUERY NOT CACHEABLE");
        }
        let again = self.again(&search, &asker, query.template);
        let remote_read = RemoteRead {
            base: self.base(&search),
            controls: search.controls.with(|values| values.paged = None),
            time_limit: search.request.time_limit,
            patience: None,
            asker,
            query: Query { again, ..query },
            projection,
            size_limit,
        };
        let leading = match self.cache.board(&remote_read.query) {
            Boarding::Leads(leading) => Some(leading),
            Boarding::Waits(flight) if before.is_none() => {
                self.tell(format_args!("QUERY WAITS for the answer to the same"));
                let limits = (remote_read.deadline(), size_limit);
                let itself = self.clone();
                return Ok(Box::new(Awaiting::new(
                    flight,
                    limits,
                    Box::new(move || itself.go_on(&remote_read)),
                )));
            }
            Boarding::Waits(_) => None,
        };
        self.tell(format_args!("QUERY NOT ANSWERABLE"));
        self.tell(format_args!("QUERY CACHEABLE"));
        self.read(&remote_read, changes, before, leading).map_err(refused)
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End> {
        self.inner.compare(context, compare, later)
    }

    fn bind(&self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        self.bind_or_cached(context, bind, later)
    }

    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        self.change_password(context, change, later)
    }

    fn update(&self, context: &Context<'_>, changes: Changes, done: Completion) -> PendingAnswer {
        let mut names = Vec::new();
        match &changes {
            Changes::One(request, dn) => names = self.touched(&request.operation, dn.as_ref()),
            Changes::Together(_) => names.push(NormalDn::root()),
        }
        let (forget, lost) = (self.forgetting(names.clone()), self.forgetting(names));
        let pending = self.inner.update(
            context,
            changes,
            Box::new(move |outcome| {
                // Also where it failed: the remote server may have carried it out.
                forget();
                done(outcome);
            }),
        );
        giving_up(pending, lost)
    }

    fn extended(
        &self,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        match request.oid == query_delete::OID {
            true => Reply::Now(self.query_delete(context, request).into()),
            false => self.inner.extended(context, request, later),
        }
    }

    fn policy(&self, dn: &NormalDn) -> Option<Arc<AccessPolicy>> {
        self.inner.policy(dn)
    }

    fn heeds(&self, control: &str) -> bool {
        control == private_db::CONTROL.oid || self.inner.heeds(control)
    }

    fn announce(&self, announced: &mut Announcement) {
        self.inner.announce(announced);
        if !announced.controls.contains(&&private_db::CONTROL) {
            announced.controls.push(&private_db::CONTROL);
        }
        if announced.operations.iter().all(|known| known.oid != query_delete::OID) {
            announced.operations.push(&query_delete::OPERATION);
        }
    }
}

/// The same, with something more to do when it is given up.
fn giving_up(mut pending: PendingAnswer, more: impl FnOnce() + Send + 'static) -> PendingAnswer {
    if let Some(give_up) = pending.give_up.take() {
        pending.give_up = Some(Box::new(move || {
            give_up();
            more();
        }));
    }
    pending
}
