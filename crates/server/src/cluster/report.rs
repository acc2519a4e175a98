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
    pub connected: Vec<Connected>,
}

/// A server or a tool with connections to the engine.
#[derive(Clone, Debug)]
pub struct Connected {
    pub name: String,
    pub connections: u64,
}

/// What was checked.
#[derive(Copy, Clone, Debug)]
pub struct Checked {
    pub commit: u64,
    pub entries: u64,
}

/// What a node lost when it was removed.
#[derive(Copy, Clone, Debug)]
pub struct Removed {
    pub held_lease: bool,
    /// Connections to the engine.
    pub connections: u64,
}
