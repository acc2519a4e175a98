//! The tables of a database and the keys that are shared between modules (`docs/disk-format.md`).

use larix_store::{TableId, TableKind, TableSpec};

/// Facts about the database itself; keys are in [`meta`].
pub const META: TableId = TableId(0);
/// The catalog: attribute number (u32, big-endian) -> catalog row.
pub const ATTRIBUTES: TableId = TableId(1);
/// Entry id (u64, big-endian) -> record.
pub const ENTRIES: TableId = TableId(2);
/// Parent id (u64, big-endian) ++ normalized RDN -> entry id (u64, big-endian).
pub const TREE: TableId = TableId(3);
/// Index key -> posting list of entry ids.
pub const INDEX: TableId = TableId(4);
/// Entry id ++ attribute number ++ member key -> value, for attributes too large for the record.
pub const VALUES: TableId = TableId(5);
/// Entry id ++ digest -> value, for values too large for the record.
pub const BLOBS: TableId = TableId(6);
/// The change log.
pub const LOG: TableId = TableId(7);

/// Entry id (u64, big-endian) -> substring keys that are not in the index yet.
pub const PENDING: TableId = TableId(8);

/// What replication remembers of entries that are not there: [`crate::replica`].
pub const REPLICA: TableId = TableId(9);

/// What a store is opened with.
pub const TABLES: [TableSpec; 10] = [
    TableSpec { id: META, name: "meta", kind: TableKind::Ordered },
    TableSpec { id: ATTRIBUTES, name: "attributes", kind: TableKind::Ordered },
    TableSpec { id: ENTRIES, name: "entries", kind: TableKind::Integer },
    TableSpec { id: TREE, name: "tree", kind: TableKind::Ordered },
    TableSpec { id: INDEX, name: "index", kind: TableKind::Postings },
    TableSpec { id: VALUES, name: "values", kind: TableKind::Ordered },
    TableSpec { id: BLOBS, name: "blobs", kind: TableKind::Ordered },
    TableSpec { id: LOG, name: "log", kind: TableKind::Ordered },
    TableSpec { id: PENDING, name: "pending", kind: TableKind::Integer },
    TableSpec { id: REPLICA, name: "replica", kind: TableKind::Ordered },
];

/// Keys of the table `meta`. Numbers are stored big-endian.
pub mod meta {
    /// u32: the number of the disk format.
    pub const FORMAT: &[u8] = b"format";
    /// u64: the highest entry id ever given.
    pub const LAST_ENTRY_ID: &[u8] = b"last-entry-id";
    /// u64: grows with every rename, move and delete; caches of the tree are valid within one generation.
    pub const TREE_GENERATION: &[u8] = b"tree-generation";
    /// With a number of four hexadecimal digits behind it: a dictionary of packed records.
    pub const DICTIONARY: &[u8] = b"dictionary/";
    /// Empty: written by a bind that failed and changed nothing, which takes as long as one that is counted.
    pub const FAILED_BIND: &[u8] = b"failed-bind";
    /// 32 random bytes: authenticates paged results cookies across restarts.
    pub const COOKIE_SECRET: &[u8] = b"cookie-secret";
    /// 16 random bytes: which history the change log tells. Another one, or none, after changes that are not in the log.
    pub const LOG_HISTORY: &[u8] = b"log-history";
    /// Empty: the first content is being stored. After a fill that was broken off the reader of this note throws away what there
    /// is.
    pub const FILLING: &[u8] = b"filling";
    /// Empty: content came from a provider that has not said yet what it stands for. It is not ours to claim.
    pub const UNPROVED: &[u8] = b"unproved";
    /// Empty: a provider sent the states of entries, which are kept since.
    pub const STATES_KEPT: &[u8] = b"states-kept";
    /// Begins the rows that say how far overlays have come in the change log; behind it is the overlay's name.
    pub const FOLLOWER: &[u8] = b"follower/";
    /// In a shared store: what its nodes have in common of their configurations, as the node that writes has it.
    pub const NODE_CONFIGURATION: &[u8] = b"node-configuration";
    /// u16: in a shared store: the server id that the node that writes gives the changes that it logs. None where it logs none.
    pub const LOGGED_UNDER: &[u8] = b"logged-under";
    /// Text: the version of Larix that last brought the store to its format.
    pub const WRITTEN_BY: &[u8] = b"written-by";
    /// Indexes that are being built or cleared, and how far that is; none when nothing is.
    pub const INDEX_WORK: &[u8] = b"index-work";
    /// For which rules the back links of all entries are right, or how far that is: `crate::write::back_link_walk`.
    pub const BACK_LINKS: &[u8] = b"memberships";
}

/// The disk format that this code writes.
pub const FORMAT: u32 = 5;
/// What it writes to a store that has [several writers](larix_store::Store::SHARED), where each contextCSN has its row.
pub const FORMAT_SHARED: u32 = 4;
/// The oldest disk format that this code reads; a store opened for writing becomes [`FORMAT`]. Before 2 there were no
/// packed records, before 3 no table [`PENDING`], before 4 no history of the change log, and before 5 its last record did not say
/// what the contextCSN is.
pub const FORMAT_OLDEST: u32 = 1;
