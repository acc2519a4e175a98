//! Several backends whose entries look like one tree (`database meta`, slapd-meta(5)): a search goes to all targets that may have
//! entries for it, at the same time; every other request goes to one target.

mod candidates;
mod dn_cache;
mod merged;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use larix_engine::access::AccessPolicy;
use larix_engine::controls::RequestControls;
use larix_engine::write::{Completion, WriteOperation};
use larix_proto::control::{ControlValue as _, SortResponse};
use larix_proto::{ControlBuf, Controls, LdapResult, ResultCode, Scope, oid};
use larix_schema::{NormalDn, Schema};

use crate::backend::{Announcement, Backend, Context};
use crate::cursor::{Cursor, End};
use crate::operation::{
    Bind, Changes, Compare, ExtendedAnswer, ExtendedOperation, Later, PasswordChange, PasswordChangeOutcome,
    PendingAnswer, Reply, Search, Verdict, answer_now,
};

pub use candidates::{SubtreeRule, Subtrees, Target};
pub use dn_cache::{KnownNames, NameLifetime};
use dn_cache::{Lookup, NotingSearch};
use merged::MergedSearch;

/// What becomes of a search when a target answers with an error (`onerr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The client gets what the other targets have, and no error unless there is nothing else.
    #[default]
    Continue,
    /// The client gets what the other targets have, then the first error.
    Report,
    /// The search ends with the error.
    Stop,
}

/// One tree of several targets.
#[derive(Debug)]
pub struct Meta {
    pub targets: Vec<Target>,
    pub on_error: OnError,
    /// The number of the target that is meant where several hold a name.
    pub default_target: Option<usize>,
    /// Where entries of targets with the same suffix were found.
    pub known: Option<Arc<KnownNames>>,
    pub schema: Arc<Schema>,
    pub policy: Arc<AccessPolicy>,
    /// As shown.
    pub suffixes: Vec<String>,
}

/// Controls that hold for the whole answer, which several targets make, or for its base (RFC 4528 section 3), which one has at most.
const OF_THE_WHOLE: &[&str] = &[oid::PAGED_RESULTS, oid::SORT_REQUEST, oid::VLV_REQUEST, oid::ASSERTION];

impl Meta {
    /// The target of requests on one name: of those that serve it the one with the longest suffix; of several with the same one the
    /// one where the entry was found, or else the default target.
    ///
    /// # Errors
    /// No target serves the name; several with the same suffix do, and nothing says which of them is meant.
    fn holder(&self, dn: &NormalDn, lookup: Lookup<'_>) -> Result<&Target, LdapResult> {
        let serving = || self.targets.iter().enumerate().filter(|(_, target)| target.serves(dn));
        let depth = serving().map(|(_, target)| target.suffix.depth()).max();
        let mut deepest = serving().filter(|(_, target)| Some(target.suffix.depth()) == depth);
        match (deepest.next(), deepest.next()) {
            (None, _) => Err(self.nowhere(dn)),
            (Some((_, target)), None) => Ok(target),
            (Some(first), Some(second)) => {
                let all: Vec<(usize, &Target)> = [first, second].into_iter().chain(deepest).collect();
                let one = |wanted: Option<usize>| all.iter().find(|(number, _)| Some(*number) == wanted);
                let known = self.known.as_ref().and_then(|known| known.target(dn, lookup));
                let meant = one(known).or_else(|| one(self.default_target));
                meant.map(|(_, target)| *target).ok_or_else(|| {
                    let text = format!(
                        "several targets serve {}: `default-target` says which of them takes such requests",
                        first.1.suffix.as_str()
                    );
                    LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text)
                })
            }
        }
    }

    /// The answer to a request on a name that no target serves.
    fn nowhere(&self, dn: &NormalDn) -> LdapResult {
        let text = "no target serves this name";
        LdapResult { matched_dn: self.above(dn), ..LdapResult::with(ResultCode::NO_SUCH_OBJECT, text) }
    }

    /// The suffix of this database that a name is below.
    fn above(&self, dn: &NormalDn) -> String {
        let is_above =
            |suffix: &&String| self.schema.parse_dn(suffix).is_ok_and(|suffix| dn.is_descendant_of(&suffix));
        self.suffixes.iter().find(is_above).cloned().unwrap_or_default()
    }

    /// The same for a change: a renamed entry stays with its target.
    fn holder_of_change(
        &self,
        operation: &WriteOperation,
        dn: &NormalDn,
        requester: Option<&NormalDn>,
    ) -> Result<&Target, LdapResult> {
        let lookup = match operation {
            WriteOperation::Add { .. } => Lookup::New,
            _ => Lookup::By(requester),
        };
        let holder = self.holder(dn, lookup)?;
        let WriteOperation::ModifyDn { new_rdn, new_superior, .. } = operation else { return Ok(holder) };
        let superior = match new_superior {
            Some(superior) => self.schema.parse_dn(superior).ok(),
            None => dn.parent(),
        };
        let renamed = superior.and_then(|superior| {
            let name = format!("{new_rdn},{}", superior.as_str());
            self.schema.parse_dn(name.trim_end_matches(',')).ok()
        });
        // A name that is none is for the target to refuse.
        if renamed.is_none_or(|name| self.may_hold(holder, &name)) {
            return Ok(holder);
        }
        let text = "the new name belongs to another target: add the entry there and delete it here";
        Err(LdapResult::with(ResultCode::AFFECTS_MULTIPLE_DSAS, text))
    }
}

impl Meta {
    /// Whether a target has the longest suffix of those that serve a name. Others may have the same one.
    fn may_hold(&self, target: &Target, name: &NormalDn) -> bool {
        let serving = self.targets.iter().filter(|target| target.serves(name));
        let longest = serving.map(|target| target.suffix.depth()).max();
        target.serves(name) && Some(target.suffix.depth()) == longest
    }

    /// Whether other targets have the same suffix.
    fn is_one_of_several(&self, target: &Target) -> bool {
        self.targets.iter().filter(|other| other.suffix == target.suffix).nth(1).is_some()
    }

    /// Notes where the entries of a search are, if other requests will have to know that.
    fn noting(
        &self,
        target: &Target,
        requester: Option<&NormalDn>,
        cursor: Box<dyn Cursor>,
    ) -> Box<dyn Cursor> {
        let number = self.targets.iter().position(|one| std::ptr::eq(one, target));
        match (&self.known, number) {
            (Some(known), Some(number)) if self.is_one_of_several(target) => Box::new(NotingSearch {
                inner: cursor,
                known: Arc::clone(known),
                schema: Arc::clone(&self.schema),
                requester: requester.cloned(),
                target: number,
            }),
            _ => cursor,
        }
    }
}

/// The controls without those that a search of these targets cannot heed, and what the end of the search has to say of them.
///
/// # Errors
/// One of them is critical (RFC 4511 section 4.1.11).
fn without(
    unheeded: &[&str],
    controls: &RequestControls,
) -> Result<(RequestControls, Vec<ControlBuf>), LdapResult> {
    let sent = Controls::parse(&controls.sent).unwrap_or_default();
    let mut left_out = sent.iter().filter(|control| unheeded.contains(&control.oid));
    if let Some(control) = left_out.find(|control| control.critical) {
        let what = match control.oid {
            oid::PAGED_RESULTS => "paged results do",
            oid::SORT_REQUEST => "sorting does",
            oid::ASSERTION => "an assertion does",
            _ => "VLV does",
        };
        let text = format!("{what} not go over several targets: search below one of them");
        return Err(LdapResult::with(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, text));
    }
    // RFC 2891 section 1.2: a client whose control is not critical gets the answer unsorted, and a code that says so.
    let unsorted = SortResponse { code: ResultCode::UNWILLING_TO_PERFORM, attribute: None };
    let is_unsorted = controls.sort.is_some() && unheeded.contains(&oid::SORT_REQUEST);
    let response_controls = is_unsorted.then(|| unsorted.to_control(false)).into_iter().collect();
    let mut remaining = Vec::new();
    for control in sent.iter().filter(|control| !unheeded.contains(&control.oid)) {
        control.to_owned().encode(&mut remaining);
    }
    let controls = controls.with(|values| {
        let is_heeded = |oid| !unheeded.contains(&oid);
        values.paged = values.paged.take().filter(|_| is_heeded(oid::PAGED_RESULTS));
        values.sort = values.sort.take().filter(|_| is_heeded(oid::SORT_REQUEST));
        values.vlv = values.vlv.take().filter(|_| is_heeded(oid::VLV_REQUEST));
        values.assertion = values.assertion.take().filter(|_| is_heeded(oid::ASSERTION));
        values.sent = remaining;
    });
    Ok((controls, response_controls))
}

/// A look-up by the identity that sent the request.
fn by<'a>(context: &Context<'a>) -> Lookup<'a> {
    Lookup::By(context.subject.dn.as_ref())
}

impl Backend for Meta {
    fn open(&self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        let refused = |result: LdapResult| Box::new((result, Vec::new()));
        let Search { request, base, controls, message } = search;
        let has_filters = self.targets.iter().any(|target| !target.filters.is_empty());
        let filter = if has_filters { request.filter.to_string() } else { String::new() };
        let candidates: Vec<(&Target, &NormalDn, Scope)> = self
            .targets
            .iter()
            .filter(|target| target.takes(&filter))
            .filter_map(|target| {
                target.candidate(base, request.scope).map(|(base, scope)| (target, base, scope))
            })
            .collect();
        let open = |(target, base, scope): (&Target, &NormalDn, Scope), controls| {
            let request = larix_proto::SearchRequest { scope, ..request };
            // What the request says is not the base where the search begins at the suffix of the target.
            let opened =
                target.backend.open(context, Search { request, base: &base.clone(), controls, message });
            opened.map(|cursor| self.noting(target, context.subject.dn.as_ref(), cursor))
        };
        match candidates.as_slice() {
            [] => Err(refused(self.nowhere(base))),
            [one] if one.1 == base || controls.assertion.is_none() => open(*one, controls),
            // An assertion is about the base, which is above this target.
            [one] => open(*one, without(&[oid::ASSERTION], &controls).map_err(refused)?.0),
            several => {
                let (controls, response_controls) = without(OF_THE_WHOLE, &controls).map_err(refused)?;
                let mut merged =
                    MergedSearch::new(self.on_error, request.size_limit, self.above(base), response_controls);
                for candidate in several {
                    let is_moved = candidate.1 != base;
                    merged.add(open(*candidate, controls.clone()), is_moved)?;
                }
                Ok(Box::new(merged))
            }
        }
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End> {
        match self.holder(compare.dn, by(context)) {
            Ok(target) => target.backend.compare(context, compare, later),
            Err(refused) => Reply::Now((refused, Vec::new())),
        }
    }

    fn bind(&self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        match self.holder(bind.dn, Lookup::Bind) {
            Ok(target) => target.backend.bind(context, bind, later),
            // Which names are served is not told to who binds.
            Err(_) => Reply::Now(LdapResult::new(ResultCode::INVALID_CREDENTIALS).into()),
        }
    }

    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        match self.holder(change.dn, by(context)) {
            Ok(target) => target.backend.modify_password(context, change, later),
            Err(refused) => Reply::Now(refused.into()),
        }
    }

    fn extended(
        &self,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        match self.holder(request.dn, by(context)) {
            Ok(target) => target.backend.extended(context, request, later),
            Err(refused) => Reply::Now(refused.into()),
        }
    }

    fn update(&self, context: &Context<'_>, changes: Changes, completion: Completion) -> PendingAnswer {
        let refused = match changes {
            Changes::One(request, Some(dn)) => {
                let requester = context.subject.dn.as_ref();
                match self.holder_of_change(&request.operation, &dn, requester) {
                    Ok(target) => {
                        let leaves = matches!(
                            request.operation,
                            WriteOperation::Delete { .. } | WriteOperation::ModifyDn { .. }
                        );
                        if let Some(known) = self.known.as_ref().filter(|_| leaves) {
                            known.forget(&dn);
                        }
                        return target.backend.update(context, Changes::One(request, Some(dn)), completion);
                    }
                    Err(refused) => refused,
                }
            }
            Changes::One(..) => LdapResult::invalid_dn(),
            Changes::Together(_) => {
                let text = "a meta database takes no transactions: its targets commit each for itself";
                LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text)
            }
        };
        answer_now(completion, refused)
    }

    fn policy(&self, _: &NormalDn) -> Option<Arc<AccessPolicy>> {
        Some(Arc::clone(&self.policy))
    }

    fn announce(&self, announced: &mut Announcement) {
        announced.naming_contexts.extend(self.suffixes.iter().cloned());
    }
}
