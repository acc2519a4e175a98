//! When an account last authenticated: in pwdLastSuccess for the setting `lastbind` of a database, in authTimestamp for `overlay
//! lastbind` (slapo-lastbind(5)).

#[cfg(test)]
mod tests;

use std::sync::Arc;

use larix_schema::Schema;

use larix_engine::Entry;
use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{
    Authentication, BuildContext, ChangeKind, Descriptor, Failure, Interests, Judgement, Overlay,
    OverlayDirective, PendingBind, internal_change,
};
use larix_engine::time::Timestamp;

const LAST_SUCCESS: &str = "pwdLastSuccess";
const AUTHENTICATED: &str = "authTimestamp";

pub static DESCRIPTOR: Descriptor = Descriptor::new("lastbind", "olcLastBindConfig", build)
    .once()
    .local(&["authTimestamp"])
    .schema(
        "attributetype ( 1.3.6.1.4.1.453.16.2.188 NAME 'authTimestamp' EQUALITY generalizedTimeMatch \
         ORDERING generalizedTimeOrderingMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.24 SINGLE-VALUE \
         NO-USER-MODIFICATION USAGE dSAOperation )",
    )
    .directives(&[
        OverlayDirective::whole("lastbind-precision", "olcLastBindPrecision"),
        OverlayDirective::switch("lastbind_forward_updates", "olcLastBindForwardUpdates")
            .noted("a consumer keeps the times of its own binds"),
    ]);

fn build(settings: &Settings, context: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    // Since 2.6 the database's own setting of the name counts.
    let own = settings.number("lastbind-precision", "olcLastBindPrecision")?;
    let precision = own.unwrap_or(context.last_bind_precision);
    Ok(Arc::new(LastBind { precision, attribute: AUTHENTICATED }))
}

/// The overlay of a database whose `lastbind` is on.
pub(crate) fn implied(context: &BuildContext<'_>) -> Option<Arc<dyn Overlay>> {
    context.last_bind.then(|| Arc::new(LastBind::of_database(context.last_bind_precision)) as _)
}

/// Keeps the time of the last bind.
#[derive(Copy, Clone, Debug)]
pub struct LastBind {
    /// Seconds that must have passed before the time is written again (`lastbind-precision`).
    pub precision: u32,
    /// In which it is kept.
    pub attribute: &'static str,
}

impl LastBind {
    /// Keeps pwdLastSuccess.
    pub fn of_database(precision: u32) -> Self {
        Self { precision, attribute: LAST_SUCCESS }
    }
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
            vec![internal_change(bind.schema, ChangeKind::Replace, self.attribute, vec![value])?];
        Ok(judgement)
    }
}

impl LastBind {
    fn is_due(&self, bind: &PendingBind<'_>) -> bool {
        let last = self.last_success(bind.schema, bind.entry);
        last.is_none_or(|last| bind.now.seconds() > last.seconds().saturating_add(self.precision.into()))
    }

    /// When the account last authenticated, if that is known.
    fn last_success(&self, schema: &Schema, entry: &Entry) -> Option<Timestamp> {
        let attribute = schema.attribute_type(self.attribute)?.id;
        let value = entry.values(attribute).first()?;
        Timestamp::parse_generalized(std::str::from_utf8(value).ok()?)
    }
}
