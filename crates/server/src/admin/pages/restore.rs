//! What a restore needs, the button that asks the server for it, and the commands that do it without the server.

use std::path::{Path, PathBuf};

use hyper::StatusCode;
use larix_configuration::{Config, Source};
use larix_engine::time::Timestamp;
use larix_store::lmdb::{DATA_FILE, REPLACED_FILE};
use maud::{Markup, html};

use super::backups::{self, ScheduledBackup, time};
use super::layout::{self, MenuItem};
use super::overview::{bytes, thousands};
use crate::admin::form::Form;
use crate::admin::reply::{PageResult, Problem, Reply};
use crate::admin::respond::Visit;
use crate::backup::{BackupError, CONFIGURATION, Chain, DatabaseBackup, RestoreRequest, Until, Verified};

/// What a restore would put back.
#[derive(Debug)]
struct Plan<'k> {
    backup: &'k ScheduledBackup,
    chain: &'k Chain,
    /// As it was typed; empty: the last state that the backup has.
    moment: &'k str,
    /// Empty: all of them.
    suffix: &'k str,
    databases: Vec<&'k DatabaseBackup>,
}

/// `/backup/restore?backup=&moment=&suffix=`.
pub(super) async fn page(visit: &Visit<'_>) -> PageResult {
    let title = "Restore a backup";
    if !backups::may_see(visit) {
        return Ok(Reply::page(layout::page(visit, MenuItem::Backups, title, backups::hidden())));
    }
    let config = visit.admin.server.config().clone();
    let Some(schedule) = &config.global.backup_schedule else {
        return Ok(Reply::SeeOther("/backup".to_owned()));
    };
    let backups = backups::list(visit.admin, schedule).await?;
    let [backup_name, moment, suffix] = ["backup", "moment", "suffix"].map(|name| visit.query.trimmed(name));
    let (status, answer) = match plan(&backups, backup_name, moment, suffix) {
        Ok(plan) => (StatusCode::OK, answer(visit, &config, &plan)),
        Err(why) => {
            let alert = layout::alert("No backup leads there", html! { p { (why) } });
            (StatusCode::UNPROCESSABLE_ENTITY, alert)
        }
    };
    let content = html! {
        (answer)
        (question(visit, &backups))
        p { a href="/backup" { "Back to the backups" } }
    };
    Ok(Reply::Page(status, layout::page(visit, MenuItem::Backups, title, content)))
}

/// The form that asks what a restore needs.
pub(super) fn question(visit: &Visit<'_>, backups: &[ScheduledBackup]) -> Markup {
    let fields = visit.query;
    let chosen = fields.trimmed("backup");
    let mut suffixes: Vec<&str> = Vec::new();
    for database in
        backups.iter().filter_map(|backup| backup.chain.as_ref().ok()).flat_map(|chain| &chain.full.databases)
    {
        if let Some(suffix) = database.suffixes.first().filter(|suffix| !suffixes.contains(&suffix.as_str()))
        {
            suffixes.push(suffix);
        }
    }
    html! {
        section aria-labelledby="restore" {
            h2 #restore { "Restore" }
            p { "This shows first what a restore needs." }
            form.row.restore method="get" action="/backup/restore" {
                div {
                    label for="moment" { "To the moment" }
                    input #moment name="moment" value=(fields.trimmed("moment")) placeholder="2026-11-21T12:34:56Z" autocomplete="off"
                        aria-describedby="moment-help";
                }
                div {
                    label for="backup" { "From" }
                    select #backup name="backup" {
                        option value="" { "the newest that has the moment" }
                        @for one in backups.iter().filter(|one| one.chain.is_ok()) {
                            option value=(one.name) selected[one.name == chosen] { (one.name) }
                        }
                    }
                }
                @if suffixes.len() > 1 {
                    div {
                        label for="suffix" { "Database" }
                        select #suffix name="suffix" {
                            option value="" { "all" }
                            @for suffix in suffixes { option value=(suffix) selected[suffix == fields.trimmed("suffix")] { (suffix) } }
                        }
                    }
                }
                button.fix type="submit" { "Show what it needs" }
            }
            p.help #moment-help { "In UTC, or with an offset such as +02:00. Empty: the last state that the backup has." }
        }
    }
}

/// What a form asks for.
///
/// # Errors
/// A backup that does not lead there, a database that the server does not have, no confirmation.
pub(super) fn request(
    visit: &Visit<'_>,
    backups: &[ScheduledBackup],
    form: &Form,
) -> Result<RestoreRequest, Problem> {
    let [backup_name, moment, suffix] = ["backup", "moment", "suffix"].map(|name| form.trimmed(name));
    let plan = plan(backups, backup_name, moment, suffix).map_err(Problem::Bad)?;
    let config = visit.admin.server.config().clone();
    if let Some(missing) = plan.databases.iter().find(|database| directory(&config, database).is_none()) {
        let name = missing.name();
        return Err(Problem::Bad(format!(
            "The configuration has no database {name:?}: configure it first, or restore others alone."
        )));
    }
    if form.get("sure") != "yes" {
        return Err(Problem::Bad("Tick the box to confirm the restore.".to_owned()));
    }
    let until =
        if moment.is_empty() { Until::End } else { Until::parse_time(moment).map_err(Problem::Bad)? };
    Ok(RestoreRequest { directory: plan.backup.path.clone(), until, suffix: suffix.to_owned() })
}

/// The newest backup that leads to the moment.
///
/// # Errors
/// Why none does, and what would help.
fn plan<'k>(
    backups: &'k [ScheduledBackup],
    backup_name: &str,
    moment: &'k str,
    suffix: &'k str,
) -> Result<Plan<'k>, String> {
    let until = if moment.is_empty() { Until::End } else { Until::parse_time(moment)? };
    if !backup_name.is_empty() && !backups.iter().any(|backup| backup.name == backup_name) {
        return Err(format!("There is no backup {backup_name:?} any more. Choose another."));
    }
    let mut faults: Vec<(Option<Timestamp>, BackupError)> = Vec::new();
    for backup in backups.iter().filter(|backup| backup_name.is_empty() || backup.name == backup_name) {
        let chain = match &backup.chain {
            Ok(chain) => chain,
            Err(why) if !backup_name.is_empty() => return Err(why.clone()),
            Err(_) => continue,
        };
        let databases = chain.databases(suffix);
        if databases.is_empty() {
            continue;
        }
        match chain.check_reach(&databases, until) {
            Ok(()) => return Ok(Plan { backup, chain, moment, suffix, databases }),
            Err(error) => faults.push((chain.full.covers(), error)),
        }
    }
    // The one that begins before the moment says where it ends; else the oldest where it begins.
    let before = |(begins, _): &&(Option<Timestamp>, BackupError)| *begins <= until.time();
    let fault = faults.iter().find(before).or_else(|| faults.last());
    let why = fault.map(|(_, error)| format!("{error}."));
    Err(why.unwrap_or_else(|| match suffix {
        "" => "No backup can be used: make a full one.".to_owned(),
        suffix => format!("No backup has the database {suffix:?}: make a full one."),
    }))
}

fn answer(visit: &Visit<'_>, config: &Config, plan: &Plan<'_>) -> Markup {
    let status = visit.admin.server.backups.status();
    let verified = status.verified.as_ref().filter(|verified| verified.directory == plan.backup.path);
    let places: Vec<_> =
        plan.databases.iter().map(|database| (*database, directory(config, database))).collect();
    html! {
        section aria-labelledby="needs" {
            h2 #needs tabindex="-1" data-focus { "What it needs" }
            dl.facts {
                dt { "Backup" } dd {
                    code { (plan.backup.path.display()) } " "
                    @match verified {
                        Some(Verified { fault: None, covers, .. }) => span.tag.good { "verified up to " (time(*covers)) },
                        Some(Verified { fault: Some(_), .. }) => span.tag.bad { "damaged: it failed its verification" },
                        None => span.tag.warn { "not verified since the server started" },
                    }
                }
                dt { "It comes to" } dd {
                    @if plan.moment.is_empty() { "its last change, " (time(plan.chain.last().covers())) }
                    @else { "every change up to " (plan.moment) ", and none after it" }
                }
            }
            div.scroll { table.stack {
                thead { tr { th { "Database" } th { "Directory" } th.number { "Entries in the copy" } th.number { "Changes after it, at most" } th.number { "Room it takes" } th.number { "Free there" } } }
                tbody { @for (database, place) in &places { (database_row(plan, database, place.as_deref())) } }
            } }
            @if verified.is_none_or(|verified| verified.fault.is_some()) {
                form method="post" action="/backup" {
                    (layout::csrf(visit))
                    input type="hidden" name="kind" value="verify";
                    input type="hidden" name="backup" value=(plan.backup.name);
                    p { "Verify it first: " button type="submit" { "Verify this backup" } }
                }
            }
        }
        @if places.iter().all(|(_, place)| place.is_some()) { (now(visit, plan)) }
        section aria-labelledby="commands" {
            h2 #commands { "The commands" }
            p { "This does the same while no server runs." }
            p {
                "Run those of larix as the user of the server. Clients have no answers from the first to the last. What was changed after the moment "
                "is then only in the old file, " code { (REPLACED_FILE) } ": remove it when you are content. The restore takes nothing away before "
                "the new database is whole."
            }
            pre #restore-commands { (commands(config, plan, &places)) }
        }
    }
}

/// The button.
fn now(visit: &Visit<'_>, plan: &Plan<'_>) -> Markup {
    html! {
        section aria-labelledby="now" {
            h2 #now { "Restore now" }
            p {
                "The server first backs up what has changed. It puts the databases together while clients go on, and clients get "
                "“unavailable” only while the files are exchanged. If anything fails before that, nothing changes."
            }
            form method="post" action="/backup" {
                (layout::csrf(visit))
                input type="hidden" name="kind" value="restore";
                input type="hidden" name="backup" value=(plan.backup.name);
                input type="hidden" name="moment" value=(plan.moment);
                input type="hidden" name="suffix" value=(plan.suffix);
                p { label { input type="checkbox" name="sure" value="yes" required; " Changes after that moment leave the directory. They stay in " code { (REPLACED_FILE) } ", and in the backup that is made first until the schedule removes it." } }
                div.actions { button.danger type="submit" { "Restore now" } }
            }
        }
    }
}

fn database_row(plan: &Plan<'_>, database: &DatabaseBackup, place: Option<&Path>) -> Markup {
    let free = place.and_then(backups::free);
    let short = free.is_some_and(|free| free < database.file.bytes);
    html! {
        tr {
            th scope="row" { (database.name()) }
            td { @match place {
                Some(place) => code { (place.display()) },
                None => { span.tag.bad { "not configured" } " The configuration has no such database: restore others alone, or configure it first." }
            } }
            td.number { (thousands(&database.entries.to_string())) }
            td.number { (thousands(&plan.chain.changes(database).to_string())) }
            td.number { (bytes(database.file.bytes)) " and more" }
            td.number { @match free {
                Some(free) => { @if short { span.tag.bad { (bytes(free)) } } @else { (bytes(free)) } },
                None => "unknown",
            } }
        }
    }
}

/// Where the configuration has the database.
fn directory(config: &Config, backup: &DatabaseBackup) -> Option<PathBuf> {
    Some(absolute(&backup.section(config)?.kind.mdb()?.directory))
}

fn commands(config: &Config, plan: &Plan<'_>, places: &[(&DatabaseBackup, Option<PathBuf>)]) -> String {
    let from = word(&plan.backup.path.to_string_lossy());
    let mut lines = vec!["systemctl stop larix".to_owned()];
    let source = match &config.source {
        Source::Directory(path) => format!("-F {}", word(&absolute(path).to_string_lossy())),
        Source::File(path) => format!("-f {}", word(&absolute(path).to_string_lossy())),
        Source::QuickStart => {
            let saved = word(&plan.backup.path.join(CONFIGURATION).to_string_lossy());
            lines.push(format!("mkdir slapd.d && larix add -n 0 -F slapd.d -l {saved}"));
            "-F slapd.d".to_owned()
        }
    };
    let mut restore = format!("larix restore {source} --from {from}");
    if !plan.suffix.is_empty() {
        restore.push_str(&format!(" -b {}", word(plan.suffix)));
    }
    if !plan.moment.is_empty() {
        restore.push_str(&format!(" --to-time {}", word(plan.moment)));
    }
    let is_there = |place: &PathBuf| place.join(DATA_FILE).symlink_metadata().is_ok();
    if places.iter().any(|(_, place)| place.as_ref().is_some_and(is_there)) {
        restore.push_str(" --replace");
    }
    lines.push(restore);
    lines.push(format!("larix check {source}"));
    lines.push("systemctl start larix".to_owned());
    lines.join("\n")
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// A word of a shell's command line.
fn word(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_each_word_as_one() {
        for (text, expected) in [
            ("/backup/larix-20261121123456Z", "/backup/larix-20261121123456Z"),
            ("dc=example,dc=com", "dc=example,dc=com"),
            ("2026-11-21 12:34:56Z", "'2026-11-21 12:34:56Z'"),
            ("o=Ann's; rm -rf /", "'o=Ann'\\''s; rm -rf /'"),
            ("$(x)`y`", "'$(x)`y`'"),
            ("", "''"),
        ] {
            assert_eq!(word(text), expected);
        }
    }
}
