//! Overlays as the configuration has them, and what the engine is given of them.

use std::sync::{Arc, LazyLock};

use larix_engine::budget::RequestLimits;
use larix_engine::database::ProviderSettings;
use larix_engine::index::IndexConfig;
use larix_engine::overlay::settings::{SettingError, Settings, Value};
use larix_engine::overlay::{self, BuildContext, Descriptor, Global, InGluedDatabases, OtherDatabase};
use larix_schema::{AttributeDescription, NearestSuffix, NormalDn};

use super::diagnostic::{ConfigError, Origin};
use super::directives::overlay_kind;
use super::line;
use super::model::{Config, Database, Overlay};
use super::undefined::remedy;

/// The overlay that glues subordinate databases.
const GLUE: &str = "glue";

/// Operational attributes that each server's overlays derive or keep by themselves: replicas are not compared by them.
pub fn local_attributes() -> &'static [&'static str] {
    static LOCAL: LazyLock<Vec<&str>> = LazyLock::new(|| {
        larix_overlays::all().flat_map(|descriptor| descriptor.local.iter().copied()).collect()
    });
    &LOCAL
}

impl Overlay {
    /// What is known of it, if it is one that the server has.
    pub(super) fn descriptor(&self) -> Option<&'static Descriptor> {
        overlay_kind(&self.name).and_then(|kind| kind.descriptor)
    }

    /// Whether consumers can have the content of its database (RFC 4533) by it.
    pub fn provides_content(&self) -> bool {
        self.descriptor().is_some_and(|descriptor| descriptor.provides_content)
    }

    /// Whether the attribute has its secrets.
    pub fn has_secret(&self, attribute: &str) -> bool {
        self.descriptor().is_some_and(|descriptor| descriptor.secrets.contains(&attribute))
    }

    /// Whether each server's overlay keeps this operational attribute by itself.
    pub fn keeps(&self, attribute: &str) -> bool {
        self.descriptor().is_some_and(|descriptor| descriptor.local.contains(&attribute))
    }

    /// Its settings as it reads them.
    pub(super) fn given(&self) -> Settings {
        let mut given = Settings::default();
        for setting in self.settings.iter() {
            for value in setting.values.iter() {
                let text = String::from_utf8_lossy(value).into_owned();
                let words = line::value_words(&text).into_iter().map(|word| word.text).collect();
                given.add(setting.attribute, Value { text, words });
            }
        }
        given
    }

    /// A fault at the line of slapd.conf that the message is about, else at the overlay.
    pub(super) fn fault(&self, message: String) -> ConfigError {
        ConfigError::new(self.line_of(&message).unwrap_or(&self.origin).clone(), message)
    }

    /// The line of a message that begins with the line's keyword. Of several it is the one that has most of the quoted words.
    fn line_of(&self, message: &str) -> Option<&Origin> {
        let keyword = message.split([' ', ':']).next()?;
        let own = self.lines.iter().filter(|line| line.keyword.eq_ignore_ascii_case(keyword));
        let quoted = message.split(['"', '<', '>', '`']).skip(1).step_by(2).filter(|word| !word.is_empty());
        let quoted: Vec<&str> = quoted.collect();
        let scored: Vec<(usize, &Origin)> = own
            .map(|line| (quoted.iter().filter(|word| line.words.contains(**word)).count(), &line.origin))
            .collect();
        if let [(_, only)] = scored.as_slice() {
            return Some(only);
        }
        let most = scored.iter().map(|(count, _)| *count).max().filter(|most| *most > 0)?;
        let mut best = scored.iter().filter(|(count, _)| *count == most);
        let (_, origin) = best.next()?;
        best.next().is_none().then_some(*origin)
    }

    pub(super) fn error(&self, error: SettingError) -> ConfigError {
        let fault = self.fault(error.message);
        match error.help {
            Some(help) => fault.with_help(help),
            None => fault,
        }
    }
}

/// The overlays of a database, built.
#[derive(Debug, Default)]
pub(super) struct Built {
    overlays: Vec<(Origin, Arc<dyn overlay::Overlay>)>,
}

impl Built {
    fn each(&self) -> impl Iterator<Item = &Arc<dyn overlay::Overlay>> {
        self.overlays.iter().map(|(_, overlay)| overlay)
    }

    /// What the overlay cares for that is configured there.
    #[cfg(feature = "kv")]
    pub(super) fn interests_at(&self, origin: &Origin) -> Option<overlay::Interests> {
        let built = self.overlays.iter().filter(|(at, _)| at == origin);
        built.map(|(_, overlay)| overlay.interests()).reduce(overlay::Interests::and)
    }

    /// Whether the overlay that is configured there has clients told of changes.
    #[cfg(feature = "kv")]
    pub(super) fn tells_changes_at(&self, origin: &Origin) -> bool {
        self.overlays.iter().any(|(at, overlay)| at == origin && overlay.tells_changes())
    }

    /// Those that stand in front of the database, in their order.
    pub(super) fn stack(&self) -> overlay::Overlays {
        self.each().cloned().collect()
    }

    /// The configured indexes, and those that overlays need.
    pub(super) fn index(&self, mut index: IndexConfig) -> IndexConfig {
        for (attribute, kinds) in self.each().flat_map(|overlay| overlay.indexes()) {
            index.also(attribute, kinds);
        }
        index
    }

    pub(super) fn request_limits(&self, limits: RequestLimits) -> RequestLimits {
        self.each().fold(limits, |limits, overlay| overlay.request_limits(limits))
    }

    pub(super) fn tells_changes(&self) -> bool {
        self.each().any(|overlay| overlay.tells_changes())
    }

    pub(super) fn provider(&self) -> Option<ProviderSettings> {
        self.each().find_map(|overlay| overlay.provider())
    }
}

impl Database {
    /// How many RDNs the longest of its suffixes has that counts in this choice.
    pub fn depth_of(&self, nearest: &NearestSuffix<'_>) -> Option<usize> {
        nearest.depth(self.suffixes.iter().map(|suffix| &suffix.normal))
    }

    /// Whether overlays of it can be in front of the databases glued below, too. They cannot where its access rules are in front of them.
    pub fn may_have_overlays_over_glue(&self) -> bool {
        self.kind.is_stored() && !self.is_translucent()
    }
}

impl Config {
    /// The overlays in force in a database: its own, then those of the frontend, which each database that stores entries has
    /// unless it has one of the name.
    pub fn overlays_of<'c>(&'c self, database: &'c Database) -> impl Iterator<Item = &'c Overlay> {
        let is_stored = database.kind.is_stored();
        let is_meant = move |overlay: &&Overlay| {
            is_stored
                && overlay.descriptor().is_some_and(|descriptor| descriptor.global == Global::EveryDatabase)
                && !database.overlays.iter().any(|own| own.name == overlay.name)
        };
        let of_all = self.frontend.overlays.iter().filter(is_meant);
        let is_above = move |overlay: &&Overlay| {
            is_stored
                && overlay.descriptor().is_some_and(|found| found.over_glue == InGluedDatabases::Each)
                && !database.overlays.iter().any(|own| own.name == overlay.name)
        };
        let above = self.superior(database).map_or(&[][..], |superior| self.over_glue(superior));
        let of_superior = above.iter().filter(is_above);
        database.overlays.iter().chain(of_superior).chain(of_all).filter(|overlay| !overlay.disabled)
    }

    /// The overlays of a database that are also meant for those glued below it: behind its `overlay glue`. None where nothing is glued.
    pub fn over_glue<'c>(&'c self, database: &'c Database) -> &'c [Overlay] {
        let is_glue = |overlay: &Overlay| overlay.name == GLUE && !overlay.disabled;
        match database.overlays.iter().position(is_glue) {
            Some(at) if self.databases.iter().any(|other| self.is_glued_to(other, database)) => {
                database.overlays.get(at + 1..).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// Whether consumers of the database that this one is glued to are sent its entries, too, though another server keeps them: the
    /// administrator says so by putting the overlay that provides the content behind `overlay glue`. What a cache answers may be old.
    pub fn is_provided_above(&self, database: &Database) -> bool {
        let is_elsewhere = database.kind.is_on_another_server();
        let provides = |overlay: &Overlay| !overlay.disabled && overlay.provides_content();
        is_elsewhere
            && !(database.disabled || database.hidden)
            && database.caching_overlay().is_none()
            && self.superior(database).is_some_and(|superior| self.over_glue(superior).iter().any(provides))
    }

    fn is_glued_to(&self, database: &Database, superior: &Database) -> bool {
        !database.disabled && self.superior(database).is_some_and(|found| std::ptr::eq(found, superior))
    }

    /// The database that a subordinate one is glued to in the end: of those that are not subordinate, the nearest above it.
    pub fn superior(&self, database: &Database) -> Option<&Database> {
        database.subordinate.as_ref()?;
        let own = &database.suffixes.first()?.normal;
        let uppermost = self.databases.iter().filter(|other| other.subordinate.is_none() && !other.disabled);
        let depth = |nearest: &NearestSuffix<'_>, other: &&Database| other.depth_of(nearest);
        NearestSuffix::above(own).among(uppermost, depth).map(|(_, other)| other)
    }

    /// What the overlays behind an `overlay glue` line cannot do for the databases glued below.
    pub(super) fn refuse_over_glue(&self, database: &Database, found: &mut Vec<ConfigError>) {
        let over_glue = self.over_glue(database).iter().filter(|overlay| !overlay.disabled);
        for overlay in over_glue {
            let refused = match overlay_kind(&overlay.name).map(|kind| kind.over_glue) {
                _ if !database.may_have_overlays_over_glue() => {
                    Some("the access rules of its database stand in front of its overlays")
                }
                Some(InGluedDatabases::Refused(why)) => Some(why),
                _ => None,
            };
            if let Some(why) = refused {
                let message = format!(
                    "the overlay {} stands behind `overlay glue` and would not see the databases glued below: {why}",
                    overlay.name
                );
                let mend = "write it before `overlay glue`, and in each glued database that needs it";
                found.push(ConfigError::new(overlay.origin.clone(), message).with_help(mend));
            }
        }
    }

    /// What overlays of a database cannot do where it, or one glued below it, is in a shared engine: its changes are its own.
    pub(super) fn refuse_over_engines(&self, database: &Database, found: &mut Vec<ConfigError>) {
        let is_in_engine = |one: &Database| one.kind.is_in_shared_engine();
        let mut glued = self.databases.iter().filter(|other| self.is_glued_to(other, database));
        let Some(other) = glued.find(|other| is_in_engine(database) || is_in_engine(other)) else { return };
        let over_glue = self.over_glue(database);
        for overlay in database.overlays.iter().filter(|overlay| !overlay.disabled) {
            let is_over_glue = over_glue.iter().any(|over| std::ptr::eq(over, overlay));
            let kind = overlay_kind(&overlay.name).map(|kind| kind.over_glue);
            let is_of_each = is_over_glue
                && kind == Some(InGluedDatabases::Each)
                && database.may_have_overlays_over_glue();
            if !overlay.provides_content() && !is_of_each {
                continue;
            }
            let (below, name) = (other.suffixes.first().map_or("", |suffix| &suffix.text), &overlay.name);
            let message = format!(
                "the overlay {name} would leave out {below:?}, which is glued below: one of the two databases is a `database kv`"
            );
            let help = match is_of_each {
                true => "write it before `overlay glue`, and in each glued database that needs it",
                false => "take it out here; databases glued below provide their own entries to consumers",
            };
            found.push(ConfigError::new(overlay.origin.clone(), message).with_help(help));
        }
    }

    fn stored_databases(&self) -> impl Iterator<Item = &Database> {
        self.databases.iter().filter(|database| database.kind.is_stored() && !database.disabled)
    }

    /// Whether the schema is not read yet: a name that is unknown may be known later.
    fn schema_comes(&self) -> bool {
        self.read_entries.is_some() && self.schema_sections.is_empty()
    }

    /// Builds the overlays of a database, in their order; those that its own settings bring come last. What asks for a schema that
    /// is still to come is left out until then.
    ///
    /// # Errors
    /// An overlay's setting that cannot be understood.
    pub(super) fn build_overlays(&self, database: &Database) -> Result<Built, ConfigError> {
        self.in_context(Some(database), |context| self.build_in(context, database))
    }

    /// What overlays of a database, or of the frontend, are built under.
    pub(super) fn in_context<T>(
        &self,
        database: Option<&Database>,
        then: impl FnOnce(BuildContext<'_>) -> T,
    ) -> T {
        let hasher = self.hasher();
        let suffixes = database.map_or(&[][..], |database| &database.suffixes);
        let shown_suffix = suffixes.first().map_or("", |suffix| suffix.text.as_str());
        let suffixes: Vec<NormalDn> = suffixes.iter().map(|suffix| suffix.normal.clone()).collect();
        let index = database.map(|database| database.kind.stored().index).unwrap_or_default();
        let root_dn = database.and_then(|database| database.root_dn.as_ref());
        then(BuildContext {
            schema: &self.schema,
            suffixes: &suffixes,
            shown_suffix,
            root_dn: root_dn.map(|root| (&root.normal, root.text.as_str())),
            last_modified: database.is_some_and(|database| database.last_mod),
            last_bind: database.is_some_and(|database| database.last_bind),
            last_bind_precision: database.map_or(0, |database| database.last_bind_precision),
            last_bind_asserts: database.is_some_and(|database| database.last_bind_asserts),
            hasher: &hasher,
            index: &index,
            maintained: &[],
            others: &[],
            receives: database.is_some_and(|database| self.receives(database)),
            forwards: database
                .filter(|database| self.is_shadow(database))
                .map(|database| self.forwards_logins(database)),
        })
    }

    fn build_in(&self, context: BuildContext<'_>, database: &Database) -> Result<Built, ConfigError> {
        let configured =
            self.overlays_of(database).filter_map(|overlay| Some((overlay, overlay.descriptor()?)));
        let configured: Vec<(&Overlay, &Descriptor, Settings)> =
            configured.map(|(overlay, descriptor)| (overlay, descriptor, overlay.given())).collect();
        let mut maintained: Vec<AttributeDescription> = Vec::new();
        for (overlay, descriptor, settings) in &configured {
            let Some(maintains) = descriptor.maintains else { continue };
            maintained.extend(
                self.unless_schema_comes(overlay, maintains(settings, &context))?.unwrap_or_default(),
            );
        }
        let mut built = Built::default();
        for (overlay, descriptor, settings) in &configured {
            let Some(build) = descriptor.build else { continue };
            let others = self.others_of(overlay, database);
            let context = BuildContext { maintained: &maintained, others: &others, ..context };
            let made = self.unless_schema_comes(overlay, build(settings, &context))?;
            built.overlays.extend(made.map(|made| (overlay.origin.clone(), made)));
        }
        let context = BuildContext { maintained: &maintained, ..context };
        let implied = larix_overlays::implied(&context);
        built.overlays.extend(implied.map(|implied| (database.origin.clone(), implied)));
        Ok(built)
    }

    /// Whether changes come from other servers.
    fn receives(&self, database: &Database) -> bool {
        database.sync_replication.iter().any(|line| !self.names_itself(line))
    }

    /// The other databases that an overlay of the frontend is meant for.
    fn others_of(&self, overlay: &Overlay, database: &Database) -> Vec<OtherDatabase> {
        let is_same = |other: &&Overlay| std::ptr::eq(*other, overlay);
        let uppermost = self.superior(database).unwrap_or(database);
        let mut shared = self.frontend.overlays.iter().chain(self.over_glue(uppermost));
        if !shared.any(|shared| is_same(&shared)) {
            return Vec::new();
        }
        let has_it = |other: &&Database| {
            !std::ptr::eq(*other, database) && self.overlays_of(other).any(|theirs| is_same(&theirs))
        };
        let others = self.stored_databases().filter(has_it);
        let described = others.filter_map(|other| {
            Some(OtherDatabase {
                suffix: other.suffixes.first()?.normal.clone(),
                last_modified: other.last_mod,
                receives: self.receives(other),
            })
        });
        described.collect()
    }

    pub(super) fn unless_schema_comes<T>(
        &self,
        overlay: &Overlay,
        made: Result<T, SettingError>,
    ) -> Result<Option<T>, ConfigError> {
        match made {
            Ok(made) => Ok(Some(made)),
            Err(error) if error.awaits_schema && self.schema_comes() => Ok(None),
            Err(mut error) => {
                if let (None, Some(name)) = (&error.help, undefined_name(&error.message)) {
                    error.help = Some(remedy(&self.schema, name));
                }
                Err(overlay.error(error))
            }
        }
    }

    /// Attribute types that the subschema shows because an overlay is configured.
    pub fn attributes_shown_for_overlays(&self) -> Vec<&'static str> {
        let mut shown: Vec<&'static str> = Vec::new();
        for overlay in self.databases.iter().flat_map(|database| self.overlays_of(database)) {
            let names = overlay.descriptor().map_or(&[][..], |descriptor| descriptor.shows);
            shown.extend(names.iter().filter(|name| !shown.contains(name)).copied().collect::<Vec<_>>());
        }
        shown
    }
}

/// The attribute type that a message says is not defined.
fn undefined_name(message: &str) -> Option<&str> {
    let (before, _) = message.split_once(">: attribute type undefined")?;
    before.rsplit_once('<').map(|(_, name)| name)
}

/// What an administrator should know of the overlays of a database.
pub(super) fn notes(config: &Config, database: &Database, notes: &mut Vec<(Origin, String)>) {
    if !database.kind.keeps_entries() {
        notes.extend(without_entries(database));
        return;
    }
    // What is wrong there is said elsewhere.
    let Ok(built) = config.build_overlays(database) else { return };
    let index = built.index(database.kind.stored().index);
    let chosen = Some(index).filter(|_| database.kind.has_index_lines());
    for (origin, overlay) in &built.overlays {
        let of_indexes = chosen.iter().flat_map(|index| overlay.index_notes(&config.schema, index));
        for text in overlay.notes(&config.schema).into_iter().chain(of_indexes) {
            // That of an overlay of all databases is one.
            let note = (origin.clone(), text);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
}

/// The overlays that work in entries, on a database that keeps none here.
fn without_entries(database: &Database) -> impl Iterator<Item = (Origin, String)> {
    let works = move |descriptor: &Descriptor| {
        descriptor.build.is_none()
            // Said of it anyway.
            || descriptor.note.is_some()
            || descriptor.records_operations
            || descriptor.provides_content && database.kind.is_config()
    };
    let is_idle = move |overlay: &&Overlay| {
        !overlay.disabled && overlay.descriptor().is_some_and(|descriptor| !works(descriptor))
    };
    database.overlays.iter().filter(is_idle).map(move |overlay| {
        let (name, kind) = (&overlay.name, database.kind.name());
        let text = format!(
            "overlay {name}: what it does in entries has no effect: a `database {kind}` keeps none here"
        );
        (overlay.origin.clone(), text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slapd.conf with the core schema; its folder stands for `$D`.
    fn read(lines: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slapd.conf");
        std::fs::write(folder.path().join("core.schema"), larix_schema::bundled("core").unwrap()).unwrap();
        let place = folder.path().display();
        let text = format!("include {place}/core.schema\n{lines}").replace("$D", &place.to_string());
        std::fs::write(&file, text).unwrap();
        Config::from_slapd_conf(&file).map_err(|error| error.to_string())
    }

    const ONE: &str = "database mdb\nsuffix dc=a\ndirectory $D/a\n";
    const OTHER: &str = "database mdb\nsuffix dc=b\ndirectory $D/b\n";

    #[test]
    fn overlays_before_the_first_database_are_meant_for_each() {
        for (overlay, overlays, provides) in [
            ("overlay memberof\n", &["memberof"][..], false),
            ("overlay refint\nrefint_attributes member\n", &["refint"], false),
            ("overlay ppolicy\nppolicy_hash_cleartext\n", &["ppolicy"], false),
            ("overlay syncprov\nsyncprov-sessionlog 100\n", &[], true),
            ("overlay memberof\noverlay refint\nrefint_attributes member\n", &["memberof", "refint"], false),
        ] {
            let config = read(&format!("{overlay}database monitor\n{ONE}{OTHER}")).unwrap();
            assert_eq!(config.refusals(), [], "{overlay}");
            for database in config.databases.iter().filter(|database| database.kind.is_stored()) {
                let settings = config.engine_settings(database).unwrap();
                let found: Vec<_> = settings.overlays.iter().map(|overlay| overlay.name()).collect();
                assert_eq!(
                    (found.as_slice(), settings.provider.is_some()),
                    (overlays, provides),
                    "{overlay}"
                );
            }
            assert_eq!(config.overlays_of(&config.databases[1]).count(), 0, "{overlay}");
        }
        // A database's own counts more.
        let own = format!("overlay ppolicy\nppolicy_hash_cleartext\n{ONE}overlay ppolicy\n");
        let config = read(&own).unwrap();
        let settings = config.engine_settings(&config.databases[1]).unwrap();
        assert_eq!(settings.overlays.len(), 1);
    }

    #[test]
    fn what_overlays_note_is_said_of_each_kind_that_keeps_entries() {
        let notes = |kind: &str, lines: &str| {
            let config = read(&format!("database {kind}\nsuffix dc=a\ndirectory $D/a\n{lines}")).unwrap();
            config.notes.iter().map(|note| note.text.clone()).collect::<Vec<_>>().join("\n")
        };
        // Where nobody chooses indexes, none is asked for.
        for (kind, has_index_lines) in [("mdb", true), ("ldif", false)] {
            let found = notes(kind, "overlay auditlog\noverlay refint\nrefint_attributes member\n");
            assert!(found.contains("nothing is written"), "{kind}: {found}");
            assert_eq!(found.contains("without an equality index"), has_index_lines, "{kind}: {found}");
        }
    }

    #[test]
    fn an_overlay_of_all_databases_is_noted_once() {
        let config = read(&format!("overlay auditlog\n{ONE}{OTHER}")).unwrap();
        let nothing = config.notes.iter().filter(|note| note.text.contains("nothing is written"));
        assert_eq!(nothing.count(), 1);
    }

    #[test]
    fn overlays_that_work_in_entries_are_noted_where_there_are_none() {
        for (database, overlay, is_noted) in [
            ("ldap\nsuffix dc=a\nuri ldap://a", "constraint\nconstraint_attribute cn size 9", true),
            ("ldap\nsuffix dc=a\nuri ldap://a", "dds", true),
            ("ldap\nsuffix dc=a\nuri ldap://a", "denyop\ndenyop add", false),
            ("ldap\nsuffix dc=a\nuri ldap://a", "rwm", false),
            ("monitor", "valsort\nvalsort-attr cn dc=a alpha-ascend", true),
            ("config", "auditlog\nauditlog /a", true),
            ("config", "syncprov", false),
            ("mdb\nsuffix dc=a\ndirectory $D/a", "constraint\nconstraint_attribute cn size 9", false),
        ] {
            let config = read(&format!("database {database}\noverlay {overlay}\n")).unwrap();
            let found: Vec<&str> = config.notes.iter().map(|note| note.text.as_str()).collect();
            let noted = found.iter().any(|text| text.contains("what it does in entries has no effect"));
            assert_eq!(noted, is_noted, "{database} {overlay}: {found:?}");
        }
    }

    /// The hooks that the overlays of each database use, one database behind the other.
    fn hooks(lines: &str) -> Vec<String> {
        let config = read(lines).unwrap();
        let stored = config.databases.iter().filter(|database| database.kind.is_stored());
        let settings = stored.map(|database| config.engine_settings(database).unwrap());
        let hooks = |overlay: &Arc<dyn overlay::Overlay>| format!("{:?}", overlay.interests());
        settings.map(|settings| settings.overlays.iter().map(hooks).collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn overlays_of_the_frontend_know_the_other_databases() {
        let refint = "overlay refint\nrefint_attributes member\n";
        let both = r#"{"prepare", "committed"}"#;
        assert_eq!(hooks(&format!("{refint}{ONE}{OTHER}")), [both, both]);
        // There is no other.
        assert_eq!(hooks(&format!("{refint}{ONE}")), [r#"{"prepare"}"#]);
        // One of its own is of one database.
        let own = format!("{ONE}{refint}{OTHER}{refint}");
        assert_eq!(hooks(&own), [r#"{"prepare"}"#; 2]);
        let mixed = format!("{refint}{ONE}{OTHER}{refint}");
        assert_eq!(hooks(&mixed), [r#"{"prepare"}"#; 2]);
        let third = "database mdb\nsuffix dc=c\ndirectory $D/c\noverlay memberof\n";
        let back = r#"{"back link"}"#;
        let computing = r#"{"back link", "compute"}"#;
        assert_eq!(hooks(&format!("overlay memberof\n{ONE}{OTHER}{third}")), [computing, computing, back]);
    }

    #[test]
    fn mistakes_name_their_lines() {
        for (lines, fault) in [
            (
                "overlay refint\nrefint_attributes nosuch\n",
                "refint_attributes <nosuch>: attribute type undefined",
            ),
            ("overlay refint\nrefint_attributes membr\n", "did you mean `member`?"),
            ("overlay memberof\nmemberof-dangling maybe\n", "ignore, drop or error"),
            ("overlay ppolicy\nppolicy_default nobody\n", "ppolicy_default: \"nobody\" is not a DN"),
            ("overlay syncprov\nsyncprov-checkpoint 1\n", "not two numbers above 0"),
            (
                "overlay unique\nunique_uri ldap:///?mail?subb\nunique_uri ldap:///?cn?sub\n",
                "scope \"subb\" is not base",
            ),
        ] {
            let error = read(&format!("{ONE}{lines}")).unwrap_err();
            assert!(error.contains(fault) && error.contains("slapd.conf:6"), "{error}");
        }
        // Which of two equal ones it is cannot be told.
        let twice = "unique_uri ldap:///?mail?subb\n".repeat(2);
        let error = read(&format!("{ONE}overlay unique\n{twice}")).unwrap_err();
        assert!(error.contains("slapd.conf:5"), "{error}");
    }

    #[test]
    fn members_are_indexed_by_themselves() {
        let config = read(&format!("{ONE}overlay memberof\n")).unwrap();
        let settings = config.engine_settings(&config.databases[1]).unwrap();
        let member = config.schema.describe("member").unwrap();
        assert!(settings.index.kinds(&config.schema, &member).has(larix_engine::index::Kinds::EQUALITY));
    }

    #[test]
    fn words_reach_an_overlay_as_they_were_given() {
        for (line, words) in [
            (r#"constraint_attribute mail regex "^[^@]+@x\\.org$""#, ["mail", "regex", r"^[^@]+@x\.org$"]),
            (
                r"constraint_attribute mail uri ldap:///?mail?sub?(cn=\\28a)",
                ["mail", "uri", r"ldap:///?mail?sub?(cn=\28a)"],
            ),
            (
                r#"constraint_attribute mail set "this/mail & this/cn""#,
                ["mail", "set", "this/mail & this/cn"],
            ),
        ] {
            let config = read(&format!("{ONE}overlay constraint\n{line}\n")).unwrap();
            let given = config.databases[1].overlays[0].given();
            let found: Vec<&str> = given.words("olcConstraintAttribute").collect();
            assert_eq!(found, words, "{line}");
            // The same by way of cn=config.
            let again = Config::from_entries(config.entries(), super::super::Source::QuickStart).unwrap();
            assert_eq!(again.databases[1].overlays[0].given(), given, "{line}");
        }
    }

    /// slapd's slapd.conf has a domain of several URIs in quotes, its cn=config has none.
    #[test]
    fn domains_of_unique_are_written_as_slapd_reads_them() {
        const DOMAIN: &str = "strict ldap:///?cn?sub ldap:///?sn?sub";
        for line in [format!("unique_uri \"{DOMAIN}\""), format!("unique_uri {DOMAIN}")] {
            let config = read(&format!("{ONE}overlay unique\n{line}\n")).unwrap();
            let entries = config.entries();
            let entry = entries.iter().find(|entry| entry.dn.starts_with("olcOverlay={0}unique")).unwrap();
            let values = entry.values("olcUniqueURI");
            assert!(values.iter().eq([DOMAIN.as_bytes()]), "{line}: {values:?}");
            let text = config.to_slapd_conf().text;
            assert!(text.contains(&format!("unique_uri \"{DOMAIN}\"\n")), "{text}");
        }
    }

    #[test]
    fn an_overlay_says_what_is_to_be_known_of_its_settings() {
        for (lines, note) in [
            ("overlay refint\nrefint_attributes member owner\n", Some("add `index member,owner eq`")),
            ("index member,owner eq\noverlay refint\nrefint_attributes member owner\n", None),
            // The overlay memberof maintains memberOf, and has members indexed.
            ("overlay memberof\noverlay refint\nrefint_attributes memberOf member\n", None),
        ] {
            let config = read(&format!("{ONE}{lines}")).unwrap();
            let notes: Vec<String> = config.notes.iter().map(ToString::to_string).collect();
            let found = notes.iter().find(|text| text.contains("without an equality index"));
            assert_eq!(
                found.map(|text| text.contains(note.unwrap_or("nothing"))),
                note.map(|_| true),
                "{notes:?}"
            );
        }
    }

    /// Two glued databases; the uppermost one has these lines.
    fn glued(lines: &str) -> String {
        format!("database mdb\nsuffix ou=b,dc=a\nsubordinate\ndirectory $D/b\n{ONE}{lines}")
    }

    fn names_of(config: &Config, suffix: &str) -> Vec<String> {
        let is_it = |database: &&Database| database.suffixes.iter().any(|own| own.text == suffix);
        let database = config.databases.iter().find(is_it).unwrap();
        config.overlays_of(database).map(|overlay| overlay.name.clone()).collect()
    }

    #[test]
    fn overlays_over_glue_are_meant_for_glued_databases() {
        for (lines, above, below) in [
            ("overlay valsort\n", &["valsort"][..], &[][..]),
            ("overlay valsort\noverlay glue\n", &["valsort", "glue"], &[]),
            ("overlay glue\noverlay valsort\n", &["glue", "valsort"], &["valsort"]),
            ("overlay memberof\noverlay glue\noverlay syncprov\n", &["memberof", "glue", "syncprov"], &[]),
            ("overlay glue\noverlay memberof\n", &["glue", "memberof"], &["memberof"]),
        ] {
            let config = read(&glued(lines)).unwrap();
            assert_eq!(config.refusals(), [], "{lines}");
            assert_eq!(
                (names_of(&config, "dc=a"), names_of(&config, "ou=b,dc=a")),
                (owned(above), owned(below))
            );
        }
        // Nothing is glued here.
        let config =
            read(&format!("{ONE}overlay glue\noverlay unique\nunique_uri ldap:///?mail?sub\n")).unwrap();
        assert_eq!(config.refusals(), []);
    }

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn overlays_that_see_one_database_are_refused_over_glue() {
        for (lines, why) in [
            ("overlay unique\nunique_uri ldap:///?mail?sub\n", "it looks for values in one database"),
            ("overlay ppolicy\n", "binds of entries in glued databases do not pass through it"),
            ("overlay auditlog\nauditlog $D/log\n", "it follows the changes of one database"),
            ("overlay dds\n", "it sees one database alone"),
        ] {
            let config = read(&glued(&format!("overlay glue\n{lines}"))).unwrap();
            let refusals: Vec<String> = config.refusals().iter().map(ToString::to_string).collect();
            assert!(
                refusals.len() == 1
                    && refusals[0].contains(why)
                    && refusals[0].contains("write it before `overlay glue`"),
                "{lines}: {refusals:?}"
            );
            let config = read(&glued(&format!("{lines}overlay glue\n"))).unwrap();
            assert_eq!(config.refusals(), [], "{lines}");
        }
        let denyop = "overlay glue\noverlay denyop\ndenyop add\n";
        assert_eq!(read(&glued(denyop)).unwrap().refusals(), []);
        let proxy = "database mdb\nsuffix ou=b,dc=a\nsubordinate\ndirectory $D/b\n\
            database ldap\nsuffix dc=a\nuri ldap://127.0.0.1:9\n";
        let refusals = read(&format!("{proxy}{denyop}")).unwrap().refusals();
        assert!(refusals.len() == 1 && refusals[0].to_string().contains("the access rules"), "{refusals:?}");
    }

    #[test]
    fn a_directive_may_say_with_other_words_what_another_one_says() {
        let classes = "attributetype ( 1.2.3.1 NAME 'memberURL' SUP labeledURI )\n\
            objectclass ( 1.2.3.2 NAME 'groupOfURLs' SUP top STRUCTURAL MUST cn MAY memberURL )\n";
        for keyword in ["dynlist-attrpair", "attrpair"] {
            let lines = format!(
                "{classes}{ONE}overlay dynlist\n{keyword} member memberURL\ndynlist-attrset groupOfURLs memberURL\n"
            );
            let config = read(&lines).unwrap();
            let overlay = config.databases.iter().flat_map(|database| &database.overlays).next().unwrap();
            let values = overlay.settings.get("olcDynListAttrSet");
            let values: Vec<_> = values.iter().map(|value| String::from_utf8_lossy(value)).collect();
            assert_eq!(values, ["groupOfURLs memberURL member", "groupOfURLs memberURL"], "{keyword}");
            let error = read(&format!("{classes}{ONE}overlay dynlist\n{keyword} member\n")).unwrap_err();
            assert!(error.contains("needs another argument"), "{error}");
            let error = read(&format!("{classes}{ONE}overlay dynlist\n{keyword} member cn\n")).unwrap_err();
            assert!(error.contains("no subtype of labeledURI"), "{error}");
        }
    }
}
