//! When an account last authenticated: in pwdLastSuccess for the setting `lastbind` of a database, in authTimestamp for `overlay
//! lastbind` (slapo-lastbind(5)). A shadow hands the first one on to its provider, and the second one with `lastbind_forward_updates`.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use larix_engine::Entry;
use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{
    Authentication, BuildContext, ChangeKind, Descriptor, Failure, Interests, Judgement, Overlay,
    OverlayDirective, PendingBind, internal_change,
};
use larix_engine::time::Timestamp;
use larix_proto::FilterBuf;
use larix_schema::Schema;

const LAST_SUCCESS: &str = "pwdLastSuccess";
/// When an account last logged in; the overlay `totp` keeps it, too.
pub(crate) const AUTH_TIMESTAMP: &str = "authTimestamp";
pub(crate) const AUTH_TIMESTAMP_DEFINITION: &str = "attributetype ( 1.3.6.1.4.1.453.16.2.188 NAME 'authTimestamp' \
     EQUALITY generalizedTimeMatch ORDERING generalizedTimeOrderingMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.24 \
     SINGLE-VALUE NO-USER-MODIFICATION USAGE dSAOperation )";

pub static DESCRIPTOR: Descriptor = Descriptor::new("lastbind", "olcLastBindConfig", build)
    .once()
    .local(&[AUTH_TIMESTAMP])
    .schema(AUTH_TIMESTAMP_DEFINITION)
    .directives(&[
        OverlayDirective::whole("lastbind-precision", "olcLastBindPrecision"),
        OverlayDirective::switch("lastbind_forward_updates", "olcLastBindForwardUpdates").default("FALSE"),
    ]);

fn build(settings: &Settings, context: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    // Since 2.6 the database's own setting of the name counts.
    let own: Option<i32> = settings.number("lastbind-precision", "olcLastBindPrecision")?;
    // Below 0 is none, as in slapd.
    let precision = own.map_or(context.last_bind_precision, |own| u32::try_from(own).unwrap_or(0));
    let forwards = settings.is_on("olcLastBindForwardUpdates");
    Ok(Arc::new(LastBind {
        precision,
        attribute: AUTH_TIMESTAMP,
        forwards,
        forwards_nowhere: forwards && context.forwards == Some(false),
        asserts: false,
    }))
}

/// The overlay of a database whose `lastbind` is on.
pub(crate) fn implied(context: &BuildContext<'_>) -> Option<Arc<dyn Overlay>> {
    let own = || LastBind {
        asserts: context.last_bind_asserts,
        ..LastBind::of_database(context.last_bind_precision)
    };
    context.last_bind.then(|| Arc::new(own()) as _)
}

/// Keeps the time of the last bind.
#[derive(Copy, Clone, Debug)]
pub struct LastBind {
    /// Seconds that must have passed before the time is written again (`lastbind-precision`).
    pub precision: u32,
    /// In which it is kept.
    pub attribute: &'static str,
    /// A shadow hands it on to its provider as well.
    pub forwards: bool,
    /// It is to, and cannot.
    forwards_nowhere: bool,
    /// Only if the provider has no time that is recent enough (`lastbind-send-assert`).
    pub asserts: bool,
}

impl LastBind {
    /// Keeps pwdLastSuccess.
    pub fn of_database(precision: u32) -> Self {
        let (forwards, forwards_nowhere, asserts) = (true, false, false);
        Self { precision, attribute: LAST_SUCCESS, forwards, forwards_nowhere, asserts }
    }
}

impl Overlay for LastBind {
    fn name(&self) -> &'static str {
        "lastbind"
    }

    fn notes(&self, _: &Schema) -> Vec<String> {
        let note = self.forwards_nowhere.then(|| {
            "lastbind_forward_updates has no effect: a shadow needs an updateref and an overlay chain to hand on the times of binds"
                .to_owned()
        });
        note.into_iter().collect()
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
        let change = internal_change(bind.schema, ChangeKind::Replace, self.attribute, vec![value])?;
        match self.unless_recent(bind.now).filter(|_| self.forwards) {
            Some(condition) => judgement.forwarded_if = vec![(change.clone(), condition)],
            None if self.forwards => judgement.forwarded = vec![change.clone()],
            None => {}
        }
        judgement.changes = vec![change];
        Ok(judgement)
    }
}

impl LastBind {
    fn is_due(&self, bind: &PendingBind<'_>) -> bool {
        let last = self.last_success(bind.schema, bind.entry);
        last.is_none_or(|last| bind.now.seconds() > last.seconds().saturating_add(self.precision.into()))
    }

    /// The condition that a provider has no time that is recent enough.
    fn unless_recent(&self, now: Timestamp) -> Option<FilterBuf> {
        let recent = Timestamp::from_seconds(now.seconds().saturating_sub(self.precision.into()));
        let filter = || format!("(!({}>={}))", self.attribute, recent.generalized());
        self.asserts.then(filter).and_then(|filter| FilterBuf::parse(&filter).ok())
    }

    /// When the account last authenticated, if that is known.
    fn last_success(&self, schema: &Schema, entry: &Entry) -> Option<Timestamp> {
        let attribute = schema.attribute_type(self.attribute)?.id;
        let value = entry.values(attribute).first()?;
        Timestamp::parse_generalized(std::str::from_utf8(value).ok()?)
    }
}
