//! The configuration that this node leaves in the engine for others, or takes over from there.

use std::sync::Arc;

use larix_engine::ServedDatabase;
use larix_store::Store as _;

use super::SharedStore;
use super::following::NodeConfiguration;
use super::lease_thread::Holder;
use super::published_configuration::{self, Publishing, Unreadable};
use super::role::Role;

/// What this node has published since it writes, or why it could not.
#[derive(Default)]
pub(super) struct Publication {
    shared: Option<Arc<NodeConfiguration>>,
    last_failure: String,
    /// With which commit this node's own was compared with what another one has published, what it was, and the generation that differed.
    compared_at: u64,
    compared_with: Option<Arc<NodeConfiguration>>,
    differing_generation: u64,
}

impl Holder {
    /// Leaves in the engine what nodes that join need of the configuration, if this node writes and has not done so.
    pub(super) fn publish_configuration(
        &self,
        served: &ServedDatabase<SharedStore>,
        role: &Role,
        publication: &mut Publication,
    ) {
        let shared = self.opening.shared();
        if *role != Role::Leader {
            publication.shared = None;
            return self.compare_configuration(served, &shared, publication);
        }
        if publication.shared.as_ref() == Some(&shared) {
            return;
        }
        let suffix = &self.suffix;
        let store = served.database().store();
        if shared.is_shared {
            // The engine has it first: what is there already counts, and a change of this node's is there before it is made.
            match store
                .snapshot()
                .map_err(|error| error.to_string())
                .and_then(|snapshot| published_configuration::read(&snapshot))
            {
                Ok(Some(Ok(published))) => {
                    if published.lines == shared.lines {
                        publication.shared = Some(Arc::clone(&shared));
                    }
                    return self.follower.take_over(store, published, &shared);
                }
                Ok(Some(Err(newer @ Unreadable::Newer { .. }))) => return self.follower.keep(&newer),
                Ok(Some(Err(Unreadable::Damaged)) | None) => {}
                // It is asked for again with the next look.
                Err(_) => return,
            }
        }
        let generation = match published_configuration::publish(store, &self.node, &shared.lines) {
            Ok(Publishing::Same(generation)) => generation,
            Ok(Publishing::Replaced { generation, node: None }) => {
                self.log.notice(format_args!(
                    "\"{suffix}\": nodes that join get this node's configuration (generation {generation})"
                ));
                generation
            }
            Ok(Publishing::Replaced { generation, node: Some(other) }) => {
                self.log.warning(format_args!(
                    "\"{suffix}\": this node's configuration is another than that of {other}; nodes that join get this one \
                     (generation {generation})"
                ));
                generation
            }
            Err(why) => {
                if why != publication.last_failure {
                    self.log.warning(format_args!("\"{suffix}\": the configuration is not published: {why}"));
                    publication.last_failure = why;
                }
                return;
            }
        };
        publication.last_failure.clear();
        self.follower.following.is_at(generation, shared.is_shared);
        publication.shared = Some(shared);
    }

    /// Takes over what another node has published; one that keeps a configuration of its own says once for each generation that it differs.
    fn compare_configuration(
        &self,
        served: &ServedDatabase<SharedStore>,
        shared: &Arc<NodeConfiguration>,
        publication: &mut Publication,
    ) {
        let store = served.database().store();
        let newest = store.commit_counter();
        if publication.compared_at == newest && publication.compared_with.as_ref() == Some(shared) {
            return;
        }
        // What cannot be read is looked at again with the next commit.
        let found = store.snapshot().map_err(|error| error.to_string());
        let published = match found.and_then(|snapshot| published_configuration::read(&snapshot)) {
            Ok(Some(Ok(published))) => published,
            Ok(Some(Err(why))) if shared.is_shared => return self.follower.keep(&why),
            _ => return,
        };
        if shared.is_shared {
            // Until it is in force each look asks again.
            if published.lines == shared.lines {
                (publication.compared_at, publication.compared_with) = (newest, Some(Arc::clone(shared)));
            }
            return self.follower.take_over(store, published, shared);
        }
        (publication.compared_at, publication.compared_with) = (newest, Some(Arc::clone(shared)));
        if published.lines == shared.lines {
            return self.follower.following.is_at(published.generation, false);
        }
        self.follower.following.differs(published.generation);
        if publication.differing_generation == published.generation {
            return;
        }
        publication.differing_generation = published.generation;
        self.log.warning(format_args!(
            "\"{}\": this node's configuration is another than that of {}, which nodes that join get (generation {})",
            self.suffix, published.node, published.generation
        ));
    }
}
