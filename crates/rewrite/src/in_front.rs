//! A mapping in front of a backend.

use std::sync::Arc;

use larix_backend::{
    Bind, Changes, Compare, Context, Cursor, End, ExtendedAnswer, ExtendedOperation, FilteredSearch,
    Interceptor, Later, Next, Operations, PasswordChange, PasswordChangeOutcome, PendingAnswer, Proof, Reply,
    Search, Verdict, answer_now,
};
use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::overlay::internal_search::{InternalLimits, InternalSearch};
use larix_engine::write::{Completion, WriteOutcome, WriteRequest};
use larix_proto::url::LdapUrl;
use larix_proto::{CompareRequest, LdapResult, Message, Request, ResultCode, Scope};
use larix_schema::{NormalDn, Schema};

use crate::mapping::{Answers, Mapping, RewriteContext, Surroundings};
use crate::rules::{Session, Sessions};

/// What stands in front of a backend whose names are others: requests are mapped on their way in, answers on their way out.
#[derive(Debug)]
pub struct NamesInFront {
    mapping: Arc<Mapping>,
    schema: Arc<Schema>,
    /// Of the database; none in front of all.
    suffixes: Vec<NormalDn>,
    /// Variables of clients' sessions, where rules have any.
    sessions: Option<Sessions>,
    /// Whether rules of identity assertion behind it are about the names in front of it.
    shows_outer_names: bool,
}

/// The DN of the one entry that a URL finds on this server, or an attribute's first value there.
fn look_up(context: &Context<'_>, schema: &Schema, url: &LdapUrl, attribute: Option<&str>) -> Option<String> {
    let base = schema.parse_dn(&url.dn).ok()?;
    let filter = schema.bind_filter(url.filter.as_ref()?.as_filter());
    let limits = InternalLimits { entries: 2, ..InternalLimits::default() };
    let query = InternalSearch::new(&base, url.scope.unwrap_or(Scope::Base), &filter).within(limits);
    let described = attribute.map(|name| schema.describe(name)).transpose().ok()?;
    let (mut found, mut count) = (None, 0);
    let searched = context.router.backend(&base)?.find(context, &query, &mut |entry| {
        count += 1;
        found = match &described {
            None => Some(entry.shown_dn()?),
            Some(attribute) => {
                let mut owned = entry.owned()?;
                let values = owned.attribute_mut(attribute).map(|found| std::mem::take(&mut found.values));
                let first = values.unwrap_or_default().into_iter().next();
                first.and_then(|value| String::from_utf8(value).ok())
            }
        };
        Ok(count < 2)
    });
    searched.ok().and(found).filter(|_| count == 1)
}

impl NamesInFront {
    /// `suffixes`: the names here that are mapped, for who asks; empty in front of all databases, where every name is.
    pub fn new(mapping: Mapping, schema: Arc<Schema>, suffixes: Vec<NormalDn>) -> Self {
        let sessions = mapping.uses_session().then(Sessions::default);
        Self { mapping: Arc::new(mapping), schema, suffixes, sessions, shows_outer_names: false }
    }

    /// The same for a target of `database meta`: `idassert-authzFrom` knows clients by the names that they have here.
    #[must_use]
    pub fn showing_outer_names(self) -> Self {
        Self { shows_outer_names: true, ..self }
    }

    fn session(&self, context: &Context<'_>) -> Option<Arc<Session>> {
        let client = context.client.lifetime()?;
        self.sessions.as_ref()?.of(&client)
    }

    /// Maps a request: `map` is given what rules may use, and who asks by the name that the database behind knows.
    fn mapped<T>(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        map: impl FnOnce(&Surroundings<'_>, &Context<'_>, Answers) -> T,
    ) -> T {
        let searches =
            |url: &LdapUrl, attribute: Option<&str>| look_up(context, &self.schema, url, attribute);
        let session = self.session(context);
        let around = Surroundings { searches: &searches, session: session.as_deref() };
        let answers = Answers::new(Arc::clone(&self.mapping), session.clone());
        match self.subject(next, context, &around) {
            Some(subject) => map(&around, &Context { subject: &Arc::new(subject), ..*context }, answers),
            None => map(&around, context, answers),
        }
    }

    /// Somebody who is bound by a name of this database is known behind by the name that rules make of it when it binds; in front of
    /// all databases that goes for every name. Names of other databases were judged there and mean what they say; so does this
    /// database's own root.
    fn subject(&self, next: Next<'_>, context: &Context<'_>, around: &Surroundings<'_>) -> Option<Subject> {
        let subject = context.subject;
        let dn = subject.dn.as_ref()?;
        let is_virtual = |dn: &NormalDn| {
            self.suffixes.is_empty() || self.suffixes.iter().any(|suffix| dn.is_within(suffix))
        };
        if next.policy(dn).is_some_and(|policy| policy.is_root(subject)) {
            return None;
        }
        let mapped = |dn: &NormalDn| {
            let name = self.mapping.name(RewriteContext::Bind, dn.as_str(), around).ok()?;
            self.schema.parse_and_show_dn(&name).ok()
        };
        let acting = Some(dn).filter(|dn| is_virtual(dn)).and_then(mapped);
        let real = subject.real_dn.as_ref().filter(|dn| is_virtual(dn)).and_then(mapped);
        if acting.is_none() && real.is_none() {
            return None;
        }
        let mut subject = Subject::clone(subject);
        if let Some((dn, shown)) = acting {
            if self.shows_outer_names {
                subject.outer_dn = subject.outer_dn.take().or_else(|| subject.dn.take());
            }
            (subject.dn, subject.authz_text) = (Some(dn), format!("dn:{shown}").into());
        }
        if let Some((dn, _)) = real {
            subject.real_dn = Some(dn);
        }
        Some(subject)
    }

    fn change(
        &self,
        request: WriteRequest,
        context: &Context<'_>,
        around: &Surroundings<'_>,
    ) -> Result<(WriteRequest, Option<NormalDn>), LdapResult> {
        let operation = self.mapping.update(request.operation, around)?;
        let controls = self.mapping.request_controls(&request.controls, around)?;
        let target = self.schema.parse_dn(operation.target()).ok();
        // Facts of the request stay with who asks.
        let subject = match request.subject.dn == context.subject.dn {
            true => request.subject,
            false => Arc::new(Subject {
                dn: context.subject.dn.clone(),
                real_dn: context.subject.real_dn.clone(),
                authz_text: Arc::clone(&context.subject.authz_text),
                ..Subject::clone(&request.subject)
            }),
        };
        Ok((WriteRequest { operation, controls, subject, ..request }, target))
    }
}

impl Interceptor for NamesInFront {
    fn requests(&self) -> Operations {
        let read = Operations::SEARCH.and(Operations::COMPARE).and(Operations::BIND);
        read.and(Operations::UPDATE).and(Operations::PASSWORD).and(Operations::EXTENDED)
    }

    fn maps_names(&self) -> bool {
        true
    }

    fn open(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        search: Search<'_>,
    ) -> Result<Box<dyn Cursor>, Box<End>> {
        self.mapped(next, context, |around, context, answers| {
            let refused = |result: LdapResult| Box::new((result, Vec::new()));
            let answers = answers.of_search(search.request.attributes);
            // Below a database that this one is glued to, the base is not what the request says.
            let is_own = self.schema.parse_dn(search.request.base).is_ok_and(|dn| dn == *search.base);
            let base = if is_own { search.request.base } else { search.base.as_str() };
            let message = self.mapping.search(base, &search.request, around).map_err(refused)?;
            let controls = self.mapping.request_controls(&search.controls, around).map_err(refused)?;
            let too_large =
                || LdapResult::with(ResultCode::OTHER, "the search is too large once it is mapped");
            let Ok(Message { request: Request::Search(request), .. }) = Message::decode(&message) else {
                return Err(refused(too_large()));
            };
            let base = self.schema.parse_dn(request.base).map_err(|_| refused(LdapResult::invalid_dn()))?;
            let mapped = Search { request, base: &base, controls, message: search.message };
            match next.open(context, mapped) {
                Ok(cursor) => Ok(Box::new(FilteredSearch::new(cursor, answers)) as Box<dyn Cursor>),
                Err(end) => Err(Box::new(answers.end(*end))),
            }
        })
    }

    fn compare(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        compare: &Compare<'_>,
        later: Later<'_, End>,
    ) -> Reply<End> {
        self.mapped(next, context, |around, context, answers| {
            let mapped = self
                .mapping
                .compare(compare.request, around)
                .and_then(|mapped| Ok((mapped, self.mapping.request_controls(compare.controls, around)?)));
            let (mapped, controls) = match mapped {
                Ok(mapped) => mapped,
                Err(refused) => return Reply::Now((refused, Vec::new())),
            };
            let Ok(dn) = self.schema.parse_dn(&mapped.entry) else {
                return Reply::Now((LdapResult::invalid_dn(), Vec::new()));
            };
            let request =
                CompareRequest { entry: &mapped.entry, attribute: &mapped.attribute, value: &mapped.value };
            let compare = Compare { request: &request, dn: &dn, controls: &controls };
            let reply = next.compare(context, &compare, &mut || {
                let (answers, done) = (answers.clone(), later());
                Box::new(move |end| done(answers.end(end)))
            });
            match reply {
                Reply::Now(end) => Reply::Now(answers.end(end)),
                pending @ Reply::Later(_) => pending,
            }
        })
    }

    fn bind(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        bind: &Bind<'_>,
        later: Later<'_, Verdict>,
    ) -> Reply<Verdict> {
        // The root of the database, whose password is here, is nobody behind the overlay.
        let is_root = |policy: Arc<AccessPolicy>| {
            policy.is_root(&Subject::default().bound_as(bind.dn.clone(), bind.dn.as_str()))
        };
        if next.policy(bind.dn).is_some_and(is_root) && !next.secrets(context, bind.dn).is_empty() {
            return next.bind(context, bind, later);
        }
        self.mapped(next, context, |around, context, answers| {
            let mapped = self.mapping.name(RewriteContext::Bind, bind.dn.as_str(), around);
            let mapped = mapped.and_then(|name| {
                let controls = self.mapping.request_controls(bind.controls, around)?;
                Ok((self.schema.parse_dn(&name).map_err(|_| LdapResult::invalid_dn())?, controls))
            });
            let (dn, controls) = match mapped {
                Ok(mapped) => mapped,
                Err(refused) => return Reply::Now(refused.into()),
            };
            let is_other = dn != *bind.dn && matches!(bind.proof, Proof::Password(_));
            let known_as = is_other.then(|| dn.clone());
            let inner = Bind { dn: &dn, controls: &controls, ..*bind };
            let to_client = move |mut verdict: Verdict, known_as: Option<NormalDn>, answers: &Answers| {
                answers.result(&mut verdict.result);
                answers.controls(&mut verdict.controls);
                // An entry of this server is who it is by its own name.
                if verdict.result.is_success() && verdict.shown.is_some() && verdict.identity.is_none() {
                    verdict.identity = known_as;
                }
                verdict
            };
            let reply = next.bind(context, &inner, &mut || {
                let (answers, known_as, done) = (answers.clone(), known_as.clone(), later());
                Box::new(move |verdict| done(to_client(verdict, known_as, &answers)))
            });
            match reply {
                Reply::Now(verdict) => Reply::Now(to_client(verdict, known_as, &answers)),
                pending @ Reply::Later(_) => pending,
            }
        })
    }

    fn update(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        changes: Changes,
        done: Completion,
    ) -> PendingAnswer {
        self.mapped(next, context, |around, context, answers| {
            let mapped = match changes {
                Changes::One(request, _) => self
                    .change(request, context, around)
                    .map(|(request, target)| Changes::One(request, target))
                    .map_err(|refused| (refused, None)),
                Changes::Together(requests) => {
                    let all = requests.into_iter().enumerate().map(|(at, request)| {
                        let mapped = self.change(request, context, around);
                        mapped.map(|(request, _)| request).map_err(|refused| (refused, Some(at)))
                    });
                    all.collect::<Result<_, _>>().map(Changes::Together)
                }
            };
            match mapped {
                Err((result, refused)) => answer_now(done, WriteOutcome { refused, ..result.into() }),
                Ok(changes) => {
                    let done = move |mut outcome: WriteOutcome| {
                        answers.result(&mut outcome.result);
                        answers.controls(&mut outcome.controls);
                        done(outcome);
                    };
                    next.update(context, changes, Box::new(done))
                }
            }
        })
    }

    fn modify_password(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        self.mapped(next, context, |around, context, answers| {
            let target = match self.mapping.name(RewriteContext::Password, &change.target, around) {
                Ok(target) => target.into_owned(),
                Err(refused) => return Reply::Now(refused.into()),
            };
            let Ok(dn) = self.schema.parse_dn(&target) else {
                return Reply::Now(LdapResult::invalid_dn().into());
            };
            let to_client = move |mut changed: PasswordChangeOutcome, answers: &Answers| {
                answers.result(&mut changed.result);
                answers.controls(&mut changed.controls);
                changed
            };
            let change = PasswordChange { dn: &dn, target, ..change };
            let reply = next.modify_password(context, change, &mut || {
                let (answers, done) = (answers.clone(), later());
                Box::new(move |changed| done(to_client(changed, &answers)))
            });
            match reply {
                Reply::Now(changed) => Reply::Now(to_client(changed, &answers)),
                pending @ Reply::Later(_) => pending,
            }
        })
    }

    fn extended(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        let name = request.dn.as_str();
        let stays = self.mapped(next, context, |around, _, _| {
            self.mapping.name(RewriteContext::Modify, name, around).is_ok_and(|mapped| mapped == name)
        });
        if stays {
            return next.extended(context, request, later);
        }
        let text = "names in this extended operation cannot be mapped; ask the database that has the entry";
        Reply::Now(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into())
    }
}
