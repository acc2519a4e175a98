//! Messages between the nodes of a store: one asks the node that writes, which answers. They lie in the engine, so that nobody
//! can send one who could not write the store itself. They may be lost: who asks waits no longer than a deadline of its own.

use std::time::Duration;

use larix_store::ReadError;

use crate::engine::{Message, MessageListener, Recipient};
use crate::error::Fault;
use crate::store::KvStore;

/// A connection to the engine that hears of messages.
#[derive(Debug)]
pub struct Mailbox(Box<dyn MessageListener>);

impl Mailbox {
    /// Ends a [wait](KvStore::wait_for_messages) at once.
    pub fn wake(&self) {
        self.0.wake();
    }
}

impl KvStore {
    /// Sends a message. That it was sent does not say that anybody takes it.
    ///
    /// # Errors
    /// The engine cannot be asked.
    pub fn send_message(&self, to: Recipient<'_>, number: u64, body: Vec<u8>) -> Result<(), ReadError> {
        self.engine.send(&self.handle(), to, number, body).map_err(Fault::into_read)
    }

    /// Begins to hear of messages.
    ///
    /// # Errors
    /// The engine cannot be asked.
    pub fn mailbox(&self) -> Result<Mailbox, ReadError> {
        self.engine.listen().map(Mailbox).map_err(Fault::into_read)
    }

    /// Waits until something was sent to any node, up to `time`; whether it was, as far as is known.
    ///
    /// # Errors
    /// The thread that talks to the engine has ended.
    pub fn wait_for_messages(&self, mailbox: &Mailbox, time: Duration) -> Result<bool, ReadError> {
        mailbox.0.wait(time).map_err(Fault::into_read)
    }

    /// Takes the messages to this node, and those to the node that writes if it `leads`, in the order of their sending.
    ///
    /// # Errors
    /// The engine cannot be asked: the mailbox is of no use any more.
    pub fn take_messages(&self, mailbox: &Mailbox, leads: bool) -> Result<Vec<Message>, ReadError> {
        mailbox.0.take(&self.handle(), leads).map_err(Fault::into_read)
    }
}
