//! `overlay accesslog`: its directives. What it records is made from the change log, by the server, which reads these settings.

use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{
    BuildContext, Descriptor, InGluedDatabases, InSharedEngine, Interests, Overlay, OverlayDirective,
};

pub static DESCRIPTOR: Descriptor = Descriptor::new("accesslog", "olcAccessLogConfig", build)
    .over_glue(InGluedDatabases::Refused("an access log has the changes of one database"))
    .records_operations()
    .in_shared_engine(InSharedEngine::WithAnotherDatabase)
    .local(&["auditContext"])
    .directives(&[
        OverlayDirective::whole("logdb", "olcAccessLogDB"),
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
struct AccessLog;

impl Overlay for AccessLog {
    fn name(&self) -> &'static str {
        "accesslog"
    }

    fn interests(&self) -> Interests {
        Interests::NONE
    }
}

fn build(_: &Settings, _: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    Ok(Arc::new(AccessLog))
}
