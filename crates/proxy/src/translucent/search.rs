//! A search: entries of the remote server with what is stored here over them.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use larix_backend::memory_tree::{MemoryTree, OneByOne};
use larix_backend::{Cursor, Effort, OUTPUT_HIGH, StepOutcome, lowered};
use larix_engine::access::AccessPolicy;
use larix_engine::controls::RequestControls;
use larix_engine::entry::EntryId;
use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_engine::time::Monotonic;
use larix_proto::{
    DerefAliases, FilterBuf, LdapResult, MessageId, Response, ResultCode, Scope, frames, limits,
};
use larix_schema::{NormalDn, Schema};

use super::local::{LocalEntry, StoredEntries};
use super::overlaid::{EntrySelection, Overlaid, laid_over};
use super::split::Mentioned;
use crate::identity::Asker;
use crate::lookup;
use crate::proxy::Proxy;
use crate::search::{Judge, OutgoingSearch, TargetCursor};

/// Stored entries whose remote part has been answered already, kept so that none is answered twice.
const ANSWERED_MAX: usize = 1_000_000;
/// Bytes of names of stored entries that wait to be looked up.
const NAMES_BYTES: usize = 16 * 1024;
/// How long the remote server may say nothing about one entry, unless its settings say how long.
const PATIENCE: Duration = Duration::from_secs(60);

/// What all parts of a search need.
#[derive(Debug)]
pub(super) struct SearchContext {
    pub(super) proxy: Arc<Proxy>,
    pub(super) stored: Arc<dyn StoredEntries>,
    pub(super) schema: Arc<Schema>,
    /// The database's rules, for the filter. What may be read of entries is judged in front of the overlay.
    pub(super) policy: Arc<AccessPolicy>,
    /// Lets everything through.
    pub(super) open_policy: Arc<AccessPolicy>,
}

/// What the client has asked for.
#[derive(Debug)]
pub(super) struct ClientSearch {
    pub(super) search: OneByOne,
    pub(super) mentioned: Mentioned,
    /// The client's list of attributes, and the one that the remote server is asked for.
    pub(super) names: Vec<String>,
    pub(super) remote_names: Vec<String>,
    pub(super) types_only: bool,
    pub(super) message: MessageId,
    pub(super) asker: Asker,
    pub(super) hops: u8,
    /// Where the search begins, unless the remote server is asked for what it finds there.
    pub(super) base: Option<NormalDn>,
    pub(super) size_limit: Option<u32>,
    /// Seconds.
    pub(super) time_limit: Option<u32>,
}

impl ClientSearch {
    /// The list that the remote server is asked for: the client's, and what the filter is about, since that may have to be judged here.
    pub(super) fn remote_names(
        schema: &Schema,
        names: &[String],
        search: &OneByOne,
        mentioned: &Mentioned,
    ) -> Vec<String> {
        let is_there = |name: &String| match schema.describe(name) {
            Ok(description) => search.selects(schema, &description),
            Err(_) => names.iter().any(|known| known.eq_ignore_ascii_case(name)),
        };
        let extra: Vec<String> = mentioned.names.iter().filter(|name| !is_there(name)).cloned().collect();
        match (names.is_empty(), extra.is_empty()) {
            (_, true) => names.to_vec(),
            (true, false) => std::iter::once("*".to_owned()).chain(extra).collect(),
            // `1.1` stands alone.
            (false, false) => {
                names.iter().filter(|name| *name != NO_ATTRIBUTES).cloned().chain(extra).collect()
            }
        }
    }
}

/// RFC 4511 section 4.5.1.8.
const NO_ATTRIBUTES: &str = "1.1";

/// A search under way: first what the remote server finds, then what is found here.
#[derive(Debug)]
pub(super) struct Translucent {
    context: SearchContext,
    client_search: ClientSearch,
    /// Until it has ended.
    remote: Option<TargetCursor>,
    /// Every entry of the remote server is judged by the whole filter: it was asked for a part alone.
    judges_all: bool,
    /// Entries have more than the client asked for.
    writes_anew: bool,
    /// Candidates that are stored here, until they have ended.
    candidates: Option<Box<dyn Cursor>>,
    waiting: VecDeque<NormalDn>,
    fetching: Option<Fetching>,
    /// Whether the remote server has the base.
    base_lookup: Option<TargetCursor>,
    answered: HashSet<EntryId>,
    buffer: Vec<u8>,
    sent: u64,
    looked: u64,
    follower: Option<Arc<Follower>>,
}

/// A stored entry whose other part is being read.
#[derive(Debug)]
struct Fetching {
    cursor: TargetCursor,
    stored: LocalEntry,
    messages: Vec<u8>,
}

/// A cursor over an entry and all that may be below it as the remote server is asked for it.
pub(super) struct RemoteSearch<'a> {
    pub(super) base: &'a str,
    pub(super) normal: &'a NormalDn,
    pub(super) scope: Scope,
    pub(super) deref: DerefAliases,
    pub(super) filter: larix_proto::Filter<'a>,
    pub(super) names: &'a [String],
    pub(super) time_limit: Option<u32>,
    pub(super) controls: &'a RequestControls,
    pub(super) message: MessageId,
}

impl SearchContext {
    /// # Errors
    /// A request that has come through too many proxies; somebody who may not be asserted.
    pub(super) fn ask(&self, asker: &Asker, search: &RemoteSearch<'_>) -> Result<TargetCursor, LdapResult> {
        let attributes: Vec<&str> = search.names.iter().map(String::as_str).collect();
        let outgoing = OutgoingSearch {
            base: search.base,
            normal: search.normal,
            scope: search.scope,
            deref: search.deref,
            // Entries are counted here: some may not match once they are whole.
            size_limit: 0,
            time_limit: search.time_limit.unwrap_or(0),
            types_only: false,
            filter: search.filter,
            attributes: &attributes,
            controls: search.controls,
            message: search.message,
        };
        let judge = Judge::new(&self.proxy, (&self.schema, &self.open_policy), asker, &outgoing);
        TargetCursor::new(&self.proxy, asker, &outgoing, judge)
    }

    /// One entry.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub(super) fn ask_for_one(
        &self,
        asker: &Asker,
        (dn, hops): (&NormalDn, u8),
        names: &[String],
    ) -> Result<TargetCursor, LdapResult> {
        let every = FilterBuf::every_entry();
        let controls = RequestControls::default().with(|values| values.hops = hops);
        let mut cursor = self.ask(
            asker,
            &RemoteSearch {
                base: dn.as_str(),
                normal: dn,
                scope: Scope::Base,
                deref: DerefAliases::Never,
                filter: every.as_filter(),
                names,
                time_limit: None,
                controls: &controls,
                message: MessageId(1),
            },
        )?;
        cursor.be_patient_at_most(PATIENCE);
        Ok(cursor)
    }
}

/// The answer where the search has met its limit of entries.
fn too_many() -> LdapResult {
    LdapResult::new(ResultCode::SIZE_LIMIT_EXCEEDED)
}

impl Translucent {
    /// `candidates`: a search of the local database for names alone.
    pub(super) fn new(
        context: SearchContext,
        client_search: ClientSearch,
        remote: Option<TargetCursor>,
        candidates: Option<Box<dyn Cursor>>,
    ) -> Self {
        let has_more = client_search.remote_names != client_search.names;
        let writes_anew = has_more || client_search.types_only || client_search.search.is_about_values();
        Self {
            context,
            client_search,
            judges_all: candidates.is_some(),
            writes_anew,
            remote,
            candidates,
            waiting: VecDeque::new(),
            fetching: None,
            base_lookup: None,
            answered: HashSet::new(),
            buffer: Vec::new(),
            sent: 0,
            looked: 0,
            follower: None,
        }
    }

    fn is_full(&self) -> bool {
        self.client_search.size_limit.is_some_and(|limit| self.sent >= u64::from(limit))
    }

    /// Passes an answer of the remote server on; the result with which the search ends here.
    fn pass(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), LdapResult> {
        let decoded = Response::decode_message(message).ok();
        let Some(Response::Entry(entry)) = decoded.as_ref().map(|decoded| &decoded.response) else {
            out.extend_from_slice(message);
            return Ok(());
        };
        self.looked += 1;
        let dn = self.context.schema.parse_dn(entry.dn).ok();
        let stored = match &dn {
            Some(dn) => self.context.stored.entry(dn)?,
            None => None,
        };
        if let Some(stored) = stored.as_ref().filter(|_| self.candidates.is_some()) {
            if self.answered.len() >= ANSWERED_MAX {
                let text = "too many stored entries to tell which were answered; use a narrower filter";
                return Err(LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text));
            }
            self.answered.insert(stored.id);
        }
        self.answer(message, dn.as_ref(), stored.as_ref(), self.judges_all, out)
    }

    /// Appends an entry with what is stored of it here, if the filter is true of both together. Unless all are judged, the remote
    /// server's word stands where nothing is stored here that the filter asks about.
    fn answer(
        &mut self,
        message: &[u8],
        dn: Option<&NormalDn>,
        stored: Option<&LocalEntry>,
        judges: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), LdapResult> {
        let Ok(decoded) = Response::decode_message(message) else { return Ok(()) };
        let Response::Entry(remote) = &decoded.response else { return Ok(()) };
        let (schema, client_search) = (&*self.context.schema, &self.client_search);
        let is_plain = stored.is_none() && !judges && !self.writes_anew;
        let overlaid = (!is_plain).then(|| Overlaid::new(schema, remote, stored.map(|stored| &stored.entry)));
        if let Some(overlaid) = &overlaid {
            let mut parts = stored.into_iter().flat_map(|stored| laid_over(schema, &stored.entry));
            if judges || parts.any(|own| client_search.mentioned.has(&own.description)) {
                let Some(dn) = dn else { return Ok(()) };
                if !self.is_true_of(dn, overlaid)? {
                    return Ok(());
                }
            }
        }
        if self.is_full() {
            return Err(too_many());
        }
        match overlaid {
            Some(overlaid) => {
                let controls: Vec<_> = decoded.controls.iter().map(|control| control.to_owned()).collect();
                let selection = EntrySelection {
                    schema,
                    search: &client_search.search,
                    names: &client_search.names,
                    mentioned: &client_search.mentioned,
                    types_only: client_search.types_only,
                };
                overlaid.write(&selection, (client_search.message, &controls), out);
            }
            None => out.extend_from_slice(message),
        }
        self.sent += 1;
        Ok(())
    }

    fn is_true_of(&self, dn: &NormalDn, overlaid: &Overlaid<'_>) -> Result<bool, LdapResult> {
        let tree =
            MemoryTree::empty(&self.context.schema, &self.context.policy, &self.client_search.asker.subject);
        let judged = self.client_search.search.is_true_of(&tree, dn, &overlaid.entry());
        judged.map_err(|fault| fault.to_result())
    }

    /// Takes the next step; none: there is more to do.
    fn go_on(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Result<Option<StepOutcome>, LdapResult> {
        if self.remote.is_some() {
            return self.go_on_there(budget, out);
        }
        if self.fetching.is_some() {
            return self.fetch(budget, out);
        }
        if let Some(dn) = self.waiting.pop_front() {
            self.begin_fetch(&dn)?;
            return Ok(None);
        }
        if self.candidates.is_some() {
            return self.go_on_here(budget);
        }
        if self.base_lookup.is_some() {
            return self.look_up_base(budget);
        }
        Ok(Some(StepOutcome::Done(LdapResult::success(), Vec::new())))
    }

    fn go_on_there(
        &mut self,
        budget: Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<StepOutcome>, LdapResult> {
        let Some(remote) = &mut self.remote else { return Ok(None) };
        let room = budget.bytes.saturating_sub(out.len());
        let mut buffer = std::mem::take(&mut self.buffer);
        let slice = remote.step(Budget { bytes: room, ..budget }, &mut buffer);
        let passed = frames(&buffer, limits::PDU_CEILING).try_for_each(|message| self.pass(message, out));
        buffer.clear();
        self.buffer = buffer;
        passed?;
        let StepOutcome::Done(result, controls) = slice else { return Ok(Some(slice)) };
        self.remote = None;
        if result.code == ResultCode::SUCCESS && self.candidates.is_some() {
            return Ok(None);
        }
        Ok(Some(StepOutcome::Done(result, controls)))
    }

    /// Looks for names that are stored here.
    fn go_on_here(&mut self, budget: Budget<'_>) -> Result<Option<StepOutcome>, LdapResult> {
        let Some(candidates) = &mut self.candidates else { return Ok(None) };
        let mut buffer = std::mem::take(&mut self.buffer);
        let slice = candidates.step(Budget { bytes: NAMES_BYTES, ..budget }, &mut buffer);
        let schema = &self.context.schema;
        let names = frames(&buffer, limits::PDU_CEILING).filter_map(entry_name);
        self.waiting.extend(names.filter_map(|dn| schema.parse_dn(dn).ok()));
        buffer.clear();
        self.buffer = buffer;
        match slice {
            StepOutcome::Done(result, _) => {
                self.candidates = None;
                match result.code {
                    ResultCode::SUCCESS => Ok(None),
                    // Nothing is stored there.
                    ResultCode::NO_SUCH_OBJECT => self.ask_for_base().map(|()| None),
                    _ => Err(result),
                }
            }
            slice if self.waiting.is_empty() => Ok(Some(slice)),
            _ => Ok(None),
        }
    }

    /// Asks the remote server whether it has the base, unless it was asked for what is there.
    fn ask_for_base(&mut self) -> Result<(), LdapResult> {
        let client_search = &self.client_search;
        let Some(base) = &client_search.base else { return Ok(()) };
        let place = (base, client_search.hops);
        let mut cursor =
            self.context.ask_for_one(&client_search.asker, place, &[NO_ATTRIBUTES.to_owned()])?;
        if let Some(follower) = &self.follower {
            cursor.follow(Arc::clone(follower));
        }
        self.base_lookup = Some(cursor);
        Ok(())
    }

    fn look_up_base(&mut self, budget: Budget<'_>) -> Result<Option<StepOutcome>, LdapResult> {
        let Some(lookup) = &mut self.base_lookup else { return Ok(None) };
        self.buffer.clear();
        let slice = lookup.step(Budget { bytes: NAMES_BYTES, ..budget }, &mut self.buffer);
        self.buffer.clear();
        let StepOutcome::Done(result, _) = slice else { return Ok(Some(slice)) };
        self.base_lookup = None;
        match result.code {
            // A referral leads away from this server, and nothing is stored there.
            ResultCode::SUCCESS | ResultCode::REFERRAL => Ok(None),
            _ => Err(result),
        }
    }

    fn begin_fetch(&mut self, dn: &NormalDn) -> Result<(), LdapResult> {
        let Some(stored) = self.context.stored.entry(dn)? else { return Ok(()) };
        self.looked += 1;
        if self.answered.contains(&stored.id) {
            return Ok(());
        }
        let client_search = &self.client_search;
        let mut cursor = self.context.ask_for_one(
            &client_search.asker,
            (dn, client_search.hops),
            &client_search.remote_names,
        )?;
        if let Some(follower) = &self.follower {
            cursor.follow(Arc::clone(follower));
        }
        self.fetching = Some(Fetching { cursor, stored, messages: Vec::new() });
        Ok(())
    }

    fn fetch(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Result<Option<StepOutcome>, LdapResult> {
        let Some(fetching) = &mut self.fetching else { return Ok(None) };
        let bytes = fetching.messages.len() + OUTPUT_HIGH;
        let end = match fetching.cursor.step(Budget { bytes, ..budget }, &mut fetching.messages) {
            StepOutcome::Done(result, controls) => (result, controls),
            StepOutcome::More if fetching.messages.len() > lookup::ENTRY_BYTES_MAX => {
                return Err(lookup::too_large());
            }
            goes_on => return Ok(Some(goes_on)),
        };
        let Some(Fetching { stored, messages: found, .. }) = self.fetching.take() else { return Ok(None) };
        // What the remote server has no longer is not shown.
        let Some(found) = lookup::outcome(end, found)? else { return Ok(None) };
        let dn = self.context.schema.parse_dn(&stored.entry.dn).ok();
        let is_entry = |message: &&[u8]| entry_name(message).is_some();
        if let Some(message) = frames(&found, limits::PDU_CEILING).find(is_entry) {
            self.answer(message, dn.as_ref(), Some(&stored), true, out)?;
        }
        Ok(None)
    }

    fn finish(&mut self, result: LdapResult) -> StepOutcome {
        (self.remote, self.candidates, self.fetching, self.base_lookup) = (None, None, None, None);
        self.waiting.clear();
        StepOutcome::Done(result, Vec::new())
    }
}

fn entry_name(message: &[u8]) -> Option<&str> {
    match Response::decode_message(message).ok()?.response {
        Response::Entry(entry) => Some(entry.dn),
        _ => None,
    }
}

impl Cursor for Translucent {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        while out.len() < budget.bytes {
            match self.go_on(budget, out) {
                Ok(None) => {}
                Ok(Some(slice)) => return slice,
                Err(result) => return self.finish(result),
            }
        }
        StepOutcome::More
    }

    fn effort(&self) -> Effort {
        Effort { entries: self.sent, candidates: self.looked }
    }

    fn waits(&self) -> bool {
        true
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        if let Some(remote) = &mut self.remote {
            remote.follow(Arc::clone(&follower));
        }
        self.follower = Some(follower);
    }

    fn deadline(&self) -> Option<Monotonic> {
        self.client_search.time_limit.map(|seconds| self.client_search.asker.began.plus_seconds(seconds))
    }

    fn pause(&mut self) {
        self.candidates.iter_mut().for_each(|candidates| candidates.pause());
    }

    fn size_limit(&self) -> Option<u32> {
        self.client_search.size_limit
    }

    fn limit_size(&mut self, entries: u32) {
        self.client_search.size_limit = lowered(self.client_search.size_limit, entries);
    }
}
