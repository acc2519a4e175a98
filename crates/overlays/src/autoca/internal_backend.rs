//! Where the changes of the overlay go: its database, and cn=config, by requests of the server's own.

use std::sync::Arc;

use larix_backend::{Alone, Announcement, Backend, Below, Changes, Context, Mount, PendingAnswer, Routing};
use larix_engine::Entry;
use larix_engine::access::Subject;
use larix_engine::overlay::internal_search::InternalSearch;
use larix_engine::time::{Clock, Monotonic, Timestamp};
use larix_engine::write::Completion;
use larix_proto::Scope;
use larix_schema::{BoundFilter, NormalDn};

/// A backend, and the moment of the request that led here.
#[derive(Clone, Debug)]
pub(super) struct InternalBackend {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) moment: Moment,
}

/// A clock that stands still.
#[derive(Copy, Clone, Debug)]
pub(super) struct Moment {
    pub(super) now: Timestamp,
    pub(super) monotonic: Monotonic,
}

impl Clock for Moment {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn monotonic(&self) -> Monotonic {
        self.monotonic
    }
}

/// All names are the backend's.
impl Routing for InternalBackend {
    fn mounts(&self) -> &[Mount] {
        &[]
    }

    fn backend(&self, _: &NormalDn) -> Option<&dyn Backend> {
        Some(&*self.backend)
    }

    fn glued_below(&self, _: &NormalDn, _: Scope) -> Vec<Below<'_>> {
        Vec::new()
    }

    fn announced(&self) -> Announcement {
        Announcement::default()
    }
}

impl InternalBackend {
    /// Behind all overlays that see requests: these are about clients.
    fn innermost(&self) -> &dyn Backend {
        let mut backend = &*self.backend;
        while let Some(behind) = backend.behind() {
            backend = behind;
        }
        backend
    }

    fn context<'a>(&'a self, subject: &'a Arc<Subject>) -> Context<'a> {
        let (clock, began) = (&self.moment, self.moment.monotonic);
        Context { subject, router: self, client: &Alone, clock, began }
    }

    /// Has changes made, on any thread.
    pub(super) fn update(&self, subject: &Arc<Subject>, changes: Changes, done: Completion) -> PendingAnswer {
        self.innermost().update(&self.context(subject), changes, done)
    }

    /// The entry of this name, as the server sees it.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(super) fn entry(&self, subject: &Arc<Subject>, dn: &NormalDn) -> Result<Option<Entry>, String> {
        let mut entry = None;
        let query = InternalSearch::new(dn, Scope::Base, &BoundFilter::True);
        let found = self.innermost().find(&self.context(subject), &query, &mut |found| {
            entry = Some(found.owned()?);
            Ok(false)
        });
        found.map(|()| entry).map_err(|fault| fault.to_string())
    }
}
