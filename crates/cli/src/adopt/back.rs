//! From Larix back to slapd, with what was written since; or the undoing of a move that was begun.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::content::Digests;
use super::journal::{Journal, Step};
use super::processes::now;
use super::tools::Tools;
use super::{configuration, slapd};
use crate::terminal::say;

/// In slapd's directory of a database: the one that takes its place.
const NEW: &str = "from-larix";
const DATA: &str = "data.mdb";
const LOCK: &str = "lock.mdb";

/// Goes on from the journal's step until slapd serves.
///
/// # Errors
/// What failed. Run again it goes on.
pub(super) fn run(journal: &mut Journal, lock: &File) -> anyhow::Result<()> {
    let pause = now();
    if journal.step < Step::Starting {
        // Larix never served: slapd has everything. One that was asked to end still runs for a moment.
        if journal.step == Step::Taking {
            journal.found.service.stop_slapd(journal, lock)?;
        }
        journal.found.service.start_slapd(journal, lock)?;
        let aside = put_away(journal)?;
        say!("slapd serves as before; what was begun is kept in {}", aside.display());
        return Ok(());
    }
    if journal.step < Step::Swapping {
        journal.enter(Step::Returning)?;
        journal.found.service.stop_larix(journal, lock)?;
        // After a crash at the wrong moment both may have been started.
        journal.found.service.stop_slapd(journal, lock)?;
        report_configuration(journal);
        if let Err(error) = make_databases(journal, lock) {
            return Err(serve_again(journal, lock, error));
        }
        journal.enter(Step::Swapping)?;
    }
    if journal.step < Step::SlapdStarting {
        for database in &journal.found.databases {
            swap(&database.directory, journal.begun)
                .with_context(|| format!("cannot change the files in {}", database.directory.display()))?;
        }
        journal.enter(Step::SlapdStarting)?;
    }
    journal.found.service.start_slapd(journal, lock)?;
    say!("slapd serves again; the pause was {:.1} s", pause.elapsed().as_secs_f64());
    let aside = put_away(journal)?;
    say!("what Larix had is kept in {}", aside.display());
    Ok(())
}

/// Starts Larix again if it has served: nothing of slapd's was changed yet. Answers the error with where it stands.
fn serve_again(journal: &mut Journal, lock: &File, error: anyhow::Error) -> anyhow::Error {
    if journal.pause_seconds.is_none() {
        return error;
    }
    let started =
        journal.found.service.start_larix(journal, lock).and_then(|()| journal.enter(Step::Adopted));
    match started {
        Ok(()) => error.context("Larix serves again, slapd's files are as they were"),
        Err(other) => error.context(format!(
            "no server runs: {other:#}; larix adopt --back goes on when what follows is put right"
        )),
    }
}

/// Makes a database of slapd's beside each old one, where Larix has something else.
fn make_databases(journal: &Journal, lock: &File) -> anyhow::Result<()> {
    let (tools, digests) = (Tools { journal, lock }, Digests::default());
    let found = &journal.found;
    let copy = configuration_with_new_directories(&tools)?;
    for (number, database) in found.databases.iter().enumerate() {
        let (own, old) = (work(journal, number, "back"), work(journal, number, "slapd"));
        tools.larix_cat(&database.suffix, &own)?;
        let content = digests.read(&own)?;
        tools.slapcat((found.flag(), &found.configuration), &database.suffix, &old)?;
        let new = database.directory.join(NEW);
        let changed = content.differing(&digests.read(&old)?);
        say!("{:?}: {} entries, {changed} of them written since", database.suffix, content.len());
        if changed == 0 {
            // The directory stays until the swap: slapd's tools look for it.
            continue;
        }
        slapd::demand_room(&database.directory, slapd::taken_bytes(&database.directory))?;
        tools.empty_directory(&new)?;
        tools.slapadd(&copy, &database.suffix, &own)?;
        tools.slapcat(("-F", &copy), &database.suffix, &old)?;
        digests.demand_equal((&own, &content), &old)?;
    }
    Ok(())
}

fn work(journal: &Journal, number: usize, what: &str) -> PathBuf {
    journal.work().join(format!("{number}-{what}.ldif"))
}

/// slapd's configuration, with the directories that are to take the old ones' places.
fn configuration_with_new_directories(tools: &Tools<'_>) -> anyhow::Result<PathBuf> {
    let journal = tools.journal;
    let place = journal.place.join("slapd");
    Tools::own_directory(&place)?;
    let (read, copy) = (journal.place.join("slapd-read"), place.join("slapd.d"));
    let from = if journal.found.is_directory() {
        journal.found.configuration.clone()
    } else {
        tools.empty_directory(&read)?;
        tools.slaptest(&journal.found.configuration, &read)?;
        read
    };
    Tools::own_directory(&copy)?;
    let is_ours = |path: &Path| journal.found.databases.iter().any(|database| database.directory == path);
    let directory_of = |path: &Path| is_ours(path).then(|| path.join(NEW).display().to_string());
    // slapd looks for all directories, whichever database a tool works on.
    for database in &journal.found.databases {
        tools.empty_directory(&database.directory.join(NEW))?;
    }
    configuration::write_for_slapd(&from, &copy, &directory_of)?;
    tools.give(&place)?;
    Ok(copy)
}

/// Puts the new files in the old ones' place; the old stay beside them. May be begun anew wherever it was left.
fn swap(directory: &Path, begun: u64) -> std::io::Result<()> {
    let (new, aside) = (directory.join(NEW), directory.join(format!("before-larix-{begun}")));
    let new_data = new.join(DATA);
    if new_data.exists() {
        if !aside.join(DATA).exists() {
            fs::create_dir_all(&aside)?;
            fs::rename(directory.join(DATA), aside.join(DATA))?;
            File::open(&aside)?.sync_all()?;
        }
        // Readers' places in files that are no more.
        for file in [directory.join(LOCK), new.join(LOCK)] {
            if file.exists() {
                fs::remove_file(file)?;
            }
        }
        fs::rename(&new_data, directory.join(DATA))?;
        File::open(directory)?.sync_all()?;
    }
    if new.exists() {
        fs::remove_dir_all(&new)?;
    }
    Ok(())
}

/// What was changed in Larix's configuration is not taken back: says so.
fn report_configuration(journal: &Journal) {
    let changed = configuration::changed(&journal.work().join("slapd.d-as-made"), &journal.configuration());
    match changed {
        Ok(changed) if changed.is_empty() => {}
        Ok(changed) => say!(
            "note: slapd's configuration stays as it was: what was changed since in Larix's is not taken back: {}",
            changed.join("; ")
        ),
        Err(error) => say!("note: Larix's configuration cannot be compared with slapd's: {error:#}"),
    }
}

/// The directory of the move gets another name: the next move finds none.
fn put_away(journal: &Journal) -> anyhow::Result<PathBuf> {
    let name = journal.place.display().to_string();
    let mut aside = PathBuf::from(format!("{name}.returned-{}", journal.begun));
    let mut number = 1;
    while aside.exists() {
        number += 1;
        aside = PathBuf::from(format!("{name}.returned-{}-{number}", journal.begun));
    }
    ensure!(journal.place.exists(), "{name} is gone");
    fs::rename(&journal.place, &aside)
        .with_context(|| format!("cannot rename {name} to {}", aside.display()))?;
    Ok(aside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_change_places_wherever_it_was_left() {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        for left_after in 0..4 {
            let folder = tempfile::tempdir().unwrap();
            let directory = folder.path();
            let (new, aside) = (directory.join(NEW), directory.join("before-larix-7"));
            fs::write(directory.join(DATA), "old").unwrap();
            fs::write(directory.join(LOCK), "").unwrap();
            fs::create_dir(&new).unwrap();
            fs::write(new.join(DATA), "new").unwrap();
            if left_after > 0 {
                fs::create_dir(&aside).unwrap();
            }
            if left_after > 1 {
                fs::rename(directory.join(DATA), aside.join(DATA)).unwrap();
            }
            if left_after > 2 {
                fs::rename(new.join(DATA), directory.join(DATA)).unwrap();
            }
            swap(directory, 7).unwrap();
            swap(directory, 7).unwrap();
            assert_eq!((read(directory.join(DATA)), read(aside.join(DATA))), ("new".into(), "old".into()));
            assert!(!new.exists(), "{left_after}");
        }
    }
}
