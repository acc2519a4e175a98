//! `database kv`: a database in an engine that several servers share. An event loop reads what the node's cache has; whatever may
//! wait for the engine runs on the threads of the [node](crate::cluster); changes go to the node's writer where this node leads, and are referred elsewhere.

mod bind;
mod compare;
mod digests;
mod held;
mod judge;
mod late;
mod mailbox;
mod password_modify;
mod search;
mod shared_content;
mod sync;
pub(super) use judge::counting;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larix_configuration::Database;
use larix_configuration::values::LimitRule;
use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::controls::RequestControls;
use larix_engine::search::referral;
use larix_engine::write::{Completion, Origin, WriteRequest};
use larix_engine::{ChosenDatabase, DnLocation, Fault, ServedDatabase};
use larix_kv::{ReadFault, take_read_fault};
use larix_proto::{CompareRequest, LdapResult, ResultCode};
use larix_schema::NormalDn;
use zeroize::Zeroizing;

use super::engine_database::{self, EngineDatabase};
use super::{Common, identities};
use crate::access_log::Gate;
use crate::cluster::{Cluster, DAMAGED, Node, Permit, Role, SharedStore, Unconfirmed};
use crate::statistics::latency::in_database;
use crate::waiting_thread::{may_wait, note_missed_lookup};
use larix_backend::{
    Announcement, Backend, Bind, Changes, Compare, Context, Cursor, End, ExtendedAnswer, ExtendedOperation,
    First, Identities, Later, PasswordChange, PasswordChangeOutcome, PendingAnswer, Reply, Search, Secret,
    SharedContent, Verdict, answer_now,
};

/// How often a read is begun anew because what it had read was changed meanwhile.
const AGAIN_MAX: usize = 8;
/// A change that has come through so many servers is not sent on. Balancers and proxies in front of the nodes count, too, and a node
/// that a change comes to by way of them must still send it on.
const SERVERS_MAX: u8 = 6;

const _: () = assert!(SERVERS_MAX < larix_proxy::HOPS_MAX);

/// A database in a shared engine.
#[derive(Debug)]
struct ClusteredBackend {
    cluster: Cluster,
    common: Arc<Common>,
    limits: Vec<LimitRule>,
}

/// The backend of a `database kv` of this generation.
pub(crate) fn clustered(common: &Arc<Common>, database: &Database) -> Option<Arc<dyn Backend>> {
    let suffix = database.suffixes.first().map(|suffix| suffix.normal.as_str()).unwrap_or_default();
    let cluster = common.clusters.of_suffix(suffix)?.clone();
    let (common, limits) = (Arc::clone(common), database.shared.limits.clone());
    Some(Arc::new(ClusteredBackend { cluster, common, limits }))
}

/// What the threads need of a database that is open.
#[derive(Clone, Debug)]
struct SharedDatabase {
    node: Arc<Node>,
    database: EngineDatabase<SharedStore>,
    common: Arc<Common>,
}

impl SharedDatabase {
    /// # Errors
    /// What is answered while the database is not open.
    fn of(cluster: &Cluster, common: &Arc<Common>) -> Result<Self, LdapResult> {
        let Cluster { node, directory } = cluster;
        let served = node.served().ok_or_else(not_opened)?;
        let directory = directory.of(served).ok_or_else(not_opened)?;
        let database = EngineDatabase { directory: Arc::clone(directory), served: Arc::clone(served) };
        Ok(Self { node: Arc::clone(node), database, common: Arc::clone(common) })
    }

    fn chosen(&self) -> ChosenDatabase<'_, SharedStore> {
        self.database.chosen()
    }

    fn served(&self) -> &Arc<ServedDatabase<SharedStore>> {
        &self.database.served
    }

    /// Reads, and reads again where what was read has changed meanwhile. What could not be read is never taken for what is not there.
    ///
    /// # Errors
    /// What is answered in its place.
    fn read<T>(&self, mut read: impl FnMut() -> Result<T, LdapResult>) -> Result<T, LdapResult> {
        for _ in 0..AGAIN_MAX {
            take_read_fault();
            let result = read();
            match take_read_fault() {
                None => return result,
                Some(ReadFault::Stale) => {}
                Some(fault) => return Err(self.trouble(fault)),
            }
        }
        Err(self.trouble(ReadFault::Stale))
    }

    fn store(&self) -> &SharedStore {
        self.served().database().store()
    }

    /// Reads out of the cache. None where that lacks anything, or where the answer is an error: a thread says which.
    fn at_hand<T>(&self, read: impl FnOnce() -> Result<T, LdapResult>) -> Option<T> {
        self.store().at_hand(read)?.ok()
    }

    /// The same where the engine has to [confirm](Node::confirm) what was read: with the commit that it is as of.
    fn as_known<T>(&self, read: impl FnOnce() -> Result<T, LdapResult>) -> Option<(u64, T)> {
        let (as_of, read) = self.store().as_known(read)?;
        Some((as_of, read.ok()?))
    }

    /// Compares, as far as the entry alone decides.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn compared(
        &self,
        subject: &Subject,
        (dn, request): (&NormalDn, &CompareRequest<'_>),
        controls: &RequestControls,
    ) -> Result<LdapResult, LdapResult> {
        let database = self.served().database();
        let whose = (subject, controls);
        let compared =
            engine_database::compare(database, whose, &self.common.default_referrals, (dn, request));
        compared.map(|(result, _)| result).map_err(|_| LdapResult::internal_error())
    }

    fn failure(&self, fault: &Fault) -> LdapResult {
        engine_database::failure(&self.common.services, fault)
    }

    /// What is answered where what was read is not confirmed.
    fn unconfirmed(&self, why: Unconfirmed) -> LdapResult {
        match why {
            Unconfirmed::Fault(fault) => self.trouble(fault),
            Unconfirmed::Late => too_late(),
            Unconfirmed::TooMany => too_many(),
        }
    }

    /// What is answered where a read came to nothing.
    fn trouble(&self, fault: ReadFault) -> LdapResult {
        match fault {
            ReadFault::Stale | ReadFault::NotAtHand => {
                LdapResult::with(ResultCode::BUSY, "the entries changed while they were read: try again")
            }
            ReadFault::Unavailable => out_of_reach(),
            ReadFault::Broken => {
                let why = self.store().take_trouble();
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                let suffix = self.node.suffix();
                let log = &self.common.services.log;
                log.warning(format_args!("\"{suffix}\": what the engine holds cannot be read{why}"));
                LdapResult::with(ResultCode::OTHER, DAMAGED)
            }
        }
    }
}

fn out_of_reach() -> LdapResult {
    LdapResult::with(ResultCode::UNAVAILABLE, "the engine of this database cannot be reached: try again")
}

fn not_opened() -> LdapResult {
    LdapResult::with(
        ResultCode::UNAVAILABLE,
        "the engine of this database has not let this server in since it started (its log says why): try again",
    )
}

fn too_many() -> LdapResult {
    LdapResult::with(ResultCode::BUSY, "too many operations wait for the engine of this database: try again")
}

fn too_late() -> LdapResult {
    LdapResult::with(
        ResultCode::BUSY,
        "the operation waited too long for the engine of this database: try again",
    )
}

/// Whether somebody still waits for an operation.
#[derive(Clone, Debug, Default)]
struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// What gives it up.
    fn pending(&self) -> PendingAnswer {
        let given_up = Arc::clone(&self.0);
        PendingAnswer {
            deadline: None,
            give_up: Some(Box::new(move || given_up.store(true, Ordering::Release))),
        }
    }

    fn is_given_up(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl ClusteredBackend {
    fn node(&self) -> &Arc<Node> {
        &self.cluster.node
    }

    /// # Errors
    /// What is answered while the database is not open.
    fn handle(&self) -> Result<SharedDatabase, LdapResult> {
        let handle = SharedDatabase::of(&self.cluster, &self.common)?;
        note(handle.served());
        Ok(handle)
    }

    /// Looks something up out of the cache, or on this thread if it may wait. What cannot be looked up is noted: it must not pass for
    /// what is not there.
    fn look_up<T>(&self, mut read: impl FnMut(&SharedDatabase) -> Result<T, LdapResult>) -> Option<T> {
        let found = self.handle().and_then(|handle| match handle.at_hand(|| read(&handle)) {
            Some(found) => Ok(found),
            None if may_wait() && self.node().role() != Role::CutOff => handle.read(|| read(&handle)),
            None => Err(out_of_reach()),
        });
        if found.is_err() {
            note_missed_lookup();
        }
        found.ok()
    }

    /// What a search of an access log waits for.
    fn gate(&self) -> Option<Gate<Arc<Node>>> {
        let services = &self.common.services;
        services.access_logs.gate_of_shared(self.node(), &services.clock)
    }

    fn permit(&self) -> Result<Permit<'_>, LdapResult> {
        self.node().pool.permit().ok_or_else(too_many)
    }

    /// # Errors
    /// Where changes are to be sent, or why nobody takes them. `hops`: servers that the request has come through.
    fn leads(&self, target: &str, hops: u8) -> Result<(), LdapResult> {
        match self.node().role() {
            Role::Leader => Ok(()),
            _ if self.node().takes_changes() => Ok(()),
            // While nodes differ in who writes, they would send it to each other (`overlay chain`).
            Role::Follower(leader) if hops < SERVERS_MAX => {
                let schema = &self.common.config.schema;
                let referrals = referral::rewrite(schema, &[leader], None, Some(target), None);
                Err(LdapResult { referrals, ..LdapResult::new(ResultCode::REFERRAL) })
            }
            Role::Follower(_) => {
                let text = format!(
                    "the change has come through {hops} balancers, proxies and nodes, and this node does not write, another one is \
                     about to: try again"
                );
                Err(LdapResult::with(ResultCode::UNAVAILABLE, text))
            }
            Role::Vacant => {
                let text =
                    "no node of this database takes changes just now, another one is about to: try again";
                Err(LdapResult::with(ResultCode::UNAVAILABLE, text))
            }
            Role::CutOff => {
                let text = format!("{}: try again", self.node().why_cut_off());
                Err(LdapResult::with(ResultCode::UNAVAILABLE, text))
            }
        }
    }

    /// Whether changes of this identity are referred to the provider that the database follows: the database says so itself.
    fn refers_to_provider(&self, subject: &Subject) -> bool {
        let settings = self.node().database_settings();
        settings.shadow && (subject.dn.is_none() || subject.dn != settings.update_dn)
    }

    /// Where a name is, for the router.
    fn locate(&self, context: &Context<'_>, dn: &NormalDn) -> DnLocation {
        let is_own = |other: &Self| Arc::ptr_eq(other.node(), self.node());
        engine_database::locate(context, dn, |backend| of(backend).is_some_and(is_own))
    }
}

/// Which database's operations are counted.
fn note(served: &Arc<ServedDatabase<SharedStore>>) {
    in_database(served.database().instance());
}

/// The database of a backend, if it is one of these.
fn of(backend: &dyn Backend) -> Option<&ClusteredBackend> {
    let own: &dyn std::any::Any = backend;
    own.downcast_ref().or_else(|| of(backend.behind()?))
}

/// The instance of the database of a backend, if it is one of these: none while it is not open.
pub(crate) fn instance_of(backend: &dyn Backend) -> Option<Option<u64>> {
    of(backend).map(|own| own.node().served().map(|served| served.database().instance()))
}

impl Backend for ClusteredBackend {
    fn open(&self, context: &Context<'_>, mut search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        if let Some(control) = search.controls.values_mut().and_then(|values| values.sync.take()) {
            return sync::start(self, context, search, &control, self.gate());
        }
        let handle = self.handle().map_err(|result| Box::new((result, Vec::new())))?;
        let limits = self.limits.clone();
        let mut cursor = search::ClusteredSearch::new(handle, limits, context, search);
        cursor.waits_for(self.gate());
        Ok(Box::new(cursor))
    }

    fn search(&self, context: &Context<'_>, search: Search<'_>, out: &mut Vec<u8>) -> First {
        if search.controls.sync.is_none()
            && self.gate().is_none()
            && let Some(first) = self
                .search_at_hand(context, &search, out)
                .or_else(|| self.search_as_known(context, &search, out))
        {
            return first;
        }
        match self.open(context, search) {
            Ok(cursor) => First::slice_of(cursor, context.clock, out),
            Err(end) => First::ended(*end),
        }
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End> {
        self.answer_compare(context, compare, later)
    }

    fn bind(&self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        self.answer_bind(context, bind, later)
    }

    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        self.change_password(context, change, later).unwrap_or_else(|refused| Reply::Now(refused.into()))
    }

    fn extended(
        &self,
        context: &Context<'_>,
        operation: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        self.digests(context, operation, later).unwrap_or_else(|refused| Reply::Now(refused.into()))
    }

    fn secrets(&self, context: &Context<'_>, dn: &NormalDn) -> Vec<Secret> {
        let found = self.look_up(|handle| handle.chosen().bind_lookup(dn, context.subject));
        found.map(|found| found.secrets.into_iter().map(Zeroizing::new).collect()).unwrap_or_default()
    }

    fn authentication_values(&self, context: &Context<'_>, dn: &NormalDn, attribute: &str) -> Vec<Vec<u8>> {
        let found = self.look_up(|handle| {
            let values = handle.chosen().authentication_values(dn, attribute, context.subject);
            // What cannot be read is not there: a damaged entry must not grant a login.
            Ok(values.unwrap_or_default())
        });
        found.unwrap_or_default()
    }

    fn identities(&self, context: &Context<'_>, request: &Identities<'_>, found: &mut Vec<NormalDn>) -> bool {
        let own = self.look_up(|handle| {
            let database = handle.served().database();
            let own = identities::find(database, &self.limits, context.subject, request);
            own.map_err(|fault| handle.failure(&fault))
        });
        let Some((own, are_all)) = own else { return false };
        found.extend(own);
        are_all
    }

    fn update(&self, context: &Context<'_>, changes: Changes, done: Completion) -> PendingAnswer {
        let hops = match &changes {
            Changes::One(request, _) => request.controls.hops,
            Changes::Together(_) => 0,
        };
        let target = changes.operations().next().map(|operation| operation.target().to_owned());
        let is_refused = |request: &WriteRequest| {
            let is_client = request.origin == Origin::Client && request.controls.import.is_none();
            is_client && self.refers_to_provider(&request.subject)
        };
        let is_refused = match &changes {
            Changes::One(request, _) => is_refused(request),
            Changes::Together(requests) => requests.iter().all(is_refused),
        };
        let leads = || if is_refused { Ok(()) } else { self.leads(&target.unwrap_or_default(), hops) };
        let handle = match self.handle().and_then(|handle| leads().map(|()| handle)) {
            Ok(handle) => handle,
            Err(result) => return answer_now(done, result),
        };
        handle.database.change(&self.common, changes, &|dn| self.locate(context, dn), done);
        PendingAnswer::default()
    }

    fn stands_apart(&self) -> Option<LdapResult> {
        None
    }

    fn policy(&self, _: &NormalDn) -> Option<Arc<AccessPolicy>> {
        Some(match self.node().served() {
            Some(served) => served.database().policy(),
            None => {
                let settings = self.node().database_settings();
                let schema = Arc::clone(&self.common.config.schema);
                let open = || Arc::new(AccessPolicy::open(schema, settings.root_dn.clone()));
                settings.policy.clone().unwrap_or_else(open)
            }
        })
    }

    fn provides_content(&self) -> bool {
        self.node().database_settings().provider.is_some()
    }

    fn shared_content(&self, _: &NormalDn) -> Option<Arc<dyn SharedContent>> {
        let node = self.node();
        node.may_read_what_was_before().then(|| Arc::clone(node) as Arc<dyn SharedContent>)
    }

    fn announce(&self, announced: &mut Announcement) {
        engine_database::announce(&self.node().database_settings(), announced);
    }

    fn set_read_only(&self, value: bool) -> LdapResult {
        let Some(served) = self.node().served() else { return not_opened() };
        served.database().set_read_only(value);
        LdapResult::success()
    }
}
