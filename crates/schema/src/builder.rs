//! Building and extending schemas.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use crate::bundled::{SYSTEM, bundled};
use crate::clauses::Extensions;
use crate::definition::{
    AttributeTypeDefinition, ContentRuleDefinition, Directive, DirectiveKind, ObjectClassDefinition,
    SyntaxDefinition, directives, strip_ordering_prefix,
};
use crate::error::{SchemaError, SchemaErrorKind as Fault};
use crate::lexical::is_descriptor;
use crate::matching_rules::{self, MatchingRule, RuleUse};
use crate::model::{
    AttributeType, AttributeTypeId, ClassKind, ContentRule, ObjectClass, ObjectClassId, OwnClauses,
    OwnReferences, Usage,
};
use crate::options::AttributeOptions;
use crate::schema::{RemovedElements, Schema};
use crate::syntaxes::{Syntax, SyntaxKind, is_system_syntax, system_syntaxes};
use crate::table::Fnv;

/// Marks definitions of the system schema that cn=Subschema does not list.
const HIDDEN: &str = "X-HIDDEN";

/// Collects definitions on top of a schema. Each is resolved as it is added: what it names must be there already.
/// After an error the builder holds what was added before the faulty definition.
#[derive(Clone, Debug)]
pub struct SchemaBuilder {
    schema: Schema,
    /// Attribute types and classes below these numbers are built in: an included definition of the same OID and one of the same names is
    /// passed over.
    built_in: (usize, usize),
    /// Numbers that elements of earlier schemas had: an element that is defined again gets its old number.
    removed: RemovedElements,
}

impl From<&Schema> for SchemaBuilder {
    /// Costs the same whatever the schema holds.
    fn from(schema: &Schema) -> Self {
        let system = Schema::system();
        let removed = RemovedElements::clone(&schema.removed);
        let schema = Schema { instance: next_instance(), ..schema.clone() };
        Self { schema, built_in: (system.attributes.len(), system.classes.len()), removed }
    }
}

impl SchemaBuilder {
    /// The built-in schema: RFC 4512, operational attributes, cn=config, cn=monitor, password policy.
    pub fn system() -> Self {
        Self::from(Schema::system())
    }

    /// A schema to be defined anew from the system schema on, in which what `earlier` had as well keeps its number. What
    /// is not defined again is not in it, and its number is given to nothing else.
    pub fn following(earlier: &Schema) -> Self {
        let mut builder = Self::system();
        builder.removed = RemovedElements::clone(&earlier.removed);
        for attribute in earlier.attributes.iter().skip(builder.built_in.0) {
            builder.removed.attributes.insert(attribute.oid.clone(), attribute.id);
            builder.schema.attributes.push(Arc::clone(attribute));
        }
        for class in earlier.classes.iter().skip(builder.built_in.1) {
            builder.removed.classes.insert(class.oid.clone(), class.id);
            builder.schema.classes.push(Arc::clone(class));
        }
        builder
    }

    pub fn build(self) -> Schema {
        Schema { removed: Arc::new(self.removed), instance: next_instance(), ..self.schema }
    }

    /// Adds the definitions of a `.schema` text. `origin` names it in errors.
    pub fn add_schema_text(&mut self, text: &str, origin: &str) -> Result<(), SchemaError> {
        self.add_directives(directives(text, origin)?, origin)
    }

    /// Adds the bundled schema `name`: `core`, `cosine`, ...
    pub fn add_bundled(&mut self, name: &str) -> Result<(), SchemaError> {
        let text = bundled(name).ok_or_else(|| Fault::UnknownBundle(name.to_owned()))?;
        self.add_schema_text(text, name)
    }

    /// Adds one definition of the kind; for [`DirectiveKind::ObjectIdentifier`] the text is a name and an OID.
    pub fn add(&mut self, kind: DirectiveKind, text: &str) -> Result<(), SchemaError> {
        let text = strip_ordering_prefix(text);
        match kind {
            DirectiveKind::AttributeType => self.add_attribute_type(text).map(|_| ()),
            DirectiveKind::ContentRule => self.add_dit_content_rule(text),
            DirectiveKind::ObjectClass => self.add_object_class(text).map(|_| ()),
            DirectiveKind::Syntax => self.add_syntax(text),
            DirectiveKind::ObjectIdentifier => {
                let mut words = text.split_ascii_whitespace();
                match (words.next(), words.next(), words.next()) {
                    (Some(name), Some(oid), None) => self.add_object_identifier(name, oid),
                    _ => Err(Fault::Text {
                        position: 0,
                        expected: "a name and an OID",
                        found: format!("\"{text}\""),
                    }
                    .into()),
                }
            }
        }
    }

    /// Defines an OID macro. `oid` may use another one: `Base:1.2`.
    pub fn add_object_identifier(&mut self, name: &str, oid: &str) -> Result<(), SchemaError> {
        let oid = self.expand_oid(oid)?;
        match self.schema.oid_macros.get(name) {
            Some(known) if **known == *oid => Ok(()),
            Some(_) => Err(duplicate("objectIdentifier", name)),
            None => {
                self.schema.oid_macros.insert(name, oid.into());
                Ok(())
            }
        }
    }

    /// Adds an attribute type, or finds it when it is there already with the same meaning.
    pub fn add_attribute_type(&mut self, text: &str) -> Result<AttributeTypeId, SchemaError> {
        let mut definition = AttributeTypeDefinition::parse(text)?;
        check_names(&definition.names)?;
        definition.oid = self.expand_oid(&definition.oid)?;
        let attribute = self.resolve_attribute(definition)?;
        if let Some(id) = self.known_attribute(&attribute)? {
            return Ok(id);
        }
        Ok(self.insert_attribute(attribute))
    }

    /// Adds an object class, or finds it when it is there already with the same meaning.
    pub fn add_object_class(&mut self, text: &str) -> Result<ObjectClassId, SchemaError> {
        let mut definition = ObjectClassDefinition::parse(text)?;
        check_names(&definition.names)?;
        definition.oid = self.expand_oid(&definition.oid)?;
        let class = self.resolve_class(definition)?;
        if let Some(id) = self.known_class(&class)? {
            return Ok(id);
        }
        Ok(self.insert_class(class))
    }

    /// Adds a syntax. Values are taken as those of the syntax that X-SUBST names, or as any octets.
    pub fn add_syntax(&mut self, text: &str) -> Result<(), SchemaError> {
        let definition = SyntaxDefinition::parse(text)?;
        let oid = self.expand_oid(&definition.oid)?;
        let substitute = definition.extensions.get("X-SUBST").and_then(<[_]>::first);
        let kind = match substitute {
            Some(name) => {
                let oid = self.expand_oid(name)?;
                self.schema.syntax(&oid).ok_or(Fault::UnknownSyntax(oid))?.kind
            }
            None => SyntaxKind::OctetString,
        };
        if self.schema.syntax(&oid).is_some() {
            // Files written for other servers define standard syntaxes, too: ours stay.
            return Ok(());
        }
        let (extensions, hidden) = split_hidden(definition.extensions.clone());
        let flag = |name| definition.extensions.get(name).is_some_and(|v| v.iter().any(|v| v == "TRUE"));
        self.insert_syntax(Arc::new(Syntax {
            oid,
            kind,
            binary_transfer: flag("X-BINARY-TRANSFER-REQUIRED"),
            human_readable: !flag("X-NOT-HUMAN-READABLE"),
            hidden,
            description: definition.description,
            extensions,
        }));
        Ok(())
    }

    /// Adds a DIT content rule for the structural class whose OID it carries.
    pub fn add_dit_content_rule(&mut self, text: &str) -> Result<(), SchemaError> {
        let definition = ContentRuleDefinition::parse(text)?;
        let class = match self.schema.object_class(&definition.oid) {
            Some(class) => class,
            None => {
                let oid = self.expand_oid(&definition.oid)?;
                self.schema.object_class(&oid).ok_or(Fault::UnknownObjectClass(oid))?
            }
        };
        if class.kind != ClassKind::Structural {
            return Err(Fault::Inconsistent("DIT content rule for a class that is not structural").into());
        }
        let (class, oid) = (class.id, class.oid.clone());
        if self.schema.content_rule_names.get(&oid).is_some() {
            return Err(duplicate("DITContentRule", &oid));
        }
        let auxiliary = self.class_ids(&definition.auxiliary)?;
        if auxiliary.iter().any(|&id| self.schema.class(id).kind != ClassKind::Auxiliary) {
            return Err(Fault::Inconsistent("DIT content rule allows a class that is not auxiliary").into());
        }
        let rule = Arc::new(ContentRule {
            class,
            auxiliary,
            must: self.attribute_ids(&definition.must)?,
            may: self.attribute_ids(&definition.may)?,
            not: self.attribute_ids(&definition.not)?,
            names: definition.names,
            description: definition.description,
            obsolete: definition.obsolete,
            extensions: definition.extensions,
            own: OwnReferences {
                superiors: Vec::new(),
                auxiliary: definition.auxiliary,
                must: definition.must,
                may: definition.may,
                not: definition.not,
            },
            oid,
        });
        if rule.must.iter().any(|id| rule.not.contains(id)) {
            return Err(Fault::Inconsistent("DIT content rule requires and forbids an attribute").into());
        }
        for name in &rule.names {
            if self.schema.content_rule_names.get(name).is_some() {
                return Err(duplicate("DITContentRule", name));
            }
        }
        std::iter::once(&rule.oid)
            .chain(&rule.names)
            .for_each(|name| self.schema.content_rule_names.insert(name, Arc::clone(&rule)));
        self.schema.content_rules.push(rule);
        Ok(())
    }

    /// Sets the tagging options that descriptions may carry (slapd.conf `attributeoptions`).
    pub fn set_attribute_options(&mut self, options: AttributeOptions) {
        self.schema.options = Arc::new(options);
    }

    fn add_directives(&mut self, directives: Vec<Directive>, origin: &str) -> Result<(), SchemaError> {
        for directive in directives {
            self.add(directive.kind, &directive.text).map_err(|error| error.at(origin, directive.line))?;
        }
        Ok(())
    }

    /// A numeric OID as it is; `Macro` and `Macro:1.2` expanded.
    fn expand_oid(&self, oid: &str) -> Result<String, SchemaError> {
        // A name that stands for an element's OID is taken as a macro, too.
        self.schema.resolve_oid(oid).ok_or_else(|| Fault::UnknownOidMacro(oid.to_owned()).into())
    }

    fn attribute_ids(&self, names: &[String]) -> Result<Vec<AttributeTypeId>, SchemaError> {
        names.iter().map(|name| self.attribute_id(name)).collect()
    }

    fn attribute_id(&self, name: &str) -> Result<AttributeTypeId, SchemaError> {
        self.schema
            .attribute_type_id(name)
            .or_else(|| self.schema.attribute_type_id(&self.expand_oid(name).ok()?))
            .ok_or_else(|| Fault::UnknownAttributeType(name.to_owned()).into())
    }

    fn class_ids(&self, names: &[String]) -> Result<Vec<ObjectClassId>, SchemaError> {
        let find = |name: &String| {
            self.schema
                .object_class_id(name)
                .or_else(|| self.schema.object_class_id(&self.expand_oid(name).ok()?))
                .ok_or_else(|| Fault::UnknownObjectClass(name.to_owned()).into())
        };
        names.iter().map(find).collect()
    }

    fn resolve_attribute(&self, definition: AttributeTypeDefinition) -> Result<AttributeType, SchemaError> {
        let superior = match &definition.superior {
            Some(name) => Some(self.schema.attribute(self.attribute_id(name)?)),
            None => None,
        };
        let own_syntax = match &definition.syntax {
            Some(name) => Some(self.find_syntax(name)?),
            None => None,
        };
        let inherited = superior.map(|superior| Arc::clone(&superior.syntax));
        let syntax = own_syntax
            .or(inherited)
            .ok_or(Fault::Inconsistent("attribute type without syntax or superior"))?;
        let rule = |name: &Option<String>, usage| find_rule(name.as_deref(), usage, &syntax);
        let equality = rule(&definition.equality, RuleUse::Equality)?;
        let ordering = rule(&definition.ordering, RuleUse::Ordering)?;
        let substring = rule(&definition.substring, RuleUse::Substring)?;
        check_usage(&definition, superior)?;
        let superiors = superior
            .map(|superior| std::iter::once(superior.id).chain(superior.superiors.iter().copied()).collect())
            .unwrap_or_default();
        let (extensions, hidden) = split_hidden(definition.extensions);
        let mut attribute = AttributeType {
            id: AttributeTypeId(self.schema.attributes.len() as u32),
            superior: superior.map(|superior| superior.id),
            equality: equality.or_else(|| superior?.equality),
            ordering: ordering.or_else(|| superior?.ordering),
            substring: substring.or_else(|| superior?.substring),
            equality_has_own_syntax: false,
            syntax,
            syntax_length: definition.syntax_length,
            single_value: definition.single_value,
            collective: definition.collective,
            no_user_modification: definition.no_user_modification,
            usage: definition.usage,
            extensions,
            hidden,
            subtypes: Vec::new(),
            superiors,
            own: OwnClauses {
                superior: definition.superior,
                equality: definition.equality,
                ordering: definition.ordering,
                substring: definition.substring,
                syntax: definition.syntax.is_some(),
            },
            oid: definition.oid,
            names: definition.names,
            description: definition.description,
            obsolete: definition.obsolete,
        };
        name_object_classes(&mut attribute);
        attribute.equality_has_own_syntax =
            attribute.equality.is_some_and(|rule| rule.syntax_oid == attribute.syntax.oid);
        Ok(attribute)
    }

    fn find_syntax(&self, name: &str) -> Result<Arc<Syntax>, SchemaError> {
        let oid = self.expand_oid(name).map_err(|_| Fault::UnknownSyntax(name.to_owned()))?;
        Ok(Arc::clone(self.schema.syntax(&oid).ok_or(Fault::UnknownSyntax(oid))?))
    }

    /// The number of a type that is there already and means the same; an error when it means something else.
    fn known_attribute(&self, new: &AttributeType) -> Result<Option<AttributeTypeId>, SchemaError> {
        let mut names = std::iter::once(&new.oid).chain(&new.names);
        let Some(id) = names.find_map(|name| self.schema.attribute_type_id(name)) else { return Ok(None) };
        let known = self.schema.attribute(id);
        let built_in = (known.id.0 as usize) < self.built_in.0 && shares_name(&known.names, &new.names);
        if known.oid == new.oid && (built_in || same_attribute(known, new)) {
            return Ok(Some(id));
        }
        Err(conflict("attributeType", &known.oid, &new.oid, new.name()))
    }

    fn insert_attribute(&mut self, mut attribute: AttributeType) -> AttributeTypeId {
        let earlier = self.removed.attributes.remove(&attribute.oid);
        let id = earlier.unwrap_or(AttributeTypeId(self.schema.attributes.len() as u32));
        attribute.id = id;
        attribute.subtypes = vec![id];
        for superior in &attribute.superiors {
            if let Some(superior) = self.schema.attributes.get_mut(superior.0 as usize) {
                let subtypes = &mut Arc::make_mut(superior).subtypes;
                let at = subtypes.partition_point(|other| *other < id);
                subtypes.insert(at, id);
            }
        }
        self.mix(&attribute_hash(&attribute));
        std::iter::once(&attribute.oid)
            .chain(&attribute.names)
            .for_each(|name| self.schema.attribute_names.insert(name, id));
        match self.schema.attributes.get_mut(id.0 as usize).filter(|_| earlier.is_some()) {
            Some(slot) => *slot = Arc::new(attribute),
            None => self.schema.attributes.push(Arc::new(attribute)),
        }
        id
    }

    fn resolve_class(&self, definition: ObjectClassDefinition) -> Result<ObjectClass, SchemaError> {
        let mut superiors = self.class_ids(&definition.superiors)?;
        if superiors.is_empty() && definition.kind == ClassKind::Structural {
            superiors.extend(self.schema.object_class_id("top"));
        }
        let mut ancestry: Vec<ObjectClassId> = Vec::new();
        let (mut all_must, mut all_may) = (Vec::new(), Vec::new());
        for &id in &superiors {
            let superior = self.schema.class(id);
            let allowed = match definition.kind {
                ClassKind::Abstract => superior.kind == ClassKind::Abstract,
                ClassKind::Structural => superior.kind != ClassKind::Auxiliary,
                ClassKind::Auxiliary => superior.kind != ClassKind::Structural,
            };
            if !allowed {
                return Err(Fault::Inconsistent(
                    "object class and superior are of kinds that do not go together",
                )
                .into());
            }
            ancestry.extend(&superior.ancestry);
            all_must.extend(&superior.all_must);
            all_may.extend(&superior.all_may);
        }
        let must = self.attribute_ids(&definition.must)?;
        let may = self.attribute_ids(&definition.may)?;
        all_must.extend(&must);
        all_may.extend(&may);
        for list in [&mut all_must, &mut all_may] {
            list.sort_unstable();
            list.dedup();
        }
        all_may.retain(|id| all_must.binary_search(id).is_err());
        let (extensions, hidden) = split_hidden(definition.extensions);
        Ok(ObjectClass {
            id: ObjectClassId(self.schema.classes.len() as u32),
            kind: definition.kind,
            superiors,
            must,
            may,
            extensions,
            hidden,
            all_must,
            all_may,
            ancestry,
            own: OwnReferences {
                superiors: definition.superiors,
                must: definition.must,
                may: definition.may,
                ..OwnReferences::default()
            },
            oid: definition.oid,
            names: definition.names,
            description: definition.description,
            obsolete: definition.obsolete,
        })
    }

    fn known_class(&self, new: &ObjectClass) -> Result<Option<ObjectClassId>, SchemaError> {
        let mut names = std::iter::once(&new.oid).chain(&new.names);
        let Some(id) = names.find_map(|name| self.schema.object_class_id(name)) else { return Ok(None) };
        let known = self.schema.class(id);
        let built_in = (known.id.0 as usize) < self.built_in.1 && shares_name(&known.names, &new.names);
        if known.oid == new.oid && (built_in || same_class(known, new)) {
            return Ok(Some(id));
        }
        Err(conflict("objectClass", &known.oid, &new.oid, new.name()))
    }

    fn insert_class(&mut self, mut class: ObjectClass) -> ObjectClassId {
        let earlier = self.removed.classes.remove(&class.oid);
        let id = earlier.unwrap_or(ObjectClassId(self.schema.classes.len() as u32));
        class.id = id;
        class.ancestry.push(id);
        class.ancestry.sort_unstable();
        class.ancestry.dedup();
        self.mix(&class_hash(&class));
        std::iter::once(&class.oid)
            .chain(&class.names)
            .for_each(|name| self.schema.class_names.insert(name, id));
        match self.schema.classes.get_mut(id.0 as usize).filter(|_| earlier.is_some()) {
            Some(slot) => *slot = Arc::new(class),
            None => self.schema.classes.push(Arc::new(class)),
        }
        id
    }

    fn insert_syntax(&mut self, syntax: Arc<Syntax>) {
        self.schema.syntax_oids.insert(&syntax.oid, Arc::clone(&syntax));
        self.schema.syntaxes.push(syntax);
    }

    /// Order does not count in the fingerprint.
    fn mix(&mut self, hash: &Fnv) {
        self.schema.fingerprint = self.schema.fingerprint.wrapping_add(hash.finish());
    }
}

impl Schema {
    /// The schema that is there without any definition: OpenLDAP's, with operational attributes, configuration,
    /// monitoring and password policy.
    pub fn system() -> &'static Self {
        static SYSTEM: LazyLock<Schema> = LazyLock::new(system_schema);
        &SYSTEM
    }
}

/// A number that no schema of this process has.
fn next_instance() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// Builds what [`Schema::system`] gives.
fn system_schema() -> Schema {
    let mut builder =
        SchemaBuilder { schema: Schema::default(), built_in: (0, 0), removed: RemovedElements::default() };
    system_syntaxes().into_iter().for_each(|syntax| builder.insert_syntax(syntax));
    for (name, text) in SYSTEM {
        if let Err(error) = builder.add_schema_text(text, name) {
            // The texts are part of the program, and a test reads them.
            unreachable!("built-in schema: {error}");
        }
    }
    builder.schema
}

fn find_rule(
    name: Option<&str>,
    usage: RuleUse,
    syntax: &Syntax,
) -> Result<Option<&'static MatchingRule>, SchemaError> {
    let Some(name) = name else { return Ok(None) };
    let rule = matching_rules::find(name).ok_or_else(|| Fault::UnknownMatchingRule(name.to_owned()))?;
    // A syntax of one's own takes the rules of what it stands for; substring rules have an assertion syntax that no
    // attribute has.
    let own_syntax = !is_system_syntax(&syntax.oid);
    if rule.usage == usage && (usage == RuleUse::Substring || own_syntax || rule.applies_to(&syntax.oid)) {
        Ok(Some(rule))
    } else {
        Err(Fault::InappropriateRule(name.to_owned()).into())
    }
}

fn check_usage(
    definition: &AttributeTypeDefinition,
    superior: Option<&AttributeType>,
) -> Result<(), SchemaError> {
    let differs = superior.is_some_and(|superior| {
        superior.usage != definition.usage || (superior.collective && !definition.collective)
    });
    let user = definition.usage == Usage::UserApplications;
    let single_collective = definition.collective && (definition.single_value || !user);
    if differs || single_collective || (definition.no_user_modification && user) {
        let name = definition.names.first().unwrap_or(&definition.oid);
        return Err(Fault::InappropriateUsage(name.clone()).into());
    }
    Ok(())
}

fn check_names(names: &[String]) -> Result<(), SchemaError> {
    match names.iter().find(|name| !is_descriptor(name.as_bytes())) {
        Some(name) => Err(Fault::InvalidName(name.clone()).into()),
        None => Ok(()),
    }
}

/// objectClass and structuralObjectClass have values that are classes: an assertion matches subclasses, too, and
/// values are stored under the class's first name.
fn name_object_classes(attribute: &mut AttributeType) {
    if matches!(attribute.oid.as_str(), "2.5.4.0" | "2.5.21.9") {
        attribute.equality = Some(matching_rules::object_class_rule());
        let mut syntax = Syntax::clone(&attribute.syntax);
        syntax.kind = SyntaxKind::ObjectClassName;
        attribute.syntax = Arc::new(syntax);
    }
}

fn split_hidden(extensions: Extensions) -> (Extensions, bool) {
    let mut kept = Extensions::default();
    let mut hidden = false;
    for (name, values) in extensions.iter() {
        if name == HIDDEN {
            hidden = true;
        } else {
            kept.push(name.to_owned(), values.to_vec());
        }
    }
    (kept, hidden)
}

fn conflict(element: &'static str, known_oid: &str, oid: &str, name: &str) -> SchemaError {
    if known_oid == oid {
        return Fault::InconsistentDuplicate { element, oid: oid.to_owned() }.into();
    }
    duplicate(element, name)
}

fn duplicate(element: &'static str, name: &str) -> SchemaError {
    Fault::Duplicate { element, name: name.to_owned() }.into()
}

/// Same in all but description, order of names and extensions.
fn same_attribute(a: &AttributeType, b: &AttributeType) -> bool {
    same_names(&a.names, &b.names)
        && (a.superior, a.equality, a.ordering, a.substring)
            == (b.superior, b.equality, b.ordering, b.substring)
        && a.syntax.oid == b.syntax.oid
        && (a.single_value, a.collective, a.no_user_modification, a.usage)
            == (b.single_value, b.collective, b.no_user_modification, b.usage)
}

fn same_class(a: &ObjectClass, b: &ObjectClass) -> bool {
    same_names(&a.names, &b.names)
        && a.kind == b.kind
        && (&a.superiors, &a.all_must, &a.all_may) == (&b.superiors, &b.all_must, &b.all_may)
}

/// Whether a definition of the OID of a built-in element means that one. Under other names alone it is something else, and what used these
/// names would not find it.
fn shares_name(known: &[String], new: &[String]) -> bool {
    new.is_empty() || new.iter().any(|name| known.iter().any(|other| other.eq_ignore_ascii_case(name)))
}

fn same_names(a: &[String], b: &[String]) -> bool {
    a.len() == b.len() && a.iter().all(|name| b.iter().any(|other| other.eq_ignore_ascii_case(name)))
}

fn attribute_hash(attribute: &AttributeType) -> Fnv {
    let mut hash = Fnv::new();
    hash.field(attribute.oid.as_bytes());
    hash.field(attribute.name().as_bytes());
    for rule in [attribute.equality, attribute.ordering, attribute.substring] {
        hash.field(rule.map_or("", |rule| rule.oid).as_bytes());
    }
    hash.field(attribute.syntax.oid.as_bytes());
    hash.field(attribute.own.superior.as_deref().unwrap_or_default().as_bytes());
    hash
}

fn class_hash(class: &ObjectClass) -> Fnv {
    let mut hash = Fnv::new();
    hash.field(class.oid.as_bytes());
    hash.field(class.name().as_bytes());
    class.own.superiors.iter().for_each(|name| hash.field(name.to_ascii_lowercase().as_bytes()));
    hash
}

#[cfg(test)]
mod tests;
