//! A list of one kind of entries: a question above it, one page of what answers it, and the way to the next.

use larix_proto::Scope;
use larix_proto::filter::escaped;
use maud::{Markup, html};

use super::browse::{from_hex, hex};
use super::layout::{self, MenuItem};
use super::login::suffixes;
use crate::admin::client::ReceivedEntry;
use crate::admin::form::url;
use crate::admin::reply::{Attempt as _, PageResult, Reply};
use crate::admin::respond::Visit;

/// Entries on one page.
const PAGE: u32 = 50;

/// What is listed, and in which words.
pub(super) struct Listing {
    pub(super) place: MenuItem,
    /// `/people`, for one; takes `q`, `base` and `page`.
    pub(super) path: &'static str,
    pub(super) title: &'static str,
    /// What the question is asked for: `Name, login or mail`.
    pub(super) question: &'static str,
    /// The text when nothing is found: `No group matches`.
    pub(super) no_match: &'static str,
    /// All of the kind, as a filter.
    pub(super) kind: &'static str,
    /// Where the text of a question may stand.
    pub(super) searched_attributes: &'static [&'static str],
    /// What the rows show.
    pub(super) attributes: &'static [&'static str],
    /// What to do when there is none at all.
    pub(super) empty: Markup,
    /// What else can be done, beside the question.
    pub(super) beside: Markup,
    pub(super) header: Markup,
}

impl Listing {
    /// The page that `visit` asks for; `row` shows an entry.
    pub(super) async fn page(self, visit: &Visit<'_>, row: fn(&ReceivedEntry) -> Markup) -> PageResult {
        let all = suffixes(visit.admin);
        let base = match visit.query.get("base") {
            "" => all.first().map_or("", String::as_str),
            base => base,
        };
        let question = visit.query.trimmed("q");
        let cookie = from_hex(visit.query.get("page")).unwrap_or_default();
        let mut client = visit.session.client.lock().await;
        let found = match super::is_there(&mut client, base).await? {
            false => None,
            true => Some(
                client
                    .page(base, Scope::Subtree, &self.filter(question), self.attributes, (PAGE, &cookie))
                    .await
                    .attempt(format!("Looking for {}", self.title.to_lowercase()))?,
            ),
        };
        drop(client);
        let none = found.as_ref().is_none_or(|page| page.entries.is_empty());
        let content = html! {
            @if none && question.is_empty() && cookie.is_empty() {
                // There may be some in another naming context.
                @if all.len() > 1 { (super::search_row(self.path, self.question, question, &all, base, html! {})) }
                div.empty { (self.empty) }
            } @else {
                (super::search_row(self.path, self.question, question, &all, base, self.beside))
                @if let Some(page) = &found {
                    @if page.entries.is_empty() { p { (self.no_match) " “" (question) "”." } }
                    @else {
                        table.wide.stack {
                            thead { tr { (self.header) } }
                            tbody { @for entry in &page.entries { tr { (row(entry)) } } }
                        }
                        @if !page.cookie.is_empty() {
                            p { a.button href=(url(self.path, &[("q", question), ("base", base), ("page", &hex(&page.cookie))])) { "More" } }
                        }
                    }
                }
            }
        };
        Ok(Reply::page(layout::page(visit, self.place, self.title, content)))
    }

    fn filter(&self, question: &str) -> String {
        if question.is_empty() {
            return self.kind.to_owned();
        }
        let text = escaped(question);
        let parts: String =
            self.searched_attributes.iter().map(|name| format!("({name}=*{text}*)")).collect();
        format!("(&{}(|{parts}))", self.kind)
    }
}
