//! `overlay homedir`: home directories of accounts on this machine (slapo-homedir(5)): made from a skeleton, moved, given to another user,
//! and put into an archive or deleted. What is committed decides, on a thread of the overlay's own: no answer waits for a disk, and changes of
//! other servers count, too.

mod archive;
mod config;
mod files;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larix_engine::Fault;
use larix_engine::entry::EntrySource;
use larix_engine::log::LoggedChange;
use larix_engine::overlay::committed::{
    Committed, CommittedBatch, CommittedChange, CommittedEntries, NotTaken,
};
use larix_engine::overlay::internal_search::InternalSearch;
use larix_engine::overlay::{
    Descriptor, Failure, InGluedDatabases, InSharedEngine, Interests, Overlay, OverlayDirective,
};
use larix_proto::Scope;
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};
use regex::Regex;
use uuid::Uuid;

pub static DESCRIPTOR: Descriptor = Descriptor::new("homedir", "olcHomedirConfig", config::build)
    .over_glue(InGluedDatabases::Refused("it follows the changes of one database"))
    .once()
    .in_shared_engine(InSharedEngine::Refused(
        "it makes directories on the machine of the node that writes, and the next node knows nothing of them",
    ))
    .directives(&[
        OverlayDirective::whole("homedir-skeleton-path", "olcSkeletonPath").default("/etc/skel"),
        OverlayDirective::whole("homedir-min-uidnumber", "olcMinimumUidNumber").default("100"),
        OverlayDirective::words("homedir-regexp", "olcHomedirRegexp").ordered().arguments(2, 2),
        OverlayDirective::whole("homedir-delete-style", "olcHomedirDeleteStyle").default("IGNORE"),
        OverlayDirective::whole("homedir-archive-path", "olcHomedirArchivePath"),
    ]);

/// The overlay of one database.
#[derive(Debug)]
struct HomeDirectories {
    names: Names,
    skeleton: PathBuf,
    /// Accounts with smaller numbers are left alone.
    min_uid: u32,
    /// Which values of homeDirectory are looked after, and where they are on this machine.
    places: Vec<PathPattern>,
    style: DeleteStyle,
    archive: Option<PathBuf>,
    /// The accounts that are looked after, by their entryUUIDs; `None`: not looked up yet.
    accounts: Mutex<Option<HashMap<Uuid, Account>>>,
}

#[derive(Debug)]
struct Names {
    home: AttributeDescription,
    uid: AttributeDescription,
    gid: AttributeDescription,
    uuid: AttributeDescription,
}

/// `homedir-regexp`
#[derive(Debug)]
struct PathPattern {
    pattern: Regex,
    /// `$1` stands for what is in the first parentheses.
    path: String,
}

/// What becomes of a home directory whose account goes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum DeleteStyle {
    Ignore,
    Delete,
    Archive,
}

/// An account that is looked after.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Account {
    /// On this machine.
    home: PathBuf,
    owner: Owner,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Owner {
    uid: u32,
    gid: u32,
}

/// What an entry is to the overlay.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// It has nothing of an account.
    None,
    /// It has something of one, and is not looked after.
    Other,
    Account(Account),
}

impl Overlay for HomeDirectories {
    fn name(&self) -> &'static str {
        "homedir"
    }

    fn interests(&self) -> Interests {
        if self.places.is_empty() { Interests::NONE } else { Interests::COMMITTED }
    }

    fn notes(&self, _: &Schema) -> Vec<String> {
        let mut notes = Vec::new();
        if self.places.is_empty() {
            notes.push("overlay homedir: nothing is done; say which values of homeDirectory count with `homedir-regexp REGEXP PATH`".to_owned());
        }
        if self.style == DeleteStyle::Archive && self.archive.is_none() {
            notes.push(
                "homedir-delete-style ARCHIVE has no effect: name a folder with `homedir-archive-path`"
                    .to_owned(),
            );
        }
        notes
    }

    fn committed(&self) -> Option<&dyn Committed> {
        Some(self)
    }
}

impl Committed for HomeDirectories {
    fn begin(&self, _: &Schema, committed: &dyn CommittedEntries) -> Result<(), Failure> {
        self.look_up(committed)
    }

    fn take(&self, batch: &CommittedBatch<'_>) -> Result<(), NotTaken> {
        let Some(committed) = batch.committed else { return Ok(()) };
        let fault = |failure: Failure| NotTaken::yet(failure.into_result().to_string());
        if batch.gap.is_some() || self.lock().is_none() {
            self.look_up(committed).map_err(fault)?;
            // What these were before their changes is not known.
            let mut accounts = self.lock();
            let accounts = accounts.get_or_insert_default();
            batch.changes.iter().for_each(|change| {
                accounts.remove(&change.record.entry_uuid);
            });
        }
        if batch.gap.is_some() {
            self.provide_all(batch);
        }
        for change in batch.changes.iter().filter(|change| self.may_matter(batch.schema, change)) {
            let Some(state) = self.state_behind(batch.schema, committed, change).map_err(fault)? else {
                continue;
            };
            if let Some(problem) = self.settle(change, state) {
                batch.report(problem);
            }
        }
        Ok(())
    }
}

impl HomeDirectories {
    fn lock(&self) -> MutexGuard<'_, Option<HashMap<Uuid, Account>>> {
        // Every change of it is whole.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up which accounts there are, whose directories are taken for made.
    fn look_up(&self, committed: &dyn CommittedEntries) -> Result<(), Failure> {
        let (root, filter) = (NormalDn::root(), BoundFilter::Present(self.names.home.clone()));
        let mut accounts = HashMap::new();
        committed.look(&mut |entries| {
            entries.search(&InternalSearch::new(&root, Scope::Subtree, &filter), &mut |found| {
                if let Some(uuid) = self.uuid_of(found.source())?
                    && let State::Account(account) = self.state_of(found.source())?
                {
                    accounts.insert(uuid, account);
                }
                Ok(true)
            })?;
            Ok(())
        })?;
        *self.lock() = Some(accounts);
        Ok(())
    }

    /// Makes what is missing behind changes that were not seen, as by the first content of a replica. No directory goes.
    fn provide_all(&self, batch: &CommittedBatch<'_>) {
        let accounts: Vec<Account> = self.lock().iter().flat_map(HashMap::values).cloned().collect();
        for why in accounts.iter().filter_map(|account| self.provide(account).err()) {
            batch.report(why);
        }
    }

    /// Whether the change may alter what an entry is to the overlay.
    fn may_matter(&self, schema: &Schema, change: &CommittedChange) -> bool {
        let names = [&self.names.home, &self.names.uid, &self.names.gid];
        let is_ours = |name: &str| {
            schema.describe(name).is_ok_and(|own| names.iter().any(|known| known.attribute == own.attribute))
        };
        match &change.record.change {
            LoggedChange::Add(attributes) => attributes.iter().any(|own| is_ours(&own.description)),
            LoggedChange::Modify(mods) => mods.iter().any(|own| is_ours(&own.attribute.description)),
            LoggedChange::ModifyDn { .. } | LoggedChange::Delete => true,
        }
    }

    /// What the entry of a change is now. `None`: another change says so.
    fn state_behind(
        &self,
        schema: &Schema,
        committed: &dyn CommittedEntries,
        change: &CommittedChange,
    ) -> Result<Option<State>, Failure> {
        let Some(name) = change.name_behind(schema) else { return Ok(Some(State::None)) };
        let mut state = None;
        committed.look(&mut |entries| {
            entries.search(&InternalSearch::new(&name, Scope::Base, &BoundFilter::True), &mut |found| {
                if self.uuid_of(found.source())? == Some(change.record.entry_uuid) {
                    state = Some(self.state_of(found.source())?);
                }
                Ok(false)
            })?;
            Ok(())
        })?;
        Ok(state)
    }

    fn uuid_of(&self, entry: &dyn EntrySource) -> Result<Option<Uuid>, Fault> {
        Ok(first(entry, &self.names.uuid)?.and_then(|text| Uuid::parse_str(&text).ok()))
    }

    fn state_of(&self, entry: &dyn EntrySource) -> Result<State, Fault> {
        let (home, uid, gid) =
            (first(entry, &self.names.home)?, first(entry, &self.names.uid)?, first(entry, &self.names.gid)?);
        if home.is_none() && uid.is_none() && gid.is_none() {
            return Ok(State::None);
        }
        // The greatest number stands for none.
        let number = |text: Option<String>| {
            text.and_then(|text| text.parse::<u32>().ok()).filter(|number| *number < u32::MAX)
        };
        let home = home.and_then(|home| self.places.iter().find_map(|place| place.of(&home)));
        let account = home.zip(number(uid)).zip(number(gid)).filter(|((_, uid), _)| *uid >= self.min_uid);
        Ok(account.map_or(State::Other, |((home, uid), gid)| {
            State::Account(Account { home, owner: Owner { uid, gid } })
        }))
    }

    /// Makes the directory what the entry's state asks for. Answers what went wrong.
    fn settle(&self, change: &CommittedChange, state: State) -> Option<String> {
        let uuid = change.record.entry_uuid;
        let mut lock = self.lock();
        let accounts = lock.get_or_insert_default();
        let before = match &state {
            State::Account(account) => accounts.insert(uuid, account.clone()),
            State::None | State::Other => accounts.remove(&uuid),
        };
        // No account takes away a directory that is another one's, too, or that holds another one's.
        let is_shared = before.as_ref().is_some_and(|before| {
            accounts.iter().any(|(other, account)| *other != uuid && account.home.starts_with(&before.home))
        });
        drop(lock);
        let is_new = matches!(change.record.change, LoggedChange::Add(_));
        let done = match (before, state) {
            (None, State::Account(account)) => self.provide(&account),
            // It was looked up before its own add came: a crash may have come between the add and the directory.
            (Some(before), State::Account(account)) if is_new && before == account => self.provide(&account),
            (Some(before), State::Account(account)) => self.alter(&before, &account, is_shared),
            (Some(before), State::None) if !is_shared => self.take_away(&before, change),
            _ => return None,
        };
        done.err().map(|why| format!("\"{}\": {why}", change.record.dn))
    }

    fn provide(&self, account: &Account) -> Result<(), String> {
        let fault_text = |error: std::io::Error| format!("{} is not made: {error}", account.home.display());
        files::provide(&account.home, &self.skeleton, account.owner).map_err(fault_text)
    }

    fn alter(&self, before: &Account, now: &Account, is_shared: bool) -> Result<(), String> {
        let (from, to) = (&before.home, &now.home);
        if from != to {
            if is_shared || std::fs::symlink_metadata(from).is_err() {
                return self.provide(now);
            }
            let fault_text = |why: &dyn std::fmt::Display| {
                format!("{} is not moved to {}: {why}", from.display(), to.display())
            };
            if std::fs::symlink_metadata(to).is_ok() {
                return Err(fault_text(&"there is something of this name"));
            }
            files::relocate(from, to).map_err(|error| fault_text(&error))?;
        }
        if before.owner != now.owner {
            let fault_text =
                |error: std::io::Error| format!("the owner of {} is not changed: {error}", to.display());
            files::give(to, before.owner, now.owner).map_err(fault_text)?;
        }
        Ok(())
    }

    fn take_away(&self, account: &Account, change: &CommittedChange) -> Result<(), String> {
        let home = &account.home;
        let fault_text =
            |what: &str, error: std::io::Error| format!("{} is not {what}: {error}", home.display());
        if self.style == DeleteStyle::Ignore || std::fs::symlink_metadata(home).is_err() {
            return Ok(());
        }
        if self.style == DeleteStyle::Archive {
            // Nothing is deleted that is not in an archive.
            let Some(folder) = &self.archive else { return Ok(()) };
            let seconds = change.record.csn.time.seconds();
            archive::store(home, folder, seconds)
                .map_err(|error| fault_text("archived, and stays", error))?;
        }
        std::fs::remove_dir_all(home).map_err(|error| fault_text("deleted", error))
    }
}

/// The first value of an attribute, if it is text.
fn first(entry: &dyn EntrySource, description: &AttributeDescription) -> Result<Option<String>, Fault> {
    let mut first = None;
    entry.visit_exact(description, &mut |value| {
        first = std::str::from_utf8(value).ok().map(str::to_owned);
        false
    })?;
    Ok(first)
}

impl PathPattern {
    /// Where a home directory is on this machine; `None`: it is none that is looked after.
    fn of(&self, home: &str) -> Option<PathBuf> {
        let found = self.pattern.captures(home)?;
        let (mut path, mut rest) = (String::new(), self.path.chars());
        while let Some(c) = rest.next() {
            match c {
                '$' => {
                    let number = usize::try_from(rest.next()?.to_digit(10)?).ok()?;
                    path.push_str(found.get(number)?.as_str());
                }
                '\\' => path.push(rest.next()?),
                c => path.push(c),
            }
        }
        is_plain(Path::new(&path)).then(|| PathBuf::from(path))
    }
}

/// Whether a path is absolute and names something below the root, without a way up.
fn is_plain(path: &Path) -> bool {
    let mut parts = path.components();
    let names: Vec<Component<'_>> = match parts.next() {
        Some(Component::RootDir) => parts.collect(),
        _ => return false,
    };
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_));
    !names.is_empty() && names.iter().all(is_name) && !path.as_os_str().as_encoded_bytes().contains(&0)
}
