//! Changes of what is stored here, which is part of entries that the remote server has.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use larix_backend::memory_tree::MemoryTree;
use larix_backend::{Done, PasswordChangeOutcome, PendingAnswer, answer_now};
use larix_engine::access::AccessPolicy;
use larix_engine::controls::{ControlValues, RequestControls};
use larix_engine::entry::split_rdn;
use larix_engine::time::Clock;
use larix_engine::write::{
    AttributeValues, Completion, Latitude, Modification, Origin, WriteOperation, WriteOutcome, WriteRequest,
    prepare,
};
use larix_proto::{LdapResult, ModifyOperation, Response, ResultCode, frames, limits};
use larix_schema::{AttributeDescription, NormalDn, Schema};

use super::Settings;
use super::local::{LocalEntries, LocalEntry, LocalPasswordChange};
use super::overlaid::Overlaid;
use super::search::SearchContext;
use crate::identity::Asker;
use crate::lookup::{self, LookupResult};

/// Superiors of one entry that are made for it.
const GLUE_MAX: usize = 64;
/// How often a change is tried whose search_context has changed meanwhile.
const TRIES_MAX: u8 = 4;

/// What it takes to change what is stored here.
#[derive(Clone, Debug)]
pub(super) struct Changing {
    pub(super) local: Arc<dyn LocalEntries>,
    pub(super) schema: Arc<Schema>,
    pub(super) suffixes: Vec<NormalDn>,
    pub(super) settings: Settings,
    pub(super) clock: Arc<dyn Clock>,
}

impl Changing {
    /// A change by the server itself.
    fn own(&self, operation: WriteOperation) -> WriteRequest {
        WriteRequest {
            operation,
            subject: self.local.root(),
            controls: RequestControls::default(),
            origin: Origin::Internal,
            passwords: None,
        }
    }

    /// Adds of the entries that are missing here from the suffix down to this name, and with it if `inclusive`.
    fn glue(&self, shown: &str, dn: &NormalDn, inclusive: bool) -> Result<Vec<WriteRequest>, LdapResult> {
        let (mut missing, mut text, mut name) = (Vec::new(), shown, Some(dn.clone()));
        if !inclusive {
            (text, name) = (split_rdn(text).1, dn.parent());
        }
        while let Some(superior) = name {
            if !self.suffixes.iter().any(|suffix| superior.is_within(suffix))
                || self.local.entry(&superior)?.is_some()
            {
                break;
            }
            if missing.len() == GLUE_MAX {
                let text =
                    format!("more than {GLUE_MAX} superiors are missing here: add the upper ones first");
                return Err(LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text));
            }
            let values = vec![b"top".to_vec(), b"glue".to_vec()];
            let classes = AttributeValues { description: "objectClass".to_owned(), values };
            missing.push(self.own(WriteOperation::Add { entry: text.to_owned(), attributes: vec![classes] }));
            (text, name) = (split_rdn(text).1, superior.parent());
        }
        missing.reverse();
        Ok(missing)
    }

    /// Carries out a change with the superiors that it needs. `plan` is asked anew where another change has made one of them first.
    fn carry_out(self, plan: Plan, tries: u8, done: Completion) {
        let planned = match plan(&self) {
            Ok(planned) => planned,
            Err(result) => return done(result.into()),
        };
        let Some((glue, request)) = planned else { return done(LdapResult::success().into()) };
        let count = glue.len();
        let local = Arc::clone(&self.local);
        let requests = glue.into_iter().chain([request]).collect();
        local.change(
            requests,
            Box::new(move |outcome| {
                let raced = outcome.refused.is_some_and(|at| at < count)
                    && outcome.result.code == ResultCode::ENTRY_ALREADY_EXISTS;
                match raced && tries < TRIES_MAX {
                    true => self.carry_out(plan, tries + 1, done),
                    false => done(WriteOutcome { refused: None, ..outcome }),
                }
            }),
        );
    }

    /// An add, or a move below a new superior.
    pub(super) fn with_superiors(
        self,
        request: WriteRequest,
        place: (String, NormalDn),
        inclusive: bool,
        done: Completion,
    ) {
        let plan: Plan = Box::new(move |changing| {
            let glue = changing.glue(&place.0, &place.1, inclusive)?;
            Ok(Some((glue, request.clone())))
        });
        self.carry_out(plan, 1, done);
    }

    /// A modify of an entry that the remote server has: what it changes becomes values here.
    pub(super) fn modify(
        self,
        search_context: &SearchContext,
        asker: &Asker,
        (request, dn): (WriteRequest, NormalDn),
        done: Completion,
    ) -> PendingAnswer {
        let WriteOperation::Modify { changes, .. } = &request.operation else {
            return answer_now(done, LdapResult::with(ResultCode::OTHER, "no modify"));
        };
        // What is removed may lead to no change here: the database does not check it then.
        let latitude = Latitude {
            relax: request.controls.relax,
            internal: request.origin == Origin::Internal,
            ..Latitude::default()
        };
        let prepared = prepare(&self.schema, request.operation.clone(), &NormalDn::root(), latitude);
        if let Err(refused) = prepared {
            return answer_now(done, refused);
        }
        let removes = |change: &&Modification| is_removal(change);
        let mut names: Vec<String> =
            changes.iter().filter(removes).map(|change| change.attribute.description.clone()).collect();
        if request.controls.assertion.is_some() {
            names = vec!["*".to_owned(), "+".to_owned()];
        } else if names.is_empty() {
            names.push("1.1".to_owned());
        }
        let cursor = match search_context.ask_for_one(asker, (&dn, request.controls.hops), &names) {
            Ok(cursor) => cursor,
            Err(refused) => return answer_now(done, refused),
        };
        let (clock, policy) = (Arc::clone(&self.clock), Arc::clone(&search_context.policy));
        let then = move |found: LookupResult| match found {
            Err(result) => done(result.into()),
            Ok(None) => done(no_entry().into()),
            Ok(Some(found)) => {
                let remote_attributes = attributes(&self.schema, &found);
                let plan: Plan = Box::new(move |changing| {
                    changing.check_assertion(&policy, &request, &dn, &found)?;
                    changing.plan_modify(&request, &dn, &remote_attributes)
                });
                self.carry_out(plan, 1, done);
            }
        };
        lookup::read(Box::new(cursor), clock, Box::new(then))
    }

    /// Judges the assertion control's filter by the entry as clients see it: the database knows a part alone.
    ///
    /// # Errors
    /// assertionFailed (RFC 4528).
    fn check_assertion(
        &self,
        policy: &AccessPolicy,
        request: &WriteRequest,
        dn: &NormalDn,
        found: &[u8],
    ) -> Result<(), LdapResult> {
        if request.controls.assertion.is_none() {
            return Ok(());
        }
        let stored = self.local.entry(dn)?;
        let tree = MemoryTree::empty(&self.schema, policy, &request.subject);
        let is_true = frames(found, limits::PDU_CEILING).any(|message| {
            let Ok(decoded) = Response::decode_message(message) else { return false };
            let Response::Entry(remote) = &decoded.response else { return false };
            let overlaid = Overlaid::new(&self.schema, remote, stored.as_ref().map(|stored| &stored.entry));
            tree.is_as_asserted(dn, &overlaid.entry(), &request.controls)
        });
        match is_true {
            true => Ok(()),
            false => Err(LdapResult::new(ResultCode::ASSERTION_FAILED)),
        }
    }

    fn plan_modify(
        &self,
        request: &WriteRequest,
        dn: &NormalDn,
        remote_attributes: &HashSet<AttributeDescription>,
    ) -> Planned {
        let WriteOperation::Modify { object, changes } = &request.operation else { return Ok(None) };
        let operation = match self.local.entry(dn)? {
            Some(stored) => {
                let changes = self.changes_of_stored(&stored, changes, remote_attributes)?;
                match changes.is_empty() {
                    true => return Ok(None),
                    false => WriteOperation::Modify { object: object.clone(), changes },
                }
            }
            None => match self.new_values(changes)? {
                attributes if attributes.is_empty() => return Ok(None),
                attributes => WriteOperation::Add { entry: object.clone(), attributes },
            },
        };
        let is_new = matches!(operation, WriteOperation::Add { .. });
        // As in OpenLDAP, a modify makes superiors even with translucent_no_glue.
        let glue = if is_new { self.glue(object, dn, false)? } else { Vec::new() };
        // It was judged by the whole entry.
        let controls = request.controls.with(ControlValues::leave_assertion_out);
        Ok(Some((glue, WriteRequest { operation, controls, ..request.clone() })))
    }

    /// The changes of an entry that is stored here. An attribute that is not here is as the remote server has it, and cannot be
    /// removed.
    fn changes_of_stored(
        &self,
        stored: &LocalEntry,
        changes: &[Modification],
        remote_attributes: &HashSet<AttributeDescription>,
    ) -> Result<Vec<Modification>, LdapResult> {
        // What an earlier change of the same request brings is here for a later one.
        let mut local_attributes: HashSet<AttributeDescription> =
            stored.entry.attributes.iter().map(|attribute| attribute.description.clone()).collect();
        let mut local_changes = Vec::with_capacity(changes.len());
        for change in changes {
            let described = self.schema.describe(&change.attribute.description).ok();
            // What the schema does not know, the database refuses.
            let is_local =
                described.as_ref().is_none_or(|description| local_attributes.contains(description));
            if is_local {
                local_changes.push(change.clone());
                continue;
            }
            if is_removal(change) {
                let is_remote =
                    described.as_ref().is_some_and(|description| remote_attributes.contains(description));
                if !is_remote && change.operation == ModifyOperation::Delete {
                    let text = "attempt to delete nonexistent attribute";
                    return Err(LdapResult::with(ResultCode::NO_SUCH_ATTRIBUTE, text));
                }
                if self.settings.strict {
                    return Err(cannot_hide());
                }
                continue;
            }
            local_attributes.extend(described);
            local_changes.push(change.clone());
        }
        Ok(local_changes)
    }

    /// The values that a modify brings to an entry that is not stored here yet.
    fn new_values(&self, changes: &[Modification]) -> Result<Vec<AttributeValues>, LdapResult> {
        if self.settings.strict && changes.iter().any(is_removal) {
            return Err(cannot_hide());
        }
        let mut attributes: Vec<AttributeValues> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for change in changes.iter().filter(|change| !is_removal(change)) {
            if change.operation == ModifyOperation::Increment {
                let text = "only a value that is stored here can be incremented: replace it first";
                return Err(LdapResult::with(ResultCode::NO_SUCH_ATTRIBUTE, text));
            }
            let AttributeValues { description, values } = &change.attribute;
            let described = self.schema.describe(description);
            let name = described.map_or_else(|_| description.clone(), |own| own.to_text(&self.schema));
            let known = places.get(&name).and_then(|at| attributes.get_mut(*at));
            match known {
                Some(known) if change.operation == ModifyOperation::Replace => {
                    known.values.clone_from(values)
                }
                Some(known) => known.values.extend(values.iter().cloned()),
                None => {
                    places.insert(name, attributes.len());
                    attributes.push(change.attribute.clone());
                }
            }
        }
        Ok(attributes)
    }

    /// The password of an entry that the remote server has becomes one here. Rights were judged before.
    pub(super) fn first_password(
        self,
        search_context: &SearchContext,
        (asker, hops): (&Asker, u8),
        change: LocalPasswordChange,
        done: Done<PasswordChangeOutcome>,
    ) -> PendingAnswer {
        let cursor = match search_context.ask_for_one(asker, (&change.dn, hops), &["1.1".to_owned()]) {
            Ok(cursor) => cursor,
            Err(refused) => return answer_now(done, refused),
        };
        let clock = Arc::clone(&self.clock);
        let then = move |found: LookupResult| match found {
            Err(result) => done(result.into()),
            Ok(None) => done(no_entry().into()),
            Ok(Some(_)) => {
                let (target, dn) = (change.target.clone(), change.dn.clone());
                let plan: Plan = Box::new(move |changing| {
                    if changing.local.entry(&dn)?.is_some() {
                        return Ok(None);
                    }
                    let glue = changing.glue(&target, &dn, false)?;
                    let entry = WriteOperation::Add { entry: target.clone(), attributes: Vec::new() };
                    Ok(Some((glue, changing.own(entry))))
                });
                let local = Arc::clone(&self.local);
                let begun = move |outcome: WriteOutcome| match outcome.result.code {
                    ResultCode::SUCCESS | ResultCode::ENTRY_ALREADY_EXISTS => {
                        local.modify_password(change, done)
                    }
                    _ => done(outcome.into()),
                };
                self.carry_out(plan, 1, Box::new(begun));
            }
        };
        lookup::read(Box::new(cursor), clock, Box::new(then))
    }
}

/// What is to be done: superiors to add, and the change itself; none where nothing is.
type Planned = Result<Option<(Vec<WriteRequest>, WriteRequest)>, LdapResult>;

/// Looks at what is stored, and says what is to be done.
type Plan = Box<dyn Fn(&Changing) -> Planned + Send>;

/// Whether a change takes an attribute, or values of it, away and brings none.
fn is_removal(change: &Modification) -> bool {
    match change.operation {
        ModifyOperation::Delete => true,
        ModifyOperation::Replace => change.attribute.values.is_empty(),
        _ => false,
    }
}

fn no_entry() -> LdapResult {
    LdapResult::with(
        ResultCode::NO_SUCH_OBJECT,
        "attempt to modify an entry that the remote server does not have",
    )
}

fn cannot_hide() -> LdapResult {
    let text = "attempt to delete attributes that only the remote server has (translucent_strict)";
    LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text)
}

/// The attributes that the remote server has of an entry.
fn attributes(schema: &Schema, found: &[u8]) -> HashSet<AttributeDescription> {
    let mut all = HashSet::new();
    for message in frames(found, limits::PDU_CEILING) {
        if let Ok(Response::Entry(entry)) = Response::decode_message(message).map(|decoded| decoded.response)
        {
            all.extend(entry.attributes.iter().filter_map(|a| schema.describe(a.description).ok()));
        }
    }
    all
}
