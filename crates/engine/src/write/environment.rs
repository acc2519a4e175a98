//! What the writer of a database needs from its server.

use std::sync::Arc;

use super::index_work::IndexWatch;
use crate::order::CommitOrder;
use crate::time::{Clock, RandomSource};

/// What a writer needs from its server.
#[derive(Clone, Debug)]
pub struct WriterEnvironment {
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn RandomSource>,
    /// Shared by databases glued under one suffix.
    pub order: Arc<CommitOrder>,
    pub default_referrals: Arc<[String]>,
    pub auxiliary_needs_rule: bool,
    /// The observer of work on indexes; `None`: this process leaves incomplete indexes as they are.
    pub index_watch: Option<Arc<dyn IndexWatch>>,
}
