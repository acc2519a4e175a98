//! `lastbind`: when an account last authenticated, in pwdLastSuccess.

use std::sync::Arc;

use larix_schema::Schema;

use larix_engine::Entry;
use larix_engine::overlay::{
    Authentication, BuildContext, ChangeKind, Failure, Interests, Judgement, Overlay, PendingBind,
    internal_change,
};
use larix_engine::time::Timestamp;

const LAST_SUCCESS: &str = "pwdLastSuccess";

/// The overlay of a database whose `lastbind` is on.
pub(crate) fn implied(context: &BuildContext<'_>) -> Option<Arc<dyn Overlay>> {
    context.last_bind.then(|| Arc::new(LastBind { precision: context.last_bind_precision }) as _)
}

/// Keeps pwdLastSuccess.
#[derive(Copy, Clone, Debug)]
pub struct LastBind {
    /// Seconds that must have passed before the time is written again (`lastbind-precision`).
    pub precision: u32,
}

impl Overlay for LastBind {
    fn name(&self) -> &'static str {
        "lastbind"
    }

    fn interests(&self) -> Interests {
        Interests::BIND
    }

    fn authentication(&self) -> Option<&dyn Authentication> {
        Some(self)
    }
}

impl Authentication for LastBind {
    fn judge(&self, bind: &PendingBind<'_>) -> Result<Judgement, Failure> {
        let mut judgement = Judgement::default();
        if !bind.matched || !self.is_due(bind) {
            return Ok(judgement);
        }
        let value = bind.now.generalized().into_bytes();
        judgement.changes =
            vec![internal_change(bind.schema, ChangeKind::Replace, LAST_SUCCESS, vec![value])?];
        Ok(judgement)
    }
}

impl LastBind {
    fn is_due(&self, bind: &PendingBind<'_>) -> bool {
        let last = last_success(bind.schema, bind.entry);
        last.is_none_or(|last| bind.now.seconds() > last.seconds().saturating_add(self.precision.into()))
    }
}

/// When the account last authenticated, if that is known.
fn last_success(schema: &Schema, entry: &Entry) -> Option<Timestamp> {
    let attribute = schema.attribute_type(LAST_SUCCESS)?.id;
    let value = entry.values(attribute).first()?;
    Timestamp::parse_generalized(std::str::from_utf8(value).ok()?)
}
