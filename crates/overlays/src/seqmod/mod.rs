//! `overlay seqmod`: changes of one entry one after another. They are: a database has one writer.

use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Descriptor, InGluedDatabases, Interests, Overlay};

pub static DESCRIPTOR: Descriptor =
    Descriptor::new("seqmod", "olcOverlayConfig", build).over_glue(InGluedDatabases::Each).once();

/// Its settings say all; it uses no hook.
#[derive(Debug)]
struct SequentialModify;

impl Overlay for SequentialModify {
    fn name(&self) -> &'static str {
        "seqmod"
    }

    fn interests(&self) -> Interests {
        Interests::NONE
    }
}

fn build(_: &Settings, _: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    Ok(Arc::new(SequentialModify))
}
