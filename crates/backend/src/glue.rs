//! A search over a database and those glued below it, one after the other.

use larix_engine::controls::RequestControls;
use larix_engine::search::task::Budget;
use larix_engine::time::Monotonic;
use larix_proto::{LdapResult, ResultCode, Scope};
use larix_schema::NormalDn;

use crate::backend::{Backend, Below, Context};
use crate::cursor::{Cursor, Effort, End, StepOutcome};
use crate::glued_pages::{GluedPages, Next};
use crate::operation::Search;

/// A search over several databases.
#[derive(Debug)]
struct GluedSearch {
    /// A search of the base alone, for what is asserted of it where its database has no more entries for this page. Only its result counts.
    asserted_base: Option<Box<dyn Cursor>>,
    /// The database that is searched now.
    part: Option<Box<dyn Cursor>>,
    /// Those that come after it, the next one last.
    later: Vec<Box<dyn Cursor>>,
    pages: Option<GluedPages>,
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
    let part = |backend: &dyn Backend, controls: RequestControls, base, scope| {
        let mut request = request;
        request.scope = scope;
        backend.open(context, Search { request, base, controls, message })
    };
    // Each page is a search of its own (RFC 4528 section 3).
    let asserted_base = (begin > 0 && controls.assertion.is_some()).then(|| {
        let controls = controls.with(|values| (values.paged, values.sort) = (None, None));
        part(backend, controls, base, Scope::Base)
    });
    let asserted_base = asserted_base.transpose()?;
    let mut later = Vec::new();
    for (at, (backend, suffix, scope)) in below.iter().enumerate().rev().filter(|(at, _)| *at + 1 >= begin) {
        // Sorting is the first database's: sorted answers cannot be merged here.
        let controls = controls.with(|values| {
            (values.paged, values.sort) = (paged(at + 1), None);
            values.leave_assertion_out();
        });
        later.push(part(*backend, controls, suffix, *scope)?);
    }
    if begin == 0 {
        let paged = paged(0).or_else(|| controls.paged.clone());
        let controls = controls.with(|values| values.paged = paged);
        later.push(part(backend, controls, base, request.scope)?);
    }
    let first = later.pop();
    let done = Effort::default();
    Ok(Box::new(GluedSearch { asserted_base, part: first, later, pages, done, end: None }))
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
            let (answered, limit) = (part.effort().entries, part.size_limit());
            let answered = u32::try_from(answered).unwrap_or(u32::MAX);
            self.done = self.done.plus(part.effort());
            self.part = self.later.pop();
            if let (Some(limit), Some(next)) = (limit, &mut self.part) {
                next.limit_size(limit.saturating_sub(answered));
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
            // What the first database says holds: those glued below only add entries, and may have none yet. Any other
            // error ends the search.
            let empty = self.end.is_some() && result.code == ResultCode::NO_SUCH_OBJECT;
            if self.end.is_none() || !(result.is_success() || empty) {
                let failed = !result.is_success();
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
