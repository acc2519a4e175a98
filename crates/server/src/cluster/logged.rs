//! Under which server id the node that writes logs its changes, and where the overlays begin that follow the log.
//!
//! A node reads the log of one server id. Where the one that writes numbers its changes otherwise, or logs none, it would wait for
//! changes for ever, and tell its consumers that there were none. So nodes provide the content to consumers only where the id is
//! theirs, too.

use larix_engine::database::{DatabaseOpenError, DatabaseSettings};
use larix_engine::log::{self, LogKey};
use larix_engine::overlay::Interests;
use larix_engine::tables::{META, meta};
use larix_engine::time::RandomSource;
use larix_kv::KvStore;
use larix_proto::{LdapResult, ResultCode};
use larix_store::{Durability, ReadError, Snapshot, Store, Transaction, WriteSet};

/// What a node that logs its changes does.
#[derive(Debug)]
pub(super) struct Logging {
    /// Under which it logs them.
    server_id: u16,
    /// The overlays that follow the log.
    followers: Vec<String>,
}

impl Logging {
    /// None where the node logs nothing.
    pub(super) fn of(settings: &DatabaseSettings, server_id: u16) -> Option<Self> {
        let followers = || {
            let beside = settings.overlays.beside_operations().into_iter();
            beside
                .filter(|(_, overlay)| overlay.interests().has(Interests::COMMITTED))
                .map(|(name, _)| name)
                .collect()
        };
        settings.log.then(|| Self { server_id, followers: followers() })
    }
}

/// Leaves word of what the node that takes over does. Under another id than before, a new history begins: in the log of one id, the
/// changes under another one are missing. Overlays that have no place in the log yet begin behind this.
///
/// # Errors
/// The engine cannot be reached, or another node has taken over.
pub(super) fn settle(
    store: &KvStore,
    logging: Option<&Logging>,
    random: &dyn RandomSource,
) -> Result<(), DatabaseOpenError> {
    let transaction = store.transaction()?;
    let before = read(&transaction)?;
    let mut set = WriteSet::new();
    let mut begun = None;
    match (before, logging.map(|logging| logging.server_id)) {
        (before, now) if before == now => {}
        (_, Some(id)) => {
            set.put(META, meta::LOGGED_UNDER, id.to_be_bytes());
            begun = Some(log::put_history(&mut set, random));
        }
        (_, None) => {
            set.delete(META, meta::LOGGED_UNDER);
            log::end_history(&mut set);
        }
    }
    if let Some(Logging { server_id, followers }) = logging.filter(|logging| !logging.followers.is_empty()) {
        let history = match begun {
            Some(history) => history,
            None => log::history(&transaction)?.unwrap_or_default(),
        };
        let sequence = log::end(&transaction)?.map_or(0, |end| end.sequence);
        let end = LogKey { server_id: *server_id, sequence };
        larix_engine::begin_followers(&transaction, &mut set, followers, (history, end))?;
    }
    if !set.is_empty() {
        transaction.commit(&set, Durability::Sync)?;
    }
    Ok(())
}

/// Whether the log under this id is the one that the node that writes keeps.
///
/// # Errors
/// What a consumer is answered where it is not.
pub(crate) fn check<N: Snapshot>(snapshot: &N, server_id: u16) -> Result<Result<(), LdapResult>, ReadError> {
    let text = match read(snapshot)? {
        Some(id) if id == server_id => return Ok(Ok(())),
        Some(id) => format!(
            "the node that writes has the server id {id}, this one {server_id}: give the database the same `server-id` at all nodes"
        ),
        None => {
            "the node that writes logs no changes, which consumers are served from: configure all nodes alike"
                .to_owned()
        }
    };
    Ok(Err(LdapResult::with(ResultCode::UNAVAILABLE, text)))
}

fn read<N: Snapshot>(snapshot: &N) -> Result<Option<u16>, ReadError> {
    let row = snapshot.get(META, meta::LOGGED_UNDER)?;
    // One that cannot be read is none: the next node that takes over writes it anew.
    Ok(row.and_then(|row| Some(u16::from_be_bytes(row.as_ref().try_into().ok()?))))
}
