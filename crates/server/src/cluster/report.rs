//! What `larix cluster` prints.

use std::time::Duration;

/// How an engine stands.
#[derive(Clone, Debug)]
pub struct Status {
    /// The node that holds the lease, and how long it still does.
    pub leader: Option<(String, Duration)>,
    pub epoch: u64,
    /// The newest commit.
    pub commit: u64,
    /// The generation of the configuration that nodes that join get, and the node that it is from.
    pub configuration: Option<(u64, String)>,
    /// The nodes that the engine knows of, in the order of their URLs.
    pub nodes: Vec<KnownNode>,
    pub connected: Vec<EngineClient>,
}

/// A node that the engine knows of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownNode {
    /// Its URL; PostgreSQL cuts that of one that says nothing.
    pub node: String,
    /// How long ago it was heard of last; none: it is connected, and of a version that says nothing of itself.
    pub heard: Option<Duration>,
    /// What it says of itself; none: nothing that this version reads.
    pub report: Option<NodeReport>,
}

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// Of its server.
    pub version: String,
    /// `node-configuration shared`.
    pub is_shared: bool,
    /// The newest generation of the nodes' configuration that it has seen; 0: none.
    pub newest: u64,
    /// The generation that is in force there; 0: none that was published, or not since it started.
    pub in_force: u64,
    /// Why the newest is not.
    pub refused: Option<String>,
}

/// A server or a tool with connections to the engine.
#[derive(Clone, Debug)]
pub struct EngineClient {
    pub name: String,
    pub connections: u64,
}

/// What was checked.
#[derive(Copy, Clone, Debug)]
pub struct CheckedContent {
    pub commit: u64,
    pub entries: u64,
}

/// What a node lost when it was removed.
#[derive(Copy, Clone, Debug)]
pub struct RemovedNode {
    pub held_lease: bool,
    /// Connections to the engine.
    pub connections: u64,
}
