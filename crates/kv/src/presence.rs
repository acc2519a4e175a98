//! What nodes say of themselves, for those who look after them. It lies in the engine beside what the store holds, is no commit, and may be
//! lost: a node says it again and again.

use larix_store::ReadError;

use crate::engine::Said;
use crate::error::Fault;
use crate::store::KvStore;

impl KvStore {
    /// Says something of the node with this URL, in place of what was said before. The engine is told soon, and nobody waits for that: what
    /// cannot be said now, or has no place in the engine (a store that an earlier version made, and this role may not add to), is lost. The
    /// engine forgets it: PostgreSQL a day after it was said last, etcd ten seconds after the node's last sign.
    ///
    /// # Errors
    /// None so far.
    pub fn say(&self, node: &str, words: &[u8]) -> Result<(), ReadError> {
        self.engine.say(node, words).map_err(Fault::into_read)
    }

    /// Takes back what this node has said: it ends.
    ///
    /// # Errors
    /// The engine cannot be asked, or has no place for what nodes say.
    pub fn unsay(&self, node: &str) -> Result<(), ReadError> {
        self.engine.unsay(node).map_err(Fault::into_read)
    }

    /// What nodes have said, in the order of their URLs. Nodes of earlier versions say nothing.
    ///
    /// # Errors
    /// The engine cannot be asked.
    pub fn said(&self) -> Result<Vec<Said>, ReadError> {
        let mut said = self.engine.said().map_err(Fault::into_read)?;
        said.sort_by(|one, other| one.node.cmp(&other.node));
        Ok(said)
    }
}
