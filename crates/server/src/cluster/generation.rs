//! The databases in shared engines of one generation of the configuration, and what becomes of those of the one before.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use larix_engine::access::{AccessPolicy, OtherEntries};
use larix_engine::write::known::MissingElement;
use larix_engine::writer::Reconfiguration;
use larix_engine::{Directory, Frontend, ServedDatabase};
use larix_replication::provider::Behind;

use super::other_databases::AllDatabases;
use super::{Node, NodeConfiguration, NodeFigures, NodeParameters, SharedStore};

/// A database in a shared engine.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) node: Arc<Node>,
    pub(crate) directory: Arc<OwnDirectory>,
}

/// A generation's directory of one database alone. It is made once the database is open.
#[derive(Debug)]
pub(crate) struct OwnDirectory {
    frontend: Frontend,
    /// The rules that the database comes to have with this generation, if it had others.
    policy: Option<Arc<AccessPolicy>>,
    databases: Arc<AllDatabases>,
    made: OnceLock<Option<Arc<Directory<SharedStore>>>>,
}

impl OwnDirectory {
    fn new(frontend: Frontend, policy: Option<Arc<AccessPolicy>>, databases: Arc<AllDatabases>) -> Self {
        Self { frontend, policy, databases, made: OnceLock::new() }
    }

    /// None where the schema lacks the system's elements, which no generation comes to.
    pub(crate) fn of(
        &self,
        served: &Arc<ServedDatabase<SharedStore>>,
    ) -> Option<&Arc<Directory<SharedStore>>> {
        let make = || {
            // Before the directory lets the rules see itself alone.
            let see = |policy: &AccessPolicy| {
                policy.see_others(Arc::clone(&self.databases) as Arc<dyn OtherEntries>)
            };
            see(&served.database().policy());
            self.policy.iter().for_each(|policy| see(policy));
            let directory = Directory::new(self.frontend.clone(), vec![Arc::clone(served)]).ok()?;
            Some(Arc::new(directory))
        };
        self.made.get_or_init(make).as_ref()
    }
}

/// The databases in shared engines of a generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clusters(Vec<Cluster>, Arc<AllDatabases>);

impl Clusters {
    /// The one whose first suffix has this normal form.
    pub(crate) fn of_suffix(&self, suffix: &str) -> Option<&Cluster> {
        self.0.iter().find(|cluster| cluster.node.suffix == suffix)
    }

    /// Lets the access rules see the entries of stored databases.
    pub(crate) fn see_stored(&self, stored: Arc<dyn OtherEntries>) {
        self.1.set_stored(stored);
    }

    /// Lets rules for operations see the entries of all databases, those in shared engines included, if there are any. Requests are checked on
    /// threads that may wait then ([`crate::connection::RemoteLookups::Rules`]). Whether there are any.
    pub(crate) fn let_see(&self, policy: &AccessPolicy) -> bool {
        if self.0.is_empty() {
            return false;
        }
        policy.see_others(Arc::clone(&self.1) as Arc<dyn OtherEntries>);
        true
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Cluster> {
        self.0.iter()
    }

    /// The suffixes of those whose engine had no room for a change of this server.
    pub(crate) fn without_room(&self) -> Vec<String> {
        let full = self.0.iter().filter(|cluster| cluster.node.lacks_room());
        full.map(|cluster| cluster.node.suffix.clone()).collect()
    }

    /// Gives up the leases and takes no more changes.
    pub(crate) fn close(&self) {
        self.0.iter().for_each(|cluster| cluster.node.close());
    }

    fn has(&self, node: &Arc<Node>) -> bool {
        self.0.iter().any(|cluster| Arc::ptr_eq(&cluster.node, node))
    }
}

/// The databases of a generation that is made ready; each with what it is to follow if it was there before, and what other nodes need.
#[derive(Debug, Default)]
pub(crate) struct Joining(Vec<(Arc<Node>, Option<Reconfiguration>, NodeConfiguration)>);

impl Joining {
    /// Takes part in a database. `alike`: what is configured of it is as it was before.
    ///
    /// # Errors
    /// The engine cannot be reached, refuses, or holds something else.
    pub(crate) fn join(
        &mut self,
        nodes: &Nodes,
        parameters: NodeParameters<'_>,
        alike: bool,
    ) -> Result<(), String> {
        let (schema, settings) = (Arc::clone(&parameters.schema), parameters.database.clone());
        let (environment, shared) = (parameters.environment.clone(), parameters.shared.clone());
        let (node, is_kept) = nodes.of(parameters)?;
        // What stays as it was goes on writing without a pause.
        let next = (is_kept && !alike).then(|| Reconfiguration { schema, settings, environment });
        self.0.push((node, next, shared));
        Ok(())
    }

    /// The generation, and what is left to do when it takes the place of `earlier`.
    ///
    /// # Errors
    /// What the databases show beside the schema's definitions contradicts them.
    pub(crate) fn complete(
        self,
        frontend: &Frontend,
        earlier: Option<&Clusters>,
    ) -> Result<(Clusters, Turnover), MissingElement> {
        let (mut clusters, mut turnover) = (Clusters::default(), Turnover::default());
        clusters.1.set_nodes(self.0.iter().map(|(node, ..)| node));
        for (node, next, shared) in self.0 {
            turnover.shared.push((Arc::clone(&node), shared));
            let policy = next.as_ref().and_then(|next| next.settings.policy.clone());
            let directory = Arc::new(OwnDirectory::new(frontend.clone(), policy, Arc::clone(&clusters.1)));
            if let Some(next) = next {
                // Before the rules are in force.
                node.served().and_then(|served| directory.of(served));
                turnover.renewed.push((Arc::clone(&node), next));
            }
            clusters.0.push(Cluster { node, directory });
        }
        let before = earlier.into_iter().flat_map(|earlier| &earlier.0).map(|cluster| &cluster.node);
        let next = |node: &Node| clusters.of_suffix(&node.suffix).map(|cluster| Arc::clone(&cluster.node));
        let parted = before.filter(|node| !clusters.has(node)).map(|node| (Arc::clone(node), next(node)));
        turnover.parted = parted.collect();
        Ok((clusters, turnover))
    }
}

/// What is left to do when a generation takes the place of another.
#[derive(Debug, Default)]
pub(crate) struct Turnover {
    /// Nodes that stay, and what their databases follow from then on.
    renewed: Vec<(Arc<Node>, Reconfiguration)>,
    /// What other nodes need of the configuration.
    shared: Vec<(Arc<Node>, NodeConfiguration)>,
    /// Nodes that the configuration has no more, each with the one that has its database now, if any.
    parted: Vec<(Arc<Node>, Option<Arc<Node>>)>,
}

impl Turnover {
    pub(crate) fn settle(self) {
        self.shared.into_iter().for_each(|(node, shared)| node.share(shared));
        self.renewed.into_iter().for_each(|(node, next)| node.reconfigure(next));
        self.parted.iter().for_each(|(node, next)| node.retire(next.as_deref()));
    }
}

/// The nodes of this server, the newest last. One that was made for a configuration which then was refused is gone, and the one that it was to
/// take the place of is there as before.
#[derive(Debug, Default)]
pub(crate) struct Nodes(Mutex<Vec<Weak<Node>>>);

impl Nodes {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Node>>> {
        // The list is whole at every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that there are, the newest first.
    fn all(&self) -> Vec<Arc<Node>> {
        self.lock().iter().rev().filter_map(Weak::upgrade).collect()
    }

    /// The numbers of all, by suffix.
    pub(crate) fn figures(&self) -> Vec<NodeFigures> {
        let mut all = self.all();
        all.sort_by(|a, b| a.suffix.cmp(&b.suffix));
        all.dedup_by(|older, newer| older.suffix == newer.suffix);
        all.iter().map(|node| node.figures()).collect()
    }

    /// What is behind a place in the log of the database of this instance, as far as the node that has it has looked.
    pub(crate) fn behind(&self, instance: u64, position: u64) -> Option<Behind> {
        let of =
            |node: &&Arc<Node>| node.served().is_some_and(|served| served.database().instance() == instance);
        self.all().iter().find(of)?.lags.behind(position)
    }

    /// The node that there is for this database, opened alike, or a new one; whether it was there.
    ///
    /// # Errors
    /// The engine cannot be reached, refuses, or holds something else; no thread is left.
    fn of(&self, parameters: NodeParameters<'_>) -> Result<(Arc<Node>, bool), String> {
        let all = self.all();
        let mut alike = all.iter().filter(|node| node.suffix == parameters.suffix);
        let before = alike.next();
        let is_it = |node: &&Arc<Node>| {
            node.settings.opens_as(parameters.settings)
                && !node.role.has_ended()
                && node.served().is_none_or(|served| !served.is_retired())
        };
        if let Some(node) = before.into_iter().chain(alike).find(is_it) {
            return Ok((Arc::clone(node), true));
        }
        let node = Arc::new(Node::start(parameters)?);
        before.into_iter().for_each(|before| node.role.succeed(&before.role));
        let mut known = self.lock();
        known.retain(|node| node.strong_count() > 0);
        known.push(Arc::downgrade(&node));
        drop(known);
        Ok((node, false))
    }
}
