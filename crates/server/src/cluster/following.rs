//! How the configuration of this node stands to the one in the engine, and how it becomes that one.
//!
//! The engine has it first: a node that shares its configuration publishes a change before it makes it, and takes over what
//! another one has published. The lines are judged as a whole by the thread that changes the configuration; what cannot be taken over
//! leaves everything as it was, and is tried again with the next generation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larix_configuration::SharedLines;

use super::SharedStore;
use super::published_configuration::{self, PublishedConfiguration, Unreadable};
use crate::configuration_queue::{ConfigurationQueue, FollowedConfiguration, NewestConfiguration};
use crate::log::{Log, LogLevel};

/// What this node's configuration says of what all nodes have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeConfiguration {
    pub(crate) lines: SharedLines,
    /// `node-configuration shared`.
    pub(crate) is_shared: bool,
}

/// How it stands to the engine's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfigurationState {
    pub(crate) is_shared: bool,
    /// The newest generation that this node has seen in the engine; 0: none.
    pub(crate) newest: u64,
    /// The generation that is in force here; 0: none that was published.
    pub(crate) in_force: u64,
    /// Why the newest is not.
    pub(crate) refused: Option<String>,
}

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Following(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    configuration: ConfigurationState,
    /// What was tried last: a generation beside what this node had then.
    tried: Option<(u64, Arc<NodeConfiguration>)>,
    /// Whether the thread that changes the configuration has it.
    under_way: bool,
    last_failure: String,
}

impl Following {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change of it is whole before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state(&self) -> ConfigurationState {
        self.lock().configuration.clone()
    }

    /// This generation is what this node has published, or has anyway.
    pub(super) fn is_at(&self, generation: u64, is_shared: bool) {
        let mut state = self.lock();
        state.configuration =
            ConfigurationState { is_shared, newest: generation, in_force: generation, refused: None };
        state.tried = None;
    }

    /// This node has another configuration and keeps it.
    pub(super) fn differs(&self, generation: u64) {
        let mut state = self.lock();
        let in_force =
            if state.configuration.in_force == generation { 0 } else { state.configuration.in_force };
        state.configuration =
            ConfigurationState { is_shared: false, newest: generation, in_force, refused: None };
    }

    /// What is in the engine cannot be read.
    fn cannot_read(&self, why: &str) -> bool {
        let mut state = self.lock();
        state.configuration.is_shared = true;
        state.configuration.refused = Some(why.to_owned());
        std::mem::replace(&mut state.last_failure, why.to_owned()) != why
    }

    /// Whether this generation is to be tried beside this configuration: not if it was.
    fn begin(&self, generation: u64, own: &Arc<NodeConfiguration>) -> bool {
        let mut state = self.lock();
        state.configuration.is_shared = true;
        state.configuration.newest = generation;
        let is_new = state.tried.as_ref().is_none_or(|(tried, beside)| *tried != generation || beside != own);
        if state.under_way || !is_new {
            return false;
        }
        state.tried = Some((generation, Arc::clone(own)));
        state.under_way = true;
        true
    }

    fn end(&self, generation: u64, refused: Option<&str>) {
        let mut state = self.lock();
        state.under_way = false;
        match refused {
            None => {
                state.configuration.in_force = generation;
                state.configuration.refused = None;
            }
            Some(why) => state.configuration.refused = Some(why.to_owned()),
        }
    }

    /// The thread was not to be had: it is tried with the next look.
    fn put_off(&self) {
        let mut state = self.lock();
        state.under_way = false;
        state.tried = None;
    }
}

/// What it takes to follow.
pub(super) struct Follower {
    pub(super) suffix: String,
    pub(super) following: Arc<Following>,
    pub(super) configuration: Arc<ConfigurationQueue>,
    pub(super) log: Log,
}

impl Follower {
    /// Takes over what another node has published, on another thread, unless this was tried.
    pub(super) fn take_over(
        &self,
        store: &SharedStore,
        published: PublishedConfiguration,
        own: &Arc<NodeConfiguration>,
    ) {
        if published.lines == own.lines {
            return self.following.is_at(published.generation, own.is_shared);
        }
        if !self.following.begin(published.generation, own) {
            return;
        }
        let (store, ending) = (Arc::clone(store), self.ending());
        let newest = move || match published_configuration::newest(&store) {
            Some(PublishedConfiguration { generation, node, version, lines }) => {
                let done =
                    move |outcome| ending.end(generation, &format!("{node} (Larix {version})"), outcome);
                Some(NewestConfiguration { lines, done: Box::new(done) })
            }
            None => {
                ending.following.put_off();
                None
            }
        };
        let request = FollowedConfiguration { suffix: self.suffix.clone(), newest: Box::new(newest) };
        if !self.configuration.follow(request) {
            self.following.put_off();
        }
    }

    fn ending(&self) -> Ending {
        let (following, log, suffix) = (Arc::clone(&self.following), self.log.clone(), self.suffix.clone());
        Ending { following, log, suffix }
    }

    /// What is in the engine cannot be read, and this node keeps what it has.
    pub(super) fn keep(&self, why: &Unreadable) {
        let why = why.to_string();
        if self.following.cannot_read(&why) {
            self.log.warning(format_args!("\"{}\": {why}; what was in force stays", self.suffix));
        }
    }
}

/// Where it is noted what came of a configuration.
struct Ending {
    following: Arc<Following>,
    log: Log,
    suffix: String,
}

impl Ending {
    /// `outcome`: what has changed, if anything has, or why it cannot be.
    fn end(&self, generation: u64, node: &str, outcome: Result<Option<String>, String>) {
        let (log, suffix) = (&self.log, &self.suffix);
        self.following.end(generation, outcome.as_ref().err().map(String::as_str));
        match outcome {
            Ok(None) => {}
            Ok(Some(difference)) => {
                log.notice(format_args!(
                    "\"{suffix}\": the configuration of {node}, generation {generation}, is in force here"
                ));
                difference.lines().for_each(|line| log.line(LogLevel::CONFIG, format_args!("{line}")));
            }
            Err(why) => log.warning(format_args!(
                "\"{suffix}\": the configuration of {node}, generation {generation}, cannot be taken over: {why}; the one before stays, \
                 and the next generation is tried"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_tried_once_beside_what_a_node_has() {
        let following = Following::default();
        let own = Arc::new(NodeConfiguration { is_shared: true, ..NodeConfiguration::default() });
        assert!(following.begin(2, &own));
        assert!(!following.begin(3, &own), "one at a time");
        following.end(2, Some("no"));
        assert!(!following.begin(2, &own), "it is refused again");
        let state = following.state();
        assert_eq!((state.newest, state.in_force, state.refused.as_deref()), (2, 0, Some("no")));
        let lines = SharedLines { head: "sizelimit 1\n".to_owned(), ..SharedLines::default() };
        let other = Arc::new(NodeConfiguration { lines, is_shared: true });
        assert!(following.begin(2, &other), "the node has changed meanwhile");
        following.put_off();
        assert!(following.begin(2, &other), "nobody had it");
        following.end(2, Some("no"));
        assert!(following.begin(3, &other), "the next generation");
        following.end(3, None);
        let state = following.state();
        assert_eq!((state.newest, state.in_force, state.refused), (3, 3, None));
    }
}
