//! `overlay deref`: the dereference control is part of every search.

use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Descriptor, InGluedDatabases, Interests, Overlay};

pub static DESCRIPTOR: Descriptor = Descriptor::new("deref", "olcOverlayConfig", build)
    .over_glue(InGluedDatabases::TakenIn)
    .once()
    .noted("dereferencing is built in");

/// Its settings say all; it uses no hook.
#[derive(Debug)]
struct Dereference;

impl Overlay for Dereference {
    fn name(&self) -> &'static str {
        "deref"
    }

    fn interests(&self) -> Interests {
        Interests::NONE
    }
}

fn build(_: &Settings, _: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    Ok(Arc::new(Dereference))
}
