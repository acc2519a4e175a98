//! Entries of another server with values of this one over them (`overlay translucent`, slapo-translucent(5)).
//!
//! The overlay stands in front of a stored database, which holds parts of entries. What other overlays have between the two is passed
//! over by a change, a bind or a password that has waited for the remote server.

mod changes;
mod local;
mod overlaid;
mod search;
mod split;

use std::sync::Arc;

use larix_backend::memory_tree::{MemoryTree, OneByOne};
use larix_backend::{
    Backend as _, Bind, Changes, Compare, Context, Cursor, End, Interceptor, Later, Next, Operations,
    PasswordChange, PasswordChangeOutcome, PendingAnswer, Proof, Reply, Search, Verdict, answer_now,
};
use larix_engine::access::{AccessPolicy, Item, Privilege, Subject};
use larix_engine::controls::RequestControls;
use larix_engine::entry::Entry;
use larix_engine::time::Clock;
use larix_engine::write::{Completion, WriteOperation};
use larix_proto::{
    Control, Controls, DerefAliases, FilterBuf, LdapResult, ResultCode, SearchRequest, Strings, oid,
};
use larix_schema::{AttributeDescription, NormalDn, Schema};

pub use local::{LocalBind, LocalEntries, LocalEntry, LocalPasswordChange, StoredEntries};

use crate::backend::{ProxyBackend, is_undefined};
use crate::identity::Asker;
use crate::request::HOPS_MAX;
use changes::Changing;
use search::{ClientSearch, RemoteSearch, SearchContext};
use split::{Mentioned, part_about};

/// What the overlay does.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// A change that would take an attribute of the remote server away is refused; otherwise it does nothing.
    pub strict: bool,
    /// An add or a move makes no superiors.
    pub no_glue: bool,
    /// Attributes that filters look for here.
    pub local: Vec<AttributeDescription>,
    /// Attributes that filters look for at the remote server.
    pub remote: Vec<AttributeDescription>,
    /// A password that the remote server does not take is compared with the one here.
    pub bind_local: bool,
    /// Passwords are replaced here.
    pub modify_password_local: bool,
}

/// The overlay in front of one database.
#[derive(Debug)]
pub struct Translucent {
    /// None until the server to ask is configured.
    pub remote: Option<ProxyBackend>,
    pub local: Arc<dyn LocalEntries>,
    pub schema: Arc<Schema>,
    /// Of the database.
    pub policy: Arc<AccessPolicy>,
    /// Lets everything through.
    pub open_policy: Arc<AccessPolicy>,
    pub suffixes: Vec<NormalDn>,
    pub settings: Settings,
    pub clock: Arc<dyn Clock>,
}

fn not_available() -> LdapResult {
    LdapResult::with(ResultCode::UNAVAILABLE, "no remote server is configured for this database (uri)")
}

fn refused(result: LdapResult) -> Box<End> {
    Box::new((result, Vec::new()))
}

/// A search that is about what is stored here alone.
fn is_local(controls: &RequestControls) -> bool {
    controls.manage_dsa_it || controls.sync.is_some() || controls.persistent.is_some()
}

/// Controls that hold wherever entries are found: who asks, that no references are answered, and which values are.
const OF_BOTH: [&str; 7] = [
    oid::PROXIED_AUTHORIZATION,
    oid::PROXIED_AUTHORIZATION_V1,
    oid::PROXY_HOPS,
    oid::SESSION_TRACKING,
    oid::DOMAIN_SCOPE,
    oid::SEARCH_OPTIONS,
    oid::MATCHED_VALUES,
];

/// What takes the whole answer in one hand, and what the remote server alone heeds: not possible where parts of the answer are found here.
///
/// # Errors
/// A critical control of that kind (RFC 4511 section 4.1.11).
fn check_whole(controls: &RequestControls, asks_remote: bool) -> Result<(), LdapResult> {
    let paged = controls.paged.as_ref().is_some_and(|paged| paged.critical);
    let sorted = controls.sort.as_ref().is_some_and(|sort| sort.critical);
    let viewed = controls.vlv.as_ref().is_some_and(|view| view.critical);
    if paged || sorted || viewed {
        let text = "the filter is about attributes that are looked for here: such a search has no pages and no order";
        return Err(LdapResult::with(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, text));
    }
    let is_heeded = |control: &Control<'_>| {
        OF_BOTH.contains(&control.oid) || (asks_remote && control.oid == oid::ASSERTION)
    };
    let sent = Controls::parse(&controls.sent).unwrap_or_default();
    if sent.iter().all(|control| !control.critical || is_heeded(&control)) {
        return Ok(());
    }
    let text = "the filter is about attributes that are looked for here: such a search does not heed this critical control";
    Err(LdapResult::with(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, text))
}

impl Translucent {
    fn remote(&self) -> Result<&ProxyBackend, LdapResult> {
        self.remote.as_ref().ok_or_else(not_available)
    }

    fn search_context(&self, remote: &ProxyBackend) -> SearchContext {
        SearchContext {
            proxy: Arc::clone(&remote.proxy),
            stored: self.local.reader(),
            schema: Arc::clone(&self.schema),
            policy: Arc::clone(&self.policy),
            open_policy: Arc::clone(&self.open_policy),
        }
    }

    fn changing(&self) -> Changing {
        Changing {
            local: Arc::clone(&self.local),
            schema: Arc::clone(&self.schema),
            suffixes: self.suffixes.clone(),
            settings: self.settings.clone(),
            clock: Arc::clone(&self.clock),
        }
    }

    fn asker(&self, context: &Context<'_>) -> Asker {
        Asker::by(&self.policy, context)
    }

    /// The parts of a filter that the remote server and the local database are asked; none: that side is not asked.
    fn parts(&self, filter: larix_proto::Filter<'_>) -> (Option<FilterBuf>, Option<FilterBuf>) {
        let Settings { local, remote, .. } = &self.settings;
        let local_part = part_about(&self.schema, filter, local).filter(|_| !local.is_empty());
        let remote_part = part_about(&self.schema, filter, remote).filter(|_| !remote.is_empty());
        match local_part {
            Some(local_part) => (remote_part, Some(local_part)),
            // As in OpenLDAP: what is about nothing here goes to the remote server as it is.
            None => (Some(filter.to_owned()), None),
        }
    }

    /// The names of the entries here that a filter finds, whatever access rules say of the parts that are stored: they are judged whole.
    fn candidates(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        search: &Search<'_>,
        filter: &FilterBuf,
    ) -> Result<Box<dyn Cursor>, Box<End>> {
        let root = self.local.root();
        // `1.1`: no attributes (RFC 4511 section 4.5.1.8).
        let no_attributes = Strings::check(b"\x04\x031.1", "attributes").unwrap_or_default();
        let context = Context { subject: &root, ..*context };
        let request = SearchRequest {
            deref: DerefAliases::Never,
            size_limit: 0,
            time_limit: 0,
            types_only: false,
            filter: filter.as_filter(),
            attributes: no_attributes,
            ..search.request
        };
        // Glue and referral objects are entries like any other here.
        let controls = RequestControls::default().with(|values| values.manage_dsa_it = true);
        next.open(&context, Search { request, base: search.base, controls, message: search.message })
    }

    /// Whether the requester could store a password for this entry: an entry is not begun for others.
    fn may_store_password(&self, subject: &Subject, dn: &NormalDn, shown: &str) -> bool {
        let Ok(password) = self.schema.describe("userPassword") else { return false };
        let tree = MemoryTree::empty(&self.schema, &self.policy, subject);
        let item = Item::Attribute { description: &password, value: None };
        tree.allows(dn, &Entry::new(shown), item, Privilege::Write)
    }

    /// The root's own password is here; nobody else is judged by what is stored here before the remote server was asked.
    fn is_root_here(&self, next: Next<'_>, context: &Context<'_>, dn: &NormalDn) -> bool {
        self.policy.is_root(&Subject::default().bound_as(dn.clone(), dn.as_str()))
            && !next.secrets(context, dn).is_empty()
    }
}

impl Interceptor for Translucent {
    fn requests(&self) -> Operations {
        let reads = Operations::SEARCH.and(Operations::COMPARE).and(Operations::BIND);
        reads.and(Operations::UPDATE).and(Operations::PASSWORD)
    }

    fn open(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        search: Search<'_>,
    ) -> Result<Box<dyn Cursor>, Box<End>> {
        if is_local(&search.controls) {
            return next.open(context, search);
        }
        let remote = self.remote().map_err(refused)?;
        let limits = self.local.admit(context.subject, &search).map_err(refused)?;
        if remote.proxy.settings.no_undefined_filter
            && is_undefined(&self.schema.bind_filter(search.request.filter))
        {
            return Err(refused(LdapResult::success()));
        }
        let (remote_part, local_part) = self.parts(search.request.filter);
        if local_part.is_some() {
            check_whole(&search.controls, remote_part.is_some()).map_err(refused)?;
        }
        let request = &search.request;
        let names: Vec<String> = request.attributes.iter().map(str::to_owned).collect();
        let mentioned = Mentioned::of(&self.schema, request.filter);
        let limit = self.local.request_limits();
        let one_by_one = OneByOne::new(&self.schema, &limit, request, &search.controls, search.message);
        let one_by_one = one_by_one.map_err(refused)?;
        let remote_names = ClientSearch::remote_names(&self.schema, &names, &one_by_one, &mentioned);
        let candidates = local_part
            .as_ref()
            .map(|local_part| self.candidates(next, context, &search, local_part))
            .transpose()?;
        let (search_context, asker) = (self.search_context(remote), self.asker(context));
        // Below a database that this one is glued to, the base is not what the request says.
        let is_own = self.schema.parse_dn(request.base).is_ok_and(|dn| dn == *search.base);
        // Values are chosen here: the filter may have to be judged on all of them.
        let remote_controls = search.controls.with(|values| values.matched_values = None);
        let remote_controls = remote_controls.without(oid::MATCHED_VALUES);
        let remote_cursor = remote_part.as_ref().map(|remote_part| {
            let search = RemoteSearch {
                base: if is_own { request.base } else { search.base.as_str() },
                normal: search.base,
                scope: request.scope,
                deref: request.deref,
                filter: remote_part.as_filter(),
                names: &remote_names,
                time_limit: limits.time,
                controls: &remote_controls,
                message: search.message,
            };
            search_context.ask(&asker, &search)
        });
        let remote_cursor = remote_cursor.transpose().map_err(refused)?;
        let client_search = ClientSearch {
            search: one_by_one,
            mentioned,
            names,
            remote_names,
            types_only: request.types_only,
            message: search.message,
            asker,
            hops: search.controls.hops,
            base: remote_part.is_none().then(|| search.base.clone()),
            size_limit: limits.size,
            time_limit: limits.time,
        };
        Ok(Box::new(search::Translucent::new(search_context, client_search, remote_cursor, candidates)))
    }

    /// An attribute that is stored here is compared here, any other at the remote server.
    fn compare(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        compare: &Compare<'_>,
        later: Later<'_, End>,
    ) -> Reply<End> {
        let is_here = || -> Result<bool, LdapResult> {
            let Ok(asserted) = self.schema.describe(compare.request.attribute) else { return Ok(false) };
            let Some(stored) = self.local.entry(compare.dn)? else { return Ok(false) };
            let mut own = overlaid::laid_over(&self.schema, &stored.entry);
            Ok(own.any(|own| own.description.is_subdescription_of(&self.schema, &asserted)))
        };
        if compare.controls.manage_dsa_it {
            return next.compare(context, compare, later);
        }
        match is_here().and_then(|is_here| Ok((is_here, self.remote()?))) {
            Ok((true, _)) => next.compare(context, compare, later),
            Ok((false, remote)) => remote.compare(context, compare, later),
            Err(result) => Reply::Now((result, Vec::new())),
        }
    }

    fn bind(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        bind: &Bind<'_>,
        later: Later<'_, Verdict>,
    ) -> Reply<Verdict> {
        if self.is_root_here(next, context, bind.dn) {
            return next.bind(context, bind, later);
        }
        let remote = match self.remote() {
            Ok(remote) => remote,
            Err(result) => return Reply::Now(result.into()),
        };
        let password = match bind.proof {
            Proof::Password(password) if self.settings.bind_local => password,
            _ => return remote.bind(context, bind, later),
        };
        let reply = remote.bind(context, bind, &mut || {
            let (local, done) = (Arc::clone(&self.local), later());
            let again = LocalBind {
                dn: bind.dn.clone(),
                password: password.to_vec().into(),
                policy_control: bind.policy_control,
                by_mechanism: bind.by_mechanism,
                controls: bind.controls.clone(),
                subject: Arc::clone(context.subject),
                began: context.began,
            };
            Box::new(move |verdict: Verdict| match verdict.result.is_success() {
                true => done(verdict),
                false => local.bind(again, done),
            })
        });
        match reply {
            Reply::Now(verdict) if !verdict.result.is_success() => next.bind(context, bind, later),
            reply => reply,
        }
    }

    /// Changes are the root's, and of what is stored here.
    fn update(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        changes: Changes,
        done: Completion,
    ) -> PendingAnswer {
        let refuse = |code, text: &str, done: Completion| answer_now(done, LdapResult::with(code, text));
        let (request, dn) = match changes {
            Changes::One(request, Some(dn)) => (request, dn),
            one @ Changes::One(..) => return next.update(context, one, done),
            Changes::Together(_) => {
                let text = "a translucent database takes no transactions";
                return refuse(ResultCode::UNWILLING_TO_PERFORM, text, done);
            }
        };
        if request.controls.import.is_some() {
            return next.update(context, Changes::One(request, Some(dn)), done);
        }
        if !self.policy.is_root(&request.subject) {
            let text = "user modification of overlay database not permitted: only the rootdn may change what is stored here";
            return refuse(ResultCode::INSUFFICIENT_ACCESS_RIGHTS, text, done);
        }
        match &request.operation {
            WriteOperation::Modify { .. } => match self.remote() {
                Ok(remote) => {
                    let asker = Asker { is_root: true, ..Asker::of(context) };
                    self.changing().modify(&self.search_context(remote), &asker, (request, dn), done)
                }
                Err(result) => answer_now(done, result),
            },
            WriteOperation::Add { entry, .. } if !self.settings.no_glue => {
                let place = (entry.clone(), dn);
                self.changing().with_superiors(request, place, false, done);
                PendingAnswer::default()
            }
            WriteOperation::ModifyDn { new_superior: Some(superior), .. } if !self.settings.no_glue => {
                match self.schema.parse_dn(superior) {
                    Ok(normal) => {
                        let place = (superior.clone(), normal);
                        self.changing().with_superiors(request, place, true, done);
                        PendingAnswer::default()
                    }
                    Err(_) => next.update(context, Changes::One(request, Some(dn)), done),
                }
            }
            _ => next.update(context, Changes::One(request, Some(dn)), done),
        }
    }

    fn modify_password(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        let refuse = |code, text: &str| Reply::Now(LdapResult::with(code, text).into());
        if !self.settings.modify_password_local {
            let text = "attempt to modify password in local database: translucent_pwmod_local is off";
            return refuse(ResultCode::CONSTRAINT_VIOLATION, text);
        }
        let remote = match self.remote() {
            Ok(remote) => remote,
            Err(result) => return Reply::Now(result.into()),
        };
        match self.local.entry(change.dn) {
            Ok(None) => {}
            Ok(Some(_)) => return next.modify_password(context, change, later),
            Err(result) => return Reply::Now(result.into()),
        }
        if !self.may_store_password(context.subject, change.dn, &change.target) {
            return Reply::Now(LdapResult::new(ResultCode::INSUFFICIENT_ACCESS_RIGHTS).into());
        }
        if change.old.is_some() {
            let text = "unwilling to verify old password: none is stored here";
            return refuse(ResultCode::UNWILLING_TO_PERFORM, text);
        }
        if change.hops >= HOPS_MAX {
            return Reply::Now(crate::request::in_circles().into());
        }
        let asker = Asker { is_root: true, ..Asker::of(context) };
        let first = LocalPasswordChange {
            dn: change.dn.clone(),
            target: change.target,
            new: change.new,
            policy_control: change.policy_control,
            subject: Arc::clone(context.subject),
            began: context.began,
        };
        let (search_context, changing) = (self.search_context(remote), self.changing());
        Reply::Later(changing.first_password(&search_context, (&asker, change.hops), first, later()))
    }
}
