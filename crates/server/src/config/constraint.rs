//! `overlay constraint` and its directives.

use larix_engine::overlay::constraint::{ConstraintSettings, Constraints};
use larix_schema::NormalDn;

use super::diagnostic::ConfigError;
use super::line;
use super::model::{Config, Database, Overlay};

impl Config {
    /// # Errors
    /// A setting of the overlay that cannot be understood.
    pub(super) fn check_constraints(&self, database: &Database) -> Result<(), ConfigError> {
        if self.schema_comes() {
            return Ok(());
        }
        let mut overlays = self.overlays_of(database).filter(|overlay| overlay.name == "constraint");
        overlays.try_for_each(|overlay| self.constraints(database, overlay).map(|_| ()))
    }

    pub(super) fn constraints(
        &self,
        database: &Database,
        overlay: &Overlay,
    ) -> Result<Constraints, ConfigError> {
        let values = overlay.settings.get("olcConstraintAttribute").iter();
        let lines: Vec<Vec<String>> = values
            .map(|value| {
                let words = line::words(&String::from_utf8_lossy(value)).0;
                words.into_iter().map(|word| word.text).collect()
            })
            .collect();
        let allow_empty =
            overlay.text("olcConstraintAllowEmpty").is_some_and(|text| text.eq_ignore_ascii_case("TRUE"));
        let suffixes: Vec<NormalDn> = database.suffixes.iter().map(|suffix| suffix.normal.clone()).collect();
        let settings = ConstraintSettings::parse(&self.schema, &suffixes, &lines, allow_empty)
            .map_err(|error| overlay.fault(error))?;
        let suffix = suffixes.into_iter().next().unwrap_or_else(NormalDn::root);
        Ok(Constraints::new(settings, suffix))
    }
}
