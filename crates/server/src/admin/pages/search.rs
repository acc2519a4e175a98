//! Searching: base, scope, a filter put together from fields or typed, and what was found.

use hyper::StatusCode;
use larix_proto::Scope;
use larix_proto::control::SortKey;
use larix_proto::filter::escaped;
use maud::{Markup, html};

use super::browse::from_hex;
use super::edit::refused;
use super::export::{self, ExportRequest, Format};
use super::layout::{self, MenuItem};
use super::login::suffixes;
use super::search_results::SearchResults;
use crate::admin::assets;
use crate::admin::client::ReceivedEntry;
use crate::admin::form::{Form, url};
use crate::admin::reply::{PageResult, Problem, Reply};
use crate::admin::respond::Visit;

/// Entries shown at once.
pub(super) const PAGE: u32 = 100;
/// How a row of the filter builder compares, in words.
const OPERATORS: [(&str, &str); 7] = [
    ("is", "is"),
    ("starts", "starts with"),
    ("contains", "contains"),
    ("present", "has any value"),
    ("absent", "has no value"),
    ("least", "is at least"),
    ("most", "is at most"),
];

/// `/search?base=&scope=&filter=&attributes=&sort=&order=&page=&first=&trail=`; `attr`, `op` and `val` make or narrow the filter, and
/// [`SearchResults`] has the last three.
pub(super) async fn page(visit: &Visit<'_>) -> PageResult {
    let query = visit.query;
    let all = suffixes(visit.admin);
    let base = if query.has("base") { query.trimmed("base") } else { all.first().map_or("", String::as_str) };
    let scope = scope(query);
    let filter =
        with_condition(query.trimmed("filter"), query.trimmed("attr"), query.get("op"), query.get("val"));
    let selection = attributes(query);
    let columns = if selection.is_empty() { vec!["cn", "objectClass"] } else { selection };
    let is_submitted = query.has("filter") || query.has("attr");
    let mut trouble = None;
    let found = match is_submitted {
        false => None,
        true => {
            let cookie = from_hex(query.get("page")).unwrap_or_default();
            let mut client = visit.session.client.lock().await;
            let place = (PAGE, cookie.as_slice());
            let found = client.sorted_page(base, scope, &filter, &columns, place, sort_key(query)).await;
            if client.is_gone() {
                return Err(Problem::LoggedOut);
            }
            found.map_err(|result| trouble = Some(refused("The search did not succeed", &result))).ok()
        }
    };
    let schema = visit.admin.server.config().schema.clone();
    let plan = if found.is_some() {
        plan(visit, base, &filter).await?
    } else {
        html! {}
    };
    let status = if trouble.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    // What did not succeed stays as it was filled in, to be mended.
    let filled = SearchFields {
        base,
        scope,
        filter: if trouble.is_some() { query.get("filter") } else { &filter },
        condition: trouble.is_some().then_some(query),
    };
    let search_results = SearchResults::new(query, base, &filter);
    let content = html! {
        @if let Some(trouble) = &trouble { (trouble) }
        (form(visit, &schema, &filled))
        (saved_searches(&visit.session.dn))
        @if let Some(found) = &found {
            section aria-labelledby="found" {
                h2 #found { (search_results.heading(found)) }
                (plan)
                (search_results.results(visit, &found.entries, &columns_of(&columns, &found.entries)))
                @if !found.entries.is_empty() { (files(base, &filter, query)) }
                (search_results.pages(found))
            }
        }
    };
    Ok(Reply::Page(status, layout::page(visit, MenuItem::Search, "Search", content)))
}

/// `/search/file?base=&scope=&filter=&attributes=&format=`: all that a search finds, as a file.
pub(super) async fn file(visit: &Visit<'_>) -> PageResult {
    let query = visit.query;
    let request = ExportRequest {
        base: query.get("base"),
        scope: scope(query),
        filter: query.get("filter"),
        attributes: &attributes(query),
    };
    export::file(visit, request, Format::parse(query.get("format"))?).await
}

/// The order that `sort` and `order` ask for.
fn sort_key(query: &Form) -> Option<SortKey<'_>> {
    let attribute = query.trimmed("sort");
    let reverse = query.get("order") == "down";
    (!attribute.is_empty()).then_some(SortKey { attribute, ordering_rule: None, reverse })
}

fn scope(query: &Form) -> Scope {
    match query.get("scope") {
        "base" => Scope::Base,
        "one" => Scope::OneLevel,
        _ => Scope::Subtree,
    }
}

fn attributes(query: &Form) -> Vec<&str> {
    query.get("attributes").split([',', ' ']).filter(|name| !name.is_empty()).collect()
}

/// The columns of the table: `*` and `+` stand for the attributes that were found.
fn columns_of<'a>(wanted: &[&'a str], entries: &'a [ReceivedEntry]) -> Vec<&'a str> {
    let is_wildcard = |name: &&str| matches!(*name, "*" | "+");
    if !wanted.iter().any(is_wildcard) {
        return wanted.to_vec();
    }
    let named = wanted.iter().copied().filter(|name| !is_wildcard(name));
    let found = entries.iter().flat_map(|entry| entry.attributes.iter().map(|one| one.name.as_str()));
    let mut columns: Vec<&str> = Vec::new();
    for name in named.chain(found) {
        if !columns.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            columns.push(name);
        }
    }
    columns
}

/// The ways to all that was found as a file.
fn files(base: &str, filter: &str, query: &Form) -> Markup {
    let file = |format| {
        let fields = [
            ("base", base),
            ("scope", query.get("scope")),
            ("filter", filter),
            ("attributes", query.get("attributes")),
            ("format", format),
        ];
        url("/search/file", &fields)
    };
    html! {
        p { "All of it: " a href=(file("ldif")) download { "LDIF" } " · " a href=(file("csv")) download { "CSV, for spreadsheets" } }
    }
}

/// What the form's fields hold.
struct SearchFields<'a> {
    base: &'a str,
    scope: Scope,
    filter: &'a str,
    /// Fields of the condition that is not part of the filter.
    condition: Option<&'a Form>,
}

fn form(visit: &Visit<'_>, schema: &larix_schema::Schema, filled: &SearchFields<'_>) -> Markup {
    let SearchFields { base, scope, filter, condition } = *filled;
    let condition = |name: &str| condition.map_or("", |form| form.get(name));
    html! {
        form method="get" action="/search" data-search {
            div.row {
                div {
                    label for="base" { "Below" }
                    input #base name="base" value=(base) list="bases" autocomplete="off";
                    datalist #bases {
                        @for suffix in suffixes(visit.admin) { option value=(suffix) {} }
                        option value="cn=config" {}
                        option value="cn=Monitor" {}
                    }
                }
                div {
                    label for="scope" { "Scope" }
                    select #scope name="scope" {
                        @for (value, words, own) in [
                            ("sub", "The whole subtree", Scope::Subtree), ("one", "One level below", Scope::OneLevel),
                            ("base", "This entry alone", Scope::Base),
                        ] { option value=(value) selected[scope == own] { (words) } }
                    }
                }
            }
            fieldset data-builder {
                legend { "Condition" }
                div.row {
                    div {
                        label for="attr" { "Attribute" }
                        input #attr name="attr" value=(condition("attr")) list="attributes" autocomplete="off";
                        datalist #attributes {
                            @for kind in schema.attribute_types().filter(|kind| !kind.hidden) {
                                option value=(kind.name()) {}
                            }
                        }
                    }
                    div { label for="op" { "Comparison" } select #op name="op" {
                        @for (value, words) in OPERATORS {
                            option value=(value) selected[value == condition("op")] { (words) }
                        } } }
                    div { label for="val" { "Value" } input #val name="val" value=(condition("val")) autocomplete="off"; }
                    button.fix type="button" data-add-term { "Add to the filter" }
                }
            }
            label for="filter" { "Filter" }
            input #filter name="filter" value=(filter) spellcheck="false" autocomplete="off" aria-describedby="filter-help";
            p.help #filter-help { "As in RFC 4515: " code { "(&(objectClass=person)(mail=*@example.com))" } "." }
            label for="attributes-shown" { "Attributes to show" }
            input #attributes-shown name="attributes" value=(visit.query.get("attributes")) autocomplete="off" placeholder="cn, objectClass";
            div.row {
                div {
                    label for="sort" { "Sort by" }
                    input #sort name="sort" value=(visit.query.get("sort")) list="attributes" autocomplete="off" placeholder="the order of the database";
                }
                div {
                    label for="order" { "Order" }
                    select #order name="order" {
                        @for (value, words) in [("up", "Smallest first"), ("down", "Largest first")] {
                            option value=(value) selected[visit.query.get("order") == value] { (words) }
                        }
                    }
                }
            }
            div.actions { button.primary type="submit" { "Search" } }
        }
    }
}

/// Searches that the browser keeps, by a script alone.
fn saved_searches(dn: &str) -> Markup {
    html! {
        section.kept data-searches=(dn) aria-labelledby="kept" hidden {
            h2 #kept { "Saved searches" }
            ul {}
            form.row {
                div { label for="keep" { "Save what the form asks for as" } input #keep maxlength="60" autocomplete="off"; }
                button.fix type="submit" { "Save" }
            }
            p.help role="status" {}
        }
        script type="module" src=(assets::url("searches.js")) {}
    }
}

/// What the server does to answer; for those who may read cn=Monitor's figures it is no secret.
async fn plan(visit: &Visit<'_>, base: &str, filter: &str) -> Result<Markup, Problem> {
    if !super::overview::may_see_figures(visit).await? {
        return Ok(html! {});
    }
    let plan = larix_proto::FilterBuf::parse(filter)
        .ok()
        .and_then(|filter| visit.admin.server.databases().explain(base, filter.as_filter()))
        .map(|plan| plan.to_string());
    Ok(html! {
        @if let Some(plan) = plan {
            details {
                summary { "How the server finds these" }
                pre #plan { (plan) }
                @if plan.starts_with("scan") {
                    p.help { "No index serves this filter: every entry is looked at. An index for its attributes may help ("
                        a href="/config" { "Configuration" } ")." }
                }
            }
        }
    })
}

/// The filter with one more condition from the builder's fields.
pub(in crate::admin) fn with_condition(filter: &str, attribute: &str, operator: &str, value: &str) -> String {
    let value = escaped(value);
    let condition = match operator {
        _ if attribute.is_empty() => String::new(),
        "present" => format!("({attribute}=*)"),
        "absent" => format!("(!({attribute}=*))"),
        _ if value.is_empty() => String::new(),
        "starts" => format!("({attribute}={value}*)"),
        "contains" => format!("({attribute}=*{value}*)"),
        "least" => format!("({attribute}>={value})"),
        "most" => format!("({attribute}<={value})"),
        _ => format!("({attribute}={value})"),
    };
    // A filter of one item may lack its parentheses, as for ldapsearch.
    let bracketed;
    let filter = if filter.is_empty() || filter.starts_with('(') || condition.is_empty() {
        filter
    } else {
        bracketed = format!("({filter})");
        bracketed.as_str()
    };
    match (filter, condition.as_str()) {
        ("", "") => "(objectClass=*)".to_owned(),
        ("" | "(objectClass=*)", condition) if !condition.is_empty() => condition.to_owned(),
        (filter, "") => filter.to_owned(),
        (filter, condition) => format!("(&{filter}{condition})"),
    }
}

#[cfg(test)]
mod tests {
    use super::with_condition;

    #[test]
    fn conditions_narrow_the_filter() {
        for (filter, attribute, operator, value, expected) in [
            ("", "", "", "", "(objectClass=*)"),
            ("(objectClass=*)", "cn", "is", "a*b", "(cn=a\\2ab)"),
            ("(sn=x)", "cn", "starts", "a", "(&(sn=x)(cn=a*))"),
            ("(sn=x)", "cn", "absent", "", "(&(sn=x)(!(cn=*)))"),
            ("(sn=x)", "cn", "is", "", "(sn=x)"),
            ("", "uidNumber", "least", "5", "(uidNumber>=5)"),
            ("sn=x", "cn", "is", "a", "(&(sn=x)(cn=a))"),
            ("sn=x", "", "", "", "sn=x"),
        ] {
            assert_eq!(with_condition(filter, attribute, operator, value), expected);
        }
    }
}
