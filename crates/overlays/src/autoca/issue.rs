//! The overlay in front of its database: a search for keys waits until they are made.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use larix_backend::{
    Changes, Context, Cursor, Effort, End, Interceptor, Next, Operations, Search, StepOutcome,
};
use larix_engine::Entry;
use larix_engine::access::Subject;
use larix_engine::controls::{ControlValues, RequestControls};
use larix_engine::log::Follower;
use larix_engine::overlay::internal_search::{InternalLimits, InternalSearch, Whose};
use larix_engine::search::task::Budget;
use larix_engine::time::Monotonic;
use larix_engine::write::{
    AttributeValues, Completion, Modification, Origin, WriteOperation, WriteOutcome, WriteRequest,
};
use larix_proto::{LdapResult, ModifyOperation, ResultCode, Scope, SearchRequest};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn};

use super::authority::{Authority, CertificateRequest, Issued};
use super::certificate::Purpose;
use super::internal_backend::{InternalBackend, Moment};
use super::{NO_AUTHORITY, NO_KEY, Rules, SuffixAuthority, filter, keeping};

/// Entries that get keys by one search. The next one goes on.
const ISSUED_MAX: usize = 100;
/// Candidates that one search looks at for entries without keys.
const LOOKED_AT_MAX: u32 = 10_000;
/// Names and addresses in one certificate.
const NAMES_MAX: usize = 64;
/// True of a configuration without authorities that clients' certificates are judged by.
const NO_AUTHORITIES: &str =
    "(!(|(olcTLSCACertificate;binary=*)(olcTLSCACertificateFile=*)(olcTLSCACertificatePath=*)))";

/// The overlay in front of one database.
#[derive(Debug)]
pub(super) struct Issuer {
    rules: Arc<Rules>,
    /// There is an authority, as far as is known.
    has_authority: AtomicBool,
}

/// What has to be stored before a search.
#[derive(Debug)]
struct Work {
    /// In the suffix entry, before all others.
    authority: Option<WriteOperation>,
    /// Entries that get keys.
    wanting: Vec<(NormalDn, Entry)>,
}

impl Issuer {
    pub(super) fn new(rules: Rules) -> Self {
        Self { rules: Arc::new(rules), has_authority: AtomicBool::new(false) }
    }

    /// Whether the request is for a key and its certificate, and for nothing else.
    fn asks_for_keys(&self, request: &SearchRequest<'_>) -> bool {
        let mut names = request.attributes.iter();
        let is_binary = |name: &str| name.to_ascii_lowercase().ends_with(";binary");
        let mut is = |description: &AttributeDescription| {
            names.next().is_some_and(|name| {
                is_binary(name) && self.rules.schema.describe(name).is_ok_and(|asked| asked == *description)
            })
        };
        is(&self.rules.certificate) && is(&self.rules.key) && names.next().is_none()
    }

    /// Whether it asks about the suffix entry while no authority is known.
    fn is_first(&self, search: &Search<'_>) -> bool {
        !self.has_authority.load(Ordering::Relaxed) && *search.base == self.rules.suffix
    }

    /// What has to be stored before the search; none if it goes on as any other.
    fn work(&self, next: Next<'_>, context: &Context<'_>, search: &Search<'_>) -> Result<Option<Work>, End> {
        let requests_keys = self.asks_for_keys(&search.request) && context.subject.dn.is_some();
        let is_first = self.is_first(search);
        if !(requests_keys || is_first)
            || search.controls.sync.is_some()
            || search.controls.persistent.is_some()
        {
            return Ok(None);
        }
        let failed = |_| (LdapResult::internal_error(), Vec::new());
        let rules = &*self.rules;
        let wanting =
            if requests_keys { self.wanting(next, context, search).map_err(failed)? } else { Vec::new() };
        if wanting.is_empty() && !is_first {
            return Ok(None);
        }
        let Some(suffix) = entry(next, context, &rules.suffix).map_err(failed)? else { return Ok(None) };
        if rules.has(&suffix, &rules.authority_key) {
            self.has_authority.store(true, Ordering::Relaxed);
            let work = Work { authority: None, wanting };
            return Ok(Some(work).filter(|work| !work.wanting.is_empty()));
        }
        match rules.authority(&rules.schema, &suffix, context.clock.now()) {
            Ok(SuffixAuthority::Made(operation)) => {
                // One try is enough: where changes are refused, the authority has to come from elsewhere.
                self.has_authority.store(true, Ordering::Relaxed);
                Ok(Some(Work { authority: Some(operation), wanting }))
            }
            Ok(SuffixAuthority::Usable(..)) => Ok(None),
            Err(_) if wanting.is_empty() => Ok(None),
            Err(why) => Err((LdapResult::with(ResultCode::OTHER, format!("autoca: {why}")), Vec::new())),
        }
    }

    /// The users and servers without a key that the search finds, if the requester is the root DN or the entry itself.
    fn wanting(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        search: &Search<'_>,
    ) -> Result<Vec<(NormalDn, Entry)>, larix_engine::Fault> {
        let rules = &*self.rules;
        let Some(own) = &context.subject.dn else { return Ok(Vec::new()) };
        let (base, scope) = match rules.root_dn.0 == *own {
            true => (search.base, search.request.scope),
            // It alone may get a key.
            false if own.is_in_scope(search.base, search.request.scope) => (own, Scope::Base),
            false => return Ok(Vec::new()),
        };
        let client_filter = rules.schema.bind_filter(search.request.filter);
        let query = InternalSearch::new(base, scope, &client_filter);
        let limits = InternalLimits { candidates: LOOKED_AT_MAX, ..InternalLimits::default() };
        let query = InternalSearch { manage_dsa_it: false, subentries: false, limits, ..query };
        let mut wanting = Vec::new();
        next.find(context, &query.of(Whose::Requester(context.subject)), &mut |found| {
            let entry = found.owned()?;
            let is = |class| rules.is_of(&rules.schema, &entry, class);
            if (is(rules.user_class) || is(rules.server_class)) && !rules.has(&entry, &rules.key) {
                wanting.push((found.dn()?.clone(), entry));
            }
            Ok(wanting.len() < ISSUED_MAX)
        })?;
        Ok(wanting)
    }

    /// The root DN, for whom the changes are made.
    fn root(&self, context: &Context<'_>) -> Arc<Subject> {
        let inside = Subject::anonymous(Arc::clone(&context.subject.peer), context.subject.strength);
        let (normal, shown) = &self.rules.root_dn;
        Arc::new(inside.bound_as(normal.clone(), shown))
    }

    /// Begins to store all of it. The cursor waits for that.
    fn begin(
        &self,
        context: &Context<'_>,
        work: Work,
        inner: Box<dyn Cursor>,
    ) -> Result<Box<dyn Cursor>, LdapResult> {
        let Work { authority, wanting } = work;
        let place = |name: &NormalDn| {
            let mount = context.router.mounts().iter().find(|mount| mount.suffixes.contains(name))?;
            let moment = Moment { now: context.clock.now(), monotonic: context.clock.monotonic() };
            Some(InternalBackend { backend: Arc::clone(&mount.backend), moment })
        };
        let lost = || LdapResult::with(ResultCode::OTHER, "autoca: no database has the suffix");
        let own = place(&self.rules.suffix).ok_or_else(lost)?;
        // The server's own certificate is set there.
        let configuration =
            self.rules.local.as_ref().and_then(|_| place(&NormalDn::from_normal("cn=config")));
        let progress = Arc::new(Progress::default());
        // For this one here.
        progress.pending.store(1, Ordering::SeqCst);
        let subject = self.root(context);
        let job = Job {
            rules: Arc::clone(&self.rules),
            own: own.clone(),
            configuration,
            subject: Arc::clone(&subject),
            progress: Arc::clone(&progress),
            wanting,
        };
        match authority {
            None => job.go(),
            Some(operation) => {
                let request = request(operation, NO_AUTHORITY, &subject)?;
                let done: Completion = Box::new(move |outcome: WriteOutcome| {
                    if !job.wanting.is_empty() {
                        job.progress.note(&outcome.result);
                    }
                    // Where another one was made meanwhile, that one signs.
                    job.go();
                });
                own.update(&subject, Changes::One(request, Some(self.rules.suffix.clone())), done);
            }
        }
        Ok(Box::new(Waiting { inner, progress }))
    }
}

fn request(
    operation: WriteOperation,
    condition: &str,
    subject: &Arc<Subject>,
) -> Result<WriteRequest, LdapResult> {
    let assertion = Some(filter(condition)?);
    let controls = RequestControls::from(ControlValues { assertion, ..ControlValues::default() });
    let subject = Arc::clone(subject);
    Ok(WriteRequest { operation, subject, controls, origin: Origin::Client, passwords: None })
}

/// Makes keys for entries and has them stored, on the thread of the request or on the writer's.
struct Job {
    rules: Arc<Rules>,
    own: InternalBackend,
    configuration: Option<InternalBackend>,
    subject: Arc<Subject>,
    progress: Arc<Progress>,
    wanting: Vec<(NormalDn, Entry)>,
}

impl Job {
    /// All of it.
    fn go(mut self) {
        let wanting = std::mem::take(&mut self.wanting);
        if !wanting.is_empty()
            && let Err(why) = self.issue(wanting)
        {
            self.progress.fail(why);
        }
        self.progress.ended();
    }

    fn issue(&self, wanting: Vec<(NormalDn, Entry)>) -> Result<(), String> {
        let rules = &*self.rules;
        let suffix = self.own.entry(&self.subject, &rules.suffix)?.ok_or("the suffix entry is gone")?;
        let SuffixAuthority::Usable(authority, certificate) =
            rules.authority(&rules.schema, &suffix, self.own.moment.now)?
        else {
            return Err("no authority could be stored".to_owned());
        };
        for (dn, entry) in wanting {
            match self.issued(&authority, &entry) {
                Ok((issued, operation)) => self.store(dn, issued, &certificate, operation)?,
                Err(why) => self.progress.fail(why),
            }
        }
        Ok(())
    }

    fn store(
        &self,
        dn: NormalDn,
        issued: Issued,
        authority: &[u8],
        operation: WriteOperation,
    ) -> Result<(), String> {
        let request = request(operation, NO_KEY, &self.subject).map_err(|result| result.diagnostic)?;
        let is_local = self.rules.local.as_ref() == Some(&dn);
        let place = self.configuration.clone().filter(|_| is_local);
        let local = Local { issued, authority: authority.to_vec() };
        let progress = Arc::clone(&self.progress);
        progress.pending.fetch_add(1, Ordering::SeqCst);
        let done: Completion = Box::new(move |outcome: WriteOutcome| {
            progress.note(&outcome.result);
            match place.filter(|_| outcome.result.is_success()) {
                Some(place) => local.install(&place, progress),
                None => progress.ended(),
            }
        });
        self.own.update(&self.subject, Changes::One(request, Some(dn)), done);
        Ok(())
    }

    /// A key of an entry, and the change that stores it.
    fn issued(&self, authority: &Authority, entry: &Entry) -> Result<(Issued, WriteOperation), String> {
        let rules = &*self.rules;
        let texts = |description: Option<&AttributeDescription>| -> Vec<String> {
            let values = description.and_then(|name| entry.attribute(name)).map(|found| &found.values);
            let texts =
                values.into_iter().flatten().filter_map(|value| String::from_utf8(value.clone()).ok());
            texts.take(NAMES_MAX).collect()
        };
        let (purpose, days) = match rules.is_of(&rules.schema, entry, rules.user_class) {
            true => {
                let mut addresses = texts(rules.mail.as_ref());
                // An rfc822Name is ASCII.
                addresses.retain(|address| address.is_ascii() && address.contains('@'));
                (Purpose::User(addresses), rules.user_days)
            }
            false => {
                let mut names = texts(Some(&rules.common_name));
                names.retain(|name| is_host(name));
                let addresses = texts(rules.address.as_ref());
                let addresses = addresses.iter().filter_map(|text| text.parse::<IpAddr>().ok()).collect();
                (Purpose::Server { names, addresses }, rules.server_days)
            }
        };
        let request = CertificateRequest { dn: &entry.dn, purpose: &purpose, now: self.own.moment.now, days };
        let issued = authority.issue(&rules.schema, &request)?;
        let is_known = rules.is_of(&rules.schema, entry, rules.schema.object_class_id("autoCAuser"));
        let class = (!is_known).then_some("autoCAuser");
        let names = ("userCertificate;binary", "userPrivateKey;binary");
        let operation = keeping(entry.dn.clone(), class, names, &issued);
        Ok((issued, operation))
    }
}

impl Interceptor for Issuer {
    fn requests(&self) -> Operations {
        Operations::SEARCH
    }

    fn sees(&self, search: &Search<'_>) -> bool {
        self.asks_for_keys(&search.request) || self.is_first(search)
    }

    fn open(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        search: Search<'_>,
    ) -> Result<Box<dyn Cursor>, Box<End>> {
        match self.work(next, context, &search).map_err(Box::new)? {
            None => next.open(context, search),
            Some(work) => {
                // It looks at nothing before its first step.
                let inner = next.open(context, search)?;
                self.begin(context, work, inner).map_err(|result| Box::new((result, Vec::new())))
            }
        }
    }
}

/// The entry of this name, without regard to access.
fn entry(next: Next<'_>, context: &Context<'_>, dn: &NormalDn) -> Result<Option<Entry>, larix_engine::Fault> {
    let mut entry = None;
    let query = InternalSearch::new(dn, Scope::Base, &BoundFilter::True);
    next.find(context, &query, &mut |found| {
        entry = Some(found.owned()?);
        Ok(false)
    })?;
    Ok(entry)
}

/// Whether a name is one of a host (RFC 1123 section 2.1): a dNSName has no other characters.
fn is_host(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_edge = |edge: Option<char>| edge.is_some_and(|c| c.is_ascii_alphanumeric());
        label.len() <= 63
            && is_edge(label.chars().next())
            && is_edge(label.chars().last())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// The certificate and key that this server uses.
struct Local {
    issued: Issued,
    /// The authority's certificate.
    authority: Vec<u8>,
}

impl Local {
    /// Sets them in cn=config, and the authority where clients' certificates are judged by none.
    fn install(self, place: &InternalBackend, progress: Arc<Progress>) {
        // The root DN of cn=config.
        let root = NormalDn::from_normal("cn=config");
        let subject = Arc::new(Subject::default().bound_as(root, "cn=config"));
        let set = |name: &str, value: &[u8]| Modification {
            operation: ModifyOperation::Replace,
            attribute: AttributeValues { description: name.to_owned(), values: vec![value.to_vec()] },
        };
        let request = |changes, assertion| WriteRequest {
            operation: WriteOperation::Modify { object: "cn=config".to_owned(), changes },
            subject: Arc::clone(&subject),
            controls: RequestControls::from(ControlValues { assertion, ..ControlValues::default() }),
            origin: Origin::Client,
            passwords: None,
        };
        let own = vec![
            set("olcTLSCertificate;binary", &self.issued.certificate),
            set("olcTLSCertificateKey;binary", &self.issued.key),
        ];
        let authorities = vec![set("olcTLSCACertificate;binary", &self.authority)];
        let (first, second) = (request(own, None), filter(NO_AUTHORITIES).ok());
        let second = second.map(|assertion| request(authorities, Some(assertion)));
        let (then, after) = (place.clone(), Arc::clone(&subject));
        let done: Completion = Box::new(move |outcome: WriteOutcome| {
            progress.note(&outcome.result);
            match second.filter(|_| outcome.result.is_success()) {
                Some(second) => {
                    let ended: Completion = Box::new(move |outcome: WriteOutcome| {
                        progress.note(&outcome.result);
                        progress.ended();
                    });
                    then.update(&after, Changes::One(second, None), ended);
                }
                None => progress.ended(),
            }
        });
        place.update(&subject, Changes::One(first, None), done);
    }
}

/// What is still to be stored.
#[derive(Debug, Default)]
struct Progress {
    pending: AtomicUsize,
    follower: Mutex<Option<Arc<Follower>>>,
    /// What went wrong last.
    fault: Mutex<Option<String>>,
}

impl Progress {
    fn note(&self, result: &LdapResult) {
        // Another search was first: the entry has a key.
        if !result.is_success() && result.code != ResultCode::ASSERTION_FAILED {
            let text = match result.diagnostic.is_empty() {
                true => format!("result code {}", result.code.0),
                false => result.diagnostic.clone(),
            };
            self.fail(text);
        }
    }

    fn fail(&self, text: String) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    fn ended(&self) {
        if self.pending.fetch_sub(1, Ordering::SeqCst) == 1
            && let Some(follower) = &*self.follower.lock().unwrap_or_else(PoisonError::into_inner)
        {
            follower.tell();
        }
    }
}

/// A search that goes on once the keys are stored.
#[derive(Debug)]
struct Waiting {
    inner: Box<dyn Cursor>,
    progress: Arc<Progress>,
}

impl Cursor for Waiting {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        let progress = &self.progress;
        if let Some(follower) = &*progress.follower.lock().unwrap_or_else(PoisonError::into_inner) {
            follower.looks();
        }
        if progress.pending.load(Ordering::SeqCst) > 0 {
            return StepOutcome::Waiting;
        }
        match self.inner.step(budget, out) {
            StepOutcome::Done(mut result, controls) => {
                let fault = progress.fault.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(fault) = fault.filter(|_| result.is_success()) {
                    result.diagnostic = format!("autoca: {fault}");
                }
                StepOutcome::Done(result, controls)
            }
            goes_on => goes_on,
        }
    }

    fn effort(&self) -> Effort {
        self.inner.effort()
    }

    fn waits(&self) -> bool {
        true
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        self.inner.follow(Arc::clone(&follower));
        *self.progress.follower.lock().unwrap_or_else(PoisonError::into_inner) = Some(follower);
    }

    fn deadline(&self) -> Option<Monotonic> {
        self.inner.deadline()
    }

    fn pause(&mut self) {
        self.inner.pause();
    }

    fn is_dear(&self) -> bool {
        self.inner.is_dear()
    }

    fn size_limit(&self) -> Option<u32> {
        self.inner.size_limit()
    }

    fn limit_size(&mut self, entries: u32) {
        self.inner.limit_size(entries);
    }

    fn limit_page(&mut self, entries: u32) {
        self.inner.limit_page(entries);
    }
}
