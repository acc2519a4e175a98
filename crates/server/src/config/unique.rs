//! `overlay unique` and its directives.

use larix_engine::index::Kinds;
use larix_engine::overlay::unique::{Unique, UniqueDirectives, UniqueSettings};
use larix_schema::NormalDn;

use super::diagnostic::{ConfigError, Origin};
use super::line;
use super::model::{Config, Database, Overlay};

impl Config {
    /// # Errors
    /// A setting of the overlay that cannot be understood.
    pub(super) fn check_uniqueness(&self, database: &Database) -> Result<(), ConfigError> {
        if self.schema_comes() {
            return Ok(());
        }
        let mut overlays = self.overlays_of(database).filter(|overlay| overlay.name == "unique");
        overlays.try_for_each(|overlay| self.uniqueness(database, overlay).map(|_| ()))
    }

    pub(super) fn uniqueness(
        &self,
        database: &Database,
        overlay: &Overlay,
    ) -> Result<UniqueSettings, ConfigError> {
        let words_of = |value: &Vec<u8>| {
            let words = line::words(&String::from_utf8_lossy(value)).0;
            words.into_iter().map(|word| word.text).collect::<Vec<_>>()
        };
        let directives = UniqueDirectives {
            uris: overlay.settings.get("olcUniqueURI").iter().map(words_of).collect(),
            base: overlay.text("olcUniqueBase").map(|text| text.trim().trim_matches('"').to_owned()),
            attributes: overlay.words("olcUniqueAttribute"),
            ignore: overlay.words("olcUniqueIgnore"),
            strict: overlay.text("olcUniqueStrict").is_some_and(|text| !text.eq_ignore_ascii_case("FALSE")),
        };
        let suffixes: Vec<NormalDn> = database.suffixes.iter().map(|suffix| suffix.normal.clone()).collect();
        directives.settings(&self.schema, &suffixes).map_err(|error| overlay.fault(error))
    }

    pub(super) fn unique_overlay(
        &self,
        database: &Database,
        overlay: &Overlay,
    ) -> Result<Unique, ConfigError> {
        let settings = self.uniqueness(database, overlay)?;
        let suffix = database.suffixes.first().map_or_else(NormalDn::root, |suffix| suffix.normal.clone());
        Ok(Unique::new(settings, suffix))
    }
}

/// What an administrator should know of values that are looked up without an index.
pub(super) fn note_unindexed(config: &Config, database: &Database, notes: &mut Vec<(Origin, String)>) {
    let Some(mdb) = database.kind.mdb() else { return };
    let index = &mdb.index_config;
    for overlay in config.overlays_of(database).filter(|overlay| overlay.name == "unique") {
        let Ok(settings) = config.uniqueness(database, overlay) else { continue };
        let unindexed: Vec<String> = Unique::attributes(&settings)
            .iter()
            .filter(|attribute| !index.kinds(&config.schema, attribute).has(Kinds::EQUALITY))
            .map(|attribute| attribute.to_text(&config.schema))
            .collect();
        if !unindexed.is_empty() {
            let names = unindexed.join(",");
            let text = format!(
                "each change of these looks at every entry: unique attributes without an equality index; \
                 add `index {names} eq`"
            );
            notes.push((overlay.origin.clone(), text));
        }
    }
}
