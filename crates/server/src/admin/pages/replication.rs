//! The page of providers and consumers, and how far each has come: what cn=Replication,cn=Larix,cn=Monitor says.

use larix_engine::time::Timestamp;
use larix_replication::consumer::{ConsumerPhase, ConsumerStatus};
use larix_replication::provider::SyncPeerFigures;
use maud::{Markup, html};

use super::layout::{self, MenuItem};
use super::overview::{ago, thousands};
use super::values;
use crate::admin::reply::{PageResult, Reply};
use crate::admin::respond::Visit;
use crate::replication::health;

/// An identity that may read this entry's values may see the page.
const WITNESS: &str = "cn=Replication,cn=Larix,cn=Monitor";
const MICROS: f64 = 1e6;

pub(super) async fn page(visit: &Visit<'_>) -> PageResult {
    let content = if visit.shows(WITNESS, "objectClass").await? { content(visit) } else { hidden() };
    Ok(Reply::page(layout::page(visit, MenuItem::Replication, "Replication", content)))
}

fn hidden() -> Markup {
    html! { p.help { "This is shown to those who may read " code { (WITNESS) } "." } }
}

fn content(visit: &Visit<'_>) -> Markup {
    let server = &visit.admin.server;
    let (now, started) = (server.now(), server.statistics.started);
    let consumers = server.consumers.statuses();
    let databases = server.databases();
    let peers = server.sync_peer_figures(databases.directory().databases().iter());
    let unready = health::unready(server);
    html! {
        @for reason in &unready {
            div.problem role="alert" { p { "Not ready for clients: " (reason.trim_end()) } }
        }
        section aria-labelledby="providers" {
            h2 #providers { "What this server follows" }
            @if consumers.is_empty() {
                p.help { "Nothing: no database has a " code { "syncrepl" } " line." }
            } @else {
                div.scroll { table {
                    thead { tr {
                        th { "Consumer" } th { "Provider" } th { "Phase" } th.number { "Nothing heard for" } th.number { "Last delay" }
                        th.number { "Taken over" } th.number { "Conflicts" } th.number { "Refused" }
                    } }
                    tbody { @for consumer in &consumers { (consumer_row(consumer, consumer.silence(now, started))) } }
                } }
                @for consumer in &consumers { (consumer_details(consumer)) }
            }
        }
        section aria-labelledby="followers" {
            h2 #followers { "Who follows this server" }
            @if peers.is_empty() {
                p.help { "Nobody is connected now." }
            } @else {
                div.scroll { table {
                    thead { tr {
                        th { "Consumer" } th { "From" } th { "Phase" } th.number { "Changes to come" } th.number { "Behind" } th { "Since" }
                    } }
                    tbody { @for peer in &peers { (peer_row(peer)) } }
                } }
                @for peer in &peers { (peer_details(peer)) }
            }
        }
        p { a.button href="/replication" { "Look again" } }
    }
}

fn consumer_row(consumer: &ConsumerStatus, silence: u64) -> Markup {
    let counts = &consumer.counts;
    let number = |count: u64| thousands(&count.to_string());
    let bad = consumer.error.is_some() || consumer.phase == ConsumerPhase::GivenUp;
    html! {
        tr {
            th scope="row" { (name(consumer.rid)) br; span.soft { (consumer.suffix) } }
            td { @for provider in &consumer.providers { (provider) " " } }
            td { @if bad { span.tag.bad { (consumer.phase.name()) } } @else { (consumer.phase.name()) } }
            td.number { @if silence == 0 { "–" } @else { (ago(silence / 1_000_000)) } }
            td.number { (consumer.last_delay.map_or_else(|| "–".to_owned(), |micros| seconds(micros as f64))) }
            td.number { (number(counts.applied)) }
            td.number { (number(counts.conflicts)) }
            td.number { (number(counts.refused)) }
        }
    }
}

fn consumer_details(consumer: &ConsumerStatus) -> Markup {
    let none = || "–".to_owned();
    let cookie = |cookie: &Option<String>| cookie.clone().unwrap_or_else(none);
    html! {
        @if let Some(error) = &consumer.error {
            div.problem role="alert" { p { (name(consumer.rid)) ": " (error) } }
        }
        details { summary { (name(consumer.rid)) ": times and cookies" }
            dl.facts {
                dt { "Last connected" } dd { (time(consumer.last_connect)) }
                dt { "Last heard of" } dd { (time(consumer.last_contact)) }
                @if consumer.local.is_none() { dt { "Next try" } dd { (time(consumer.next_connect)) } }
                dt { "Newest change" } dd { (time(consumer.last_change)) }
                dt { "Cookie sent" } dd { code { (cookie(&consumer.cookie_sent)) } }
                dt { "Cookie received" } dd { code { (cookie(&consumer.cookie_received)) } }
                dt { "Here already" } dd { (consumer.counts.older) }
                dt { "Deleted as absent" } dd { (consumer.counts.absent) }
            }
        }
    }
}

fn peer_row(peer: &SyncPeerFigures) -> Markup {
    html! {
        tr {
            th scope="row" { (name(peer.rid)) br; span.soft { (peer.base) } }
            td { (peer.address) }
            td { (peer.phase) }
            td.number { (thousands(&peer.behind.to_string())) }
            td.number { @if peer.behind == 0 { "–" } @else { (seconds(peer.behind_micros as f64)) } }
            td { (time(Some(peer.since))) }
        }
    }
}

fn peer_details(peer: &SyncPeerFigures) -> Markup {
    let csns: Vec<String> = peer.csns.iter().map(ToString::to_string).collect();
    html! {
        details { summary { (name(peer.rid)) " from " (peer.address) ": what it has" }
            dl.facts {
                dt { "Bound as" } dd { code { (peer.identity) } }
                dt { "Place in the change log" } dd { (peer.position) }
                dt { "CSNs" } dd { @for csn in &csns { code { (csn) } " " } }
            }
        }
    }
}

fn name(rid: u16) -> String {
    format!("rid={rid:03}")
}

fn seconds(micros: f64) -> String {
    format!("{:.3} s", micros / MICROS)
}

fn time(time: Option<Timestamp>) -> String {
    time.and_then(|time| values::readable_time(&time.generalized())).unwrap_or_else(|| "never".to_owned())
}
