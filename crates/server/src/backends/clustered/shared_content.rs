//! A client that has changed something through another node reads its change here, with `session` and `bounded`, too.

use std::sync::Arc;

use larix_backend::SharedContent;

use crate::cluster::{Node, Turn};

impl SharedContent for Node {
    /// One round trip, on a thread that may wait for the engine. Without a thread or an answer, reads hear of the change as of others'.
    fn catch_up(self: Arc<Self>, then: Box<dyn FnOnce() + Send>) {
        let node = Arc::clone(&self);
        let Some(permit) = self.pool.permit() else { return then() };
        permit.take(move |turn| {
            if let (Turn::Go, Some(served)) = (turn, node.served()) {
                // The change is made, whether it is seen at once or not.
                let _heard = served.database().store().hear();
            }
            then();
        });
    }
}
