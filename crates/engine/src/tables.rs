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
/// Server id (u16, big-endian) ++ sequence (u64, big-endian) -> record of the change log.
pub const LOG: TableId = TableId(7);
/// Entry id (u64, big-endian) -> substring keys that are not in the index yet.
pub const PENDING: TableId = TableId(8);
/// What replication remembers beside the entries: `crate::replica_state`.
pub const REPLICA: TableId = TableId(9);

/// What a store is opened with.
pub const TABLES: [TableSpec; 10] = [
    TableSpec::new(META, "meta", TableKind::Ordered),
    TableSpec::new(ATTRIBUTES, "attributes", TableKind::Ordered),
    TableSpec::new(ENTRIES, "entries", TableKind::Integer),
    TableSpec::new(TREE, "tree", TableKind::Ordered),
    TableSpec::new(INDEX, "index", TableKind::Postings),
    TableSpec::new(VALUES, "values", TableKind::Ordered),
    TableSpec::new(BLOBS, "blobs", TableKind::Ordered),
    TableSpec::new(LOG, "log", TableKind::Ordered).appended(),
    TableSpec::new(PENDING, "pending", TableKind::Integer),
    TableSpec::new(REPLICA, "replica", TableKind::Ordered),
];

/// All keys of the table `meta`. Numbers are stored big-endian.
pub mod meta {
    /// u32: the number of the disk format.
    pub const FORMAT: &[u8] = b"format";
    /// u64: the highest entry id ever given.
    pub const LAST_ENTRY_ID: &[u8] = b"last-entry-id";
    /// u64: grows with every rename, move and delete; caches of the tree are valid within one generation.
    pub const TREE_GENERATION: &[u8] = b"tree-generation";
    /// With a number of four hexadecimal digits behind it: a dictionary of packed records.
    pub const DICTIONARY: &[u8] = b"dictionary/";
    /// u64: the last of the entries that the load made its dictionary of.
    pub const DICTIONARY_SAMPLED: &[u8] = b"dictionary-sampled";
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
    /// With a server id and a sequence behind it: how far all servers had come at that record of the change log.
    pub const LOG_MARK: &[u8] = b"log-mark/";
    /// The following, with a server id of three hexadecimal digits behind them: CSNs of that server as text. Its contextCSN.
    pub const CONTEXT_CSN: &[u8] = b"context-csn/";
    /// Up to which a pass over another server's content brought what there is: the log does not prove that it has all deletes.
    pub const CONTENT_CSN: &[u8] = b"content-csn/";
    /// Up to which entries came as they are rather than change by change.
    pub const WHOLE_CSN: &[u8] = b"whole-csn/";
    /// Before which a cookie may be of an access log that lacked changes of this database.
    pub const DOUBTED_CSN: &[u8] = b"doubted-csn/";
    /// The contextCSN that it had when it was retired.
    pub const RETIRED: &[u8] = b"retired/";
    /// The name of a line and `/` come before the server id: up to which that line has brought its part of the database.
    pub const PART_CSN: &[u8] = b"part-csn/";
    /// Text: the CSN of the latest removal of a value that the table `replica` no longer has.
    pub const FORGOTTEN_REMOVAL: &[u8] = b"forgotten-removal";
    /// In the database of an access log, with the name of a source behind it: how far the log is derived from its changes.
    pub const ACCESS_LOG: &[u8] = b"access-log/";
    /// In the database of an access log: up to where the log lacks changes, CSNs with `;` between them.
    pub const ACCESS_LOG_LACKS: &[u8] = b"access-log-lacks";
    /// In the database of an access log: the last changes that the log has gone past, CSNs with `;` between them.
    pub const ACCESS_LOG_LEFT_OUT: &[u8] = b"access-log-left-out";
    /// In the database of an access log that several servers write by turns: each commit of records counts it up.
    pub const ACCESS_LOG_TURN: &[u8] = b"access-log-turn";
    /// In a shared store: what its nodes have in common of their configurations, as the node that writes has it.
    pub const NODE_CONFIGURATION: &[u8] = b"node-configuration";
    /// u16: in a shared store: the server id that the node that writes gives the changes that it logs. None where it logs none.
    pub const LOGGED_UNDER: &[u8] = b"logged-under";
    /// Text: the version of Larix that last brought the store to its format.
    pub const WRITTEN_BY: &[u8] = b"written-by";
    /// Indexes that are being built or cleared, and how far that is; none when nothing is.
    pub const INDEX_WORK: &[u8] = b"index-work";
    /// With the number of an attribute behind it (u32), empty: keys of substrings and sounds stay in the index of which no value is left
    /// (`crate::index::keys::changes`).
    pub const LEFT_KEYS: &[u8] = b"left-keys/";
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
