//! `overlay trace`: a line in the log for each operation and its result. The log has them.

use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Descriptor, InGluedDatabases, Interests, Overlay};

pub static DESCRIPTOR: Descriptor = Descriptor::new("trace", "olcOverlayConfig", build)
    .over_glue(InGluedDatabases::Each)
    .noted("operations and their results are in the log with `loglevel stats`");

/// Its settings say all; it uses no hook.
#[derive(Debug)]
struct Trace;

impl Overlay for Trace {
    fn name(&self) -> &'static str {
        "trace"
    }

    fn interests(&self) -> Interests {
        Interests::NONE
    }
}

fn build(_: &Settings, _: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    Ok(Arc::new(Trace))
}
