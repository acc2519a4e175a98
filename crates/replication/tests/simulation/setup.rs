//! What is simulated: kinds of servers, and how they stand to each other.

/// What of the tree is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    /// Entries without subordinates alone come and go.
    Leaves,
    /// Containers, too.
    Containers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) tree: Tree,
    /// Conflicts are settled value by value.
    pub(crate) values: bool,
    /// Some lines leave commits unsynced (`lazycommit`), and machines die.
    pub(crate) lossy: bool,
    /// Members have two databases that are one content. Others have all of it in one.
    pub(crate) glued: bool,
    /// Members keep access logs, which shadows follow.
    pub(crate) delta: bool,
    /// Members follow each other's, too.
    pub(crate) delta_ring: bool,
    /// Some of their lines follow entries.
    pub(crate) mixed: bool,
    /// A single server takes changes.
    pub(crate) alone: bool,
}

impl Setup {
    /// Servers that take changes, with conflicts settled by entries.
    pub(crate) const fn of(tree: Tree) -> Self {
        Self {
            tree,
            values: false,
            lossy: false,
            glued: false,
            delta: false,
            delta_ring: false,
            mixed: false,
            alone: false,
        }
    }
}
