//! Under which server id the node that writes logs its changes: nodes provide the content to consumers only where that is theirs, too.
//!
//! A node reads the log of one server id. Where the one that writes numbers its changes otherwise, or logs none, it would wait for
//! changes for ever, and tell its consumers that there were none.

use larix_engine::log;
use larix_engine::tables::{META, meta};
use larix_engine::time::RandomSource;
use larix_kv::KvStore;
use larix_proto::{LdapResult, ResultCode};
use larix_store::{CommitError, Durability, ReadError, Snapshot, Store, Transaction, WriteSet};

/// Leaves word of what the node that takes over does; `None`: it logs nothing. Under another id than before, a new history
/// begins: in the log of one id, the changes under another one are missing.
///
/// # Errors
/// The engine cannot be reached, or another node has taken over.
pub(super) fn settle(
    store: &KvStore,
    logs_under: Option<u16>,
    random: &dyn RandomSource,
) -> Result<(), CommitError> {
    let transaction = store.transaction()?;
    let before = read(&transaction)?;
    let mut set = WriteSet::new();
    match (before, logs_under) {
        (before, now) if before == now => return Ok(()),
        (_, Some(id)) => {
            set.put(META, meta::LOGGED_UNDER, id.to_be_bytes());
            log::put_history(&mut set, random);
        }
        (_, None) => {
            set.delete(META, meta::LOGGED_UNDER);
            log::end_history(&mut set);
        }
    }
    transaction.commit(&set, Durability::Sync).map(|_| ())
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
        None => "the node that writes does not provide its content to consumers, as this one does: configure all nodes alike"
            .to_owned(),
    };
    Ok(Err(LdapResult::with(ResultCode::UNAVAILABLE, text)))
}

fn read<N: Snapshot>(snapshot: &N) -> Result<Option<u16>, ReadError> {
    let row = snapshot.get(META, meta::LOGGED_UNDER)?;
    // One that cannot be read is none: the next node that takes over writes it anew.
    Ok(row.and_then(|row| Some(u16::from_be_bytes(row.as_ref().try_into().ok()?))))
}
