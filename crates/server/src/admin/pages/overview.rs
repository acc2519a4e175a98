//! The first page: what the server does now.

use larix_configuration::{Config, Database};
use larix_engine::time::Timestamp;
use maud::{Markup, html};

use super::layout::{self, MenuItem};
use super::values;
use crate::admin::assets;
use crate::admin::client::{LdapClient, ReceivedEntry};
use crate::admin::figures::{RANGES, Range};
use crate::admin::reply::{Attempt as _, PageResult, Problem, Reply};
use crate::admin::respond::Visit;
use crate::backup::BackupStatus;
use crate::backup::RestoreNote;
use crate::http::health;
use crate::server::Server;
use larix_backend::DatabaseFigures;

/// An identity that may read this attribute of this entry may see the figures.
const WITNESS: &str = "cn=Operations,cn=Monitor";
const FIGURE: &str = "monitorOpInitiated";

pub(super) async fn page(visit: &Visit<'_>) -> PageResult {
    let may_see = may_see_figures(visit).await?;
    let databases = databases(visit).await?;
    let range = Range::find(visit.query.get("range")).unwrap_or(&RANGES[0]);
    let figures = if may_see { visit.admin.server.databases().stored_figures() } else { Vec::new() };
    let content = html! {
        @if may_see { (troubles(&visit.admin.server)) (charts(range)) } @else {
            p.help { "Figures are shown to those who may read " code { "cn=Monitor" } "." }
        }
        section aria-labelledby="databases" {
            h2 #databases { "Databases" }
            @if databases.is_empty() {
                p.help { "None that you may see in cn=Monitor." }
            } @else {
                div.scroll { table {
                    thead { tr { th { "Suffix" } th { "Kind" } th.number { "Entries" } th.number { "File in use" } th { "Change log" } th.number { "Oldest read" } } }
                    tbody { @for database in &databases { (row(database, &figures)) } }
                } }
            }
        }
        @if may_see {
            (nodes(visit))
            (backups(&visit.admin.server.backups.status(), visit.admin.server.now()))
            (restored(&visit.admin.server.config()))
        }
    };
    Ok(Reply::page(layout::page(visit, MenuItem::Overview, "Overview", content)))
}

/// What `/health/ready` says beside `ready`.
fn troubles(server: &Server) -> Markup {
    html! {
        @for line in health::unready(server).lines() {
            div.problem role="alert" { p { "Not ready for clients: " (line) } }
        }
        @for line in health::full(server).lines() { div.problem role="alert" { p { (line) } } }
    }
}

/// Databases in engines that several servers share.
#[cfg(feature = "kv")]
fn nodes(visit: &Visit<'_>) -> Markup {
    let all = visit.admin.server.nodes.figures();
    let count = |number: u64| thousands(&number.to_string());
    html! {
        @if !all.is_empty() {
            section aria-labelledby="nodes" {
                h2 #nodes { "Shared engines" }
                div.scroll { table {
                    thead { tr { th { "Suffix" } th { "Role of this server" } th { "Leader" } th.number { "Epoch" } th.number { "Newest commit" } th.number { "Round trips" } th.number { "Reads from the cache" } th.number { "Conflicts" } } }
                    tbody { @for node in &all { tr {
                        th scope="row" { (node.suffix) }
                        td { (node.role.name()) @if node.read_only { ", read-only" } }
                        td { (node.leader.as_deref().unwrap_or("none")) }
                        td.number { (count(node.store.epoch)) }
                        td.number { (count(node.store.version)) }
                        td.number { (count(node.store.trips)) }
                        td.number { (count(node.store.hits)) " of " (count(node.store.hits + node.store.misses)) }
                        td.number { (count(node.store.conflicts)) }
                    } } }
                } }
            }
        }
    }
}

#[cfg(not(feature = "kv"))]
fn nodes(_: &Visit<'_>) -> Markup {
    html! {}
}

/// How the backups stand that the configuration asks for.
fn backups(status: &BackupStatus, now: Timestamp) -> Markup {
    let time = |time: Option<Timestamp>| {
        time.and_then(|time| values::readable_time(&time.generalized())).unwrap_or_else(|| "never".to_owned())
    };
    html! {
        section aria-labelledby="backups" {
            h2 #backups { "Backups" }
            @if status.scheduled {
                @if let Some((when, why)) = &status.last_error {
                    div.problem role="alert" { p { "The last backup failed (" (time(Some(*when))) "): " (why) } }
                }
                dl.facts {
                    dt { "Last one" } dd { (time(status.last_success)) @if let Some(age) = status.age(now) { ", " (ago(age)) " ago" } @if status.last_success.is_some() { ", " (bytes(status.bytes)) } }
                    dt { "Holds every change up to" } dd { (time(status.covers)) }
                    dt { "Next one" } dd {
                        @if status.running { "running: " (bytes(status.progress.0)) @if status.progress.1 > 0 { " of " (bytes(status.progress.1)) } }
                        @else { (time(status.next)) }
                    }
                }
                p.help { a href="/backup" { "Backups" } " makes one now, and says how to go back to any moment that is covered." }
            } @else {
                p.help { "None is scheduled: " a href="/backup" { "Backups" } " shows how." }
            }
        }
    }
}

/// The last restore of each database that was put back from a backup.
fn restored(config: &Config) -> Markup {
    let time = |time: Timestamp| values::readable_time(&time.generalized()).unwrap_or_default();
    let directory = |database: &Database| RestoreNote::read(&database.kind.mdb()?.directory);
    let suffix = |database: &Database| database.suffixes.first().map(|suffix| suffix.text.clone());
    let all = config.databases.iter();
    let all: Vec<_> = all.filter_map(|database| Some((suffix(database)?, directory(database)?))).collect();
    html! {
        @if !all.is_empty() {
            section aria-labelledby="restored" {
                h2 #restored { "Restored" }
                div.scroll { table {
                    thead { tr { th { "Suffix" } th { "When" } th { "With every change up to" } th.number { "Entries" } th.number { "Changes carried out" } th { "Backup" } } }
                    tbody { @for (suffix, note) in &all { tr {
                        th scope="row" { (suffix) }
                        td { (time(note.at)) }
                        td { (note.last.map(time).unwrap_or_default()) }
                        td.number { (thousands(&note.entries.to_string())) }
                        td.number { (thousands(&note.changes.to_string())) }
                        td { code { (note.backup) } }
                    } } }
                } }
            }
        }
    }
}

/// `/api/figures?range=1h&since=N`.
pub(super) async fn figures(visit: &Visit<'_>) -> PageResult {
    if !may_see_figures(visit).await? {
        return Err(Problem::NotFound);
    }
    let name = visit.query.get("range");
    let range = Range::find(name).ok_or_else(|| {
        let names: Vec<_> = RANGES.iter().map(|range| range.name).collect();
        Problem::Bad(format!("no range is called {name:?}: one of {}", names.join(", ")))
    })?;
    let since = visit.query.get("since").parse().unwrap_or(0);
    let now = visit.admin.server.now().0 / 1_000;
    Ok(Reply::json(visit.admin.figures.borrow().to_json(range, since, now)))
}

/// Whether this identity may see the server's figures.
pub(super) async fn may_see_figures(visit: &Visit<'_>) -> Result<bool, Problem> {
    visit.shows(WITNESS, FIGURE).await
}

/// The same for an identity that logs in.
pub(super) async fn shows_figures(client: &mut LdapClient) -> bool {
    client.shows(WITNESS, FIGURE).await
}

async fn databases(visit: &Visit<'_>) -> Result<Vec<ReceivedEntry>, Problem> {
    let mut client = visit.session.client.lock().await;
    let page = client
        .page(
            "cn=Databases,cn=Monitor",
            larix_proto::Scope::OneLevel,
            "(namingContexts=*)",
            &["namingContexts", "monitoredInfo", "olmMDBEntries", "olmMDBPagesUsed", "readOnly"],
            (100, b""),
        )
        .await;
    match page {
        Ok(page) => Ok(page.entries),
        Err(_) if !client.is_gone() => Ok(Vec::new()),
        Err(result) => Err(result).attempt("Reading the databases"),
    }
}

fn row(database: &ReceivedEntry, figures: &[DatabaseFigures]) -> Markup {
    let suffix = database.text("namingContexts").unwrap_or("");
    let figures = figures.iter().find(|figures| figures.suffix == suffix);
    let none = || "–".to_owned();
    let log = figures.and_then(|figures| figures.log_times).and_then(|(first, last)| {
        let readable = |time: Timestamp| values::readable_time(&time.generalized());
        Some(format!("{} to {}", readable(first)?, readable(last)?))
    });
    let oldest = figures.and_then(|figures| figures.store.oldest_read);
    let pages: Option<u64> = database.text("olmMDBPagesUsed").and_then(|text| text.parse().ok());
    html! {
        @if database.text("monitoredInfo") != Some("frontend") {
            tr {
                td { a href=(crate::admin::form::url("/browse", &[("dn", suffix)])) { (suffix) } }
                td {
                    (database.text("monitoredInfo").unwrap_or(""))
                    @if database.text("readOnly") == Some("TRUE") { " " span.tag { "read-only" } }
                }
                td.number { (database.text("olmMDBEntries").map_or_else(none, thousands)) }
                td.number { (pages.map_or_else(none, |pages| bytes(pages * 4096))) }
                td { (log.unwrap_or_else(none)) }
                td.number { (oldest.map_or_else(none, |age| format!("{:.1} s", age.as_secs_f64()))) }
            }
        }
    }
}

fn charts(range: &Range) -> Markup {
    let chart = |id: &str, title: &str, unit: &str| {
        html! {
            figure.chart #(id) data-unit=(unit) {
                figcaption { span.title { (title) } " " span.now {} }
                svg role="img" aria-label=(title) {}
                ul.legend {}
            }
        }
    };
    html! {
        nav.ranges aria-label="Range of the charts" {
            ul { @for one in &RANGES {
                li { a href={ "/?range=" (one.name) } aria-current=[(one == range).then_some("true")] { (one.title) } }
            } }
        }
        section.charts aria-label={ "The last " (range.title) } data-charts="/api/figures" data-range=(range.name) data-title=(range.title) {
            (chart("chart-operations", "Operations a second", "/s"))
            (chart("chart-latency", "Time an operation takes", ""))
            (chart("chart-connections", "Connections", ""))
            (chart("chart-writes", "Changes: waiting, and in one commit", ""))
        }
        p.help #charts-state role="status" { "The charts cover the last " (range.title) "." }
        p.help {
            "Each point covers " (range.each) ". Operations and times are those of the whole interval; connections and waiting changes are the most "
            "that there were in it. Half of the operations took no longer than the median, 99 of 100 no longer than p99."
        }
        script type="module" src=(assets::url("charts.js")) {}
    }
}

/// A time that has passed, roughly.
pub(super) fn ago(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} seconds"),
        120..7_200 => format!("{} minutes", seconds / 60),
        7_200..172_800 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// `1234567` as `1 234 567`.
pub(in crate::admin) fn thousands(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() * 2);
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A size for people.
pub(in crate::admin) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or("B");
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {name}") }
}
