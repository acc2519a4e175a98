//! What has happened since the start.

use std::fmt::Write as _;

use larix_client::PeerFault;

/// What became of operations. cn=Monitor gives binds and all others (unbinds and abandons among them) by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCounts {
    pub received: u64,
    pub forwarded: u64,
    /// Answered here, and no server saw them.
    pub rejected: u64,
    /// Answered by their server.
    pub completed: u64,
    /// Not answered by the server that they were sent to.
    pub failed: u64,
}

/// Counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Of binds, and of all others.
    pub operations: [OperationCounts; 2],
    /// Connections of clients.
    pub clients: u64,
    /// Operations that were forwarded, binds among them.
    pub forwarded: u64,
    pub binds: u64,
    /// Requests that the balancer refused itself.
    pub refused: u64,
    /// Operations that were answered `unavailable`, because their server was lost or none was there.
    pub unavailable: u64,
    /// Requests that were answered `busy`, because no connection was free in time.
    pub busy: u64,
    /// Operations that clients abandoned, by themselves or by closing.
    pub abandoned: u64,
    /// Operations that ended because no answer came in time.
    pub late: u64,
    /// Clients that were cut off or lost a search because they did not take their answers.
    pub slow_clients: u64,
    /// Connections to servers that ended with a fault, by the names of [`PeerFault::NAMES`].
    pub faults: [u64; PeerFault::NAMES.len()],
}

impl Counters {
    pub(crate) fn operations(&mut self, is_bind: bool) -> &mut OperationCounts {
        let [binds, others] = &mut self.operations;
        if is_bind { binds } else { others }
    }

    pub(crate) fn fault(&mut self, fault: &PeerFault) {
        if let Some(count) = self.faults.get_mut(fault.number()) {
            *count += 1;
        }
    }

    /// In one line, for the log.
    pub fn line(&self) -> String {
        let Self {
            clients, forwarded, binds, refused, unavailable, busy, abandoned, late, slow_clients, ..
        } = self;
        let mut line = format!(
            "clients={clients} forwarded={forwarded} binds={binds} refused={refused} unavailable={unavailable} busy={busy} \
             abandoned={abandoned} late={late} slow-clients={slow_clients}"
        );
        for (name, count) in PeerFault::NAMES.iter().zip(self.faults).filter(|(_, count)| *count > 0) {
            // Writing to a string cannot fail.
            let _ = write!(line, " fault-{name}={count}");
        }
        line
    }
}
