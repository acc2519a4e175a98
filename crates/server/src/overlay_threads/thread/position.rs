//! Where an overlay is in the change log, and that this is remembered before anything depends on it.

use std::sync::Arc;

use larix_engine::overlay::Interests;
use larix_engine::overlay::committed::Committed as _;
use larix_engine::{CommittedFollower, ServedDatabase};
use larix_store::Store;

use super::current_overlay::CurrentOverlay;
use super::{OverlayHost, OverlayThread, Progress};
use crate::panics;

impl<H: OverlayHost> OverlayThread<H> {
    /// Settles where the overlay begins in the change log, durably. To be called before anybody is answered that the overlay is in force:
    /// it is shown each change that is made after this, however late its thread runs, and after a crash as well. What fails here is
    /// tried again, and reported, by the thread.
    pub(in crate::overlay_threads) fn settle_position(&self) -> Progress<H> {
        let mut progress = Progress::default();
        let acts = self.host.served().and_then(|served| Some((served, self.host.term()?)));
        if let Some((served, term)) = acts
            && self.overlay().interests().has(Interests::COMMITTED)
        {
            let _ = panics::contained(|| {
                self.begin_term((served, term), &mut progress).and_then(|()| self.join(served, &mut progress))
            });
        }
        progress
    }

    /// From now on the overlay acts here, unless it does already.
    ///
    /// # Errors
    /// A store that cannot be read, or another server that writes.
    pub(super) fn begin_term(
        &self,
        (served, term): (&Arc<ServedDatabase<H::Store>>, u64),
        progress: &mut Progress<H>,
    ) -> Result<(), String> {
        if progress.term == Some(term) {
            return Ok(());
        }
        progress.look = None;
        if <H::Store as Store>::SHARED {
            served.follow_store().map_err(|error| error.to_string())?;
        }
        if let Some(follower) = &mut progress.follower {
            follower.resume().map_err(|fault| fault.to_string())?;
        }
        (progress.term, progress.has_begun) = (Some(term), false);
        Ok(())
    }

    /// Follows the change log from now on, unless it does already, and makes durable where the overlay is in it.
    ///
    /// # Errors
    /// A store that cannot be read or written.
    pub(super) fn join(
        &self,
        served: &Arc<ServedDatabase<H::Store>>,
        progress: &mut Progress<H>,
    ) -> Result<(), String> {
        if progress.follower.is_some() {
            // What it took in a term before is durable before its place is.
            CurrentOverlay(self).settle()?;
        } else {
            let reader = progress.reader.take();
            let reader = reader.unwrap_or_else(|| CommittedFollower::hold(served, self.waker()));
            let joined = CommittedFollower::join_with(served, &self.name, reader);
            progress.follower = Some(joined.map_err(|fault| fault.to_string())?);
        }
        let Some(follower) = &mut progress.follower else { return Ok(()) };
        // From here on nothing is missed.
        follower.keep_position().map_err(|error| error.to_string())
    }
}
