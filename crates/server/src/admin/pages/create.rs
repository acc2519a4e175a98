//! An entry added: first its kind, then its attributes.

use larix_schema::{ClassKind, Schema};
use maud::{Markup, html};

use super::edit::{is_too_long, one_more_attribute, refused};
use super::layout::{self, MenuItem};
use super::values::{self, Field, entry_url};
use crate::admin::changes;
use crate::admin::client::{ReceivedAttribute, ReceivedEntry};
use crate::admin::form::Form;
use crate::admin::reply::{Attempt as _, PageResult, Problem, Reply};
use crate::admin::respond::Visit;
use crate::admin::sessions::NoticeKind;
use crate::admin::{names, schema};

/// Kinds that are made most, in words.
const USUAL: [(&str, &str); 6] = [
    ("organizationalUnit", "Container (organizationalUnit)"),
    ("inetOrgPerson", "Person (inetOrgPerson)"),
    ("groupOfNames", "Group (groupOfNames)"),
    ("organizationalRole", "Role (organizationalRole)"),
    ("applicationProcess", "Program (applicationProcess)"),
    ("device", "Device (device)"),
];

/// `/entry/new`: GET `parent` asks for the kind, and with `class` for the values; POST adds.
pub(super) async fn page(visit: &Visit<'_>) -> PageResult {
    let fields = visit.form.unwrap_or(visit.query);
    let parent = fields.get("parent");
    let schema = visit.admin.server.config().schema.clone();
    if fields.trimmed("class").is_empty() {
        return Ok(Reply::page(layout::page(
            visit,
            MenuItem::Browse,
            "Add an entry",
            kinds(&schema, parent),
        )));
    }
    if let Some(unknown) = classes(fields).into_iter().find(|class| schema.object_class(class).is_none()) {
        return Err(Problem::Bad(format!("There is no object class {unknown} in the schema.")));
    }
    let Some(form) = visit.form else {
        return Ok(Reply::page(layout::page(
            visit,
            MenuItem::Browse,
            "Add an entry",
            values_form(visit, &schema, fields, html! {}, &[]),
        )));
    };
    let form_attributes = changes::values(form).map_err(Problem::Bad)?;
    if form.get("step") == "add" {
        let content = values_form(visit, &schema, form, html! {}, &form_attributes);
        return Ok(Reply::page(layout::page(visit, MenuItem::Browse, "Add an entry", content)));
    }
    let naming = form.trimmed("naming");
    let value =
        form_attributes.iter().find(|a| a.name.eq_ignore_ascii_case(naming)).and_then(|a| a.values.first());
    let trouble = match value {
        None => layout::alert(
            "Not added",
            html! { p { "The entry is to be named by " (naming) ", which has no value yet." } },
        ),
        Some(value) => {
            let dn = names::below(&names::rdn(naming, &String::from_utf8_lossy(value)), parent);
            let mut attributes = vec![ReceivedAttribute {
                name: "objectClass".to_owned(),
                values: classes(form).iter().map(|class| class.as_bytes().to_vec()).collect(),
            }];
            attributes.extend(
                form_attributes.iter().filter(|a| !a.values.is_empty() && a.name != "objectClass").cloned(),
            );
            let added = visit.session.client.lock().await.add(&dn, &attributes).await;
            match added {
                Ok(_) => {
                    visit.session.notice(NoticeKind::Done, format!("{} is added.", names::first(&dn)));
                    return Ok(Reply::SeeOther(entry_url(&dn)));
                }
                Err(result) => refused("This cannot be added", &result),
            }
        }
    };
    let content = values_form(visit, &schema, form, trouble, &form_attributes);
    Ok(Reply::Page(
        hyper::StatusCode::UNPROCESSABLE_ENTITY,
        layout::page(visit, MenuItem::Browse, "Add an entry", content),
    ))
}

/// `/entry/copy?dn=`: the form of a new entry beside another one, with its values but for its name and its passwords.
pub(super) async fn copy(visit: &Visit<'_>) -> PageResult {
    let dn = visit.query.get("dn");
    let mut client = visit.session.client.lock().await;
    let read = client.read(dn, &["*", "structuralObjectClass"]).await.attempt(format!("Reading {dn}"));
    drop(client);
    let entry = read?.ok_or_else(|| Problem::no_entry(dn))?;
    let schema = visit.admin.server.config().schema.clone();
    let (fields, mut values) = copied(&schema, &entry);
    let left_out: Vec<String> =
        values.extract_if(.., |attribute| is_too_long(&attribute.values)).map(|one| one.name).collect();
    let note = html! {
        @if !left_out.is_empty() { p.help { "Too long for a form, and left out: " (left_out.join(", ")) "." } }
    };
    let content = values_form(visit, &schema, &fields, note, &values);
    Ok(Reply::page(layout::page(
        visit,
        MenuItem::Browse,
        &format!("Add a copy of {}", names::first(dn)),
        content,
    )))
}

/// What the form of a copy holds.
fn copied(schema: &Schema, entry: &ReceivedEntry) -> (Form, Vec<ReceivedAttribute>) {
    let first = names::first(&entry.dn);
    let naming = first.split_once('=').map_or("", |(naming, _)| naming.trim()).to_owned();
    let name = names::called(&entry.dn);
    let classes: Vec<String> =
        entry.values("objectClass").iter().map(|class| String::from_utf8_lossy(class).into_owned()).collect();
    let is_structural =
        |class: &&String| schema.object_class(class).is_some_and(|class| class.kind == ClassKind::Structural);
    let class = entry.text("structuralObjectClass").map(str::to_owned);
    let class = class.or_else(|| classes.iter().rfind(is_structural).cloned()).unwrap_or_default();
    let auxiliary = classes.iter().filter(|known| !known.eq_ignore_ascii_case(&class)).cloned();
    let parent = names::parent(&entry.dn).unwrap_or_default();
    let fields = [("parent", parent), ("class", class.clone()), ("naming", naming.clone())];
    let fields = Form::of(fields.into_iter().chain(auxiliary.map(|class| ("aux", class))));
    let is_left_out = |name: &str| {
        schema::is_operational(schema, name) || schema::look(schema, name) == schema::Look::Password
    };
    let mut values: Vec<ReceivedAttribute> =
        entry.attributes.iter().filter(|attribute| !is_left_out(&attribute.name)).cloned().collect();
    for attribute in values.iter_mut().filter(|attribute| attribute.name.eq_ignore_ascii_case(&naming)) {
        attribute.values.retain(|value| value != name.as_bytes());
    }
    (fields, values)
}

/// The structural class and the auxiliary ones, as chosen.
fn classes(fields: &Form) -> Vec<&str> {
    let auxiliary = fields.get("auxiliary").split([' ', ',']).filter(|name| !name.is_empty());
    [fields.trimmed("class")].into_iter().chain(fields.all("aux")).chain(auxiliary).collect()
}

fn kinds(schema: &Schema, parent: &str) -> Markup {
    let usual = |name: &str| USUAL.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    html! {
        form method="get" action="/entry/new" {
            input type="hidden" name="parent" value=(parent);
            p { "Below " code { (parent) } }
            label for="class" { "Kind" }
            select #class name="class" required {
                optgroup label="Usual" {
                    @for (name, words) in USUAL.iter().filter(|(name, _)| schema.object_class(name).is_some()) {
                        option value=(name) { (words) }
                    }
                }
                optgroup label="All structural classes" {
                    @for class in schema::classes(schema, ClassKind::Structural) {
                        @if !usual(class.name()) { option value=(class.name()) { (class.name()) } }
                    }
                }
            }
            label for="auxiliary" { "Auxiliary classes" }
            input #auxiliary name="auxiliary" list="auxiliaries" autocomplete="off" aria-describedby="auxiliary-help";
            p.help #auxiliary-help { "Optional; several with blanks between them." }
            datalist #auxiliaries {
                @for class in schema::classes(schema, ClassKind::Auxiliary) { option value=(class.name()) {} }
            }
            div.actions {
                button.primary type="submit" { "Next" }
                a.button href=(entry_url(parent)) { "Cancel" }
            }
        }
    }
}

fn values_form(
    visit: &Visit<'_>,
    schema: &Schema,
    fields: &Form,
    trouble: Markup,
    form_attributes: &[ReceivedAttribute],
) -> Markup {
    let classes = classes(fields);
    let allowed = schema::allowed(schema, classes.iter().copied());
    let stored = |name: &str| {
        form_attributes
            .iter()
            .find(|a| a.name.eq_ignore_ascii_case(name))
            .map_or(&[] as &[Vec<u8>], |a| a.values.as_slice())
    };
    let is_must = |name: &str| allowed.must.iter().any(|must| must.eq_ignore_ascii_case(name));
    let mut optional: Vec<&str> = form_attributes
        .iter()
        .map(|a| a.name.as_str())
        .filter(|name| !is_must(name) && *name != "objectClass")
        .collect();
    for name in fields.all("add").map(str::trim).chain(usual_naming(&allowed)) {
        if !name.is_empty()
            && !is_must(name)
            && !optional.iter().any(|known| known.eq_ignore_ascii_case(name))
        {
            optional.push(name);
        }
    }
    let naming = match fields.trimmed("naming") {
        "" => guess_naming(&allowed, fields.trimmed("class")),
        chosen => chosen.to_owned(),
    };
    html! {
        (trouble)
        form method="post" action="/entry/new" {
            (layout::csrf(visit))
            input type="hidden" name="parent" value=(fields.get("parent"));
            input type="hidden" name="class" value=(fields.trimmed("class"));
            @for class in classes.iter().skip(1) { input type="hidden" name="aux" value=(class); }
            p { "Below " code { (fields.get("parent")) } ", of " code { (classes.join(", ")) } }
            label for="naming" { "Named by" }
            select.narrow #naming name="naming" {
                @for name in allowed.must.iter().chain(&allowed.may) { option value=(name) selected[*name == naming] { (name) } }
            }
            @for name in allowed.must.iter().map(String::as_str).chain(optional.iter().copied()) {
                (values::fields(&Field { schema, attribute: name, must: is_must(name), at_fault: false }, stored(name)))
            }
            (one_more_attribute(allowed.may.iter()))
            div.actions {
                button.primary type="submit" name="step" value="save" { "Add the entry" }
                a.button href=(entry_url(fields.get("parent"))) { "Cancel" }
            }
        }
    }
}

fn usual_naming(allowed: &schema::Allowed) -> impl Iterator<Item = &str> {
    ["uid", "mail", "description"]
        .into_iter()
        .filter(|name| allowed.may.iter().any(|may| may == name))
        .map(|name| -> &str { name })
}

fn guess_naming(allowed: &schema::Allowed, class: &str) -> String {
    if class.eq_ignore_ascii_case("inetOrgPerson") || class.eq_ignore_ascii_case("account") {
        return "uid".to_owned();
    }
    let known = ["cn", "ou", "dc", "o", "uid", "c", "l"];
    let known = known.iter().find(|name| allowed.must.iter().any(|must| must == *name));
    let first = allowed.must.first().map_or("cn", String::as_str);
    (*known.unwrap_or(&first)).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_no_name_and_no_password() {
        let schema = Schema::system();
        let attribute = |name: &str, values: &[&str]| ReceivedAttribute {
            name: name.to_owned(),
            values: values.iter().map(|value| value.as_bytes().to_vec()).collect(),
        };
        let entry = ReceivedEntry {
            dn: "cn=Ann\\, B,ou=people,dc=example".to_owned(),
            attributes: vec![
                attribute("objectClass", &["top", "person", "extensibleObject"]),
                attribute("structuralObjectClass", &["person"]),
                attribute("cn", &["Ann, B", "Ann"]),
                attribute("description", &["kept"]),
                attribute("userPassword", &["secret"]),
            ],
        };
        let (fields, values) = copied(schema, &entry);
        assert_eq!((fields.get("parent"), fields.get("class")), ("ou=people,dc=example", "person"));
        assert_eq!(fields.all("aux").collect::<Vec<_>>(), ["top", "extensibleObject"]);
        assert_eq!(fields.get("naming"), "cn");
        let of = |name: &str| values.iter().find(|a| a.name == name).map(|a| a.values.clone());
        assert_eq!(of("cn"), Some(vec![b"Ann".to_vec()]));
        assert_eq!(of("description"), Some(vec![b"kept".to_vec()]));
        assert_eq!((of("userPassword"), of("structuralObjectClass")), (None, None));
    }
}
