//! A change on its way to a writer: what takes no entry is checked on the caller's thread, and its database is found.

use std::sync::Arc;

use larix_proto::{LdapResult, ResultCode};
use larix_schema::{NormalDn, Schema};
use larix_store::Store;

use super::{ChosenDatabase, Directory, DnLocation, Frontend, ServedDatabase};
use crate::access::Subject;
use crate::budget::RequestLimit;
use crate::change::Counts;
use crate::change::prepare::{self, ChangeKind, Latitude, PreparedChange};
use crate::controls::{ReadAttributes, RequestControls};
use crate::database::DatabaseSettings;
use crate::overlay::PasswordWork;
use crate::password;
use crate::search::referral;
use crate::write::prepared_sets::PreparedSets;
use crate::write::task::Task;
use crate::write::{Completion, Origin, WriteOutcome, WriteRequest};

/// Why changes were refused, and which of them is at fault.
type Refused = (LdapResult, Option<usize>);

/// A change that was checked as far as that takes no database.
pub(super) struct CheckedChange {
    operation: PreparedChange,
    target: String,
    counts: Counts,
    is_import: bool,
    origin: Origin,
    subject: Arc<Subject>,
    controls: RequestControls,
    passwords: Option<Arc<PasswordWork>>,
    replicated: bool,
}

/// Checks all of a change that takes no database; `dn`: its target, where it is known; `update`: by the `updatedn` of a shadow.
///
/// # Errors
/// Names, values and syntaxes that cannot be.
pub(super) fn check(
    frontend: &Frontend,
    request: WriteRequest,
    dn: Option<NormalDn>,
    update: bool,
) -> Result<CheckedChange, LdapResult> {
    let WriteRequest { operation, subject, controls, origin, passwords } = request;
    let internal = origin == Origin::Internal;
    let latitude = Latitude { relax: controls.relax, internal, import: controls.import, update };
    let is_import = latitude.import.is_some();
    let (target, counts) = (operation.target().to_owned(), operation.counts());
    for read in [&controls.pre_read, &controls.post_read].into_iter().flatten() {
        check_read_attributes(&frontend.schema, read)?;
    }
    let operation = prepare::prepare_at(&frontend.schema, operation, dn, &frontend.subschema, latitude)?;
    let replicated = update && is_replicated(&frontend.schema, &operation);
    Ok(CheckedChange {
        operation,
        target,
        counts,
        is_import,
        origin,
        subject,
        controls,
        passwords,
        replicated,
    })
}

/// Whether a change by the `updatedn` was made elsewhere. A client's own, who sets no operational attribute, is stamped here.
fn is_replicated(schema: &Schema, operation: &PreparedChange) -> bool {
    match operation {
        PreparedChange::Add { mods, .. } | PreparedChange::Modify { mods, .. } => {
            mods.iter().any(|change| schema.attribute(change.description.attribute).no_user_modification)
        }
        PreparedChange::Delete { .. } | PreparedChange::ModifyDn(_) => true,
        PreparedChange::Authenticate(_) | PreparedChange::Record(_) => false,
    }
}

/// A critical pre-read or post-read control names attributes that exist (RFC 4527 section 3).
fn check_read_attributes(schema: &Schema, read: &ReadAttributes) -> Result<(), LdapResult> {
    let known = |name: &str| ["*", "+", "1.1"].contains(&name) || name.starts_with('@');
    for name in read.attributes.iter().filter(|name| read.critical && !known(name)) {
        if let Err(error) = schema.describe(name) {
            return Err(LdapResult::with(ResultCode::UNDEFINED_ATTRIBUTE_TYPE, error.to_string()));
        }
    }
    Ok(())
}

fn refused(result: LdapResult, at: Option<usize>) -> WriteOutcome {
    WriteOutcome { refused: at, ..WriteOutcome::from(result) }
}

impl<S: Store> Directory<S> {
    /// Carries out a change. `completion` is called once: here when the request is refused at once, else on the writer's
    /// thread.
    pub fn submit(&self, request: WriteRequest, completion: Completion) {
        self.submit_at(request, None, completion);
    }

    /// As [`Self::submit`]; `target`: the normal form of the target's DN, where it is known.
    pub fn submit_at(&self, request: WriteRequest, target: Option<NormalDn>, completion: Completion) {
        match self.prepare(request, target) {
            Ok((served, task)) => served.submit(vec![task], completion),
            Err(result) => completion(refused(result, Some(0))),
        }
    }

    /// Carries out changes of one database together: all or none (RFC 5805).
    pub fn submit_all(&self, requests: Vec<WriteRequest>, completion: Completion) {
        match self.route(requests) {
            Ok((served, tasks)) => served.submit(tasks, completion),
            Err((result, at)) => completion(refused(result, at)),
        }
    }

    /// Where the changes belong; else why not, and which of them is at fault.
    fn route(&self, requests: Vec<WriteRequest>) -> Result<(&Arc<ServedDatabase<S>>, Vec<Task>), Refused> {
        let mut chosen: Option<&Arc<ServedDatabase<S>>> = None;
        let mut tasks = Vec::with_capacity(requests.len());
        for (at, request) in requests.into_iter().enumerate() {
            let (served, task) = self.prepare(request, None).map_err(|result| (result, Some(at)))?;
            if chosen.is_some_and(|chosen| !Arc::ptr_eq(chosen, served)) {
                return Err((several_databases(), Some(at)));
            }
            chosen = Some(served);
            tasks.push(task);
        }
        let served = chosen.ok_or_else(|| (no_operation(), None))?;
        Ok((served, tasks))
    }

    /// Checks all of a change that takes no entry, and finds its database.
    fn prepare(
        &self,
        request: WriteRequest,
        dn: Option<NormalDn>,
    ) -> Result<(&Arc<ServedDatabase<S>>, Task), LdapResult> {
        let checked = check(&self.frontend, request, dn, false)?;
        let served = self.select(checked.operation.dn()).ok_or_else(|| self.unknown(&checked.target))?;
        let location_of = |dn: &NormalDn| match self.select(dn) {
            Some(other) if Arc::ptr_eq(other, served) => DnLocation::Here,
            Some(_) => DnLocation::Elsewhere,
            None => DnLocation::Nowhere,
        };
        let settings = served.database.current_settings();
        let task = self.at(served).admit(&settings, checked, &location_of)?;
        Ok((served, task))
    }

    fn unknown(&self, target: &str) -> LdapResult {
        self.frontend.unknown(target)
    }
}

impl Frontend {
    /// What is answered to a change of what no database holds.
    fn unknown(&self, target: &str) -> LdapResult {
        let otherwise = LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, "no global superior knowledge");
        self.elsewhere(target, None, otherwise)
    }
}

fn several_databases() -> LdapResult {
    LdapResult::with(ResultCode::AFFECTS_MULTIPLE_DSAS, "transaction affects multiple databases")
}

fn no_operation() -> LdapResult {
    LdapResult::with(ResultCode::PROTOCOL_ERROR, "no operation in the transaction")
}

/// Whether this is a shadow, and a change of it comes from its `updatedn`.
fn is_updated_by(settings: &DatabaseSettings, request: &WriteRequest) -> bool {
    settings.shadow
        && request.origin == Origin::Client
        && request.subject.dn.is_some()
        && request.subject.dn == settings.update_dn
}

impl<S: Store> ChosenDatabase<'_, S> {
    /// Carries out a change of this database. `target`: the normal form of its target's DN, where it is known; `location_of`: where another
    /// name is. `completion` is called once: here when the request is refused at once, else on the writer's thread.
    pub fn submit_at(
        self,
        request: WriteRequest,
        target: Option<NormalDn>,
        location_of: &dyn Fn(&NormalDn) -> DnLocation,
        completion: Completion,
    ) {
        let settings = self.served.database.current_settings();
        let update = is_updated_by(&settings, &request);
        let admitted = check(self.frontend, request, target, update)
            .and_then(|checked| self.admit(&settings, checked, location_of));
        drop(settings);
        match admitted {
            Ok(task) => self.served.submit(vec![task], completion),
            Err(result) => completion(refused(result, Some(0))),
        }
    }

    /// Carries out changes of this database together: all or none (RFC 5805).
    pub fn submit_all(
        self,
        requests: Vec<WriteRequest>,
        location_of: &dyn Fn(&NormalDn) -> DnLocation,
        completion: Completion,
    ) {
        let settings = self.served.database.settings();
        let mut tasks = Vec::with_capacity(requests.len());
        for (at, request) in requests.into_iter().enumerate() {
            let update = is_updated_by(&settings, &request);
            let checked = check(self.frontend, request, None, update);
            let admitted = checked.and_then(|checked| match location_of(checked.operation.dn()) {
                DnLocation::Here => self.admit(&settings, checked, location_of),
                DnLocation::Elsewhere => Err(several_databases()),
                DnLocation::Nowhere => Err(self.frontend.unknown(&checked.target)),
            });
            match admitted {
                Ok(task) => tasks.push(task),
                Err(result) => return completion(refused(result, Some(at))),
            }
        }
        match tasks.is_empty() {
            true => completion(refused(no_operation(), None)),
            false => self.served.submit(tasks, completion),
        }
    }

    /// Whether this database takes a change under these settings of it; the task for its writer.
    pub(super) fn admit(
        self,
        settings: &DatabaseSettings,
        checked: CheckedChange,
        location_of: &dyn Fn(&NormalDn) -> DnLocation,
    ) -> Result<Task, LdapResult> {
        let CheckedChange {
            operation,
            target,
            counts,
            is_import,
            origin,
            subject,
            controls,
            passwords,
            replicated,
        } = checked;
        let served = self.served;
        if origin == Origin::Client && !is_import && !replicated {
            settings.request_limits.check(RequestLimit::Modifications, counts.modifications)?;
            settings.request_limits.check(RequestLimit::Values, counts.values)?;
            // The database could not know them all.
            settings.request_limits.check(RequestLimit::Descriptions, counts.attributes)?;
            let rounds = self.password_rounds(&operation);
            if rounds > 0 && !served.database.policy().is_root(&subject) {
                settings.request_limits.check(RequestLimit::HashCost, rounds)?;
            }
        }
        if settings.read_only && !is_import {
            return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, "operation restricted"));
        }
        if let PreparedChange::ModifyDn(rename) = &operation
            && location_of(&rename.target()) != DnLocation::Here
        {
            return Err(LdapResult::with(ResultCode::AFFECTS_MULTIPLE_DSAS, "cannot rename between DSAs"));
        }
        if settings.provider.is_some()
            && let PreparedChange::Modify { mods, .. } = &operation
        {
            prepare::check_identity(&self.frontend.schema, mods)?;
        }
        let may_update = subject.dn.is_some() && subject.dn == settings.update_dn;
        if settings.shadow && origin == Origin::Client && !may_update && !is_import {
            return Err(self.shadow_refusal(&settings.update_referrals, &target));
        }
        let prepared = PreparedSets::new(&self.frontend.schema, &operation);
        Ok(Task { operation, target, subject, controls, passwords, prepared, replicated, required_by: None })
    }

    /// What comparing with the passwords costs that a change stores.
    fn password_rounds(self, operation: &PreparedChange) -> usize {
        let (PreparedChange::Add { mods, .. } | PreparedChange::Modify { mods, .. }) = operation else {
            return 0;
        };
        let passwords = mods.iter().filter(|one| {
            one.kind != ChangeKind::Delete && one.description.attribute == self.known.user_password
        });
        let rounds = passwords.flat_map(|one| &one.values).map(|value| password::rounds(value));
        usize::try_from(rounds.fold(0, u64::saturating_add)).unwrap_or(usize::MAX)
    }

    /// A shadow is changed elsewhere.
    fn shadow_refusal(self, update: &[String], target: &str) -> LdapResult {
        let urls = if update.is_empty() { &self.frontend.referrals } else { update };
        if urls.is_empty() {
            return LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, "shadow context; no update referral");
        }
        let referrals = referral::rewrite(&self.frontend.schema, urls, None, Some(target), None);
        LdapResult { referrals, ..LdapResult::new(ResultCode::REFERRAL) }
    }
}
