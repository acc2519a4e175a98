//! A search over a database and those glued below it, one after the other.

use larix_engine::controls::RequestControls;
use larix_engine::search::task::Budget;
use larix_engine::time::Monotonic;
use larix_proto::{LdapResult, MessageId, ResultCode, Scope, encode};
use larix_schema::NormalDn;

use crate::backend::{Backend, Below, Context};
use crate::cursor::{AnsweredSearch, Cursor, Effort, End, StepOutcome};
use crate::glued_pages::{GluedPages, Next};
use crate::operation::Search;

/// A search over several databases.
#[derive(Debug)]
struct GluedSearch {
    /// A search of the base alone, for what is asserted of it where its database has no more entries for this page. Only its result counts.
    asserted_base: Option<Box<dyn Cursor>>,
    /// The database that is searched now.
    part: Option<Box<dyn Cursor>>,
    /// Whether that one holds the base.
    holds_base: bool,
    message: MessageId,
    /// Those that come after it, the next one last.
    later: Vec<Box<dyn Cursor>>,
    pages: Option<GluedPages>,
    /// Entries that the size limit leaves for the parts that come, where a part that is done has one.
    left: Option<u32>,
    /// Of parts that are done.
    done: Effort,
    end: Option<End>,
}

/// Begins a search in `backend`, which holds its base, and those below.
pub(super) fn open(
    backend: &dyn Backend,
    below: &[Below<'_>],
    context: &Context<'_>,
    search: Search<'_>,
) -> Result<Box<dyn Cursor>, Box<End>> {
    let Search { request, base, controls, message } = search;
    if controls.vlv.is_some() {
        let text = "VLV does not go over several databases";
        return Err(Box::new((LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text), Vec::new())));
    }
    let pages = controls.paged.as_ref().map(|control| GluedPages::new(control, below.len() + 1));
    let pages = pages.transpose().map_err(|result| Box::new((result, Vec::new())))?;
    let begin = pages.as_ref().map_or(0, GluedPages::at);
    let paged = |number| pages.as_ref().map(|pages| pages.control(number));
    let part = |controls: RequestControls, scope| {
        let mut request = request;
        request.scope = scope;
        backend.open(context, Search { request, base, controls, message })
    };
    // Each page is a search of its own (RFC 4528 section 3).
    let asserted_base = (begin > 0 && controls.assertion.is_some()).then(|| {
        let controls = controls.with(|values| (values.paged, values.sort) = (None, None));
        part(controls, Scope::Base)
    });
    let asserted_base = asserted_base.transpose()?;
    let mut later: Vec<Box<dyn Cursor>> = Vec::new();
    for (at, (backend, suffix, scope)) in below.iter().enumerate().rev().filter(|(at, _)| *at + 1 >= begin) {
        // Sorting is the first database's: sorted answers cannot be merged here.
        let controls = controls.with(|values| {
            (values.paged, values.sort) = (paged(at + 1), None);
            values.leave_assertion_out();
        });
        let mut request = request;
        (request.base, request.scope) = (suffix.as_str(), *scope);
        later.push(match backend.open(context, Search { request, base: suffix, controls, message }) {
            Ok(cursor) => cursor,
            Err(end) if adds_nothing(&end.0) => {
                Box::new(AnsweredSearch { messages: Vec::new(), result: end.0, entries: 0 })
            }
            Err(end) => return Err(end),
        });
    }
    if begin == 0 {
        let paged = paged(0).or_else(|| controls.paged.clone());
        let controls = controls.with(|values| values.paged = paged);
        later.push(part(controls, request.scope)?);
    }
    Ok(Box::new(GluedSearch {
        asserted_base,
        part: later.pop(),
        holds_base: begin == 0,
        message,
        later,
        pages,
        left: None,
        done: Effort::default(),
        end: None,
    }))
}

/// Whether a database that is glued below has no entries for the search, which goes on in the next one: it is empty, the
/// requester may not search its suffix, or that is a referral object.
fn adds_nothing(result: &LdapResult) -> bool {
    matches!(
        result.code,
        ResultCode::NO_SUCH_OBJECT | ResultCode::INSUFFICIENT_ACCESS_RIGHTS | ResultCode::REFERRAL
    )
}

impl Cursor for GluedSearch {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        if let Some(base) = &mut self.asserted_base {
            match base.step(budget, &mut Vec::new()) {
                StepOutcome::Done(result, controls) if !result.is_success() => {
                    (self.part, self.later) = (None, Vec::new());
                    self.asserted_base = None;
                    return StepOutcome::Done(result, controls);
                }
                StepOutcome::Done(..) => self.asserted_base = None,
                goes_on => return goes_on,
            }
        }
        while let Some(part) = &mut self.part {
            let (result, controls) = match part.step(budget, out) {
                StepOutcome::Done(result, controls) => (result, controls),
                goes_on => return goes_on,
            };
            let answered = u32::try_from(part.effort().entries).unwrap_or(u32::MAX);
            self.left = part.size_limit().or(self.left).map(|limit| limit.saturating_sub(answered));
            self.done = self.done.plus(part.effort());
            self.part = self.later.pop();
            let holds_base = std::mem::replace(&mut self.holds_base, false);
            let result = if !holds_base && adds_nothing(&result) {
                if !result.referrals.is_empty() {
                    encode::search_reference(out, self.message, &result.referrals, &[]);
                }
                LdapResult::success()
            } else {
                result
            };
            if let (Some(left), Some(next)) = (self.left, &mut self.part) {
                next.limit_size(left);
            }
            if let Some(pages) = &mut self.pages {
                match (pages.ended(result, controls, answered, self.part.is_some()), &mut self.part) {
                    (Next::GoOn(left), Some(next)) => next.limit_page(left),
                    (Next::GoOn(_), None) => break,
                    (Next::Answer(result, controls), _) => {
                        self.end = Some((result, controls));
                        break;
                    }
                }
                continue;
            }
            // What the first database says holds: those glued below only add entries. An error ends the search.
            let failed = !result.is_success();
            if self.end.is_none() || failed {
                self.end = Some((result, controls));
                if failed {
                    break;
                }
            }
        }
        self.part = None;
        let (result, controls) = self.end.take().unwrap_or_else(|| (LdapResult::success(), Vec::new()));
        StepOutcome::Done(result, controls)
    }

    fn effort(&self) -> Effort {
        self.part.as_ref().map_or(self.done, |part| self.done.plus(part.effort()))
    }

    fn waits(&self) -> bool {
        self.asserted_base.iter().chain(&self.part).chain(&self.later).any(|part| part.waits())
    }

    fn follow(&mut self, follower: std::sync::Arc<larix_engine::log::Follower>) {
        let parts = self.asserted_base.iter_mut().chain(&mut self.part).chain(&mut self.later);
        for part in parts {
            part.follow(std::sync::Arc::clone(&follower));
        }
    }

    fn waits_for_changes(&self) -> bool {
        self.part.as_ref().is_some_and(|part| part.waits_for_changes())
    }

    fn deadline(&self) -> Option<Monotonic> {
        self.asserted_base.as_ref().or(self.part.as_ref()).and_then(|part| part.deadline())
    }

    fn pause(&mut self) {
        self.asserted_base.iter_mut().chain(&mut self.part).for_each(|part| part.pause());
    }

    fn is_dear(&self) -> bool {
        self.part.as_ref().is_some_and(|part| part.is_dear())
    }

    fn size_limit(&self) -> Option<u32> {
        self.part.as_ref().and_then(|part| part.size_limit())
    }
}

/// The scope that a search has in a subordinate database with this suffix; none if it does not get there.
pub(super) fn scope_below(scope: Scope, base: &NormalDn, suffix: &NormalDn) -> Option<Scope> {
    let within = match scope {
        Scope::Base => None,
        Scope::OneLevel if suffix.parent().is_some_and(|parent| parent == *base) => Some(Scope::Base),
        Scope::OneLevel => None,
        Scope::Subtree | Scope::Children => Some(Scope::Subtree),
    };
    within.filter(|_| suffix.is_descendant_of(base))
}
