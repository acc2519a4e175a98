//! The overlay of the configuration in force, and the databases beside it.

use std::sync::Arc;

use larix_engine::overlay::committed::{Committed, CommittedBatch, CommittedEntries, NotTaken, OtherWriters};
use larix_engine::overlay::{Failure, FollowUpElsewhere};
use larix_schema::{NormalDn, Schema};

use super::{OverlayHost, OverlayThread};

/// An overlay that may be exchanged while its thread works. Which one takes changes is decided after they were read: a change that is
/// made under a new configuration never meets the overlay, or the databases, of the one before.
#[derive(Debug)]
pub(super) struct CurrentOverlay<'t, H: OverlayHost>(pub(super) &'t OverlayThread<H>);

impl<H: OverlayHost> Committed for CurrentOverlay<'_, H> {
    fn begin(&self, schema: &Schema, entries: &dyn CommittedEntries) -> Result<(), Failure> {
        self.0.overlay().committed().map_or(Ok(()), |committed| committed.begin(schema, entries))
    }

    fn take(&self, batch: &CommittedBatch<'_>) -> Result<(), NotTaken> {
        self.0.overlay().committed().map_or(Ok(()), |committed| committed.take(batch))
    }

    fn settle(&self) -> Result<(), String> {
        self.0.overlay().committed().map_or(Ok(()), |committed| committed.settle())
    }
}

impl<H: OverlayHost> OtherWriters for CurrentOverlay<'_, H> {
    fn follow(&self, suffix: &NormalDn, follow_ups: Vec<Arc<dyn FollowUpElsewhere>>) -> Result<(), NotTaken> {
        let writers = self.0.writers();
        writers.follow(suffix, follow_ups)
    }
}
