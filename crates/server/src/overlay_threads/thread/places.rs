//! Where an overlay is in the change log, and that this is remembered before anything depends on it.

use std::sync::Arc;

use larix_engine::overlay::Interests;
use larix_engine::overlay::committed::Committed as _;
use larix_engine::{CommittedFollower, Served};
use larix_store::Store;

use super::in_force::InForce;
use super::{Known, OverlayHost, OverlayThread};
use crate::panics;

impl<H: OverlayHost> OverlayThread<H> {
    /// Settles where the overlay begins in the change log, durably. To be called before anybody is answered that the overlay is in force:
    /// it is shown each change that is made after this, however late its thread runs, and after a crash as well. What fails here is
    /// tried again, and reported, by the thread.
    pub(in crate::overlay_threads) fn place(&self) -> Known<H> {
        let mut known = Known::default();
        let acts = self.host.served().and_then(|served| Some((served, self.host.term()?)));
        if let Some((served, term)) = acts
            && self.overlay().interests().has(Interests::COMMITTED)
        {
            let _ = panics::contained(|| {
                self.begin_term((served, term), &mut known).and_then(|()| self.join(served, &mut known))
            });
        }
        known
    }

    /// From now on the overlay acts here, unless it does already.
    ///
    /// # Errors
    /// A store that cannot be read, or another server that writes.
    pub(super) fn begin_term(
        &self,
        (served, term): (&Arc<Served<H::Store>>, u64),
        known: &mut Known<H>,
    ) -> Result<(), String> {
        if known.term == Some(term) {
            return Ok(());
        }
        known.look = None;
        if <H::Store as Store>::SHARED {
            served.follow_store().map_err(|error| error.to_string())?;
        }
        if let Some(follower) = &mut known.follower {
            follower.resume().map_err(|fault| fault.to_string())?;
        }
        (known.term, known.begun) = (Some(term), false);
        Ok(())
    }

    /// Follows the change log from now on, unless it does already, and makes durable where the overlay is in it.
    ///
    /// # Errors
    /// A store that cannot be read or written.
    pub(super) fn join(&self, served: &Arc<Served<H::Store>>, known: &mut Known<H>) -> Result<(), String> {
        if known.follower.is_some() {
            // What it took in a term before is durable before its place is.
            InForce(self).settle()?;
        } else {
            let held = known.held.take();
            let held = held.unwrap_or_else(|| CommittedFollower::hold(served, self.waker()));
            let joined = CommittedFollower::join_with(served, &self.name, held);
            known.follower = Some(joined.map_err(|fault| fault.to_string())?);
        }
        let Some(follower) = &mut known.follower else { return Ok(()) };
        // From here on nothing is missed.
        follower.keep_position().map_err(|error| error.to_string())
    }
}
