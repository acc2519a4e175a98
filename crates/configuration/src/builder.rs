//! Directives applied one after another until a [`Config`] stands.

pub(super) mod call;
pub(super) mod directive;

use std::sync::Arc;

use larix_engine::overlay::{Descriptor, Piece, WordFault};
use larix_schema::{AttributeOptions, Schema, SchemaBuilder, SchemaErrorKind, SyntaxKind};

use super::balancer;
use super::defaults::is_default;
use super::diagnostic::{ConfigError, Notes, Origin};
use super::kinds::{self, CACHE_KIND, DatabaseKind, KindSettings, MdbSettings, SERVER_KIND, target_settings};
use super::line;
use super::model::{
    Backend, CommonSettings, Config, Database, Frontend, Global, HarnessSettings, ModuleList, Overlay,
    OverlayLine, SchemaSection, Source,
};
use super::settings::Settings;
use super::undefined::bundle_remedy;
use super::values::ConfigDn;
use call::{Call, Fault};
use directive::{BalancerPart, Cardinality, Directive, Form, Handling, Scope};

/// The overlay that asks a server, with the directives of [`SERVER_KIND`].
const TRANSLUCENT: &str = "translucent";

/// What a keyword may mean depends on this.
#[derive(Debug, Default)]
pub(super) struct DirectiveContext<'a> {
    /// The kind of the database that is open.
    pub(super) kind: Option<&'static kinds::Descriptor>,
    /// The database's kind is not served here.
    pub(super) foreign: bool,
    /// In a `backend` section.
    pub(super) backend: bool,
    /// In `backend lload`, or below it.
    pub(super) balancer: Option<BalancerPart>,
    /// Overlays of the database, the last one first, then those of the frontend.
    pub(super) overlays: Vec<&'a str>,
}

/// The section that directives set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Global,
    Backend(usize),
    /// The last tier of the balancer, or the last server of that.
    BalancerPart(BalancerPart),
    Frontend,
    Database(usize),
    /// A section below an overlay of a database, or of the frontend: the overlay's number, and its own below it.
    Below {
        database: Option<usize>,
        overlay: usize,
        number: usize,
    },
    /// A target of a database: the database's number, and its own there.
    Target {
        database: usize,
        number: usize,
    },
}

/// Whether what is defined is in the schema already that is built upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Defined {
    Not,
    Already,
}

/// Definitions that stand before others which are defined already. They must not use these, so they are tried without.
#[derive(Debug)]
pub(super) struct InFront {
    /// Until their section is complete.
    is_open: bool,
    tried: SchemaBuilder,
    /// Keyword, words and text of each.
    added: Vec<(&'static str, Vec<String>, String)>,
}

/// A file of slapd.conf that is being read, by where its definitions belong.
#[derive(Debug, Clone)]
pub(super) struct ConfFile {
    /// What its sections of definitions are called.
    pub(super) section_name: String,
    /// Whether all its definitions belong to sections; else those that need no section belong to cn=config itself, as in slapd.
    pub(super) has_sections: bool,
    /// Its last section.
    pub(super) section: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Builder {
    pub(super) global: Global,
    pub(super) frontend: Frontend,
    /// Without `database config` until one is opened; see [`Builder::finish`].
    pub(super) databases: Vec<Database>,
    pub(super) backends: Vec<Backend>,
    pub(super) modules: Vec<ModuleList>,
    pub(super) schema_sections: Vec<Arc<SchemaSection>>,
    /// The schema behind each of them.
    schema_steps: Vec<Arc<Schema>>,
    /// What is defined now comes before what is defined already.
    in_front: Option<InFront>,
    pub(super) notes: Notes,
    pub(super) section: Section,
    /// The section of schema definitions that is open; none: they belong to the server as a whole.
    pub(super) schema_section: Option<usize>,
    /// The file that is being read; none: entries, or what the program says itself.
    pub(super) conf_file: Option<ConfFile>,
    /// What files define in cn=config itself, and the schema that is built in.
    own_definitions: Option<SchemaBuilder>,
    /// A slapd.conf sets the frontend before its first database; in cn=config the entry says what it sets.
    pub(super) from_entries: bool,
    definitions: SchemaBuilder,
    pub(super) defined: Defined,
    /// What the definitions make, until there is another one.
    schema: Option<Arc<Schema>>,
    /// Modules whose definitions need what is not defined yet, and where they are loaded.
    awaiting: Vec<(&'static Descriptor, Origin)>,
}

impl Builder {
    pub(super) fn new(from_entries: bool) -> Self {
        Self {
            global: Global::default(),
            frontend: Frontend::default(),
            databases: Vec::new(),
            backends: Vec::new(),
            modules: Vec::new(),
            schema_sections: Vec::new(),
            schema_steps: Vec::new(),
            in_front: None,
            notes: Notes::default(),
            section: Section::Global,
            schema_section: None,
            conf_file: None,
            own_definitions: None,
            from_entries,
            definitions: SchemaBuilder::system(),
            defined: Defined::Not,
            schema: None,
            awaiting: Vec::new(),
        }
    }

    /// What `earlier` has as well keeps its number. To be called before anything is defined.
    pub(super) fn follow(&mut self, earlier: &Arc<Schema>, defined: Defined) {
        match defined {
            Defined::Not => self.definitions = SchemaBuilder::following(earlier),
            Defined::Already => {
                self.definitions = SchemaBuilder::from(&**earlier);
                self.schema = Some(Arc::clone(earlier));
            }
        }
        self.defined = defined;
    }

    pub(super) fn context(&self) -> DirectiveContext<'_> {
        let frontend = self.frontend.overlays.iter().rev().map(|overlay| overlay.name.as_str());
        match self.section {
            Section::Global | Section::Frontend => {
                DirectiveContext { overlays: frontend.collect(), ..DirectiveContext::default() }
            }
            Section::Backend(number) => {
                let is_balancer =
                    self.backends.get(number).is_some_and(|backend| backend.name == balancer::MODULE);
                DirectiveContext {
                    backend: true,
                    balancer: is_balancer.then_some(BalancerPart::Whole),
                    overlays: frontend.collect(),
                    ..DirectiveContext::default()
                }
            }
            Section::BalancerPart(part) => {
                DirectiveContext { balancer: Some(part), ..DirectiveContext::default() }
            }
            Section::Below { .. } => {
                let kind = self.database().map(|database| database.kind.descriptor());
                DirectiveContext { kind, ..DirectiveContext::default() }
            }
            Section::Database(_) | Section::Target { .. } => {
                let Some(database) = self.database() else { return DirectiveContext::default() };
                let own = database.overlays.iter().rev().map(|overlay| overlay.name.as_str());
                DirectiveContext {
                    kind: Some(database.kind.descriptor()),
                    foreign: !database.kind.is_served(),
                    backend: false,
                    balancer: None,
                    overlays: own.chain(frontend).collect(),
                }
            }
        }
    }

    pub(super) fn database(&self) -> Option<&Database> {
        match self.section {
            Section::Database(number) | Section::Target { database: number, .. } => {
                self.databases.get(number)
            }
            Section::Below { database, overlay, number } => {
                let overlays = match database {
                    Some(database) => &self.databases.get(database)?.overlays,
                    None => &self.frontend.overlays,
                };
                overlays.get(overlay)?.below.get(number)
            }
            _ => None,
        }
    }

    /// The open database; a fault outside of one.
    pub(super) fn open_database(&mut self) -> Result<&mut Database, Fault> {
        if let Section::Below { database, overlay, number } = self.section {
            let overlays = self.overlays_mut(database);
            let below = overlays.and_then(|overlays| overlays.get_mut(overlay)?.below.get_mut(number));
            return below.ok_or_else(|| Fault::keyword("only allowed below its overlay"));
        }
        let number = self.open_database_number()?;
        self.databases.get_mut(number).ok_or_else(|| Fault::keyword("only allowed within a database"))
    }

    /// The number of the open database; a fault outside of one, and below an overlay.
    pub(super) fn open_database_number(&self) -> Result<usize, Fault> {
        match self.section {
            Section::Database(number) | Section::Target { database: number, .. } => Ok(number),
            _ => {
                let fault = Fault::keyword("only allowed within a database");
                Err(fault.with_help("put it after a `database` line"))
            }
        }
    }

    /// The open database's mdb settings.
    pub(super) fn mdb(&mut self) -> Result<&mut MdbSettings, Fault> {
        self.settings_of()
    }

    /// The open database's settings of its kind.
    pub(super) fn settings_of<T: KindSettings>(&mut self) -> Result<&mut T, Fault> {
        let kind = &mut self.open_database()?.kind;
        let fault = Fault::keyword(format!("not a setting of a {} database", kind.name()));
        kind.settings_mut().ok_or(fault)
    }

    /// Opens the settings of all databases of a kind, or of what else is named so.
    pub(super) fn open_backend(&mut self, name: &str) {
        let name = name.to_ascii_lowercase();
        if name == balancer::MODULE {
            self.global.balancer.get_or_insert_default();
            if let Some(number) = self.backends.iter().position(|backend| backend.name == name) {
                self.section = Section::Backend(number);
                return;
            }
        }
        self.backends.push(Backend { name, settings: Settings::default() });
        self.section = Section::Backend(self.backends.len() - 1);
    }

    /// The settings of `backend harness`, if that is the open backend.
    pub(super) fn harness(&mut self) -> Result<&mut HarnessSettings, Fault> {
        match self.section {
            Section::Backend(number) if self.backends.get(number).is_some_and(|b| b.name == "harness") => {
                Ok(self.global.harness.get_or_insert_default())
            }
            _ => Err(Fault::keyword("only allowed after `backend harness`")),
        }
    }

    /// What the open database and the frontend have alike: the database's, or the frontend's outside of one.
    pub(super) fn shared(&mut self) -> &mut CommonSettings {
        match self.section {
            Section::Database(number) if number < self.databases.len() => {
                #[allow(clippy::indexing_slicing)] // just compared with the length
                &mut self.databases[number].shared
            }
            _ => &mut self.frontend.shared,
        }
    }

    /// Starts a database with what the frontend has so far.
    pub(super) fn start_database(&mut self, kind: DatabaseKind, origin: Origin) {
        let mut shared = self.frontend.shared.clone();
        shared.limits.clear();
        // Rules of a database's own stand in for the frontend's.
        shared.operation_rules.clear();
        self.databases.push(Database::new(kind, shared, origin));
        self.section = Section::Database(self.databases.len() - 1);
    }

    /// The overlays of a database, or of the frontend.
    pub(super) fn overlays_mut(&mut self, database: Option<usize>) -> Option<&mut Vec<Overlay>> {
        match database {
            Some(number) => Some(&mut self.databases.get_mut(number)?.overlays),
            None => Some(&mut self.frontend.overlays),
        }
    }

    /// Whether the open section stands below an overlay.
    pub(super) fn is_below_overlay(&self) -> bool {
        matches!(self.section, Section::Below { .. })
    }

    /// Whether it is below an overlay that follows referrals to its servers.
    pub(super) fn is_below_referrals(&self) -> bool {
        let Section::Below { database, overlay, .. } = self.section else { return false };
        let overlays = match database {
            Some(number) => self.databases.get(number).map(|database| &database.overlays),
            None => Some(&self.frontend.overlays),
        };
        overlays.and_then(|overlays| overlays.get(overlay)).is_some_and(|overlay| overlay.name != TRANSLUCENT)
    }

    /// The overlay of a stored database that asks a server as an ldap database does.
    pub(super) fn asking_overlay(&self, number: usize) -> Option<usize> {
        let database = self.databases.get(number).filter(|database| database.kind.is_stored())?;
        database.overlays.iter().rposition(|overlay| overlay.name.eq_ignore_ascii_case(TRANSLUCENT))
    }

    /// The section of the server that such an overlay asks, which is opened where there is none.
    pub(super) fn below_asking(
        &mut self,
        database: usize,
        overlay: usize,
        origin: &Origin,
    ) -> Result<Section, Fault> {
        let found = self.overlays_mut(Some(database)).and_then(|overlays| overlays.get_mut(overlay));
        let below = &mut found.ok_or_else(|| Fault::keyword("there is no such overlay"))?.below;
        if below.is_empty() {
            below.push(Database::new(DatabaseKind::server(), CommonSettings::default(), origin.clone()));
        }
        Ok(Section::Below { database: Some(database), overlay, number: 0 })
    }

    /// Applies a directive and keeps its values.
    pub(super) fn apply(&mut self, call: &Call<'_>) -> Result<(), Fault> {
        let directive = call.directive;
        if self.apply_in_other_section(call)? {
            return Ok(());
        }
        let decimal = self.decimal(call);
        let arguments = decimal.as_ref().map_or(call.arguments, std::slice::from_ref);
        let call = &Call { arguments, ..*call };
        check_arguments(call)?;
        self.check_words(call)?;
        if directive.scope == Scope::GlobalFirst
            && matches!(self.section, Section::Database(_))
            && !self.from_entries
        {
            return Err(Fault::keyword("must come before the first database").with_help("move it up"));
        }
        if self.is_below_overlay() && !matches!(directive.scope, Scope::Kind(_)) {
            let fault = Fault::keyword(format!(
                "`{}` is no setting of a server that an overlay asks",
                directive.keyword
            ));
            return Err(fault.with_help("what slapd-ldap(5) has of connections belongs there"));
        }
        if directive.scope == Scope::Database {
            if self.section == Section::Frontend && directive.keyword != "suffix" {
                // OpenLDAP writes some of these for the frontend, too, where they set nothing: their defaults, and olcMonitoring.
                if directive.keyword != "monitoring" && !is_default(directive.attribute, call.text.as_bytes())
                {
                    self.note_without_effect(
                        call,
                        directive.keyword,
                        "it is a setting of a database, not of the frontend",
                    );
                }
                self.keep(call);
                return Ok(());
            }
            self.open_database()?;
        }
        match directive.handling {
            Handling::Refused(instead) => {
                return Err(
                    Fault::keyword(format!("`{}` is not supported", directive.keyword)).with_help(instead)
                );
            }
            Handling::Noted(_)
                if self.from_entries && is_default(directive.attribute, call.text.as_bytes()) => {}
            Handling::Noted(why) => {
                self.note_without_effect(call, directive.keyword, why);
            }
            Handling::Done => {}
        }
        if self.is_of_cache(directive) {
            // Settings of the cache below an overlay: kept for it.
            self.keep(call);
            return Ok(());
        }
        if let Some(apply) = directive.apply {
            apply(self, call)?;
        }
        self.keep(call);
        Ok(())
    }

    /// Applies a directive that belongs to another section than the one that is open. False: it does not.
    fn apply_in_other_section(&mut self, call: &Call<'_>) -> Result<bool, Fault> {
        let scope = call.directive.scope;
        if let Section::Target { database, .. } = self.section
            && !matches!(scope, Scope::Kind(_))
        {
            // What is no setting of a target is the database's; targets may go on behind it.
            let target = std::mem::replace(&mut self.section, Section::Database(database));
            let applied = self.apply(call);
            if self.section == Section::Database(database) {
                self.section = target;
            }
            return applied.map(|()| true);
        }
        if let (Scope::Kind(kind), Section::Database(number)) = (scope, self.section)
            && kind == SERVER_KIND
            && let Some(overlay) = self.asking_overlay(number)
        {
            // A setting of the server that the overlay asks.
            self.section = self.below_asking(number, overlay, call.origin)?;
            let applied = self.apply(call);
            self.section = Section::Database(number);
            return applied.map(|()| true);
        }
        Ok(false)
    }

    /// Whether a directive of [`CACHE_KIND`] is about the cache of an overlay: the database is of another kind.
    fn is_of_cache(&self, directive: &Directive) -> bool {
        directive.scope == Scope::Kind(CACHE_KIND)
            && self.context().kind.is_none_or(|kind| kind.name != CACHE_KIND)
    }

    /// A number in the digits in which slapd shows it: slapd.conf may have C's `0x10` for 16 and `010` for 8. `None`: it stands in these digits,
    /// or the attribute is not one of numbers.
    fn decimal(&mut self, call: &Call<'_>) -> Option<String> {
        let [word] = call.arguments else { return None };
        let shown = line::c_integer(word)?.to_string();
        if shown == *word {
            return None;
        }
        let schema = self.schema();
        let kind = schema.attribute_type(call.directive.attribute)?;
        (kind.syntax.kind == SyntaxKind::Integer).then_some(shown)
    }

    /// What the directive itself says about its arguments. Before the schema is read, this is not known.
    fn check_words(&mut self, call: &Call<'_>) -> Result<(), Fault> {
        let Some(check) = call.directive.check else { return Ok(()) };
        if self.schema_comes() {
            return Ok(());
        }
        check(&self.schema(), call.arguments).map_err(|WordFault { argument, message, help }| {
            let fault = Fault::argument(argument, message);
            match help {
                Some(help) => fault.with_help(help),
                None => fault,
            }
        })
    }

    /// Notes that what was asked for is not done.
    pub(super) fn note_without_effect(&mut self, call: &Call<'_>, keyword: &str, why: &str) {
        self.notes.push(call.origin.clone(), format!("`{keyword}` has no effect: {why}"));
    }

    /// Keeps the values as cn=config shows them.
    fn keep(&mut self, call: &Call<'_>) {
        let directive = call.directive;
        if directive.attribute.is_empty() || directive.scope == Scope::Structure {
            return;
        }
        self.keep_line(call);
        let values: Vec<Vec<u8>> = match directive.form {
            Form::Words if !directive.pieces.is_empty() => {
                let words = Piece::words(directive.pieces, call.arguments);
                vec![line::join(words.iter().map(String::as_str)).into_bytes()]
            }
            Form::Words => vec![line::join(call.arguments.iter().map(String::as_str)).into_bytes()],
            Form::Command => {
                let mut words = call.arguments.to_vec();
                words.iter_mut().take(1).for_each(|name| *name = directive.command(name));
                vec![line::join_command(&words).into_bytes()]
            }
            Form::Whole => vec![call.arguments.join(" ").into_bytes()],
            Form::Dn => {
                let text = call.arguments.concat();
                let pretty = ConfigDn::parse(&self.schema(), &text).map_or(text, |dn| dn.text);
                vec![pretty.into_bytes()]
            }
            Form::Bytes | Form::Secret => vec![call.bytes.to_vec()],
            Form::Switch => {
                vec![if call.switch() == Ok(false) { b"FALSE".to_vec() } else { b"TRUE".to_vec() }]
            }
            Form::Each => call.arguments.iter().map(|word| word.as_bytes().to_vec()).collect(),
            Form::Rest => vec![line::collapse(call.text).into_bytes()],
            Form::Own => return,
        };
        let settings = self.settings(directive);
        for value in values {
            if directive.cardinality == Cardinality::One {
                settings.set(directive.attribute, value);
            } else if directive.cardinality == Cardinality::Ordered
                || !settings.get(directive.attribute).contains(&value)
            {
                settings.add(directive.attribute, value);
            }
        }
    }

    /// The settings a directive's values belong to.
    pub(super) fn settings(&mut self, directive: &Directive) -> &mut Settings {
        if let Scope::Overlay(name) = directive.scope {
            return self.overlay_settings(name);
        }
        if self.is_of_cache(directive) {
            return self.overlay_settings("pcache");
        }
        if let Section::Below { database, overlay, number } = self.section {
            let Self { databases, frontend, .. } = self;
            let Frontend { overlays, settings, .. } = frontend;
            let overlays = match database {
                Some(database) => databases.get_mut(database).map(|database| &mut database.overlays),
                None => Some(overlays),
            };
            let below = overlays.and_then(|overlays| overlays.get_mut(overlay)?.below.get_mut(number));
            return below.map_or(settings, |below| &mut below.settings);
        }
        if let Section::Target { database, number } = self.section {
            let own = self.databases.get_mut(database);
            let settings = own.and_then(|database| target_settings(database, number));
            return settings.unwrap_or(&mut self.frontend.settings);
        }
        let number = match (directive.scope, self.section) {
            (Scope::Module, _) => {
                if self.modules.is_empty() {
                    self.modules.push(ModuleList::default());
                }
                let last = self.modules.len() - 1;
                return &mut self.modules[last].settings;
            }
            (Scope::Schema, _) => {
                match self.schema_section.and_then(|number| self.schema_sections.get_mut(number)) {
                    Some(section) => return &mut Arc::make_mut(section).settings,
                    None => return &mut self.global.settings,
                }
            }
            (Scope::Global | Scope::GlobalFirst, _) => return &mut self.global.settings,
            (Scope::Shared | Scope::Frontend, Section::Global) if self.from_entries => {
                return &mut self.global.settings;
            }
            (Scope::Frontend, _) => return &mut self.frontend.settings,
            (Scope::Shared, Section::Global | Section::Frontend | Section::Backend(_)) => {
                return &mut self.frontend.settings;
            }
            (_, Section::Backend(number)) if number < self.backends.len() => {
                return &mut self.backends[number].settings;
            }
            (_, Section::Database(number)) => number,
            _ => return &mut self.frontend.settings,
        };
        match self.databases.get_mut(number) {
            Some(database) => &mut database.settings,
            None => &mut self.frontend.settings,
        }
    }

    /// Keeps where a directive of an overlay stands: messages about it name that place.
    fn keep_line(&mut self, call: &Call<'_>) {
        let name = match call.directive.scope {
            Scope::Overlay(name) => name,
            _ if self.is_of_cache(call.directive) => "pcache",
            _ => return,
        };
        if !matches!(call.origin, Origin::Line { .. }) {
            return;
        }
        let may_be_secret = call.directive.form == Form::Secret || call.text.contains("credentials");
        let words = if may_be_secret { String::new() } else { call.arguments.join(" ") };
        let line = OverlayLine { keyword: call.directive.keyword, words, origin: call.origin.clone() };
        let is_it = |overlay: &&mut Overlay| overlay.name.eq_ignore_ascii_case(name);
        let number = match self.section {
            Section::Database(number) => Some(number),
            _ => None,
        };
        let own = number.and_then(|number| self.databases.get_mut(number));
        let own = own.and_then(|database| database.overlays.iter_mut().rev().find(is_it));
        if let Some(overlay) = own.or_else(|| self.frontend.overlays.iter_mut().rev().find(is_it)) {
            overlay.lines.push(line);
        }
    }

    /// The settings of the nearest overlay of this name: of the open database, else of the frontend.
    fn overlay_settings(&mut self, name: &str) -> &mut Settings {
        let is_it = |overlay: &&mut Overlay| overlay.name.eq_ignore_ascii_case(name);
        let number = match self.section {
            Section::Database(number) => Some(number),
            _ => None,
        };
        let own = number.and_then(|number| self.databases.get_mut(number));
        if let Some(overlay) = own.and_then(|database| database.overlays.iter_mut().rev().find(is_it)) {
            return &mut overlay.settings;
        }
        match self.frontend.overlays.iter_mut().rev().find(is_it) {
            Some(overlay) => &mut overlay.settings,
            None => &mut self.frontend.settings,
        }
    }

    /// What is defined from here on comes before what is defined already: `step` is the schema without that.
    pub(super) fn go_in_front(&mut self, step: &Schema) {
        self.in_front = Some(InFront { is_open: true, tried: SchemaBuilder::from(step), added: Vec::new() });
    }

    /// The section that was applied last is complete. `known`: the schema behind it as it was before.
    pub(super) fn end_section(&mut self, known: Option<&Arc<Schema>>) {
        for (descriptor, origin) in std::mem::take(&mut self.awaiting) {
            self.define_for_module(descriptor, &origin);
        }
        let step = match (&self.in_front, known) {
            (Some(front), _) if front.is_open => Arc::new(front.tried.clone().build()),
            (Some(front), Some(known)) if !front.added.is_empty() => {
                let mut step = SchemaBuilder::from(&**known);
                for (keyword, words, text) in &front.added {
                    // What the whole schema takes, a part of it takes.
                    let _ = define_in(&mut step, keyword, words, text);
                }
                Arc::new(step.build())
            }
            (_, Some(known)) => Arc::clone(known),
            (_, None) => self.schema(),
        };
        self.in_front.iter_mut().for_each(|front| front.is_open = false);
        self.schema_steps.push(step);
    }

    /// The schema as defined so far.
    pub(super) fn schema(&mut self) -> Arc<Schema> {
        let definitions = &self.definitions;
        Arc::clone(self.schema.get_or_insert_with(|| Arc::new(definitions.clone().build())))
    }

    /// Whether the schema is not read yet, as with entries of cn=config that come before it: what names it is read again then.
    pub(super) fn schema_comes(&self) -> bool {
        self.from_entries && self.schema_sections.is_empty()
    }

    /// Adds a schema definition.
    pub(super) fn define(&mut self, call: &Call<'_>) -> Result<(), Fault> {
        if self.defined == Defined::Already {
            return Ok(());
        }
        self.schema = None;
        self.open_section_of(call);
        let (keyword, words) = (call.directive.keyword, call.arguments);
        let tried = match &mut self.in_front {
            Some(front) => {
                front.added.push((keyword, words.to_vec(), call.text.to_owned()));
                define_in(&mut front.tried, keyword, words, call.text)
            }
            None => Ok(()),
        };
        let added = tried.and_then(|()| define_in(&mut self.definitions, keyword, words, call.text));
        added.map_err(|error| match error.kind {
            SchemaErrorKind::Text { position, .. } => {
                let at = call.text.char_indices().nth(position).map_or(call.text.len(), |(at, _)| at);
                Fault::text(at, error.kind.to_string())
            }
            kind => Fault { help: remedy_of(&kind), ..Fault::argument(0, kind.to_string()) },
        })
    }

    /// Opens what a definition of a file belongs to. A section comes behind all others, because the definition may need what these define.
    fn open_section_of(&mut self, call: &Call<'_>) {
        let Some(file) = &mut self.conf_file else { return };
        if !file.has_sections {
            let own = self.own_definitions.get_or_insert_with(SchemaBuilder::system);
            if define_in(own, call.directive.keyword, call.arguments, call.text).is_ok() {
                self.schema_section = None;
                return;
            }
        }
        let last = self.schema_sections.len();
        if file.section.is_none_or(|own| own + 1 != last) {
            let section = SchemaSection { name: file.section_name.clone(), settings: Settings::default() };
            self.schema_sections.push(Arc::new(section));
            file.section = Some(last);
        }
        self.schema_section = file.section;
    }

    /// Begins a section of this name, to which the definitions of the file belong from here on.
    pub(super) fn begin_section(&mut self, name: &str) {
        let section = SchemaSection { name: name.to_owned(), settings: Settings::default() };
        let number = self.schema_sections.len();
        self.schema_sections.push(Arc::new(section));
        if let Some(file) = &mut self.conf_file {
            *file = ConfFile { section_name: name.to_owned(), has_sections: true, section: Some(number) };
        }
    }

    /// Defines what comes with an overlay, unless it is defined already: by its own means, or by a file that was included.
    pub(super) fn define_for(&mut self, descriptor: &Descriptor) -> Result<(), Fault> {
        self.define_unless_known(descriptor.schema)
    }

    /// The same for a module. What its definitions need may be defined behind it, as in cn=config, where modules come before the schema.
    pub(super) fn define_for_module(&mut self, descriptor: &'static Descriptor, origin: &Origin) {
        if self.define_for(descriptor).is_err() {
            self.awaiting.push((descriptor, origin.clone()));
        }
    }

    /// Defines what comes with modules that came before the schema. To be called once the schema is read.
    ///
    /// # Errors
    /// Names a module, and what its definitions need.
    pub(super) fn define_awaited(&mut self) -> Result<(), ConfigError> {
        for (descriptor, origin) in std::mem::take(&mut self.awaiting) {
            self.define_for(descriptor).map_err(|fault| {
                let text = format!("`moduleload {}`: {}", descriptor.name, fault.message);
                let mut error = ConfigError::new(origin, text);
                error.help = fault.help;
                error
            })?;
        }
        Ok(())
    }

    /// The same for definitions that come with something else.
    pub(super) fn define_unless_known(&mut self, definitions: &str) -> Result<(), Fault> {
        for line in line::logical_lines(definitions) {
            let (keyword, text) = line.text.split_once([' ', '\t']).unwrap_or((&line.text, ""));
            let text = text.trim();
            let oid = text.trim_start_matches('(').split_whitespace().next().unwrap_or_default();
            let schema = self.schema();
            if schema.attribute_type(oid).is_some() || schema.object_class(oid).is_some() {
                continue;
            }
            self.schema = None;
            let added = define_in(&mut self.definitions, &keyword.to_ascii_lowercase(), &[], text);
            added.map_err(|error| Fault {
                help: remedy_of(&error.kind),
                ..Fault::argument(0, format!("what comes with it: {error}"))
            })?;
        }
        Ok(())
    }

    /// Tells the schema which options `attributeoptions` gave.
    pub(super) fn set_attribute_options(&mut self) {
        let mut options = AttributeOptions::none();
        for name in &self.global.attribute_options {
            options.add(name);
        }
        if self.schema.as_ref().is_some_and(|schema| *schema.options() == options) {
            return;
        }
        self.schema = None;
        self.definitions.set_attribute_options(options);
    }

    /// The finished configuration, not yet validated as a whole.
    pub(super) fn finish(mut self, source: Source) -> Config {
        let at = self.databases.iter().position(|database| database.kind.is_config());
        let config = match at {
            Some(at) => self.databases.remove(at),
            None => Database::new(DatabaseKind::config(), CommonSettings::default(), Origin::BuiltIn),
        };
        self.databases.insert(0, config);
        if !self.from_entries {
            self.databases.iter_mut().for_each(|database| database.kind.complete(&mut database.settings));
            // lloadd has the servers of such a tier in this order, which is that of their entries, too.
            let tiers = self.global.balancer.iter_mut().flat_map(|balancer| &mut balancer.tiers);
            for tier in tiers.filter(|tier| tier.strategy == balancer::Strategy::Weighted) {
                tier.backends.sort_by_key(|server| server.weight);
            }
        }
        Config {
            schema: self.schema(),
            source,
            global: self.global,
            frontend: self.frontend,
            databases: self.databases,
            backends: self.backends,
            modules: self.modules,
            schema_steps: self.schema_steps,
            schema_sections: self.schema_sections,
            notes: self.notes,
            read_entries: None,
        }
    }
}

fn check_arguments(call: &Call<'_>) -> Result<(), Fault> {
    let (least, most) = call.directive.arguments;
    let count = call.arguments.len();
    if count < usize::from(least) {
        let more = if count == 0 { "an argument" } else { "another argument" };
        return Err(Fault::keyword(format!("`{}` needs {more}", call.directive.keyword)));
    }
    if most != u8::MAX && count > usize::from(most) {
        return Err(Fault::argument(
            usize::from(most),
            format!("`{}` takes no more arguments", call.directive.keyword),
        ));
    }
    if call.directive.form == Form::Switch {
        call.switch()?;
    }
    Ok(())
}

/// What to do about a definition that names what is not defined.
fn remedy_of(kind: &SchemaErrorKind) -> Option<String> {
    match kind {
        SchemaErrorKind::UnknownAttributeType(name) | SchemaErrorKind::UnknownObjectClass(name) => {
            bundle_remedy(name)
        }
        _ => None,
    }
}

/// The name of a schema section: the file's name without directory and extension.
pub(super) fn schema_section_name(path: &std::path::Path) -> String {
    path.file_stem().map_or_else(|| "schema".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

fn define_in(
    all: &mut SchemaBuilder,
    keyword: &str,
    words: &[String],
    text: &str,
) -> Result<(), larix_schema::SchemaError> {
    let word = |number: usize| words.get(number).map_or("", String::as_str);
    match keyword {
        "objectidentifier" => all.add_object_identifier(word(0), word(1)),
        "attributetype" => all.add_attribute_type(text).map(|_| ()),
        "objectclass" => all.add_object_class(text).map(|_| ()),
        "ldapsyntax" => all.add_syntax(text),
        _ => all.add_dit_content_rule(text),
    }
}
