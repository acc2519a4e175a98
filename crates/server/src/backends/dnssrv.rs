//! `database dnssrv`: nothing is kept here; requests are referred to the servers that the DNS names for the domain in their DN
//! (slapd-dnssrv(5), RFC 3088).

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larix_engine::access::{AccessPolicy, Item, Privilege, Subject};
use larix_engine::entry::Entry;
use larix_engine::log::Follower;
use larix_engine::search::referral;
use larix_engine::search::task::Budget;
use larix_engine::time::Monotonic;
use larix_engine::write::{Completion, WriteOutcome};
use larix_proto::encode::search_reference;
use larix_proto::{LdapResult, MessageId, ResultCode, Scope};
use larix_schema::NormalDn;

use super::Common;
use crate::clock::SystemRandom;
use crate::resolver::{DOMAIN_BYTES_MAX, LookupReply, Resolution, Ticket, is_label};
use crate::virtual_entries::Builder;
use larix_backend::memory_tree::{MemoryTree, OneByOne};
use larix_backend::{
    Announcement, AnsweredSearch, Backend, Bind, Changes, Compare, Context, Cursor, Effort, End, Later,
    PasswordChange, PasswordChangeOutcome, PendingAnswer, Proof, Reply, Search, StepOutcome, Verdict,
    answer_now, answered_by, lowered,
};

/// How long a request waits for the DNS, in seconds: longer than a lookup takes, which may have to wait for its turn.
const PATIENCE: u32 = 15;

/// The database.
#[derive(Debug)]
pub(crate) struct DnsReferrals {
    pub(crate) common: Arc<Common>,
    pub(crate) policy: Arc<AccessPolicy>,
    /// The name servers that are asked; none: those of the machine.
    pub(crate) servers: Arc<[SocketAddr]>,
    pub(crate) naming_contexts: Vec<String>,
}

/// The domain that a name is in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Domain {
    /// `example.com`
    name: String,
    /// `dc=example,dc=com`
    dn: NormalDn,
}

impl Domain {
    /// The domain of a name: its last RDNs, as far as they are `dc` (RFC 2247). None of a name without, or with a `dc` that is no label.
    fn of(dn: &NormalDn) -> Option<Self> {
        let label = |rdn: &[u8]| rdn.strip_prefix(b"dc=").map(<[u8]>::to_vec);
        let labels: Vec<Vec<u8>> = dn.rdns().rev().map_while(label).collect();
        let above = dn.depth() - labels.len();
        let is_domain = !labels.is_empty() && labels.iter().all(|label| is_label(label));
        let labels = labels.iter().rev().map(|label| String::from_utf8_lossy(label));
        let name = labels.collect::<Vec<_>>().join(".");
        let dn = dn.ancestor(above)?;
        (is_domain && name.len() <= DOMAIN_BYTES_MAX).then_some(Self { name, dn })
    }
}

/// What a request makes of what is known of its domain.
#[derive(Debug)]
struct ReferralRequest {
    common: Arc<Common>,
    /// The name of the request, as the client sent it.
    target: String,
    scope: Option<Scope>,
}

impl ReferralRequest {
    /// The URLs of the domain's servers.
    ///
    /// # Errors
    /// There are none; no name server has answered.
    fn urls(&self, resolution: &Resolution) -> Result<Vec<String>, LdapResult> {
        let hosts = resolution.as_ref().map_err(|failure| {
            if let Some(why) = failure.news() {
                self.common.services.log.notice(format_args!("database dnssrv: {why}"));
            }
            LdapResult::with(ResultCode::UNAVAILABLE, "no name server has said who serves the domain")
        })?;
        let urls = hosts.urls(&SystemRandom);
        match urls.is_empty() {
            true => Err(LdapResult::with(ResultCode::NO_SUCH_OBJECT, "no DNS SRV RR available for DN")),
            false => Ok(urls),
        }
    }

    /// The URLs for the name of the request.
    fn referrals(&self, resolution: &Resolution) -> Result<Vec<String>, LdapResult> {
        let schema = &self.common.config.schema;
        Ok(referral::rewrite(schema, &self.urls(resolution)?, None, Some(&self.target), self.scope))
    }

    fn result(&self, resolution: &Resolution) -> LdapResult {
        match self.referrals(resolution) {
            Ok(referrals) => {
                let text = "DNS SRV generated referrals";
                LdapResult { referrals, ..LdapResult::with(ResultCode::REFERRAL, text) }
            }
            Err(refused) => refused,
        }
    }
}

/// How a search goes on when its domain is known.
#[derive(Debug)]
enum SearchAnswer {
    Referral,
    /// Of a search that began in a database above.
    Reference(MessageId),
    /// The entry of the domain (RFC 3296), for who manages it.
    Entry(Box<EntryAnswer>),
}

#[derive(Debug)]
struct EntryAnswer {
    policy: Arc<AccessPolicy>,
    subject: Arc<Subject>,
    search: OneByOne,
    domain: Domain,
    /// The entry itself is in the scope.
    is_in_scope: bool,
}

impl EntryAnswer {
    /// Appends the entry, if it is found; how many were appended.
    fn write(
        &self,
        referral_request: &ReferralRequest,
        resolution: &Resolution,
        limit: Option<u32>,
        out: &mut Vec<u8>,
    ) -> Result<u64, LdapResult> {
        let dn = &self.domain.dn;
        let urls = referral_request.urls(resolution)?;
        let schema = &referral_request.common.config.schema;
        let urls = referral::rewrite(schema, &urls, Some(dn.as_str()), None, None);
        let entry = Builder::new(schema, dn.as_str())
            .add("objectClass", ["referral", "extensibleObject"])
            .named()
            .one("associatedDomain", self.domain.name.clone())
            .add("ref", urls)
            .build();
        let tree = MemoryTree::empty(schema, &self.policy, &self.subject);
        let finds = || self.search.finds(&tree, dn, &entry).map_err(|fault| fault.to_result());
        if !self.is_in_scope || !finds()? {
            return Ok(0);
        }
        if limit == Some(0) {
            return Err(LdapResult::new(ResultCode::SIZE_LIMIT_EXCEEDED));
        }
        self.search.write(&tree, dn, &entry, out);
        Ok(1)
    }
}

impl SearchAnswer {
    fn answer(
        &self,
        referral_request: &ReferralRequest,
        resolution: &Resolution,
        limit: Option<u32>,
    ) -> AnsweredSearch {
        let (mut messages, mut entries) = (Vec::new(), 0);
        let result = match self {
            Self::Referral => referral_request.result(resolution),
            Self::Reference(message) => match referral_request.referrals(resolution) {
                Ok(urls) => {
                    search_reference(&mut messages, *message, &urls, &[]);
                    LdapResult::success()
                }
                Err(refused) => refused,
            },
            Self::Entry(answer) => match answer.write(referral_request, resolution, limit, &mut messages) {
                Ok(count) => {
                    entries = count;
                    LdapResult::success()
                }
                Err(refused) => refused,
            },
        };
        AnsweredSearch { messages, result, entries }
    }
}

impl DnsReferrals {
    /// The domain that a request is about.
    ///
    /// # Errors
    /// There is none, or the requester may not know of it.
    fn domain(
        &self,
        context: &Context<'_>,
        dn: &NormalDn,
        (target, scope): (&str, Option<Scope>),
    ) -> Result<Domain, LdapResult> {
        if dn.is_root() {
            let text = "DNS SRV operation upon null (empty) DN disallowed";
            return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
        }
        let missing = LdapResult::new(ResultCode::NO_SUCH_OBJECT);
        // Nobody is asked for whom nothing may be disclosed to.
        if !self.allows(context, dn, Privilege::Disclose) {
            return Err(missing);
        }
        Domain::of(dn).ok_or_else(|| self.common.directory.elsewhere(target, scope, missing))
    }

    fn allows(&self, context: &Context<'_>, dn: &NormalDn, privilege: Privilege) -> bool {
        let tree = MemoryTree::empty(&self.common.config.schema, &self.policy, context.subject);
        tree.allows(dn, &Entry::new(dn.as_str()), Item::Entry, privilege)
    }

    fn find(
        &self,
        context: &Context<'_>,
        domain: &Domain,
        then: &mut dyn FnMut() -> Box<dyn FnOnce(Resolution) + Send>,
    ) -> LookupReply {
        let peer = &context.subject.peer.peer_name;
        self.common.services.resolver.find(&self.servers, (&domain.name, peer), then)
    }

    /// Answers with a referral, now or later.
    fn refer<T: 'static>(
        &self,
        context: &Context<'_>,
        (dn, target): (&NormalDn, &str),
        later: Later<'_, T>,
        answer: fn(LdapResult) -> T,
    ) -> Reply<T> {
        let domain = match self.domain(context, dn, (target, None)) {
            Ok(domain) => domain,
            Err(refused) => return Reply::Now(answer(refused)),
        };
        let referral_request =
            || ReferralRequest { common: Arc::clone(&self.common), target: target.to_owned(), scope: None };
        let reply = self.find(context, &domain, &mut || {
            let (referral_request, done) = (referral_request(), later());
            Box::new(move |resolution: Resolution| done(answer(referral_request.result(&resolution))))
        });
        match reply {
            LookupReply::Now(resolution) => Reply::Now(answer(referral_request().result(&resolution))),
            LookupReply::Busy => Reply::Now(answer(busy())),
            LookupReply::Later(ticket) => Reply::Later(PendingAnswer {
                deadline: Some(context.began.plus_seconds(PATIENCE)),
                give_up: Some(Box::new(move || ticket.give_up())),
            }),
        }
    }

    /// How a search is answered that may be.
    ///
    /// # Errors
    /// What it is answered without a look at the DNS.
    fn search_answer(
        &self,
        context: &Context<'_>,
        search: &Search<'_>,
        domain: &Domain,
    ) -> Result<SearchAnswer, LdapResult> {
        let (common, request, dn) = (&self.common, &search.request, search.base);
        if !search.controls.manage_dsa_it {
            // Below a database that this one is glued to, the base is not what the request says.
            let is_own = common.config.schema.parse_dn(request.base).is_ok_and(|own| own == *dn);
            return Ok(if is_own { SearchAnswer::Referral } else { SearchAnswer::Reference(search.message) });
        }
        if domain.dn != *dn {
            return Err(LdapResult::new(ResultCode::NO_SUCH_OBJECT).matched(domain.dn.as_str().to_owned()));
        }
        if !self.allows(context, dn, Privilege::Search) {
            return Err(LdapResult::new(ResultCode::INSUFFICIENT_ACCESS_RIGHTS));
        }
        let limits = &common.config.global.request_limits;
        let one_by_one =
            OneByOne::new(&common.config.schema, limits, request, &search.controls, search.message)?;
        Ok(SearchAnswer::Entry(Box::new(EntryAnswer {
            policy: Arc::clone(&self.policy),
            subject: Arc::clone(context.subject),
            search: one_by_one,
            domain: domain.clone(),
            is_in_scope: dn.is_in_scope(dn, request.scope),
        })))
    }

    fn begin(&self, context: &Context<'_>, search: &Search<'_>) -> Result<Box<dyn Cursor>, LdapResult> {
        let request = &search.request;
        let domain = self.domain(context, search.base, (request.base, Some(request.scope)))?;
        let search_answer = self.search_answer(context, search, &domain)?;
        let is_own = !matches!(search_answer, SearchAnswer::Reference(_));
        let target = if is_own { request.base } else { search.base.as_str() };
        let (common, scope) = (Arc::clone(&self.common), Some(request.scope));
        let referral_request = ReferralRequest { common, target: target.to_owned(), scope };
        let slot = Arc::<Slot>::default();
        let reply = self.find(context, &domain, &mut || {
            let slot = Arc::clone(&slot);
            Box::new(move |resolution: Resolution| slot.fill(resolution))
        });
        let ticket = match reply {
            LookupReply::Now(resolution) => {
                slot.fill(resolution);
                None
            }
            LookupReply::Later(ticket) => Some(ticket),
            LookupReply::Busy => return Err(busy()),
        };
        let patience = context.began.plus_seconds(PATIENCE);
        let own = context.began.with_limit(request.time_limit);
        Ok(Box::new(DnsSearch {
            slot,
            ticket,
            referral_request,
            search_answer,
            deadline: own.map_or(patience, |own| own.min(patience)),
            size_limit: (request.size_limit > 0).then_some(request.size_limit),
            entries: 0,
        }))
    }
}

fn busy() -> LdapResult {
    LdapResult::with(ResultCode::BUSY, "too many domains are looked for")
}

/// What is known of the domain of a search, and whom to tell when it is.
#[derive(Debug, Default)]
struct Slot(Mutex<(Option<Resolution>, Option<Arc<Follower>>)>);

impl Slot {
    fn lock(&self) -> MutexGuard<'_, (Option<Resolution>, Option<Arc<Follower>>)> {
        // Each change of it is whole before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self, resolution: Resolution) {
        let mut slot = self.lock();
        slot.0 = Some(resolution);
        let follower = slot.1.clone();
        drop(slot);
        follower.into_iter().for_each(|follower| follower.tell());
    }
}

/// A search that waits until its domain is known.
struct DnsSearch {
    slot: Arc<Slot>,
    /// None: nobody is asked.
    ticket: Option<Ticket>,
    referral_request: ReferralRequest,
    search_answer: SearchAnswer,
    deadline: Monotonic,
    size_limit: Option<u32>,
    entries: u64,
}

impl fmt::Debug for DnsSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DnsSearch").field("search_answer", &self.search_answer).finish_non_exhaustive()
    }
}

impl Cursor for DnsSearch {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        let follower = self.slot.lock().1.clone();
        // Before it is looked for: another part of the same search may have told the follower.
        follower.into_iter().for_each(|follower| follower.looks());
        let Some(resolution) = self.slot.lock().0.take() else { return StepOutcome::Waiting };
        let mut answered = self.search_answer.answer(&self.referral_request, &resolution, self.size_limit);
        self.entries = answered.entries;
        answered.step(budget, out)
    }

    fn effort(&self) -> Effort {
        Effort { entries: self.entries, candidates: self.entries }
    }

    fn waits(&self) -> bool {
        true
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        let mut slot = self.slot.lock();
        let is_known = slot.0.is_some();
        slot.1 = Some(Arc::clone(&follower));
        drop(slot);
        if is_known {
            follower.tell();
        }
    }

    fn deadline(&self) -> Option<Monotonic> {
        Some(self.deadline)
    }

    fn size_limit(&self) -> Option<u32> {
        self.size_limit
    }

    fn limit_size(&mut self, entries: u32) {
        self.size_limit = lowered(self.size_limit, entries);
    }
}

impl Drop for DnsSearch {
    fn drop(&mut self) {
        self.ticket.take().into_iter().for_each(Ticket::give_up);
    }
}

impl Backend for DnsReferrals {
    fn open(&self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        self.begin(context, &search).map_err(|refused| Box::new((refused, Vec::new())))
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End> {
        if compare.controls.manage_dsa_it {
            let text = "Operation not supported within naming context";
            return Reply::Now((LdapResult::with(ResultCode::OTHER, text), Vec::new()));
        }
        self.refer(context, (compare.dn, compare.request.entry), later, |result| (result, Vec::new()))
    }

    fn bind(&self, _: &Context<'_>, bind: &Bind<'_>, _: Later<'_, Verdict>) -> Reply<Verdict> {
        Reply::Now(match bind.proof {
            Proof::Judged(true) => LdapResult::success().into(),
            Proof::Judged(false) => LdapResult::new(ResultCode::INVALID_CREDENTIALS).into(),
            Proof::Password(_) => {
                let text = "you shouldn't send strangers your password";
                LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into()
            }
        })
    }

    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        self.refer(context, (change.dn, &change.target), later, PasswordChangeOutcome::from)
    }

    fn update(&self, context: &Context<'_>, changes: Changes, done: Completion) -> PendingAnswer {
        let Changes::One(request, dn) = changes else {
            let text = "`database dnssrv` makes no changes together";
            return answer_now(done, LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
        };
        if request.controls.manage_dsa_it {
            let text = "DNS SRV problem processing manageDSAit control";
            return answer_now(done, LdapResult::with(ResultCode::OTHER, text));
        }
        let Some(dn) = dn else {
            return answer_now(done, LdapResult::invalid_dn());
        };
        let target = request.operation.target();
        answered_by(done, |later| self.refer(context, (&dn, target), later, WriteOutcome::from))
    }

    fn policy(&self, _: &NormalDn) -> Option<Arc<AccessPolicy>> {
        Some(Arc::clone(&self.policy))
    }

    fn announce(&self, announced: &mut Announcement) {
        announced.naming_contexts.extend_from_slice(&self.naming_contexts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_of_a_name() {
        let label = "a".repeat(63);
        let long = format!("dc={}", [label.as_str(); 4].join(",dc="));
        let three = format!("dc={}", [label.as_str(); 3].join(",dc="));
        for (dn, expected) in [
            ("dc=example,dc=com", Some(("example.com", "dc=example,dc=com"))),
            ("uid=ann,ou=people,dc=example,dc=com", Some(("example.com", "dc=example,dc=com"))),
            ("dc=a,ou=b,dc=example,dc=com", Some(("example.com", "dc=example,dc=com"))),
            ("dc=com", Some(("com", "dc=com"))),
            (&three, Some((&*three[3..].replace(",dc=", "."), &*three))),
            ("", None),
            ("o=example", None),
            ("dc=com,o=example", None),
            ("dc=a.b,dc=com", None),
            ("dc=a\\2Cb,dc=com", None),
            ("dc=a+uid=b,dc=com", None),
            (&long, None),
        ] {
            let domain = Domain::of(&NormalDn::from_normal(dn));
            let found = domain.as_ref().map(|domain| (&*domain.name, domain.dn.as_str()));
            assert_eq!(found, expected, "{dn}");
        }
    }
}
