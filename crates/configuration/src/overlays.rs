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
mod tests;
