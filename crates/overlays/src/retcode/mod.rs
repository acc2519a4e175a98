//! `overlay retcode` (slapo-retcode(5)): result codes on request, to test clients with.
//!
//! Below a name the overlay has entries of its own: a request for one of them is answered with what the entry says. Entries of the
//! database can say the same (`retcode-indir`). No loop waits where an answer is to be late.

mod config;
mod response;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use larix_backend::memory_tree::{Bases, MemoryTree};
use larix_backend::{
    AnsweredSearch, Bind, Changes, Compare, Context, Cursor, Delays, End, ExtendedAnswer, ExtendedOperation,
    Interceptor, Later, Next, Operations, PasswordChange, PasswordChangeOutcome, PendingAnswer, Reply,
    Search, Verdict,
};
use larix_engine::Entry;
use larix_engine::overlay::internal_search::{InternalSearch, Whose};
use larix_engine::overlay::settings::SettingError;
use larix_engine::overlay::{Descriptor, OverlayDirective};
use larix_engine::search::referral;
use larix_engine::time::Clock;
use larix_engine::write::{Completion, WriteOperation, WriteOutcome, WriteRequest};
use larix_proto::{FilterBuf, LdapResult, ResponseOp, ResultCode, Scope};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};

pub use config::build;
use response::{Disconnect, Planned, PlannedSearch, Response, Unsolicited, wait};

pub static DESCRIPTOR: Descriptor = Descriptor::in_front("retcode", "olcRetcodeConfig")
    .directives(&[
        OverlayDirective::whole("retcode-parent", "olcRetcodeParent").with_blanks(),
        OverlayDirective::words("retcode-item", "olcRetcodeItem").ordered().arguments(2, u8::MAX),
        OverlayDirective::switch("retcode-indir", "olcRetcodeInDir"),
        OverlayDirective::whole("retcode-sleep", "olcRetcodeSleep"),
    ])
    .schema(include_str!("retcode.schema"));

/// Of entries that a search shows as they are.
const NO_ANSWER: &str = "(!(&(objectClass=errAbsObject)(!(errCode=0))(|(!(errOp=*))(errOp=search))))";

/// An operation as items tell them apart.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Kind {
    Add,
    Bind,
    Compare,
    Delete,
    Extended,
    Modify,
    Rename,
    Search,
}

impl Kind {
    /// With the names that entries have for them, in the order in which entries list them.
    const ALL: [(&str, Self); 8] = [
        ("add", Self::Add),
        ("bind", Self::Bind),
        ("compare", Self::Compare),
        ("delete", Self::Delete),
        ("extended", Self::Extended),
        ("modify", Self::Modify),
        ("rename", Self::Rename),
        ("search", Self::Search),
    ];

    fn of(operation: &WriteOperation) -> Self {
        match operation {
            WriteOperation::Add { .. } => Self::Add,
            WriteOperation::Modify { .. } => Self::Modify,
            WriteOperation::Delete { .. } => Self::Delete,
            WriteOperation::ModifyDn { .. } => Self::Rename,
        }
    }

    const fn answered_by(self) -> ResponseOp {
        match self {
            Self::Add => ResponseOp::Add,
            Self::Bind => ResponseOp::Bind,
            Self::Compare => ResponseOp::Compare,
            Self::Delete => ResponseOp::Delete,
            Self::Extended => ResponseOp::Extended,
            Self::Modify => ResponseOp::Modify,
            Self::Rename => ResponseOp::ModifyDn,
            Self::Search => ResponseOp::SearchDone,
        }
    }

    /// Whether errOp of an entry of the directory means it: a rename is called `modrdn` there.
    fn is_called(self, name: &[u8]) -> bool {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        Self::ALL.iter().any(|(known, kind)| *kind == self && is(known))
            || self == Self::Rename && is("modrdn")
    }
}

/// `retcode-item`
#[derive(Clone, Debug)]
struct Item {
    dn: NormalDn,
    /// The operations that it answers.
    kinds: Vec<Kind>,
    response: Response,
    entry: Entry,
}

/// `retcode-sleep`
#[derive(Copy, Clone, Debug)]
enum Sleep {
    Exactly(Duration),
    /// A time below this one.
    UpTo(Duration),
}

/// The attributes that say what is answered.
#[derive(Clone, Debug)]
struct Names {
    object_class: AttributeDescription,
    code: AttributeDescription,
    operation: AttributeDescription,
    text: AttributeDescription,
    sleep: AttributeDescription,
    matched: AttributeDescription,
    unsolicited_oid: AttributeDescription,
    unsolicited_data: AttributeDescription,
    disconnect: AttributeDescription,
    referral: AttributeDescription,
    /// Of entries that say something.
    is_error: BoundFilter,
    /// The same, and a search is answered with it.
    answers_search: BoundFilter,
}

impl Names {
    fn new(schema: &Schema) -> Result<Self, SettingError> {
        let name = |name: &str| {
            let described = schema.describe(name);
            described
                .map_err(|error| SettingError::new(format!("overlay retcode: {error}")).awaiting_schema())
        };
        let filter = |text: &str| {
            let parsed = FilterBuf::parse(text);
            let parsed = parsed.map_err(|error| SettingError::new(format!("overlay retcode: {error}")))?;
            Ok::<_, SettingError>(schema.bind_filter(parsed.as_filter()))
        };
        Ok(Self {
            object_class: name("objectClass")?,
            code: name("errCode")?,
            operation: name("errOp")?,
            text: name("errText")?,
            sleep: name("errSleepTime")?,
            matched: name("errMatchedDN")?,
            unsolicited_oid: name("errUnsolicitedOID")?,
            unsolicited_data: name("errUnsolicitedData")?,
            disconnect: name("errDisconnect")?,
            referral: name("ref")?,
            is_error: filter("(objectClass=errAbsObject)")?,
            answers_search: filter(&format!("(!{NO_ANSWER})"))?,
        })
    }
}

/// The overlay in front of one database, or of all.
#[derive(Debug)]
struct ReturnCode {
    schema: Arc<Schema>,
    parent: NormalDn,
    parent_text: String,
    items: Vec<Item>,
    in_directory: bool,
    sleep: Sleep,
    root_dn: Option<NormalDn>,
    names: Names,
    delays: Arc<Delays>,
}

/// What becomes of a request.
enum Fate {
    /// It goes on.
    Pass,
    Answer(Response),
}

impl ReturnCode {
    /// The time that any request takes longer.
    fn sleep(&self, clock: &dyn Clock) -> Duration {
        match self.sleep {
            Sleep::Exactly(time) => time,
            Sleep::UpTo(most) => {
                // Who measures gets no pattern, and nothing depends on it.
                let nanos = clock.monotonic().0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                most.mul_f64(f64::from(u32::try_from(nanos).unwrap_or(u32::MAX)) / f64::from(u32::MAX))
            }
        }
    }

    /// What the entry with this name below the parent says; none of a name elsewhere.
    fn below(&self, kind: Kind, dn: &NormalDn) -> Option<Fate> {
        if !dn.is_within(&self.parent) {
            return None;
        }
        let missing = |text: &str| {
            let (text, matched) = (text.to_owned(), self.parent_text.clone());
            Fate::Answer(Response { text, matched, ..ResultCode::NO_SUCH_OBJECT.into() })
        };
        if dn.parent().as_ref() != Some(&self.parent) {
            return Some(missing(""));
        }
        match self.items.iter().find(|item| item.dn == *dn) {
            Some(item) if item.kinds.contains(&kind) => Some(Fate::Answer(item.response.clone())),
            Some(_) => Some(Fate::Pass),
            None => Some(missing("retcode not found")),
        }
    }

    /// What an entry of the directory says.
    fn stored(&self, next: Next<'_>, context: &Context<'_>, kind: Kind, dn: &NormalDn) -> Option<Response> {
        let filter = &self.names.is_error;
        let query = InternalSearch::new(dn, Scope::Base, filter).of(Whose::Requester(context.subject));
        self.found(next, context, &query, kind)
    }

    /// What the first entry says that a search finds and that says anything to such an operation.
    fn found(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        query: &InternalSearch<'_>,
        kind: Kind,
    ) -> Option<Response> {
        let mut response = None;
        // What cannot be read says nothing.
        let _ = next.find(context, query, &mut |entry| {
            let source = entry.source();
            let values = |name: &AttributeDescription| {
                let mut values: Vec<Vec<u8>> = Vec::new();
                let visited = source.visit_exact(name, &mut |value| {
                    values.push(value.to_vec());
                    true
                });
                visited.map(|()| values)
            };
            let mut failed = None;
            response = self.response(kind, &mut |name| {
                values(name).unwrap_or_else(|fault| {
                    failed = Some(fault);
                    Vec::new()
                })
            });
            match failed {
                Some(fault) => Err(fault),
                None => Ok(response.is_none()),
            }
        });
        response
    }

    /// What attributes say; none of an entry that goes on as others do.
    fn response(
        &self,
        kind: Kind,
        values: &mut dyn FnMut(&AttributeDescription) -> Vec<Vec<u8>>,
    ) -> Option<Response> {
        let operations = values(&self.names.operation);
        if !operations.is_empty() && !operations.iter().any(|name| kind.is_called(name)) {
            return None;
        }
        let mut first = |name: &AttributeDescription| values(name).into_iter().next();
        let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
        let disconnect = match first(&self.names.disconnect).as_deref() {
            Some(b"TRUE") => Disconnect::Before,
            Some(_) => Disconnect::After,
            None => Disconnect::No,
        };
        let code = first(&self.names.code).map(text).and_then(|code| code.parse::<u32>().ok())?;
        if code == 0 && disconnect != Disconnect::Before {
            return None;
        }
        let unsolicited = first(&self.names.unsolicited_oid).map(text);
        let unsolicited =
            unsolicited.map(|oid| Unsolicited { oid, data: first(&self.names.unsolicited_data) });
        let seconds = first(&self.names.sleep).map(text).and_then(|time| time.parse::<u32>().ok());
        Some(Response {
            code: ResultCode(code),
            text: first(&self.names.text).map(text).unwrap_or_default(),
            matched: first(&self.names.matched).map(text).unwrap_or_default(),
            sleep: Duration::from_secs(seconds.unwrap_or(0).into()),
            unsolicited,
            disconnect,
            referrals: values(&self.names.referral).into_iter().map(text).collect(),
        })
    }

    /// What becomes of a request for an entry that is no search of more than one.
    fn fate(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        kind: Kind,
        (dn, manage_dsa_it): (&NormalDn, bool),
    ) -> Fate {
        if let Some(fate) = self.below(kind, dn) {
            return fate;
        }
        if !self.in_directory || manage_dsa_it {
            return Fate::Pass;
        }
        self.stored(next, context, kind, dn).map_or(Fate::Pass, Fate::Answer)
    }

    /// A response with its result, for a request for this name.
    fn plan(&self, mut response: Response, context: &Context<'_>, kind: Kind, target: &str) -> Planned {
        let mut result = LdapResult {
            code: response.code,
            diagnostic: response.text.clone(),
            matched_dn: response.matched.clone(),
            ..LdapResult::success()
        };
        if response.code == ResultCode::REFERRAL {
            let urls = &response.referrals;
            result.referrals = referral::rewrite(&self.schema, urls, None, Some(target), None);
            if result.referrals.is_empty() {
                result = LdapResult::with(ResultCode::OTHER, "bad referral object");
            }
        }
        response.sleep = response.sleep.saturating_add(self.sleep(context.clock));
        Planned::new(response, result, kind.answered_by(), context)
    }

    /// `done`, a while later.
    fn late<T: Send + 'static>(
        &self,
        done: larix_backend::Done<T>,
        context: &Context<'_>,
    ) -> larix_backend::Done<T> {
        let (time, delays) = (self.sleep(context.clock), Arc::clone(&self.delays));
        if time.is_zero() {
            return done;
        }
        Box::new(move |answer| {
            wait(&delays, time, Box::new(move || done(answer)));
        })
    }

    /// A request that goes on, and whose answer waits.
    fn pass<T: Send + 'static>(
        &self,
        context: &Context<'_>,
        later: Later<'_, T>,
        go_on: impl FnOnce(Later<'_, T>) -> Reply<T>,
    ) -> Reply<T> {
        let time = self.sleep(context.clock);
        if time.is_zero() {
            return go_on(later);
        }
        let mut late = || self.late(later(), context);
        match go_on(&mut late) {
            Reply::Now(answer) => {
                let done = later();
                Reply::Later(wait(&self.delays, time, Box::new(move || done(answer))))
            }
            pending @ Reply::Later(_) => pending,
        }
    }

    /// The entries below the parent that a search finds.
    fn list(&self, next: Next<'_>, context: &Context<'_>, mut search: Search<'_>) -> Box<dyn Cursor> {
        let mut parent = Entry::new(self.parent_text.clone());
        parent.attributes.push(larix_engine::entry::EntryAttribute::new(
            self.names.object_class.clone(),
            vec![b"top".to_vec()],
        ));
        let entries = std::iter::once(parent).chain(self.items.iter().map(|item| item.entry.clone()));
        let Some(policy) = next.policy(&self.parent) else {
            let result = LdapResult::new(ResultCode::NO_SUCH_OBJECT);
            return Box::new(AnsweredSearch { messages: Vec::new(), result, entries: 0 });
        };
        let tree = MemoryTree {
            schema: &self.schema,
            policy: &policy,
            subject: context.subject,
            entries: entries.collect(),
            counted: None,
        };
        // The parent itself is none of them.
        search.request.scope = Scope::OneLevel;
        Box::new(tree.answer(Bases::Judged, &search))
    }

    /// A search of more than the base outside: what its entries say comes behind the others.
    fn search_stored(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        search: Search<'_>,
    ) -> Result<Box<dyn Cursor>, Box<End>> {
        let client_filter = self.schema.bind_filter(search.request.filter);
        let filter = BoundFilter::And(vec![client_filter, self.names.answers_search.clone()]);
        let whose = Whose::Requester(context.subject);
        let query = InternalSearch::new(search.base, search.request.scope, &filter).of(whose);
        let Some(response) = self.found(next, context, &query, Kind::Search) else {
            return next.open(context, search);
        };
        let target = search.request.base.to_owned();
        let time = response.sleep;
        let planned =
            self.plan(Response { sleep: Duration::ZERO, ..response }, context, Kind::Search, &target);
        let others = FilterBuf::parse(&format!("(&{}{NO_ANSWER})", search.request.filter));
        let inner = match &others {
            Ok(filter) => {
                let request = larix_proto::SearchRequest { filter: filter.as_filter(), ..search.request };
                next.open(context, Search { request, ..search })?
            }
            Err(_) => next.open(context, search)?,
        };
        let time = time.saturating_add(self.sleep(context.clock));
        Ok(PlannedSearch::cursor(&self.delays, time, Some(inner), Some(planned)))
    }
}

fn end(result: LdapResult) -> End {
    (result, Vec::new())
}

impl Interceptor for ReturnCode {
    fn requests(&self) -> Operations {
        Operations::SEARCH
            .and(Operations::COMPARE)
            .and(Operations::BIND)
            .and(Operations::UPDATE)
            .and(Operations::PASSWORD)
            .and(Operations::EXTENDED)
    }

    fn open(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        search: Search<'_>,
    ) -> Result<Box<dyn Cursor>, Box<End>> {
        let is_base = search.request.scope == Scope::Base;
        if !is_base && *search.base == self.parent {
            let listed = self.list(next, context, search);
            return Ok(PlannedSearch::cursor(&self.delays, self.sleep(context.clock), Some(listed), None));
        }
        let manage_dsa_it = search.controls.manage_dsa_it;
        if !is_base && self.in_directory && !manage_dsa_it && !search.base.is_within(&self.parent) {
            return self.search_stored(next, context, search);
        }
        let fate = match is_base {
            true => self.fate(next, context, Kind::Search, (search.base, manage_dsa_it)),
            false => self.below(Kind::Search, search.base).unwrap_or(Fate::Pass),
        };
        match fate {
            Fate::Answer(response) => {
                let planned = self.plan(response, context, Kind::Search, search.request.base);
                let time = planned.sleep();
                Ok(PlannedSearch::cursor(&self.delays, time, None, Some(planned)))
            }
            Fate::Pass => {
                let time = self.sleep(context.clock);
                let inner = next.open(context, search)?;
                Ok(match time.is_zero() {
                    true => inner,
                    false => PlannedSearch::cursor(&self.delays, time, Some(inner), None),
                })
            }
        }
    }

    fn compare(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        compare: &Compare<'_>,
        later: Later<'_, End>,
    ) -> Reply<End> {
        let place = (compare.dn, compare.controls.manage_dsa_it);
        match self.fate(next, context, Kind::Compare, place) {
            Fate::Answer(response) => {
                let planned = self.plan(response, context, Kind::Compare, compare.request.entry);
                planned.reply(&self.delays, later, end)
            }
            Fate::Pass => self.pass(context, later, |later| next.compare(context, compare, later)),
        }
    }

    fn bind(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        bind: &Bind<'_>,
        later: Later<'_, Verdict>,
    ) -> Reply<Verdict> {
        let is_root = self.root_dn.as_ref() == Some(bind.dn);
        let place = (bind.dn, bind.controls.manage_dsa_it);
        match self.fate(next, context, Kind::Bind, place) {
            // An entry lets nobody in.
            Fate::Answer(response)
                if !bind.by_mechanism && !is_root && response.code != ResultCode::SUCCESS =>
            {
                let planned = self.plan(response, context, Kind::Bind, bind.dn.as_str());
                planned.reply(&self.delays, later, Verdict::from)
            }
            _ => self.pass(context, later, |later| next.bind(context, bind, later)),
        }
    }

    fn update(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        changes: Changes,
        done: Completion,
    ) -> PendingAnswer {
        let fate = |request: &WriteRequest| {
            let kind = Kind::of(&request.operation);
            let dn = self.schema.parse_dn(request.operation.target()).ok()?;
            let manage_dsa_it = request.controls.manage_dsa_it;
            let fate = match &request.operation {
                WriteOperation::Add { attributes, .. } if !dn.is_within(&self.parent) => {
                    let says = self.in_directory && !manage_dsa_it;
                    self.added(attributes).filter(|_| says).map_or(Fate::Pass, Fate::Answer)
                }
                _ => self.fate(next, context, kind, (&dn, manage_dsa_it)),
            };
            match fate {
                Fate::Answer(response) => {
                    Some(self.plan(response, context, kind, request.operation.target()))
                }
                Fate::Pass => None,
            }
        };
        let answered =
            changes.requests().iter().enumerate().find_map(|(at, request)| Some((at, fate(request)?)));
        match answered {
            Some((at, planned)) => {
                let done: larix_backend::Done<LdapResult> =
                    Box::new(move |result| done(WriteOutcome { refused: Some(at), ..result.into() }));
                planned.answer(&self.delays, done, |result| result)
            }
            None => {
                let done = self.late(done, context);
                next.update(context, changes, done)
            }
        }
    }

    fn modify_password(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        match self.below(Kind::Extended, change.dn) {
            Some(Fate::Answer(response)) => {
                let planned = self.plan(response, context, Kind::Extended, &change.target);
                planned.reply(&self.delays, later, PasswordChangeOutcome::from)
            }
            _ => self.pass(context, later, |later| next.modify_password(context, change, later)),
        }
    }

    fn extended(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        match self.below(Kind::Extended, request.dn) {
            Some(Fate::Answer(response)) => {
                let planned = self.plan(response, context, Kind::Extended, request.dn.as_str());
                planned.reply(&self.delays, later, ExtendedAnswer::from)
            }
            _ => self.pass(context, later, |later| next.extended(context, request, later)),
        }
    }
}

impl ReturnCode {
    /// What an entry says that is to be added.
    fn added(&self, attributes: &[larix_engine::write::AttributeValues]) -> Option<Response> {
        let described = |name: &str| self.schema.describe(name).ok();
        let is_error = attributes.iter().any(|attribute| {
            described(&attribute.description).is_some_and(|name| name == self.names.object_class)
                && attribute.values.iter().any(|class| {
                    ["errAbsObject", "errObject", "errAuxObject"]
                        .iter()
                        .any(|known| class.eq_ignore_ascii_case(known.as_bytes()))
                })
        });
        if !is_error {
            return None;
        }
        self.response(Kind::Add, &mut |wanted| {
            let of_it = attributes
                .iter()
                .filter(|attribute| described(&attribute.description).is_some_and(|name| name == *wanted));
            of_it.flat_map(|attribute| attribute.values.clone()).collect()
        })
    }
}
