//! A change on its way to the writer, and what follows from a change of another database.

use std::sync::Arc;

use larix_schema::NormalDn;

use super::prepared_sets::PreparedSets;
use crate::access::Subject;
use crate::change::prepare::PreparedChange;
use crate::controls::RequestControls;
use crate::overlay::{FollowUpElsewhere, PasswordWork};

/// A change that is ready for the writer.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) operation: PreparedChange,
    /// The DN of the target as the request had it.
    pub(crate) target: String,
    pub(crate) subject: Arc<Subject>,
    pub(crate) controls: RequestControls,
    pub(crate) passwords: Option<Arc<PasswordWork>>,
    /// Of the operation as it is here.
    pub(crate) prepared: PreparedSets,
    /// It was made on another server, and says so itself: by the `updatedn` of a shadow.
    pub(crate) replicated: bool,
    /// The entry whose change, from which this one follows, is not made without it.
    pub(crate) required_by: Option<NormalDn>,
}

impl Task {
    /// A change that the server itself makes in somebody's name: nothing of it is prepared, and no password computed.
    pub(crate) fn new(
        operation: PreparedChange,
        target: String,
        subject: Arc<Subject>,
        controls: RequestControls,
    ) -> Self {
        Self {
            operation,
            target,
            subject,
            controls,
            passwords: None,
            prepared: PreparedSets::default(),
            replicated: false,
            required_by: None,
        }
    }
}

/// What follows from a change of another database.
#[derive(Clone, Debug)]
pub(crate) struct Follow {
    pub(crate) follow_up: Arc<dyn FollowUpElsewhere>,
    /// In whose name.
    pub(crate) subject: Arc<Subject>,
}
