//! A balancer for LDAP, with the settings of OpenLDAP's lloadd.conf(5): many clients over a few connections to several servers.
//!
//! The configuration has its settings (`larix_configuration::balancer`). [`Balancer`] is the core without I/O: bytes of clients and servers in, bytes out, the time is
//! a parameter. [`EventLoop`] drives it with sockets on one thread.
//!
//! *Invariant:* a client gets answers to its own requests alone: an answer goes where the table of its connection says, by a message id
//! that the connection gave out once.
//! *Invariant:* a fault of a server ends only its own connection, and a client that does not read its answers delays no other.

mod backend;
mod balancer;
mod client;
mod counters;
mod envelope;
mod event_loop;
mod figures;
mod sockets;
mod upstream;
mod wire;

pub use balancer::{Balancer, Reloaded};
pub use counters::{Counters, OperationCounts};
pub use event_loop::{ConnectionOf, EventLoop, Listeners, Listening, LoopHandle, Surroundings};
pub use figures::{CODES, ConnectionFigures, Figures, OPERATIONS, POOLS, ServerFigures};
pub use larix_client::PeerFault;
pub use wire::ClientTls;
