//! From slapd to Larix.

use std::fs::File;
use std::path::Path;

use anyhow::Context;

use super::content::{Content, Digests};
use super::journal::{Journal, Step};
use super::processes::now;
use super::tools::Tools;
use super::{back, configuration};
use crate::terminal::say;

/// Goes on from the journal's step until Larix serves.
///
/// # Errors
/// What failed. slapd serves then as it did, unless the error says otherwise.
pub(super) fn run(journal: &mut Journal, lock: &File) -> anyhow::Result<()> {
    let digests = Digests::default();
    let mut first = Vec::new();
    if journal.step < Step::Taking {
        journal.enter(Step::Preparing)?;
        let copied = prepare(journal, lock).and_then(|()| copy(journal, lock, &digests));
        first = copied.context(
            "slapd serves as before; larix adopt begins anew, larix adopt --back takes away what was made",
        )?;
        journal.enter(Step::Copied)?;
    }
    let pause = now();
    if journal.step < Step::Starting {
        journal.enter(Step::Taking)?;
        let taken = journal
            .found
            .service
            .stop_slapd(journal, lock)
            .and_then(|()| take(journal, lock, &digests, &first));
        if let Err(error) = taken {
            let text = "slapd was started again, nothing was taken over";
            journal.found.service.start_slapd(journal, lock).with_context(|| {
                format!("{error:#}; and slapd could not be started again: larix adopt --back tries it anew")
            })?;
            journal.enter(Step::Preparing)?;
            return Err(error.context(text));
        }
        journal.enter(Step::Starting)?;
    }
    if let Err(error) = journal.found.service.start_larix(journal, lock) {
        // It may have served for a moment: what it holds by now is taken back, too.
        back::run(journal, lock).with_context(|| {
            format!("{error:#}; and the way back failed: larix adopt --back goes on with it")
        })?;
        return Err(error.context("Larix did not start; slapd was started again with all that was written"));
    }
    let seconds = pause.elapsed().as_secs_f64();
    journal.pause_seconds = Some(seconds);
    journal.enter(Step::Adopted)?;
    say!("Larix serves {} in slapd's place; the pause was {seconds:.1} s", journal.found.urls);
    say!("its configuration is {}; slapd's files are as they were", journal.configuration().display());
    say!("the way back: larix adopt --back --place {}", journal.place.display());
    Ok(())
}

fn prepare(journal: &Journal, lock: &File) -> anyhow::Result<()> {
    let tools = Tools { journal, lock };
    let work = journal.work();
    Tools::own_directory(&journal.larix())?;
    Tools::own_directory(&work)?;
    let directory_of = |path: &Path| {
        let at = journal.found.databases.iter().position(|database| database.directory == path)?;
        Some(journal.data(at).display().to_string())
    };
    for to in [journal.configuration(), work.join("slapd.d-as-made")] {
        Tools::own_directory(&to)?;
        configuration::write_for_larix(&journal.found.configuration, &to, &directory_of)?;
    }
    tools.give(&journal.larix())
}

/// Copies each database while slapd serves. Answers what was copied.
fn copy(journal: &Journal, lock: &File, digests: &Digests) -> anyhow::Result<Vec<Content>> {
    let tools = Tools { journal, lock };
    let mut copied = Vec::new();
    for (number, database) in journal.found.databases.iter().enumerate() {
        let dump = journal.work().join(format!("{number}-first.ldif"));
        dump_slapd(&tools, number, &dump)?;
        tools.empty_directory(&journal.data(number))?;
        tools.larix_add(&database.suffix, &dump)?;
        let content = digests.read(&dump)?;
        say!("{:?}: {} entries copied while slapd serves", database.suffix, content.len());
        copied.push(content);
    }
    Ok(copied)
}

/// Takes over what slapd wrote since the first copy, and compares. slapd has stopped.
fn take(journal: &Journal, lock: &File, digests: &Digests, first: &[Content]) -> anyhow::Result<()> {
    let tools = Tools { journal, lock };
    for (number, database) in journal.found.databases.iter().enumerate() {
        let dump = journal.work().join(format!("{number}-last.ldif"));
        dump_slapd(&tools, number, &dump)?;
        let last = digests.read(&dump)?;
        let changed = first.get(number).map(|first| (first, first.differing(&last)));
        match changed {
            Some((first, 0)) if first.context_csns == last.context_csns => {}
            changed => {
                tools.empty_directory(&journal.data(number))?;
                tools.larix_add(&database.suffix, &dump)?;
                match changed {
                    Some((_, 0)) => {
                        say!("{:?}: only its contextCSN was written meanwhile", database.suffix)
                    }
                    Some((_, count)) => {
                        say!("{:?}: {count} entries were written meanwhile", database.suffix)
                    }
                    None => {}
                }
            }
        }
        let own = journal.work().join(format!("{number}-larix.ldif"));
        tools.larix_cat(&database.suffix, &own)?;
        digests.demand_equal((&dump, &last), &own)?;
        say!("{:?}: {} entries, all with the same values", database.suffix, last.len());
    }
    Ok(())
}

fn dump_slapd(tools: &Tools<'_>, number: usize, to: &Path) -> anyhow::Result<()> {
    let found = &tools.journal.found;
    let Some(database) = found.databases.get(number) else { return Ok(()) };
    tools.slapcat((found.flag(), &found.configuration), &database.suffix, to)
}
