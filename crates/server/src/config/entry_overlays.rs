//! Overlays that change what is seen of entries: valsort and its kin.

use std::sync::Arc;

use larix_engine::overlay;
use larix_engine::overlay::valsort::ValSort;

use super::diagnostic::ConfigError;
use super::line;
use super::model::{Config, Database, Overlay};

impl Config {
    /// # Errors
    /// A setting of one of the overlays that cannot be understood.
    pub(super) fn check_entry_overlays(&self, database: &Database) -> Result<(), ConfigError> {
        if self.schema_comes() {
            return Ok(());
        }
        self.overlays_of(database).try_for_each(|overlay| self.entry_overlay(overlay).map(|_| ()))
    }

    /// The overlay as the engine runs it; `None` for one of another kind.
    ///
    /// # Errors
    /// A setting that cannot be understood.
    pub(super) fn entry_overlay(
        &self,
        overlay: &Overlay,
    ) -> Result<Option<Arc<dyn overlay::Overlay>>, ConfigError> {
        let schema = &self.schema;
        let made: Result<Arc<dyn overlay::Overlay>, String> = match overlay.name.as_str() {
            "valsort" => {
                ValSort::new(schema, &lines(overlay, "olcValSortAttr")).map(|made| Arc::new(made) as _)
            }
            _ => return Ok(None),
        };
        made.map(Some).map_err(|fault| overlay.fault(fault))
    }
}

/// The values of a setting, each as its words.
fn lines(overlay: &Overlay, attribute: &str) -> Vec<Vec<String>> {
    let words = |value: &Vec<u8>| {
        let words = line::words(&String::from_utf8_lossy(value)).0;
        words.into_iter().map(|word| word.text).collect()
    };
    overlay.settings.get(attribute).iter().map(words).collect()
}
