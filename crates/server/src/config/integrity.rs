//! `overlay refint` and its directives.

use larix_engine::index::Kinds;
use larix_engine::overlay::referential_integrity::{MODIFIER, ReferentialIntegritySettings};
use larix_schema::AttributeDescription;

use super::diagnostic::{ConfigError, Origin};
use super::line;
use super::model::{Config, Database, Overlay};
use super::values::ConfigDn;

impl Overlay {
    /// The first value of one of its settings.
    pub(super) fn text(&self, attribute: &str) -> Option<String> {
        let value = self.settings.get(attribute).first()?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    pub(super) fn words(&self, attribute: &str) -> Vec<String> {
        let values = self.settings.get(attribute).iter();
        let words = values.flat_map(|value| line::words(&String::from_utf8_lossy(value)).0);
        words.map(|word| word.text).collect()
    }

    pub(super) fn fault(&self, message: String) -> ConfigError {
        ConfigError::new(self.origin.clone(), message)
    }

    pub(super) fn dn(
        &self,
        config: &Config,
        keyword: &str,
        attribute: &str,
    ) -> Result<Option<ConfigDn>, ConfigError> {
        let Some(text) = self.text(attribute) else { return Ok(None) };
        let dn = ConfigDn::parse_relaxed(&config.schema, text.trim().trim_matches('"'));
        dn.map(Some).map_err(|error| self.fault(format!("{keyword} \"{text}\" is not a DN: {error}")))
    }
}

impl Config {
    /// # Errors
    /// A setting of these overlays that cannot be understood.
    pub(super) fn check_integrity(&self, database: &Database) -> Result<(), ConfigError> {
        for overlay in self.overlays_of(database) {
            if overlay.name == "refint" {
                self.referential_integrity(database, overlay)?;
            }
        }
        Ok(())
    }

    pub(super) fn referential_integrity(
        &self,
        database: &Database,
        overlay: &Overlay,
    ) -> Result<ReferentialIntegritySettings, ConfigError> {
        let nothing = overlay.dn(self, "refint_nothing", "olcRefintNothing")?;
        let modifier = overlay.dn(self, "refint_modifiersname", "olcRefintModifiersName")?;
        let modifier = modifier.map_or_else(|| MODIFIER.to_owned(), |dn| dn.text);
        Ok(ReferentialIntegritySettings {
            attributes: self.kept_attributes(database, overlay)?,
            nothing: nothing.map(|dn| dn.text),
            modifier: database.last_mod.then_some(modifier),
        })
    }

    /// Those that nothing else keeps right: an overlay memberof sees to its own attribute.
    fn kept_attributes(
        &self,
        database: &Database,
        overlay: &Overlay,
    ) -> Result<Vec<AttributeDescription>, ConfigError> {
        let mut attributes = self.reference_attributes(overlay)?;
        for membership in self.memberships(database)? {
            attributes.retain(|attribute| *attribute != membership.rule.member_of);
        }
        Ok(attributes)
    }

    fn reference_attributes(&self, overlay: &Overlay) -> Result<Vec<AttributeDescription>, ConfigError> {
        let mut attributes = Vec::new();
        for name in overlay.words("olcRefintAttribute") {
            match self.schema.describe(&name) {
                Ok(description) => attributes.push(description),
                Err(_) if self.schema_comes() => {}
                Err(error) => return Err(overlay.fault(format!("refint_attributes <{name}>: {error}"))),
            }
        }
        Ok(attributes)
    }

    /// Whether the schema is not read yet: a name that is unknown may be known later.
    pub(super) fn schema_comes(&self) -> bool {
        self.read_entries.is_some() && self.schema_sections.is_empty()
    }
}

/// What an administrator should know of references that are kept right.
pub(super) fn note_unindexed(config: &Config, database: &Database, notes: &mut Vec<(Origin, String)>) {
    let Some(mdb) = database.kind.mdb() else { return };
    let mut index = mdb.index_config.clone();
    // What is wrong there is said elsewhere.
    let _ = config.index_members(database, &mut index);
    for overlay in config.overlays_of(database).filter(|overlay| overlay.name == "refint") {
        let Ok(attributes) = config.kept_attributes(database, overlay) else { continue };
        let has_index =
            |attribute: &&AttributeDescription| index.kinds(&config.schema, attribute).has(Kinds::EQUALITY);
        let unindexed: Vec<String> = attributes
            .iter()
            .filter(|attribute| !has_index(attribute))
            .map(|attribute| attribute.to_text(&config.schema))
            .collect();
        if !unindexed.is_empty() {
            let names = unindexed.join(",");
            let text = format!(
                "each delete and each rename looks at every entry: refint_attributes without an equality index; \
                 add `index {names} eq`"
            );
            notes.push((overlay.origin.clone(), text));
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A slapd.conf with the core schema; its folder stands for `$D`.
    pub(in super::super) fn read(lines: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slapd.conf");
        std::fs::write(folder.path().join("core.schema"), larix_schema::bundled("core").unwrap()).unwrap();
        let place = folder.path().display();
        let text = format!("include {place}/core.schema\n{lines}").replace("$D", &place.to_string());
        std::fs::write(&file, text).unwrap();
        Config::from_slapd_conf(&file).map_err(|error| error.to_string())
    }

    const DATABASE: &str = "database mdb\nsuffix dc=a\ndirectory $D\nindex member eq\noverlay refint\n";

    #[test]
    fn settings_are_read() {
        let config = read(&format!(
            "{DATABASE}refint_attributes member owner\nrefint_attributes seeAlso\n\
             refint_nothing \"CN=no body, dc=a\"\n"
        ))
        .unwrap();
        let database = &config.databases[1];
        let settings = config.referential_integrity(database, &database.overlays[0]).unwrap();
        let names = settings.attributes.iter().map(|attribute| attribute.to_text(&config.schema));
        assert_eq!(names.collect::<Vec<_>>(), ["member", "owner", "seeAlso"]);
        assert_eq!(settings.nothing.as_deref(), Some("cn=no body,dc=a"));
        assert_eq!(settings.modifier.as_deref(), Some(MODIFIER));
        let mut notes = Vec::new();
        note_unindexed(&config, database, &mut notes);
        assert!(notes[0].1.ends_with("add `index owner,seeAlso eq`"), "{}", notes[0].1);
        assert!(config.refusals().is_empty());
    }

    #[test]
    fn mistakes_are_named() {
        for (lines, fault) in [
            ("refint_attributes nosuch\n", "refint_attributes <nosuch>: attribute type undefined"),
            ("refint_nothing nobody\n", "refint_nothing \"nobody\" is not a DN"),
        ] {
            let error = read(&format!("{DATABASE}{lines}")).unwrap_err();
            assert!(error.contains(fault), "{error}");
        }
        let config = read("overlay refint\nrefint_attributes member\n").unwrap();
        assert!(config.refusals()[0].to_string().contains("for all databases is not supported"));
    }
}
