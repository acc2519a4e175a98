//! The schema to read: attribute types and object classes, what each of them is, and where it leads.

use larix_schema::{AttributeType, AttributeTypeId, ClassKind, ObjectClass, Schema, Usage};
use maud::{Markup, html};

use super::layout::{self, MenuItem};
use crate::admin::form::url;
use crate::admin::reply::{PageResult, Problem, Reply};
use crate::admin::respond::Visit;

/// Where LDAP clients read the schema: those who may not read it there do not read it here.
const SUBSCHEMA: &str = "cn=Subschema";

/// `/schema?q=`: a list; `/schema?class=` and `/schema?attribute=`: one element.
pub(super) async fn page(visit: &Visit<'_>) -> PageResult {
    {
        let mut client = visit.session.client.lock().await;
        if !super::is_there(&mut client, SUBSCHEMA).await? {
            return Err(Problem::Bad(format!("You may not read {SUBSCHEMA}.")));
        }
    }
    let schema = visit.admin.server.config().schema.clone();
    let (class, attribute) = (visit.query.get("class"), visit.query.get("attribute"));
    let (title, content) = if !class.is_empty() {
        let class = schema.object_class(class).filter(|class| !class.hidden).ok_or(Problem::NotFound)?;
        (class.name().to_owned(), one_class(&schema, class))
    } else if !attribute.is_empty() {
        let found = schema.attribute_type(attribute).filter(|kind| !kind.hidden);
        let found = found.ok_or(Problem::NotFound)?;
        (found.name().to_owned(), one_attribute(&schema, found))
    } else {
        ("Schema".to_owned(), list(&schema, visit.query.trimmed("q")))
    };
    Ok(Reply::page(layout::page(visit, MenuItem::Schema, &title, content)))
}

fn list(schema: &Schema, question: &str) -> Markup {
    let needle = question.to_lowercase();
    let matches = |names: &[String], oid: &str, text: Option<&str>| {
        let in_text = text.is_some_and(|text| text.to_lowercase().contains(&needle));
        oid.starts_with(&needle) || in_text || names.iter().any(|name| name.to_lowercase().contains(&needle))
    };
    let mut classes: Vec<&ObjectClass> = schema
        .object_classes()
        .filter(|class| !class.hidden && matches(&class.names, &class.oid, class.description.as_deref()))
        .collect();
    classes.sort_by_cached_key(|class| class.name().to_lowercase());
    let mut attributes: Vec<&AttributeType> = schema
        .attribute_types()
        .filter(|kind| !kind.hidden && matches(&kind.names, &kind.oid, kind.description.as_deref()))
        .collect();
    attributes.sort_by_cached_key(|kind| kind.name().to_lowercase());
    html! {
        form.row method="get" action="/schema" role="search" {
            div { label for="q" { "Name, OID or a word of the description" } input #q type="search" name="q" value=(question); }
            button.fix type="submit" { "Search" }
        }
        section aria-labelledby="classes" {
            h2 #classes { "Object classes (" (classes.len()) ")" }
            table.wide.stack { tbody { @for class in classes { tr {
                td { (class_link(class)) @if class.obsolete { " " span.tag.warn { "obsolete" } } }
                td { (kind(class.kind)) }
                td.soft { (class.description.as_deref().unwrap_or("")) }
            } } } }
        }
        section aria-labelledby="attribute-types" {
            h2 #attribute-types { "Attribute types (" (attributes.len()) ")" }
            table.wide.stack { tbody { @for attribute in attributes { tr {
                td { (attribute_link(attribute)) @if attribute.obsolete { " " span.tag.warn { "obsolete" } } }
                td { (syntax(attribute)) }
                td.soft { (attribute.description.as_deref().unwrap_or("")) }
            } } } }
        }
    }
}

fn one_class(schema: &Schema, class: &ObjectClass) -> Markup {
    let inherited = |all: &[AttributeTypeId], own: &[AttributeTypeId]| -> Vec<AttributeTypeId> {
        all.iter().filter(|id| !own.contains(id)).copied().collect()
    };
    let below: Vec<&ObjectClass> = schema
        .object_classes()
        .filter(|other| !other.hidden && other.superiors.contains(&class.id))
        .collect();
    html! {
        (back())
        (head(&class.names, &class.oid, class.description.as_deref()))
        dl.facts {
            dt { "Kind" } dd { (kind(class.kind)) @if class.obsolete { ", obsolete" } }
            dt { "Superior classes" } dd { (links(class.superiors.iter().map(|id| class_link(schema.class(*id))))) }
            dt { "Subclasses" } dd { (links(below.into_iter().map(class_link))) }
            @for (title, own, all) in [("Must have", &class.must, class.all_must()), ("May have", &class.may, class.all_may())] {
                dt { (title) } dd { (attributes(schema, own)) }
                @let more = inherited(all, own);
                @if !more.is_empty() { dt { (title) ", inherited" } dd { (attributes(schema, &more)) } }
            }
        }
        (definition(class))
    }
}

fn one_attribute(schema: &Schema, attribute: &AttributeType) -> Markup {
    let rule = |rule: Option<&'static larix_schema::MatchingRule>| rule.map_or("none", |rule| rule.name);
    let below: Vec<AttributeTypeId> =
        schema.subtypes(attribute.id).iter().filter(|id| **id != attribute.id).copied().collect();
    let used = |must: bool| {
        let of = move |class: &&ObjectClass| {
            !class.hidden && if must { &class.must } else { &class.may }.contains(&attribute.id)
        };
        links(schema.object_classes().filter(of).map(class_link))
    };
    html! {
        (back())
        (head(&attribute.names, &attribute.oid, attribute.description.as_deref()))
        dl.facts {
            dt { "Syntax" } dd { (syntax(attribute)) " " code { (attribute.syntax.oid) }
                @if let Some(length) = attribute.syntax_length { ", up to " (length) " characters" } }
            dt { "Values" } dd { @if attribute.single_value { "one" } @else { "several" } @if attribute.collective { ", collective" } }
            dt { "Equality" } dd { (rule(attribute.equality)) }
            dt { "Ordering" } dd { (rule(attribute.ordering)) }
            dt { "Substrings" } dd { (rule(attribute.substring)) }
            dt { "Usage" } dd { (usage(attribute.usage)) @if attribute.no_user_modification { ", kept by the server" } }
            @if let Some(superior) = attribute.superior {
                dt { "Supertype" } dd { (attribute_link(schema.attribute(superior))) }
            }
            dt { "Subtypes" } dd { (attributes(schema, &below)) }
            dt { "Demanded by" } dd { (used(true)) }
            dt { "Allowed by" } dd { (used(false)) }
        }
        p { a.button href=(url("/search", &[("filter", &format!("({}=*)", attribute.name())), ("attributes", attribute.name())])) {
            "Entries that have it" } }
        (definition(attribute))
    }
}

fn back() -> Markup {
    html! { p { a href="/schema" { "All of the schema" } } }
}

fn head(names: &[String], oid: &str, description: Option<&str>) -> Markup {
    html! {
        @if let Some(text) = description { p { (text) } }
        p { @for name in names { code { (name) } " " } code { (oid) } }
    }
}

fn definition(element: &dyn std::fmt::Display) -> Markup {
    html! { details { summary { "Definition (RFC 4512)" } pre { (element.to_string()) } } }
}

fn class_link(class: &ObjectClass) -> Markup {
    html! { a href=(url("/schema", &[("class", class.name())])) { (class.name()) } }
}

fn attribute_link(attribute: &AttributeType) -> Markup {
    html! { a href=(url("/schema", &[("attribute", attribute.name())])) { (attribute.name()) } }
}

fn attributes(schema: &Schema, ids: &[AttributeTypeId]) -> Markup {
    let mut types: Vec<_> = ids.iter().map(|id| schema.attribute(*id)).filter(|kind| !kind.hidden).collect();
    types.sort_by_cached_key(|kind| kind.name().to_lowercase());
    links(types.into_iter().map(attribute_link))
}

fn links(links: impl Iterator<Item = Markup>) -> Markup {
    let links: Vec<Markup> = links.collect();
    html! {
        @if links.is_empty() { span.soft { "none" } }
        @for (n, link) in links.iter().enumerate() { @if n > 0 { ", " } (link) }
    }
}

fn syntax(attribute: &AttributeType) -> String {
    attribute.syntax.description.clone().unwrap_or_else(|| attribute.syntax.oid.clone())
}

fn kind(kind: ClassKind) -> &'static str {
    match kind {
        ClassKind::Abstract => "abstract",
        ClassKind::Structural => "structural",
        ClassKind::Auxiliary => "auxiliary",
    }
}

fn usage(usage: Usage) -> &'static str {
    match usage {
        Usage::UserApplications => "user attribute",
        Usage::DirectoryOperation => "operational, of the directory",
        Usage::DistributedOperation => "operational, shared by servers",
        Usage::DsaOperation => "operational, of this server",
    }
}
