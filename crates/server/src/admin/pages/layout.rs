//! What all pages have around them.

use larix_proto::LdapResult;
use maud::{DOCTYPE, Markup, html};

use crate::admin::assets;
use crate::admin::respond::Visit;
use crate::admin::sessions::{Notice, NoticeKind};

/// Which entry of the menu a page belongs to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(in crate::admin) enum MenuItem {
    None,
    Account,
    Overview,
    People,
    Groups,
    Browse,
    Search,
    Import,
    Schema,
    Changes,
    Configuration,
    Access,
    Backups,
    Replication,
    Log,
    About,
}

/// For whom an entry of the menu is. A page that is in nobody's menu can be asked for all the same, and says what it lacks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum For {
    Everybody,
    /// Those who may see the server's figures, or run it.
    Watchers,
    Managers,
}

const MENU: [(MenuItem, &str, &str, For); 15] = [
    (MenuItem::Overview, "/", "Overview", For::Watchers),
    (MenuItem::Account, "/account", "My account", For::Everybody),
    (MenuItem::People, "/people", "People", For::Everybody),
    (MenuItem::Groups, "/groups", "Groups", For::Everybody),
    (MenuItem::Browse, "/browse", "Browse", For::Everybody),
    (MenuItem::Search, "/search", "Search", For::Everybody),
    (MenuItem::Import, "/import", "Import", For::Managers),
    (MenuItem::Changes, "/changes", "Changes", For::Managers),
    (MenuItem::Schema, "/schema", "Schema", For::Everybody),
    (MenuItem::Configuration, "/config", "Configuration", For::Managers),
    (MenuItem::Access, "/access", "Access", For::Managers),
    (MenuItem::Backups, "/backup", "Backups", For::Managers),
    (MenuItem::Replication, "/replication", "Replication", For::Watchers),
    (MenuItem::Log, "/log", "Log", For::Managers),
    (MenuItem::About, "/about", "About", For::Everybody),
];

/// Whether the menu of this session has an entry.
fn is_for(visit: &Visit<'_>, whom: For) -> bool {
    match whom {
        For::Everybody => true,
        For::Watchers => visit.session.manages || visit.session.watches,
        For::Managers => visit.session.manages,
    }
}

/// A page of a logged-in user.
pub(in crate::admin) fn page(visit: &Visit<'_>, place: MenuItem, title: &str, content: Markup) -> Markup {
    let notices = visit.session.take_notices();
    document(
        title,
        html! {
            a.skip href="#main" { "Skip to the content" }
            header.top {
                a.brand href=(if is_for(visit, For::Watchers) { "/" } else { "/account" }) { img src=(assets::url("larch.svg")) alt="" width="24" height="24"; "Larix" }
                div.who {
                    a.dn href="/account" title="You are logged in so: your account" { (visit.session.dn) }
                    form method="post" action="/logout" {
                        (csrf(visit))
                        button.quiet type="submit" { "Log out" }
                    }
                }
            }
            nav.menu aria-label="Main" {
                ul {
                    @for (item, address, name, _) in MENU.into_iter().filter(|(.., whom)| is_for(visit, *whom)) {
                        li { a href=(address) aria-current=[(item == place).then_some("page")] { (name) } }
                    }
                }
            }
            main #main tabindex="-1" {
                h1 { (title) }
                @for notice in &notices { (show(notice)) }
                (content)
            }
        },
    )
}

/// A page without a menu.
pub(in crate::admin) fn document(title: &str, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Larix" }
                link rel="icon" href=(assets::url("larch.svg")) type="image/svg+xml";
                link rel="stylesheet" href=(assets::url("style.css"));
                script type="module" src=(assets::url("app.js")) {}
            }
            body { (body) }
        }
    }
}

/// A page for those who are not logged in.
pub(in crate::admin) fn before_login(
    title: &str,
    heading: &str,
    error: Option<&str>,
    content: &Markup,
) -> Markup {
    document(
        title,
        html! {
            main.login #main {
                img src=(assets::url("larch.svg")) alt="" width="48" height="48";
                h1 { (heading) }
                @if let Some(error) = error { div.problem role="alert" { p { (error) } } }
                (content)
            }
        },
    )
}

/// The field that every form has.
pub(in crate::admin) fn csrf(visit: &Visit<'_>) -> Markup {
    html! { input type="hidden" name="csrf" value=(visit.session.csrf); }
}

/// A result as the directory gave it.
pub(in crate::admin) fn result(result: &LdapResult) -> Markup {
    html! {
        p.result {
            "The server's answer: " code { (result.code.text()) " (" (result.code.0) ")" }
            @if !result.diagnostic.is_empty() { " " q { (result.diagnostic) } }
            @for url in &result.referrals { " It refers to " code { (url) } "." }
            @if !result.matched_dn.is_empty() { " The nearest entry that exists is " code { (result.matched_dn) } "." }
        }
    }
}

/// What went wrong, above a form that stays as it was filled in.
pub(in crate::admin) fn alert(title: &str, body: Markup) -> Markup {
    html! { div.problem role="alert" tabindex="-1" data-focus { h2 { (title) } (body) } }
}

fn show(notice: &Notice) -> Markup {
    let class = match notice.kind {
        NoticeKind::Done => "notice done",
        NoticeKind::Warning => "notice warning",
    };
    html! {
        div class=(class) role="status" {
            p { (notice.text) }
            @if let Some(secret) = &notice.secret {
                p.secret {
                    code #secret { (secret.as_str()) }
                    button.quiet type="button" data-copy="secret" { "Copy" }
                }
            }
        }
    }
}
