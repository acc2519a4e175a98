//! The results of a search: their table, their order, and the ways to the pages before and behind.

use larix_schema::Schema;
use maud::{Markup, html};

use super::browse::hex;
use super::layout;
use super::overview::thousands;
use super::search::PAGE;
use super::values::entry_url;
use crate::admin::client::{EntryPage, ReceivedEntry};
use crate::admin::form::{Form, url};
use crate::admin::respond::Visit;
use crate::secrets::is_secret_in;

/// Values of an attribute in a row.
const VALUES_SHOWN: usize = 3;
/// Characters of the cookies of earlier pages in an address: browsers and proxies cut long ones.
const TRAIL_MAX: usize = 2_000;
/// The first page's cookie in a trail.
const START: &str = "-";

/// What the page of a search shows of its results, with the addresses of its other pages and orders.
pub(super) struct SearchResults<'a> {
    query: &'a Form,
    base: &'a str,
    filter: &'a str,
}

impl<'a> SearchResults<'a> {
    pub(super) fn new(query: &'a Form, base: &'a str, filter: &'a str) -> Self {
        Self { query, base, filter }
    }

    /// The number of the first entry of this page, from one on.
    fn first(&self) -> u64 {
        self.query.get("first").parse().unwrap_or(1).max(1)
    }

    fn to(&self, (sort, order): (&str, &str), more: &[(&str, &str)]) -> String {
        let mut fields = vec![
            ("base", self.base),
            ("scope", self.query.get("scope")),
            ("filter", self.filter),
            ("attributes", self.query.get("attributes")),
        ];
        fields.extend([("sort", sort), ("order", order)].into_iter().filter(|_| !sort.is_empty()));
        fields.extend_from_slice(more);
        url("/search", &fields)
    }

    fn page(&self, cookie: &str, first: u64, trail: &str) -> String {
        let sort = (self.query.trimmed("sort"), self.query.get("order"));
        let first = first.to_string();
        self.to(sort, &[("page", cookie), ("first", &first), ("trail", trail)])
    }

    /// How many there are, as far as that is known.
    pub(super) fn heading(&self, found: &EntryPage) -> String {
        let count = found.entries.len() as u64;
        let first = self.first();
        let last = first.saturating_add(count.saturating_sub(1));
        let number = |number: u64| thousands(&number.to_string());
        if found.cookie.is_empty() && first == 1 {
            return if count == 1 { "1 entry".to_owned() } else { format!("{} entries", number(count)) };
        }
        let shown = format!("Entries {} to {}", number(first), number(last));
        let estimate = u64::from(found.estimate);
        match found.cookie.is_empty() {
            true => format!("{shown} of {}", number(last)),
            false if estimate > last => format!("{shown} of about {}", number(estimate)),
            false => format!("{shown}, and more"),
        }
    }

    /// The ways to other pages. A page before is asked for by the cookie that led to it.
    pub(super) fn pages(&self, found: &EntryPage) -> Markup {
        let (first, trail) = (self.first(), self.query.get("trail"));
        let before = trail.rsplit_once('.').unwrap_or(("", trail));
        let here = if self.query.get("page").is_empty() { START } else { self.query.get("page") };
        html! {
            @if first > 1 || !found.cookie.is_empty() {
                nav.actions aria-label="Pages" {
                    @if first > 1 {
                        a.button href=(self.page("", 1, "")) { "First page" }
                        @if !before.1.is_empty() {
                            @let cookie = if before.1 == START { "" } else { before.1 };
                            a.button rel="prev" href=(self.page(cookie, first.saturating_sub(u64::from(PAGE)).max(1), before.0)) { "Page before" }
                        }
                    }
                    @if !found.cookie.is_empty() {
                        a.button rel="next" href=(self.page(&hex(&found.cookie), first.saturating_add(found.entries.len() as u64), &longer(trail, here))) { "Next page" }
                    }
                }
            }
        }
    }

    /// The table, in a form that takes what is ticked to a look before it is deleted.
    pub(super) fn results(&self, visit: &Visit<'_>, entries: &[ReceivedEntry], columns: &[&str]) -> Markup {
        let schema = visit.admin.server.config().schema.clone();
        html! {
            @if !entries.is_empty() {
                form method="post" action="/entries/delete" {
                    (layout::csrf(visit))
                    div.scroll { table.wide.stack {
                        thead { tr {
                            th scope="col" aria-label="Choose" {}
                            th scope="col" { "Entry" }
                            @for name in columns { (self.column(&schema, name)) }
                        } }
                        tbody { @for entry in entries { tr {
                            td { @if !entry.dn.is_empty() { input type="checkbox" name="dn" value=(entry.dn) aria-label={ "Choose " (entry.dn) }; } }
                            td { a href=(entry_url(&entry.dn)) { (if entry.dn.is_empty() { "(root)" } else { &entry.dn }) } }
                            @for name in columns { td { (cell(&schema, entry, name)) } }
                        } } }
                    } }
                    div.actions { button.danger type="submit" { "Delete what is ticked…" } }
                }
            }
        }
    }

    /// The head of a column, by which the server sorts if the attribute has a rule for that.
    fn column(&self, schema: &Schema, name: &str) -> Markup {
        let kind = schema.attribute_type(name);
        let can_sort = kind.is_some_and(|kind| kind.ordering.or(kind.equality).is_some());
        let is_sorted = self.query.trimmed("sort").eq_ignore_ascii_case(name);
        let (aria, mark, next) = match (is_sorted, self.query.get("order")) {
            (false, _) => (None, "", "up"),
            (true, "down") => (Some("descending"), " ▼", "up"),
            (true, _) => (Some("ascending"), " ▲", "down"),
        };
        html! {
            th scope="col" aria-sort=[aria] {
                @if can_sort { a href=(self.to((name, next), &[])) { (name) span aria-hidden="true" { (mark) } } } @else { (name) }
            }
        }
    }
}

/// The trail with one more page. The oldest are left out where it would be too long; the first page can always be reached.
fn longer(trail: &str, page: &str) -> String {
    let mut longer = if trail.is_empty() { page.to_owned() } else { format!("{trail}.{page}") };
    while longer.len() > TRAIL_MAX {
        let Some((_, rest)) = longer.split_once('.') else { return String::new() };
        longer = rest.to_owned();
    }
    longer
}

fn cell(schema: &Schema, entry: &ReceivedEntry, name: &str) -> String {
    let values = entry.values(name);
    let is_secret = is_secret_in(schema, name);
    let mut text: Vec<String> = values
        .iter()
        .take(VALUES_SHOWN)
        .map(|value| match std::str::from_utf8(value) {
            _ if is_secret => "••••".to_owned(),
            Ok(text) => text.chars().take(200).collect(),
            Err(_) => format!("({} bytes)", value.len()),
        })
        .collect();
    if values.len() > VALUES_SHOWN {
        text.push(format!("and {} more", values.len() - VALUES_SHOWN));
    }
    text.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trail_has_a_bound() {
        assert_eq!(longer("", START), "-");
        assert_eq!(longer("-", "ab"), "-.ab");
        let long = "c".repeat(TRAIL_MAX / 2);
        let trail = longer(&longer("-", &long), &long);
        assert_eq!(trail, long, "only the last of two fits");
        assert_eq!(longer("-", &"c".repeat(TRAIL_MAX + 1)), "");
    }

    #[test]
    fn a_heading_says_how_many_there_are() {
        let heading = |query: &str, count: usize, cookie: &[u8], estimate: u32| {
            let entry = ReceivedEntry { dn: String::new(), attributes: Vec::new() };
            let entries = std::iter::repeat_with(|| entry.clone()).take(count).collect();
            let page = EntryPage { entries, cookie: cookie.to_vec(), estimate, limited: false };
            SearchResults::new(&Form::parse(query.as_bytes()), "", "").heading(&page)
        };
        assert_eq!(heading("", 1, b"", 0), "1 entry");
        assert_eq!(heading("", 100, b"x", 0), "Entries 1 to 100, and more");
        assert_eq!(heading("first=101", 100, b"x", 250), "Entries 101 to 200 of about 250");
        assert_eq!(heading("first=201", 7, b"", 0), "Entries 201 to 207 of 207");
    }
}
