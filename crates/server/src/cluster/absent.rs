//! Databases in engines that several servers share, in a build without the feature `postgresql`: there are none.

use std::time::Duration;

use larix_configuration::Config;
use larix_engine::Frontend;
use larix_engine::write::known::MissingElement;

#[path = "report.rs"]
mod report;

pub use report::{Checked, Connected, Status};

/// What is said where an engine is asked for.
const ABSENT: &str = "this program has no part for `database kv`: build it with the feature postgresql";

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
pub fn check(_: &Config, _: Option<&str>, _: &mut dyn FnMut(String)) -> Result<Checked, String> {
    Err(ABSENT.to_owned())
}

#[derive(Debug)]
pub(crate) struct Clusters;

impl Clusters {
    pub(crate) fn close(&self) {}
}

#[derive(Debug, Default)]
pub(crate) struct Joining;

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
