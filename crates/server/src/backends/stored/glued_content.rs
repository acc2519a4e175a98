//! The part of a consumer's content that other servers keep, in databases that are glued below.
//!
//! A refresh reads all of it, with the rights and the filter of the consumer's search. After that each change that is made through this
//! server is sent, as the other server has the entry then. What cannot be told so ends the search: the consumer comes again, and its next
//! refresh brings all of it. See ADR 0105.

use std::collections::VecDeque;
use std::sync::Arc;

use larix_backend::{
    Below, ChangedEntry, Context, Cursor, HeardChanges, KeptContext, KeptSearch, Search, StepOutcome,
};
use larix_engine::controls::{ControlValues, RequestControls};
use larix_engine::log::Follower;
use larix_engine::search::synchronised::state_control;
use larix_engine::search::task::Budget;
use larix_engine::time::{Clock, Monotonic};
use larix_proto::control::EntryState;
use larix_proto::encode::EntryEncoder;
use larix_proto::{
    ControlBuf, DerefAliases, LdapResult, MessageId, Response, ResultCode, Scope, SearchRequest,
    SearchResultEntry, frames, limits, oid,
};
use larix_schema::{NormalDn, Schema};
use uuid::Uuid;

use super::sent_names::{SENT_MAX, SentNames};

/// How long a changed entry may take to be read.
const LOOKUP_SECONDS: u32 = 60;
/// How long the other server may be silent in a refresh.
const SILENCE_SECONDS: u32 = 300;

const ENTRY_UUID: &str = "entryUUID";
const ENTRY_UUID_OID: &str = "1.3.6.1.1.16.4";
/// Of the other server's content as a whole: of no meaning in a copy of entries.
const OF_THE_SERVER: [&str; 2] = ["contextCSN", "auditContext"];

/// How far it has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    More,
    /// Nothing can be done until something wakes the follower.
    Waiting,
    /// All was sent that was gathered.
    End,
}

/// The part of one search.
#[derive(Debug)]
pub(super) struct GluedContent {
    parts: Vec<GluedDatabase>,
    context: KeptContext,
    schema: Arc<Schema>,
    clock: Arc<dyn Clock>,
    follower: Option<Arc<Follower>>,
    form: EntryForm,
    /// The next part of the refresh.
    at: usize,
    running: Option<Running>,
    /// Changes to be looked at, each with the number of its part.
    pending: VecDeque<(usize, ChangedEntry)>,
    /// None: the search does not go on with changes.
    sent: Option<SentNames>,
    /// What a server has answered, before it is sent on.
    buffer: Vec<u8>,
    entries: u64,
    /// Since when a server says nothing.
    silent: Option<Monotonic>,
}

/// The entries of one database.
#[derive(Debug)]
struct GluedDatabase {
    suffix: NormalDn,
    scope: Scope,
    search: KeptSearch,
    changes: Arc<HeardChanges>,
}

/// How entries are sent.
#[derive(Debug)]
struct EntryForm {
    message: MessageId,
    /// The consumer has not asked for it.
    drops_uuid: bool,
    types_only: bool,
    /// Beside each entry.
    cookie: Option<String>,
}

/// A search on its way.
#[derive(Debug)]
struct Running {
    cursor: Box<dyn Cursor>,
    /// The number of its part.
    part: usize,
    /// Of an entry that was changed; none of a refresh.
    changed: Option<Lookup>,
}

#[derive(Debug)]
struct Lookup {
    before: NormalDn,
    now: NormalDn,
    is_tree: bool,
    found: bool,
}

/// What a consumer's search has of other servers; built while the search begins.
pub(super) struct Builder<'s, 'a> {
    search: &'s Search<'a>,
    parts: Vec<GluedDatabase>,
    names: Vec<String>,
    drops_uuid: bool,
}

impl<'s, 'a> Builder<'s, 'a> {
    pub(super) fn new(search: &'s Search<'a>) -> Self {
        let mut names: Vec<String> = search.request.attributes.iter().map(str::to_owned).collect();
        let is_uuid =
            |name: &String| name == "+" || name.eq_ignore_ascii_case(ENTRY_UUID) || name == ENTRY_UUID_OID;
        let drops_uuid = !names.iter().any(is_uuid);
        if drops_uuid {
            if names.is_empty() {
                names.push("*".to_owned());
            }
            // `1.1` stands alone.
            names.retain(|name| name != "1.1");
            names.push(ENTRY_UUID.to_owned());
        }
        Self { search, parts: Vec::new(), names, drops_uuid }
    }

    /// Takes in a database below, if its entries are part of the content: from now on its changes are heard.
    pub(super) fn add(&mut self, (backend, suffix, scope): Below<'_>) {
        let Some(teller) = backend.change_teller() else { return };
        let changes = teller.listen();
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let request = SearchRequest {
            base: suffix.as_str(),
            scope,
            deref: DerefAliases::Never,
            types_only: false,
            ..self.search.request
        };
        // Referrals are entries, as in what is stored here.
        let whole = ControlBuf { oid: oid::MANAGE_DSA_IT.into(), critical: false, value: None };
        let hops = self.search.controls.hops;
        let controls = RequestControls::default().with(|values: &mut ControlValues| {
            (values.manage_dsa_it, values.hops) = (true, hops);
            whole.encode(&mut values.sent);
        });
        let search = Search { request, base: suffix, controls, message: self.search.message };
        let search = KeptSearch::asking(search, &names);
        self.parts.push(GluedDatabase { suffix: suffix.clone(), scope, search, changes });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// `persist`: the search goes on with changes. `cookie` goes with each entry.
    pub(super) fn build(
        self,
        context: &Context<'_>,
        (schema, clock): (Arc<Schema>, Arc<dyn Clock>),
        (persist, cookie): (bool, Option<String>),
    ) -> GluedContent {
        let form = EntryForm {
            message: self.search.message,
            drops_uuid: self.drops_uuid,
            types_only: self.search.request.types_only,
            cookie,
        };
        GluedContent {
            parts: self.parts,
            context: KeptContext::new(context, &clock),
            schema,
            clock,
            follower: None,
            form,
            at: 0,
            running: None,
            pending: VecDeque::new(),
            sent: persist.then(|| SentNames::new(SENT_MAX)),
            buffer: Vec::new(),
            entries: 0,
            silent: None,
        }
    }
}

impl GluedContent {
    pub(super) fn follow(&mut self, follower: &Arc<Follower>) {
        for part in &self.parts {
            part.changes.follow(Arc::clone(follower));
        }
        self.follower = Some(Arc::clone(follower));
    }

    /// Entries that were sent.
    pub(super) const fn entries(&self) -> u64 {
        self.entries
    }

    /// When it ends although it waits.
    pub(super) fn deadline(&self) -> Option<Monotonic> {
        self.silent.and_then(|since| since.with_limit(SILENCE_SECONDS))
    }

    /// Sends all of it.
    ///
    /// # Errors
    /// A server that does not answer, or does not answer everything.
    pub(super) fn refresh(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Result<Progress, LdapResult> {
        loop {
            if out.len() >= budget.bytes {
                return Ok(Progress::More);
            }
            if self.running.is_none() {
                if self.at >= self.parts.len() {
                    return Ok(Progress::End);
                }
                let cursor = self.open(self.at, None)?;
                self.running = Some(Running { cursor, part: self.at, changed: None });
            }
            match self.step(budget, out)? {
                Progress::End => self.at += 1,
                goes_on => return Ok(goes_on),
            }
        }
    }

    /// Whether something that was gathered was not sent yet.
    pub(super) fn is_busy(&self) -> bool {
        let looks_up = self.running.as_ref().is_some_and(|running| running.changed.is_some());
        looks_up || !self.pending.is_empty()
    }

    /// Takes up what was heard of changes until now.
    ///
    /// # Errors
    /// Not all was heard: the consumer has to come again.
    pub(super) fn gather(&mut self) -> Result<(), LdapResult> {
        for (at, part) in self.parts.iter().enumerate() {
            let changes = part.changes.take().map_err(search_again)?;
            self.pending.extend(changes.into_iter().map(|changed| (at, changed)));
        }
        Ok(())
    }

    /// Sends the changes that were gathered.
    ///
    /// # Errors
    /// A change that cannot be told: the consumer has to come again.
    pub(super) fn persist(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Result<Progress, LdapResult> {
        loop {
            if out.len() >= budget.bytes {
                return Ok(Progress::More);
            }
            if self.running.is_none() && !self.begin_lookup()? {
                return Ok(Progress::End);
            }
            if self.running.is_some() {
                match self.step(budget, out)? {
                    Progress::End => {}
                    goes_on => return Ok(goes_on),
                }
            }
        }
    }

    /// Looks at the next change; whether there was one.
    fn begin_lookup(&mut self) -> Result<bool, LdapResult> {
        let Some((at, changed)) = self.pending.pop_front() else { return Ok(false) };
        let ChangedEntry { dn, renamed, is_tree, is_certain } = changed;
        let Some(part) = self.parts.get(at) else { return Ok(false) };
        let is_renamed = renamed.is_some();
        let mut now = renamed.unwrap_or_else(|| dn.clone());
        let is_within = |dn: &NormalDn| dn.is_in_scope(&part.suffix, part.scope);
        if !(is_within(&dn) || is_within(&now)) {
            return Ok(true);
        }
        let Some(sent) = &self.sent else { return Ok(true) };
        if is_renamed {
            if sent.has_below(&dn) || !sent.are_all() {
                return Err(search_again("an entry was renamed with those below it: search again"));
            }
            if !is_certain {
                // It has the one name or the other.
                let other = std::mem::replace(&mut now, dn.clone());
                let other = ChangedEntry { dn: other, renamed: None, is_tree: false, is_certain };
                self.pending.push_front((at, other));
            }
        }
        let cursor = self.open(at, Some(&now))?;
        let changed = Some(Lookup { before: dn, now, is_tree, found: false });
        self.running = Some(Running { cursor, part: at, changed });
        Ok(true)
    }

    /// A search in one part: of all of it, or of one entry.
    fn open(&mut self, at: usize, entry: Option<&NormalDn>) -> Result<Box<dyn Cursor>, LdapResult> {
        let gone = || search_again("the databases were changed: search again");
        let Some(part) = self.parts.get(at) else { return Err(gone()) };
        let Some(Search { mut request, base, controls, message }) = part.search.search() else {
            return Err(gone());
        };
        if let Some(dn) = entry {
            (request.base, request.scope) = (dn.as_str(), Scope::Base);
            (request.size_limit, request.time_limit) = (0, LOOKUP_SECONDS);
        }
        let search = Search { request, base: entry.unwrap_or(base), controls, message };
        self.context.begin_anew();
        let opened = self.context.with(|context| {
            let backend = context.router.backend(&part.suffix)?;
            Some(backend.open(context, search))
        });
        let mut cursor = match opened.flatten() {
            Some(opened) => opened.map_err(|end| unread(&part.suffix, &end.0))?,
            None => return Err(gone()),
        };
        if let Some(follower) = &self.follower {
            cursor.follow(Arc::clone(follower));
        }
        Ok(cursor)
    }

    /// Goes on with the search that is on its way.
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Result<Progress, LdapResult> {
        let Some(mut running) = self.running.take() else { return Ok(Progress::End) };
        let mut buffer = std::mem::take(&mut self.buffer);
        let slice = running.cursor.step(budget, &mut buffer);
        // Changes of this server wake the search as well: only what the other server says counts.
        if !(buffer.is_empty() && matches!(slice, StepOutcome::Waiting)) {
            self.silent = None;
        }
        for message in frames(&buffer, limits::PDU_CEILING) {
            let Ok(decoded) = Response::decode_message(message) else { continue };
            if let Response::Entry(entry) = decoded.response {
                self.send(&entry, &mut running, out)?;
            }
        }
        buffer.clear();
        self.buffer = buffer;
        let result = match slice {
            StepOutcome::More => {
                self.running = Some(running);
                return Ok(Progress::More);
            }
            StepOutcome::Waiting => {
                self.silent.get_or_insert_with(|| self.clock.monotonic());
                self.running = Some(running);
                return Ok(Progress::Waiting);
            }
            StepOutcome::Done(result, _) => result,
        };
        // What is not there is no fault of a server.
        if !matches!(result.code, ResultCode::SUCCESS | ResultCode::NO_SUCH_OBJECT) {
            let suffix = self.parts.get(running.part).map(|part| &part.suffix);
            return Err(suffix.map_or_else(|| result.clone(), |suffix| unread(suffix, &result)));
        }
        if let Some(Lookup { before, is_tree, found: false, .. }) = running.changed {
            self.is_gone((&before, is_tree), out)?;
        }
        Ok(Progress::End)
    }

    /// Sends an entry.
    fn send(
        &mut self,
        entry: &SearchResultEntry<'_>,
        running: &mut Running,
        out: &mut Vec<u8>,
    ) -> Result<(), LdapResult> {
        let Some(uuid) = entry_uuid(entry) else {
            let text = format!(
                "the entry \"{}\", which another server keeps, has no entryUUID that may be read: no copy of it can be kept",
                entry.dn
            );
            return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
        };
        let mut state = EntryState::Add;
        if let (Some(lookup), Some(sent)) = (&mut running.changed, &mut self.sent) {
            lookup.found = true;
            let previous = sent.remove(&lookup.before);
            let replaced = if lookup.now == lookup.before { None } else { sent.remove(&lookup.now) };
            for other in previous.iter().chain(&replaced).filter(|other| **other != uuid) {
                self.form.write_delete(&lookup.before, *other, out);
            }
            if previous.iter().chain(&replaced).any(|previous| *previous == uuid) {
                state = EntryState::Modify;
            }
            sent.insert(&lookup.now, uuid);
        } else if let Some(sent) = &mut self.sent
            && let Ok(dn) = self.schema.parse_dn(entry.dn)
        {
            sent.insert(&dn, uuid);
        }
        self.form.write_entry(entry, (state, uuid), out);
        self.entries += 1;
        Ok(())
    }

    /// An entry is not part of the content any more.
    fn is_gone(&mut self, (dn, is_tree): (&NormalDn, bool), out: &mut Vec<u8>) -> Result<(), LdapResult> {
        let Some(sent) = &mut self.sent else { return Ok(()) };
        if sent.has_below(dn) || is_tree && !sent.are_all() {
            return Err(search_again("an entry is gone with those below it: search again"));
        }
        match sent.remove(dn) {
            Some(uuid) => {
                self.form.write_delete(dn, uuid, out);
                self.entries += 1;
                Ok(())
            }
            None if sent.are_all() => Ok(()),
            None => Err(search_again("what is gone is not known any more: search again")),
        }
    }
}

impl EntryForm {
    fn control(&self, state: EntryState, uuid: Uuid) -> ControlBuf {
        state_control(state, uuid, self.cookie.as_deref())
    }

    fn write_entry(
        &self,
        entry: &SearchResultEntry<'_>,
        (state, uuid): (EntryState, Uuid),
        out: &mut Vec<u8>,
    ) {
        let mut encoder = EntryEncoder::begin(out, self.message, entry.dn);
        for attribute in entry.attributes.iter() {
            let is = |name: &str| attribute.description.eq_ignore_ascii_case(name);
            if OF_THE_SERVER.into_iter().any(is) || self.drops_uuid && is(ENTRY_UUID) {
                continue;
            }
            encoder.begin_attribute(attribute.description);
            if !self.types_only {
                attribute.values.iter().for_each(|value| encoder.value(value));
            }
            encoder.end_attribute();
        }
        encoder.finish(&[self.control(state, uuid)]);
    }

    fn write_delete(&self, dn: &NormalDn, uuid: Uuid, out: &mut Vec<u8>) {
        EntryEncoder::begin(out, self.message, dn.as_str()).finish(&[self.control(EntryState::Delete, uuid)]);
    }
}

fn entry_uuid(entry: &SearchResultEntry<'_>) -> Option<Uuid> {
    let is_uuid = |name: &str| name.eq_ignore_ascii_case(ENTRY_UUID) || name == ENTRY_UUID_OID;
    let attribute = entry.attributes.iter().find(|attribute| is_uuid(attribute.description))?;
    let value = attribute.values.iter().next()?;
    Uuid::try_parse_ascii(value).ok()
}

/// The consumer has to come again.
fn search_again(why: &str) -> LdapResult {
    LdapResult::with(ResultCode::UNAVAILABLE, why)
}

/// What another server keeps could not be read.
fn unread(suffix: &NormalDn, result: &LdapResult) -> LdapResult {
    search_again(&format!("what another server keeps below \"{suffix}\" could not be read: {result}"))
}
