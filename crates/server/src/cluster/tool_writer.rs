//! A tool that writes into a shared engine: it holds the lease as a node does, so that no node writes meanwhile.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use larix_configuration::{Config, Database as Section, KvSettings};
use larix_engine::Database;
use larix_engine::database::DatabaseOpenError;
use larix_engine::tables::TABLES;
use larix_kv::{KvOptions, KvStore, Lease, OpenError, take_read_fault};

use super::foreign_content::why_foreign;
use super::logged;
use super::tool::{ToolStore, text, tool_options};
use crate::clock::SystemRandom;

/// The lease of a tool lasts so long at least: one that is killed keeps the nodes from writing until it ends.
const LEASE_LEAST: Duration = Duration::from_secs(10);
/// It is renewed so many times while it lasts.
const RENEWALS: u32 = 5;
/// Reads, the load itself and what lies in between.
const CONNECTIONS: usize = 4;

/// A database in a shared engine that this process alone writes, until it is dropped.
#[derive(Debug)]
pub struct ToolWriter {
    database: Arc<Database<ToolStore>>,
    renewal: Renewal,
}

/// The thread that renews the lease.
#[derive(Debug)]
struct Renewal {
    store: ToolStore,
    ended: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl ToolWriter {
    /// Opens the database, and makes it if the engine does not have it yet. `tool` is its name, for those who look who writes.
    ///
    /// # Errors
    /// The engine cannot be asked; a node or another tool writes; the entries there are those of another directory.
    pub fn open(config: &Config, section: &Section, tool: &str) -> Result<Self, String> {
        let settings = section.kind.settings::<KvSettings>().ok_or("the database is in no engine")?;
        let address = &settings.engine.as_ref().ok_or("the database has no `engine`")?.address;
        let name = format!("{tool} (process {})", std::process::id());
        let options = KvOptions {
            make: true,
            connections: CONNECTIONS,
            name: format!("larix {name} {}", settings.schema),
            ..tool_options(&settings.schema)
        };
        take_read_fault();
        let store =
            KvStore::open(address, &TABLES, &options).map_err(|error| format!("{address}: {error}"))?;
        let renewal = Renewal::begin(Arc::new(store), &name, settings.lease.max(LEASE_LEAST))
            .map_err(|why| format!("{address}: {why}"))?;
        let database =
            take_over(config, section, &renewal.store).map_err(|why| format!("{address}: {why}"))?;
        Ok(Self { database: Arc::new(database), renewal })
    }

    /// The database.
    pub fn database(&self) -> &Arc<Database<ToolStore>> {
        &self.database
    }

    /// To be called before entries are changed: that is not in the change log, so that its history ends.
    ///
    /// # Errors
    /// The engine cannot be reached, or somebody else writes.
    pub fn end_history(&self) -> Result<(), String> {
        logged::settle(&self.renewal.store, None, &SystemRandom).map_err(text)
    }

    /// To be asked behind an error: one that comes of a lost lease does not say so.
    ///
    /// # Errors
    /// Somebody else writes now.
    pub fn still_writes(&self) -> Result<(), String> {
        match self.renewal.store.lease() {
            Ok(Lease { leader: Some(leader), is_own: false, .. }) => Err(format!(
                "{leader} has taken over the right to write, because this tool did not renew it in time: it was stopped for a while, or the engine \
                 answered too late. What was not committed before is not there"
            )),
            // What cannot be asked explains nothing.
            _ => Ok(()),
        }
    }

    /// Opens the database for a look at what it holds; `None` where the engine does not have it yet.
    ///
    /// # Errors
    /// The engine cannot be asked.
    pub fn look(config: &Config, section: &Section) -> Result<Option<Database<ToolStore>>, String> {
        let settings = section.kind.settings::<KvSettings>().ok_or("the database is in no engine")?;
        let address = &settings.engine.as_ref().ok_or("the database has no `engine`")?.address;
        take_read_fault();
        let store = match KvStore::open(address, &TABLES, &tool_options(&settings.schema)) {
            Ok(store) => Arc::new(store),
            Err(OpenError::NotAStore { .. }) => return Ok(None),
            Err(error) => return Err(format!("{address}: {error}")),
        };
        let settings = config.engine_settings(section).map_err(text)?;
        match Database::open(store, Arc::clone(&config.schema), settings, &SystemRandom) {
            Ok(database) => Ok(Some(database)),
            Err(DatabaseOpenError::Empty) => Ok(None),
            Err(error) => Err(format!("{address}: {error}")),
        }
    }
}

impl Drop for ToolWriter {
    fn drop(&mut self) {
        self.renewal.store.resign();
    }
}

/// Fences everybody else off.
fn take_over(config: &Config, section: &Section, store: &ToolStore) -> Result<Database<ToolStore>, String> {
    store.take_over().map_err(text)?;
    let settings = config.engine_settings(section).map_err(text)?;
    let database = Database::open(Arc::clone(store), Arc::clone(&config.schema), settings, &SystemRandom);
    let database = database.map_err(text)?;
    if let Some(why) = why_foreign(&database).map_err(text)? {
        return Err(why);
    }
    Ok(database)
}

impl Renewal {
    fn begin(store: ToolStore, name: &str, lease: Duration) -> Result<Self, String> {
        if !store.hold_lease(name, lease).map_err(text)? {
            return Err(match store.lease().map_err(text)?.leader {
                Some(leader) if leader.starts_with("ldap") => format!(
                    "{leader} writes: change entries there (ldapadd, ldapmodify, ldapdelete; it makes indexes by itself), or stop the nodes first"
                ),
                Some(leader) => {
                    format!("{leader} writes, or was killed and keeps others away for some seconds more")
                }
                None => "somebody else has just begun to write: try again".to_owned(),
            });
        }
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let thread = std::thread::Builder::new().name("lease".to_owned()).spawn({
            let (store, ended, name) = (Arc::clone(&store), Arc::clone(&ended), name.to_owned());
            move || {
                let (ended, changed) = &*ended;
                let mut is_ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                while !*is_ended {
                    let waited = changed.wait_timeout_while(is_ended, lease / RENEWALS, |ended| !*ended);
                    is_ended = waited.unwrap_or_else(PoisonError::into_inner).0;
                    if !*is_ended {
                        drop(is_ended);
                        // If it is lost, the fence refuses what is written.
                        let _held = store.hold_lease(&name, lease);
                        is_ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                    }
                }
            }
        });
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Self { store, ended, thread: Some(thread) })
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        let (ended, changed) = &*self.ended;
        *ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ended = thread.join();
        }
        // Without it the nodes wait for the lease's end.
        let _released = self.store.release_lease();
    }
}
