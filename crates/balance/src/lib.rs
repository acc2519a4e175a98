//! A balancer for LDAP, with the keywords of OpenLDAP's lloadd.conf(5): many clients over a few connections to several servers.
//!
//! [`read`] makes [`BalanceSettings`] of a file. [`Balancer`] is the core without I/O: bytes of clients and servers in, bytes out, the time is
//! a parameter. [`EventLoop`] drives it with sockets on one thread.
//!
//! *Invariant:* a client gets answers to its own requests alone: an answer goes where the table of its connection says, by a message id
//! that the connection gave out once.
//! *Invariant:* a fault of a server ends only its own connection, and a client that does not read its answers delays no other.

mod backend;
mod balancer;
mod client;
mod conf;
mod counters;
mod envelope;
mod event_loop;
mod figures;
mod settings;
mod sockets;
mod upstream;
mod wire;

pub use balancer::{Balancer, Reloaded};
pub use conf::read;
pub use counters::Counters;
pub use event_loop::{EventLoop, Listening, LoopHandle, Surroundings};
pub use figures::{CODES, Figures, OPERATIONS, POOLS, ServerFigures};
pub use larix_client::PeerFault;
pub use settings::{
    Action, BackendSettings, BalanceSettings, BindSettings, Coherence, ProxyHeader, StartTls, Strategy,
    TierSettings,
};
pub use wire::ClientTls;
