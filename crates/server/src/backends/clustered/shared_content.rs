//! A client that has changed something through another node reads its change here, with `session` and `bounded`, too.

use std::sync::Arc;

use larix_backend::SharedContent;

use crate::cluster::{Node, Turn};

impl SharedContent for Node {
    /// One round trip, on a thread that may wait for the engine. Without a thread or an answer, reads hear of the change as of others'.
    fn catch_up(self: Arc<Self>, then: Box<dyn FnOnce(bool) + Send>) {
        let node = Arc::clone(&self);
        let Some(permit) = self.pool.permit() else { return then(false) };
        permit.take(move |turn| {
            let served = node.served().filter(|_| turn == Turn::Go);
            then(served.is_some_and(|served| served.database().store().hear().is_ok()));
        });
    }
}
