//! Databases in engines that several servers share, in a build without the features `postgresql` and `etcd`: there are none.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use larix_configuration::{Config, Database as Section};
use larix_engine::access::{AccessPolicy, OtherEntries};
use larix_engine::write::known::MissingElement;
use larix_engine::{Database, Frontend};
use larix_store::lmdb::LmdbStore;

#[path = "report.rs"]
mod report;

pub use report::{CheckedContent, EngineClient, KnownNode, NodeReport, RemovedNode, Status};

/// A configuration that a node has published.
#[derive(Clone, Debug)]
pub struct PublishedConfiguration {
    pub generation: u64,
    pub version: String,
    pub node: String,
}

/// # Errors
/// Always.
pub fn published(_: &str, _: &str, _: &str) -> Result<PublishedConfiguration, String> {
    Err(ABSENT.to_owned())
}

/// Of none.
pub fn configuration_of_node(
    _: &PublishedConfiguration,
    _: &str,
    _: &str,
    _: Option<(&Path, &Path)>,
) -> String {
    String::new()
}

/// # Errors
/// Always.
pub fn check_joined(_: &Config) -> Result<(), String> {
    Err(ABSENT.to_owned())
}

/// # Errors
/// Always.
pub fn check_node(_: &str) -> Result<(), String> {
    Err(ABSENT.to_owned())
}

/// # Errors
/// Always.
pub fn check_kept(_: &Config, _: &str, _: &str, _: &str) -> Result<(), String> {
    Err(ABSENT.to_owned())
}

/// What is said where an engine is asked for.
const ABSENT: &str =
    "this program has no part for `database kv`: build it with the feature postgresql or etcd";

/// # Errors
/// Always.
pub fn status(_: &Config, _: Option<&str>) -> Result<Status, String> {
    Err(ABSENT.to_owned())
}

/// # Errors
/// Always.
pub fn step_down(_: &Config, _: Option<&str>, _: Duration) -> Result<Option<String>, String> {
    Err(ABSENT.to_owned())
}

/// # Errors
/// Always.
pub fn check(_: &Config, _: Option<&str>, _: &mut dyn FnMut(String)) -> Result<CheckedContent, String> {
    Err(ABSENT.to_owned())
}

/// # Errors
/// Always.
pub fn remove(_: &Config, _: Option<&str>, _: &str, _: Duration) -> Result<RemovedNode, String> {
    Err(ABSENT.to_owned())
}

/// Stands for the store of an engine.
pub type ToolStore = LmdbStore;

/// # Errors
/// Always.
pub fn open_to_read(_: &Config, _: &Section) -> Result<Database<ToolStore>, String> {
    Err(ABSENT.to_owned())
}

/// Stands for a database that a tool writes.
#[derive(Debug)]
pub struct ToolWriter(Arc<Database<ToolStore>>);

impl ToolWriter {
    /// # Errors
    /// Always.
    pub fn open(_: &Config, _: &Section, _: &str) -> Result<Self, String> {
        Err(ABSENT.to_owned())
    }

    /// The database.
    pub fn database(&self) -> &Arc<Database<ToolStore>> {
        &self.0
    }

    /// # Errors
    /// Never.
    pub fn end_history(&self) -> Result<(), String> {
        Ok(())
    }

    /// # Errors
    /// Never.
    pub fn still_writes(&self) -> Result<(), String> {
        Ok(())
    }

    /// # Errors
    /// Always.
    pub fn look(_: &Config, _: &Section) -> Result<Option<Database<ToolStore>>, String> {
        Err(ABSENT.to_owned())
    }
}

/// # Errors
/// Never.
pub fn whole() -> Result<(), String> {
    Ok(())
}

/// Never.
pub(crate) fn take_missed_read() -> bool {
    false
}

#[derive(Debug)]
pub(crate) struct Clusters;

impl Clusters {
    pub(crate) fn see_stored(&self, _: Arc<dyn OtherEntries>) {}

    pub(crate) fn let_see(&self, _: &AccessPolicy) -> bool {
        false
    }

    pub(crate) fn without_room(&self) -> Vec<String> {
        Vec::new()
    }

    pub(crate) fn close(&self) {}
}

#[derive(Debug, Default)]
pub(crate) struct Joining {}

impl Joining {
    pub(crate) fn complete(
        self,
        _: &Frontend,
        _: Option<&Clusters>,
    ) -> Result<(Clusters, Turnover), MissingElement> {
        Ok((Clusters, Turnover))
    }
}

#[derive(Debug)]
pub(crate) struct Turnover;

impl Turnover {
    pub(crate) fn settle(self) {}
}
