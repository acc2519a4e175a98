//! An entry's attributes changed: fields, then what that amounts to, then the change.

use larix_proto::ber::{Tag, write};
use larix_proto::control::{Assertion, ControlValue as _, PreReadResponse};
use larix_proto::filter::escaped;
use larix_proto::ldif::{Modification, Writer};
use larix_proto::{ControlBuf, FilterBuf, LdapResult, ModifyOperation, ResultCode, oid};
use larix_schema::Schema;
use maud::{Markup, html};

use super::layout::{self, MenuItem};
use super::values::{self, Field, entry_url};
use crate::admin::changes;
use crate::admin::client::{Answer, AttributeChange, ReceivedAttribute, ReceivedEntry};
use crate::admin::form::{Form, url};
use crate::admin::reply::{Attempt as _, PageResult, Problem, Reply, explain};
use crate::admin::respond::Visit;
use crate::admin::sessions::NoticeKind;
use crate::admin::{names, schema};
use crate::secrets::is_secret_in;

/// Values of one attribute that a form holds; more are for tools.
const VALUES_MAX: usize = 500;
/// Bytes of one attribute that a form holds: in base64 they fit into what a browser may send.
const BYTES_MAX: usize = 5 * 512 * 1024;

/// Stands in a review for a secret, the old one and the new one.
const HIDDEN: &str = "(hidden here)";

/// Whether a form does not hold the values of an attribute.
pub(super) fn is_too_long(values: &[Vec<u8>]) -> bool {
    values.len() > VALUES_MAX || values.iter().map(Vec::len).sum::<usize>() > BYTES_MAX
}

/// `/entry/edit`: GET the form, POST `step` = `add`, `review`, `back` or `save`.
pub(super) async fn page(visit: &Visit<'_>) -> PageResult {
    let fields = visit.form.unwrap_or(visit.query);
    let dn = fields.get("dn");
    let entry = {
        let mut client = visit.session.client.lock().await;
        client
            .read(dn, &["*", "entryCSN"])
            .await
            .attempt(format!("Reading {dn}"))?
            .ok_or_else(|| Problem::no_entry(dn))?
    };
    let schema = visit.admin.server.config().schema.clone();
    let Some(form) = visit.form else {
        let added = visit.query.all("add").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        return Ok(edit_page(visit, &schema, &entry, &as_stored(&schema, &entry), added, None));
    };
    let form_attributes = match changes::values(form) {
        Ok(form_attributes) => form_attributes,
        Err(why) => {
            let shown = as_stored(&schema, &entry);
            return Ok(edit_page(visit, &schema, &entry, &shown, Vec::new(), Some(Trouble::Text(why))));
        }
    };
    // What a form has of such an attribute is not all of it.
    let is_held = |a: &ReceivedAttribute| !is_too_long(entry.values(&a.name));
    let (form_attributes, beyond): (Vec<_>, Vec<_>) = form_attributes.into_iter().partition(is_held);
    if let Some(one) = beyond.iter().find(|a| !a.values.is_empty()) {
        let why = format!(
            "{} is too long for a form: it has more than {VALUES_MAX} values, or {BYTES_MAX} bytes. The page of a group adds and removes \
             members, larix modify other values.",
            one.name
        );
        return Ok(edit_page(visit, &schema, &entry, &form_attributes, Vec::new(), Some(Trouble::Text(why))));
    }
    let changes = changes::between(&schema, &entry, &form_attributes);
    match form.get("step") {
        "add" | "back" => {
            let added = form.all("add").filter(|name| !name.is_empty()).map(str::to_owned).collect();
            Ok(edit_page(visit, &schema, &entry, &form_attributes, added, None))
        }
        "save" => save(visit, &schema, &entry, form, form_attributes, &changes).await,
        _ if changes.is_empty() => {
            let none = Trouble::Text("Nothing is changed yet.".to_owned());
            Ok(edit_page(visit, &schema, &entry, &form_attributes, Vec::new(), Some(none)))
        }
        _ => Ok(review_page(visit, &schema, &entry, form, &changes)),
    }
}

async fn save(
    visit: &Visit<'_>,
    schema: &Schema,
    entry: &ReceivedEntry,
    form: &Form,
    form_attributes: Vec<ReceivedAttribute>,
    changes: &[AttributeChange],
) -> PageResult {
    let dn = &entry.dn;
    // What was reviewed is what is changed: nothing else may have come between.
    let seen = form.get("csn");
    let is_stale = entry.text("entryCSN").is_none() && !seen.is_empty() && seen != changes::state(entry);
    let mut client = visit.session.client.lock().await;
    let changed = match changes.is_empty() {
        _ if is_stale => {
            let text = "the entry is another one than that of the form";
            Err(LdapResult::with(ResultCode::ASSERTION_FAILED, text))
        }
        true => Ok(Vec::new()),
        false => {
            let guarded = Guarded::new(schema, entry, seen, changes);
            let answer = client.modify(dn, &guarded.changes, &guarded.controls).await;
            answer.map(|answer| guarded.overwritten(entry, &answer))
        }
    };
    if client.is_gone() {
        return Err(Problem::LoggedOut);
    }
    drop(client);
    match changed {
        Ok(overwritten) => {
            visit.session.notice(NoticeKind::Done, format!("{} is changed.", names::first(dn)));
            for name in overwritten {
                let text =
                    format!("Somebody changed {name} at the same moment: your values have replaced theirs.");
                visit.session.notice(NoticeKind::Warning, text);
            }
            Ok(Reply::SeeOther(back_to(form, dn)))
        }
        Err(result) => {
            let trouble = Trouble::Refused(result);
            Ok(edit_page(visit, schema, entry, &form_attributes, Vec::new(), Some(trouble)))
        }
    }
}

/// A change with what it takes that nothing is overwritten which came between.
struct Guarded {
    changes: Vec<AttributeChange>,
    controls: Vec<ControlBuf>,
    /// Attributes whose values no change can name, where nothing else says whether the entry is still the same.
    unnamed: Vec<String>,
}

impl Guarded {
    /// `seen`: the state that the form was made from, if it says that.
    fn new(schema: &Schema, entry: &ReceivedEntry, seen: &str, changes: &[AttributeChange]) -> Self {
        let filter = entry.text("entryCSN").map(|csn| {
            let seen = if seen.is_empty() { csn } else { seen };
            format!("(entryCSN={})", escaped(seen))
        });
        if let Some(filter) = filter.and_then(|filter| FilterBuf::parse(&filter).ok()) {
            let unchanged = Assertion { filter: filter.as_filter() }.to_control(true);
            return Self { changes: changes.to_vec(), controls: vec![unchanged], unnamed: Vec::new() };
        }
        // Entries of cn=config that nobody has changed since the server read them from a file have no entryCSN, and some users may not
        // see it: only values that the form showed are taken away.
        let (changes, unnamed) = changes::by_value(schema, entry, changes);
        let controls = if unnamed.is_empty() { Vec::new() } else { vec![before(&unnamed)] };
        Self { changes, controls, unnamed }
    }

    /// The attributes that others had changed before, as far as the answer says so.
    fn overwritten(&self, entry: &ReceivedEntry, answer: &Answer) -> Vec<String> {
        let control = answer.controls.iter().find(|control| control.oid == oid::PRE_READ);
        let read = control.and_then(|control| PreReadResponse::decode(control.value.as_deref()).ok());
        let Some(read) = read else { return Vec::new() };
        let is_other = |name: &&String| {
            let found = read.attributes.iter().find(|one| one.description.eq_ignore_ascii_case(name));
            let values: Vec<&[u8]> = found.map(|one| one.values.iter().collect()).unwrap_or_default();
            !values.into_iter().eq(entry.values(name).iter().map(Vec::as_slice))
        };
        self.unnamed.iter().filter(is_other).cloned().collect()
    }
}

/// Has the answer say what these attributes were before the change (RFC 4527).
fn before(names: &[String]) -> ControlBuf {
    let mut value = Vec::new();
    write::constructed(&mut value, Tag::SEQUENCE, |out| {
        names.iter().for_each(|name| write::string(out, name));
    });
    ControlBuf { oid: oid::PRE_READ.into(), critical: false, value: Some(value) }
}

/// Where the form was begun, if that is a page of ours.
fn back_to(form: &Form, dn: &str) -> String {
    match form.get("from") {
        "config" => "/config".to_owned(),
        "account" => "/account".to_owned(),
        _ => entry_url(dn),
    }
}

/// The menu's entry that the form was begun from.
fn menu_item(fields: &Form) -> MenuItem {
    match fields.get("from") {
        "config" => MenuItem::Configuration,
        "account" => MenuItem::Account,
        _ => MenuItem::Browse,
    }
}

/// What to say above the form.
enum Trouble {
    Text(String),
    Refused(LdapResult),
}

impl Trouble {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Refused(result) => &result.diagnostic,
        }
    }
}

/// The attributes that a form may hold.
fn as_stored(schema: &Schema, entry: &ReceivedEntry) -> Vec<ReceivedAttribute> {
    let shown = |a: &&ReceivedAttribute| {
        schema::is_editable(schema, &a.name)
            && !schema::is_operational(schema, &a.name)
            && !is_too_long(&a.values)
    };
    entry.attributes.iter().filter(shown).cloned().collect()
}

fn edit_page(
    visit: &Visit<'_>,
    schema: &Schema,
    entry: &ReceivedEntry,
    shown: &[ReceivedAttribute],
    added: Vec<String>,
    trouble: Option<Trouble>,
) -> Reply {
    let classes = shown.iter().find(|a| a.name.eq_ignore_ascii_case("objectClass"));
    let classes: Vec<String> = classes.map_or_else(Vec::new, |a| {
        a.values.iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect()
    });
    let allowed = schema::allowed(schema, classes.iter().map(String::as_str));
    let is_shown = |name: &str| shown.iter().any(|a| a.name.eq_ignore_ascii_case(name));
    let hidden = entry.attributes.iter().filter(|a| is_too_long(&a.values)).map(|a| a.name.as_str());
    let hidden: Vec<_> = hidden.collect();
    let is_absent =
        |name: &str| !is_shown(name) && !hidden.iter().any(|hidden| hidden.eq_ignore_ascii_case(name));
    let mut blank: Vec<String> =
        allowed.must.iter().chain(&added).filter(|name| is_absent(name)).cloned().collect();
    blank.dedup();
    let fault = trouble.as_ref().map_or_else(String::new, |trouble| trouble.text().to_ascii_lowercase());
    let content = html! {
        (trouble_shown(trouble.as_ref()))
        p { code { (entry.dn) } }
        form method="post" action="/entry/edit" {
            (layout::csrf(visit))
            input type="hidden" name="dn" value=(entry.dn);
            input type="hidden" name="csn" value=(form_state(visit, entry, trouble.as_ref()));
            @let from = visit.form.unwrap_or(visit.query).get("from");
            input type="hidden" name="from" value=(from);
            @for (name, values) in shown.iter().map(|a| (a.name.as_str(), a.values.as_slice()))
                .chain(blank.iter().map(|name| (name.as_str(), &[] as &[Vec<u8>]))) {
                (values::fields(&Field {
                    schema,
                    attribute: name,
                    must: allowed.must.iter().any(|must| must.eq_ignore_ascii_case(name)),
                    at_fault: names_attribute(&fault, name),
                }, values))
            }
            @if !hidden.is_empty() {
                p.help { "Too long for a form, and left as they are: " (hidden.join(", ")) "." }
            }
            (one_more_attribute(allowed.may.iter().filter(|name| is_absent(name))))
            div.actions {
                button.primary type="submit" name="step" value="review" { "Review the change" }
                a.button href=(back_to(visit.form.unwrap_or(visit.query), &entry.dn)) { "Cancel" }
            }
            p.help {
                "Nothing is changed before you have seen what will be. Passwords are set on a person's page."
            }
        }
    };
    let status = match trouble {
        Some(_) => hyper::StatusCode::UNPROCESSABLE_ENTITY,
        None => hyper::StatusCode::OK,
    };
    Reply::Page(
        status,
        layout::page(
            visit,
            menu_item(visit.form.unwrap_or(visit.query)),
            &format!("Edit {}", names::first(&entry.dn)),
            content,
        ),
    )
}

pub(super) fn one_more_attribute<'a>(names: impl Iterator<Item = &'a String>) -> Markup {
    html! {
        fieldset {
            legend { "One more attribute" }
            div.row {
                div {
                    label for="add" { "Attribute" }
                    input #add name="add" list="attributes" autocomplete="off";
                    datalist #attributes {
                        @for name in names { option value=(name) {} }
                    }
                }
                button.fix type="submit" name="step" value="add" formnovalidate { "Add this attribute" }
            }
        }
    }
}

/// The state that the fields were made from. It stays that of the first form, unless the page has said that the entry is another one now.
fn form_state(visit: &Visit<'_>, entry: &ReceivedEntry, trouble: Option<&Trouble>) -> String {
    let was_told =
        matches!(trouble, Some(Trouble::Refused(result)) if result.code == ResultCode::ASSERTION_FAILED);
    match visit.form.map_or("", |form| form.get("csn")) {
        seen if !was_told && !seen.is_empty() => seen.to_owned(),
        _ => changes::state(entry),
    }
}

/// Whether the (lower-case) text names an attribute as a word of its own.
fn names_attribute(text: &str, attribute: &str) -> bool {
    let attribute = attribute.to_ascii_lowercase();
    text.split(|c: char| !c.is_alphanumeric() && c != '-' && c != ';').any(|word| word == attribute)
}

fn trouble_shown(trouble: Option<&Trouble>) -> Markup {
    match trouble {
        None => html! {},
        Some(Trouble::Text(text)) => layout::alert("Not yet", html! { p { (text) } }),
        Some(Trouble::Refused(result)) => refused("This cannot be saved", result),
    }
}

/// A refusal above the form that caused it.
pub(super) fn refused(title: &str, result: &LdapResult) -> Markup {
    layout::alert(title, html! { p { (explain(result)) } (layout::result(result)) })
}

fn review_page(
    visit: &Visit<'_>,
    schema: &Schema,
    entry: &ReceivedEntry,
    form: &Form,
    changes: &[AttributeChange],
) -> Reply {
    let content = html! {
        p { "This will be changed in " code { (entry.dn) } ":" }
        (difference(schema, entry, changes))
        details {
            summary { "As LDIF" }
            pre { (ldif(schema, &entry.dn, changes)) }
        }
        form method="post" action="/entry/edit" {
            (layout::csrf(visit))
            @for (name, value) in form.iter().filter(|(name, _)| !matches!(*name, "step" | "csrf" | "add")) {
                input type="hidden" name=(name) value=(value);
            }
            div.actions {
                button.primary type="submit" name="step" value="save" autofocus { "Save" }
                button type="submit" name="step" value="back" { "Back to the form" }
                a.button href=(back_to(form, &entry.dn)) { "Cancel" }
            }
        }
    };
    Reply::page(layout::page(visit, menu_item(form), "Review the change", content))
}

fn difference(schema: &Schema, entry: &ReceivedEntry, changes: &[AttributeChange]) -> Markup {
    let text = |name: &str, value: &[u8]| match std::str::from_utf8(value) {
        _ if is_secret_in(schema, name) => HIDDEN.to_owned(),
        Ok(text) => text.to_owned(),
        Err(_) => format!("({} bytes)", value.len()),
    };
    html! {
        pre.ldif {
            @for change in changes {
                @let old = entry.values(&change.name);
                @match change.operation {
                    ModifyOperation::Add | ModifyOperation::Increment => {
                        @for value in &change.values { span.plus { "+ " (change.name) ": " (text(&change.name, value)) } }
                    }
                    ModifyOperation::Delete if !change.values.is_empty() => {
                        @for value in &change.values { span.minus { "− " (change.name) ": " (text(&change.name, value)) } }
                    }
                    ModifyOperation::Delete => {
                        @for value in old { span.minus { "− " (change.name) ": " (text(&change.name, value)) } }
                    }
                    ModifyOperation::Replace => {
                        @for value in old.iter().filter(|value| !change.values.contains(value)) {
                            span.minus { "− " (change.name) ": " (text(&change.name, value)) }
                        }
                        @for value in &change.values {
                            @if old.contains(value) { span.same { "  " (change.name) ": " (text(&change.name, value)) } }
                            @else { span.plus { "+ " (change.name) ": " (text(&change.name, value)) } }
                        }
                    }
                }
            }
        }
    }
}

fn ldif(schema: &Schema, dn: &str, changes: &[AttributeChange]) -> String {
    let writer = Writer::new(Some(78));
    let mut out = Vec::new();
    writer.value(&mut out, "dn", dn.as_bytes());
    out.extend_from_slice(b"changetype: modify\n");
    for change in changes {
        let description = change.name.clone();
        let values = match is_secret_in(schema, &description) {
            true => change.values.iter().map(|_| HIDDEN.as_bytes().to_vec()).collect(),
            false => change.values.clone(),
        };
        writer.modification(&mut out, &Modification { operation: change.operation, description, values });
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The review of a change that another page's form asks for.
pub(super) fn edit_url(dn: &str, from: &str) -> String {
    url("/entry/edit", &[("dn", dn), ("from", from)])
}
