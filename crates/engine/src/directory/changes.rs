//! A change on its way to a writer: what takes no entry is checked on the caller's thread, and its database is found.

use std::sync::Arc;

use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_store::Store;

use super::{Directory, Served};
use crate::budget::RequestLimit;
use crate::controls::ReadAttributes;
use crate::password;
use crate::search::referral;
use crate::write::prepare::{self, ChangeKind, Latitude, Prepared, refuse};
use crate::write::writer::Task;
use crate::write::{Completion, Origin, WriteOutcome, WriteRequest};

/// Why changes were refused, and which of them is at fault.
type Refused = (LdapResult, Option<usize>);

impl<S: Store> Directory<S> {
    /// Carries out a change. `done` is called once: here when the request is refused at once, else on the writer's
    /// thread.
    pub fn submit(&self, request: WriteRequest, done: Completion) {
        self.submit_at(request, None, done);
    }

    /// As [`Self::submit`]; `target`: the normal form of the target's DN, where it is known.
    pub fn submit_at(&self, request: WriteRequest, target: Option<NormalDn>, done: Completion) {
        match self.prepare(request, target) {
            Ok((served, task)) => served.submit(vec![task], done),
            Err(result) => done(WriteOutcome { refused: Some(0), ..WriteOutcome::from(result) }),
        }
    }

    /// Carries out changes of one database together: all or none (RFC 5805).
    pub fn submit_all(&self, requests: Vec<WriteRequest>, done: Completion) {
        match self.route(requests) {
            Ok((served, tasks)) => served.submit(tasks, done),
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
    pub(super) fn prepare(
        &self,
        request: WriteRequest,
        dn: Option<NormalDn>,
    ) -> Result<(&Arc<Served<S>>, Task), LdapResult> {
        let latitude = Latitude {
            relax: request.controls.relax,
            internal: request.origin == Origin::Internal,
            import: request.controls.import,
        };
        let is_import = latitude.import.is_some();
        let target = request.operation.target().to_owned();
        let counts = request.operation.counts();
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
        if request.origin == Origin::Client && !is_import {
            settings.request_limits.check(RequestLimit::Modifications, counts.modifications)?;
            settings.request_limits.check(RequestLimit::Values, counts.values)?;
            // The database could not know them all.
            settings.request_limits.check(RequestLimit::Descriptions, counts.attributes)?;
            if !served.database.policy().is_root(&request.subject) {
                let rounds = self.password_rounds(&operation);
                settings.request_limits.check(RequestLimit::HashCost, rounds)?;
            }
        }
        if settings.read_only && !is_import {
            return Err(refuse(ResultCode::UNWILLING_TO_PERFORM, "operation restricted"));
        }
        if let Prepared::ModifyDn(rename) = &operation
            && !self.select(&rename.target()).is_some_and(|other| Arc::ptr_eq(other, served))
        {
            return Err(refuse(ResultCode::AFFECTS_MULTIPLE_DSAS, "cannot rename between DSAs"));
        }
        let may_update = request.subject.dn.is_some() && request.subject.dn == settings.update_dn;
        if settings.shadow && request.origin == Origin::Client && !may_update && !is_import {
            return Err(self.shadow_refusal(&settings.update_referrals, &target));
        }
        let WriteRequest { subject, controls, passwords, .. } = request;
        let task = Task { operation, target, subject, controls, passwords };
        Ok((served, task))
    }

    /// What comparing with the passwords costs that a change stores.
    fn password_rounds(&self, operation: &Prepared) -> usize {
        let (Prepared::Add { mods, .. } | Prepared::Modify { mods, .. }) = operation else { return 0 };
        let passwords = mods.iter().filter(|one| {
            one.kind != ChangeKind::Delete && one.description.attribute == self.known.user_password
        });
        let rounds = passwords.flat_map(|one| &one.values).map(|value| password::rounds(value));
        usize::try_from(rounds.fold(0, u64::saturating_add)).unwrap_or(usize::MAX)
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
    fn check_read_attributes(&self, read: &ReadAttributes) -> Result<(), LdapResult> {
        let known = |name: &str| ["*", "+", "1.1"].contains(&name) || name.starts_with('@');
        for name in read.attributes.iter().filter(|name| read.critical && !known(name)) {
            if let Err(error) = self.frontend.schema.describe(name) {
                return Err(refuse(ResultCode::UNDEFINED_ATTRIBUTE_TYPE, error.to_string()));
            }
        }
        Ok(())
    }
}
