//! The backups that the schedule keeps: how they stand, one more now, whether one is as it was made.

use std::path::{Path, PathBuf};

use larix_configuration::values::BackupSchedule;
use larix_engine::time::Timestamp;
use maud::{Markup, html};

use super::layout::{self, MenuItem};
use super::login::suffixes;
use super::overview::{ago, bytes, thousands};
use super::values;
use crate::admin::Admin;
use crate::admin::changes::{self, TEXT};
use crate::admin::form::url;
use crate::admin::reply::{PageResult, Problem, Reply};
use crate::admin::respond::Visit;
use crate::admin::sessions::NoticeKind;
use crate::backup::{BackupRequest, BackupStatus, Chain, Increment, PutBack, Verified, schedule_directory};
use crate::log::printable;

/// The newest full backups that are shown.
const LISTED: usize = 50;
/// Of each, the newest increments.
const INCREMENTS_LISTED: usize = 20;

/// A directory of the schedule, and what its manifests say or why they cannot be read.
#[derive(Debug)]
pub(super) struct ScheduledBackup {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) chain: Result<Chain, String>,
}

/// `/backup`: the list; a form asks for a backup, or for the verification of one.
pub(super) async fn page(visit: &Visit<'_>) -> PageResult {
    if !may_see(visit) {
        return Ok(Reply::page(layout::page(visit, MenuItem::Backups, "Backups", hidden())));
    }
    let server = &visit.admin.server;
    let schedule = server.config().global.backup_schedule.clone();
    if let Some(form) = visit.form {
        let Some(schedule) = &schedule else {
            return Err(Problem::Bad(
                "No directory for backups is configured: set backup-schedule first.".to_owned(),
            ));
        };
        let request = match form.get("kind") {
            "restore" => BackupRequest::Restore(super::restore::request(
                visit,
                &list(visit.admin, schedule).await?,
                form,
            )?),
            kind => backup_request(schedule, kind, form.get("backup"))?,
        };
        let what = match &request {
            BackupRequest::Full => "A full backup is asked for".to_owned(),
            BackupRequest::Increment => "A backup of what has changed is asked for".to_owned(),
            BackupRequest::Verify(path) => format!("The verification of {} is asked for", name(path)),
            BackupRequest::Restore(restore) => {
                format!("The restore of {} is asked for", name(&restore.directory))
            }
        };
        if server.backups.request(request) {
            let who = printable(&visit.session.dn);
            server.log.notice(format_args!("backup: {what} by \"{who}\" on the admin page"));
            visit.session.notice(NoticeKind::Done, format!("{what}: look below how far it is."));
        } else {
            let text = "What was asked for before is not done yet: look again when it is.";
            visit.session.notice(NoticeKind::Warning, text);
        }
        return Ok(Reply::SeeOther("/backup".to_owned()));
    }
    let content = match &schedule {
        None => unscheduled(visit).await?,
        Some(schedule) => {
            let backups = list(visit.admin, schedule).await?;
            content(visit, schedule, &backups)
        }
    };
    Ok(Reply::page(layout::page(visit, MenuItem::Backups, "Backups", content)))
}

/// Backups have all databases and the configuration: they are for who is the root DN of cn=config, or of every database.
pub(super) fn may_see(visit: &Visit<'_>) -> bool {
    let databases = visit.admin.server.databases();
    let is_root = |dn: &str| {
        let parse = |dn: &str| databases.schema().parse_dn(dn).ok();
        let (Some(who), Some(dn)) = (parse(&visit.session.dn), parse(dn)) else { return false };
        databases.is_root_over(&who, &dn)
    };
    let suffixes = suffixes(visit.admin);
    is_root("cn=config") || (!suffixes.is_empty() && suffixes.iter().all(|suffix| is_root(suffix)))
}

pub(super) fn hidden() -> Markup {
    html! { p.help {
        "Backups are shown to the " code { "rootdn" } " of " code { "cn=config" } ", and to an identity that is the "
        code { "rootdn" } " of every database."
    } }
}

/// The backups in the schedule's directory, newest first. On a thread beside the page's: manifests are files.
pub(super) async fn list(admin: &Admin, schedule: &BackupSchedule) -> Result<Vec<ScheduledBackup>, Problem> {
    let directory = schedule.directory.clone();
    let read = move || {
        let newest = schedule_directory::all(&directory).into_iter().rev().take(LISTED);
        newest
            .map(|path| {
                let chain = Chain::read(&path).map_err(|error| error.to_string());
                ScheduledBackup { name: name(&path), path, chain }
            })
            .collect()
    };
    let listed = admin.aside.run(read).await;
    listed.map_err(|error| Problem::Bad(format!("The backups cannot be listed: {error}")))
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// What a form asks for. Only a backup of the schedule's directory can be verified.
fn backup_request(schedule: &BackupSchedule, kind: &str, backup: &str) -> Result<BackupRequest, Problem> {
    match kind {
        "full" => Ok(BackupRequest::Full),
        "increment" => Ok(BackupRequest::Increment),
        "verify" => {
            let found =
                schedule_directory::all(&schedule.directory).into_iter().find(|path| name(path) == backup);
            let gone =
                || Problem::Bad(format!("There is no backup {backup:?} any more: load the page again."));
            found.map(BackupRequest::Verify).ok_or_else(gone)
        }
        _ => Err(Problem::NotFound),
    }
}

/// Without a schedule there is no place for backups: a change of the configuration makes one.
async fn unscheduled(visit: &Visit<'_>) -> Result<Markup, Problem> {
    let mut client = visit.session.client.lock().await;
    // As the review of the form reads it.
    let read = client.read("cn=config", &["*", "entryCSN"]).await;
    if client.is_gone() {
        return Err(Problem::LoggedOut);
    }
    let global = read.ok().flatten();
    Ok(html! {
        div.empty {
            h2 { "No backups are configured" }
            p {
                code { "backup-schedule" } " names a directory that exists and where the server may write, and how often. "
                "Then the server makes backups by itself, and this page shows them. " code { "larix backup" }
                " makes backups without it."
            }
            @if let Some(global) = &global {
                form method="post" action="/entry/edit" {
                    (layout::csrf(visit))
                    input type="hidden" name="dn" value=(global.dn);
                    input type="hidden" name="csn" value=(changes::state(global));
                    input type="hidden" name="from" value="config";
                    label for="schedule" { "Schedule" }
                    input #schedule name={ (TEXT) "olcLarixBackupSchedule" } autocomplete="off" spellcheck="false" required
                        value="directory=/var/backups/larix full=7d increment=1h keep=4";
                    button.primary type="submit" name="step" value="review" { "Review the change" }
                }
            }
        }
    })
}

fn content(visit: &Visit<'_>, schedule: &BackupSchedule, backups: &[ScheduledBackup]) -> Markup {
    let status = visit.admin.server.backups.status();
    let now = visit.admin.server.now();
    html! {
        (state(schedule, &status, now))
        div.actions {
            (ask(visit, "increment", "Back up what has changed", "primary"))
            (ask(visit, "full", "Full backup now", ""))
            a.button href="/backup" { "Look again" }
        }
        @if backups.len() >= usize::try_from(schedule.keep).unwrap_or(usize::MAX) && let Some(oldest) = backups.last() {
            p.help { (schedule.keep) " full backups are kept: the next one takes the place of " code { (oldest.name) } " and its increments." }
        }
        section aria-labelledby="list" {
            h2 #list { "Backups in " code { (schedule.directory.display()) } }
            @if backups.is_empty() { p.help { "None yet." } } @else {
                div.scroll { table.stack {
                    thead { tr { th { "Backup" } th { "Has every change up to" } th.number { "Entries" } th.number { "Size" } th { "Increments" } th {} } }
                    tbody { @for backup in backups { (row(visit, backup, &status, now)) } }
                } }
            }
        }
        @if !backups.is_empty() { (super::restore::question(visit, backups)) }
    }
}

/// How the schedule stands.
fn state(schedule: &BackupSchedule, status: &BackupStatus, now: Timestamp) -> Markup {
    html! {
        @if let Some((when, why)) = &status.last_error {
            div.problem role="alert" { p { "The last backup failed (" (time(Some(*when))) "): " (why) } }
        }
        @if let Some(Verified { directory, at, fault: Some(fault), .. }) = &status.verified {
            div.problem role="alert" { p { (name(directory)) " failed its verification (" (time(Some(*at))) "): " (fault) } }
        }
        @match &status.put_back {
            Some(PutBack { directory, at, fault: Some(fault), .. }) => {
                div.problem role="alert" { p { "The restore of " (name(directory)) " failed (" (time(Some(*at))) "): " (fault) } }
            }
            Some(PutBack { directory, at, entries, unavailable, fault: None }) => {
                p role="status" {
                    (name(directory)) " was restored (" (time(Some(*at))) "): " (thousands(&entries.to_string())) " entries. Clients got no answers from "
                    "the databases for " (thousands(&unavailable.as_millis().to_string())) " ms."
                }
            }
            None => {}
        }
        dl.facts #state {
            dt { "Now" } dd role="status" { (doing(status)) }
            dt { "Last one" } dd { (time(status.last_success)) @if let Some(age) = status.age(now) { ", " (ago(age)) " ago" } }
            dt { "Has every change up to" } dd { (time(status.covers)) }
            dt { "Next by schedule" } dd { (time(status.next)) }
            @if let Some(free) = free(&schedule.directory) { dt { "Free space" } dd { (bytes(free)) } }
        }
    }
}

/// What the thread of the backups does.
fn doing(status: &BackupStatus) -> String {
    let (done, total) = status.progress;
    let far = match (done, total) {
        (0, _) => String::new(),
        (done, 0) => format!(", {} done", bytes(done)),
        (done, total) => format!(", {} of {} done", bytes(done), bytes(total)),
    };
    match &status.requested {
        Some(BackupRequest::Restore(restore)) => {
            format!("{} is being restored{far}", name(&restore.directory))
        }
        Some(BackupRequest::Verify(path)) => format!("{} is being verified{far}", name(path)),
        _ if status.running => format!("a backup is being made{far}"),
        Some(_) => "a backup is about to begin".to_owned(),
        None => "nothing is under way".to_owned(),
    }
}

fn ask(visit: &Visit<'_>, kind: &str, text: &str, class: &str) -> Markup {
    html! {
        form method="post" action="/backup" {
            (layout::csrf(visit))
            input type="hidden" name="kind" value=(kind);
            button class=(class) type="submit" { (text) }
        }
    }
}

fn row(visit: &Visit<'_>, backup: &ScheduledBackup, status: &BackupStatus, now: Timestamp) -> Markup {
    let verified = status.verified.as_ref().filter(|verified| verified.directory == backup.path);
    html! {
        tr {
            th scope="row" {
                (backup.name)
                @match verified {
                    Some(Verified { fault: None, covers, .. }) => { br; span.tag.good { "verified up to " (time(*covers)) } }
                    Some(_) => { br; span.tag.bad { "damaged" } }
                    None => {}
                }
            }
            @match &backup.chain {
                Err(why) => { td colspan="4" { span.tag.bad { "cannot be used" } " " (why) } }
                Ok(chain) => {
                    @let covers = chain.last().covers();
                    td { (time(covers)) @if let Some(covers) = covers { br; span.soft { (ago(seconds(covers, now))) " ago" } } }
                    td.number { (thousands(&chain.full.databases.iter().map(|one| one.entries).sum::<u64>().to_string())) }
                    td.number { (bytes(chain.bytes())) }
                    td { (increments(&chain.increments)) }
                }
            }
            td {
                form method="post" action="/backup" {
                    (layout::csrf(visit))
                    input type="hidden" name="kind" value="verify";
                    input type="hidden" name="backup" value=(backup.name);
                    button type="submit" aria-label={ "Verify " (backup.name) } { "Verify" }
                }
                @if backup.chain.is_ok() { a href=(url("/backup/restore", &[("backup", &backup.name)])) aria-label={ "How to restore " (backup.name) } { "Restore" } }
            }
        }
    }
}

fn increments(all: &[Increment]) -> Markup {
    let own = |increment: &Increment| {
        let databases = &increment.manifest.databases;
        let changes: u64 = databases.iter().map(|database| database.entries).sum();
        let size: u64 = databases.iter().map(|database| database.file.bytes).sum();
        let until = time(increment.manifest.covers());
        format!("up to {until}: {} changes, {}", thousands(&changes.to_string()), bytes(size))
    };
    html! {
        @if all.is_empty() { "none" } @else {
            details {
                summary { (all.len()) }
                @if all.len() > INCREMENTS_LISTED { p.soft { "The newest " (INCREMENTS_LISTED) ":" } }
                ul.plain { @for increment in all.iter().rev().take(INCREMENTS_LISTED) { li { (own(increment)) } } }
            }
        }
    }
}

pub(super) fn time(time: Option<Timestamp>) -> String {
    time.and_then(|time| values::readable_time(&time.generalized())).unwrap_or_else(|| "never".to_owned())
}

fn seconds(then: Timestamp, now: Timestamp) -> u64 {
    u64::try_from(now.0.saturating_sub(then.0) / crate::backup::MICROS).unwrap_or(0)
}

/// Bytes that the server's user can still write where this directory is.
pub(super) fn free(directory: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(directory).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}
