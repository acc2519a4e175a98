//! `overlay accesslog`: its directives. What it records is made from the change log, by the server, which reads these settings.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{
    BuildContext, Descriptor, InGluedDatabases, InSharedEngine, Interests, Overlay, OverlayDirective,
};
use larix_schema::Schema;

pub static DESCRIPTOR: Descriptor = Descriptor::new("accesslog", "olcAccessLogConfig", build)
    .over_glue(InGluedDatabases::Refused("an access log has the changes of one database"))
    .records_operations()
    .in_shared_engine(InSharedEngine::WithAnotherDatabase)
    .local(&["auditContext"])
    .directives(&[
        OverlayDirective::whole("logdb", "olcAccessLogDB").with_blanks(),
        OverlayDirective::words("logops", "olcAccessLogOps").many(),
        OverlayDirective::words("logpurge", "olcAccessLogPurge"),
        OverlayDirective::switch("logsuccess", "olcAccessLogSuccess"),
        OverlayDirective::words("logold", "olcAccessLogOld"),
        OverlayDirective::words("logoldattr", "olcAccessLogOldAttr").many(),
        OverlayDirective::words("logbase", "olcAccessLogBase").many(),
        OverlayDirective::whole("logpurgebatch", "olcAccessLogPurgeBatch"),
    ]);

/// Its settings say all; it uses no hook.
#[derive(Debug)]
struct AccessLog {
    /// It is said what to record.
    records: bool,
    /// `logoldattr` without `logold`.
    idle_attributes: bool,
}

impl Overlay for AccessLog {
    fn name(&self) -> &'static str {
        "accesslog"
    }

    fn interests(&self) -> Interests {
        Interests::NONE
    }

    fn notes(&self, _: &Schema) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.records {
            notes.push("overlay accesslog: nothing is recorded; say what with `logops writes`".to_owned());
        }
        if self.idle_attributes {
            let why = "`logoldattr` has no effect without `logold`: name the entries that it is about, as in \
                       `logold (objectClass=*)`";
            notes.push(why.to_owned());
        }
        notes
    }
}

fn build(settings: &Settings, _: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    let has = |attribute: &str| settings.text(attribute).is_some();
    Ok(Arc::new(AccessLog {
        records: has("olcAccessLogOps") || has("olcAccessLogBase"),
        idle_attributes: has("olcAccessLogOldAttr") && !has("olcAccessLogOld"),
    }))
}
