//! `overlay psearch`: clients may have searches of the database go on with its changes (draft-ietf-ldapext-psearch-03). They follow
//! the change log, as consumers do.

use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Descriptor, Interests, Overlay};

pub static DESCRIPTOR: Descriptor = Descriptor::new("psearch", "olcOverlayConfig", build).once();

/// It uses no hook: the database itself carries such searches out.
#[derive(Debug)]
struct PersistentSearches;

impl Overlay for PersistentSearches {
    fn name(&self) -> &'static str {
        "psearch"
    }

    fn interests(&self) -> Interests {
        Interests::NONE
    }

    fn tells_changes(&self) -> bool {
        true
    }
}

fn build(_: &Settings, _: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    Ok(Arc::new(PersistentSearches))
}
