//! The directory as a whole: naming contexts and the databases that hold them.
//!
//! A [`Directory`] is immutable. A change of the configuration makes a new one that shares the databases; each database's
//! own settings are published in place ([`Database::publish_settings`]).

use std::sync::Arc;

use larix_proto::{Dn, LdapResult, ResultCode, Scope};
use larix_schema::{NormalDn, Schema};
use larix_store::{CommitError, Store};

use crate::access::{AccessPolicy, AccessTarget, Item, OtherEntries, Privilege, Subject};
use crate::database::Database;
use crate::entry::EntryId;
use crate::entry::record::RecordFlags;
use crate::fault::Fault;
use crate::index::IndexConfig;
use crate::index::{IndexStatus, NotIndexed};
use crate::neighbours::Neighbours;
use crate::plugins::{BindAttempt, BindConclusion, PasswordWork, PendingChange, Purpose};
use crate::search::entry::{Gate, Seen};
use crate::search::referral;
use crate::time::{Clock, RandomSource};
use crate::write::writer::errand::Errand;
use crate::write::hooks::{Present, judge};
use crate::write::prepare::{self, ChangeKind, Latitude, Prepared, refuse};
use crate::write::writer::{Job, Task};
use crate::write::{
    Completion, KnownSchema, Origin, Reconfiguration, Recording, Retiring, WriteOperation, WriteOutcome,
    WriteRequest, Writer, WriterEnvironment, WriterStartError,
};

/// Why changes were refused, and which of them is at fault.
type Refused = (LdapResult, Option<usize>);

/// A database with its writer.
#[derive(Debug)]
pub struct Served<S: Store> {
    database: Arc<Database<S>>,
    pub(crate) writer: Writer,
    clock: Arc<dyn Clock>,
    random: Arc<dyn RandomSource>,
}

impl<S: Store> Served<S> {
    /// Starts the writer of an open database.
    ///
    /// # Errors
    /// A store that cannot be read, a schema without the system's elements, or no thread to be had.
    pub fn start(
        database: Arc<Database<S>>,
        environment: WriterEnvironment,
    ) -> Result<Self, WriterStartError> {
        let (clock, random) = (Arc::clone(&environment.clock), Arc::clone(&environment.random));
        let writer = Writer::start(Arc::clone(&database), environment)?;
        Ok(Self { database, writer, clock, random })
    }

    pub fn database(&self) -> &Arc<Database<S>> {
        &self.database
    }

    /// The root DN as a subject: in whose name the server keeps an account's state.
    fn root_subject(&self) -> Arc<Subject> {
        let settings = self.database.current_settings();
        Arc::new(match &settings.root_dn {
            Some(root) => Subject::default().bound_as(root.clone(), &settings.root_dn_text),
            None => Subject::default(),
        })
    }

    /// Writes records of an access log. `done` is called once, on the writer's thread or here.
    pub fn record(&self, recording: Recording, done: Completion) {
        let task = Task {
            target: recording.suffix_text.clone(),
            operation: Prepared::Record(Arc::new(recording)),
            subject: self.root_subject(),
            controls: crate::controls::RequestControls::default(),
            passwords: None,
        };
        self.writer.submit(Job { tasks: vec![task], replicated: None, done });
    }

    /// The state of each index, how far a build is, and what indexes are used for.
    pub fn index_status(&self) -> Vec<IndexStatus> {
        self.database.index_status()
    }

    /// Searches that no index could serve, the most frequent shapes first.
    pub fn not_indexed(&self) -> Vec<NotIndexed> {
        self.database.index_uses().not_indexed()
    }

    /// How many searches no index could serve.
    pub fn not_indexed_total(&self) -> u64 {
        self.database.index_uses().not_indexed_total()
    }

    /// From the answer on, no change brings these elements into an entry, until [`Self::reconfigure`] or another call of
    /// this says otherwise.
    pub fn retire_elements(&self, retiring: Retiring) {
        // A writer that has ended changes nothing any more.
        let _ = self.writer.send(|done| Errand::Retire(retiring, done));
    }

    /// Makes it durable that indexes which these lines do not want are not kept: before [`Self::reconfigure`].
    ///
    /// # Errors
    /// A commit that failed; nothing has changed.
    pub fn forget_indexes(&self, schema: Arc<Schema>, index: IndexConfig) -> Result<(), CommitError> {
        self.writer.send(|done| Errand::ForgetIndexes(schema, index, done)).unwrap_or(Ok(()))
    }

    /// Forgets how far the changes of a server had come that is no more: its contextCSN. Waits for the writer.
    pub fn retire_server_id(&self, server_id: u16) -> LdapResult {
        let ended = || LdapResult::with(ResultCode::UNAVAILABLE, "the writer has ended");
        self.writer.send(|done| Errand::RetireServerId(server_id, done)).unwrap_or_else(ended)
    }

    /// Has the database follow another configuration, between two groups of changes.
    pub fn reconfigure(&self, next: Reconfiguration) {
        let _ = self.writer.send(|done| Errand::Reconfigure(Box::new(next), done));
    }

    /// Carries out what waits and takes no more changes: the database has left the configuration.
    pub fn retire(&self) {
        self.writer.retire();
        self.database.log_watch().tell();
    }

    /// Whether the database has left the configuration: what is under way there ends.
    pub fn is_retired(&self) -> bool {
        self.writer.is_retired()
    }

    /// Changes that wait to be carried out.
    pub fn waiting_writes(&self) -> usize {
        self.writer.waiting()
    }
}

/// What holds for all databases.
#[derive(Clone, Debug)]
pub struct Frontend {
    pub schema: Arc<Schema>,
    /// The subschema subentry, `cn=Subschema`.
    pub subschema: NormalDn,
    /// Where a search of the empty DN with another scope than base looks (`defaultsearchbase`).
    pub default_search_base: Option<(NormalDn, String)>,
    /// Where to ask for what nothing here holds (`referral`).
    pub referrals: Vec<String>,
}

/// Naming contexts and their databases.
#[derive(Debug)]
pub struct Directory<S: Store> {
    frontend: Frontend,
    known: KnownSchema,
    databases: Vec<Arc<Served<S>>>,
}

/// Whose password a simple bind is about, and what to check it against.
#[derive(Clone, PartialEq, Eq)]
pub struct BindLookup {
    pub dn: NormalDn,
    /// The DN as it is shown: of the root DN as it is configured, of an entry as it is stored.
    pub shown: String,
    /// Hashed or clear; any that matches will do. None: the bind fails (invalidCredentials).
    pub secrets: Vec<Vec<u8>>,
}

/// Passwords stay out of logs.
impl std::fmt::Debug for BindLookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BindLookup")
            .field("dn", &self.dn)
            .field("secrets", &self.secrets.len())
            .finish_non_exhaustive()
    }
}

impl<S: Store> Directory<S> {
    /// # Errors
    /// A schema without the system's elements.
    pub fn new(
        frontend: Frontend,
        databases: Vec<Arc<Served<S>>>,
    ) -> Result<Self, crate::write::known::MissingElement> {
        let known = KnownSchema::of(&frontend.schema)?;
        let directory = Self { frontend, known, databases };
        directory.databases.iter().for_each(|served| directory.let_see(&served.database.policy()));
        Ok(directory)
    }

    /// Lets a policy see the entries of all databases: groups may be there.
    pub fn let_see(&self, policy: &AccessPolicy) {
        let others = self.databases.iter().map(|served| Arc::downgrade(&served.database)).collect();
        let others: Arc<dyn OtherEntries> = Arc::new(Neighbours(others));
        policy.see_others(others);
    }

    pub fn frontend(&self) -> &Frontend {
        &self.frontend
    }

    pub fn schema(&self) -> &Arc<Schema> {
        &self.frontend.schema
    }

    pub fn known(&self) -> &KnownSchema {
        &self.known
    }

    /// In the order of the configuration.
    pub fn databases(&self) -> &[Arc<Served<S>>] {
        &self.databases
    }

    /// The suffixes that the root DSE lists, as they were configured: neither hidden nor glued below another.
    pub fn naming_contexts(&self) -> Vec<String> {
        let mut contexts = Vec::new();
        for served in &self.databases {
            let settings = served.database.settings();
            if !settings.hidden && !settings.subordinate {
                contexts.extend(settings.suffixes.iter().map(|suffix| suffix.text.clone()));
            }
        }
        contexts
    }

    /// The database that holds this DN: of those whose suffix is at or above it, the one with the longest. Hidden ones
    /// hold nothing.
    pub fn select(&self, dn: &NormalDn) -> Option<&Arc<Served<S>>> {
        let depth = |served: &Arc<Served<S>>| {
            let settings = served.database.current_settings();
            let above = settings.suffixes.iter().filter(|suffix| dn.is_within(&suffix.normal));
            if settings.hidden { None } else { above.map(|suffix| suffix.normal.depth()).max() }
        };
        // Of equals the first: `max_by_key` would give the last.
        self.databases
            .iter()
            .rev()
            .filter_map(|s| Some((depth(s)?, s)))
            .max_by_key(|(d, _)| *d)
            .map(|(_, s)| s)
    }

    /// The databases whose suffixes are below this DN and glued to the naming context that it is in: where a search of
    /// a subtree goes on.
    pub fn glued_below(&self, dn: &NormalDn) -> Vec<&Arc<Served<S>>> {
        let is_below = |served: &&Arc<Served<S>>| {
            let settings = served.database.current_settings();
            settings.subordinate
                && !settings.hidden
                && settings.suffixes.iter().any(|suffix| suffix.normal.is_descendant_of(dn))
        };
        self.databases.iter().filter(is_below).collect()
    }

    /// What is answered for a DN that no database holds: the default referral, or `otherwise`.
    pub fn elsewhere(&self, target: &str, scope: Option<Scope>, otherwise: LdapResult) -> LdapResult {
        if self.frontend.referrals.is_empty() {
            return otherwise;
        }
        let target = Some(target).filter(|target| !target.is_empty());
        let referrals =
            referral::rewrite(&self.frontend.schema, &self.frontend.referrals, None, target, scope);
        LdapResult { referrals, ..LdapResult::new(ResultCode::REFERRAL) }
    }

    /// Carries out a change. `done` is called once: here when the request is refused at once, else on the writer's
    /// thread.
    pub fn submit(&self, request: WriteRequest, done: Completion) {
        self.submit_at(request, None, done);
    }

    /// As [`Self::submit`]; `target`: the normal form of the target's DN, where it is known.
    pub fn submit_at(&self, request: WriteRequest, target: Option<NormalDn>, done: Completion) {
        match self.prepare(request, target) {
            Ok((served, task)) => {
                served.writer.submit(Job { tasks: vec![task], replicated: None, done });
            }
            Err(result) => done(WriteOutcome { refused: Some(0), ..WriteOutcome::from(result) }),
        }
    }

    /// Carries out changes of one database together: all or none (RFC 5805).
    pub fn submit_all(&self, requests: Vec<WriteRequest>, done: Completion) {
        match self.route(requests) {
            Ok((served, tasks)) => served.writer.submit(Job { tasks, replicated: None, done }),
            Err((result, refused)) => done(WriteOutcome { refused, ..WriteOutcome::from(result) }),
        }
    }

    /// Where the changes belong; else why not, and which of them is at fault.
    fn route(&self, requests: Vec<WriteRequest>) -> Result<(&Arc<Served<S>>, Vec<Task>), Refused> {
        let mut chosen: Option<&Arc<Served<S>>> = None;
        let mut tasks = Vec::with_capacity(requests.len());
        for (at, request) in requests.into_iter().enumerate() {
            let (served, task) = self.prepare(request, None).map_err(|result| (result, Some(at)))?;
            if chosen.is_some_and(|chosen| !Arc::ptr_eq(chosen, served)) {
                let text = "transaction affects multiple databases";
                return Err((refuse(ResultCode::AFFECTS_MULTIPLE_DSAS, text), Some(at)));
            }
            chosen = Some(served);
            tasks.push(task);
        }
        let none = || (refuse(ResultCode::PROTOCOL_ERROR, "no operation in the transaction"), None);
        let served = chosen.ok_or_else(none)?;
        Ok((served, tasks))
    }

    /// Checks all of a change that takes no entry, and finds its database.
    fn prepare(
        &self,
        request: WriteRequest,
        dn: Option<NormalDn>,
    ) -> Result<(&Arc<Served<S>>, Task), LdapResult> {
        let latitude =
            Latitude { relax: request.controls.relax, internal: request.origin == Origin::Internal };
        let target = request.operation.target().to_owned();
        for read in [&request.controls.pre_read, &request.controls.post_read].into_iter().flatten() {
            self.check_read_attributes(read)?;
        }
        let schema = &self.frontend.schema;
        let subschema = &self.frontend.subschema;
        let operation = prepare::prepare_at(schema, request.operation, dn, subschema, latitude)?;
        let dn = operation.dn();
        let served = self.select(dn).ok_or_else(|| {
            let otherwise = refuse(ResultCode::UNWILLING_TO_PERFORM, "no global superior knowledge");
            self.elsewhere(&target, None, otherwise)
        })?;
        let settings = served.database.current_settings();
        if settings.read_only {
            return Err(refuse(ResultCode::UNWILLING_TO_PERFORM, "operation restricted"));
        }
        if let Prepared::ModifyDn(rename) = &operation
            && !self.select(&rename.target()).is_some_and(|other| Arc::ptr_eq(other, served))
        {
            return Err(refuse(ResultCode::AFFECTS_MULTIPLE_DSAS, "cannot rename between DSAs"));
        }
        let may_update = request.subject.dn.is_some() && request.subject.dn == settings.update_dn;
        if settings.shadow && request.origin == Origin::Client && !may_update {
            return Err(self.shadow_refusal(&settings.update_referrals, &target));
        }
        let WriteRequest { subject, controls, passwords, .. } = request;
        let task = Task { operation, target, subject, controls, passwords };
        Ok((served, task))
    }

    /// A shadow is changed elsewhere.
    fn shadow_refusal(&self, update: &[String], target: &str) -> LdapResult {
        let urls = if update.is_empty() { &self.frontend.referrals } else { update };
        if urls.is_empty() {
            return refuse(ResultCode::UNWILLING_TO_PERFORM, "shadow context; no update referral");
        }
        let referrals = referral::rewrite(&self.frontend.schema, urls, None, Some(target), None);
        LdapResult { referrals, ..LdapResult::new(ResultCode::REFERRAL) }
    }

    /// A critical pre-read or post-read control names attributes that exist (RFC 4527 section 3).
    fn check_read_attributes(&self, read: &crate::controls::ReadAttributes) -> Result<(), LdapResult> {
        let known = |name: &str| ["*", "+", "1.1"].contains(&name) || name.starts_with('@');
        for name in read.attributes.iter().filter(|name| read.critical && !known(name)) {
            if let Err(error) = self.frontend.schema.describe(name) {
                return Err(refuse(ResultCode::UNDEFINED_ATTRIBUTE_TYPE, error.to_string()));
            }
        }
        Ok(())
    }

    /// Finds what a simple bind's password is to be checked against. The check itself, which takes time by design, is
    /// the caller's, off the event loop.
    ///
    /// # Errors
    /// invalidDNSyntax; a referral; other when the store cannot be read. An entry that does not exist, has no password
    /// or may not be used for it gives a look-up without secrets: nothing tells these apart.
    pub fn bind_lookup(&self, name: &str, subject: &Subject) -> Result<BindLookup, LdapResult> {
        let invalid = || refuse(ResultCode::INVALID_DN_SYNTAX, "invalid DN");
        let parsed = Dn::parse(name).map_err(|_| invalid())?;
        let dn = self.frontend.schema.normalize_dn(&parsed).map_err(|_| invalid())?;
        let mut lookup = BindLookup { dn: dn.clone(), shown: name.to_owned(), secrets: Vec::new() };
        let Some(served) = self.select(&dn) else {
            let otherwise = LdapResult::new(ResultCode::INVALID_CREDENTIALS);
            return Err(self.elsewhere(name, None, otherwise));
        };
        let settings = served.database.current_settings();
        let is_root = settings.root_dn.as_ref() == Some(&dn);
        if is_root {
            lookup.shown.clone_from(&settings.root_dn_text);
            lookup.secrets.extend(settings.root_password.clone());
        }
        self.add_entry_secrets(served, subject, is_root, &mut lookup)
            .map_err(|fault| refuse(ResultCode::OTHER, format!("internal error: {fault}")))?;
        Ok(lookup)
    }

    fn add_entry_secrets(
        &self,
        served: &Served<S>,
        subject: &Subject,
        is_root: bool,
        lookup: &mut BindLookup,
    ) -> Result<(), Fault> {
        let database = &served.database;
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot)?;
        let Some(id) = view.resolve(&lookup.dn)?.and_then(|resolved| resolved.id) else { return Ok(()) };
        let record = view.record(id)?.ok_or(Fault::Missing { entry: id, what: "the record" })?;
        let reader = view.reader(id, &record)?;
        let flags = reader.view.flags();
        if [RecordFlags::ALIAS, RecordFlags::REFERRAL, RecordFlags::SUBENTRY]
            .into_iter()
            .any(|f| flags.has(f))
        {
            return Ok(());
        }
        let policy = database.current_policy();
        let seen = Seen::new(&view, reader, Gate::new(&policy, subject));
        let description = larix_schema::AttributeDescription::plain(self.known.user_password);
        let target = AccessTarget { dn: &lookup.dn, entry: &seen };
        let item = Item::Attribute { description: &description, value: None };
        if !policy.check(subject, &target, item, Privilege::Auth) {
            return Ok(());
        }
        if !is_root {
            lookup.shown = view.dn(&seen.reader.view)?;
        }
        let secrets = &mut lookup.secrets;
        crate::entry::EntrySource::visit_description(&seen.reader, &description, &mut |value| {
            secrets.push(value.to_vec());
            true
        })
    }

    /// Values of an attribute of an entry that the subject may use to authenticate; none of an entry that is not here.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn authentication_values(
        &self,
        dn: &NormalDn,
        attribute: &str,
        subject: &Subject,
    ) -> Result<Vec<Vec<u8>>, Fault> {
        let mut values = Vec::new();
        let (Some(served), Ok(description)) = (self.select(dn), self.frontend.schema.describe(attribute))
        else {
            return Ok(values);
        };
        let snapshot = served.database.store().snapshot()?;
        let view = served.database.view(&snapshot)?;
        let Some(id) = view.resolve(dn)?.and_then(|resolved| resolved.id) else { return Ok(values) };
        let record = view.record(id)?.ok_or(Fault::Missing { entry: id, what: "the record" })?;
        let policy = served.database.current_policy();
        let seen = Seen::new(&view, view.reader(id, &record)?, Gate::new(&policy, subject));
        if !seen.allows(&description, None, Privilege::Auth)? {
            return Ok(values);
        }
        crate::entry::EntrySource::visit_description(&seen.reader, &description, &mut |value| {
            values.push(value.to_vec());
            true
        })?;
        Ok(values)
    }

    /// Whether somebody has a say in how a bind to this DN ends: then [`Self::conclude_bind`] answers it.
    pub fn judges_binds(&self, dn: &NormalDn) -> bool {
        self.judge_of(dn).is_some_and(|served| {
            let settings = served.database.current_settings();
            settings.root_dn.as_ref() != Some(dn)
                && settings.plugins.iter().any(|plugin| plugin.authentication().is_some())
        })
    }

    /// Ends a bind whose password was compared: by the password policy and whatever else hangs on binds. `done` is called
    /// once, here or on the writer's thread. A judgement that other attempts might change, or that changes the account's
    /// state, is made by the writer and is durable before `done`: of any number of guesses at the same time no more
    /// are judged than the policy allows.
    pub fn conclude_bind(&self, attempt: BindAttempt, done: Box<dyn FnOnce(BindConclusion) + Send>) {
        let Some(served) = self.judge_of(&attempt.dn) else {
            return done(BindConclusion::outright(attempt.matched));
        };
        match self.judge_at_once(served, &attempt) {
            Err(failure) => {
                let result = failure.into_result();
                done(BindConclusion { result, ..BindConclusion::outright(false) });
            }
            Ok(Some(conclusion)) => done(conclusion),
            Ok(None) => {
                let task = Task {
                    target: attempt.dn.as_str().to_owned(),
                    operation: Prepared::Authenticate(Box::new(attempt)),
                    subject: served.root_subject(),
                    controls: crate::controls::RequestControls::default(),
                    passwords: None,
                };
                let done = |outcome: WriteOutcome| {
                    let WriteOutcome { result, controls, must_change_password, rehash, .. } = outcome;
                    done(BindConclusion { result, controls, must_change_password, rehash });
                };
                served.writer.submit(Job { tasks: vec![task], replicated: None, done: Box::new(done) });
            }
        }
    }

    /// The database that has a say in a bind. A name that leads to none, as names of SASL may, goes where wrong passwords are
    /// counted: it must not be told from the name of an account by the time that its answer takes.
    fn judge_of(&self, dn: &NormalDn) -> Option<&Arc<Served<S>>> {
        let counts = |served: &Served<S>| {
            let settings = served.database.current_settings();
            let mut authentications = settings.plugins.iter().filter_map(|plugin| plugin.authentication());
            authentications.any(|authentication| authentication.counts_failures())
        };
        self.select(dn).or_else(|| self.databases().iter().find(|served| counts(served)))
    }

    /// The judgement by what is committed, if it needs nobody else.
    fn judge_at_once(
        &self,
        served: &Served<S>,
        attempt: &BindAttempt,
    ) -> Result<Option<BindConclusion>, crate::write::Failure> {
        let database = &served.database;
        let (settings, policy) = (database.settings(), database.policy());
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot)?;
        let entries = Present { view: &view, policy: &policy };
        let schema = &self.frontend.schema;
        let judged = judge(&settings.plugins, attempt, &entries, schema, served.clock.now())?;
        if judged.ordered || !judged.changes.is_empty() && !settings.read_only {
            return Ok(None);
        }
        let succeeds = attempt.matched && !judged.refused;
        let code = if succeeds { ResultCode::SUCCESS } else { ResultCode::INVALID_CREDENTIALS };
        Ok(Some(BindConclusion {
            result: LdapResult::new(code),
            controls: judged.controls,
            must_change_password: judged.must_change_password && succeeds,
            rehash: judged.rehash.filter(|_| succeeds),
        }))
    }

    /// Stores the same password under another value, unless it was changed meanwhile. No policy has a say in it, and
    /// nobody waits for it.
    pub fn rehash(&self, dn: &NormalDn, old: &[u8], new: &[u8]) {
        let Some(served) = self.select(dn) else { return };
        let schema = &self.frontend.schema;
        let change =
            |kind, value: &[u8]| prepare::internal_change(schema, kind, "userPassword", vec![value.to_vec()]);
        let mods =
            change(ChangeKind::Delete, old).and_then(|old| Ok(vec![old, change(ChangeKind::Add, new)?]));
        let settings = served.database.current_settings();
        let Some(mods) = mods.ok().filter(|_| !settings.read_only && !settings.shadow) else {
            return;
        };
        let task = Task {
            target: dn.as_str().to_owned(),
            operation: Prepared::Modify { dn: dn.clone(), mods },
            subject: served.root_subject(),
            controls: crate::controls::RequestControls::default(),
            passwords: Some(Arc::new(PasswordWork::of(Purpose::Rehash, None, None))),
        };
        served.writer.submit(Job { tasks: vec![task], replicated: None, done: Box::new(|_| {}) });
    }

    /// Whether a change sets a password that somebody has work with: then [`Self::work_on_passwords`] is worth a call, on
    /// a thread that may take its time, before [`Self::submit`].
    pub fn has_password_work(&self, operation: &WriteOperation) -> bool {
        let is_password = |description: &str| {
            let described = self.frontend.schema.describe(description);
            described.is_ok_and(|description| description.attribute == self.known.user_password)
        };
        let about = match operation {
            WriteOperation::Add { attributes, .. } => attributes.iter().any(|a| is_password(&a.description)),
            WriteOperation::Modify { changes, .. } => {
                changes.iter().any(|change| is_password(&change.attribute.description))
            }
            _ => false,
        };
        about
            && self.frontend.schema.parse_dn(operation.target()).is_ok_and(|dn| {
                self.select(&dn).is_some_and(|served| {
                    let settings = served.database.current_settings();
                    settings.plugins.iter().any(|plugin| plugin.works_on_passwords())
                })
            })
    }

    /// Shows a change to the plugins that have work with its passwords, so that the writer finds it done. What they say is
    /// not heeded here: the writer asks them again.
    pub fn work_on_passwords(&self, request: &mut WriteRequest) {
        let work = Arc::clone(request.passwords.get_or_insert_with(Arc::<PasswordWork>::default));
        let Ok((served, task)) = self.prepare(request.clone(), None) else { return };
        let database = &served.database;
        let (settings, policy) = (database.settings(), database.policy());
        let Ok(snapshot) = database.store().snapshot() else { return };
        let Ok(view) = database.view(&snapshot) else { return };
        let entries = Present { view: &view, policy: &policy };
        for plugin in settings.plugins.iter().filter(|plugin| plugin.works_on_passwords()) {
            let _ = plugin.before(&PendingChange {
                operation: &task.operation,
                subject: &task.subject,
                controls: &task.controls,
                schema: &self.frontend.schema,
                derived: false,
                entries: &entries,
                now: served.clock.now(),
                random: &*served.random,
                passwords: &work,
            });
        }
    }

    /// The referral at or above the DN, for operations that only look at the place: `None` when there is none.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn referral_above(&self, dn: &NormalDn, target: &str) -> Result<Option<LdapResult>, Fault> {
        let Some(served) = self.select(dn) else { return Ok(None) };
        let snapshot = served.database.store().snapshot()?;
        let view = served.database.view(&snapshot)?;
        let Some(resolved) = view.resolve(dn)? else { return Ok(None) };
        if resolved.nearest == EntryId::ROOT {
            return Ok(None);
        }
        let missing = Fault::Missing { entry: resolved.nearest, what: "the record" };
        let record = view.record(resolved.nearest)?.ok_or(missing)?;
        let reader = view.reader(resolved.nearest, &record)?;
        if !reader.view.flags().has(RecordFlags::REFERRAL) {
            return Ok(None);
        }
        let shown = view.dn(&reader.view)?;
        let urls = referral::urls(&reader)?;
        let referrals = referral::rewrite(&self.frontend.schema, &urls, Some(&shown), Some(target), None);
        Ok(Some(LdapResult { matched_dn: shown, referrals, ..LdapResult::new(ResultCode::REFERRAL) }))
    }
}
